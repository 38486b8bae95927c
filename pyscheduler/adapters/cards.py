"""The capacity of cards beside the planner: polls them at their interval and tells the planner what has changed.

All work is done in a worker process of its own (`card_judge`): a slow Prometheus holds nothing up, and no answer is read
in the process that serves. Without a Prometheus cards are judged by what others say of them, and while nobody says anything
there is no worker.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters import card_judge
from pyscheduler.adapters.card_judge import Judged, LostError, Told
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.metrics_collector import MetricsCollector, PollError
from pyscheduler.adapters.prometheus import Collected, Memory
from pyscheduler.adapters.worker import Worker
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.capacity.opinions import NodeOpinion
from pyscheduler.core.capacity.table import CardCapacity
from pyscheduler.core.cards import NodeCards
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.readers.cards.memory_shards import Shards
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["Cards", "Store"]

# Seconds between two times that what is to outlive the process is written.
SAVE_S: Final = 300.0
# Seconds that the end waits for what is known to be saved.
STOP_S: Final = 3.0
# Nodes that the planner is told of while its lock is held once.
_NODES_AT_A_TIME: Final = 20
# How a call shows that the worker has died: its successor knows nothing, or it died as well.
_DIED: Final = (LostError, BrokenProcessPool)
_RUNNING: Final = (HoldingState.BOUND, HoldingState.FOREIGN)


class Store(Protocol):
    """Where what outlives the process is kept."""

    def load(self) -> Shards:
        """Return what was saved last, empty if nothing was, or if it cannot be had now."""

    def late(self) -> Shards | None:
        """Return what `load` could not have, once; None if there is nothing more, or not yet."""

    def save(self, shards: Shards) -> None:
        """Keep this in place of what was saved before."""


class Cards:
    """Polls in a thread of its own until `stop`.

    Parameters
    ----------
    metrics_config, capacity
        Where metrics come from, and how cards are judged.
    cluster, lock, clock
        The planner's, and the clock that it counts by.
    said
        Returns what others say of the cards of nodes.
    addresses
        Returns names and addresses of the nodes, to their names.
    store
        Where what outlives the process is kept.
    worker
        A process for this alone; it is stopped with this.

    Attributes
    ----------
    begun
        Set as soon as what is remembered and said of cards has been told to the planner, or nothing is.
    """

    def __init__(
        self,
        metrics_config: MetricsConfig,
        capacity: CapacityConfig,
        cluster: Cluster,
        lock: threading.Lock,
        clock: Callable[[], float],
        said: Callable[[], Mapping[str, NodeOpinion]],
        addresses: Callable[[], Mapping[str, str]],
        store: Store,
        worker: Worker,
        metrics: Metrics,
        logger: FilteringBoundLogger,
    ) -> None:
        self._metrics_config = metrics_config
        self._capacity = capacity
        self._cluster = cluster
        self._lock = lock
        self._clock = clock
        self._said = said
        self._addresses = addresses
        self._store = store
        self._metrics = metrics
        self._logger = logger
        self._worker = worker
        self.begun = threading.Event()
        self._life: int | None = None
        # What the judge knows of nodes: they are many, and seldom change.
        self._sent: Mapping[str, str] | None = None
        self._sent_inventory: Mapping[str, Sequence[str | None]] | None = None
        self._saving = threading.Lock()
        self._saved_at = clock()
        self._judged: Judged | None = None
        # Nodes of which the planner was told something, and those of them that the present judge has not judged yet.
        self._told: set[str] = set()
        self._stale: set[str] = set()
        self._collector = MetricsCollector(self._ask, self._nodes, metrics_config.interval_s, metrics, logger)

    def start(self) -> None:
        """Begin to poll."""
        self._collector.start()

    def stop(self) -> None:
        """End. What is known is saved, if that does not take long: the worker may be polling, and the API server away."""
        self._collector.stop()
        saver = threading.Thread(target=self._save_last, name="card-memory", daemon=True)
        saver.start()
        saver.join(STOP_S)
        self._worker.stop()

    def cards(self) -> list[CardCapacity]:
        """Return all cards; empty before anything is known. It takes a moment: the worker may be polling."""
        if self._life is None:
            return []
        try:
            return self._worker.run(card_judge.cards, self._life, time.time())
        except _DIED:
            return []

    def status(self) -> Judged | None:
        """Return what the last poll has come to, None before the first."""
        return self._judged

    def age_s(self) -> float:
        """Return the age of the newest sample, -1 before the first."""
        return self._collector.age_s()

    # -- inside, all but the last saving in the collector's thread -------------------------------------------------------

    def _ask(self, nodes: Mapping[str, str], last: Memory, now: float) -> Collected | None:
        """Poll and judge in the worker, and tell the planner. None where there is no Prometheus to ask."""
        try:
            if not self._metrics_config.url and self._life is None and not self._said():
                return None
            return self._asked(nodes, last, now)
        finally:
            # Also if it came to nothing: nobody may wait for it.
            self.begun.set()

    def _asked(self, nodes: Mapping[str, str], last: Memory, now: float) -> Collected | None:
        judged = self._judge(nodes, last, now)
        if judged is None:
            judged = self._judge(nodes, last, now)
            if judged is None:
                raise PollError("the worker that judges cards dies whenever it polls: is memory short? The next poll tries again")
            self._logger.warning("the worker that judges cards has died; another began with what was saved")
        self._judged = judged
        self._take(judged)
        if judged.worse or self._clock() - self._saved_at >= SAVE_S:
            self._save()
        if judged.failure:
            raise PollError(judged.failure)
        return judged.collected

    def _take(self, judged: Judged) -> None:
        self._metrics.cards(judged.states, judged.spared, frozen=judged.frozen)
        self._tell(self._changes(judged))

    def _judge(self, nodes: Mapping[str, str], last: Memory, now: float) -> Judged | None:
        """Poll and judge; None if the worker has died: then the next call begins with another."""
        try:
            if self._life is None:
                self._life, first = self._begin(now)
                if not self._metrics_config.url:
                    return first
                # What is known already is not held up by a Prometheus that is slow.
                self._take(first)
                self.begun.set()
                last = Memory()
            if not self._metrics_config.url:
                return self._without_metrics(self._life, now)
            self._catch_up(self._life)
            told, inventory = self._told_to_judge()
            judged = self._worker.run(
                card_judge.judge,
                self._life,
                self._metrics_config,
                self._capacity.faults.harmless_xids,
                None if nodes == self._sent else nodes,
                last,
                told,
                now,
            )
        except _DIED:
            self._life = None
            return None
        self._sent, self._sent_inventory = nodes, inventory
        return judged

    def _begin(self, now: float) -> tuple[int, Judged]:
        """Make another judge, and return what it makes of what is remembered and said."""
        self._stale = set(self._told)
        self._sent = self._sent_inventory = None
        remembered = self._store.load() if self._metrics_config.url else {}
        life, problems = self._worker.run(card_judge.begin, self._capacity, remembered)
        self._warn(problems)
        return life, self._without_metrics(life, now)

    def _catch_up(self, life: int) -> None:
        """Let a judge that began without what is remembered have it. Nothing is saved between reading and that."""
        with self._saving:
            remembered = self._store.late()
            if remembered is not None:
                self._warn(self._worker.run(card_judge.recall, life, remembered))

    def _warn(self, problems: Sequence[str]) -> None:
        for problem in problems:
            self._logger.warning("a part of what was known of cards is left out of use", problem=problem)

    def _without_metrics(self, life: int, now: float) -> Judged:
        told, inventory = self._told_to_judge()
        judged = self._worker.run(card_judge.judge_without_metrics, life, told, now)
        self._sent_inventory = inventory
        return judged

    def _told_to_judge(self) -> tuple[Told, Mapping[str, Sequence[str | None]]]:
        """Return what the judge is to know, and the inventory, which it is told only where that has changed."""
        inventory = self._inventory()
        return Told(self._pods(), self._said(), None if inventory == self._sent_inventory else inventory), inventory

    def _changes(self, judged: Judged) -> dict[str, NodeCards | None]:
        """Return what is to be told. What a judge before this one told of nodes stands until a whole poll has shown them."""
        changes = dict(judged.changes)
        whole = judged.collected is not None and not judged.collected.problems
        if self._stale and (whole or not self._metrics_config.url):
            changes = {**dict.fromkeys(self._stale), **changes}
            self._stale = set()
        self._stale -= changes.keys()
        self._told = {node for node in self._told | changes.keys() if changes.get(node, True)}
        return changes

    def _tell(self, changes: Mapping[str, NodeCards | None]) -> None:
        """Tell the planner what has changed, a few nodes at a time: calls wait for its lock."""
        nodes = list(changes)
        for first in range(0, len(nodes), _NODES_AT_A_TIME):
            with self._lock:
                for node in nodes[first : first + _NODES_AT_A_TIME]:
                    self._cluster.set_cards(node, changes[node], self._clock())

    def _save(self) -> None:
        if self._life is None or not self._metrics_config.url:
            return
        with self._saving:
            self._saved_at = self._clock()
            try:
                memory = self._worker.run(card_judge.memory, self._life)
            except _DIED:
                return  # the next poll finds it
            self._store.save(memory)

    def _save_last(self) -> None:
        # The worker may be stopped meanwhile.
        with contextlib.suppress(CancelledError, RuntimeError):
            self._save()

    def _inventory(self) -> Mapping[str, Sequence[str | None]]:
        """Return which nodes there are, and the UUIDs of their cards; None for each that is not known."""
        with self._lock:
            states = self._cluster.states()
        there = [state.facts for state in states if state.present]
        return {facts.name: facts.machine.uuids if facts.machine else (None,) * facts.allocatable for facts in there}

    def _nodes(self) -> Mapping[str, str]:
        if not self._metrics_config.url:
            return {}
        with self._lock:
            names = list(self._cluster.table.names)
        return {**self._addresses(), **{name: name for name in names}}

    def _pods(self) -> dict[CardKey, str]:
        """Return which pod has which card."""
        with self._lock:
            holdings: list[Holding] = list(self._cluster.ledger.holdings())
            names = list(self._cluster.table.names)
        return {CardKey(names[held.node], gpu): held.uid for held in holdings if held.state in _RUNNING for gpu in held.gpus}

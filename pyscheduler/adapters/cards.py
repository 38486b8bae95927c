"""The capacity of cards beside the planner: polls them at their interval and tells the planner what has changed.

All work is done in a worker process of its own (`card_judge`): a slow Prometheus holds nothing up, and no answer is read
in the process that serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters import card_judge
from pyscheduler.adapters.card_judge import Judged, LostError
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.metrics_collector import MetricsCollector
from pyscheduler.adapters.prometheus import Collected, Memory
from pyscheduler.adapters.prometheus_session import PrometheusError
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
# Nodes that the planner is told of while its lock is held once.
_NODES_AT_A_TIME: Final = 20
_RUNNING: Final = (HoldingState.BOUND, HoldingState.FOREIGN)


class Store(Protocol):
    """Where what outlives the process is kept."""

    def load(self) -> Shards:
        """Return what was saved last, empty if nothing was."""

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
        self._life: int | None = None
        self._saved_at = clock()
        self._judged: Judged | None = None
        # Nodes of which the planner was told something, and those of them that the present judge has not judged yet.
        self._told: set[str] = set()
        self._stale: set[str] = set()
        self._collector = MetricsCollector(self._ask, self._nodes, lambda _: None, metrics_config.interval_s, metrics, logger)

    def start(self) -> None:
        """Begin to poll."""
        self._collector.start()

    def stop(self) -> None:
        """End. What was not saved is lost."""
        self._collector.stop()
        self._worker.stop()

    def cards(self) -> list[CardCapacity]:
        """Return all cards; empty before the first poll. It takes a moment: the worker may be polling."""
        if self._life is None:
            return []
        try:
            return self._worker.run(card_judge.cards, self._life, time.time())
        except LostError:
            return []

    def status(self) -> Judged | None:
        """Return what the last poll has come to, None before the first."""
        return self._judged

    def age_s(self) -> float:
        """Return the age of the newest sample, -1 before the first."""
        return self._collector.age_s()

    # -- inside, all in the collector's thread --------------------------------------------------------------------------

    def _ask(self, nodes: Mapping[str, str], last: Memory, now: float) -> Collected:
        """Poll and judge in the worker, and tell the planner. In the place of `collect`: samples stay where they are."""
        if self._life is None:
            self._life = self._begin()
            last = Memory()
        try:
            judged = self._worker.run(
                card_judge.judge,
                self._life,
                self._metrics_config,
                self._capacity.faults.harmless_xids,
                nodes,
                last,
                self._pods(),
                self._said(),
                now,
            )
        except LostError:
            self._logger.warning("the worker that judges cards has died; another begins with what was saved")
            self._life = None
            return self._ask(nodes, last, now)
        self._judged = judged
        self._metrics.cards(judged.states, judged.spared, frozen=judged.frozen)
        self._tell(self._changes(judged))
        self._save()
        if judged.collected is None:
            raise PrometheusError(judged.failure, fatal=False)
        return judged.collected

    def _begin(self) -> int:
        self._stale = set(self._told)
        life, problems = self._worker.run(card_judge.begin, self._capacity, self._store.load())
        for problem in problems:
            self._logger.warning("a part of what was known of cards is left out of use", problem=problem)
        return life

    def _changes(self, judged: Judged) -> dict[str, NodeCards | None]:
        """Return what is to be told. What a judge before this one told of nodes stands until a whole poll has shown them."""
        changes = dict(judged.changes)
        if self._stale and judged.collected is not None and not judged.collected.problems:
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
        now = self._clock()
        if now - self._saved_at >= SAVE_S and self._life is not None:
            self._saved_at = now
            self._store.save(self._worker.run(card_judge.memory, self._life))

    def _nodes(self) -> Mapping[str, str]:
        with self._lock:
            names = list(self._cluster.table.names)
        return {**self._addresses(), **{name: name for name in names}}

    def _pods(self) -> dict[CardKey, str]:
        """Return which pod has which card."""
        with self._lock:
            holdings: list[Holding] = list(self._cluster.ledger.holdings())
            names = list(self._cluster.table.names)
        return {CardKey(names[held.node], gpu): held.uid for held in holdings if held.state in _RUNNING for gpu in held.gpus}

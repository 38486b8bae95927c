"""The capacity of all cards, in the worker process: polls are made and judged there, and only what changed comes back.

The judge is the worker's own, in a variable of this module. A worker that has died took it along: `LostError` says so, and
`begin` makes another from what was remembered.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pyscheduler.adapters.prometheus import Collected, Memory, collect
from pyscheduler.adapters.prometheus_errors import PrometheusError
from pyscheduler.core.capacity import unnamed
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.opinions import NodeOpinion, opinions_of, repairs_of
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.readings import SKEW_S
from pyscheduler.core.capacity.states import State
from pyscheduler.core.capacity.table import CapacityTable, CardCapacity
from pyscheduler.core.cards import NodeCards
from pyscheduler.core.findings import Finding
from pyscheduler.readers.cards.card_notes import KEY
from pyscheduler.readers.cards.memory_shards import Shards, pack, unpack
from pyscheduler.readers.document_values import iso
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["Judged", "LostError", "Told", "begin", "cards", "judge", "judge_without_metrics", "memory", "recall"]

# States that are worth saving as soon as a card is in one.
_OUT: Final = (State.DEGRADED, State.FAILED)
# A score or speed that has moved by less is told as it was: each change is work for the placing side.
_MOVED: Final = 0.02
_NOTHING: Final = NodeCards()


class LostError(Exception):
    """The worker process is another one than that which the judge was begun in."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the serving process knows of cards.

    Attributes
    ----------
    pods
        Which pod has which card.
    said
        What others say of the cards of nodes.
    inventory
        As of `Capacity.take_inventory`; None if it is as before.
    """

    pods: Mapping[CardKey, str]
    said: Mapping[str, NodeOpinion]
    inventory: Mapping[str, Sequence[str | None]] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What a poll has come to.

    Attributes
    ----------
    collected
        How the poll went, without its samples; None if nothing could be asked.
    failure
        Why nothing could be asked; empty if it could.
    changes
        By node what its cards are like now, where that has changed; None where nothing is known of them any more.
    states
        How many cards are in each state, by its name.
    spared
        How many slow cards are handed out because too many of their model look slow.
    frozen
        Whether states stand still, for so many cards are silent.
    worse
        Whether a card has become degraded, or has failed.
    """

    collected: Collected | None
    failure: str
    changes: Mapping[str, NodeCards | None]
    states: Mapping[str, int]
    spared: int
    frozen: bool
    worse: bool = False


class _Judge:
    def __init__(self, config: CapacityConfig, remembered: Mapping[str, Any]) -> None:
        self.capacity = Capacity(config)
        self.capacity.restore(remembered)
        self.nodes: Mapping[str, str] = {}
        self._told: dict[str, NodeCards] = {}
        self.inventory: Mapping[str, Sequence[str | None]] = {}
        self._classic = config.mode is Mode.CLASSIC
        # Nodes that may be out as a whole.
        self._whole: frozenset[str] = frozenset()
        self._listed: Sequence[CardKey] = ()
        self._known: Collection[CardKey] = ()
        # Cards that are out, by what stays when they move.
        self._out = {name for name, entry in remembered["cards"].items() if entry.get("state") in _OUT}

    def observe(self, polls: tuple[Poll, ...], told: Told) -> None:
        """Take the polls, of which the last is of now: who has which card is known of that one alone."""
        self._take_inventory(told)
        for poll in polls[:-1]:
            self.capacity.observe(poll)
        for poll in polls[-1:]:
            cards = {*self._known, *self._listed, *poll.cards} if told.said else ()
            self.capacity.observe(poll, told.pods, opinions_of(told.said, cards), repairs_of(told.said, cards))

    def _take_inventory(self, told: Told) -> None:
        inventory = self.inventory if told.inventory is None else told.inventory
        # In classic mode a node is out as a whole.
        whole = frozenset(inventory) if self._classic else unnamed.reported(told.said)
        if told.inventory is None and whole == self._whole:
            return
        self.inventory, self._whole = inventory, whole
        nodes = unnamed.with_indices(inventory, whole)
        self.capacity.take_inventory(nodes)
        self._listed = [CardKey(node, uuid) for node, uuids in nodes.items() for uuid in uuids if uuid is not None]

    def cards(self, now: float) -> list[CardCapacity]:
        """Return all cards, as they are handed out."""
        table = self.capacity.table(now)
        astray = self._unlocated(table)
        return [card.handed_out(unnamed.HANDED_OUT) if card.card in astray else card for card in table]

    def _unlocated(self, table: CapacityTable) -> set[CardKey]:
        keys = list(table.rows)
        return unnamed.unlocated({keys[row] for row in np.flatnonzero(table.excluded).tolist()}, self.inventory)

    def judged(self, collected: Collected | None, failure: str, now: float) -> Judged:
        """Return what it has come to."""
        table = self.capacity.table(now)
        counts = np.bincount(table.state, minlength=len(State))
        states = {state.name.lower(): int(counts[state]) for state in State}
        if collected is not None:
            collected = replace(collected, findings=(*collected.findings, *unnamed.findings_of(self._unlocated(table))))
        return Judged(
            collected, failure, self._changes(table), states, table.spared, table.frozen, worse=self._has_become_worse(table)
        )

    def _has_become_worse(self, table: CapacityTable) -> bool:
        keys = list(table.rows)
        out = {keys[row].identity for row in np.flatnonzero(np.isin(table.state, _OUT)).tolist()}
        before, self._out = self._out, out
        return not out <= before

    def _changes(self, table: CapacityTable) -> dict[str, NodeCards | None]:
        """Return what is to be told of nodes."""
        self._known = table.rows.keys()
        now = _by_node(table, self._told)
        changed: dict[str, NodeCards | None] = {
            node: cards for node, cards in now.items() if self._told.get(node, _NOTHING) != cards
        }
        changed |= dict.fromkeys(self._told.keys() - now.keys())
        self._told = now
        return changed


_judge: _Judge | None = None


def begin(config: CapacityConfig, remembered: Shards) -> tuple[int, list[str]]:
    """Make a judge that knows what was remembered.

    Return the life that the other functions want, and what of the memory could not be read.
    """
    global _judge  # noqa: PLW0603  the state of the worker process
    found, problems = unpack(remembered)
    _judge = _Judge(config, found)
    return os.getpid(), problems


def recall(life: int, remembered: Shards) -> list[str]:
    """Let the judge know what was remembered but could not be read when it began. Return what of it could not be read."""
    found, problems = unpack(remembered)
    _mine(life).capacity.restore(found)
    return problems


def judge(
    life: int,
    config: MetricsConfig,
    harmless_xids: tuple[int, ...],
    nodes: Mapping[str, str] | None,
    last: Memory,
    told: Told,
    now: float,
) -> Judged:
    """Ask for all metrics and judge what came; a poll that fails is judged as one that says nothing.

    Parameters
    ----------
    config, harmless_xids, last, now
        As of `collect`.
    nodes
        As of `collect`; None if they are as before.
    told
        What the serving process knows.

    """
    mine = _mine(life)
    mine.capacity.go_on_from(now)
    mine.nodes = mine.nodes if nodes is None else nodes
    collected, failure = None, ""
    try:
        collected = collect(config, harmless_xids, mine.nodes, last, now)
        polls = collected.polls
    except PrometheusError as cause:
        failure, polls = str(cause), (_nothing(now),)
    mine.observe(polls, told)
    if collected is not None:
        collected = replace(collected, polls=(), findings=(*collected.findings, *_to_come(told.said, now)))
    return mine.judged(collected, failure, now)


def judge_without_metrics(life: int, told: Told, now: float) -> Judged:
    """Judge by what is remembered and what others say alone."""
    mine = _mine(life)
    mine.capacity.go_on_from(now)
    mine.observe((_nothing(now),), told)
    return mine.judged(None, "", now)


def cards(life: int, now: float) -> list[CardCapacity]:
    """Return all cards, with a sentence for each."""
    return _mine(life).cards(now)


def memory(life: int) -> dict[str, bytes]:
    """Return what is to outlive the process."""
    return pack(_mine(life).capacity.memory())


def _nothing(now: float) -> Poll:
    return Poll(now, complete=False, cards=(), samples={})


def _mine(life: int) -> _Judge:
    if _judge is None or life != os.getpid():
        raise LostError
    return _judge


def _to_come(said: Mapping[str, NodeOpinion], now: float) -> Iterator[Finding]:
    """Yield which repairs wait for their time."""
    for node, opinion in sorted(said.items()):
        for card, time in opinion.repaired.items():
            if time > now + SKEW_S:
                what = f"annotation {KEY} of node {node} says that {card} was repaired at {iso(time)}, which is still to come"
                yield Finding("repair-to-come", what, "it counts from then on: write the time at which it was repaired", node)


def _by_node(table: CapacityTable, told: Mapping[str, NodeCards]) -> dict[str, NodeCards]:
    """Return what placing has to know of each node; slices of cards are not handed out as cards."""
    nodes: dict[str, tuple[dict[str, str], dict[str, float], dict[str, float]]] = {}
    ranked, measured = table.score.tolist(), table.reasons.rows.against_peers.tolist()
    for key, row in table.rows.items():
        if key.mig:
            continue
        excluded, scores, speeds = nodes.setdefault(key.node, ({}, {}, {}))
        before = told.get(key.node, _NOTHING)
        if table.excluded[row]:
            excluded[key.uuid] = table.reasons.word(row)
        # One that is good is not named, which is what a card is taken for of which nothing was told.
        if (score := _steady(ranked[row], before.scores.get(key.uuid, 1.0))) < 1.0:
            scores[key.uuid] = score
        if not math.isnan(measured[row]):
            speeds[key.uuid] = _steady(measured[row], before.speeds.get(key.uuid))
    return {node: NodeCards(*of_node) for node, of_node in nodes.items()}


def _steady(value: float, told: float | None) -> float:
    """Return a value with two digits, or what was told before if it is nearly that."""
    return told if told is not None and abs(value - told) < _MOVED else round(value, 2)

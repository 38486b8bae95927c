"""The capacity of all cards, in the worker process: polls are made and judged there, and only what changed comes back.

The judge is the worker's own, in a variable of this module. A worker that has died took it along: `LostError` says so, and
`begin` makes another from what was remembered.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pyscheduler.adapters.prometheus import Collected, Memory, collect
from pyscheduler.adapters.prometheus_session import PrometheusError
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.opinions import NodeOpinion, opinions_of, repairs_of
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.states import State
from pyscheduler.core.capacity.table import CapacityTable, CardCapacity
from pyscheduler.core.cards import NodeCards
from pyscheduler.core.findings import Finding
from pyscheduler.readers.cards.card_notes import KEY
from pyscheduler.readers.cards.memory_shards import Shards, pack, unpack
from pyscheduler.readers.document_values import iso
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["Judged", "LostError", "begin", "cards", "judge", "memory"]

# A speed that has moved by less is told as it was: each change is work for the placing side.
_MOVED: Final = 0.02
# Clocks differ: a time that is so little ahead is not told.
_SKEW_S: Final = 60.0


class LostError(Exception):
    """The worker process is another one than that which the judge was begun in."""


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
    """

    collected: Collected | None
    failure: str
    changes: Mapping[str, NodeCards | None]
    states: Mapping[str, int]
    spared: int
    frozen: bool


class _Judge:
    def __init__(self, config: CapacityConfig, remembered: Mapping[str, Any]) -> None:
        self.capacity = Capacity(config)
        self.capacity.restore(remembered)
        self._classic = config.mode is Mode.CLASSIC
        self._told: dict[str, NodeCards] = {}
        self._known: Collection[CardKey] = ()

    def observe(self, polls: tuple[Poll, ...], pods: Mapping[CardKey, str], said: Mapping[str, NodeOpinion]) -> None:
        """Take the polls, of which the last is of now: who has which card is known of that one alone."""
        for poll in polls[:-1]:
            self.capacity.observe(poll)
        for poll in polls[-1:]:
            cards = {*self._known, *poll.cards}
            self.capacity.observe(poll, pods, opinions_of(said, cards), repairs_of(said, cards))

    def changes(self, table: CapacityTable) -> dict[str, NodeCards | None]:
        """Return what is to be told of nodes."""
        self._known = table.rows.keys()
        now = _by_node(table, self._told, classic=self._classic)
        changed: dict[str, NodeCards | None] = {
            node: cards for node, cards in now.items() if self._told.get(node, NodeCards()) != cards
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


def judge(
    life: int,
    config: MetricsConfig,
    harmless_xids: tuple[int, ...],
    nodes: Mapping[str, str],
    last: Memory,
    pods: Mapping[CardKey, str],
    said: Mapping[str, NodeOpinion],
    now: float,
) -> Judged:
    """Ask for all metrics and judge what came; a poll that fails is judged as one that says nothing.

    Parameters
    ----------
    config, harmless_xids, nodes, last, now
        As of `collect`.
    pods
        Which pod has which card.
    said
        What others say of the cards of nodes.

    """
    mine = _mine(life)
    mine.capacity.go_on_from(now)
    collected, failure = None, ""
    try:
        collected = collect(config, harmless_xids, nodes, last, now)
        polls = collected.polls
    except PrometheusError as cause:
        failure, polls = str(cause), (Poll(now, complete=False, cards=(), samples={}),)
    mine.observe(polls, pods, said)
    table = mine.capacity.table(now)
    counts = np.bincount(table.state, minlength=len(State))
    return Judged(
        None if collected is None else replace(collected, polls=(), findings=(*collected.findings, *_to_come(said, now))),
        failure,
        mine.changes(table),
        {state.name.lower(): int(counts[state]) for state in State},
        table.spared,
        table.frozen,
    )


def cards(life: int, now: float) -> list[CardCapacity]:
    """Return all cards, with a sentence for each."""
    return list(_mine(life).capacity.table(now))


def memory(life: int) -> dict[str, bytes]:
    """Return what is to outlive the process."""
    return pack(_mine(life).capacity.memory())


def _mine(life: int) -> _Judge:
    if _judge is None or life != os.getpid():
        raise LostError
    return _judge


def _to_come(said: Mapping[str, NodeOpinion], now: float) -> Iterator[Finding]:
    """Yield which repairs wait for their time."""
    for node, opinion in sorted(said.items()):
        for card, time in opinion.repaired.items():
            if time > now + _SKEW_S:
                what = f"annotation {KEY} of node {node} says that {card} was repaired at {iso(time)}, which is still to come"
                yield Finding("repair-to-come", what, "it counts from then on: write the time at which it was repaired", node)


def _by_node(table: CapacityTable, told: Mapping[str, NodeCards], *, classic: bool) -> dict[str, NodeCards]:
    """Return what placing has to know of each node; slices of cards are not handed out as cards.

    `classic`: in the place of speeds stands the score of the node, by which the others are ranked.
    """
    excluded: dict[str, dict[str, str]] = {}
    speeds: dict[str, dict[str, float]] = {}
    measured = table.score if classic else table.reasons.rows.against_peers
    slow = "busy" if classic else "slow"
    for key, row in table.rows.items():
        if key.mig:
            continue
        excluded.setdefault(key.node, {})
        known = speeds.setdefault(key.node, {})
        if table.excluded[row]:
            excluded[key.node][key.uuid] = "faulty" if table.state[row] == State.FAILED and not classic else slow
        if np.isfinite(measured[row]):
            known[key.uuid] = _steady(float(measured[row]), told.get(key.node, NodeCards()).speeds.get(key.uuid))
    return {node: NodeCards(excluded[node], speeds[node]) for node in excluded}


def _steady(speed: float, told: float | None) -> float:
    """Return a speed with two digits, or what was told before if it is nearly that."""
    return told if told is not None and abs(speed - told) < _MOVED else round(speed, 2)

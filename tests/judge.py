"""The detector against the truth: what it made of each card of a simulated day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.table import CapacityTable
from tests.replay import keys_of, pods_at, polls_of
from tests.sim.day import Day
from tests.sim.loads import STEP_S
from tests.sim.recording import Recording
from tests.sim.truth import Label, Verdict, verdicts

__all__ = ["Figures", "Judged", "Watched", "changes", "figures", "judged", "watch"]

Grid = NDArray[np.bool_]
# Seconds from one look at the table to the next.
LOOK_S = 120
_LOOK = LOOK_S // STEP_S


@dataclass(frozen=True)
class Watched:
    """Whether each card was kept out, by ours and by the classic mode, at each look; and the last table."""

    day: Day
    excluded: Grid
    classic: Grid
    last: CapacityTable


@dataclass(frozen=True)
class Judged:
    """One card at the end of a day.

    Attributes
    ----------
    caught, classic
        Whether it was kept out then, by ours and by the classic mode.
    ever
        Whether it was kept out by ours at any time.
    in_time
        Whether it was when its fault ended; of one that does not end, at the end of the day.
    wall_h, busy_h
        From the beginning of its fault (or the day) to when it was first kept out.
    behind
        The share of its peers without a fault that rank before it.
    evidence
        What the detector says of it.
    """

    truth: Verdict
    caught: bool
    classic: bool
    ever: bool
    in_time: bool
    wall_h: float
    busy_h: float
    behind: float
    evidence: str


@dataclass(frozen=True)
class Figures:
    """How many were caught of those that should be, and of those that should not."""

    positives: int
    caught: int
    negatives: int
    false: int

    @property
    def recall(self) -> float:
        return self.caught / self.positives if self.positives else float("nan")

    @property
    def precision(self) -> float:
        return self.caught / (self.caught + self.false) if self.caught + self.false else float("nan")


def watch(day: Day, config: CapacityConfig | None = None) -> Watched:
    """Let the detector see a day, with a poll every `interval_s` of its settings."""
    fleet = day.fleet
    keys = {number: keys_of(fleet, card) for number, card in enumerate(fleet.cards)}
    card_of = {key: number for number, names in keys.items() for key in names}
    config = config or CapacityConfig()
    capacity = Capacity(config)
    looks = range(round(day.steps * STEP_S / LOOK_S))
    grids = {mode: np.zeros((len(fleet.cards), len(looks)), np.bool_) for mode in Mode}
    recording = Recording(day)
    polls = polls_of(recording, config.interval_s)
    for look in looks:
        since = list(islice(polls, round(LOOK_S / config.interval_s)))
        for poll in since:
            capacity.observe(poll, pods_at(day, keys, poll.at))
        for mode, grid in grids.items():
            table = capacity.table(since[-1].at, mode)
            cards = np.array([card_of[key] for key in table.rows], np.intp)
            # Of the classic mode its rule of nodes alone: faults are out in every mode.
            out = table.reasons.crowded if mode is Mode.CLASSIC else table.excluded
            grid[cards[out], look] = True
    return Watched(day, grids[Mode.LAYERED], grids[Mode.CLASSIC], capacity.table(recording.end))


def judged(watched: Watched) -> list[Judged]:
    """Judge every card at the end of the day."""
    day = watched.day
    truths = list(verdicts(day, day.steps - 1))
    begins = {fault.card: int(np.ceil(fault.begins_h * 3600 / STEP_S)) for fault in day.fleet.faults}
    ends = {fault.card: int(min(fault.ends_h * 3600 / STEP_S, day.steps)) for fault in day.fleet.faults}
    scores = _scores(watched)
    found = []
    for card, truth in enumerate(truths):
        out, begin = watched.excluded[card], begins.get(card, 0)
        first = _LOOK * (begin // _LOOK + int(np.argmax(out[begin // _LOOK :])) + 1)
        found.append(
            Judged(
                truth=truth,
                caught=bool(out[-1]),
                classic=bool(watched.classic[card, -1]),
                ever=bool(out.any()),
                in_time=bool(out[ends.get(card, day.steps) // _LOOK - 1]),
                wall_h=(first - begin) * STEP_S / 3600,
                busy_h=float(day.busy[card, begin:first].sum()) * STEP_S / 3600,
                behind=_behind(day, scores, truths, card),
                evidence=_evidence(watched, card),
            )
        )
    return found


def _scores(watched: Watched) -> NDArray[np.float64]:
    """Return of each card the worst that it is ranked by."""
    fleet, table = watched.day.fleet, watched.last
    rows = [[table.rows[key] for key in keys_of(fleet, card)] for card in fleet.cards]
    return np.array([table.score[each].min() for each in rows])


def _behind(day: Day, scores: NDArray[np.float64], truths: Sequence[Verdict], card: int) -> float:
    groups = day.fleet.peers_of
    peers = [other for other, truth in enumerate(truths) if groups[other] == groups[card] and not truth.fault]
    return float(np.mean(scores[peers] > scores[card]))


def _evidence(watched: Watched, card: int) -> str:
    fleet = watched.day.fleet
    found = [watched.last.card(key) for key in keys_of(fleet, fleet.cards[card])]
    return "; ".join(f"{each.state.name} {each.evidence}" for each in found if each is not None)


def figures(cards: Iterable[Judged], wanted: Callable[[Verdict], bool], *, classic: bool = False) -> Figures:
    """Count. Whatever keeps out a card that is well counts as a false alarm."""
    right = [card for card in cards if wanted(card.truth)]
    wrong = [card for card in cards if card.truth.label is Label.NEGATIVE]
    caught, false = (sum(card.classic if classic else card.caught for card in part) for part in (right, wrong))
    return Figures(len(right), caught, len(wrong), false)


def changes(day: Day, cards: Sequence[int], configs: Sequence[CapacityConfig]) -> list[tuple[int, int]]:
    """Return by settings how often the state of one of these cards changed at most, and how often it went or came back."""
    keys = {number: keys_of(day.fleet, card) for number, card in enumerate(day.fleet.cards)}
    capacities = [Capacity(config) for config in configs]
    seen: list[list[list[tuple[int, bool]]]] = [[] for _ in configs]
    for poll in polls_of(Recording(day)):
        for capacity, history in zip(capacities, seen, strict=True):
            capacity.observe(poll, pods_at(day, keys, poll.at))
            table = capacity.table(poll.at)
            rows = [table.rows[keys[card][0]] for card in cards]
            history.append([(int(table.state[row]), bool(table.excluded[row])) for row in rows])
    steps = [(np.diff(np.array(history), axis=0) != 0).sum(axis=0).max(axis=0) for history in seen]
    return [(int(states), int(moves)) for states, moves in steps]

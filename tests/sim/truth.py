"""What is true of each card: the label by which a detector is judged. It follows from the speeds that were drawn alone.

Positive (slow): at most 0.88 of the median speed of the peers. Positive (dropped): at least 10 % slower than itself before,
with 6 busy hours before and 6 since. Negative: no fault, at least 0.93 of the median. All others are grey.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tests.sim.day import Day
from tests.sim.faults import Fault, FaultKind
from tests.sim.loads import STEP_S

__all__ = ["Label", "Verdict", "typical_speeds", "verdicts"]

SLOW, WELL, DROP, BUSY_HOURS = 0.88, 0.93, 0.10, 6.0
# Speeds are products: a drop of 10 % may come out as 0.0999999.
_EXACT = 1e-9


class Label(StrEnum):
    POSITIVE = "positive"
    NEGATIVE = "negative"
    GREY = "grey"


@dataclass(frozen=True)
class Verdict:
    """The truth about a card at a moment.

    Attributes
    ----------
    relative
        Its speed divided by the median of its peers (same model and power limit).
    drop
        How much slower it is than itself before its fault; 0 without one, and for a fault that was there from the start.
    hours_before, hours_since
        Busy hours before the fault began, and since.
    """

    card: int
    fault: str
    label: Label
    is_slow: bool
    is_dropped: bool
    relative: float
    drop: float
    hours_before: float
    hours_since: float


def verdicts(day: Day, step: int) -> Iterator[Verdict]:
    """Yield the truth about every card at the beginning of a step, in the order of the cards."""
    relative = _relative(day, typical_speeds(day, step))
    faults = {fault.card: fault for fault in day.fleet.faults}
    for card in range(len(day.fleet.cards)):
        yield _verdict(day, step, card, float(relative[card]), faults.get(card))


def typical_speeds(day: Day, step: int) -> NDArray[np.float64]:
    """Return each card's own speed at a step; of one whose fault comes and goes, the mean over all that time."""
    factors = day.effects.speed[:, step].copy()
    hour = _hour(step)
    for fault in day.fleet.faults:
        if len(fault.spells) > 1 and fault.begins_h <= hour < fault.ends_h:
            factors[fault.card] = _mean_factor(day, fault)
    return day.fleet.speeds * factors


def _mean_factor(day: Day, fault: Fault) -> float:
    hours = np.arange(day.steps) * STEP_S / 3600
    within = (hours >= fault.begins_h) & (hours < fault.ends_h)
    return float(day.effects.speed[fault.card, within].mean())


def _relative(day: Day, speeds: NDArray[np.float64]) -> NDArray[np.float64]:
    relative = np.empty_like(speeds)
    for group in np.unique(day.fleet.peers_of):
        members = day.fleet.peers_of == group
        relative[members] = speeds[members] / np.median(speeds[members])
    return relative


def _verdict(day: Day, step: int, card: int, relative: float, fault: Fault | None) -> Verdict:
    drop, before, since = _drop(day, step, card, fault)
    is_fatal = fault is not None and fault.kind is FaultKind.FATAL
    is_slow = relative <= SLOW and not is_fatal
    is_dropped = drop >= DROP - _EXACT and min(before, since) >= BUSY_HOURS and not is_fatal
    label = Label.GREY
    if is_slow or is_dropped:
        label = Label.POSITIVE
    elif fault is None and relative >= WELL and not day.fleet.cards[card].instances:
        label = Label.NEGATIVE
    return Verdict(card, fault.name if fault else "", label, is_slow, is_dropped, relative, drop, before, since)


def _drop(day: Day, step: int, card: int, fault: Fault | None) -> tuple[float, float, float]:
    if fault is None:
        return 0.0, _busy_hours(day, card, 0, step), 0.0
    begins = int(np.ceil(fault.begins_h * 3600 / STEP_S))
    before, since = _busy_hours(day, card, 0, min(begins, step)), _busy_hours(day, card, begins, step)
    is_on = begins > 0 and fault.begins_h <= _hour(step) < fault.ends_h
    drop = 1 - float(typical_speeds(day, step)[card]) / day.fleet.cards[card].speed if is_on else 0.0
    return drop, before, since


def _busy_hours(day: Day, card: int, start: int, end: int) -> float:
    return float(day.busy[card, start:end].sum()) * STEP_S / 3600


def _hour(step: int) -> float:
    return step * STEP_S / 3600

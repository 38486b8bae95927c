"""Faults that are put into a simulated fleet, and what each does to its card by time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["KINDS", "Effects", "Fault", "FaultKind", "drawn", "effects", "flapping"]

FOR_EVER = float("inf")


class FaultKind(StrEnum):
    SLOW = "slow"  # the core clock stays lower, under every load
    THERMAL = "thermal"  # at its temperature limit: lower clock, and the driver counts the time
    BRAKE = "brake"  # the power supply asks for half the clock, for seconds at a time
    PCIE = "pcie"  # half the lanes: work takes longer at the same clock
    FATAL = "fatal"  # an uncontained memory error: no more work


@dataclass(frozen=True)
class Fault:
    """A fault of one card.

    Attributes
    ----------
    name
        In tables: ``drop-12``.
    size
        Share of its speed that the card loses while the fault is on.
    spells
        When it is on: (from, to) in hours since the beginning.
    """

    card: int
    kind: FaultKind
    name: str
    size: float
    spells: tuple[tuple[float, float], ...] = ((0.0, FOR_EVER),)

    @property
    def begins_h(self) -> float:
        return self.spells[0][0]

    @property
    def ends_h(self) -> float:
        return self.spells[-1][1]

    def is_on(self, hours: NDArray[np.float64]) -> NDArray[np.bool_]:
        on = np.zeros(hours.shape, bool)
        for start, end in self.spells:
            on |= (hours >= start) & (hours < end)
        return on


@dataclass(frozen=True)
class Effects:
    """What the faults do, by card and moment; 1 or 0 where there is none.

    Attributes
    ----------
    clock, work
        Factors: of the core clock, and of the work done per clock.
    sw_thermal, hw_thermal, brake
        Share of busy time that the driver counts as throttled for the reason.
    lanes
        Share of the PCIe lanes that are left.
    failed
        The card does no more work.
    """

    clock: NDArray[np.float64]
    work: NDArray[np.float64]
    sw_thermal: NDArray[np.float64]
    hw_thermal: NDArray[np.float64]
    brake: NDArray[np.float64]
    lanes: NDArray[np.float64]
    failed: NDArray[np.bool_]

    @staticmethod
    def none(cards: int, moments: int) -> Effects:
        ones, zeros = (lambda: np.ones((cards, moments))), (lambda: np.zeros((cards, moments)))
        return Effects(ones(), ones(), zeros(), zeros(), zeros(), ones(), np.zeros((cards, moments), bool))

    @property
    def speed(self) -> NDArray[np.float64]:
        """The factor of the true speed. Under the power brake the clock is half as high."""
        return self.clock * self.work * (1 - self.brake / 2)

    def add(self, fault: Fault, on: NDArray[np.bool_]) -> None:
        """Put a fault on its card at the moments `on`."""
        card = fault.card
        match fault.kind:
            case FaultKind.SLOW:
                self.clock[card, on] *= 1 - fault.size
            case FaultKind.THERMAL:
                self.clock[card, on] *= 1 - fault.size
                self.sw_thermal[card, on] = 0.8
                self.hw_thermal[card, on] = 0.04
            case FaultKind.BRAKE:
                self.brake[card, on] = 2 * fault.size
            case FaultKind.PCIE:
                self.work[card, on] *= 1 - fault.size
                self.lanes[card, on] = 0.5
            case FaultKind.FATAL:
                self.failed[card, on] = True


def effects(faults: Iterable[Fault], cards: int, hours: NDArray[np.float64]) -> Effects:
    """Return what `faults` do at the moments `hours`."""
    found = Effects.none(cards, len(hours))
    for fault in faults:
        found.add(fault, fault.is_on(hours))
    return found


# By name: kind, size, and how it goes on.
KINDS = {
    "slow-10": (FaultKind.SLOW, 0.10, "start"),
    "slow-12": (FaultKind.SLOW, 0.12, "start"),
    "slow-15": (FaultKind.SLOW, 0.15, "start"),
    "drop-10": (FaultKind.SLOW, 0.10, "drop"),
    "drop-12": (FaultKind.SLOW, 0.12, "drop"),
    "drop-15": (FaultKind.SLOW, 0.15, "drop"),
    "thermal": (FaultKind.THERMAL, 0.15, "drop"),
    "brake": (FaultKind.BRAKE, 0.15, "drop"),
    "pcie": (FaultKind.PCIE, 0.12, "drop"),
    "intermittent": (FaultKind.SLOW, 0.20, "on-off"),
    "recovering": (FaultKind.SLOW, 0.15, "recovers"),
    "fatal": (FaultKind.FATAL, 1.0, "drop"),
}


def drawn(cards: Sequence[int], names: Sequence[str], hours: float, rng: np.random.Generator) -> list[Fault]:
    """Return one fault for each of `cards`, the names in turn; the moments are drawn."""
    return [_fault(int(card), name, hours, rng) for card, name in zip(cards, cycle(names), strict=False)]


def flapping(card: int, size: float, on_s: float, off_s: float, hours: float) -> Fault:
    """Return a fault that comes and goes at fixed intervals until the end."""
    begins = np.arange(0, hours, (on_s + off_s) / 3600)
    return Fault(card, FaultKind.SLOW, "flapping", size, tuple((float(at), float(at + on_s / 3600)) for at in begins))


def _fault(card: int, name: str, hours: float, rng: np.random.Generator) -> Fault:
    kind, size, course = KINDS[name]
    if course == "start":
        return Fault(card, kind, name, size)
    if course == "drop":
        return Fault(card, kind, name, size, ((hours * rng.uniform(0.42, 0.54), FOR_EVER),))
    if course == "recovers":
        return Fault(card, kind, name, size, ((hours * rng.uniform(0.12, 0.2), hours * rng.uniform(0.45, 0.55)),))
    return Fault(card, kind, name, size, _spells(hours, rng))


def _spells(hours: float, rng: np.random.Generator) -> tuple[tuple[float, float], ...]:
    """Return spells of 10 to 60 minutes with pauses of 10 to 60 minutes, from the first hour to the end."""
    bounds = 1 + np.cumsum(rng.uniform(1 / 6, 1, int(hours * 6) + 2))
    return tuple((float(a), float(b)) for a, b in list(pairwise(bounds[bounds < hours]))[::2])

"""The newest sample of each quantity of each card: which are new, and by how much counters have grown."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.poll import Column, Floats
from pyscheduler.core.capacity.quantities import AT_ONCE, COUNTERS, Quantity, largest

__all__ = ["SKEW_S", "Bools", "Readings"]

Bools = NDArray[np.bool_]

# Clocks differ by so much at most. What is further ahead is of a clock that is wrong; taken, it would hide all that follows.
SKEW_S: Final = 30.0
# A counter of events begins anew when it falls at all; what is measured, such as energy, only when it falls below this share.
_ANEW: Final = {Quantity.ENERGY_J: 0.5}


class Readings:
    """One row per card, one column per quantity.

    A sample whose time has not advanced is the one that is there. Exporters measure less often than they are scraped, so
    one that comes sooner than two thirds of an interval after the last is taken for its repeat, too.

    Attributes
    ----------
    value, time
        The newest sample; NaN where there was none.
    new
        Whether it came with this poll.
    first
        Whether it is the first at all.
    span
        Seconds since the sample before, of those that are new; NaN at the first.
    step
        By how much a counter grew since; NaN at the first, and where it went back.
    reset
        Whether the counter began anew with this poll.
    heard
        When the card was last heard of before it had a sample here: before a restart, or elsewhere. -inf if never.
    """

    def __init__(self, count: int) -> None:
        shape = (count, len(Quantity))
        self.value = np.full(shape, np.nan)
        self.time = np.full(shape, np.nan)
        self.step = np.full(shape, np.nan)
        self.span = np.full(shape, np.nan)
        self.new = np.zeros(shape, dtype=np.bool_)
        self.first = np.zeros(shape, dtype=np.bool_)
        self.reset = np.zeros(shape, dtype=np.bool_)
        self.heard = np.full(count, -np.inf)

    def begin(self) -> None:
        """Forget what was new."""
        for marks in (self.new, self.first, self.reset):
            marks[:] = False
        for steps in (self.step, self.span):
            steps[:] = np.nan

    def take(self, quantity: Quantity, column: Column, rows: NDArray[np.int64], at: float, interval_s: float) -> None:
        """Take the samples of one quantity. `rows` are those of the poll's cards."""
        at_column = quantity.value
        cards = rows[np.asarray(column.cards, dtype=np.int64)]
        values, times = np.asarray(column.values, dtype=np.float64), np.asarray(column.times, dtype=np.float64)
        valid = (values >= 0) & (values <= largest(quantity)) & (times <= at + SKEW_S)
        before = self.time[cards, at_column]
        spacing = 0.0 if quantity in AT_ONCE else interval_s * 2 / 3
        first = np.isnan(before)
        new = valid & (first | ((times > before) & (times >= before + spacing)))
        cards, values, times, before, first = cards[new], values[new], times[new], before[new], first[new]
        if quantity in COUNTERS:
            last = self.value[cards, at_column]
            step = values - last
            self.reset[cards, at_column] = values < last * _ANEW.get(quantity, 1.0)
            self.step[cards, at_column] = np.where(step < 0, np.nan, step)
        self.span[cards, at_column] = times - before
        self.value[cards, at_column] = values
        self.time[cards, at_column] = times
        self.new[cards, at_column] = True
        self.first[cards, at_column] = first

    def last(self, quantity: Quantity) -> Floats:
        """Return the newest values, however old."""
        values: Floats = self.value[:, quantity.value]
        return values

    def current(self, quantity: Quantity, at: float, max_age_s: float) -> Floats:
        """Return the newest values that are not older than this."""
        old = ~(self.time[:, quantity.value] >= at - max_age_s)
        return np.where(old, np.nan, self.last(quantity))

    def is_new(self, quantity: Quantity) -> Bools:
        """Tell which came with this poll."""
        new: Bools = self.new[:, quantity.value]
        return new

    def share(self, quantity: Quantity) -> Floats:
        """Return by how much a counter grew per second since the sample before."""
        shares: Floats = self.step[:, quantity.value] / self.span[:, quantity.value]
        return shares

    def newest(self) -> Floats:
        """Return when each card was last heard of; -inf if never. What others say of it is no sign of life."""
        times = np.where(np.isnan(self.time), -np.inf, self.time)
        times[:, Quantity.EVIDENCE.value] = -np.inf
        newest: Floats = np.maximum(times.max(axis=1, initial=-np.inf), self.heard)
        return newest

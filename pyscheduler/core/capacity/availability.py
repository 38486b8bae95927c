"""Layer A: what of a card is free now.

The free shares of its SMs and of its memory, each without one-sample spikes, decayed over the history window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import AvailabilityConfig
from pyscheduler.core.capacity.decay import half_life
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.readings import Bools
from pyscheduler.core.capacity.rows import quotient

__all__ = ["Availability", "LastHeld", "Series"]


class Series:
    """The free share of one thing on each card: the samples of the history window, the newest last.

    Attributes
    ----------
    values, times
        Those that count; NaN in time where there is none.
    held, held_at
        A jump that waits for the next sample to confirm it.
    """

    def __init__(self, count: int, slots: int) -> None:
        self.values = np.full((count, slots), np.nan)
        self.times = np.full((count, slots), np.nan)
        self.held = np.full(count, np.nan)
        self.held_at = np.full(count, np.nan)

    def add(self, values: Floats, times: Floats, new: Bools, spike: float) -> None:
        """Add one sample to each card that has a new one."""
        rows = np.flatnonzero(new & np.isfinite(values))
        value, time = values[rows], times[rows]
        jump = value - self.values[rows, -1]
        far = np.abs(jump) > spike  # NaN, the first sample, is not far
        held = self.held[rows] - self.values[rows, -1]
        confirmed = far & (np.sign(held) == np.sign(jump))
        self._push(rows[confirmed], self.held[rows[confirmed]], self.held_at[rows[confirmed]])
        counts = ~far | confirmed
        self._push(rows[counts], value[counts], time[counts])
        self.held[rows] = np.where(counts, np.nan, value)
        self.held_at[rows] = np.where(counts, np.nan, time)

    def _push(self, rows: NDArray[np.int64], values: Floats, times: Floats) -> None:
        for history, newest in ((self.values, values), (self.times, times)):
            history[rows, :-1] = history[rows, 1:]
            history[rows, -1] = newest

    def expire(self, oldest: float) -> None:
        """Drop samples before a time: a card that was silent for the whole window begins anew."""
        old = self.times < oldest
        self.values[old] = np.nan
        self.times[old] = np.nan

    def mean(self, half_life_s: float) -> tuple[Floats, Floats]:
        """Return the decayed mean of each card (NaN without a sample) and the sum of its weights."""
        weights = np.exp2((self.times - self.times[:, -1:]) / half_life_s)
        weights = np.where(np.isnan(weights), 0.0, weights)
        total = weights.sum(axis=1)
        weighted = (weights * np.where(np.isnan(self.values), 0.0, self.values)).sum(axis=1)
        return quotient(weighted, total), total


class LastHeld:
    """When a pod had each card, or may have had it, for the last time.

    Attributes
    ----------
    at
        Unix seconds; NaN before the first poll of the card.
    """

    def __init__(self, count: int) -> None:
        self.at = np.full(count, np.nan)

    def observe(self, held: Bools, at: float) -> None:
        """Take which cards a pod has now, or may have. Of one that is new nobody knows who had it just before."""
        self.at = np.where(held | np.isnan(self.at), np.fmax(self.at, at), self.at)


class Availability:
    """Layer A of all cards."""

    def __init__(self, config: AvailabilityConfig, interval_s: float) -> None:
        self._config = config
        self.half_life_s = half_life(config.decay_factor, interval_s)
        self._slots = max(2, round(config.history_s / interval_s))
        self.sm, self.memory = self.rows(0)

    def rows(self, count: int) -> tuple[Series, Series]:
        """Return empty rows."""
        return Series(count, self._slots), Series(count, self._slots)

    def observe(self, used: tuple[Floats, Floats], times: tuple[Floats, Floats], new: tuple[Bools, Bools], at: float) -> None:
        """Take the used shares of SMs and of memory, when they were measured, and which are new."""
        for series, share, time, is_new in zip((self.sm, self.memory), used, times, new, strict=True):
            series.add(1.0 - np.clip(share, 0.0, 1.0), time, is_new, self._config.spike)
            series.expire(at - self._config.history_s)

    def values(self) -> Floats:
        """Return A of each card, 0 saturated to 1 idle; NaN where nothing is known."""
        parts = ((self.sm, self._config.sm_weight), (self.memory, self._config.memory_weight))
        total, weight = np.zeros(len(self.sm.held)), np.zeros(len(self.sm.held))
        for series, share in parts:
            mean, _ = series.mean(self.half_life_s)
            known = ~np.isnan(mean)
            total += np.where(known, share * mean, 0.0)
            weight += np.where(known, share, 0.0)
        return quotient(total, weight)

    def confidence(self) -> Floats:
        """Return how much of the weight of a full window there is."""
        _, weight = self.sm.mean(self.half_life_s)
        factor = self._config.decay_factor
        full = self._slots if factor == 1 else (1 - factor**self._slots) / (1 - factor)
        confidence: Floats = np.minimum(1.0, weight / full)
        return confidence

    def for_ranking(self, free: Floats, held: LastHeld, at: float) -> Floats:
        """Return what A counts for where the next pod goes, with `free` as A of the cards that are not silent.

        Only of cards that no pod has had for as long as samples count: what is in use there stays when the next pod comes,
        and what a pod uses goes with it. What is not known, or by few samples, is taken for free.
        """
        known = ~np.isnan(free) & (at - held.at >= self._config.history_s)
        return np.where(known, 1.0 - self.confidence() * (1.0 - free), 1.0) ** self._config.exponent

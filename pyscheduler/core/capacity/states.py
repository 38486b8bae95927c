"""Is a card handed out? A score that wavers must not make it come and go.

Unknown, Healthy and Suspect are handed out, and so is Probation; Degraded and Failed are not. A card is Degraded after the
stabilization window below the threshold, and tried again after a longer time above a higher bar. Timers run on samples:
what is not measured takes no time.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.readings import Bools

__all__ = ["State", "States"]


class State(IntEnum):
    """Where a card stands."""

    UNKNOWN = 0
    HEALTHY = 1
    SUSPECT = 2
    DEGRADED = 3
    PROBATION = 4
    FAILED = 5


class States:
    """The state of each card, and its timers.

    Attributes
    ----------
    state, since
        `State`, and the time from which on it holds.
    slow
        Whether it was Degraded for its speed: then only busy samples heal it.
    low_s, low_samples
        How long and in how many samples the score has been below the threshold, of cards that are handed out.
    high_s, high_samples
        The same above the bar of recovery, of those that are not.
    busy_s
        Busy time in Probation.
    hold_s
        How long it must be above the bar.
    released_at
        When it last left Degraded.
    changes
        How often its state has changed.
    """

    def __init__(self, count: int) -> None:
        self.state = np.full(count, int(State.UNKNOWN))
        self.since = np.full(count, np.nan)
        self.slow = np.zeros(count, dtype=np.bool_)
        self.low_s = np.zeros(count)
        self.low_samples = np.zeros(count, dtype=np.int64)
        self.high_s = np.zeros(count)
        self.high_samples = np.zeros(count, dtype=np.int64)
        self.busy_s = np.zeros(count)
        self.hold_s = np.zeros(count)
        self.released_at = np.full(count, -np.inf)
        self.changes = np.zeros(count, dtype=np.int64)

    def step(
        self,
        health: Floats,
        speed: Floats,
        fresh: Bools,
        worked: Bools,
        unknown: Bools,
        seconds: float,
        config: CapacityConfig,
        at: float,
    ) -> None:
        """Take one poll.

        Parameters
        ----------
        health, speed
            H, and I as the threshold sees it.
        fresh
            Which cards have a new sample.
        worked
            Which of them were busy.
        unknown
            Which have been silent for too long.
        seconds
            Since the poll before.
        config
            Thresholds.
        at
            The time.

        """
        score = health * speed
        good = fresh & (score >= config.threshold)
        # A card that rests does not become slow because its peers were measured anew.
        low = fresh & ~good & (worked | (health < config.threshold))
        self._count_low(low, good, seconds)
        before = self.state.copy()
        # What counts of a card that has failed is that it no longer does.
        bar = np.where(before == State.FAILED, health, score)
        self._count_high(bar, fresh & (worked | ~self.slow | (before == State.FAILED)), seconds, config)
        self._go(unknown & ((before == State.HEALTHY) | (before == State.SUSPECT)), State.UNKNOWN, at)
        self._go(good & ((before == State.UNKNOWN) | (before == State.SUSPECT)), State.HEALTHY, at)
        self._go(low & ((before == State.UNKNOWN) | (before == State.HEALTHY)), State.SUSPECT, at)
        self._degrade(before, low, speed, config, at)
        self._recover(before, config, at)
        self._exclude((health == 0) & (before != State.FAILED), State.FAILED, config, at)

    def _count_low(self, low: Bools, good: Bools, seconds: float) -> None:
        self.low_s = np.where(low, self.low_s + seconds, np.where(good, 0.0, self.low_s))
        self.low_samples = np.where(low, self.low_samples + 1, np.where(good, 0, self.low_samples))

    def _count_high(self, score: Floats, heals: Bools, seconds: float, config: CapacityConfig) -> None:
        high = score >= config.states.recover_threshold
        self.high_s = np.where(heals, np.where(high, self.high_s + seconds, 0.0), self.high_s)
        self.high_samples = np.where(heals, np.where(high, self.high_samples + 1, 0), self.high_samples)
        self.busy_s = np.where(heals, self.busy_s + seconds, self.busy_s)

    def _degrade(self, before: NDArray[np.int64], low: Bools, speed: Floats, config: CapacityConfig, at: float) -> None:
        watched = (before == State.SUSPECT) | (before == State.PROBATION)
        long = (self.low_s >= config.window_s) & (self.low_samples >= config.states.degrade_samples)
        degraded = low & watched & long
        self.slow = np.where(degraded, speed < config.threshold, self.slow)
        self._exclude(degraded, State.DEGRADED, config, at)

    def _exclude(self, cards: Bools, state: State, config: CapacityConfig, at: float) -> None:
        """Take cards out; one that was out not long ago for twice as long as then."""
        again = at - self.released_at <= config.states.relapse_s
        hold = np.where(again, np.minimum(2 * self.hold_s, config.states.relapse_s), config.states.recover_s)
        self.hold_s = np.where(cards, hold, self.hold_s)
        self._go(cards, state, at)

    def _recover(self, before: NDArray[np.int64], config: CapacityConfig, at: float) -> None:
        enough = (self.high_s >= self.hold_s) & (self.high_samples >= config.states.recover_samples)
        self._release((before == State.DEGRADED) & enough, State.PROBATION, at)
        self._release((before == State.FAILED) & enough, State.UNKNOWN, at)
        steady = (before == State.PROBATION) & (self.state == State.PROBATION) & (self.low_s == 0)
        self._go(steady & (self.busy_s >= config.states.probation_s), State.HEALTHY, at)

    def _release(self, cards: Bools, state: State, at: float) -> None:
        self.released_at[cards] = at
        self._go(cards, state, at)

    def _go(self, cards: Bools, state: State, at: float) -> None:
        self.state[cards] = int(state)
        self.since[cards] = at
        self.changes[cards] += 1
        for timer in (self.low_s, self.high_s, self.busy_s):
            timer[cards] = 0.0
        for samples in (self.low_samples, self.high_samples):
            samples[cards] = 0

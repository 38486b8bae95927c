"""Is a card handed out? A score that wavers must not make it come and go.

Unknown, Healthy and Suspect are handed out, and so is Probation; Degraded and Failed are not. A card is Degraded after the
stabilization window below the threshold, and tried again after a longer time above a higher bar. Timers run on samples:
what is not measured takes no time. What others say of a card on Kubernetes' objects needs no sample: its timers run on the
clock. A card that has failed goes back to what was known of it before: one that was Degraded, or is too slow, is Degraded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.readings import Bools

__all__ = ["BADNESS", "State", "States"]


class State(IntEnum):
    """Where a card stands."""

    UNKNOWN = 0
    HEALTHY = 1
    SUSPECT = 2
    DEGRADED = 3
    PROBATION = 4
    FAILED = 5


# Which of two counts where a card is known twice: the worse.
BADNESS: Final = {
    State.UNKNOWN: 0,
    State.HEALTHY: 1,
    State.PROBATION: 2,
    State.SUSPECT: 3,
    State.DEGRADED: 4,
    State.FAILED: 5,
}


class States:
    """The state of each card, and its timers.

    Attributes
    ----------
    state, since
        `State`, and the time from which on it holds.
    slow
        Whether it was Degraded for its speed: then only busy samples heal it.
    by_word
        Whether it is suspect or out for what others say alone.
    returns
        Whether it was Degraded when it failed, and is again when it no longer does.
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
        self.by_word = np.zeros(count, dtype=np.bool_)
        self.returns = np.zeros(count, dtype=np.bool_)
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
        said: Floats,
        fresh: Bools,
        worked: Bools,
        unknown: Bools,
        seconds: tuple[float, float],
        config: CapacityConfig,
        at: float,
    ) -> None:
        """Take one poll.

        Parameters
        ----------
        health, speed
            H as it is measured, and I as the threshold sees it.
        said
            The worst that others say, 1 if nothing.
        fresh
            Which cards have a new sample.
        worked
            Which of them were busy.
        unknown
            Which have been silent for too long.
        seconds
            Since the last samples, and since the poll before.
        config
            Thresholds.
        at
            The time.

        """
        whole = np.minimum(health, said)
        score = whole * speed
        good = fresh & (score >= config.threshold)
        bad_word = said < config.threshold
        # A card that rests does not become slow because its peers were measured anew.
        own_low = fresh & (health * speed < config.threshold) & (worked | (health < config.threshold))
        low = bad_word | own_low | (fresh & ~good & worked)
        before = self.state.copy()
        out = (before == State.DEGRADED) | (before == State.FAILED)
        self.by_word &= ~(out & np.where(before == State.FAILED, health == 0, own_low))
        spans = np.where(bad_word | self.by_word, seconds[1], seconds[0])
        self._count_low(low, good, spans)
        # What counts of a card that has failed is that it no longer does.
        bar = np.where(before == State.FAILED, whole, score)
        heals = (fresh & (worked | ~self.slow | (before == State.FAILED))) | (out & self.by_word)
        self._count_high(bar, heals, spans, config)
        # One that was suspect by a word that nobody says any more.
        taken_back = self.by_word & (before == State.SUSPECT) & ~fresh
        lost = unknown & ((before == State.HEALTHY) | (before == State.SUSPECT))
        self._go((lost | taken_back) & ~bad_word, State.UNKNOWN, at)
        self._go(good & ((before == State.UNKNOWN) | (before == State.SUSPECT)), State.HEALTHY, at)
        by_word = health * speed >= config.threshold
        self._go(low & ((before == State.UNKNOWN) | (before == State.HEALTHY)), State.SUSPECT, at, by_word)
        self._degrade(before, low, speed, by_word, config, at)
        self._recover(before, score, speed, config, at)
        failed = (whole == 0) & (before != State.FAILED)
        self.returns = np.where(failed, (before == State.DEGRADED) & ~self.by_word, self.returns)
        self._exclude(failed, State.FAILED, health > 0, config, at)

    def timers(self, config: CapacityConfig) -> tuple[Floats, Floats]:
        """Return for how long each card has been on its way to the next state, and how long it must be; NaN where it is not.

        A suspect below the threshold, one that is out above the bar of recovery; one on probation at work, or below the
        threshold again.
        """
        window, probation = np.full(len(self.state), config.window_s), np.full(len(self.state), config.states.probation_s)
        out = (self.state == State.DEGRADED) | (self.state == State.FAILED)
        on_probation = self.state == State.PROBATION
        low = (self.state == State.SUSPECT) | (on_probation & (self.low_s > 0))
        which = [low, out, on_probation]
        timer: Floats = np.select(which, [self.low_s, self.high_s, self.busy_s], np.nan)
        end: Floats = np.select(which, [window, self.hold_s, probation], np.nan)
        return timer, end

    def waits(self, health: Floats, speed: Floats, config: CapacityConfig) -> Bools:
        """Tell which cards that are out have no other reason left than that the time until they are tried again is not over."""
        failed, degraded = self.state == State.FAILED, self.state == State.DEGRADED
        no_fault = failed & (health >= config.states.recover_threshold)
        waits: Bools = no_fault | (degraded & (health * speed >= config.threshold))
        return waits

    def _count_low(self, low: Bools, good: Bools, seconds: Floats) -> None:
        self.low_s = np.where(low, self.low_s + seconds, np.where(good, 0.0, self.low_s))
        self.low_samples = np.where(low, self.low_samples + 1, np.where(good, 0, self.low_samples))

    def _count_high(self, score: Floats, heals: Bools, seconds: Floats, config: CapacityConfig) -> None:
        high = score >= config.states.recover_threshold
        self.high_s = np.where(heals, np.where(high, self.high_s + seconds, 0.0), self.high_s)
        self.high_samples = np.where(heals, np.where(high, self.high_samples + 1, 0), self.high_samples)
        self.busy_s = np.where(heals, self.busy_s + seconds, self.busy_s)

    def _degrade(
        self, before: NDArray[np.int64], low: Bools, speed: Floats, by_word: Bools, config: CapacityConfig, at: float
    ) -> None:
        watched = (before == State.SUSPECT) | (before == State.PROBATION)
        long = (self.low_s >= config.window_s) & (self.low_samples >= config.states.degrade_samples)
        degraded = low & watched & long
        self.slow = np.where(degraded, speed < config.threshold, self.slow)
        self._exclude(degraded, State.DEGRADED, by_word, config, at)

    def _exclude(self, cards: Bools, state: State, by_word: Bools, config: CapacityConfig, at: float) -> None:
        """Take cards out; one that was out not long ago for twice as long as then."""
        again = at - self.released_at <= config.states.relapse_s
        hold = np.where(again, np.minimum(2 * self.hold_s, config.states.relapse_s), config.states.recover_s)
        self.hold_s = np.where(cards, hold, self.hold_s)
        self._go(cards, state, at, by_word)

    def _recover(self, before: NDArray[np.int64], score: Floats, speed: Floats, config: CapacityConfig, at: float) -> None:
        enough = (self.high_s >= self.hold_s) & (self.high_samples >= config.states.recover_samples)
        degraded, failed = (before == State.DEGRADED) & enough, (before == State.FAILED) & enough
        back = failed & (self.returns | (score < config.threshold))
        self.slow = np.where(back, (self.slow & self.returns) | (speed < config.threshold), self.slow)
        self._go(back, State.DEGRADED, at)
        # A word that is taken back was never measured: there is nothing to try.
        self._release((failed & ~back) | (degraded & self.by_word), State.UNKNOWN, at)
        self._release(degraded & (self.state == State.DEGRADED), State.PROBATION, at)
        steady = (before == State.PROBATION) & (self.state == State.PROBATION) & (self.low_s == 0)
        self._go(steady & (self.busy_s >= config.states.probation_s), State.HEALTHY, at)

    def _release(self, cards: Bools, state: State, at: float) -> None:
        self.released_at[cards] = at
        self._go(cards, state, at)

    def _go(self, cards: Bools, state: State, at: float, by_word: Bools | None = None) -> None:
        self.state[cards] = int(state)
        self.since[cards] = at
        self.changes[cards] += 1
        self.by_word[cards] = False if by_word is None else by_word[cards]
        for timer in (self.low_s, self.high_s, self.busy_s):
            timer[cards] = 0.0
        for samples in (self.low_samples, self.high_samples):
            samples[cards] = 0

"""When cards were repaired: what was seen of one before counts no more.

A repair takes effect once: with the first poll that it is told with and that is not older. Where polls of the past are made
up for that reach over it (after a restart), it does so again, for what they showed of the time before it. A card that is out
for what came after its repair stays out: one may be told late, or be of the node that a card has come to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.faults import EVENTS, Faults
from pyscheduler.core.capacity.readings import Bools
from pyscheduler.core.capacity.states import State, States

__all__ = ["Repairs"]


class Repairs:
    """When each card was repaired last.

    Attributes
    ----------
    at
        Unix seconds; -inf where nobody has said so.
    """

    def __init__(self, count: int) -> None:
        self.at = np.full(count, -np.inf)

    def due(self, told: Mapping[int, float], before: float, at: float) -> NDArray[np.int64]:
        """Return the cards whose repair takes effect with a poll.

        Parameters
        ----------
        told
            When cards were repaired, by row, as far as it is told now. A time that is still to come waits.
        before, at
            The times of the poll before, -inf if there was none, and of this one.

        """
        due = (before < self.at) & (self.at <= at) if np.isfinite(before) else np.zeros(len(self.at), dtype=np.bool_)
        for row, time in told.items():
            if self.at[row] < time <= at:
                self.at[row] = time
                due[row] = True
        return np.flatnonzero(due)

    def over(self, states: States, faults: Faults) -> Bools:
        """Tell which cards are not out for what came after their repair: an event may be older than it was seen."""
        failed = states.state == State.FAILED
        by_event = failed & ((faults.found & int(EVENTS)) != 0)
        began = np.where(by_event, faults.event_at, states.since)
        out = failed | (states.state == State.DEGRADED)
        over: Bools = ~(out & (began > self.at))
        return over

    def cap(self, now: float) -> None:
        """Let none be later than now: it was taken while a clock was ahead, and would hide all faults until then."""
        np.minimum(self.at, now, out=self.at)

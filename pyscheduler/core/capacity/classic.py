"""The well-known simple scheme: a node's score is the mean of what its cards have free.

A node whose score stays below the threshold for the window is no candidate; the others are ranked by it. It sees load and
not speed; it is there for those who know it, and for comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.readings import Bools
from pyscheduler.core.capacity.rows import append, quotient

__all__ = ["ClassicNodes"]


class ClassicNodes:
    """The nodes, numbered.

    Attributes
    ----------
    score
        NaN where nothing is known.
    low_s
        For how long it has been below the threshold.
    low
        Whether it is.
    """

    def __init__(self, count: int) -> None:
        self.score = np.full(count, np.nan)
        self.low = np.zeros(count, dtype=np.bool_)
        self.low_s = np.zeros(count)

    def observe(
        self, nodes: NDArray[np.int64], free: Floats, seconds: float, threshold: float, *, silence_counts: bool = False
    ) -> None:
        """Take one poll: for each card its node, and what it has free.

        Nodes without a known card keep their state; if silence counts, they are not judged any more.
        """
        count = max(len(self.score), int(nodes.max(initial=-1)) + 1)
        append(self, ClassicNodes(count - len(self.score)))
        known = ~np.isnan(free)
        cards = np.bincount(nodes[known], minlength=count).astype(np.float64)
        total = np.bincount(nodes[known], weights=free[known], minlength=count).astype(np.float64)
        self.score = quotient(total, cards)
        measured = cards > 0
        low = measured & (self.score < threshold)
        judged = measured | silence_counts
        self.low_s = np.where(low & self.low, self.low_s + seconds, np.where(judged, 0.0, self.low_s))
        self.low = np.where(judged, low, self.low)

    def timers(self, window_s: float) -> tuple[Floats, Floats]:
        """Return for how long nodes that are still candidates have been below the threshold, and how long that may last."""
        waits = self.low & ~self.excluded(window_s)
        return np.where(waits, self.low_s, np.nan), np.where(waits, window_s, np.nan)

    def excluded(self, window_s: float) -> Bools:
        """Tell which nodes are no candidates."""
        return self.low & (self.low_s >= window_s)

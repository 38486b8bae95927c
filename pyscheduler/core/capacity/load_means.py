"""Decayed means of the clock of each card, one per cell of load."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.load import CELLS
from pyscheduler.core.capacity.poll import Floats

__all__ = ["LoadMeans"]


class LoadMeans:
    """The mean of the logarithm of the clock, by card and cell.

    Its half-life counts busy time: evidence does not age while a card rests, and no new evidence comes then.

    Attributes
    ----------
    mean
        NaN where there is none.
    weight
        Busy seconds, decayed.
    """

    def __init__(self, count: int) -> None:
        self.mean = np.full((count, CELLS), np.nan)
        self.weight = np.zeros((count, CELLS))

    def add(self, rows: NDArray[np.int64], cells: NDArray[np.int64], values: Floats, seconds: Floats, half_life_s: float) -> None:
        """Add one sample to each of these rows, that stands for so many busy seconds."""
        self.weight[rows] *= np.exp2(-seconds / half_life_s)[:, None]
        self.weight[rows, cells] += seconds
        mean = self.mean[rows, cells]
        step = (values - mean) * seconds / self.weight[rows, cells]
        self.mean[rows, cells] = np.where(np.isnan(mean), values, mean + step)

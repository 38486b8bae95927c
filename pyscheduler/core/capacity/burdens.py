"""What beside the clock tells that a card cannot do its work: throttling, a narrow link, heat, errors on links."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import SpeedConfig
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Bools, Readings

__all__ = ["Burden", "Burdens", "Weak", "by_node", "over_peers"]


class Burden(IntEnum):
    """What is averaged over the busy time; of the link its width and its speed by generation, as shares of the highest."""

    HW_THERMAL = 0
    SW_THERMAL = 1
    POWER_BRAKE = 2
    POWER_CAP = 3
    TEMPERATURE = 4
    MEMORY_TEMPERATURE = 5
    REPLAYS = 6
    NVLINK_ERRORS = 7
    WIDTH = 8
    GENERATION = 9


class Weak(IntEnum):
    """Weak evidence: it ranks, and keeps no card out."""

    HEAT = 0
    POWER_CAP = 1
    REPLAYS = 2
    NVLINK_ERRORS = 3
    GENERATION = 4


_THROTTLES: Final = (
    (Burden.HW_THERMAL, Quantity.HW_THERMAL_S, Quantity.HW_THERMAL_FRACTION),
    (Burden.SW_THERMAL, Quantity.SW_THERMAL_S, None),
    (Burden.POWER_BRAKE, Quantity.POWER_BRAKE_S, None),
    (Burden.POWER_CAP, Quantity.POWER_CAP_S, Quantity.POWER_CAP_FRACTION),
)
_GAUGES: Final = ((Burden.TEMPERATURE, Quantity.TEMP_C), (Burden.MEMORY_TEMPERATURE, Quantity.MEM_TEMP_C))
_RATES: Final = ((Burden.REPLAYS, Quantity.PCIE_REPLAYS), (Burden.NVLINK_ERRORS, Quantity.NVLINK_ERRORS))
_HOUR_S: Final = 3600.0


class Burdens:
    """The mean of each burden of each card over its busy time, the latest weighing most.

    Attributes
    ----------
    mean
        Shares of the time; degrees; events per hour; ratios to the maximum. NaN where nothing is known.
    weight
        Busy seconds, decayed.
    """

    def __init__(self, count: int) -> None:
        self.mean = np.full((count, len(Burden)), np.nan)
        self.weight = np.zeros((count, len(Burden)))

    def observe(self, readings: Readings, steady: Bools, seconds: Floats, config: SpeedConfig) -> None:
        """Take what is new of the cards that work steadily, for so many busy seconds."""
        for burden, counter, fraction in _THROTTLES:
            share = np.minimum(readings.share(counter), 1.0)
            if fraction is not None:
                share = np.where(np.isnan(share), _new_values(readings, fraction), share)
            self._add(burden, share, steady, seconds, config)
        for burden, gauge in _GAUGES:
            self._add(burden, _new_values(readings, gauge), steady, seconds, config)
        for burden, counter in _RATES:
            self._add(burden, readings.share(counter) * _HOUR_S, steady, seconds, config)
        widest = readings.last(Quantity.PCIE_WIDTH_MAX)
        width = _new_values(readings, Quantity.PCIE_WIDTH) / np.where(widest > 0, widest, np.nan)
        self._add(Burden.WIDTH, np.minimum(width, 1.0), steady, seconds, config)
        # Each generation is twice as fast as the one before.
        behind = _new_values(readings, Quantity.PCIE_GEN) - readings.last(Quantity.PCIE_GEN_MAX)
        self._add(Burden.GENERATION, np.exp2(np.minimum(behind, 0.0)), steady, seconds, config)

    def _add(self, burden: Burden, values: Floats, steady: Bools, seconds: Floats, config: SpeedConfig) -> None:
        rows = np.flatnonzero(steady & ~np.isnan(values))
        kept = self.weight[rows, burden] * np.exp2(-seconds[rows] / config.means_half_life_s)
        weight = kept + seconds[rows]
        mean = self.mean[rows, burden]
        self.mean[rows, burden] = np.where(np.isnan(mean), values[rows], mean + (values[rows] - mean) * seconds[rows] / weight)
        self.weight[rows, burden] = weight

    def weak(self, groups: Sequence[NDArray[np.int64]], config: SpeedConfig) -> Floats:
        """Return the weak evidence, a column for each of `Weak`: 1 good, 0 bad."""
        parts = np.ones((len(self.mean), len(Weak)))
        hotter = np.fmax(
            over_peers(self.mean[:, Burden.TEMPERATURE], groups, config.quorum),
            over_peers(self.mean[:, Burden.MEMORY_TEMPERATURE], groups, config.quorum),
        )
        capped = over_peers(self.mean[:, Burden.POWER_CAP], groups, config.quorum)
        parts[:, Weak.HEAT] = 1.0 - hotter / config.hot_c
        parts[:, Weak.POWER_CAP] = 1.0 - capped / config.cap
        parts[:, Weak.REPLAYS] = 1.0 - np.log10(1.0 + self.mean[:, Burden.REPLAYS]) / config.replay_decades
        parts[:, Weak.NVLINK_ERRORS] = 1.0 - np.log10(1.0 + self.mean[:, Burden.NVLINK_ERRORS]) / config.replay_decades
        parts[:, Weak.GENERATION] = self.mean[:, Burden.GENERATION]
        return np.clip(np.nan_to_num(parts, nan=1.0), 0.0, 1.0)


def over_peers(values: Floats, groups: Sequence[NDArray[np.int64]], quorum: int) -> Floats:
    """Return by how much each value is above the median of its group; NaN where too few peers have one."""
    over = np.full(len(values), np.nan)
    for rows in groups:
        known = values[rows][~np.isnan(values[rows])]
        if len(known) > quorum:
            over[rows] = values[rows] - np.median(known)
    return over


def by_node(values: Floats, nodes: NDArray[np.int64]) -> Floats:
    """Return the median of each card's node, the upper one of two; NaN where none of its cards has a value."""
    if not len(values):
        return values
    order = np.lexsort((values, nodes))
    count = np.bincount(nodes, minlength=1)
    known = np.bincount(nodes[~np.isnan(values)], minlength=len(count))
    first = np.cumsum(count) - count
    middle = np.minimum(first + known // 2, len(values) - 1)
    return np.where(known > 0, values[order][middle], np.nan)[nodes]


def _new_values(readings: Readings, quantity: Quantity) -> Floats:
    return np.where(readings.is_new(quantity), readings.last(quantity), np.nan)

"""Which samples tell of speed, and at what load they were taken.

The clock shows a card's speed only while the card is busy: an idle one clocks down. And it depends on the load, for dense
work runs into the power limit. So clocks are compared at like load only: loads are sorted into cells by what the job does
(tensor cores, memory), not by what the card makes of it, for a slow card draws less power at the same work. Power
stands in where there is no profiler.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import BusyConfig
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Bools, Readings
from pyscheduler.core.capacity.rows import quotient

__all__ = ["CELLS", "Load"]

_TENSOR: Final = np.array((0.02, 0.15, 0.3, 0.45, 0.6, 0.75))
_DRAM: Final = np.array((0.1, 0.25, 0.4, 0.55, 0.7))
_POWER: Final = np.array((0.5, 0.65, 0.8, 0.92))
_PROFILED: Final = (len(_TENSOR) + 1) * (len(_DRAM) + 1)
# Work in which the highest power seen halves: a week.
_POWER_HALF_LIFE_S: Final = 7 * 86400.0
# The cell of cards that show neither a profile nor power.
_UNKNOWN: Final = _PROFILED + len(_POWER) + 1
CELLS: Final = _UNKNOWN + 1


class Load:
    """The load of each card.

    Attributes
    ----------
    busy
        Whether the newest sample of the clock was taken under load.
    steady
        Whether the one before was, too, for the same pod: the first one of a job is half idle.
    cell
        Which load it is.
    used
        The share of the SMs that is used, NaN if unknown; `used_at` when, `used_new` whether it is new.
    power_share
        Power by its limit.
    highest_clock
        The highest ever seen on each card.
    highest_power
        The highest of the last days of work on each card, that two samples one after the other have shown.
    power_before
        The sample of the power before the newest.
    """

    def __init__(self, count: int) -> None:
        self.busy = np.zeros(count, dtype=np.bool_)
        self.steady = np.zeros(count, dtype=np.bool_)
        self.cell = np.full(count, _UNKNOWN)
        self.used = np.full(count, np.nan)
        self.used_at = np.full(count, np.nan)
        self.used_new = np.zeros(count, dtype=np.bool_)
        self.power_share = np.full(count, np.nan)
        self.highest_clock = np.full(count, np.nan)
        self.highest_power = np.full(count, np.nan)
        self.power_before = np.full(count, np.nan)
        self.dead = np.zeros(count, dtype=np.int64)
        self.low = np.zeros(count, dtype=np.int64)

    def observe(self, readings: Readings, limits: Floats, moved: Bools, config: BusyConfig, at: float, max_age_s: float) -> None:
        """Take what is new.

        Parameters
        ----------
        readings
            After this poll.
        limits
            Power limits, NaN where unknown: then the highest power seen on the card stands in.
        moved
            Cards that another pod has since the last poll.
        config
            Thresholds.
        at, max_age_s
            The time of the poll; older samples do not count.

        """
        power = readings.current(Quantity.POWER_W, at, max_age_s)
        self._note_power(readings, power, config)
        self.power_share = quotient(power, np.where(limits > 0, limits, self.highest_power))
        utilization = readings.current(Quantity.UTILIZATION, at, max_age_s)
        self._look_for_dead_profilers(readings, utilization, config, at, max_age_s)
        alive = self.dead == 0
        engine = self._profiled(readings, Quantity.ENGINE_ACTIVE, alive, at, max_age_s)
        sm = self._profiled(readings, Quantity.SM_ACTIVE, alive, at, max_age_s)
        self._use(readings, (sm, engine, utilization))
        active = _first_known(engine, sm, utilization)
        before = self.busy
        reasons = readings.current(Quantity.CLOCK_REASONS, at, max_age_s)
        self.busy = self._is_busy(readings, active, np.nan_to_num(reasons).astype(np.int64), config)
        self.steady = self.busy & before & ~moved
        tensor = self._profiled(readings, Quantity.TENSOR_ACTIVE, alive, at, max_age_s)
        dram = self._profiled(readings, Quantity.DRAM_ACTIVE, alive, at, max_age_s)
        self.cell = _cells(tensor, dram, self.power_share)

    def _note_power(self, readings: Readings, power: Floats, config: BusyConfig) -> None:
        """Note the highest power. It falls while the card works, or one that was false or is no longer allowed would stay."""
        new = readings.is_new(Quantity.POWER_W)
        worked = np.where(self.used > config.active, np.nan_to_num(readings.span[:, Quantity.POWER_W.value]), 0.0)
        fallen = self.highest_power * np.exp2(-worked / _POWER_HALF_LIFE_S)
        self.highest_power = np.where(new, np.fmax(fallen, np.minimum(power, self.power_before)), self.highest_power)
        self.power_before = np.where(new, power, self.power_before)

    def _look_for_dead_profilers(
        self, readings: Readings, utilization: Floats, config: BusyConfig, at: float, max_age_s: float
    ) -> None:
        """Count the samples in which the profiler shows nothing while the card works.

        From the first on they are not used: a profile of nothing is no load, and no free card.
        """
        engine, sm = (readings.current(each, at, max_age_s) for each in (Quantity.ENGINE_ACTIVE, Quantity.SM_ACTIVE))
        shown = np.fmax(engine, sm)
        new = readings.is_new(Quantity.ENGINE_ACTIVE) | readings.is_new(Quantity.SM_ACTIVE)
        loaded = (utilization > config.dead_load) | (self.power_share > config.dead_load)
        silent = shown < config.dead_active
        counted = np.where(silent & loaded, np.minimum(self.dead + 1, config.dead_samples), self.dead)
        # A profiler that was dead long enough is not alive because the card rests.
        rests = silent & ~loaded & (self.dead < config.dead_samples)
        self.dead = np.where(new, np.where(~silent | rests, 0, counted), self.dead)

    @staticmethod
    def _profiled(readings: Readings, quantity: Quantity, alive: Bools, at: float, max_age_s: float) -> Floats:
        return np.where(alive, readings.current(quantity, at, max_age_s), np.nan)

    def _use(self, readings: Readings, shares: tuple[Floats, Floats, Floats]) -> None:
        """Note the used share by the first of SM_ACTIVE, ENGINE_ACTIVE and UTILIZATION that there is."""
        quantities = (Quantity.SM_ACTIVE, Quantity.ENGINE_ACTIVE, Quantity.UTILIZATION)
        self.used = _first_known(*shares)
        self.used_new = np.zeros(len(self.used), dtype=np.bool_)
        open_ = np.ones(len(self.used), dtype=np.bool_)
        for quantity, share in zip(quantities, shares, strict=True):
            chosen = open_ & ~np.isnan(share)
            self.used_at = np.where(chosen, readings.time[:, quantity.value], self.used_at)
            self.used_new |= chosen & readings.is_new(quantity)
            open_ &= ~chosen

    def _is_busy(self, readings: Readings, active: Floats, reasons: NDArray[np.int64], config: BusyConfig) -> Bools:
        """Tell which cards were busy at their newest sample of the clock; without a new one nothing changes."""
        clock, new = readings.last(Quantity.SM_CLOCK_HZ), readings.is_new(Quantity.SM_CLOCK_HZ)
        busy = (active > config.active) & ~(self.power_share <= config.power) & ((reasons & 1) == 0)
        highest = np.fmax(self.highest_clock, readings.last(Quantity.SM_CLOCK_MAX_HZ))
        low = busy & (clock < config.low_clock * highest)
        self.low = np.where(new, np.where(low, self.low + 1, 0), self.low)
        self.highest_clock = np.where(new, np.fmax(self.highest_clock, clock), self.highest_clock)
        paused = low & (self.low < config.low_samples)
        return np.where(new, busy & ~paused, self.busy)


def _first_known(*choices: Floats) -> Floats:
    found = choices[0]
    for choice in choices[1:]:
        found = np.where(np.isnan(found), choice, found)
    return found


def _cells(tensor: Floats, dram: Floats, power: Floats) -> NDArray[np.int64]:
    profiled = np.digitize(tensor, _TENSOR) * (len(_DRAM) + 1) + np.digitize(dram, _DRAM)
    by_power = np.where(np.isnan(power), _UNKNOWN, _PROFILED + np.digitize(power, _POWER))
    return np.where(np.isnan(tensor) | np.isnan(dram), by_power, profiled)

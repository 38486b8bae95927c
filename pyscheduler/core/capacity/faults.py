"""Layer H: faults. A card that has one is out at once, and nothing is averaged.

A *state* that is bad (health check, failed row remap, what others say) lasts as long as it is reported. An *event* (a
fatal XID, a double-bit error) lasts until the driver was loaded anew, or somebody says that the card was repaired.
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import FaultConfig
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Bools, Readings

__all__ = ["Fault", "Faults"]


class Fault(IntFlag):
    """What is wrong with a card."""

    XID = 1
    ECC = 2
    HEALTH = 4
    REMAP = 8
    OUTSIDE = 16
    OLD_XID = 32


_EVENTS = Fault.XID | Fault.ECC


class Faults:
    """What is wrong with each card, and since when.

    Attributes
    ----------
    found
        Flags of `Fault`.
    value
        H: 0 failed, in between doubtful, 1 good.
    event_at
        When the last event was seen.
    settled
        Whether a complete poll has shown the card: a counter of events that is there for the first time after it counts
        from 0, for exporters leave out counters until the first event.
    restarted, reloaded
        Whether since the last event the exporter was started anew, and the driver loaded anew.
    code_before
        The last XID before this poll.
    """

    def __init__(self, count: int) -> None:
        self.found = np.zeros(count, dtype=np.int64)
        self.value = np.ones(count)
        self.event_at = np.full(count, -np.inf)
        self.settled = np.zeros(count, dtype=np.bool_)
        self.restarted = np.zeros(count, dtype=np.bool_)
        self.reloaded = np.zeros(count, dtype=np.bool_)
        self.code_before = np.full(count, np.nan)

    def observe(self, readings: Readings, outside: Floats, shown: Bools, config: FaultConfig, at: float) -> None:
        """Take what is new.

        Parameters
        ----------
        readings
            After this poll.
        outside
            The worst that others say of each card, NaN if nothing.
        shown
            Which cards a complete poll has shown now.
        config, at
            Thresholds; the time of the poll.

        """
        xid, old_xid = self._xids(readings, config)
        ecc = self._grew(readings, Quantity.ECC_DBE)
        self.found |= np.where(xid, int(Fault.XID), 0) | np.where(ecc, int(Fault.ECC), 0)
        self.found = np.where(old_xid, self.found | int(Fault.OLD_XID), self.found & ~int(Fault.OLD_XID))
        self.event_at[xid | ecc] = at
        level = self._level(readings, outside)
        self._clear_events(readings, level, config, at)
        self.value = np.where(self.found & int(_EVENTS), 0.0, level)
        self.value[(self.found & int(Fault.OLD_XID)) != 0] *= config.warning
        self.settled |= shown

    def forget(self, cards: NDArray[np.int64], readings: Readings, until: Floats) -> None:
        """Forget what was seen of cards up to a time for each. What counters show stays: only what comes on top is new."""
        for quantity in (Quantity.HEALTH, Quantity.REMAP_FAILED):
            old = cards[readings.time[cards, quantity.value] <= until]
            readings.value[old, quantity.value] = np.nan
        self.found[cards] &= ~int(Fault.OLD_XID)
        over = cards[self.event_at[cards] <= until]
        self.found[over] &= ~int(_EVENTS)
        self.restarted[over] = self.reloaded[over] = False

    def _xids(self, readings: Readings, config: FaultConfig) -> tuple[Bools, Bools]:
        """Return which cards have a fatal XID that is new, and which one of unknown age."""
        code = readings.last(Quantity.LAST_XID)
        fatal = (code > 0) & ~np.isin(code, config.harmless_xids)
        changed = readings.is_new(Quantity.LAST_XID) & (code != self.code_before)
        self.code_before = np.where(np.isnan(code), self.code_before, code)
        first = readings.first[:, Quantity.LAST_XID.value]
        fresh = fatal & changed & (~first | self.settled)
        old = fatal & (((self.found & int(Fault.OLD_XID)) != 0) | (changed & first & ~self.settled)) & ~fresh
        return fresh | self._grew(readings, Quantity.XID_FATAL), old

    def _grew(self, readings: Readings, quantity: Quantity) -> Bools:
        index = quantity.value
        from_zero = readings.first[:, index] & self.settled & (readings.last(quantity) > 0)
        after_reset = readings.reset[:, index] & (readings.last(quantity) > 0)
        return (readings.step[:, index] > 0) | from_zero | after_reset

    def _level(self, readings: Readings, outside: Floats) -> Floats:
        health, remap = readings.last(Quantity.HEALTH), readings.last(Quantity.REMAP_FAILED)
        parts = ((Fault.HEALTH, health), (Fault.REMAP, 1.0 - np.minimum(remap, 1.0)), (Fault.OUTSIDE, outside))
        level = np.ones(len(health))
        for fault, part in parts:
            self.found = np.where(part < 1, self.found | int(fault), self.found & ~int(fault))
            level = np.fmin(level, part)
        return level

    def _clear_events(self, readings: Readings, level: Floats, config: FaultConfig, at: float) -> None:
        """End events of cards whose driver was loaded anew, or that are healthy long after the exporter was."""
        driver = readings.reset[:, Quantity.ENERGY_J.value] | readings.reset[:, Quantity.ECC_DBE.value]
        exporter = readings.reset[:, Quantity.XID_FATAL.value]
        self.restarted |= exporter & (self.event_at < at)
        self.reloaded |= driver & (self.event_at < at)
        self.restarted[self.event_at >= at] = False
        self.reloaded[self.event_at >= at] = False
        healthy = (level > 0) & (readings.last(Quantity.HEALTH) > 0)
        ended = (self.reloaded & (level > 0)) | (self.restarted & healthy & (at - self.event_at > config.xid_s))
        self.found[ended] &= ~int(_EVENTS | Fault.OLD_XID)

"""Layer H: faults. A card that has one is out at once, and nothing is averaged.

A *state* that is bad (health check, failed row remap, what others say) lasts as long as it is reported, and while nothing
at all is heard of the card. Where the card is reported without it, it has ended: exporters write a state that is good as well,
and where they cannot ask for one they write nothing of the card. An *event* (a fatal XID, a double-bit error) lasts until the
driver was loaded anew, or somebody says that the card was repaired.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import FaultConfig
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Bools, Readings

__all__ = ["EVENTS", "Fault", "Faults"]


class Fault(IntFlag):
    """What is wrong with a card."""

    XID = 1
    ECC = 2
    HEALTH = 4
    REMAP = 8
    OUTSIDE = 16
    OLD_XID = 32


EVENTS: Final = Fault.XID | Fault.ECC
_STATES: Final = (Quantity.HEALTH, Quantity.REMAP_FAILED)


class Faults:
    """What is wrong with each card, and since when.

    Attributes
    ----------
    found
        Flags of `Fault`.
    value
        H: 0 failed, in between doubtful, 1 good.
    measured
        The same without what is said on Kubernetes' objects.
    event_at
        When the last event was seen; where nobody had looked for long, from when on it can have come.
    restarted, reloaded
        Whether since the last event the exporter was started anew, and the driver loaded anew.
    code_before
        The last XID before this poll, NaN where none is known.
    """

    def __init__(self, count: int) -> None:
        self.found = np.zeros(count, dtype=np.int64)
        self.value = np.ones(count)
        self.measured = np.ones(count)
        self.event_at = np.full(count, -np.inf)
        self.restarted = np.zeros(count, dtype=np.bool_)
        self.reloaded = np.zeros(count, dtype=np.bool_)
        self.code_before = np.full(count, np.nan)

    def observe(
        self,
        readings: Readings,
        outside: Floats,
        said: Floats,
        shown: Bools,
        repaired_at: Floats,
        config: FaultConfig,
        at: float,
        max_age_s: float,
    ) -> None:
        """Take what is new.

        Parameters
        ----------
        readings
            After this poll.
        outside
            What series of others say of each card, NaN if nothing.
        said
            The worst that is said of each on Kubernetes' objects, 1 if nothing.
        shown
            Which cards a complete poll has shown now.
        repaired_at
            When each card was repaired, -inf if it was not.
        config
            Thresholds.
        at, max_age_s
            The time of the poll; older samples do not count.

        """
        _drop_ended(readings, shown, max_age_s)
        xid, old_xid = self._xids(readings, config)
        ecc = _grew(readings, Quantity.ECC_DBE)
        came = _came(readings, at, max_age_s)
        # It may be of before the repair, which is later than all that was known.
        over = repaired_at > came
        xid, ecc = xid & ~over, ecc & ~over
        self.found |= np.where(xid, int(Fault.XID), 0) | np.where(ecc, int(Fault.ECC), 0)
        self.found = np.where(old_xid, self.found | int(Fault.OLD_XID), self.found & ~int(Fault.OLD_XID))
        self.event_at = np.where(xid | ecc, came, self.event_at)
        level = self._level(readings, outside, config)
        self._clear_events(readings, np.minimum(level, said), xid | ecc, config, at, max_age_s)
        self.measured = np.where(self.found & int(EVENTS), 0.0, level)
        self.measured[(self.found & int(Fault.OLD_XID)) != 0] *= config.warning
        self.found = np.where(said < 1, self.found | int(Fault.OUTSIDE), self.found)
        self.value = np.minimum(self.measured, said)

    def forget(self, cards: NDArray[np.int64], readings: Readings, until: Floats) -> None:
        """Forget what was seen of cards up to a time for each. What counters show stays: only what comes on top is new."""
        for quantity in _STATES:
            old = cards[readings.time[cards, quantity.value] <= until]
            readings.value[old, quantity.value] = np.nan
        self.found[cards] &= ~int(Fault.OLD_XID)
        over = cards[self.event_at[cards] <= until]
        self.found[over] &= ~int(EVENTS)
        self.restarted[over] = self.reloaded[over] = False

    def _xids(self, readings: Readings, config: FaultConfig) -> tuple[Bools, Bools]:
        """Return which cards have a fatal XID that is new, and which one of unknown age."""
        code = readings.last(Quantity.LAST_XID)
        fatal = (code > 0) & ~np.isin(code, config.harmless_xids)
        changed = readings.is_new(Quantity.LAST_XID) & (code != self.code_before)
        unknown = np.isnan(self.code_before)
        self.code_before = np.where(np.isnan(code), self.code_before, code)
        fresh = fatal & changed & ~unknown
        old = fatal & (((self.found & int(Fault.OLD_XID)) != 0) | (changed & unknown)) & ~fresh
        return fresh | _grew(readings, Quantity.XID_FATAL), old

    def _level(self, readings: Readings, outside: Floats, config: FaultConfig) -> Floats:
        health, remap = readings.last(Quantity.HEALTH), readings.last(Quantity.REMAP_FAILED)
        health = np.where((health > 0) & (health < 1), config.warning, health)
        parts = ((Fault.HEALTH, health), (Fault.REMAP, 1.0 - np.minimum(remap, 1.0)), (Fault.OUTSIDE, outside))
        level = np.ones(len(health))
        for fault, part in parts:
            self.found = np.where(part < 1, self.found | int(fault), self.found & ~int(fault))
            level = np.fmin(level, part)
        return level

    def _clear_events(
        self, readings: Readings, level: Floats, events: Bools, config: FaultConfig, at: float, max_age_s: float
    ) -> None:
        """End events of cards whose driver was loaded anew, or that are healthy long after the exporter was."""
        driver = readings.reset[:, Quantity.ENERGY_J.value] | readings.reset[:, Quantity.ECC_DBE.value]
        exporter = readings.reset[:, Quantity.XID_FATAL.value]
        self.restarted = (self.restarted | exporter) & ~events
        self.reloaded = (self.reloaded | driver) & ~events
        healthy = (level > 0) & (readings.current(Quantity.HEALTH, at, max_age_s) > 0)
        ended = (self.reloaded & (level > 0)) | (self.restarted & healthy & (at - self.event_at > config.xid_s))
        self.found[ended] &= ~int(EVENTS | Fault.OLD_XID)


def _drop_ended(readings: Readings, shown: Bools, max_age_s: float) -> None:
    """Drop the states of cards that a complete poll shows without them, and that were heard of since for long enough."""
    newest = readings.newest()
    for quantity in _STATES:
        ended = shown & (readings.time[:, quantity.value] < newest - max_age_s)
        readings.value[ended, quantity.value] = np.nan


def _came(readings: Readings, at: float, max_age_s: float) -> Floats:
    """Return when an event of this poll can have come at the earliest: with it, if the sample before is not too old."""
    columns = [quantity.value for quantity in (Quantity.LAST_XID, Quantity.XID_FATAL, Quantity.ECC_DBE)]
    span = readings.span[:, columns]
    came: Floats = np.where(span > max_age_s, readings.time[:, columns] - span, at).min(axis=1)
    return came


def _grew(readings: Readings, quantity: Quantity) -> Bools:
    """Tell which counters of events have new ones. What one shows that is there for the first time may be old.

    Where exporters leave out a counter until the first event, polls that are complete have it at 0 from the beginning.
    """
    index = quantity.value
    after_reset = readings.reset[:, index] & (readings.last(quantity) > 0)
    return (readings.step[:, index] > 0) | after_reset

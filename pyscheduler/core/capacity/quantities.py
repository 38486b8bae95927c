"""What is measured of a card."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["AT_ONCE", "COUNTERS", "Quantity", "largest"]


class Quantity(Enum):
    """A quantity as it comes from the exporter, in the unit given here. What is missing is NaN or absent, never 0.

    Gauges
        SM_CLOCK_HZ, SM_CLOCK_MAX_HZ: Hz.
        ENGINE_ACTIVE, SM_ACTIVE, TENSOR_ACTIVE, DRAM_ACTIVE: share of the time since the last sample, 0 to 1, of the profiler.
        UTILIZATION: share of the time in which any kernel ran, 0 to 1, of the driver.
        POWER_W, POWER_LIMIT_W: W. TEMP_C, MEM_TEMP_C: degrees Celsius. FB_USED: share of the memory, 0 to 1.
        PCIE_WIDTH, PCIE_WIDTH_MAX: lanes. PCIE_GEN, PCIE_GEN_MAX: generation.
        HEALTH: 1 good, 0 failed, anything between a warning. REMAP_FAILED: 0 or 1. LAST_XID: the last code, 0 none.
        CLOCK_REASONS: bit mask; bit 0 says that the card is idle.
        EVIDENCE: what others say of the card, 0 bad to 1 good.
        HW_THERMAL_FRACTION, POWER_CAP_FRACTION: share of the time, 0 to 1, where there is no counter.
    Counters
        XID_FATAL: events whose code is fatal. ECC_DBE: double-bit errors since the driver was loaded.
        HW_THERMAL_S, SW_THERMAL_S, POWER_BRAKE_S, POWER_CAP_S: seconds for which the clock was held down.
        PCIE_REPLAYS, NVLINK_ERRORS: events. ENERGY_J: J since the driver was loaded.
    """

    SM_CLOCK_HZ = 0
    SM_CLOCK_MAX_HZ = auto()
    ENGINE_ACTIVE = auto()
    SM_ACTIVE = auto()
    TENSOR_ACTIVE = auto()
    DRAM_ACTIVE = auto()
    UTILIZATION = auto()
    POWER_W = auto()
    POWER_LIMIT_W = auto()
    TEMP_C = auto()
    MEM_TEMP_C = auto()
    FB_USED = auto()
    PCIE_WIDTH = auto()
    PCIE_WIDTH_MAX = auto()
    PCIE_GEN = auto()
    PCIE_GEN_MAX = auto()
    HEALTH = auto()
    REMAP_FAILED = auto()
    LAST_XID = auto()
    CLOCK_REASONS = auto()
    EVIDENCE = auto()
    HW_THERMAL_FRACTION = auto()
    POWER_CAP_FRACTION = auto()
    XID_FATAL = auto()
    ECC_DBE = auto()
    HW_THERMAL_S = auto()
    SW_THERMAL_S = auto()
    POWER_BRAKE_S = auto()
    POWER_CAP_S = auto()
    PCIE_REPLAYS = auto()
    NVLINK_ERRORS = auto()
    ENERGY_J = auto()


COUNTERS: Final = frozenset((
    Quantity.XID_FATAL, Quantity.ECC_DBE, Quantity.HW_THERMAL_S, Quantity.SW_THERMAL_S, Quantity.POWER_BRAKE_S,
    Quantity.POWER_CAP_S, Quantity.PCIE_REPLAYS, Quantity.NVLINK_ERRORS, Quantity.ENERGY_J,
))  # fmt: skip

# Of these every sample counts, however soon it comes after the last.
AT_ONCE: Final = COUNTERS | {Quantity.HEALTH, Quantity.REMAP_FAILED, Quantity.LAST_XID, Quantity.EVIDENCE}

# A share may exceed 1 by rounding.
_SHARE: Final = 1.05
_LARGEST: Final = {
    Quantity.ENGINE_ACTIVE: _SHARE,
    Quantity.SM_ACTIVE: _SHARE,
    Quantity.TENSOR_ACTIVE: _SHARE,
    Quantity.DRAM_ACTIVE: _SHARE,
    Quantity.UTILIZATION: _SHARE,
    Quantity.FB_USED: _SHARE,
    Quantity.HEALTH: 1.0,
    Quantity.REMAP_FAILED: 1.0,
    Quantity.LAST_XID: 1e6,
    Quantity.CLOCK_REASONS: 2.0**32,
    Quantity.EVIDENCE: 1.0,
    Quantity.HW_THERMAL_FRACTION: _SHARE,
    Quantity.POWER_CAP_FRACTION: _SHARE,
    Quantity.SM_CLOCK_HZ: 1e10,
    Quantity.POWER_W: 1e4,
    Quantity.POWER_LIMIT_W: 1e4,
    Quantity.TEMP_C: 150.0,
    Quantity.MEM_TEMP_C: 150.0,
}
# Above this stand what exporters write where they know nothing.
_ANY: Final = 1e14


def largest(quantity: Quantity) -> float:
    """Return the largest value that can be a measurement. None can be negative."""
    return _LARGEST.get(quantity, _ANY)

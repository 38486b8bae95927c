"""What an exporter can read from a card, under the names that `names` uses: readings, constants, and counters from shares."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.sim.faults import Effects
from tests.sim.physics import Hardware, Readings

__all__ = ["FATAL_XID", "constants", "counted", "gauges"]

# GT/s per lane, by generation of PCIe.
_GTS: Final = np.array([0, 2.5, 5, 8, 16, 32, 64])
FATAL_XID: Final = 95
FATAL_AFID: Final = 29


def gauges(seen: Readings, faults: Effects, hardware: Hardware, temperature_c: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the gauges that change."""
    names = ("clock_mhz", "memory_clock_mhz", "engine", "sm", "tensor", "dram", "power_w", "memory_used_mib", "pcie_width")
    others = ("sm_moment", "tensor_moment", "pcie_gen", "reasons", "sw_thermal", "hw_thermal", "brake", "capped")
    return {name: getattr(seen, name) for name in (*names, *others)} | {
        "temperature_c": temperature_c,
        # Stacked memory is warmer the more it moves.
        "memory_temperature_c": temperature_c + 3 + 6 * seen.dram,
        # A kernel at any moment of the period counts as use of all of it.
        "utilisation": np.ceil(seen.engine * 100) / 100,
        "dram_busy": np.minimum(seen.dram * 0.9, 1),
        "memory_free_mib": hardware.memory_mib - seen.memory_used_mib,
        "pcie_gts": _GTS[seen.pcie_gen.astype(int)] * seen.pcie_width / 16,
        "health_memory": np.where(faults.failed, 20.0, 0.0),
        "health_thermal": np.where(seen.hw_thermal > 0, 10.0, 0.0),
        "healthy": np.where(faults.failed, 0.0, 1.0),
        "double_bit_errors": np.where(faults.failed, 1.0, 0.0),
        "last_afid": np.where(faults.failed, float(FATAL_AFID), 0.0),
    }


def constants(hardware: Hardware) -> dict[str, NDArray[Any]]:
    """Return the gauges that do not change: one column."""
    ones = np.ones_like(hardware.limit_w)
    return {
        "max_clock_mhz": hardware.max_clock_mhz,
        "limit_w": hardware.limit_w,
        "memory_total_mib": hardware.memory_mib,
        "pcie_max_width": 16 * ones,
        "pcie_max_gen": hardware.pcie_gen,
        "pcie_max_gts": _GTS[hardware.pcie_gen.astype(int)],
        "remap_failed": 0 * ones,
    }


def counted(seen: Readings, seconds: float) -> dict[str, NDArray[Any]]:
    """Return what each counter gains in an interval of `seconds`."""
    times = {name: getattr(seen, name) * seconds for name in ("sw_thermal", "hw_thermal", "brake", "capped")}
    return {
        "energy_j": seen.power_w * seconds,
        "thermal_s": times["sw_thermal"] + times["hw_thermal"],
        **{f"{name}_s": gain for name, gain in times.items()},
        # Readings give those per 30 s.
        "replays": seen.replays * seconds / 30,
        "nvlink_errors": seen.nvlink_errors * seconds / 30,
    }

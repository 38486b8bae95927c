"""Metrics of AMD's device metrics exporter.

Names, labels and units: ROCm/device-metrics-exporter, docs/configuration/metricslist.md.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.readers.cards.catalogue_entries import Join, Many, Match, Metric, Source, Vendor

__all__ = ["amd_sources"]

_MEGA: Final = 1e6
_PERCENT: Final = 0.01
_CLOCK_MOST: Final = 1e10
_POWER_MOST: Final = 1e4
_TEMPERATURE_MOST: Final = 150.0
_SHARE_MOST: Final = 1.05
# GT/s of the first generation of PCIe; each has twice that of the one before (8 in place of 10 from the third on).
_FIRST_GTS: Final = 2.5

_Q = Quantity


def amd_sources(prefix: str) -> tuple[Source, ...]:
    """Return the sources; of one quantity the preferred comes first. `prefix` stands before every name."""
    return tuple(source for part in (_speed, _load, _board, _health) for source in part(prefix))


def _one(quantity: Quantity, metric: Metric, *, events: bool = False) -> Source:
    return Source(quantity, (metric,), Vendor.AMD, from_first_event=events)


def _generation(gts: Floats) -> Floats:
    """Return the generation of PCIe of a link of so many GT/s."""
    with np.errstate(divide="ignore"):
        generation = np.round(np.log2(gts / _FIRST_GTS)) + 1
    return np.where(generation >= 1, generation, np.nan)


def _speed(prefix: str) -> tuple[Source, ...]:
    def clock(quantity: Quantity, name: str, kind: str) -> Source:
        # Every die has a clock: the highest is that of the card at work.
        where = (Match("clock_type", kind),)
        return _one(quantity, Metric(f"{prefix}{name}", _MEGA, most=_CLOCK_MOST, where=where))

    return (
        clock(_Q.SM_CLOCK_HZ, "gpu_clock", "(?i:.*system)"),
        clock(_Q.SM_CLOCK_MAX_HZ, "gpu_max_clock", "(?i:.*system)"),
        _one(_Q.PCIE_GEN, Metric(f"{prefix}pcie_speed", most=1000.0, convert=_generation)),
        _one(_Q.PCIE_GEN_MAX, Metric(f"{prefix}pcie_max_speed", most=1000.0, convert=_generation)),
    )


def _load(prefix: str) -> tuple[Source, ...]:
    def share(quantity: Quantity, name: str) -> Source:
        return _one(quantity, Metric(f"{prefix}{name}", _PERCENT, most=_SHARE_MOST))

    memory = (Metric(f"{prefix}gpu_used_vram"), Metric(f"{prefix}gpu_total_vram"))
    return (
        # Not gpu_prof_sm_active: it is a look of one millisecond.
        share(_Q.ENGINE_ACTIVE, "gpu_gfx_activity"),
        share(_Q.UTILIZATION, "gpu_gfx_activity"),
        share(_Q.DRAM_ACTIVE, "gpu_umc_activity"),
        share(_Q.TENSOR_ACTIVE, "gpu_prof_tensor_active_percent"),
        Source(_Q.FB_USED, memory, Vendor.AMD, Join.PART),
    )


def _board(prefix: str) -> tuple[Source, ...]:
    def gauge(quantity: Quantity, name: str, most: float) -> Source:
        return _one(quantity, Metric(f"{prefix}{name}", most=most))

    return (
        gauge(_Q.POWER_W, "gpu_package_power", _POWER_MOST),
        gauge(_Q.POWER_W, "gpu_average_package_power", _POWER_MOST),
        gauge(_Q.TEMP_C, "gpu_junction_temperature", _TEMPERATURE_MOST),
        gauge(_Q.TEMP_C, "gpu_edge_temperature", _TEMPERATURE_MOST),
        gauge(_Q.MEM_TEMP_C, "gpu_memory_temperature", _TEMPERATURE_MOST),
    )


def _health(prefix: str) -> tuple[Source, ...]:
    def violated(*kinds: str) -> tuple[Metric, ...]:
        names = (f"{prefix}gpu_violation_{kind}_residency_percentage" for kind in kinds)
        return tuple(Metric(name, _PERCENT, most=_SHARE_MOST) for name in names)

    fatal = Metric(f"{prefix}gpu_afid_errors", where=(Match("severity", "fatal"),), over=("afid_index",), many=Many.NUMBER)
    return (
        _one(_Q.HEALTH, Metric(f"{prefix}gpu_health", most=1.0, many=Many.LOWEST)),
        # Its value is the number of the field; each series is an error.
        _one(_Q.XID_FATAL, fatal, events=True),
        _one(_Q.ECC_DBE, Metric(f"{prefix}gpu_ecc_uncorrect_total")),
        _one(_Q.PCIE_REPLAYS, Metric(f"{prefix}pcie_replay_count")),
        Source(
            _Q.NVLINK_ERRORS,
            tuple(Metric(f"{prefix}gpu_ecc_{kind}_xgmi_wafl") for kind in ("correct", "uncorrect")),
            Vendor.AMD,
            Join.SUM,
        ),
        Source(
            _Q.HW_THERMAL_FRACTION,
            violated("processor_hot", "socket_thermal", "hbm_thermal", "vr_thermal"),
            Vendor.AMD,
            Join.HIGHEST,
        ),
        Source(_Q.POWER_CAP_FRACTION, violated("ppt"), Vendor.AMD),
    )

"""Metrics of the DCGM exporter.

Names and units: dcgm-exporter, etc/default-counters.csv; DCGM, dcgmlib/dcgm_fields.h (4.6) and the fields of 4.7 (ids 1600
to 1648). Version 4.9.0 of the exporter renamed many of them and changed units: the new name stands beside the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.readers.cards.catalogue_entries import Join, Match, Metric, Source, Vendor

__all__ = ["dcgm_sources"]

_MEGA: Final = 1e6
_MILLI: Final = 1e-3
# Times of throttling are in ns; the exporter's csv said µs for years, wrongly (dcgm-exporter#589).
_NANO: Final = 1e-9
_CLOCK_MOST: Final = 1e10
_POWER_MOST: Final = 1e4
_TEMPERATURE_MOST: Final = 150.0
_SHARE_MOST: Final = 1.05
_BITS_MOST: Final = 2.0**32

_Q = Quantity


def dcgm_sources(harmless_xids: Sequence[int]) -> tuple[Source, ...]:
    """Return the sources; of one quantity the preferred comes first."""
    return (*_CLOCKS, *_LOAD, *_BOARD, *_LINKS, *_health(harmless_xids), *_THROTTLED)


def _dev(
    quantity: Quantity, *names: str, scale: float = 1.0, most: float = np.inf, over: tuple[str, ...] = (), events: bool = False
) -> tuple[Source, ...]:
    """Return a source for each name that a field has had."""
    return tuple(
        Source(
            quantity,
            (Metric(f"DCGM_FI_{name}", scale, most=most, over=over),),
            Vendor.NVIDIA,
            from_first_event=events,
        )
        for name in names
    )


def _health_share(watches: Floats) -> Floats:
    """Return 1 for pass, between for a warning, 0 for a failure (dcgm_structs.h, dcgmHealthWatchResults_t: 0, 10, 20)."""
    return np.select([np.isnan(watches), watches < 10, watches < 20], [np.nan, 1.0, 0.5], 0.0)


def _health(harmless_xids: Sequence[int]) -> tuple[Source, ...]:
    fatal = Match("xid", "|".join(str(code) for code in harmless_xids), negated=True)
    health = Metric("DCGM_EXP_GPU_HEALTH_STATUS", most=20.0, convert=_health_share)
    return (
        Source(_Q.HEALTH, (health,), Vendor.NVIDIA),
        *_dev(_Q.REMAP_FAILED, "DEV_ROW_REMAP_FAILED", "DEV_ROW_REMAP_FAILURE", most=1.0),
        *_dev(_Q.LAST_XID, "DEV_XID_ERROR", "DEV_XID_ERRORS", most=1e5, events=True),
        Source(
            _Q.XID_FATAL,
            (Metric("DCGM_EXP_XID_ERRORS_TOTAL", where=(fatal,), over=("xid",)),),
            Vendor.NVIDIA,
            from_first_event=True,
        ),
        *_dev(_Q.ECC_DBE, "DEV_ECC_DBE_VOL_TOTAL"),
    )


def _memory(unit: str) -> Source:
    # The unit (MiB, later bytes) cancels.
    return Source(
        _Q.FB_USED,
        (Metric(f"DCGM_FI_DEV_FB_USED{unit}"), Metric(f"DCGM_FI_DEV_FB_FREE{unit}")),
        Vendor.NVIDIA,
        Join.SHARE,
    )


def _nvlink(*names: str) -> Source:
    metrics = tuple(Metric(f"DCGM_FI_DEV_NVLINK_{name}", over=("nvlink",)) for name in names)
    return Source(_Q.NVLINK_ERRORS, metrics, Vendor.NVIDIA, Join.SUM)


_CLOCKS: Final = (
    *_dev(_Q.SM_CLOCK_HZ, "DEV_SM_CLOCK_HERTZ", most=_CLOCK_MOST),
    *_dev(_Q.SM_CLOCK_HZ, "DEV_SM_CLOCK", scale=_MEGA, most=_CLOCK_MOST),
    *_dev(_Q.SM_CLOCK_MAX_HZ, "DEV_SM_MAX_CLOCK_HERTZ", most=_CLOCK_MOST),
    *_dev(_Q.SM_CLOCK_MAX_HZ, "DEV_MAX_SM_CLOCK", scale=_MEGA, most=_CLOCK_MOST),
    *_dev(_Q.CLOCK_REASONS, "DEV_CLOCKS_EVENT_REASONS", "DEV_CLOCK_THROTTLE_REASONS", most=_BITS_MOST),
)

_LOAD: Final = (
    *_dev(_Q.ENGINE_ACTIVE, "PROF_GR_ENGINE_UTIL_RATIO", "PROF_GR_ENGINE_ACTIVE", most=_SHARE_MOST),
    *_dev(_Q.SM_ACTIVE, "PROF_SM_UTIL_RATIO", "PROF_SM_ACTIVE", most=_SHARE_MOST),
    *_dev(_Q.TENSOR_ACTIVE, "PROF_TENSOR_UTIL_RATIO", "PROF_PIPE_TENSOR_ACTIVE", most=_SHARE_MOST),
    *_dev(_Q.DRAM_ACTIVE, "PROF_DRAM_UTIL_RATIO", "PROF_DRAM_ACTIVE", most=_SHARE_MOST),
    # 0 to 100 in DCGM 4.6, where the name is an alias of the old field; 0 to 1 from 4.7 on.
    Source(
        _Q.UTILIZATION,
        (Metric("DCGM_FI_DEV_GPU_UTIL_RATIO", most=_SHARE_MOST, percent_or_ratio=True),),
        Vendor.NVIDIA,
    ),
    *_dev(_Q.UTILIZATION, "DEV_GPU_UTIL", scale=0.01, most=_SHARE_MOST),
    _memory("_BYTES"),
    _memory(""),
)

_BOARD: Final = (
    *_dev(_Q.POWER_W, "DEV_BOARD_POWER_WATTS", "DEV_POWER_USAGE", most=_POWER_MOST),
    *_dev(_Q.POWER_LIMIT_W, "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "DEV_ENFORCED_POWER_LIMIT", most=_POWER_MOST),
    *_dev(_Q.POWER_LIMIT_W, "DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", "DEV_POWER_MGMT_LIMIT", most=_POWER_MOST),
    *_dev(_Q.TEMP_C, "DEV_GPU_TEMP_CELSIUS", "DEV_GPU_TEMP", most=_TEMPERATURE_MOST),
    *_dev(_Q.MEM_TEMP_C, "DEV_MEMORY_TEMP_CELSIUS", "DEV_MEMORY_TEMP", most=_TEMPERATURE_MOST),
    *_dev(_Q.ENERGY_J, "DEV_GPU_ENERGY_JOULES_TOTAL"),
    *_dev(_Q.ENERGY_J, "DEV_TOTAL_ENERGY_CONSUMPTION", scale=_MILLI),
)

_LINKS: Final = (
    *_dev(_Q.PCIE_WIDTH, "DEV_PCIE_LINK_WIDTH", most=32.0),
    *_dev(_Q.PCIE_WIDTH_MAX, "DEV_PCIE_MAX_LINK_WIDTH", most=32.0),
    *_dev(_Q.PCIE_GEN, "DEV_PCIE_LINK_GEN", most=16.0),
    *_dev(_Q.PCIE_GEN_MAX, "DEV_PCIE_MAX_LINK_GEN", most=16.0),
    *_dev(_Q.PCIE_REPLAYS, "DEV_PCIE_REPLAY_TOTAL", "DEV_PCIE_REPLAY_COUNTER"),
    # CRC_ERROR_TOTAL is of Hopper and newer, CRC_FLIT and CRC_DATA of those before.
    _nvlink("CRC_ERROR_TOTAL", "CRC_FLIT_ERROR_TOTAL", "CRC_DATA_ERROR_TOTAL", "REPLAY_ERROR_TOTAL", "RECOVERY_ERROR_TOTAL"),
    _nvlink("CRC_FLIT_ERROR_COUNT_TOTAL", "CRC_DATA_ERROR_COUNT_TOTAL", "REPLAY_ERROR_COUNT_TOTAL", "RECOVERY_ERROR_COUNT_TOTAL"),
)

# From DCGM 4.5.3 on there is no series before the first event (dcgm-exporter#646, #700).
_THROTTLED: Final = (
    *_dev(_Q.HW_THERMAL_S, "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", scale=_NANO, events=True),
    *_dev(_Q.HW_THERMAL_S, "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL"),
    *_dev(_Q.HW_THERMAL_S, "DEV_THERMAL_VIOLATION", scale=_NANO),
    *_dev(_Q.SW_THERMAL_S, "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", scale=_NANO, events=True),
    *_dev(_Q.POWER_BRAKE_S, "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", scale=_NANO, events=True),
    *_dev(_Q.POWER_CAP_S, "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", scale=_NANO, events=True),
    *_dev(_Q.POWER_CAP_S, "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL"),
    *_dev(_Q.POWER_CAP_S, "DEV_POWER_VIOLATION", scale=_NANO),
)

"""What each generation of exporter calls a reading, and in which unit: DCGM exporter before and after its renaming, AMD's.

The names of the second generation are those of DCGM 4.7 that are known; opt-in fields without a known new name keep the old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tests.sim.fleet import Card, Fleet, Generation

__all__ = ["BLANK", "EXPORTS", "XIDS", "Absence", "Export", "default_names", "exports", "labels", "series"]

# Blank of a 64-bit integer: not supported (dcgm_structs.h). Printed as a float it is this.
BLANK: Final = float(0x7FFFFFFFFFFFFFF2)


class Absence(StrEnum):
    """When a series is not there."""

    NEVER = "never"
    UNTIL_EVENT = "until the first event"
    BLANK = "a blank where the card has no such sensor"


@dataclass(frozen=True)
class Export:
    """One metric.

    Attributes
    ----------
    name, kind
        Of the metric; ``gauge`` or ``counter``.
    reading
        What it shows: a name of `signals`, or `xid_CODE`.
    factor, digits
        From the reading's unit to the exporter's, and the decimals that it prints.
    profiling
        Comes from the profiler, which may be dead.
    of_instances
        Is there for MIG instances.
    domains
        One series for each clock of the card.
    """

    name: str
    reading: str
    factor: float = 1.0
    digits: int = 0
    kind: str = "gauge"
    labels: Mapping[str, str] = field(default_factory=dict)
    absence: Absence = Absence.NEVER
    profiling: bool = False
    of_instances: bool = True
    domains: bool = False


def _dcgm(old: str, new: str, reading: str, units: tuple[float, float], digits: tuple[int, int], **rest) -> list[Export]:
    return [Export(f"DCGM_FI_{name}", reading, units[n], digits[n], **rest) for n, name in enumerate((old, new))]


MHZ, MIB, PERCENT, NS = 1e6, 2**20, 100.0, 1e9
WHOLE, MILLI = (0, 0), (6, 6)

# Pairs of old and new.
_PAIRS = [
    _dcgm("DEV_SM_CLOCK", "DEV_SM_CLOCK_HERTZ", "clock_mhz", (1, MHZ), WHOLE),
    _dcgm("DEV_MEM_CLOCK", "DEV_MEMORY_CLOCK_HERTZ", "memory_clock_mhz", (1, MHZ), WHOLE),
    _dcgm("DEV_MAX_SM_CLOCK", "DEV_SM_MAX_CLOCK_HERTZ", "max_clock_mhz", (1, MHZ), WHOLE),
    _dcgm("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS", "temperature_c", (1, 1), WHOLE),
    _dcgm("DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS", "memory_temperature_c", (1, 1), WHOLE, absence=Absence.BLANK),
    _dcgm("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS", "power_w", (1, 1), (3, 3)),
    _dcgm("DEV_POWER_MGMT_LIMIT", "DEV_POWER_MGMT_LIMIT", "limit_w", (1, 1), (3, 3)),
    _dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_GPU_ENERGY_JOULES_TOTAL", "energy_j", (1e3, 1), WHOLE, kind="counter"),
    _dcgm("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", "utilisation", (PERCENT, 1), (0, 2), of_instances=False),
    _dcgm("DEV_MEM_COPY_UTIL", "DEV_MEMORY_UTIL_RATIO", "dram_busy", (PERCENT, 1), (0, 2), of_instances=False),
    _dcgm("DEV_FB_USED", "DEV_FB_USED_BYTES", "memory_used_mib", (1, MIB), WHOLE),
    _dcgm("DEV_FB_FREE", "DEV_FB_FREE_BYTES", "memory_free_mib", (1, MIB), WHOLE),
    _dcgm("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO", "engine", (1, 1), MILLI, profiling=True),
    _dcgm("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", "sm", (1, 1), MILLI, profiling=True),
    _dcgm("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "tensor", (1, 1), MILLI, profiling=True),
    _dcgm("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", "dram", (1, 1), MILLI, profiling=True),
    _dcgm("DEV_PCIE_LINK_WIDTH", "DEV_PCIE_LINK_WIDTH", "pcie_width", (1, 1), WHOLE),
    _dcgm("DEV_PCIE_MAX_LINK_WIDTH", "DEV_PCIE_MAX_LINK_WIDTH", "pcie_max_width", (1, 1), WHOLE),
    _dcgm("DEV_PCIE_LINK_GEN", "DEV_PCIE_LINK_GEN", "pcie_gen", (1, 1), WHOLE),
    _dcgm("DEV_PCIE_MAX_LINK_GEN", "DEV_PCIE_MAX_LINK_GEN", "pcie_max_gen", (1, 1), WHOLE),
    _dcgm("DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL", "replays", (1, 1), WHOLE, kind="counter"),
    _dcgm("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DEV_NVLINK_CRC_ERROR_TOTAL", "nvlink_errors", (1, 1), WHOLE, kind="counter"),
    _dcgm("DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS", "reasons", (1, 1), WHOLE),
    _dcgm("DEV_ECC_DBE_VOL_TOTAL", "DEV_ECC_DBE_VOL_TOTAL", "double_bit_errors", (1, 1), WHOLE, kind="counter"),
    _dcgm("DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED", "remap_failed", (1, 1), WHOLE),
    _dcgm(
        "DEV_THERMAL_VIOLATION", "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "thermal_s", (NS, 1), (0, 6), kind="counter"
    ),
    _dcgm("DEV_POWER_VIOLATION", "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", "capped_s", (NS, 1), (0, 6), kind="counter"),
]  # fmt: skip
# The same name in both; with DCGM of the second the series appears with its first event.
_REASON_TIMES = {"SW_POWER_CAP": "capped_s", "SW_THERM_SLOWDOWN": "sw_thermal_s", "HW_THERM_SLOWDOWN": "hw_thermal_s",
                 "HW_POWER_BRAKE_SLOWDOWN": "brake_s"}  # fmt: skip
# Of applications; of the card: fallen off the bus, uncontained memory error.
XIDS: Final = (13, 31, 43, 45, 79, 95)


def _events(*, new: bool) -> list[Export]:
    rule = Absence.UNTIL_EVENT if new else Absence.NEVER
    times = [
        Export(f"DCGM_FI_DEV_CLOCKS_EVENT_REASON_{name}_NS", reading, NS, kind="counter", absence=rule)
        for name, reading in _REASON_TIMES.items()
    ]
    codes = [
        Export("DCGM_EXP_XID_ERRORS_TOTAL", f"xid_{code}", kind="counter", labels={"xid": str(code)}, absence=Absence.UNTIL_EVENT)
        for code in XIDS
    ]
    watches = [
        Export("DCGM_EXP_GPU_HEALTH_STATUS", f"health_{name}", labels={"health_watch": watch})
        for watch, name in (("MEM", "memory"), ("THERMAL", "thermal"))
    ]
    last = Export(f"DCGM_FI_DEV_XID_ERROR{'' if new else 'S'}", "last_xid", absence=rule)
    return [*times, *(codes if new else []), *(watches if new else []), last]


_AMD = [
    Export("gpu_clock", "clock_mhz", labels={"clock_type": "system"}, domains=True),
    Export("gpu_clock", "memory_clock_mhz", labels={"clock_type": "memory", "clock_index": "8"}),
    Export("gpu_max_clock", "max_clock_mhz", labels={"clock_type": "system", "clock_index": "0"}),
    Export("gpu_gfx_activity", "engine", PERCENT),
    Export("gpu_umc_activity", "dram", PERCENT),
    Export("gpu_prof_sm_active", "sm_moment", PERCENT, 2, profiling=True),
    Export("gpu_prof_tensor_active_percent", "tensor_moment", PERCENT, 2, profiling=True),
    Export("gpu_used_vram", "memory_used_mib"),
    Export("gpu_total_vram", "memory_total_mib"),
    Export("gpu_junction_temperature", "temperature_c"),
    Export("gpu_memory_temperature", "memory_temperature_c"),
    Export("gpu_package_power", "power_w"),
    Export("gpu_energy_consumed", "energy_j", 1e6, kind="counter"),
    Export("gpu_violation_socket_thermal_residency_percentage", "sw_thermal", PERCENT),
    Export("gpu_violation_hbm_thermal_residency_percentage", "hw_thermal", PERCENT),
    Export("gpu_violation_processor_hot_residency_percentage", "brake", PERCENT),
    Export("gpu_violation_ppt_residency_percentage", "capped", PERCENT),
    # GT/s per lane: a link that lost half its lanes shows here as half the speed, since AMD's exporter gives no width.
    Export("pcie_speed", "pcie_gts"),
    Export("pcie_max_speed", "pcie_max_gts"),
    Export("pcie_replay_count", "replays", kind="counter"),
    Export("gpu_ecc_uncorrect_total", "double_bit_errors", kind="counter"),
    Export("gpu_ecc_correct_xgmi_wafl", "nvlink_errors", kind="counter"),
    Export("gpu_health", "healthy"),
    # The code of the last event of the severity, as XID_ERRORS of NVIDIA's.
    Export("gpu_afid_errors", "last_afid", labels={"severity": "fatal", "afid_index": "0"}, absence=Absence.UNTIL_EVENT),
]

EXPORTS: Final[Mapping[Generation, list[Export]]] = {
    Generation.OLD: [*(old for old, _ in _PAIRS), *_events(new=False)],
    Generation.NEW: [*(new for _, new in _PAIRS), *_events(new=True)],
    Generation.AMD: _AMD,
}


def exports(generation: Generation) -> Mapping[str, list[Export]]:
    """Return what an exporter of the generation serves, by name of the metric."""
    found: dict[str, list[Export]] = {}
    for export in EXPORTS[generation]:
        found.setdefault(export.name, []).append(export)
    return found


def series(export: Export, card: Card) -> list[tuple[str, int]]:
    """Return the series of one card, as (MIG instance, number of the clock)."""
    if card.instances:
        return [(instance, 0) for instance in card.instances if export.of_instances]
    return [("", domain) for domain in range(card.model.clock_domains if export.domains else 1)]


# What DCGM exporter serves without a list of counters of one's own (its default-counters.csv): no limits, no throttle times.
_DEFAULT_READINGS: Final = frozenset((
    "clock_mhz", "memory_clock_mhz", "temperature_c", "memory_temperature_c", "power_w", "energy_j", "replays", "utilisation",
    "dram_busy", "last_xid", "memory_used_mib", "memory_free_mib", "remap_failed", "engine", "tensor", "dram",
))  # fmt: skip


def default_names(generation: Generation) -> frozenset[str]:
    """Return the names that an exporter serves as it is installed. AMD's profiler is off then."""
    rows = EXPORTS[generation]
    if generation is Generation.AMD:
        return frozenset(export.name for export in rows if not export.profiling)
    return frozenset(export.name for export in rows if export.reading in _DEFAULT_READINGS)


def labels(fleet: Fleet, card: Card, export: Export, instance: str = "", domain: int = 0) -> dict[str, str]:
    """Return the labels of a series as the exporter writes them, in its order."""
    node = fleet.nodes[card.node]
    if node.exporter is Generation.AMD:
        found = {
            "card_model": card.model.name,
            "gpu_compute_partition_type": "spx",
            "gpu_id": str(card.place),
            "gpu_memory_partition_type": "nps1",
            "gpu_partition_id": "0",
            "gpu_uuid": card.uuid.removeprefix("GPU-"),
            "hostname": node.name,
            "serial_number": card.serial,
        }
        return found | dict(export.labels) | ({"clock_index": str(domain)} if export.domains else {})
    is_new = node.exporter is Generation.NEW
    split = {"GPU_I_PROFILE": "3g.40gb", "GPU_I_ID": instance} if instance else {}
    return {
        "gpu": str(card.place),
        "UUID": card.uuid,
        "pci_bus_id": card.pci,
        "device": f"nvidia{card.place}",
        "modelName": card.model.name,
        **split,
        "hostname" if is_new else "Hostname": node.name,
        "DCGM_FI_SYSTEM_DRIVER_VERSION" if is_new else "DCGM_FI_DRIVER_VERSION": "595.58.03" if is_new else "570.86.15",
        **export.labels,
    }

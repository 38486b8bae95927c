"""Who says on a Node how good its cards are, and by what.

0 is bad, `_DOUBTFUL` is kept out as slow cards are, a warning only ranks behind others. SuperBench has nothing of its own on
nodes: its rules write files. What runs it may set a label, which the configuration names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.core.capacity.config import FaultConfig
from pyscheduler.core.capacity.opinions import Signal, Where

__all__ = ["BUILT_IN", "Signals", "signals_of"]

_BAD: Final = 0.0
_DOUBTFUL: Final = 0.5
_GOOD: Final = 1.0

# IBM/autopilot, pkg/handlers/healthchecks.go, gpu-dcgm/entrypoint.py and README.md: ERR was the WARN of earlier versions.
# TESTING says that cards are being looked at, not how they are.
_AUTOPILOT: Final = Signal(
    Where.LABEL,
    "autopilot.ibm.com/gpuhealth",
    {"pass": _GOOD, "testing": _GOOD, "warn": _DOUBTFUL, "err": _DOUBTFUL, "evict": _BAD},
    "IBM Autopilot",
)
# NVIDIA/NVSentinel, commons/pkg/statemanager: set while a node is in quarantine, whatever has been done about it, and taken
# away when its checks pass.
_NVSENTINEL_STATES: Final = (
    "quarantined", "draining", "drain-succeeded", "drain-failed", "remediating", "remediation-succeeded", "remediation-failed",
)  # fmt: skip
# The same, docs/INTEGRATIONS.md: the checks of cards, links and switches, set for fatal errors only; the taints are its
# examples. What tells of DCGM itself, or of maintenance to come, is left out.
_NVSENTINEL_CHECKS: Final = (
    "GpuAllWatch", "GpuDriverWatch", "GpuInforomWatch", "GpuMcuWatch", "GpuMemWatch", "GpuNvlinkWatch", "GpuNvswitchFatalWatch",
    "GpuPcieWatch", "GpuPmuWatch", "GpuPowerWatch", "GpuSmWatch", "GpuThermalMarginWatch", "GpuThermalWatch", "NVSwitchDown",
    "NVSwitchFatalError", "RepeatedXIDErrorOnSameGPU", "SysLogsGPUFallenOff", "SysLogsSXIDError", "SysLogsXIDError",
)  # fmt: skip
_NVSENTINEL_TAINTS: Final = (
    "nvidia.com/gpu-error", "nvidia.com/gpu-nvlink-error", "nvidia.com/gpu-xid-error", "nvidia.com/syslog-xid-error",
)  # fmt: skip
# node-problem-detector has no check of GPUs itself; its plugins of providers do. AKS: learn.microsoft.com/azure/aks/
# gpu-health-monitoring; Nebius: docs.nebius.com/kubernetes/maintenance/health-checks; AMD: amdgpuhealth of
# ROCm/device-metrics-exporter, and the remediation of ROCm/gpu-operator. AMD's label of single cards, by their index, says
# no more than its metric gpu_health, by their UUID.
_PROBLEMS: Final = (
    ("GPUMissing", _DOUBTFUL, "AKS"),
    ("NVLinkStatusInactive", _DOUBTFUL, "AKS"),
    ("XIDErrors", _DOUBTFUL, "AKS"),
    ("NebiusGPUError", _BAD, "Nebius"),
    ("AMDGPUProblem", _BAD, "amdgpuhealth"),
)
_WARNINGS: Final = (("GPUClockThrottling", "AKS"), ("IBLinkFlapping", "AKS"))
_AMD_TAINT: Final = "amd-gpu-unhealthy"

_TAINTED: Final = {"noschedule": _BAD, "noexecute": _BAD, "prefernoschedule": _DOUBTFUL}


@dataclass(frozen=True, slots=True)
class Signals:
    """What is looked at, by its key."""

    labels: Mapping[str, Signal] = field(default_factory=dict)
    conditions: Mapping[str, Signal] = field(default_factory=dict)
    taints: Mapping[str, Signal] = field(default_factory=dict)


def signals_of(more: Iterable[Signal] = (), warning: float = FaultConfig().warning) -> Signals:
    """Return what is known here and `more`, which takes the place of what has the same key. `warning`: what a warning is worth."""
    found: dict[Where, dict[str, Signal]] = {where: {} for where in Where}
    for signal in (*_known(warning), *more):
        found[signal.where][signal.key] = signal
    return Signals(found[Where.LABEL], found[Where.CONDITION], found[Where.TAINT])


def _known(warning: float) -> Iterable[Signal]:
    yield _AUTOPILOT
    yield Signal(Where.LABEL, "dgxc.nvidia.com/nvsentinel-state", dict.fromkeys(_NVSENTINEL_STATES, _BAD), "NVSentinel")
    for check in _NVSENTINEL_CHECKS:
        yield Signal(Where.CONDITION, check, {"true": _BAD}, "NVSentinel")
    for key in _NVSENTINEL_TAINTS:
        yield Signal(Where.TAINT, key, _TAINTED, "NVSentinel")
    for problem, value, who in _PROBLEMS:
        yield Signal(Where.CONDITION, problem, {"true": value}, who)
    for problem, who in _WARNINGS:
        yield Signal(Where.CONDITION, problem, {"true": warning}, who)
    yield Signal(Where.TAINT, _AMD_TAINT, _TAINTED, "AMD GPU operator")


BUILT_IN: Final = signals_of()

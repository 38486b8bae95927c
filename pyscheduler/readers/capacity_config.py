"""The parts ``tuning`` and ``capacity`` of the configuration file to `CapacityConfig`. Every problem is listed with its path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.readers.durations import seconds
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["capacity_config", "set_intervals"]

# Where each key of the file goes: the part of `CapacityConfig` ("" is itself) and its attribute.
_SHARES: Final = {
    "capacityThreshold": ("", "threshold"),
    "recoveryThreshold": ("states", "recover_threshold"),
    "decayFactor": ("availability", "decay_factor"),
    "spike": ("availability", "spike"),
    "smWeight": ("availability", "sm_weight"),
    "memoryWeight": ("availability", "memory_weight"),
    "availabilityExponent": ("availability", "exponent"),
    "peerBaseline": ("speed", "peer_r0"),
    "ownBaseline": ("speed", "own_r0"),
    "busyActivity": ("busy", "active"),
    "busyPower": ("busy", "power"),
    "hardwareThermal": ("speed", "hw_thermal"),
    "softwareThermal": ("speed", "sw_thermal"),
    "powerBrake": ("speed", "power_brake"),
    "slowShare": ("breakers", "slow_share"),
    "silentShare": ("breakers", "silent_share"),
}
_DURATIONS: Final = {
    "stabilizationWindow": ("", "window_s"),
    "recoveryWindow": ("states", "recover_s"),
    "probation": ("states", "probation_s"),
    "lateAfter": ("breakers", "late_s"),
    "unknownAfter": ("breakers", "unknown_s"),
    "peerBusyTime": ("speed", "peer_busy_s"),
    "ownBusyTime": ("speed", "own_busy_s"),
    "peerHalfLife": ("speed", "peer_half_life_s"),
    "historyHalfLife": ("speed", "history_half_life_s"),
}
# 0.72 over 0.65, as by default.
_RECOVERY_ABOVE: Final = 0.07
_TUNING: Final = (*_SHARES, *_DURATIONS)


def capacity_config(tuning: Any, capacity: Any) -> tuple[CapacityConfig, list[str]]:
    """Return what the two parts say and all that is wrong with them. With problems the settings are not to be used."""
    config, problems = _tuned(tuning)
    mode, found = _mode(capacity)
    problems += found
    if problems:
        return CapacityConfig(), problems
    return replace(config, mode=mode), []


def set_intervals(config: CapacityConfig, metrics: MetricsConfig) -> CapacityConfig:
    """Return the settings with those intervals of the part ``metrics`` that the core must know."""
    return replace(config, interval_s=metrics.interval_s, availability=replace(config.availability, history_s=metrics.history_s))


def _mode(raw: Any) -> tuple[Mode, list[str]]:
    if raw is None:
        return Mode.LAYERED, []
    if not isinstance(raw, dict):
        return Mode.LAYERED, [f"capacity: {raw!r} must be a mapping with mode, such as {{mode: classic}}"]
    problems = [f"capacity.{key}: unknown; known is mode" for key in raw if key != "mode"]
    said = raw.get("mode", Mode.LAYERED.value)
    known = [mode.value for mode in Mode]
    if said not in known:
        return Mode.LAYERED, [*problems, f"capacity.mode: {said!r} is none of {', '.join(known)}"]
    return Mode(said), problems


def _tuned(raw: Any) -> tuple[CapacityConfig, list[str]]:
    config = CapacityConfig()
    if raw is None:
        return config, []
    if not isinstance(raw, dict):
        return config, [f"tuning: {raw!r} must be a mapping of {', '.join(_TUNING)}"]
    problems = [f"tuning.{key}: unknown; known are {', '.join(_TUNING)}" for key in raw if key not in _TUNING]
    parts: dict[str, dict[str, float]] = {}
    for table, read, form in ((_SHARES, _share, "a number above 0 and up to 1"), (_DURATIONS, seconds, "a duration, such as 2m")):
        problems += _collect(raw, table, read, form, parts)
    if problems:
        return config, problems
    threshold = parts.get("", {}).get("threshold", config.threshold)
    # A higher threshold alone moves the bar of recovery along.
    recovery = max(config.states.recover_threshold, min(threshold + _RECOVERY_ABOVE, 1.0))
    parts.setdefault("states", {}).setdefault("recover_threshold", recovery)
    changed: dict[str, Any] = dict(parts.pop("", {}))
    changed |= {name: replace(getattr(config, name), **values) for name, values in parts.items()}
    try:
        return replace(config, **changed), []
    except ValueError as cause:
        return config, [f"tuning: {cause}"]


def _collect(
    raw: dict[Any, Any],
    table: dict[str, tuple[str, str]],
    read: Callable[[Any], float | None],
    form: str,
    parts: dict[str, dict[str, float]],
) -> list[str]:
    """Put the values of the table's keys into `parts`; return what is wrong with them."""
    problems = []
    for key, (part, name) in table.items():
        if key in raw:
            value = read(raw[key])
            if value is None:
                problems.append(f"tuning.{key}: {raw[key]!r} must be {form}")
            else:
                parts.setdefault(part, {})[name] = value
    return problems


def _share(raw: Any) -> float | None:
    good = isinstance(raw, int | float) and not isinstance(raw, bool) and 0 < raw <= 1
    return float(raw) if good else None

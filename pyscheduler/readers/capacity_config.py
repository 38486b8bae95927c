"""The parts ``tuning`` and ``capacity`` of the configuration file to `CapacityConfig`. Every problem is listed with its path."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.readers.durations import seconds
from pyscheduler.readers.evidence_config import evidence
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["capacity_config", "set_intervals"]

# Where each key of the file goes: the part of `CapacityConfig` ("" is itself) and its attribute.
# A scale that begins at 1 has no length.
_SHARES_BELOW_1: Final = {
    "capacityThreshold": ("", "threshold"),
    "peerBaseline": ("speed", "peer_r0"),
    "ownBaseline": ("speed", "own_r0"),
    "moved": ("speed", "moved"),
}
_SHARES: Final = {
    "decayFactor": ("availability", "decay_factor"),
    "recoveryThreshold": ("states", "recover_threshold"),
    "spike": ("availability", "spike"),
    "busyActivity": ("busy", "active"),
    "hardwareThermal": ("speed", "hw_thermal"),
    "softwareThermal": ("speed", "sw_thermal"),
    "powerBrake": ("speed", "power_brake"),
    "silentShare": ("breakers", "silent_share"),
    "deadProfilerLoad": ("busy", "dead_load"),
    "warning": ("faults", "warning"),
    "powerCap": ("speed", "cap"),
}
# With 0 they count for nothing.
_SHARES_FROM_0: Final = {
    "smWeight": ("availability", "sm_weight"),
    "memoryWeight": ("availability", "memory_weight"),
    "availabilityExponent": ("availability", "exponent"),
    "busyPower": ("busy", "power"),
    "slowShare": ("breakers", "slow_share"),
    "lowClock": ("busy", "low_clock"),
    "deadProfilerActivity": ("busy", "dead_active"),
    "podsDiffer": ("speed", "pods_differ"),
    "throttleFloor": ("speed", "throttle_floor"),
    "weakEvidence": ("speed", "weak"),
}
_DURATIONS: Final = {
    "stabilizationWindow": ("", "window_s"),
    "recoveryWindow": ("states", "recover_s"),
    "probation": ("states", "probation_s"),
    "peerBusyTime": ("speed", "peer_busy_s"),
    "recentBusyTime": ("speed", "recent_busy_s"),
    "likeLoadTime": ("speed", "like_load_s"),
    "podBusyTime": ("speed", "pod_busy_s"),
    "peerRefresh": ("speed", "refresh_s"),
    "relapse": ("states", "relapse_s"),
    "xidMemory": ("faults", "xid_s"),
}
# Ages of samples. No sample is younger than the time between two scrapes.
_AGES: Final = {
    "lateAfter": ("breakers", "late_s"),
    "unknownAfter": ("breakers", "unknown_s"),
    "goneAfter": ("breakers", "gone_s"),
    "forgetAfter": ("breakers", "forget_s"),
}
_AGE_LEAST_S: Final = 5.0
# What weights and busy times are divided by.
_DURATIONS_ABOVE_0: Final = {
    "peerHalfLife": ("speed", "peer_half_life_s"),
    "historyHalfLife": ("speed", "history_half_life_s"),
    "recentHalfLife": ("speed", "recent_half_life_s"),
    "ownBusyTime": ("speed", "own_busy_s"),
    "loadBusyTime": ("speed", "load_busy_s"),
    "latelyHalfLife": ("speed", "lately_half_life_s"),
    "burdenHalfLife": ("speed", "means_half_life_s"),
}
_NUMBERS: Final = {
    "madWidths": ("speed", "mad_widths"),
    "hotDegrees": ("speed", "hot_c"),
    "replayDecades": ("speed", "replay_decades"),
}
_COUNTS: Final = {
    "peerQuorum": ("speed", "quorum"),
    "degradeSamples": ("states", "degrade_samples"),
    "recoverySamples": ("states", "recover_samples"),
    "lowClockSamples": ("busy", "low_samples"),
    "deadProfilerSamples": ("busy", "dead_samples"),
}
_HARMLESS: Final = "harmlessXids"
# 0.72 over 0.65, as by default.
_RECOVERY_ABOVE: Final = 0.07
_CAPACITY: Final = ("mode", "evidence", "scoreWeight")


def capacity_config(tuning: Any, capacity: Any) -> tuple[CapacityConfig, list[str]]:
    """Return what the two parts say and all that is wrong with them. With problems the settings are not to be used."""
    config, problems = _tuned(tuning)
    if not isinstance(capacity, dict | None):
        return CapacityConfig(), [*problems, f"capacity: {capacity!r} must be a mapping with mode, such as {{mode: classic}}"]
    said = capacity or {}
    problems += [f"capacity.{key}: unknown; known are {', '.join(_CAPACITY)}" for key in said if key not in _CAPACITY]
    mode, about_mode = _mode(said)
    signals, about_evidence = evidence(said.get("evidence"))
    weight = said.get("scoreWeight", config.score_weight)
    about_weight = [] if _is_number(weight) and weight >= 0 else [f"capacity.scoreWeight: {weight!r} must be a number, 0 or more"]
    problems += [*about_mode, *about_evidence, *about_weight]
    if problems:
        return CapacityConfig(), problems
    return replace(config, mode=mode, evidence=signals, score_weight=float(weight)), []


def set_intervals(config: CapacityConfig, metrics: MetricsConfig) -> CapacityConfig:
    """Return the settings with those intervals of the part ``metrics`` that the core must know."""
    return replace(config, interval_s=metrics.interval_s, availability=replace(config.availability, history_s=metrics.history_s))


def _mode(capacity: Mapping[Any, Any]) -> tuple[Mode, list[str]]:
    said = capacity.get("mode", Mode.LAYERED.value)
    known = [mode.value for mode in Mode]
    if said not in known:
        return Mode.LAYERED, [f"capacity.mode: {said!r} is none of {', '.join(known)}"]
    return Mode(said), []


def _tuned(raw: Any) -> tuple[CapacityConfig, list[str]]:
    config = CapacityConfig()
    if raw is None:
        return config, []
    if not isinstance(raw, dict):
        return config, [f"tuning: {raw!r} must be a mapping of {', '.join(_TUNING)}"]
    problems = [f"tuning.{key}: unknown; known are {', '.join(_TUNING)}" for key in raw if key not in _TUNING]
    parts: dict[str, dict[str, Any]] = {}
    for table, read, form in _TABLES:
        problems += _collect(raw, table, read, form, parts)
    if _HARMLESS in raw:
        codes = raw[_HARMLESS]
        if isinstance(codes, list) and all(type(code) is int and code > 0 for code in codes):
            parts.setdefault("faults", {})["harmless_xids"] = tuple(codes)
        else:
            problems.append(f"tuning.{_HARMLESS}: {codes!r} must be a list of XIDs, such as [13, 31]")
    if problems:
        return config, problems
    if problem := _set_recovery(parts, config):
        return config, [problem]
    changed: dict[str, Any] = dict(parts.pop("", {}))
    changed |= {name: replace(getattr(config, name), **values) for name, values in parts.items()}
    made = replace(config, **changed)
    return made, _together(made)


def _set_recovery(parts: dict[str, dict[str, Any]], config: CapacityConfig) -> str:
    """Set the bar of recovery; return what is wrong with it."""
    threshold = parts.get("", {}).get("threshold", config.threshold)
    # A higher threshold alone moves the bar of recovery along.
    moved = max(config.states.recover_threshold, min(threshold + _RECOVERY_ABOVE, 1.0))
    recovery = parts.setdefault("states", {}).setdefault("recover_threshold", moved)
    if recovery >= threshold:
        return ""
    above = f"must be at least tuning.capacityThreshold ({threshold}), or a card would be tried again while it is too slow"
    return f"tuning.recoveryThreshold: {recovery} {above}"


def _together(config: CapacityConfig) -> list[str]:
    """Return what is wrong with values beside each other."""
    problems = []
    if config.availability.sm_weight == config.availability.memory_weight == 0:
        problems.append("tuning.smWeight: is 0 beside tuning.memoryWeight: 0: write one above 0, or nothing counts as free")
    ages = [(key, getattr(config.breakers, name)) for key, (_, name) in _AGES.items()]
    for (earlier, least), (later, most) in pairwise(ages):
        if most < least:
            problems.append(f"tuning.{later}: is {most:.0f}s, must be at least tuning.{earlier} ({least:.0f}s)")
    return problems


def _collect(
    raw: dict[Any, Any],
    table: dict[str, tuple[str, str]],
    read: Callable[[Any], Any],
    form: str,
    parts: dict[str, dict[str, Any]],
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
    return float(raw) if _is_number(raw) and 0 < raw <= 1 else None


def _share_below_1(raw: Any) -> float | None:
    return float(raw) if _is_number(raw) and 0 < raw < 1 else None


def _share_from_0(raw: Any) -> float | None:
    return float(raw) if _is_number(raw) and 0 <= raw <= 1 else None


def _duration_above_0(raw: Any) -> float | None:
    # 0 s is no more one than what is none.
    return seconds(raw) or None


def _age(raw: Any) -> float | None:
    read = seconds(raw)
    return read if read is not None and read >= _AGE_LEAST_S else None


def _number(raw: Any) -> float | None:
    return float(raw) if _is_number(raw) and raw > 0 else None


def _count(raw: Any) -> int | None:
    return raw if type(raw) is int and raw > 0 else None


def _is_number(raw: Any) -> bool:
    return isinstance(raw, int | float) and not isinstance(raw, bool) and -math.inf < raw < math.inf


_TABLES: Final[tuple[tuple[dict[str, tuple[str, str]], Callable[[Any], Any], str], ...]] = (
    (_SHARES_BELOW_1, _share_below_1, "a number above 0 and below 1"),
    (_SHARES, _share, "a number above 0 and up to 1"),
    (_SHARES_FROM_0, _share_from_0, "a number from 0 to 1"),
    (_DURATIONS, seconds, "a duration, such as 2m"),
    (_AGES, _age, "a duration from 5s, and longer than the scrape interval, such as 75s"),
    (_DURATIONS_ABOVE_0, _duration_above_0, "a duration above 0s, such as 10m"),
    (_NUMBERS, _number, "a number above 0"),
    (_COUNTS, _count, "a whole number above 0"),
)
_TUNING: Final = (*(key for table, _, _ in _TABLES for key in table), _HARMLESS)

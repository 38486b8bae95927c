"""Values of a node document: what cannot be used is unknown, and told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pyscheduler.core.findings import Finding, Severity

__all__ = ["finding", "iso", "positive", "shown", "text_of", "time_of", "unix_time"]

_REMEDY: Final = "write the node document anew with `pyscheduler topology merge`"


def text_of(raw: Mapping[str, Any], key: str) -> str | None:
    """Return a text that is not empty, None if there is none."""
    value = raw.get(key)
    return value if isinstance(value, str) and value else None


def positive(raw: Any) -> float | None:
    """Return a number above 0, None if it is none."""
    return float(raw) if type(raw) in (int, float) and 0 < raw <= sys.float_info.max else None


def time_of(raw: Any, field: str, found: list[Finding]) -> float | None:
    """Return the Unix time of an ISO 8601 time with its zone."""
    if raw is None:
        return None
    moment = unix_time(raw)
    if moment is None:
        found.append(
            finding("time-unusable", f"{field} {shown(raw)} is no time such as 2026-01-31T12:00:00Z: its age is unknown")
        )
    return moment


def unix_time(raw: Any) -> float | None:
    """Return the Unix time of an ISO 8601 time with its zone, None if it is none."""
    try:
        said = datetime.fromisoformat(raw)
        return said.astimezone(UTC).timestamp() if said.tzinfo else None
    except (TypeError, ValueError, OverflowError):
        return None


def iso(moment: float | None) -> str | None:
    """Return a Unix time in ISO 8601, to the second."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def shown(raw: Any) -> str:
    """Return the beginning of a value, for a message; of what is no text or number, only what it is."""
    if isinstance(raw, str):
        return repr(raw[:40])
    if isinstance(raw, list | dict):
        return "(a list)" if isinstance(raw, list) else "(an object)"
    return repr(raw)[:40]


def finding(code: str, message: str, severity: Severity = Severity.WARNING) -> Finding:
    """Return a finding on the document."""
    return Finding(code, message, _REMEDY, severity=severity)

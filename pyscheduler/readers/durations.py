"""Durations as people write them: 30s, 10m, 1h30m."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["seconds"]

_DURATION: Final = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", re.ASCII)


def seconds(raw: Any) -> float | None:
    """Return the seconds of a duration, None if it is none."""
    found = _DURATION.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if found is None or not any(found.groups()):
        return None
    hours, minutes, rest = (int(number or 0) for number in found.groups())
    return 3600.0 * hours + 60.0 * minutes + rest

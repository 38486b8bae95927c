"""JSON that may be none."""

from __future__ import annotations

import json
from typing import Any

from pyscheduler.readers.reading import RefusedError

__all__ = ["json_or_none", "json_or_refuse", "name_of"]


def json_or_none(text: str) -> Any:
    """Return the JSON value of `text`, None if it is no JSON."""
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None


def json_or_refuse(text: str) -> Any:
    """Return the JSON value of `text`.

    Raises
    ------
    RefusedError
        If it is no JSON, with the line where it stops to be.

    """
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as cause:
        raise RefusedError(f"is no JSON ({cause.msg}): pass the whole file", cause.lineno) from None
    except (ValueError, RecursionError) as cause:
        raise RefusedError(f"is no usable JSON ({cause}): pass the whole file") from None


def name_of(value: Any) -> str | None:
    """Return a name or label value, None if it is none or empty. A bare number is one, too: YAML makes it so."""
    return (str(value).strip() or None) if isinstance(value, str | int) and not isinstance(value, bool) else None

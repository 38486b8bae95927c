"""Values of foreign JSON, checked: each fault is one sentence that says where and what would be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.text.json_text import name_of

__all__ = ["listed", "mapped", "name_at", "names_at", "shown", "switch", "whole"]

_SHOWN_CHARS: Final = 60


def shown(value: Any) -> str:
    """Return the value as it is told to a person: short, and on one line."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def name_at(value: Any, at: str) -> str:
    """Return a name. A bare number is one, too: YAML makes it so."""
    name = name_of(value)
    if name is None:
        raise RefusedError(f"{at}: {shown(value)} must be a text that is not empty")
    if not name.isprintable():
        raise RefusedError(f"{at}: {shown(value)} must be a text without line breaks and control characters")
    return name


def names_at(names: Sequence[str], at: str, what: str) -> tuple[str, ...]:
    """Return the names, of which each must stand there once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RefusedError(f"{at}: the {what} {shown(name)} stands there twice; names are unique")
        seen.add(name)
    return tuple(names)


def whole(value: Any, at: str, least: int, most: int) -> int:
    """Return a whole number from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise RefusedError(f"{at}: {shown(value)} must be a whole number from {least} to {most}")
    return value


def switch(value: Any, at: str) -> bool:
    """Return what is true or false."""
    if type(value) is not bool:
        raise RefusedError(f"{at}: {shown(value)} must be true or false")
    return value


def listed(entry: Mapping[str, Any], key: str, at: str) -> list[Any]:
    """Return a list, empty if it is left out."""
    value = entry.get(key)
    if value is not None and not isinstance(value, list):
        raise RefusedError(f"{_path(at, key)}: {shown(value)} must be a list")
    return value or []


def mapped(entry: Mapping[str, Any], key: str, at: str) -> dict[str, Any]:
    """Return an object, empty if it is left out."""
    value = entry.get(key)
    if value is not None and not isinstance(value, dict):
        raise RefusedError(f"{_path(at, key)}: {shown(value)} must be an object")
    return value or {}


def _path(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key

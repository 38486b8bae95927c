"""The list ``capacity.evidence`` of the configuration file: by what else nodes say how good their cards are."""

from __future__ import annotations

from typing import Any, Final

from pyscheduler.core.capacity.opinions import Signal, Where
from pyscheduler.readers.cards.card_notes import share

__all__ = ["evidence"]

_PLACES: Final = tuple(where.value for where in Where)
_FORM: Final = "{label: example.com/gpu-check, values: {passed: 1, failed: 0}}"


def evidence(raw: Any) -> tuple[tuple[Signal, ...], list[str]]:
    """Return what the list says and all that is wrong with it."""
    if raw is None:
        return (), []
    if not isinstance(raw, list):
        return (), [f"capacity.evidence: {raw!r} must be a list, such as [{_FORM}]"]
    signals: list[Signal] = []
    problems: list[str] = []
    for number, entry in enumerate(raw):
        signal, found = _signal(entry)
        problems += [f"capacity.evidence[{number}]{problem}" for problem in found]
        signals += [signal] if signal else []
    return tuple(signals), problems


def _signal(entry: Any) -> tuple[Signal | None, list[str]]:
    if not isinstance(entry, dict) or len(entry.keys() & set(_PLACES)) != 1:
        return None, [f": {entry!r} must name one of {', '.join(_PLACES)}, such as {_FORM}"]
    problems = [f".{key}: unknown; known are {', '.join(_PLACES)}, values" for key in entry if key not in (*_PLACES, "values")]
    place = next(place for place in _PLACES if place in entry)
    key = entry[place]
    if not isinstance(key, str) or not key:
        problems.append(f".{place}: {key!r} must be a text that is not empty")
    values, found = _values(entry.get("values"), Where(place))
    problems += found
    return (None if problems else Signal(Where(place), str(key), values)), problems


def _values(raw: Any, where: Where) -> tuple[dict[str, float], list[str]]:
    if raw is None and where is Where.LABEL:
        return {}, []
    if not isinstance(raw, dict) or not raw:
        return {}, [f".values: {raw!r} must say what each value means, such as {{failed: 0}}"]
    values: dict[str, float] = {}
    problems = []
    for text, meaning in raw.items():
        value = share(meaning)
        # YAML takes True, without quotes, for no text; as the status of a condition it is clear what is meant.
        if not isinstance(text, str) and not (isinstance(text, bool) and where is Where.CONDITION):
            problems.append(f".values: {text!r} must be a text: put it in quotes")
        elif value is None:
            problems.append(f".values.{text}: {meaning!r} must be a number from 0 (bad) to 1 (good)")
        else:
            values[str(text).lower()] = value
    return values, problems

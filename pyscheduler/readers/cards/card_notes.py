"""The annotation ``pyscheduler.io/cards`` of a Node: what an operator, or a tool of his, says of its cards.

Form (JSON): UUID to ``{"value": 0 to 1, "reason": "...", "repairedAt": "2026-05-01T12:00:00Z"}``, of which either the value
or the time may be missing; ``*`` stands for all cards of the node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyscheduler.core.capacity.opinions import ALL_CARDS, NodeOpinion, Opinion
from pyscheduler.readers.document_values import unix_time
from pyscheduler.readers.text.parts import MAX_DEVICES

__all__ = ["KEY", "read", "sentence", "share", "shown"]

KEY: Final = "pyscheduler.io/cards"

_REPAIRED_AT: Final = "repairedAt"
_FORM: Final = '{"GPU-...": {"value": 0.5, "reason": "..."}}, or "*" for all cards'
_TIME_FORM: Final = 'write the time of the repair with its zone, such as "2026-05-01T12:00:00Z"'
# 2000-01-01: a time before it is none of a repair, but the 0 of a program.
_EARLIEST: Final = 946_684_800
# Characters of foreign text that are shown.
_SHOWN: Final = 160
_SHOWN_VALUE: Final = 60


def read(text: str) -> tuple[NodeOpinion, list[str]]:
    """Return what the annotation says and what is wrong with it. An entry that is wrong does not count; the others do."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as cause:
        return NodeOpinion(), [f"is no JSON ({str(cause)[:_SHOWN]}): write {_FORM}"]
    if not isinstance(raw, dict):
        return NodeOpinion(), [f"is {shown(raw)}: write {_FORM}"]
    if len(raw) > MAX_DEVICES:
        return NodeOpinion(), [f"names {len(raw)} cards: no node has more than {MAX_DEVICES}, write those of this node only"]
    cards: dict[str, Opinion] = {}
    repaired: dict[str, float] = {}
    problems = []
    for name, entry in raw.items():
        for found in _said(name, entry):
            if isinstance(found, str):
                problems.append(found)
            elif isinstance(found, Opinion):
                cards[name] = found
            else:
                repaired[name] = found
    return NodeOpinion(cards.pop(ALL_CARDS, None), cards, repaired), problems


def share(raw: Any) -> float | None:
    """Return a number from 0 to 1, None if it is none."""
    good = isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw <= 1
    return float(raw) if good else None


def sentence(text: str) -> str:
    """Return foreign text on one line, printable, and not longer than a sentence may be."""
    words = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."


def _said(name: str, entry: Any) -> Iterator[Opinion | float | str]:
    """Yield what is said of a card: what it is worth, when it was repaired, or what is wrong with either."""
    if not isinstance(entry, dict):
        yield f"{shown(name)} is {shown(entry)}: write {_FORM}"
        return
    if _REPAIRED_AT in entry:
        yield _repaired_at(name, entry[_REPAIRED_AT])
    if "value" in entry or _REPAIRED_AT not in entry:
        yield _opinion(name, entry)


def _repaired_at(name: str, raw: Any) -> float | str:
    """Return when a card was repaired, in whole seconds, or what is wrong with the time."""
    seconds = unix_time(raw)
    if seconds is None:
        return f"{shown(name)} has the {_REPAIRED_AT} {shown(raw)}: {_TIME_FORM}"
    if seconds < _EARLIEST:
        return f"{shown(name)} has the {_REPAIRED_AT} {shown(raw)}, which is before the year 2000: {_TIME_FORM}"
    # What is remembered of cards are whole numbers: the same time must be the same after a restart.
    return float(int(seconds))


def _opinion(name: str, entry: Mapping[str, Any]) -> Opinion | str:
    """Return what a card is worth, or what is wrong with that."""
    value = share(entry.get("value"))
    if value is None:
        return f"{shown(name)} has the value {shown(entry.get('value'))}: write a number from 0 (bad) to 1 (good)"
    reason = entry.get("reason", "")
    if not isinstance(reason, str):
        return f"{shown(name)} has the reason {shown(reason)}: write a text"
    return Opinion(value, sentence(reason) or f"annotation {KEY} of its node says {value:g}")


def shown(raw: Any) -> str:
    """Return a foreign value as a message may hold it."""
    if isinstance(raw, dict | list):
        return "a mapping" if isinstance(raw, dict) else "a list"
    # As JSON: half of a surrogate pair is no text, and no message could carry it.
    text = json.dumps(raw)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."

"""The annotation ``pyscheduler.io/cards`` of a Node: what an operator, or a tool of his, says of its cards.

Form (JSON): UUID to ``{"value": 0 to 1, "reason": "..."}``; ``*`` stands for all cards of the node.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyscheduler.core.capacity.opinions import NodeOpinion, Opinion, worse
from pyscheduler.readers.text.parts import MAX_DEVICES

__all__ = ["KEY", "read", "sentence", "share"]

KEY: Final = "pyscheduler.io/cards"

_ALL: Final = "*"
_FORM: Final = '{"GPU-...": {"value": 0.5, "reason": "..."}}, or "*" for all cards'
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
        return NodeOpinion(), [f"is {_shown(raw)}: write {_FORM}"]
    if len(raw) > MAX_DEVICES:
        return NodeOpinion(), [f"names {len(raw)} cards: no node has more than {MAX_DEVICES}, write those of this node only"]
    every: Opinion | None = None
    cards: dict[str, Opinion] = {}
    problems = []
    for name, entry in raw.items():
        found = _opinion(name, entry)
        if isinstance(found, str):
            problems.append(found)
        elif name == _ALL:
            every = worse(every, found)
        else:
            cards[name] = found
    return NodeOpinion(every, cards), problems


def share(raw: Any) -> float | None:
    """Return a number from 0 to 1, None if it is none."""
    good = isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw <= 1
    return float(raw) if good else None


def sentence(text: str) -> str:
    """Return foreign text on one line, printable, and not longer than a sentence may be."""
    words = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 3]}..."


def _opinion(name: str, entry: Any) -> Opinion | str:
    """Return what is said of a card, or what is wrong with it."""
    if not isinstance(entry, dict):
        return f"{_shown(name)} is {_shown(entry)}: write {_FORM}"
    value = share(entry.get("value"))
    if value is None:
        return f"{_shown(name)} has the value {_shown(entry.get('value'))}: write a number from 0 (bad) to 1 (good)"
    reason = entry.get("reason", "")
    if not isinstance(reason, str):
        return f"{_shown(name)} has the reason {_shown(reason)}: write a text"
    return Opinion(value, sentence(reason) or f"annotation {KEY} of its node says {value:g}")


def _shown(raw: Any) -> str:
    if isinstance(raw, dict | list):
        return "a mapping" if isinstance(raw, dict) else "a list"
    # As JSON: half of a surrogate pair is no text, and no message could carry it.
    text = json.dumps(raw)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."

"""Which machine each output in one paste is of: the prompt or the heading above it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["heading", "host_names"]

# How far above its matrix a heading stands: a command line, a blank line and a rule or two.
_ABOVE: Final = 4
_LONGEST: Final = 512

_PROMPT: Final = re.compile(r"[\[(\s]*[\w.-]{1,64}@([A-Za-z0-9][\w.-]{0,252})[\s:~\])].{0,200}")
_HEADING: Final = re.compile(
    r"[\W_]*(?:host(?:name)?|node|server|machine)\b[\s:=]+([A-Za-z0-9][\w.-]{0,252})[\W_]*", re.IGNORECASE
)
# "=== node-17 ===", "node-17:"; a bare word may be anything.
_RULED: Final = re.compile(r"[#=*-]+\s*([A-Za-z][\w.]{0,252}(?:-[\w.]{1,63})*)\s*:?\s*[#=*-]*\s*")
_LISTED: Final = re.compile(r"\s*([A-Za-z][\w.-]{0,252}\d[\w.-]{0,64}):\s*")
# Alone on its line it is a heading, though not always a machine's.
_ALONE: Final = re.compile(r"\s*([A-Za-z0-9][\w.-]{0,252}):?\s*")
_ANSIBLE: Final = re.compile(r"([A-Za-z0-9][\w.-]{0,252}) \| (?:CHANGED|SUCCESS|FAILED)\b.*")


def host_names(lines: Sequence[str], headers: Sequence[int]) -> list[str] | None:
    """Return the machine of each matrix whose header is at that line (from 1).

    None where they are not told apart: a matrix has no name above it, or two have the same.
    """
    names = [_name_above(lines, line, headers[at - 1] if at else 0) for at, line in enumerate(headers)]
    known = [name for name in names if name]
    return known if len(known) == len(names) == len(set(known)) else None


def heading(lines: Sequence[str], header: int) -> str | None:
    """Return the name of a machine above the matrix whose header is at line `header`, or the word right above it."""
    above = [line for line in lines[max(0, header - 1 - _ABOVE) : header - 1] if line.strip()]
    alone = _ALONE.fullmatch(above[-1]) if above and len(above[-1]) <= _LONGEST else None
    return alone[1] if alone else _name_above(lines, header, 0)


def _name_above(lines: Sequence[str], header: int, floor: int) -> str | None:
    for line in reversed(lines[max(floor, header - 1 - _ABOVE) : header - 1]):
        if len(line) > _LONGEST:
            continue
        for pattern in (_PROMPT, _HEADING, _ANSIBLE, _RULED, _LISTED):
            if match := pattern.fullmatch(line):
                return match[1]
    return None

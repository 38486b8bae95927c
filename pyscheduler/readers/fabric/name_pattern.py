"""Regular expressions over node names, written for Go's `regexp` and matched by Python's.

Go matches in linear time and Python does not, so what may take Python very long is refused, as is what the two read
differently.
"""

from __future__ import annotations

import re
from typing import Final

from pyscheduler.errors import PyschedulerError

__all__ = ["PatternError", "compile_pattern"]

# No sensible pattern over names of at most 253 characters is longer.
_MAX_LENGTH: Final = 1000
# Repeats without an end. A name made of an address and of numbered sites, rows and racks has fewer.
_MAX_REPEATS: Final = 12

# Go has no look-around, back references, atomic groups, flags a L u x and {,n}; Python no \z, \Q and \p.
_FOREIGN: Final = re.compile(r"\(\?(?:[=!>#(]|<[=!]|P[=>]|[ims-]*[aLux])|\{,\d|\\[1-9]|\\[zQEpPCZ]")

_TOKEN: Final = re.compile(
    r"(?P<open>\((?:\?(?:P?<\w+>|[A-Za-z-]*:))?)|(?P<sign>[)|])|(?P<repeat>[*+?]|\{\d+(?:,\d*)?\})\??"
    r"|(?P<atom>\[\^?\]?(?:\\.?|[^\]\\])*(?:\]|\Z)|\\.|.)",
    re.DOTALL,
)
# In sets: POSIX classes of Go, and what Python keeps for operations on sets.
_SET_SIGN: Final = re.compile(r"\[|--|&&|\|\||~~")
# Go has no possessive repeats.
_POSSESSIVE: Final = re.compile(r"[*?}][*?{]")
_GROUP: Final = re.compile(r"\(([^()]*)\)(\*|\?|\{\d+\})?")
# Each one more multiplies the time by the length of the name.
_IN_A_ROW: Final = re.compile(r"(?:x\*(?:x[?{][\d}]*)*){3}")


class PatternError(PyschedulerError):
    """A pattern that is not used. The message says why."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern; `search` with it, as Volcano does.

    Raises
    ------
    PatternError
        If it is no pattern, or may take too long.

    """
    if len(pattern) > _MAX_LENGTH:
        raise PatternError(f"is longer than {_MAX_LENGTH} characters")
    sets = [token["atom"][1:] for token in _TOKEN.finditer(pattern) if (token["atom"] or "").startswith("[")]
    foreign = [_FOREIGN.search(pattern.replace(r"\\", "")), *map(_SET_SIGN.search, sets)]
    if signs := [sign[0] for sign in foreign if sign]:
        raise PatternError(f"has {signs[0]!r}, which Go and Python do not read alike")
    try:
        compiled = re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as cause:
        raise PatternError(f"is no regular expression ({cause})") from cause
    if fault := _fault(pattern):
        raise PatternError(fault)
    return compiled


def _fault(pattern: str) -> str:
    """Return why it is not matched, empty if it can be. Groups are resolved from the inside."""
    text = "".join(_word(token) for token in _TOKEN.finditer(pattern))
    if _POSSESSIVE.search(text):
        return "repeats a repeat"
    while group := _GROUP.search(text):
        inner, times = group[1], group[2] or ""
        if times == "*" and any(sign in inner for sign in "*?{|"):
            return "repeats a group that repeats something itself or has a choice"
        if times == "*":
            plain = "x*"
        elif times[:1] == "{" and "*" in inner:
            plain = inner * min(int(times[1:-1]), _MAX_REPEATS + 1)
        else:
            plain = inner + times
        text = text[: group.start()] + plain + text[group.end() :]
        if text.count("*") > _MAX_REPEATS:
            break
    if text.count("*") > _MAX_REPEATS:
        return f"has more than {_MAX_REPEATS} repeats"
    return "has more than two repeats in a row" if _IN_A_ROW.search(text) else ""


def _word(token: re.Match[str]) -> str:
    """Return a part of a pattern as it counts: ( ) | x, and * ? or {most} behind what is repeated."""
    repeat = token["repeat"]
    if repeat:
        most = repeat.strip("{}").rpartition(",")[2]
        return f"{{{most}}}" if most.isdigit() else "?" if repeat == "?" else "*"
    if token["open"]:
        return "("
    return token["sign"] or ("" if token["atom"] in {"^", "$"} else "x")

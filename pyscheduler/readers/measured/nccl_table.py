"""Lines of nccl-tests: its ranks, and its table row by row. The columns are those that the header names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyscheduler.readers.measured.output import positive

__all__ = ["Layout", "Rank", "Row", "is_header", "is_rank", "layout", "rank", "row"]

_RANK: Final = re.compile(
    r"#?\s*Rank\s+(\d{1,6})\s+(?:Group\s+(\d{1,6})\s+)?Pid\s+\d{1,10}\s+on\s+(\S{1,255})\s+device\s+(\d{1,4})\s+\[[0-9a-fA-FxX:.]{1,20}\].*"
)
_RANK_BEGINS: Final = re.compile(r"#?\s*Rank\s+\d")
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,20}")
_WHOLE: Final = re.compile(r"-?\d{1,18}")
_METRIC: Final = re.compile(r"\d{1,12}(?:\.\d{0,9})?(?:[eE][+-]?\d{1,2})?\*?|N/A|-?nan|-?inf")


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank. `device` is the index of its GPU among those that its process sees."""

    number: int
    group: int
    host: str
    device: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns from the first time on, and what may stand before them.

    Attributes
    ----------
    root
        Whether a column tells the root.
    metrics
        Names of the columns with figures.
    stamp
        Words of the date at the end of each row.
    counts_wrong
        Whether wrong values are counted; old versions print the largest error instead, which may be rounding.
    """

    root: bool
    metrics: tuple[str, ...]
    stamp: int
    counts_wrong: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One message size in bytes. `busbw` and `algbw` are of the better way, out of place or in place; None if neither is known."""

    size: int
    redop: str | None
    root: int | None
    busbw: float | None
    algbw: float | None
    wrong: bool


def rank(line: str) -> Rank | None:
    """Return the rank that `line` tells of, None if it tells of none."""
    found = _RANK.fullmatch(line.strip())
    return Rank(int(found[1]), int(found[2] or 0), found[3], int(found[4])) if found else None


def is_rank(line: str) -> bool:
    """Tell whether `line` is of the list of ranks, whole or cut."""
    return _RANK_BEGINS.match(line.strip()) is not None


def is_header(line: str) -> bool:
    """Tell whether `line` is the header of a table, whole or cut."""
    return "algbw" in line and "busbw" in line


def layout(line: str) -> Layout | None:
    """Return the columns that `line`, the header of a table, names; None if it is none."""
    words = line.replace("#wrong", "wrong").replace("#", " ").split()
    if words[:2] != ["size", "count"] or "busbw" not in words:
        return None
    begin = next((at for at, word in enumerate(words) if word in {"time", "cputime"}), len(words))
    stamp = 2 if words[-1] == "timestamp" else 0
    metrics = tuple(words[begin : len(words) - bool(stamp)])
    # A header that is cut does not tell what the columns of its rows are.
    if metrics.count("busbw") != 2 or metrics.count("algbw") != 2 or metrics[-1] == "busbw":
        return None
    return Layout("root" in words[:begin], metrics, stamp, "wrong" in metrics)


def row(line: str, columns: Layout) -> Row | None:
    """Return the row, None if `line` is none, or a cut one."""
    words = line.split()
    if len(words) < 3 + len(columns.metrics) or not (words[0].isdigit() and words[1].isdigit() and _WORD.fullmatch(words[2])):
        return None
    rest = words[3 : len(words) - columns.stamp]
    # The operation is blank where a collective has none, in some versions.
    redop = rest.pop(0) if _WORD.fullmatch(rest[0]) else None
    root = rest.pop(0) if columns.root and rest and _WHOLE.fullmatch(rest[0]) else None
    if len(rest) != len(columns.metrics) or not all(_METRIC.fullmatch(word) for word in rest):
        return None
    if columns.root and root is None:
        return None
    busbw, algbw = _better(rest, columns)
    wrong = any(_is_wrong(word, name) for word, name in zip(rest, columns.metrics, strict=True))
    return Row(int(words[0]), redop, None if root is None else int(root), busbw, algbw, wrong)


def _better(words: list[str], columns: Layout) -> tuple[float | None, float | None]:
    """Return bus and algorithm bandwidth of the better way. The header names algbw before busbw, each twice."""
    named = list(zip(words, columns.metrics, strict=True))
    buses = [positive(word) for word, name in named if name == "busbw"]
    algs = [positive(word) for word, name in named if name == "algbw"]
    known = [(bus, alg) for bus, alg in zip(buses, algs, strict=True) if bus is not None]
    return max(known, key=lambda way: way[0], default=(None, None))


def _is_wrong(word: str, name: str) -> bool:
    """Tell whether a column says that the result was wrong; rccl-tests marks too large an error with an asterisk."""
    return word.endswith("*") or (name == "wrong" and (positive(word) is not None or word.lstrip("-") in {"nan", "inf"}))

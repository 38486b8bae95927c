"""Where the matrices of ``nvidia-smi topo`` are in a text: headers and rows, not yet their cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.nvidia.plain_rows import unquoted
from pyscheduler.readers.reading import RefusedError

__all__ = ["Header", "Row", "Table", "find_tables", "is_gpu"]

# At 80 columns the header of 8 GPUs and 12 NICs takes four lines.
_WRAPS: Final = 4

# No machine has more GPUs and NICs, and no paste more headers; what has is refused, so that none takes long.
_MOST_COLUMNS: Final = 128
_MOST_HEADERS: Final = 512

_KNOWN: Final = r"GPU\d{1,4}|NIC\d{1,4}|mlx\d+_(?:bond_?)?\d+"
_FUSED: Final = re.compile(rf"((?:{_KNOWN})+)((?i:CPU|NUMA|GPU))?")
_DEVICE: Final = re.compile(_KNOWN)
# Names of RDMA devices as drivers give them: bnxt_re0, rocep12s0, irdma1, rdmap16s27.
_OTHER_NIC: Final = re.compile(r"[a-z][a-z0-9]*[a-z_][a-z0-9_]*\d[a-z0-9_]*")
_KNOWN_NAME: Final = re.compile(_KNOWN)
_CUT_NAME: Final = re.compile(r"[A-Za-z]{1,4}\d?_?")
_TITLE_WORDS: Final = ("CPU", "NUMA", "GPU", "AFFINITY", "ID")
_GPU: Final = re.compile(r"GPU\d{1,4}")
_LABEL: Final = re.compile(r"\s*([A-Za-z]\w*)(?=\s|$)")
_FUSED_LABEL: Final = re.compile(r"\s*((?:GPU|NIC)\d{1,4})(?=[A-Za-z])")
_CELLS: Final = re.compile(r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|OK|C?NS|[GT]NS|U)+(?:\d[\d,-]*)?", re.IGNORECASE)
_NUMBERS: Final = re.compile(r"\d[\d,-]*|N/A")
_TITLES: Final = re.compile(r"CPU|NUMA|GPU N")
_FRAGMENT: Final = re.compile(r"[A-Z0-9,/-]{1,12}")


def is_gpu(name: str) -> bool:
    """Tell whether a column or row is a GPU's; the others are NICs."""
    return _GPU.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a matrix.

    Attributes
    ----------
    line
        Where it begins, from 1.
    columns
        GPUs and NICs in the order printed.
    tails
        Which of ``cpu``, ``numa`` and ``gpu_numa`` follow them.
    sure
        How many leading columns come before the first two names without a blank between.
    starts
        Character where each column and tail begins, tabs expanded; empty for a wrapped header.
    inferred
        The text has no header; the X of each row shows which column is whose.
    nameless
        How many empty names stand between tabs: there may be so many columns more than `columns`.

    """

    line: int
    columns: tuple[str, ...]
    tails: tuple[str, ...]
    sure: int
    starts: tuple[int, ...] = ()
    inferred: bool = False
    nameless: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the text behind its label, and the lines that may continue it."""

    line: int
    label: str
    text: str
    offset: int
    more: list[str] = field(default_factory=list)

    def readings(self) -> list[str]:
        """Return the texts that the row may be: one line, and wrapped at a blank or inside a word."""
        if not self.more:
            return [self.text]
        return [self.text, " ".join([self.text, *self.more]), "".join([self.text, *self.more])]


@dataclass(frozen=True, slots=True)
class Table:
    """One matrix. `last` tells that the input ends with its last row, and not with the end of a line."""

    header: Header
    rows: list[Row] = field(default_factory=list)
    last: bool = False


def find_tables(lines: Sequence[str]) -> list[Table]:
    """Return the matrices that have a header and a row, in the order of `lines`.

    Raises
    ------
    RefusedError
        If far more lines look like headers than any paste of a topology has.

    """
    lines = [unquoted(line) for line in lines]
    tables: list[Table] = []
    at = tried = 0
    while at < len(lines):
        tried += _begins_header(lines[at])
        if tried > _MOST_HEADERS:
            raise RefusedError(f"more than {_MOST_HEADERS} headers of matrices; parse the output of each machine alone", at + 1)
        header, used = _header_at(lines, at, tables[-1] if tables else None)
        if header:
            tables.append(Table(header))
        elif tables:
            _take(tables[-1], lines[at], at + 1)
        at += used
    found = [table for table in tables if table.rows] or _without_header(lines)
    if found and _ends_with(lines, found[-1].rows[-1]):
        found[-1] = Table(found[-1].header, found[-1].rows, last=True)
    return found


def _without_header(lines: Sequence[str]) -> list[Table]:
    """Return the matrix whose header is lost, if the X of its rows shows the column of each of its GPUs."""
    rows: list[Row] = []
    columns: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        label = _FUSED_LABEL.match(line) or _LABEL.match(line)
        if label is None or _KNOWN_NAME.fullmatch(label[1]) is None or not _row_like(line):
            continue
        words = line[label.end() :].upper().split()
        if words.count("X") != 1 or columns.setdefault(words.index("X"), label[1]) != label[1]:
            return []
        rows.append(Row(number, label[1], line[label.end() :], len(line[: label.end()].expandtabs())))
    names = tuple(columns[at] for at in sorted(columns))
    if (
        not rows
        or len(rows) > _MOST_COLUMNS
        or sorted(columns) != list(range(len(rows)))
        or len(set(names)) != len(names)
        or len(names) < 2
    ):
        return []
    return [Table(Header(rows[0].line, names, (), len(names), inferred=True), rows)]


def _ends_with(lines: Sequence[str], row: Row) -> bool:
    return row.line + len(row.more) == len(lines)


def _header_at(lines: Sequence[str], at: int, table: Table | None) -> tuple[Header | None, int]:
    """Return the header that begins at `lines[at]` and how many lines it takes; (None, 1) if there is none."""
    if not _begins_header(lines[at]) or _is_cut_row(lines[at], table):
        return None, 1
    best: tuple[Header | None, int] = (None, 1)
    text = lines[at]
    for used in range(1, _WRAPS + 1):
        following = lines[at + used] if at + used < len(lines) else ""
        whole = _header(text, at + 1, wrapped=used > 1)
        if whole is None and _is_cut(text, following):
            whole = _header(text.rsplit(maxsplit=1)[0], at + 1, wrapped=used > 1)
        if whole:
            best = (whole, used)
        if not _may_continue(text, following):
            break
        text = text + (" " if whole and _header(f"{text} {following}", 0, wrapped=True) else "") + following
    return best


def _may_continue(text: str, following: str) -> bool:
    """Tell whether `following` may be the rest of a wrapped header: no row, and not the header of another matrix."""
    if not following.strip() or _row_like(following):
        return False
    return _begins_header(text) and following.split(maxsplit=1)[0] not in _DEVICE.findall(text)


def _is_cut(text: str, following: str) -> bool:
    """Tell whether the last word of a header is the beginning of a name, and a row follows."""
    words = text.split()
    return len(words) > 1 and _CUT_NAME.fullmatch(words[-1]) is not None and _row_like(following)


def _begins_header(line: str) -> bool:
    return _GPU.match(line.lstrip()) is not None and not _row_like(line)


def _row_like(line: str) -> bool:
    """Tell whether the word behind the first is a cell."""
    words = line.lstrip().split(maxsplit=2)
    return len(words) > 1 and _CELLS.fullmatch(words[1]) is not None


def _is_cut_row(line: str, table: Table | None) -> bool:
    """Tell whether a label alone is a row of `table` that the paste cut, and not the header of another machine."""
    label = line.strip()
    if table is None or not table.rows or label not in table.header.columns:
        return False
    return all(row.label != label for row in table.rows)


def _header(text: str, line: int, *, wrapped: bool) -> Header | None:
    flat = text.expandtabs()
    columns: list[str] = []
    starts: list[int] = []
    titles: list[tuple[str, int]] = []
    sure: int | None = None
    for match in re.finditer(r"\S+", flat):
        names, title = _names(match[0])
        if (names and titles) or not (names or title):
            return None
        if len(names) > 1 and sure is None:
            sure = len(columns)
        columns += names
        starts += [match.start()] * len(names)
        titles += [(title, match.start())] * bool(title)
    if len(set(columns)) != len(columns) or not 0 < len(columns) <= _MOST_COLUMNS:
        return None
    tails, tail_starts = _tails(titles)
    where = () if wrapped else (*starts, *tail_starts)
    # The first field is that of the labels, empty anyhow; the last is what stands before the titles.
    nameless = sum(not part.strip() for part in _TITLES.split(text)[0].split("\t")[1:-1])
    return Header(line, tuple(columns), tails, len(columns) if sure is None else sure, where, nameless=nameless)


def _names(word: str) -> tuple[list[str], str]:
    """Return the device names in a word of a header, and the word of a title that it is or ends with."""
    if fused := _FUSED.fullmatch(word):
        return _DEVICE.findall(fused[1]), fused[2] or ""
    if _OTHER_NIC.fullmatch(word):
        return [word], ""
    return [], word if any(title.startswith(word.upper()) for title in _TITLE_WORDS) else ""


def _tails(titles: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], list[int]]:
    """Return which columns the words of titles name: "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"."""
    found: dict[str, int] = {}
    before = ""
    for title, start in titles:
        word = title.upper()
        if word == "CPU":
            found["cpu"] = start
        elif word == "GPU":
            found["gpu_numa"] = start
        elif word == "NUMA" and before != "GPU":
            found["numa"] = start
        before = word
    return tuple(found), list(found.values())


def _take(table: Table, line: str, number: int) -> None:
    """Add `line` to `table` if it is a row, or continues the last one."""
    if not line.strip():
        return
    label = _FUSED_LABEL.match(line) or _LABEL.match(line)
    if label and (label[1] in table.header.columns or is_gpu(label[1])):
        if _is_row(table, label[1], line[label.end() :]):
            table.rows.append(Row(number, label[1], line[label.end() :], len(line[: label.end()].expandtabs())))
    elif table.rows and _continues(table.rows[-1], line, number):
        table.rows[-1].more.append(line)


def _is_row(table: Table, label: str, rest: str) -> bool:
    words = rest.split()
    if any(_CELLS.fullmatch(word) for word in words[:2]):
        return True
    waited_for = label in table.header.columns and all(row.label != label for row in table.rows)
    return waited_for and bool(table.rows) and rest == rest.upper()


def _continues(row: Row, line: str, number: int) -> bool:
    if number != row.line + len(row.more) + 1 or len(row.more) >= _WRAPS:
        return False
    first, *others = line.split()
    if not all(_CELLS.fullmatch(word) or _NUMBERS.fullmatch(word) for word in others):
        return False
    return bool(_CELLS.fullmatch(first) or _NUMBERS.fullmatch(first) or (others and _FRAGMENT.fullmatch(first)))

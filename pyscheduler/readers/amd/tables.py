"""The square tables that AMD's tools print: a title, a header of GPUs, and one row for each GPU.

Cells are bound to columns by count; in a row that lost cells, by their place under the header. What can be bound in
neither way is left out: the mirrored cell of the other row may still hold it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.reading import Finding
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["Cells", "Table", "clean_lines", "is_address", "tables"]

Cells = dict[tuple[str, str], list[str]]

_BDF: Final = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_GPU: Final = r"GPU(?:0|[1-9]\d{0,3})(?!\d)"
_ID: Final = re.compile(rf"{_GPU}|{_BDF}", re.IGNORECASE)
# A word ends at a blank or where the next known word begins: pastes lose separators.
_WORD: Final = re.compile(rf"{_GPU}|{_BDF}|XGMI|PCIE|SELF|XXXX|\S+?(?=GPU\d|XGMI|PCIE|SELF|XXXX|\s|$)", re.IGNORECASE)
_CELL: Final = re.compile(r"XGMI|PCIE|SELF|XXXX|UNKNOWN|N/A|ENABLED|DISABLED|TRUE|FALSE|\d+(?:-\d+)?", re.IGNORECASE)
_RULE: Final = "==="
_NAMED: Final = re.compile(r"\bTABLE\s?:?$|\bbetween two GPU", re.IGNORECASE)
_KINDS: Final = (
    ("link type", "type"),
    ("weight", "weight"),
    ("hops", "hops"),
    ("access", "access"),
    ("bw", "bandwidth"),
    ("bandwidth", "bandwidth"),
)
_NONE: Final = "N/A"
_Own = tuple[str, ...] | None
_SELF: Final = {"type": ("0", "SELF", _NONE, "X"), "weight": ("0", "SELF", _NONE, "X")}
_QUOTES: Final = str.maketrans(">|`", "   ")


def is_address(name: str) -> bool:
    """Tell whether a row is named by its PCI address."""
    return ":" in name


def clean_lines(text: str) -> list[str]:
    """Return the lines without terminal escapes and marks of quoting; tabs as 8 columns."""
    return [line.translate(_QUOTES).expandtabs(8).rstrip() for line in plain_lines(text)]


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    column: int


@dataclass(slots=True)
class _Row:
    """`last` tells that the text ends with it: a cut there took its right end and nothing else."""

    name: str
    line: int
    words: list[_Word]
    last: bool = False


@dataclass(slots=True)
class Table:
    """One table. `kind` is that of its title: type, weight, hops, access, bandwidth, or empty.

    A column of `header` without text is one whose name is damaged.
    """

    kind: str
    title: str
    line: int
    header: list[_Word] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)

    def holds_link_types(self) -> bool:
        """Tell whether cells are link types, whatever the title says."""
        return any(word.text in ("XGMI", "PCIE") for row in self.rows for word in row.words)

    def names(self) -> Iterator[str]:
        """Yield the GPUs of header and rows, in their order, some of them again."""
        yield from (word.text for word in self.header if word.text)
        yield from (row.name for row in self.rows)

    def cells(self, kind: str, findings: list[Finding]) -> Cells:
        """Return the words by (row, column), those of the diagonal left out. `kind` says what the diagonal holds."""
        columns, own = self._columns(kind, findings), _SELF.get(kind)
        rows = [(row, self._bound(row, columns, own, findings)) for row in self.rows]
        if 2 * sum(words is None for _, words in rows) > len(rows):
            findings.append(
                Finding(
                    "columns-shifted", f"line {self.line}: most rows have no self cell in their own column; the table is not used"
                )
            )
            return {}
        found: Cells = {}
        for row, words in rows:
            for column, word in words or ():
                if column not in ("", row.name):
                    found.setdefault((row.name, column), []).append(word)
        return found

    def _columns(self, kind: str, findings: list[Finding]) -> list[str]:
        header, names = [word.text for word in self.header], [row.name for row in self.rows]
        square = len(set(names)) == len(names) and all(len(row.words) == len(names) for row in self.rows)
        if header == names or not square or len(header) == len(names):
            return header
        # The header was cut or lost. A self cell in every diagonal place shows that columns stand in the order of the rows.
        own = _SELF.get(kind)
        if own is None or any(row.words[i].text not in own for i, row in enumerate(self.rows)):
            return header
        findings.append(
            Finding(
                "header-cut",
                f"line {self.line}: the header names {len(header)} of {len(names)} columns; they are taken in the order of the rows",
            )
        )
        return names

    def _bound(self, row: _Row, columns: list[str], own: _Own, findings: list[Finding]) -> list[tuple[str, str]] | None:
        """Return the words of a row with their columns, None if they are not where they belong."""
        if len(row.words) == len(columns):
            bound = list(zip(columns, (word.text for word in row.words), strict=True))
        else:
            lacks = f"row {row.name} has {len(row.words)} cells for {len(columns)} columns"
            findings.append(Finding("row-cut", f"line {row.line}: {lacks}; cells that cannot be placed are unknown"))
            bound = self._by_place(row) if len(row.words) < len(columns) else []
        return self._placed(row, bound, own, findings) if own else bound

    def _placed(
        self, row: _Row, bound: list[tuple[str, str]], own: tuple[str, ...], findings: list[Finding]
    ) -> list[tuple[str, str]] | None:
        """Return the words that stand where they belong, as the self cell shows: it is in the row's own column and nowhere else."""
        mine = next((i for i, (column, _) in enumerate(bound) if column == row.name), -1)
        if mine < 0:
            # Its column may be one whose name is damaged.
            mine = next((i for i, (column, word) in enumerate(bound) if not column and word in own), -1)
        stray = next((i for i, (_, word) in enumerate(bound) if i != mine and word in own and word != _NONE), len(bound))
        if stray < mine or (mine >= 0 and bound[mine][1] not in own) or (mine < 0 and stray < len(bound)):
            findings.append(
                Finding("row-shifted", f"line {row.line}: row {row.name} has no self cell in its own column; the row is not used")
            )
            return None
        if stray == len(bound):
            return bound
        findings.append(
            Finding("row-merged", f"line {row.line}: row {row.name} has two self cells; what follows the first one is not used")
        )
        return bound[: mine + 1]

    def _by_place(self, row: _Row) -> list[tuple[str, str]]:
        """Bind the cells of a row that lost some.

        Its last cell may itself be cut, so it is not used. What was taken out between may have moved the rest to the left,
        so only what stands up to the row's own column is used, unless the last column is in its place.
        """
        at = {word.column: word.text for word in self.header}
        if not row.words or any(word.column not in at for word in row.words):
            return []
        bound = [(at[word.column], word.text) for word in row.words[:-1]]
        if row.last or row.words[-1].column == self.header[-1].column:
            return bound
        own = next((i for i, (column, _) in enumerate(bound) if column == row.name), -1)
        return bound[: own + 1]


def tables(lines: list[str]) -> list[Table]:
    """Return the tables of a text, in its order. The last number of a text without an end of line may lack digits: it is dropped."""
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        reader.take(number, line)
    rows = [row for table in reader.found[-1:] for row in table.rows[-1:] if row.line == len(lines)]
    for row in rows:
        row.last = True
        if row.words and row.words[-1].text.strip("0").isdecimal():
            row.words.pop()
    return [table for table in reader.found if table.rows or len(table.header) > 1]


def _title(line: str) -> str | None:
    """Return the title that the line is, None if it is none. A rule without words ends a table as well."""
    if line.startswith(_RULE):
        return line.strip("= ")
    return line.rstrip(" :") if _NAMED.search(line) else None


class _Reader:
    """Takes line after line; the last table of `found` is the open one."""

    def __init__(self) -> None:
        self.found: list[Table] = []
        self._title = ("", "")

    def take(self, number: int, line: str) -> None:
        title = _title(line.strip())
        if title is not None:
            self._open(number, title)
            return
        words = [_Word(word[0].upper(), word.start()) for word in _WORD.finditer(line)]
        if not words:
            return
        if not _ID.fullmatch(words[0].text):
            self._continue(words)
        elif self._is_header(words):
            self._header(number, words)
        elif len(words) == 1 or any(_CELL.fullmatch(word.text) for word in words[1:]):
            self._row(_Row(words[0].text, number, words[1:]))

    def _open(self, number: int, title: str) -> None:
        lowered = title.lower()
        self._title = (next((kind for key, kind in _KINDS if key in lowered), ""), title)
        self.found.append(Table(*self._title, number))

    def _table(self, number: int) -> Table:
        if not self.found:
            self.found.append(Table("", "", number))
        return self.found[-1]

    def _is_header(self, words: list[_Word]) -> bool:
        """Two GPUs side by side are a header; one alone is one unless a header has it already."""
        if len(words) > 1:
            return _ID.fullmatch(words[1].text) is not None
        table = self.found[-1] if self.found else None
        return table is None or (not table.rows and words[0].text not in (word.text for word in table.header))

    def _header(self, number: int, words: list[_Word]) -> None:
        table = self._table(number)
        known = {word.text for word in table.header}
        if table.rows or known.intersection(word.text for word in words):
            table = Table(*self._title, number)
            self.found.append(table)
        # A header that was wrapped goes on in the next line, where places mean nothing.
        wrapped = bool(table.header)
        times = Counter(word.text for word in words)
        for word in words:
            # What is no GPU was cut, and of two with one name one was: GPU1 may have been GPU12.
            name = word.text if _ID.fullmatch(word.text) and times[word.text] == 1 else ""
            table.header.append(_Word(name, -1 - len(table.header) if wrapped else word.column))

    def _row(self, row: _Row) -> None:
        self._table(row.line).rows.append(row)

    def _continue(self, words: list[_Word]) -> None:
        """Take the rest of a wrapped row; anything else between rows is a message of the tool."""
        table = self.found[-1] if self.found else None
        if table is None or not table.rows or not all(_CELL.fullmatch(word.text) for word in words):
            return
        row = table.rows[-1].words
        if len(row) + len(words) <= len(table.header):
            row += [_Word(word.text, -1 - i) for i, word in enumerate(words, len(row))]

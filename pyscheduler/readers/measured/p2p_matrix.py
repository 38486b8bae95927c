"""The matrices of the CUDA sample ``p2pBandwidthLatencyTest``, cell by cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.measured.output import positive
from pyscheduler.readers.reading import RefusedError

__all__ = ["Matrix", "find_matrices", "is_banner", "title"]

# No machine of one driver has more GPUs, no terminal wraps a row more often, no text holds more runs of the test.
_MOST_GPUS: Final = 128
_WRAPS: Final = 16
_MOST_MATRICES: Final = 128

_TITLE: Final = re.compile(
    r"(?:(Unidirectional|Bidirectional) P2P=(Enabled|Disabled) Bandwidth|P2P=(Enabled|Disabled) Latency)"
    r"(?: \(P2P (Writes|Reads)\))? Matrix",
    re.IGNORECASE,
)
_BANNER: Final = "P2P (Peer-to-Peer) GPU Bandwidth Latency Test"
# The last ones are how a backslash gets lost.
_HEADER: Final = re.compile(r"\s*(D\\{1,2}D|GPU|CPU|D/D|DD)((?:\s+\d{1,4})+)\s*")
_NUMBERS: Final = re.compile(r"\s*\d{1,4}(?:\s+\d{1,4})*\s*")
_ROW: Final = re.compile(r"(\s*)(\d{1,4})\s+(\S.*)")
# printf's %.2f: what has not two decimals is cut, or is two cells that ran together.
_WHOLE: Final = re.compile(r"\d{1,7}\.\d\d|-?nan|-?inf")
_PIECE: Final = re.compile(r"[\d.]{1,10}|-?nan|-?inf")


@dataclass(slots=True)
class _Row:
    """One row: the text behind its label, and how many lines the terminal made of it."""

    line: int
    label: int
    text: str
    indented: bool
    wraps: int = 0

    @property
    def cells(self) -> list[str]:
        return self.text.split()

    @property
    def cut(self) -> bool:
        """Whether the last cell is not whole."""
        return _WHOLE.fullmatch(self.cells[-1]) is None


@dataclass(slots=True)
class Matrix:
    """One matrix.

    Attributes
    ----------
    kind
        ``writes``, ``reads`` or ``disabled`` of one direction, ``bidirectional enabled``, ``latency writes``, ...
    line
        Where its title is, from 1.
    run
        Which run of the test it is of, from 1.
    size
        How many GPUs its header names; 0 without a header.
    last
        Whether the text ends with it.
    """

    kind: str
    line: int
    run: int
    size: int = 0
    last: bool = False
    _header: str = ""
    _rows: list[_Row] = field(default_factory=list)
    _closed: bool = False
    _last_line: int = 0

    def cells(self) -> dict[tuple[int, int], float]:
        """Return the figures by (row, column); what is cut, doubtful, told twice, nan or 0 is not there."""
        known: dict[tuple[int, int], float] = {}
        doubtful: set[tuple[int, int]] = set()
        for row in self._rows:
            for column, cell in enumerate(self._sure(row)):
                at = (row.label, column)
                value = positive(cell) if _WHOLE.fullmatch(cell) else None
                if value is None or known.setdefault(at, value) != value:
                    doubtful.add(at)
        return {at: value for at, value in known.items() if at not in doubtful}

    def _sure(self, row: _Row) -> list[str]:
        """Return the cells whose columns are sure: of a row that ends too early for no reason to see, none."""
        whole = row.cells[:-1] if row.cut else row.cells
        reason = row.cut or (self.last and row.line + row.wraps == self._last_line)
        fits = len(whole) == self.size or (len(whole) < self.size and reason)
        return whole if fits and row.label < self.size else []

    def take(self, line: str, number: int) -> None:
        """Add `line` if it is the header, a row, or the rest of either."""
        self._last_line = number
        if self._closed:
            return
        if header := _HEADER.fullmatch(line):
            # Below the latencies that the GPUs saw are those that the CPU saw, without a title of their own.
            self._closed = self.size > 0 or header[1] == "CPU"
            if not self._closed:
                self._header, self.size = header[2], _columns(header[2])
        elif self.size and not self._rows and _NUMBERS.fullmatch(line):
            self._widen(line)
        elif self.size:
            self._take_row(line, number)

    def _widen(self, line: str) -> None:
        """Add the rest of a wrapped header, which may begin inside of a number, if it counts on."""
        if self.size < _MOST_GPUS:
            joined = max(self._header + line, f"{self._header} {line}", key=_columns)
            if _columns(joined) > self.size:
                self._header, self.size = joined, _columns(joined)

    def _take_row(self, line: str, number: int) -> None:
        if self._rows and self._continues(self._rows[-1], line):
            row = self._rows[-1]
            row.text += line if row.cut else f" {line}"
            row.wraps += 1
        elif (found := _ROW.fullmatch(line)) and _is_row(found[3].split()):
            self._rows.append(_Row(number, int(found[2]), found[3], bool(found[1])))

    def _continues(self, row: _Row, line: str) -> bool:
        """Tell whether `line` is the rest of `row`, which the terminal wrapped."""
        words = line.split()
        if not all(map(_PIECE.fullmatch, words)) or row.wraps >= _WRAPS or len(row.cells) >= self.size + row.cut:
            return False
        if not row.cut:
            # What begins with a whole number is the next row.
            return _WHOLE.fullmatch(words[0]) is not None
        glued = (row.text + line).split()
        # Labels are indented; where they are no longer, a rest and a label look alike.
        return row.indented and not line[0].isspace() and _WHOLE.fullmatch(glued[len(row.cells) - 1]) is not None


def title(line: str) -> str | None:
    """Return the kind of the matrix that `line` is the title of, None if it is none."""
    found = _TITLE.search(line)
    if found is None:
        return None
    way, bandwidth, latency, verb = ((group or "").lower() for group in found.groups())
    if latency:
        return f"latency {'disabled' if latency == 'disabled' else verb or 'writes'}"
    if way == "bidirectional":
        return f"bidirectional {bandwidth}"
    return "disabled" if bandwidth == "disabled" else verb or "writes"


def is_banner(line: str) -> bool:
    """Tell whether `line` is the first that the test prints."""
    return _BANNER in line


def find_matrices(lines: Sequence[str]) -> list[Matrix]:
    """Return the matrices in the order of `lines`.

    Raises
    ------
    RefusedError
        If there are more than any text of a test or two has.

    """
    found: list[Matrix] = []
    seen: set[str] = set()
    run = 1
    for number, line in enumerate(lines, start=1):
        kind = title(line)
        if is_banner(line) or kind in seen:
            run, seen = run + bool(seen), set()
        if kind is not None:
            seen.add(kind)
            found.append(Matrix(kind, number, run))
        elif found and line.strip():
            found[-1].take(line, number)
        if len(found) > _MOST_MATRICES:
            raise RefusedError(f"more than {_MOST_MATRICES} matrices; read the output of each machine alone", number)
    if found:
        found[-1].last = True
    return found


def _is_row(words: Sequence[str]) -> bool:
    """Tell whether `words` are cells; whole numbers alone are of the matrix that tells who has access to whom."""
    return all(map(_PIECE.fullmatch, words)) and not all(map(str.isdigit, words))


def _columns(header: str) -> int:
    """Return how many GPUs `header` counts, from 0 on; a last number that is cut does not count."""
    words = header.split()
    wrong = (at for at, word in enumerate(words) if word != str(at))
    return min(next(wrong, len(words)), _MOST_GPUS)

"""The cells of one row of an ``nvidia-smi topo`` matrix. A cell that cannot be known is ``?``, never a guess."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.nvidia.matrix import Header, Row, is_gpu

__all__ = ["LINKS", "P2P", "SELF", "UNKNOWN", "Decoded", "Note", "Vocabulary", "decode"]

UNKNOWN: Final = "?"
SELF: Final = "X"

_AFFINITY: Final = re.compile(r"\d[\d,-]*")
_CUT: Final = re.compile(r"[A-Za-z]+\d+[,-][\d,-]*")
_NO_CELL: Final = re.compile(r"N/A|\d[\d,-]*")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the cells of a matrix may be."""

    cell: re.Pattern[str]

    def split(self, word: str) -> list[str]:
        """Return the cells that `word` is; none if it is anything else. There is at most one way to cut it."""
        cells = self.cell.findall(word.upper())
        return cells if "".join(cells) == word.upper() else []


LINKS: Final = Vocabulary(re.compile(r"NV[1-9]\d?(?!\d)|PIX|PXB|PHB|NODE|SYS|SOC|X"))
P2P: Final = Vocabulary(re.compile(r"CNS|GNS|TNS|NS|OK|DR|N/A|U|X"))


@dataclass(frozen=True, slots=True)
class Note:
    """What a row does not say, or says oddly. `lost`: something that it should have said is unknown."""

    code: str
    text: str
    lost: bool = True


@dataclass(slots=True)
class Decoded:
    """A row: one cell per column, and the affinities as printed (absent where the row has none).

    `whole`: as many cells as columns, the X in its own. `exact`: as many affinities as the header names.
    """

    cells: list[str]
    tail: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    whole: bool = False
    exact: bool = False


@dataclass(slots=True)
class _Scan:
    """The words of a row up to its last cell. `end` is where the affinities begin."""

    cells: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    end: int = 0
    lost_cpu: bool = False


def decode(row: Row, header: Header, vocabulary: Vocabulary, *, last: bool = False) -> Decoded:
    """Return what `row` says of the columns of `header`. `last`: the input ends with this row."""
    readings = [_decode(row, text, header, vocabulary, last=last) for text in row.readings()]
    return max(readings, key=lambda decoded: (decoded.whole, decoded.exact))


def _decode(row: Row, text: str, header: Header, vocabulary: Vocabulary, *, last: bool) -> Decoded:
    scan = _scan(text, len(header.columns), vocabulary)
    if row.label not in header.columns:
        return Decoded([UNKNOWN] * len(header.columns), notes=[Note("column-missing", "has no column in the header")])
    own = header.columns.index(row.label)
    behind = text[scan.end :]
    cut = not behind.strip() and bool(header.tails or last)
    if cut and scan.cells and not text[-1:].isspace() and len(scan.cells) < len(header.columns):
        _drop_cut_count(scan)
    cells, whole = _placed(scan.cells, own, header, cut=cut)
    extra = _extra(behind, vocabulary)
    if header.nameless and not extra and _has_empty_cell(text[: scan.end], behind, header):
        # The empty cell may be the one of the column without a name, or any other.
        unplaced = [SELF if at == own else UNKNOWN for at in range(len(cells))]
        return Decoded(unplaced, notes=[*scan.notes, Note("cell-empty", "has an empty cell, and the header an empty name")])
    if extra:
        # The header lacks a name, and it may be any of those to the right.
        behind = behind[extra:]
        cells, whole = cells[: own + 1] + [UNKNOWN] * (len(cells) - own - 1), False
        scan.notes.append(Note("column-missing", "has more cells than the header has columns"))
    exact = None if whole or extra else _by_tabs(text, own, header, vocabulary) or _by_position(row, scan, own, header)
    if exact:
        cells, behind = exact
        scan.notes.append(Note("cell-empty", "has an empty cell"))
    elif not whole and (len(scan.cells) < len(header.columns) or not any(note.lost for note in scan.notes)):
        scan.notes.append(_short(scan, header, text, cut=cut))
    decoded = Decoded(cells, notes=scan.notes, whole=whole)
    if is_gpu(row.label):
        _read_tail(decoded, row, scan, text, behind, header)
    return decoded


def _scan(text: str, columns: int, vocabulary: Vocabulary) -> _Scan:
    scan = _Scan()
    for match in re.finditer(r"\S+", text):
        if len(scan.cells) >= columns:
            break
        if not _scan_word(scan, match, columns, vocabulary):
            break
    return scan


def _scan_word(scan: _Scan, match: re.Match[str], columns: int, vocabulary: Vocabulary) -> bool:
    """Add one word; False if it ends the cells."""
    word = match[0]
    if found := vocabulary.split(word):
        if len(scan.cells) + len(found) > columns:
            return False
        if len(found) > 1:
            scan.notes.append(
                Note("cells-fused", f'"{word}" has no blank between its cells: read as {" ".join(found)}', lost=False)
            )
        return _add(scan, found, match.start(), match.end())
    if _NO_CELL.fullmatch(word):
        return False
    head = word.rstrip("0123456789,-")
    if head != word and _scan_fused_affinity(scan, match, head, columns, vocabulary):
        return False
    scan.notes.append(Note("cell-cut", f'cell "{word[:40]}" is cut or unreadable'))
    scan.lost_cpu = _CUT.fullmatch(word) is not None
    _add(scan, [UNKNOWN], match.start(), match.end())
    return not scan.lost_cpu


def _scan_fused_affinity(scan: _Scan, match: re.Match[str], head: str, columns: int, vocabulary: Vocabulary) -> bool:
    """Read "NODE0-31" in the last column. "NV120-31" has no one reading: NV1 and 20-31, or NV12 and 0-31."""
    found = vocabulary.split(head)
    if not found or len(scan.cells) + len(found) != columns:
        return False
    scan.notes.append(Note("cells-fused", f'"{match[0]}" has no blank before the CPU affinity', lost=False))
    return _add(scan, found, match.start(), match.start() + len(head))


def _add(scan: _Scan, cells: Sequence[str], start: int, end: int) -> bool:
    scan.cells += cells
    scan.starts += [start] * len(cells)
    scan.end = end
    return True


def _drop_cut_count(scan: _Scan) -> None:
    """Where the paste ends behind a number, NV1 may be the beginning of NV18."""
    if scan.cells[-1].startswith("NV"):
        scan.notes.append(Note("cell-cut", f'the row ends within or behind "{scan.cells[-1]}"'))
        scan.cells[-1] = UNKNOWN


def _placed(cells: list[str], own: int, header: Header, *, cut: bool) -> tuple[list[str], bool]:
    """Return one cell per column, and whether all are there: the X stands in the row's own column."""
    count = len(header.columns)
    crosses = [at for at, cell in enumerate(cells) if cell == SELF]
    unknown = [UNKNOWN] * count
    if not crosses and cut and len(cells) <= own:
        return cells + unknown[len(cells) :], False
    if not crosses and len(cells) == count and cells[own] == UNKNOWN:
        return cells, False
    if len(crosses) != 1:
        return unknown, False
    right = cells[crosses[0] + 1 :]
    wanted = count - own - 1
    if crosses[0] != own:
        return unknown[: count - len(right)] + right if len(right) == wanted else unknown, False
    kept = len(right)
    if len(right) != wanted and not cut:
        # Where the lost cell was is unknown, except that it is not before two fused names.
        kept = min(len(right), max(0, header.sure - own - 1)) if header.sure < count else 0
    return cells[: own + 1] + right[:kept] + unknown[own + 1 + kept :], len(right) == wanted


def _by_tabs(text: str, own: int, header: Header, vocabulary: Vocabulary) -> tuple[list[str], str] | None:
    """Read a row whose cells stand between single tabs, so that an empty one shows."""
    fields = [part.strip() for part in text.split("\t")]
    count = len(header.columns)
    cells = fields[1 : count + 1]
    if fields[0] or len(cells) < count or not all(not cell or len(vocabulary.split(cell)) == 1 for cell in cells):
        return None
    if [at for at, cell in enumerate(cells) if cell.upper() == SELF] != [own]:
        return None
    return [cell.upper() or UNKNOWN for cell in cells], "\t" + "\t".join(fields[count + 1 :])


def _has_empty_cell(cells: str, behind: str, header: Header) -> bool:
    """Tell whether a field is empty between the tabs of `cells`, or first behind them. Where tabs only align, there are more of them."""
    if cells.count("\t") > len(header.columns) + header.nameless:
        return False
    fields = [*cells.split("\t")[1:], *behind.split("\t")[1:2]]
    return not all(part.strip() for part in fields)


def _by_position(row: Row, scan: _Scan, own: int, header: Header) -> tuple[list[str], str] | None:
    """Read a row of blanks whose every cell stands under its column, so that an empty one shows."""
    if "\t" in row.text or not header.starts or row.more or header.sure < len(header.columns):
        return None
    cells = [UNKNOWN] * len(header.columns)
    for cell, start in zip(scan.cells, scan.starts, strict=True):
        near = [at for at in range(len(cells)) if abs(header.starts[at] - start - row.offset) <= 1]
        if len(near) != 1 or cells[near[0]] != UNKNOWN:
            return None
        cells[near[0]] = cell
    return (cells, row.text[scan.end :]) if cells[own] == SELF and cells.count(SELF) == 1 else None


def _extra(behind: str, vocabulary: Vocabulary) -> int:
    """Return how many characters of `behind` are cells."""
    end = 0
    for match in re.finditer(r"\S+", behind):
        if match[0] == "N/A" or not vocabulary.split(match[0]):
            break
        end = match.end()
    return end


def _short(scan: _Scan, header: Header, text: str, *, cut: bool) -> Note:
    have, wanted = len(scan.cells), len(header.columns)
    if cut:
        return Note(
            "row-cut", f'is cut after {have} of {wanted} cells ("{text.strip()[-20:]}"); what it does not show is unknown'
        )
    if header.sure < wanted:
        fused = ", ".join(header.columns[header.sure :])
        return Note("columns-fused", f"has {have} cells for {wanted} columns; {fused} cannot be told apart and are unknown")
    return Note("cell-missing", f"has {have} readable cells for {wanted} columns; those that cannot be placed are unknown")


def _read_tail(
    decoded: Decoded,
    row: Row,
    scan: _Scan,
    text: str,
    behind: str,
    header: Header,
) -> None:
    """Add the affinities. `behind` is what follows the last cell of `text`."""
    tails = header.tails[1:] if scan.lost_cpu and header.tails[:1] == ("cpu",) else header.tails
    words = behind.split()
    decoded.exact = len(words) == len(header.tails)
    if len(words) >= len(tails):
        decoded.tail = dict(zip(tails, words, strict=False))
        return
    single_tabs = text[: len(text) - len(behind)].count("\t") == len(header.columns) or decoded.cells.count(UNKNOWN) > 0
    if "\t" in behind and single_tabs:
        decoded.tail = _tail_of_tabs(tails, behind)
    elif words:
        decoded.tail = _tail_of_positions(tails, row, text, behind, header)


def _tail_of_tabs(tails: tuple[str, ...], behind: str) -> dict[str, str]:
    """Return the affinities of "<tab>0-31<tab>0<tab><tab>N/A": the third stands behind an empty field."""
    fields = [part.strip() for part in behind.split("\t")][1:]
    found = dict(zip(tails, fields, strict=False))
    if len(tails) > 2:
        found[tails[2]] = next((part for part in fields[2:] if part), "")
    return found


def _tail_of_positions(tails: tuple[str, ...], row: Row, text: str, behind: str, header: Header) -> dict[str, str]:
    """Return the affinities by where they stand: the first is the CPUs' only where that column begins."""
    if row.more or not header.starts:
        return {}
    starts = dict(zip(header.tails, header.starts[len(header.columns) :], strict=True))
    base = row.offset + len(text) - len(behind)
    words = [(match[0], match.start() + base) for match in re.finditer(r"\S+", behind)]
    found = {tail: word for word, start in words for tail in tails if abs(starts[tail] - start) <= 1}
    rest = [tail for tail in tails if tail not in found]
    unplaced = [word for word, _ in words if word not in found.values()]
    if "cpu" not in found and len(unplaced) == len(rest) - 1 and not found:
        # Printed with tabs and pasted with blanks: an empty first field moves the others to the left.
        return dict(zip(rest[1:], unplaced, strict=True))
    if "cpu" in found and len(unplaced) == len(rest):
        return found | dict(zip(rest, unplaced, strict=True))
    return found

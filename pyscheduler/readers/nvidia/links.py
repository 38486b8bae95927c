"""One decoded matrix of ``nvidia-smi topo``: the links that its rows agree on, affinities, and what is odd."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Literal

from pyscheduler.core.machine.links import Link
from pyscheduler.readers.machine.node_links import agreed, mismatches
from pyscheduler.readers.nvidia.affinity import Affinities
from pyscheduler.readers.nvidia.matrix import Row, Table, is_gpu
from pyscheduler.readers.nvidia.rows import LINKS, UNKNOWN, decode
from pyscheduler.readers.reading import Finding

__all__ = ["Links", "Matrix", "fast_links", "matrix_of"]

# Fewer than this are bridged pairs, of which a card may well be left out.
_FABRIC: Final = 3

Links = dict[tuple[str, str], str]


@dataclass(slots=True)
class Matrix:
    """One matrix. `reports` holds what each row says of a pair; `whole`: nothing of it is cut or unreadable."""

    line: int
    names: list[str]
    reports: dict[tuple[str, str], list[str]]
    affinities: Affinities
    findings: list[Finding] = field(default_factory=list)
    whole: bool = True

    @property
    def gpus(self) -> list[str]:
        """The GPUs, in the order of the columns."""
        return [name for name in self.names if is_gpu(name)]

    @property
    def nics(self) -> list[str]:
        """The NICs, in the order of the columns."""
        return [name for name in self.names if not is_gpu(name)]

    def links(self) -> Links:
        """Return the link of each pair of GPUs."""
        return {pair: agreed(said) for pair, said in self.reports.items() if is_gpu(pair[0]) and is_gpu(pair[1])}

    def nic_links(self) -> Links:
        """Return the distance of each GPU and NIC."""
        found = {}
        for (a, b), said in self.reports.items():
            if is_gpu(a) != is_gpu(b):
                found[(a, b) if is_gpu(a) else (b, a)] = agreed(said)
        return found

    def note(self, code: str, text: str, *, lost: bool) -> None:
        """Add a finding. `lost`: something that a matrix shows is unknown."""
        self.findings.append(Finding(code, text))
        self.whole = self.whole and not lost


def fast_links(links: Links) -> int:
    """Return how many pairs are linked by NVLink."""
    return sum(Link.parse(text).fast for text in links.values())


def matrix_of(table: Table) -> Matrix:
    """Return `table`, decoded."""
    columns = list(table.header.columns)
    rows = {row.label for row in table.rows}
    names = columns + sorted((label for label in rows if label not in columns), key=lambda label: int(label[3:]))
    matrix = Matrix(table.header.line, names, {pair: [] for pair in combinations(names, 2)}, Affinities(table.header.tails))
    _note_header(matrix, table)
    order = {name: at for at, name in enumerate(names)}
    missing = [name for name in columns if is_gpu(name) and name not in rows]
    for at, row in enumerate(table.rows):
        ends = table.last and at == len(table.rows) - 1
        _add_row(matrix, table, row, order, end=None if not ends else "early" if missing else "last")
    if missing:
        matrix.note("row-missing", f"line {matrix.line}: the matrix has no row {', '.join(missing)}", lost=True)
    matrix.findings += [*matrix.affinities.findings(), *mismatches(matrix.reports), *_lost_nvlink(matrix)]
    matrix.whole = matrix.whole and not matrix.affinities.cut
    return matrix


def _note_header(matrix: Matrix, table: Table) -> None:
    header = table.header
    if header.sure < len(header.columns):
        fused = "".join(header.columns[header.sure : header.sure + 2])
        matrix.note("header-fused", f'line {header.line}: "{fused}" in the header are two columns', lost=False)
    if header.inferred:
        text = f"line {header.line}: the header is missing; the X of each row shows whose column it is, other columns are unknown"
        matrix.note("header-missing", text, lost=True)


def _add_row(matrix: Matrix, table: Table, row: Row, order: dict[str, int], *, end: Literal["early", "last"] | None) -> None:
    """Add `row`. `end`: the input ends with it, before or with the last row of the matrix."""
    decoded = decode(row, table.header, LINKS, last=end is not None)
    if end and is_gpu(row.label):
        matrix.affinities.check_end(row.text, decoded, early=end == "early")
    for column, cell in zip(table.header.columns, decoded.cells, strict=True):
        if column != row.label:
            pair = (row.label, column) if order[row.label] < order[column] else (column, row.label)
            # What older drivers print.
            matrix.reports[pair].append("SYS" if cell == "SOC" else cell)
    for note in decoded.notes:
        matrix.note(note.code, f"line {row.line}: row {row.label} {note.text}", lost=note.lost)
    if is_gpu(row.label):
        matrix.affinities.add(row.label, row.line, decoded.tail, lost=any(note.lost for note in decoded.notes))


def _lost_nvlink(matrix: Matrix) -> list[Finding]:
    """Tell which few GPUs have no NVLink while all the others, three or more, have it with each other."""
    links = matrix.links()
    linked = {name for pair, text in links.items() if Link.parse(text).fast for name in pair}
    full = all(Link.parse(text).fast for pair, text in links.items() if set(pair) <= linked)
    lost = [name for name in matrix.gpus if name not in linked]
    if len(linked) < _FABRIC or not full or len(lost) >= len(linked):
        return []
    known = {name for pair, text in links.items() if text != UNKNOWN for name in pair}
    text = "has no NVLink to any GPU while all the others are linked: degraded; check its fabric state and reset it"
    return [Finding("nvlink-missing", f"{name} {text}") for name in lost if name in known]

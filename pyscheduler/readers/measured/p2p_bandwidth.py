"""``p2pBandwidthLatencyTest``, a CUDA sample: what one GPU writes to another, pair by pair."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

from pyscheduler.core.machine.document import Measured
from pyscheduler.readers.measured.output import Notes, Results, bare_lines
from pyscheduler.readers.measured.p2p_matrix import Matrix, find_matrices, is_banner, title
from pyscheduler.readers.text.parts import some

__all__ = ["TOOL", "read", "recognises"]

TOOL: Final = "p2p-bandwidth"

# Directions of one pair that differ by more: something is wrong with a link, or the test was disturbed.
_UNEVEN: Final = 0.2

_NO_ACCESS: Final = re.compile(r"\s*Device=(\d{1,4}) CANNOT Access Peer Device=(\d{1,4})\s*")

_Pair = tuple[int, int]
_Cells = dict[_Pair, float]


def recognises(text: str) -> bool:
    """Tell whether a line of `text` is the test's first, or the title of one of its matrices."""
    return any(is_banner(line) or title(line) is not None for line in bare_lines(text))


def read(text: str) -> Results:
    """Return one result per pair of GPUs, of its weaker direction, writing with peer access enabled.

    Raises
    ------
    RefusedError
        If there is none.

    """
    lines = bare_lines(text)
    matrices = find_matrices(lines)
    notes = Notes()
    measured: list[Measured] = []
    runs = list(dict.fromkeys(matrix.run for matrix in matrices))
    for run in runs:
        measured += _run([matrix for matrix in matrices if matrix.run == run], notes)
    if measured:
        _no_access(lines, notes)
    if len(runs) > 1:
        first = next(matrix.line for matrix in matrices if matrix.run == runs[1])
        notes.add("several-runs", first, f"{len(runs)} runs in one text, all are read", "read the output of each machine alone")
    return notes.results(TOOL, measured)


def _run(matrices: Sequence[Matrix], notes: Notes) -> list[Measured]:
    writes = next((matrix for matrix in matrices if matrix.kind == "writes"), None)
    if writes is None:
        sentence = "no matrix of unidirectional bandwidth with P2P enabled, which alone tells of the links"
        notes.add("p2p-missing", matrices[0].line, sentence, "pass the whole output")
        return []
    cells = writes.cells()
    pairs = [pair for pair in combinations(range(writes.size), 2) if _both(cells, pair)]
    _unknown(writes, len(pairs), cells, notes)
    uneven = [pair for pair in pairs if min(_both(cells, pair)) < (1 - _UNEVEN) * max(_both(cells, pair))]
    if uneven:
        listed = some(f"{_name(pair)} ({' and '.join(f'{value:g}' for value in _both(cells, pair))} GB/s)" for pair in uneven)
        notes.add("p2p-uneven", writes.line, f"the directions of {listed} differ by more than 20 %, the weaker counts")
    latency = next((matrix for matrix in matrices if matrix.kind == "latency writes"), None)
    times = latency.cells() if latency else {}
    if latency and (blank := [pair for pair in pairs if not _both(times, pair)]):
        notes.note("latency-unknown", latency.line, f"the latency of {_names(blank)} is unknown")
    return [
        Measured(
            TOOL,
            gbps=min(_both(cells, pair)),
            gpus=(f"GPU{pair[0]}", f"GPU{pair[1]}"),
            latency_us=max(_both(times, pair), default=None),
        )
        for pair in pairs
    ]


def _unknown(writes: Matrix, known: int, cells: _Cells, notes: Notes) -> None:
    """Tell which pairs have no figure, or that there is no pair."""
    if writes.size < 2:
        notes.add("p2p-header", writes.line, "the matrix has no header, or one GPU only, so that there are no pairs")
    elif known < writes.size * (writes.size - 1) // 2:
        blank = [pair for pair in combinations(range(writes.size), 2) if not _both(cells, pair)]
        sentence = f"{_names(blank)} lack a figure in one or both directions, so these pairs are unknown"
        notes.add("p2p-unknown", writes.line, sentence, "pass the whole output")


def _no_access(lines: Sequence[str], notes: Notes) -> None:
    found: dict[_Pair, int] = {}
    for number, line in enumerate(lines, start=1):
        if match := _NO_ACCESS.fullmatch(line):
            a, b = sorted((int(match[1]), int(match[2])))
            found.setdefault((a, b), number)
    if found:
        sentence = f"no peer access between {_names(found)}: their figures are of copies through the host's memory"
        notes.note("p2p-no-access", min(found.values()), sentence)


def _both(cells: _Cells, pair: _Pair) -> tuple[float, ...]:
    """Return the figures of both directions, nothing if one is not known."""
    there, back = cells.get(pair), cells.get((pair[1], pair[0]))
    return () if there is None or back is None else (there, back)


def _name(pair: _Pair) -> str:
    return f"GPU{pair[0]}-GPU{pair[1]}"


def _names(pairs: Iterable[_Pair]) -> str:
    return some(_name(pair) for pair in pairs)

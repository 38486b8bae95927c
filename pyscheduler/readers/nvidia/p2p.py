"""``nvidia-smi topo -p2p``: which pairs of GPUs may read each other's memory. A status is no link type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyscheduler.readers.nvidia.matrix import Table, find_tables, is_gpu
from pyscheduler.readers.nvidia.rows import P2P, SELF, UNKNOWN, decode
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.terminal_text import plain, plain_lines

__all__ = ["FORMAT", "is_p2p", "read", "recognises", "statuses"]

FORMAT: Final = "nvidia-smi-p2p"

_LISTED: Final = 8
_STATUSES: Final = frozenset({"OK", "NS", "CNS", "GNS", "TNS", "DR", "U"})

Statuses = dict[tuple[str, str], str]


def recognises(text: str) -> bool:
    """Tell whether `text` holds a P2P matrix."""
    try:
        return any(is_p2p(table, text) for table in find_tables(plain_lines(text)))
    except RefusedError:
        return False


def read(text: str) -> Reading:
    """Return the GPUs and the status of each pair. Of several matrices (read, write, ...) the worst counts.

    Raises
    ------
    RefusedError
        If there is no such matrix.

    """
    lines = plain_lines(text)
    tables = [table for table in find_tables(lines) if is_p2p(table, text)]
    if not tables:
        raise RefusedError("no P2P matrix (a header GPU0 GPU1 ... and rows of OK, NS, CNS, GNS, TNS)")
    pairs, findings, whole = statuses(tables)
    gpus = dict.fromkeys(name for table in tables for name in table.header.columns if is_gpu(name))
    body: dict[str, Any] = {
        "gpus": [{"id": gpu, "numa": None, "cpu_affinity": None, "uuid": None, "pci": None, "model": None} for gpu in gpus],
        "nics": [],
        "links": [],
        "nic_links": [],
        "p2p": [{"a": a, "b": b, "status": status} for (a, b), status in pairs.items()],
    }
    return Reading("node", FORMAT, body, complete=whole, findings=tuple(findings))


def is_p2p(table: Table, text: str) -> bool:
    """Tell whether the cells of `table` are P2P statuses; one GPU alone has none and is told by its legend."""
    words = {word.upper() for row in table.rows for word in row.text.split()}
    if words & _STATUSES:
        return True
    return words == {SELF} and "Chipset not supported" in plain(text) and len(table.header.columns) == 1


def statuses(tables: Sequence[Table]) -> tuple[Statuses, list[Finding], bool]:
    """Return the worst status of each pair, findings, and whether every pair has one."""
    said: dict[tuple[str, str], list[str]] = {}
    findings: list[Finding] = []
    for table in tables:
        _gather(table, said, findings)
    pairs = {pair: _worst(values) for pair, values in said.items()}
    findings += [
        Finding("p2p-mismatch", f"P2P of {a}-{b} is {' and '.join(dict.fromkeys(known))}: what is not OK counts")
        for (a, b), values in said.items()
        if len(set(known := [value for value in values if value != UNKNOWN])) > 1
    ]
    findings += _not_ok(pairs)
    return (
        pairs,
        findings,
        all(status != UNKNOWN for status in pairs.values()) and not any(f.code == "row-missing" for f in findings),
    )


def _gather(table: Table, said: dict[tuple[str, str], list[str]], findings: list[Finding]) -> None:
    columns = [name for name in table.header.columns if is_gpu(name)]
    for i, a in enumerate(columns):
        for b in columns[i + 1 :]:
            said.setdefault(_pair(a, b), [])
    rows = {row.label for row in table.rows}
    missing = [name for name in columns if name not in rows]
    if missing:
        findings.append(Finding("row-missing", f"line {table.header.line}: the P2P matrix has no row {', '.join(missing)}"))
    for row in table.rows:
        decoded = decode(row, table.header, P2P, last=table.last and row is table.rows[-1])
        findings += [Finding(note.code, f"line {row.line}: P2P row {row.label} {note.text}") for note in decoded.notes]
        for column, cell in zip(table.header.columns, decoded.cells, strict=True):
            if is_gpu(column) and column != row.label and row.label in columns:
                said[_pair(row.label, column)].append(cell)


def _pair(a: str, b: str) -> tuple[str, str]:
    first, second = sorted((a, b), key=lambda name: int(name[3:]))
    return first, second


def _worst(values: Sequence[str]) -> str:
    known = [value for value in values if value != UNKNOWN]
    return next((value for value in known if value != "OK"), "OK" if known else UNKNOWN)


def _not_ok(pairs: Statuses) -> list[Finding]:
    """Return one finding per status that is not OK."""
    found = []
    for status in dict.fromkeys(value for value in pairs.values() if value != "OK"):
        names = [f"{a}-{b}" for (a, b), value in pairs.items() if value == status]
        listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
        meaning = "is not known" if status == UNKNOWN else f"is {status}"
        text = (
            f"P2P {meaning} for {len(names)} of {len(pairs)} pairs ({listed}): they talk through host memory, whatever their link"
        )
        found.append(Finding("p2p-not-ok", text))
    return found

"""``nvidia-smi topo -m`` and ``-mp``, as printed or as pasted into an issue, a log or a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyscheduler.core.machine.links import Link
from pyscheduler.readers.nvidia.gpu_list import Card, cards
from pyscheduler.readers.nvidia.hosts import heading, host_names
from pyscheduler.readers.nvidia.line_labels import labelled, other_labels
from pyscheduler.readers.nvidia.links import Links, Matrix, fast_links, matrix_of
from pyscheduler.readers.nvidia.machines import by_label, together
from pyscheduler.readers.nvidia.matrix import Table, find_tables
from pyscheduler.readers.nvidia.nvlink import active_links
from pyscheduler.readers.nvidia.p2p import is_p2p, statuses
from pyscheduler.readers.nvidia.rows import LINKS, SELF, UNKNOWN
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "nvidia-smi"

_NIC_NAME: Final = re.compile(r"[\s>|]*(NIC\d{1,4})\s*[:=]\s*(\S+)\s*", re.IGNORECASE)
_PCI_ONLY: Final = re.compile(r"\btopo(?:logy)?\s+(?:-mp\b|--matrix-pci)")
_WITH_NVLINK: Final = re.compile(r"\btopo(?:logy)?\s+(?:-m\b|--matrix(?!-))")
_LEGEND: Final = re.compile(r"[\s>|]*(PIX|NV#)\s*=", re.IGNORECASE)
_LONGEST: Final = 512


def recognises(text: str) -> bool:
    """Tell whether `text` holds a matrix of links."""
    try:
        lines = plain_lines(text)
        return any(_is_topo(table, text) for view in _views(lines) for table in find_tables(view))
    except RefusedError:
        return False


def read(text: str) -> Reading:
    """Return the node that `text` describes, or the nodes, where each matrix or line has a machine's name before it.

    A P2P matrix in the same text goes to ``p2p``, what ``nvidia-smi nvlink`` and ``-L`` print to the GPUs. Of a matrix
    with and one without NVLink (``-m`` and ``-mp`` of one machine) the one with NVLink counts. A matrix that fits
    neither is reported and left out.

    Raises
    ------
    RefusedError
        If there is no matrix of links, or far too many.

    """
    lines = plain_lines(text)
    as_it_is = _output(lines, text)
    if as_it_is:
        return as_it_is
    found = [(one, reading) for one in labelled(lines) if (reading := _output(one.lines, text))]
    if not found:
        raise _refused(lines)
    return by_label(found, other_labels(lines, [one.label for one, _ in found]))


def _views(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the text as it is, and then what each machine named at the beginning of its lines has printed."""
    yield lines
    for one in labelled(lines):
        yield one.lines


def _output(lines: Sequence[str], text: str) -> Reading | None:
    """Return what `lines` describe, None if they hold no matrix of links."""
    tables = find_tables(lines)
    matrices = [matrix_of(table) for table in tables if _is_topo(table, text)]
    if not matrices:
        return None
    hosts = host_names(lines, [matrix.line for matrix in matrices]) if len(matrices) > 1 else None
    if hosts:
        alone = [Reading("node", FORMAT, _body(m, {}, {}), m.whole, tuple(m.findings)) for m in matrices]
        return together(list(zip(hosts, alone, strict=True)))
    return _machine(matrices, lines, [table for table in tables if is_p2p(table, text)])


def _is_topo(table: Table, text: str) -> bool:
    """Tell whether a row of `table` holds its own X, as no other tool's matrix does."""
    crossed = any(SELF in LINKS.split(word) for row in table.rows for word in row.text.split())
    return crossed and not is_p2p(table, text)


def _refused(lines: Sequence[str]) -> RefusedError:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            return RefusedError(f'no topology matrix ("{" ".join(line[:400].split())[:80]}")', number)
    return RefusedError("the input is empty")


def _machine(matrices: Sequence[Matrix], lines: Sequence[str], p2p_tables: Sequence[Table]) -> Reading:
    matrix, others = _chosen(matrices, [heading(lines, matrix.line) for matrix in matrices])
    hidden = _hidden_nvlink(matrix, lines)
    listed = cards(lines)
    body = _body(matrix, listed, _nic_names(lines))
    findings = [*matrix.findings, *others, *hidden, *_split(listed)]
    whole = matrix.whole and not hidden and not any(finding.code == "second-matrix" for finding in others)
    if p2p_tables:
        p2p, p2p_findings, p2p_whole = statuses(p2p_tables)
        body["p2p"] = [{"a": a, "b": b, "status": status} for (a, b), status in p2p.items()]
        findings += [Finding("p2p-table", "a P2P matrix is there too; it is in p2p, not in links"), *p2p_findings]
        whole = whole and p2p_whole
    if active := active_links(lines):
        body["gpus"] = [gpu | active.fields.get(gpu["id"], {}) for gpu in body["gpus"]]
        findings += active.findings
        whole = whole and active.whole
    return Reading("node", FORMAT, body, complete=whole, findings=tuple(findings))


def _chosen(matrices: Sequence[Matrix], headings: Sequence[str | None]) -> tuple[Matrix, list[Finding]]:
    """Return the matrix that counts, and what is to be said of the others. `headings` stand above them."""
    chosen, findings = matrices[0], []
    named = next((name for name in headings if name), None)
    for other, name in zip(matrices[1:], headings[1:], strict=True):
        same = not name or name == named
        if same and set(chosen.names) == set(other.names) and _one_machine(chosen.links(), other.links()):
            text = f"lines {chosen.line} and {other.line}: two matrices of one machine; the one that shows more NVLinks counts"
            findings.append(Finding("matrix-repeated", text))
            chosen = other if fast_links(other.links()) > fast_links(chosen.links()) else chosen
        else:
            text = f"line {other.line}: another matrix, of other links or another machine, is left out; parse the output of each machine alone"
            findings.append(Finding("second-matrix", text))
    return chosen, findings


def _one_machine(mine: Links, theirs: Links) -> bool:
    """Tell whether two matrices may be of one machine: equal, or ``-mp`` shows PCIe paths where ``-m`` shows NVLink."""
    differ = [pair for pair in mine if mine[pair] != theirs[pair] and UNKNOWN not in {mine[pair], theirs[pair]}]
    if fast_links(mine) and fast_links(theirs):
        return not differ
    with_nvlink = mine if fast_links(mine) else theirs
    return all(Link.parse(with_nvlink[pair]).fast for pair in differ)


def _hidden_nvlink(matrix: Matrix, lines: Sequence[str]) -> list[Finding]:
    """Tell if the text shows that NVLink is not printed: by its command, or by a legend that ends without NV#."""
    if fast_links(matrix.links()):
        return []
    short = [line for line in lines if len(line) <= _LONGEST]
    legend = {match[1].upper() for line in short if (match := _LEGEND.match(line))}
    told = any(_PCI_ONLY.search(line) for line in short) and not any(_WITH_NVLINK.search(line) for line in short)
    if not told and legend != {"PIX"}:
        return []
    text = "nvidia-smi topo -mp shows PCIe paths only: NVLink may be there and is not visible; run nvidia-smi topo -m"
    return [Finding("nvlink-hidden", text)]


def _split(listed: dict[int, Card]) -> list[Finding]:
    names = [f"GPU{index}" for index, card in listed.items() if card.mig]
    text = f"{', '.join(names)} in MIG mode: split, and not to be given out whole"
    return [Finding("mig-split", text)] if names else []


def _nic_names(lines: Sequence[str]) -> dict[str, str]:
    """Return the NIC legend."""
    return {match[1].upper(): match[2] for line in lines if len(line) <= _LONGEST and (match := _NIC_NAME.fullmatch(line))}


def _body(matrix: Matrix, listed: dict[int, Card], nic_names: dict[str, str]) -> dict[str, Any]:
    return {
        "gpus": [_gpu(name, matrix, listed.get(int(name[3:]))) for name in matrix.gpus],
        "nics": [_nic(name, nic_names) for name in matrix.nics],
        "links": [{"a": a, "b": b, "type": link} for (a, b), link in matrix.links().items()],
        "nic_links": [{"gpu": gpu, "nic": nic, "type": link} for (gpu, nic), link in matrix.nic_links().items()],
    }


def _gpu(name: str, matrix: Matrix, card: Card | None) -> dict[str, Any]:
    gpu: dict[str, Any] = {"id": name, "numa": matrix.affinities.numa(name), "cpu_affinity": matrix.affinities.cpus(name)}
    gpu |= {"uuid": card.uuid if card else None, "pci": None, "model": card.model if card else None}
    return gpu | {"mig": card.mig, "whole": False} if card and card.mig else gpu


def _nic(name: str, nic_names: dict[str, str]) -> dict[str, str]:
    if name.startswith("NIC"):
        return {"id": name, "name": nic_names[name]} if name in nic_names else {"id": name}
    return {"id": name, "name": name}

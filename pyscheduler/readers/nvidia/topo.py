"""``nvidia-smi topo -m`` and ``-mp``, as printed or as pasted into an issue, a log or a report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pyscheduler.core.links import Link
from pyscheduler.readers.nvidia.gpu_list import Card, cards
from pyscheduler.readers.nvidia.hosts import host_names
from pyscheduler.readers.nvidia.links import Links, Matrix, fast_links, matrix_of
from pyscheduler.readers.nvidia.matrix import Table, find_tables
from pyscheduler.readers.nvidia.p2p import is_p2p, statuses
from pyscheduler.readers.nvidia.rows import LINKS, SELF, UNKNOWN
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "nvidia-smi"

_NIC_NAME: Final = re.compile(r"[\s>|]*(NIC\d{1,4})\s*[:=]\s*(\S+)\s*")
_PCI_ONLY: Final = re.compile(r"\btopo(?:logy)?\s+(?:-mp\b|--matrix-pci)")
_WITH_NVLINK: Final = re.compile(r"\btopo(?:logy)?\s+(?:-m\b|--matrix(?!-))")
_LEGEND: Final = re.compile(r"[\s>|]*(PIX|NV#)\s*=")
_LONGEST: Final = 512


def recognises(text: str) -> bool:
    """Tell whether `text` holds a matrix of links."""
    try:
        return any(_is_topo(table, text) for table in find_tables(plain_lines(text)))
    except RefusedError:
        return False


def read(text: str) -> Reading:
    """Return the node that `text` describes, or the nodes, where each matrix has a machine's name above it.

    A P2P matrix in the same text goes to ``p2p``. Of a matrix with and one without NVLink (``-m`` and ``-mp`` of
    one machine) the one with NVLink counts. A matrix that fits neither is reported and left out.

    Raises
    ------
    RefusedError
        If there is no matrix of links, or far too many.

    """
    lines = plain_lines(text)
    tables = find_tables(lines)
    matrices = [matrix_of(table) for table in tables if _is_topo(table, text)]
    if not matrices:
        raise _refused(lines)
    hosts = host_names(lines, [matrix.line for matrix in matrices]) if len(matrices) > 1 else None
    if hosts:
        return _machines(hosts, matrices)
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


def _machines(hosts: Sequence[str], matrices: Sequence[Matrix]) -> Reading:
    """Return one document of several machines; their GPUs are told apart by `host`."""
    body: dict[str, Any] = {"gpus": [], "nics": [], "links": [], "nic_links": []}
    findings: list[Finding] = []
    for host, matrix in zip(hosts, matrices, strict=True):
        one = _body(matrix, {}, {})
        for key in ("gpus", "nics", "nic_links"):
            body[key] += [{**item, "host": host} for item in one[key]]
        body["links"] += [{**link, "a_host": host, "b_host": host} for link in one["links"]]
        findings += [Finding(finding.code, f"{host}: {finding.message}") for finding in matrix.findings]
    return Reading("node", FORMAT, body, complete=all(matrix.whole for matrix in matrices), findings=tuple(findings))


def _machine(matrices: Sequence[Matrix], lines: Sequence[str], p2p_tables: Sequence[Table]) -> Reading:
    matrix, others = _chosen(matrices)
    hidden = _hidden_nvlink(matrix, lines)
    listed = cards(lines)
    body = _body(matrix, listed, _nic_names(lines))
    findings = [*matrix.findings, *others, *hidden, *_split(listed)]
    p2p, p2p_findings, _ = statuses(p2p_tables)
    if p2p:
        body["p2p"] = [{"a": a, "b": b, "status": status} for (a, b), status in p2p.items()]
        findings += [Finding("p2p-table", "a P2P matrix is there too; it is in p2p, not in links"), *p2p_findings]
    left_out = any(finding.code == "second-matrix" for finding in others)
    complete = matrix.whole and not hidden and not left_out
    return Reading("node", FORMAT, body, complete=complete, findings=tuple(findings))


def _chosen(matrices: Sequence[Matrix]) -> tuple[Matrix, list[Finding]]:
    """Return the matrix that counts, and what is to be said of the others."""
    chosen, findings = matrices[0], []
    for other in matrices[1:]:
        if set(chosen.names) == set(other.names) and _one_machine(chosen.links(), other.links()):
            text = f"lines {chosen.line} and {other.line}: two matrices of one machine; the one that shows more NVLinks counts"
            findings.append(Finding("matrix-repeated", text))
            chosen = other if fast_links(other.links()) > fast_links(chosen.links()) else chosen
        else:
            text = f"line {other.line}: another matrix, of other links, is left out; parse the output of each machine alone"
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
    legend = {match[1] for line in short if (match := _LEGEND.match(line))}
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
    return {match[1]: match[2] for line in lines if len(line) <= _LONGEST and (match := _NIC_NAME.fullmatch(line))}


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

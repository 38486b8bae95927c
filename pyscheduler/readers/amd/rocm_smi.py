"""`rocm-smi --showtopo` and its parts: tables of link types and weights, and the NUMA node of each GPU.

The weight is a cost, and the only number that tells pairs apart: hops are 1 for every pair of some machines, and a
bandwidth of 0-0 only says that two GPUs are not direct neighbours.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pyscheduler.readers.amd.links import LinkTables
from pyscheduler.readers.amd.tables import clean_lines, tables
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.json_text import json_or_none
from pyscheduler.readers.text.parts import fields, node_index, some

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "rocm-smi"

_MARK: Final = re.compile(
    r"(?:link type|weight|hops|link accessibility|bandwidth) between two (?:GPU|node)|\(Topology\) Numa|Format: min-max; Units: mps",
    re.IGNORECASE,
)
_NUMA: Final = re.compile(r"\s*GPU[\s\[]*(\d{1,4})[\s\]:]*\(Topology\) Numa (Node|Affinity)[\s:]*(\S+)", re.IGNORECASE)
_PAIR: Final = re.compile(
    r"\(Topology\) (Weight|Link type|Link accessibility) between DRM devices (\d{1,4}) and (\d{1,4})", re.IGNORECASE
)
_CARD: Final = re.compile(r"card(\d{1,4})")


def recognises(text: str) -> bool:
    """Tell whether `text` is of `rocm-smi`, and, if it is JSON, holds nothing but the topology."""
    if text.lstrip("\ufeff \t\r\n")[:1] == "{":
        return '"(Topology) ' in text and _only_topology(text)
    return _MARK.search(text) is not None


def read(text: str) -> Reading:
    """Return the node document.

    Raises
    ------
    RefusedError
        If the text names no GPU.

    """
    links = LinkTables()
    numa = _Numa()
    cards = _json(text)
    if cards is None:
        _take_text(text, links, numa)
    else:
        _take_json(cards, links, numa)
    if not links.gpus:
        raise RefusedError("no GPU in it: neither a table of GPUs nor lines with their NUMA nodes", 1)
    return _reading(links, numa)


def _reading(links: LinkTables, numa: _Numa) -> Reading:
    names = sorted(links.gpus, key=lambda name: int(name[3:]))
    gpus = [fields(name, numa=numa.of(name)) for name in names]
    body = {"gpus": gpus, "nics": [], "links": links.links({name: name for name in names}), "nic_links": []}
    findings = [*links.findings, *numa.findings()]
    return Reading("node", FORMAT, body, links.complete, tuple(findings))


class _Numa:
    """NUMA node (that of the slot) and affinity (the node whose memory is nearest) of each GPU. They should be equal."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, int | None]] = {}

    def add(self, name: str, what: str, value: object) -> None:
        self._said.setdefault(name, {})[what.lower()] = node_index(value)

    def of(self, name: str) -> int | None:
        said = self._said.get(name, {})
        return said.get("affinity", said.get("node"))

    def findings(self) -> list[Finding]:
        differ = [name for name, said in self._said.items() if len(set(said.values())) > 1]
        if not differ:
            return []
        return [Finding("numa-mismatch", f"Numa Node and Numa Affinity disagree, the affinity is used: {some(differ)}")]


def _take_text(text: str, links: LinkTables, numa: _Numa) -> None:
    lines = clean_lines(text)
    links.add_tables(table for table in tables(lines) if all(name.startswith("GPU") for name in table.names()))
    for line in lines:
        found = _NUMA.match(line)
        if found:
            name = f"GPU{int(found[1])}"
            links.add_gpus([name])
            numa.add(name, found[2], found[3])


def _json(text: str) -> dict[str, Any] | None:
    raw = json_or_none(text.lstrip())
    return raw if isinstance(raw, dict) else None


def _only_topology(text: str) -> bool:
    raw = _json(text)
    blocks = raw.values() if raw else ()
    return bool(raw) and all(isinstance(block, dict) and all(key.startswith("(Topology)") for key in block) for block in blocks)


def _take_json(raw: dict[str, Any], links: LinkTables, numa: _Numa) -> None:
    system = raw.get("system")
    for key, value in system.items() if isinstance(system, dict) else ():
        found = _PAIR.fullmatch(key)
        if found:
            _take_pair(found, str(value).upper(), links)
    for card, block in raw.items():
        named = _CARD.fullmatch(card)
        if named and isinstance(block, dict):
            links.add_gpus([f"GPU{int(named[1])}"])
            for what in ("Node", "Affinity"):
                if f"(Topology) Numa {what}" in block:
                    numa.add(f"GPU{int(named[1])}", what, block[f"(Topology) Numa {what}"])


def _take_pair(found: re.Match[str], value: str, links: LinkTables) -> None:
    a, b = f"GPU{int(found[2])}", f"GPU{int(found[3])}"
    links.add_gpus([a, b])
    cells = {"weight": links.weights, "link type": links.kinds, "link accessibility": links.access}[found[1].lower()]
    for pair in ((a, b), (b, a)):  # the JSON form writes each pair once
        cells[pair] = [value]

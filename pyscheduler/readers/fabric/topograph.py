"""Topograph's model of a fabric: switches above switches, and blocks of nodes below them (as JSON).

Models of both generations are read: ``switches`` as a mapping with ``blocks`` that name their switch, and the older
lists in which a switch names its ``capacity_blocks``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyscheduler.readers.fabric.hostlist import expand
from pyscheduler.readers.fabric.tree import FabricTree, level_names
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.json_text import json_or_none, json_or_refuse, name_of
from pyscheduler.readers.text.parts import some

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "topograph"

_DOMAIN: Final = re.compile(r"accelerator\.[^/]*/domain|[^/]*/accelerator|nvidia\.com/gpu\.clique")
_SUB_DOMAIN: Final = re.compile(r"accelerator\.[^/]*/sub-domain")
_BLOCKS: Final = ("blocks", "capacity_blocks")


def recognises(text: str) -> bool:
    """Tell whether the JSON has switches or blocks of nodes, or is the request that only names a model."""
    if not any(f'"{key}"' in text for key in ("switches", *_BLOCKS, "provider")):
        return False
    raw = json_or_none(text)
    return isinstance(raw, dict) and (_is_model(raw) or _is_request(raw))


def read(text: str) -> Reading:
    """Return the fabric.

    Raises
    ------
    RefusedError
        If it is no model, or one without nodes.

    """
    raw = json_or_refuse(text)
    if not isinstance(raw, dict) or not _is_model(raw):
        asked = isinstance(raw, dict) and _is_request(raw)
        what = "a Topograph request (provider and engine) holds no topology" if asked else "has no blocks of nodes"
        raise RefusedError(f"{what}: pass the model with its switches and blocks")
    return _Model(raw).reading()


def _is_model(raw: Mapping[str, Any]) -> bool:
    if not all(isinstance(raw.get(key) or [], list | dict) for key in ("switches", *_BLOCKS)):
        return False
    return any(isinstance(entry, dict) and "nodes" in entry for key in _BLOCKS for _, entry in _entries(raw.get(key)))


def _is_request(raw: Mapping[str, Any]) -> bool:
    return isinstance(raw.get("provider"), dict) and "engine" in raw


class _Model:
    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self._tree = FabricTree()
        self._findings: list[Finding] = []
        self._switches: set[str] = set()
        self._switch_of: dict[str, str] = {}
        self._domains: dict[str, tuple[str | None, str | None]] = {}

    def reading(self) -> Reading:
        for name, switch in _entries(self._raw.get("switches")):
            self._add_switch(name, switch)
        for key in _BLOCKS:
            for name, block in _entries(self._raw.get(key)):
                self._add_block(name, block)
        if not self._tree.hosts:
            raise RefusedError("no block has a node: pass the model with its switches and blocks")
        nodes = [self._with_domain(node) for node in self._tree.nodes()]
        body = {"levels": level_names(max(len(node["path"]) for node in nodes)), "nodes": nodes}
        return Reading("fabric", FORMAT, body, findings=(*self._findings, *self._tree.findings()))

    def _add_switch(self, name: str, switch: Any) -> None:
        self._switches.add(name)
        if not isinstance(switch, dict):
            return
        for child in _names(switch.get("switches")):
            self._switches.add(child)
            self._tree.add_switch(child, name)
        for block in _names(switch.get("capacity_blocks")):
            self._switch_of[block] = name

    def _add_block(self, name: str, block: Any) -> None:
        if not isinstance(block, dict):
            self._findings.append(Finding("block-unreadable", f"block {name} is no mapping: its nodes are unknown"))
            return
        switch = block.get("switch") or self._switch_of.get(name)
        if not isinstance(switch, str):
            switch = None
            self._findings.append(Finding("block-without-switch", f"block {name} names no switch: its place is unknown"))
        elif self._switches and switch not in self._switches:
            self._findings.append(Finding("switch-undefined", f"block {name}: switch {switch} stands in no tree"))
        domain = _domain(block)
        for host in self._hosts(name, block.get("nodes")):
            self._tree.add_host(host, switch)
            if self._domains.setdefault(host, domain) != domain:
                self._domains[host] = (None, None)
                self._findings.append(Finding("several-domains", f"{host} is in two NVLink domains: its domain is unknown"))

    def _hosts(self, block: str, nodes: Any) -> Iterator[str]:
        for item in _names(nodes):
            hosts, unreadable = expand(item)
            yield from hosts
            if unreadable:
                what = f"block {block}: {some(unreadable)[:80]} is no host list: these nodes are unknown"
                self._findings.append(Finding("hostlist-unreadable", what))

    def _with_domain(self, node: dict[str, Any]) -> dict[str, Any]:
        domain, sub_domain = self._domains[node["name"]]
        return {**node, "nvlink_domain": domain, **({"nvlink_sub_domain": sub_domain} if sub_domain else {})}


def _entries(raw: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and entry of a mapping, or of a list whose entries may carry their name."""
    if isinstance(raw, dict):
        yield from ((str(name), entry) for name, entry in raw.items())
    elif isinstance(raw, list):
        for number, entry in enumerate(raw, start=1):
            name = entry.get("name") if isinstance(entry, dict) else None
            yield (name if isinstance(name, str) else f"number {number}"), entry


def _names(raw: Any) -> list[str]:
    """Return the names of a list, a mapping or a single word."""
    return [name for item in (raw if isinstance(raw, list | dict) else [raw]) if (name := name_of(item))]


def _domain(block: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return NVLink domain and sub-domain of a block."""
    marks: dict[str, Any] = {}
    for key in ("labels", "annotations"):
        marks |= block[key] if isinstance(block.get(key), dict) else {}
    found = [value for key, value in marks.items() if _DOMAIN.fullmatch(key)] or [block.get("nvlink")]
    below = [value for key, value in marks.items() if _SUB_DOMAIN.fullmatch(key)]
    return name_of(found[-1]), name_of(below[-1]) if below else None

"""Slurm's topology.conf and topology.yaml (as JSON), tree or block, and what ``scontrol show topology`` prints."""

from __future__ import annotations

from typing import Final

from pyscheduler.readers.fabric.hostlist import expand
from pyscheduler.readers.fabric.slurm_definitions import Definition, definitions
from pyscheduler.readers.fabric.tree import FabricTree, level_names
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.parts import some

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "slurm"

_HINTS: Final = ("switchname", "blockname", '"switches"', '"blocks"')


def recognises(text: str) -> bool:
    """Tell whether the text defines a switch or a block."""
    folded = text.casefold()
    if not any(hint in folded for hint in _HINTS):
        return False
    return any("switchname" in found.fields or "blockname" in found.fields for found in definitions(text))


def read(text: str) -> Reading:
    """Return the fabric. In a file with both, the tree counts.

    Raises
    ------
    RefusedError
        If no switch and no block has a node.

    """
    topology = _Topology()
    for definition in definitions(text):
        topology.add(definition)
    return topology.reading()


class _Topology:
    def __init__(self) -> None:
        self._tree, self._blocks = FabricTree(), FabricTree()
        self._findings: list[Finding] = []
        self._defined: dict[str, str] = {}
        self._children: dict[str, str] = {}
        self._sizes: list[int] = []

    def add(self, definition: Definition) -> None:
        fields = definition.fields
        if definition.stray:
            words = " ".join(definition.stray)[:60]
            self._note("line-unreadable", f"{definition.where}: {words!r} is no part of this topology: left out")
        switch, block, sizes = fields.get("switchname"), fields.get("blockname"), fields.get("blocksizes", "")
        if sizes:
            self._sizes = [int(size) for size in sizes.split(",") if size.isascii() and size.isdigit() and len(size) < 10]
        if switch:
            self._add_switch(definition, switch)
        elif block:
            self._add_hosts(definition, block, self._blocks)

    def reading(self) -> Reading:
        fabric = self._tree if self._tree.hosts else self._blocks
        if not fabric.hosts:
            raise RefusedError("no switch and no block has a node: pass the whole topology")
        if self._tree.hosts and self._blocks.hosts:
            self._note("two-topologies", "both switches and blocks are defined: the blocks are left out")
        for child, where in self._children.items():
            if child not in self._defined:
                self._note("switch-undefined", f"{where}: switch {child} is defined nowhere: its nodes are unknown")
        nodes = [{**node, "nvlink_domain": None} for node in fabric.nodes()]
        depth = max(len(node["path"]) for node in nodes)
        body = {"levels": ["block"] if fabric is self._blocks else level_names(depth), "nodes": nodes}
        body |= {"block_sizes": self._sizes} if self._sizes else {}
        return Reading("fabric", FORMAT, body, findings=(*self._findings, *fabric.findings()))

    def _add_switch(self, definition: Definition, switch: str) -> None:
        if switch in self._defined:
            self._note("switch-repeated", f"{definition.where}: {switch} is defined before ({self._defined[switch]}): both count")
        self._defined.setdefault(switch, definition.where)
        for child in self._names(definition, "Switches"):
            self._children.setdefault(child, definition.where)
            self._tree.add_switch(child, switch)
        self._add_hosts(definition, switch, self._tree)

    def _add_hosts(self, definition: Definition, owner: str, fabric: FabricTree) -> None:
        for host in self._names(definition, "Nodes"):
            fabric.add_host(host, owner)
        if not definition.fields.get("nodes") and not definition.fields.get("switches"):
            self._note("switch-empty", f"{definition.where}: {owner} has neither nodes nor switches")

    def _names(self, definition: Definition, key: str) -> list[str]:
        names, unreadable = expand(definition.fields.get(key.casefold(), ""))
        if unreadable:
            what = f"{definition.where}: {key}={some(unreadable)[:80]} is cut or no host list: these are unknown"
            self._note("hostlist-unreadable", what)
        return names

    def _note(self, code: str, message: str) -> None:
        self._findings.append(Finding(code, message))

"""The indented text of lstopo."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.machine.hwloc_tree import ACCELERATOR, Device, Tree, name_rank
from pyscheduler.readers.machine.pcie import Position
from pyscheduler.readers.text.parts import address, node_index
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["tree"]

_NODE: Final = re.compile(r"NUMANode L#\d+ \(P#(\d+)|NUMANode P#(\d+)")
_PCI: Final = re.compile(
    r"PCI (?:L#\d+ )?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[0-9a-f]{4}:[0-9a-f]{4})(.*)", re.IGNORECASE
)
_OS: Final = re.compile(r'(CoProc|GPU|Net|OpenFabrics|OpenFab)\b.*"([^"]*)"')
_KIND: Final = re.compile(r"class=[0-9a-f]{4}\(([^()]*)\)|\(([^()]*)\)\s*$", re.IGNORECASE)
_BUSID: Final = re.compile(r"busid=([0-9a-f:.]+)", re.IGNORECASE)
_GPU_KINDS: Final = ("3D", "Display")
_NIC_KINDS: Final = ("InfiniBand", "Ethernet", "Network")
_GPU_VENDORS: Final = ("10de:", "1002:")
# hwloc's own names of levels; what is not one of them is a message or another program's output.
_LEVELS: Final = re.compile(r"(?:Machine|Package|Socket|Group\d*|Die|NUMANode|HostBridge|PCIBridge|PCI|L\d|Core|MemCache)\b")


@dataclass(slots=True)
class _Place:
    """An object with what hangs below it. `node` is its NUMA node; `nodes` counts those it holds."""

    indent: int
    kind: str
    number: int
    node: int | None = None
    nodes: int = 0


@dataclass(slots=True)
class _Pci:
    """A PCI device of which the lines below are still to come."""

    above: list[_Place]
    pci: str | None
    kind: str
    vendor: str
    names: list[str] = field(default_factory=list)

    def is_gpu(self) -> bool:
        computes = any(ACCELERATOR.match(name) for name in self.names)
        return (
            computes or self.kind in _GPU_KINDS or (self.vendor.startswith(_GPU_VENDORS) and self.kind in ("", "VGA", "Display"))
        )

    def device(self) -> Device:
        home = next((p for p in reversed(self.above) if p.kind not in ("HostBridge", "PCIBridge")), None)
        node = home.node if home is not None and home.nodes == 1 else None
        switches = tuple(p.number for p in self.above if p.kind == "PCIBridge")
        host = next((p.number for p in self.above if p.kind == "HostBridge"), None)
        name = min(self.names, key=name_rank, default=None)
        return Device(Position(switches, host, node, ports=1), self.pci, node, name=name)


def tree(text: str) -> Tree:
    """Return the devices of the text."""
    above: list[_Place] = []
    found: list[_Pci] = []
    for number, line in enumerate(plain_lines(text)):
        _take(number, line.expandtabs(8).rstrip(), above, found)
    gpus = [pci.device() for pci in found if pci.is_gpu()]
    nics = [pci.device() for pci in found if not pci.is_gpu() and pci.kind in _NIC_KINDS]
    return Tree(gpus, nics)


def _take(number: int, line: str, above: list[_Place], found: list[_Pci]) -> None:
    words = line.lstrip()
    indent = len(line) - len(words)
    named = _OS.match(words)
    if named:
        if found:
            found[-1].names.append(named[2])
        return
    level = _LEVELS.match(words)
    if level is None:
        return
    while above and above[-1].indent >= indent:
        above.pop()
    pci = _PCI.match(words)
    if pci:
        found.append(_pci(pci, above))
        return
    above.append(_Place(indent, level[0], number))
    _note_node(_NODE.search(words), above)


def _note_node(node: re.Match[str] | None, above: list[_Place]) -> None:
    """Note a NUMA node at every object that holds it. It stands beside what is near to it, or around it in old versions."""
    for place in above if node else ():
        assert node is not None
        place.nodes += 1
        place.node = node_index(node[1] or node[2])


def _pci(found: re.Match[str], above: list[_Place]) -> _Pci:
    """Read a device: named by its address, or by vendor and model with the address only in the verbose form."""
    first, rest = found.groups()
    kind, busid = _KIND.search(rest), _BUSID.search(rest)
    pci = address(first) or (address(busid[1]) if busid else None)
    return _Pci(list(above), pci, (kind[1] or kind[2]) if kind else "", "" if "." in first else first.lower())

"""hwloc's XML, versions 1 to 3."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Final
from xml.etree.ElementTree import Element

from pyscheduler.readers.machine.hwloc_tree import ACCELERATOR, Device, Tree, name_rank
from pyscheduler.readers.machine.pcie import Position
from pyscheduler.readers.reading import Finding
from pyscheduler.readers.text import xml as _xml
from pyscheduler.readers.text.parts import MAX_DEVICES, address, cpu_list, integer, node_index, some

__all__ = ["tree"]

_HEX: Final = re.compile(r"0x[0-9a-f]{1,8}(?:,(?:0x[0-9a-f]{1,8})?)*", re.IGNORECASE)
_CLASS: Final = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):", re.IGNORECASE)
_DISPLAY: Final = ("03", "12")
_NETWORK: Final = "02"
_GPU_VENDORS: Final = ("10de", "1002")
_IO: Final = ("Bridge", "PCIDev", "OSDev", "Misc")
# MB/s of one NVLink in one direction: 20,000 in Pascal, 25,000 from Volta to Hopper, 50,000 in Blackwell
# (nvidia.com/en-us/data-center/nvlink).
_PASCAL_MBPS: Final = 20_000
_NVLINK_MBPS: Final = 25_000
_BLACKWELL_MBPS: Final = 50_000
_BLACKWELL: Final = re.compile(r"\bG?B[123]00\b")


def tree(text: str) -> Tree:
    """Return the devices of the topology.

    Raises
    ------
    RefusedError
        If it holds no topology.

    """
    fragment = _xml.fragment(text, "topology")
    root = fragment.root
    found = _Builder(root)
    for element, above in _xml.walk(root):
        found.take(element, above)
    found.links(root)
    found.tree.host = next((info.get("value") for info in root.iter("info") if info.get("name") == "HostName"), None)
    found.tree.findings += fragment.findings
    if fragment.findings:
        # The matrix of links stands at the end.
        found.tree.broken, found.tree.shows_links = True, bool(found.tree.fast)
    return found.tree


class _Builder:
    def __init__(self, root: Element) -> None:
        self.tree = Tree()
        # Memory of a GPU that the CPU reaches coherently is a NUMA node of its own, and near to no CPU.
        self._gpu_memory = sum(
            1 << n
            for e in root.iter("object")
            if e.get("subtype") == "GPUMemory" and (n := node_index(e.get("os_index"))) is not None
        )
        self._place: dict[str, int] = {}
        self._switches: set[str] = set()
        # Version 1 knows no links between devices.
        self._current = not root.get("version", "1").startswith("1")

    def take(self, element: Element, above: tuple[Element, ...]) -> None:
        kind = _CLASS.match(element.get("pci_type", ""))
        if element.get("type") != "PCIDev" or kind is None:
            return
        systems = list(_os_devices(element))
        names = [e.get("name", "") for e in systems]
        if kind[1].startswith(_DISPLAY) and (kind[2].lower() in _GPU_VENDORS or any(ACCELERATOR.match(n) for n in names)):
            self._remember(len(self.tree.gpus), element, *systems)
            self.tree.gpus.append(self._device(element, above, systems))
            self.tree.shows_links |= self._current and any(n.startswith(("nvml", "rsmi")) for n in names)
        elif kind[1].startswith(_NETWORK):
            name = min((n for n in names if n), key=name_rank, default=None)
            self.tree.nics.append(
                Device(_position(above, _nodes(above, self._gpu_memory)), address(element.get("pci_busid")), name=name)
            )
        elif element.get("subtype") == "NVSwitch" or any(e.get("subtype") == "NVSwitch" for e in systems):
            self._switches.update(_keys(element, *systems))

    def _device(self, element: Element, above: tuple[Element, ...], systems: list[Element]) -> Device:
        info = {i.get("name", ""): i.get("value") for e in (element, *systems) for i in e.iter("info")}
        nodes = _nodes(above, self._gpu_memory)
        return Device(
            _position(above, nodes),
            address(element.get("pci_busid")),
            nodes.bit_length() - 1 if nodes.bit_count() == 1 else None,
            _cpus(above),
            info.get("NVIDIAUUID"),
            info.get("GPUModel") or info.get("PCIDevice"),
        )

    def _remember(self, index: int, *elements: Element) -> None:
        self._place.update(dict.fromkeys(_keys(*elements), index))

    def links(self, root: Element) -> None:
        for matrix in (*root.iter("distances2"), *root.iter("distances2hetero")):
            name = matrix.get("name", "")
            if name not in ("NVLinkBandwidth", "XGMIBandwidth"):
                continue
            objects = [self._object(word, matrix) for word in _words(matrix, "indexes")]
            values = [integer(word) for word in _words(matrix, "u64values")]
            if len(values) != len(objects) ** 2 or None in values or len(objects) > MAX_DEVICES:
                self.tree.broken = True
                self.tree.findings.append(
                    Finding(
                        "matrix-unreadable", f"matrix {name} is not one number per pair of its objects: its links are unknown"
                    )
                )
                self.tree.shows_links = False
                continue
            self.tree.shows_links = True
            self._matrix(name, objects, [value or 0 for value in values])

    def _object(self, word: str, matrix: Element) -> str:
        """Return the key of an object: ``OSDev:332`` by gp_index, a bare number in a matrix of one type."""
        return word if ":" in word else f"{matrix.get('type', '')}:{word}"

    def _matrix(self, name: str, objects: list[str], values: list[int]) -> None:
        size = len(objects)
        gpus = {i: self._place[key] for i, key in enumerate(objects) if key in self._place}
        switches = [i for i, key in enumerate(objects) if key in self._switches]
        uneven: list[str] = []
        for i, j in combinations(gpus, 2):
            there, back = values[i * size + j], values[j * size + i]
            if there != back:
                uneven.append(f"GPU{gpus[i]}-GPU{gpus[j]}")
            rate = min(there, back) or min(sum(values[k * size + s] for s in switches) for k in (i, j))
            if rate and gpus[i] != gpus[j]:
                a, b = sorted((gpus[i], gpus[j]))
                self.tree.fast[a, b] = "XGMI" if name.startswith("XGMI") else f"NV{self._count(rate, a)}"
        if uneven:
            self.tree.findings.append(
                Finding("direction-mismatch", f"the two directions have different bandwidths, the lower counts: {some(uneven)}")
            )

    def _count(self, rate: int, gpu: int) -> int:
        """Return the number of NVLinks that make up `rate` MB/s; 1 if it is no multiple of a known rate."""
        each = _BLACKWELL_MBPS if _BLACKWELL.search(self.tree.gpus[gpu].model or "") else _NVLINK_MBPS
        if "P100" in (self.tree.gpus[gpu].model or "") or rate % each:
            each = _PASCAL_MBPS
        if rate % each or not 0 < rate // each < 100:
            self.tree.findings.append(
                Finding(
                    "nvlink-count-unknown",
                    f"GPU{gpu}: {rate} MB/s is no multiple of the rate of one NVLink; the link counts as one",
                )
            )
            return 1
        return rate // each


def _keys(*elements: Element) -> Iterator[str]:
    for element in elements:
        yield f"{element.get('type')}:{element.get('gp_index')}"


def _os_devices(element: Element) -> Iterator[Element]:
    return (child for child in element.iter("object") if child.get("type") == "OSDev")


def _words(matrix: Element, tag: str) -> list[str]:
    return [word for part in matrix.iter(tag) for word in (part.text or "").split()]


def _home(above: tuple[Element, ...]) -> Element | None:
    """Return the nearest object that has CPUs or memory."""
    return next((e for e in reversed(above) if e.get("type") not in (*_IO, None)), None)


def _nodes(above: tuple[Element, ...], excluded: int) -> int:
    """Return the NUMA nodes of the place as bits, 0 if they are not known."""
    home = _home(above)
    mask = home.get("nodeset", "") if home is not None else ""
    return (
        int("".join(f"{w.lower().removeprefix('0x'):0>8}" for w in mask.split(",")), 16) & ~excluded
        if _HEX.fullmatch(mask)
        else 0
    )


def _cpus(above: tuple[Element, ...]) -> str | None:
    home = _home(above)
    return cpu_list(home.get("cpuset")) if home is not None else None


def _position(above: tuple[Element, ...], nodes: int) -> Position:
    bridges = [e for e in above if e.get("type") == "Bridge"]
    hosts = [id(e) for e in bridges if e.get("bridge_type", "").startswith("0-")]
    switches = tuple(id(e) for e in bridges if not e.get("bridge_type", "").startswith("0-"))
    return Position(switches, hosts[-1] if hosts else None, nodes if nodes.bit_count() == 1 else None, ports=1)

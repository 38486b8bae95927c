"""The topology of NCCL and RCCL: ``<system>`` with CPUs, PCI devices, GPUs, NICs and the links of each GPU.

NVLink that ends at a switch joins all GPUs at that switch. A target that is the GPU itself says nothing: then, and where
a GPU is known only as a PCI class, its links are unknown and not absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final
from xml.etree.ElementTree import Element

from pyscheduler.readers.machine.nccl_links import Fabric
from pyscheduler.readers.machine.pcie import Position, path
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text import xml as _xml
from pyscheduler.readers.text.parts import MAX_DEVICES, address, cpu_list, fields, integer, node_index, some

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "nccl-xml"

_ROOT: Final = re.compile(r"<(system|graphs?)[\s>]")
# PCI base classes: 03 display (0x030200 NVIDIA, 0x038000 AMD), 12 processing accelerator (MI300), 02 network.
_GPU_CLASSES: Final = ("0x03", "0x12")
_NIC_CLASS: Final = "0x02"
# Graphics of the board's service processor: ASPEED, Matrox.
_SERVICE_VENDORS: Final = ("0x1a03", "0x102b")
_NESTED: Final = "a <cpu> stands inside another, so a </cpu> is missing: each device counts to the innermost; write the file anew"


def recognises(text: str) -> bool:
    """Tell whether `text` is NCCL's or RCCL's: a topology, or a graph, which is refused with a reason."""
    root = _ROOT.search(text)
    return root is not None and ("<cpu" in text or root[1] != "system")


def read(text: str) -> Reading:
    """Return the node document.

    Raises
    ------
    RefusedError
        If the text is a graph, or holds no GPU.

    """
    root = _ROOT.search(text)
    if root is not None and root[1] != "system":
        raise RefusedError(
            f"<{root[1]}> is a graph that NCCL chose, not a topology; use the file of NCCL_TOPO_DUMP_FILE",
            text.count("\n", 0, root.start()) + 1,
        )
    fragment = _xml.fragment(text, "system")
    machine = _Machine()
    for element, above in _xml.walk(fragment.root):
        machine.take(element, above)
    if not machine.gpus:
        raise RefusedError("no GPU in <system>", 1)
    return _reading(machine, fragment)


@dataclass(slots=True)
class _Device:
    """A GPU or NIC. `element` is its ``<gpu>`` or ``<net>``, None if only its PCI class is known."""

    pci: str | None
    cpu: Element | None
    position: Position
    element: Element | None
    id: str = ""

    @property
    def host(self) -> str | None:
        return self.cpu.get("host_hash") if self.cpu is not None else None


@dataclass(slots=True)
class _Machine:
    """What hangs where."""

    gpus: list[_Device] = field(default_factory=list)
    nics: list[_Device] = field(default_factory=list)
    nested: bool = False

    def take(self, element: Element, above: tuple[Element, ...]) -> None:
        found = self._list(element)
        if found is None:
            return
        chain = [*above, element]
        cpus = [at for at, e in enumerate(chain) if e.tag == "cpu"]
        # A CPU within a CPU lacks the end of the one before: what stands above the inner one is not shared.
        cpu = chain[cpus[-1]] if cpus else None
        self.nested = self.nested or len(cpus) > 1
        devices = [e for e in chain[cpus[-1] if cpus else 0 :] if e.tag == "pci"]
        # A NIC without a PCI device hangs at the CPU.
        place = Position(tuple(id(e) for e in devices[:-1]), None, None if cpu is None else id(cpu))
        pci = address(devices[-1].get("busid")) if devices else None
        found.append(_Device(pci, cpu, place, None if element.tag == "pci" else element))
        if len(self.gpus) + len(self.nics) > MAX_DEVICES:
            raise RefusedError(f"more than {MAX_DEVICES} GPUs and NICs: no machine has so many")

    def _list(self, element: Element) -> list[_Device] | None:
        """Return where the element belongs. A PCI device counts if no ``<gpu>`` or ``<net>`` within it does."""
        if element.tag == "gpu":
            return self.gpus
        if element.tag == "net":
            return self.nics
        if element.tag != "pci" or element.find("nic/net") is not None or any(child.tag in ("gpu", "pci") for child in element):
            return None
        kind = element.get("class", "").lower()
        if kind.startswith(_NIC_CLASS):
            return self.nics
        display = kind.startswith(_GPU_CLASSES) and element.get("vendor", "").lower() not in _SERVICE_VENDORS
        return self.gpus if display else None

    def drop_repeated(self) -> list[Finding]:
        """Keep the first of the GPUs with one address on one host, and say which were dropped."""
        first: dict[tuple[str | None, str], _Device] = {}
        dropped = [gpu for gpu in self.gpus if gpu.pci and first.setdefault((gpu.host, gpu.pci), gpu) is not gpu]
        self.gpus = [gpu for gpu in self.gpus if not gpu.pci or first[gpu.host, gpu.pci] is gpu]
        said = some(gpu.pci or "" for gpu in dropped)
        return [Finding("gpu-repeated", f"listed more than once, the first entry counts: {said}")] if dropped else []


def _reading(machine: _Machine, fragment: _xml.Fragment) -> Reading:
    hosts = list(dict.fromkeys(gpu.host for gpu in machine.gpus))
    repeated = machine.drop_repeated()
    _name(machine.gpus)
    machine.gpus.sort(key=lambda gpu: (hosts.index(gpu.host), int(gpu.id[3:])))
    for position, nic in enumerate(machine.nics):
        nic.id = f"NIC{position}"
    several = len(hosts) > 1
    # A GPU that was cut may have more links than are left of it.
    ends = [(g.host, g.pci, None if id(g.element) in fragment.unclosed else g.element) for g in machine.gpus]
    fabric = Fabric(ends, [_label(gpu, several=several) for gpu in machine.gpus])
    body = {
        "gpus": [_gpu(gpu, several=several) for gpu in machine.gpus],
        "nics": [_nic(nic, several=several) for nic in machine.nics],
        "links": [_link(machine.gpus, i, j, fabric, several=several) for i, j in combinations(range(len(machine.gpus)), 2)],
        "nic_links": [
            _nic_link(gpu, nic, several=several) for gpu in machine.gpus for nic in machine.nics if gpu.host == nic.host
        ],
    }
    nested = [Finding("cpu-nested", _NESTED)] if machine.nested else []
    findings = [*fragment.findings, *nested, *repeated, *_class_only(machine.gpus), *fabric.findings]
    return Reading("node", FORMAT, body, fabric.complete and not fragment.findings and not nested, tuple(findings))


def _name(gpus: list[_Device]) -> None:
    """Name each GPU by its ``dev``, or all by position if one has none or shares it on its host."""
    devs = [integer(gpu.element.get("dev")) if gpu.element is not None else None for gpu in gpus]
    keys = {(gpu.host, dev) for gpu, dev in zip(gpus, devs, strict=True) if dev is not None and dev >= 0}
    for position, (gpu, dev) in enumerate(zip(gpus, devs, strict=True)):
        gpu.id = f"GPU{dev if len(keys) == len(gpus) else position}"


def _label(gpu: _Device, *, several: bool) -> str:
    rank = gpu.element.get("rank") if gpu.element is not None and several else None
    return f"{gpu.id} ({'' if rank is None else f'rank {rank}, host {gpu.host}, '}{gpu.pci or 'no bus id'})"


def _class_only(gpus: list[_Device]) -> list[Finding]:
    bare = [gpu.id for gpu in gpus if gpu.element is None]
    if not bare:
        return []
    return [
        Finding(
            "links-unknown",
            f"known only by their PCI class, without <gpu> element; whether they have NVLink is unknown: {some(bare)}",
        )
    ]


def _gpu(gpu: _Device, *, several: bool) -> dict[str, Any]:
    cpu = gpu.cpu if gpu.cpu is not None else Element("cpu")
    host = {"host": gpu.host} if several else {}
    return fields(gpu.id, numa=node_index(cpu.get("numaid")), cpu_affinity=cpu_list(cpu.get("affinity")), pci=gpu.pci, **host)


def _nic(nic: _Device, *, several: bool) -> dict[str, Any]:
    name = nic.element.get("name") if nic.element is not None else None
    return {"id": nic.id, "name": name, "pci": nic.pci, **({"host": nic.host} if several else {})}


def _link(gpus: list[_Device], i: int, j: int, fabric: Fabric, *, several: bool) -> dict[str, Any]:
    a, b = gpus[i], gpus[j]
    kind = fabric.kind(i, j) or (path(a.position, b.position) if a.host == b.host else "?")
    hosts = {"a_host": a.host, "b_host": b.host} if several else {}
    return {"a": a.id, "b": b.id, "type": kind, **hosts}


def _nic_link(gpu: _Device, nic: _Device, *, several: bool) -> dict[str, Any]:
    hosts = {"gpu_host": gpu.host} if several else {}
    return {"gpu": gpu.id, "nic": nic.id, "type": path(gpu.position, nic.position), **hosts}

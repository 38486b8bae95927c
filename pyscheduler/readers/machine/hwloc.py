"""hwloc: the XML of `lstopo --of xml`, and the indented text of `lstopo --of console`.

Fast links stand in the XML as a bandwidth matrix between devices. The text has none, and neither has an XML that was
written without NVML or ROCm SMI: there links are unknown, not absent.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import Final

from pyscheduler.readers.machine import hwloc_text as _hwloc_text
from pyscheduler.readers.machine import hwloc_xml as _hwloc_xml
from pyscheduler.readers.machine.hwloc_tree import Device, Tree
from pyscheduler.readers.machine.pcie import path
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.parts import MAX_DEVICES, fields

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "hwloc"

_XML: Final = re.compile(r"<topology[\s>]")
_TEXT: Final = re.compile(r"^[^\w\n]*Machine(?: [LP]#\d+)*(?: \(|[ \t\r]*$)", re.MULTILINE)
_OBJECT: Final = re.compile(r"^[^\w\n]*(?:NUMANode|Package|Socket|HostBridge)\b", re.MULTILINE)


def recognises(text: str) -> bool:
    """Tell whether `text` is of hwloc."""
    if _XML.search(text):
        return "<object" in text
    return _TEXT.search(text) is not None and _OBJECT.search(text) is not None


def read(text: str) -> Reading:
    """Return the node document.

    Raises
    ------
    RefusedError
        If there is no GPU.

    """
    tree = _hwloc_xml.tree(text) if _XML.search(text) else _hwloc_text.tree(text)
    if not tree.gpus:
        raise RefusedError("no GPU in it; run lstopo on the GPU node itself, without --no-io", 1)
    if len(tree.gpus) + len(tree.nics) > MAX_DEVICES:
        raise RefusedError(f"more than {MAX_DEVICES} GPUs and NICs: no machine has so many")
    return _reading(tree)


def _reading(tree: Tree) -> Reading:
    ids = [f"GPU{i}" for i in range(len(tree.gpus))]
    links = [{"a": ids[i], "b": ids[j], "type": _kind(tree, i, j)} for i, j in combinations(range(len(ids)), 2)]
    host = {"host": tree.host} if tree.host else {}
    body = {
        "gpus": [
            fields(name, numa=gpu.numa, cpu_affinity=gpu.cpus, uuid=gpu.uuid, pci=gpu.pci, model=gpu.model, **host)
            for name, gpu in zip(ids, tree.gpus, strict=True)
        ],
        "nics": [{"id": f"NIC{i}", "name": nic.name, "pci": nic.pci} for i, nic in enumerate(tree.nics)],
        "links": links,
        "nic_links": [
            {"gpu": name, "nic": f"NIC{i}", "type": path(gpu.position, nic.position)}
            for name, gpu in zip(ids, tree.gpus, strict=True)
            for i, nic in enumerate(tree.nics)
        ],
    }
    hidden = len(ids) > 1 and not tree.shows_links
    findings = [*tree.findings, *([_HIDDEN] if hidden else [])]
    return Reading("node", FORMAT, body, not hidden and not tree.broken, tuple(findings))


_HIDDEN: Final = Finding(
    "nvlink-hidden",
    "this output does not show NVLink or Infinity Fabric, so links between GPUs are unknown; use the XML of an lstopo built with NVML or ROCm SMI",
)


def _kind(tree: Tree, i: int, j: int) -> str:
    a: Device = tree.gpus[i]
    b: Device = tree.gpus[j]
    if (i, j) in tree.fast:
        return tree.fast[i, j]
    return path(a.position, b.position) if tree.shows_links else "?"

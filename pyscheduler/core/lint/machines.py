"""Checks of one node: its GPUs, their links, and whether its document is of the machine as it is.

A document that is a preset's is not looked into: nothing on the node can be mended by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Final

from pyscheduler.core.explain import plural
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.lint.words import some
from pyscheduler.core.machine.document import Gpu, NodeDocument
from pyscheduler.core.machine.links import Kind
from pyscheduler.core.record import NodeRecord

__all__ = [
    "allocatable_fewer",
    "as_read",
    "capacity_differs",
    "document_older_than_boot",
    "gpu_off_fabric",
    "link_unknown",
    "numa_unknown",
    "scheduled_elsewhere",
]

_ANEW: Final = "write the annotation anew: `pyscheduler topology merge` on what the tools print there now"
# What readers call it when the two ends of a link do not say the same.
_ONE_DIRECTION: Final = frozenset({"direction-mismatch", "p2p-mismatch"})


def as_read(node: NodeRecord) -> Iterator[Finding]:
    """Return what was found while the node and its document were read, and what the source of the document warns of."""
    document = _own(node)
    look = f"look at it on the node, then {_ANEW}"
    warnings = [replace(warning, remedy=warning.remedy or look) for warning in document.warnings] if document else []
    for finding in (*node.findings, *warnings):
        if finding.code in _ONE_DIRECTION:
            remedy = f"look for a bad link or bridge on the node (nvidia-smi nvlink -s, dmesg), then {_ANEW}"
            yield Finding("one-directional-link", finding.message, remedy, node.name)
        else:
            yield replace(finding, node=finding.node or node.name)


def document_older_than_boot(node: NodeRecord) -> Iterator[Finding]:
    """Find a document that was written before the node was started last: GPUs may have other numbers since."""
    document = _own(node)
    if document and document.boot_id and node.boot_id and document.boot_id != node.boot_id:
        message = "its document is of an earlier boot: GPUs may be numbered or linked otherwise now"
        yield Finding("document-older-than-boot", message, _ANEW, node.name)


def scheduled_elsewhere(node: NodeRecord) -> Iterator[Finding]:
    """Find a node whose GPUs a label has taken out of normal scheduling."""
    if _is_taken_out(node):
        message = f"the label ack.node.gpu.schedule={node.gpu_schedule} has taken its GPUs out of normal scheduling: the kubelet offers none"
        remedy = "if this scheduler is to give them out, drain the node and remove the label; else nothing need be done"
        yield Finding("scheduled-elsewhere", message, remedy, node.name)


def capacity_differs(node: NodeRecord) -> Iterator[Finding]:
    """Find a node whose kubelet has another number of GPUs than the document."""
    # Split cards are in the document, and are no whole GPUs to the kubelet.
    if (
        node.document is None
        or _is_taken_out(node)
        or node.capacity in {len(node.document.gpus), sum(gpu.healthy for gpu in node.document.gpus)}
    ):
        return
    listed = plural(len(node.document.gpus))
    if node.capacity < len(node.document.gpus):
        remedy = f"look whether a GPU fell off the bus or its device plugin is away; if the machine has changed, {_ANEW}"
    else:
        remedy = f"{_ANEW}; if the device plugin shares GPUs in time, whole GPUs cannot be told: switch that off"
    message = f"the kubelet has {node.capacity} of {node.resource or 'its GPU resource'}, the document lists {listed}"
    yield Finding("capacity-differs", message, remedy, node.name)


def allocatable_fewer(node: NodeRecord) -> Iterator[Finding]:
    """Find a node whose kubelet offers fewer GPUs than are healthy."""
    if node.document is None or _is_taken_out(node) or node.capacity != len(node.document.gpus):
        return
    healthy = sum(gpu.healthy for gpu in node.document.gpus)
    if node.allocatable < healthy:
        message = f"the kubelet offers {node.allocatable} of {plural(healthy, 'healthy GPU')}: the others stay idle"
        remedy = "see what the device plugin on the node says of its GPUs"
        yield Finding("allocatable-fewer", message, remedy, node.name, Severity.NOTE)


def numa_unknown(node: NodeRecord) -> Iterator[Finding]:
    """Find GPUs whose NUMA node is not known, on a node with several GPUs."""
    document = _detailed(node)
    if document is None:
        return
    lacking = [gpu.id for gpu in document.gpus if gpu.numa is None and not _is_unread(gpu)]
    if not lacking:
        return
    if any(gpu.numa is not None for gpu in document.gpus):
        message, severity = f"the NUMA node of {some(lacking)} is not known", Severity.WARNING
    else:
        message, severity = f"the NUMA nodes of its {plural(len(document.gpus))} are not known", Severity.NOTE
    remedy = f"enable NUMA in the firmware (/sys/bus/pci/devices/*/numa_node must not be -1), then {_ANEW}"
    yield Finding("numa-unknown", message, remedy, node.name, severity)


def gpu_off_fabric(node: NodeRecord) -> Iterator[Finding]:
    """Find GPUs without NVLink or Infinity Fabric where most of their kind have it, or of which no link is known."""
    document = _detailed(node)
    if document is None:
        return
    off, blind = _off_fabric(document), _blind(document)
    if off:
        names = _names(document, off)
        message = f"no NVLink or Infinity Fabric at {names}, though the other GPUs are linked: jobs with it fall back to PCIe"
        remedy = f"look at its bridge or baseboard (nvidia-smi nvlink -s, amd-smi xgmi, dmesg); once it is mended, {_ANEW}"
        yield Finding("gpu-off-fabric", message, remedy, node.name)
    if blind:
        message = f"no link of {_names(document, blind)} is known, though others are: chosen last for jobs of several GPUs"
        yield Finding("gpu-off-fabric", message, f"look whether the driver sees it (dmesg), then {_ANEW}", node.name)


def link_unknown(node: NodeRecord) -> Iterator[Finding]:
    """Find pairs of GPUs whose link is not known, besides those of a GPU of which no link is."""
    document = _detailed(node)
    if document is None:
        return
    remedy = f"read the links again (nvidia-smi topo -m, amd-smi topology), then {_ANEW}"
    known = _known(document)
    count = len(document.gpus)
    if not known:
        yield Finding("link-unknown", f"no link between its {plural(count)} is known", remedy, node.name)
        return
    if len(known) == count * (count - 1) // 2:
        return
    told = {i for i, gpu in enumerate(document.gpus) if _is_unread(gpu)} | _blind(document)
    pairs = [pair for pair in combinations(range(count), 2) if pair not in known and told.isdisjoint(pair)]
    if pairs:
        names = some(f"{document.gpus[a].id}-{document.gpus[b].id}" for a, b in pairs)
        message = f"{plural(len(pairs), 'link')} not known: {names}"
        yield Finding("link-unknown", message, remedy, node.name)


def _is_taken_out(node: NodeRecord) -> bool:
    """Tell whether the node has GPUs that its kubelet does not offer, and a label of ACK that accounts for it."""
    has_gpus = node.document is not None or node.capacity > 0
    return node.gpu_schedule is not None and has_gpus and node.allocatable == 0


def _own(node: NodeRecord) -> NodeDocument | None:
    """Return the document of the node itself, None if it has none or that of a preset."""
    return None if node.preset else node.document


def _detailed(node: NodeRecord) -> NodeDocument | None:
    """Return the document if it has several GPUs and their links and NUMA nodes do not stand elsewhere."""
    document = _own(node)
    if document is None or len(document.gpus) < 2 or (document.class_hash and not document.links):
        return None
    return document


def _is_unread(gpu: Gpu) -> bool:
    """Tell whether nothing is known of a GPU: its entry could not be read, which is told where it was read."""
    return not gpu.healthy and all(known is None for known in (gpu.uuid, gpu.pci, gpu.model, gpu.numa))


def _known(document: NodeDocument) -> set[tuple[int, int]]:
    return {pair for pair, link in document.links.items() if link.kind is not Kind.UNKNOWN}


def _blind(document: NodeDocument) -> set[int]:
    """Return the GPUs of which no link is known though others are; not those whose entry could not be read."""
    seen = {gpu for pair in _known(document) for gpu in pair}
    return {i for i, gpu in enumerate(document.gpus) if seen and i not in seen and not _is_unread(gpu)}


def _off_fabric(document: NodeDocument) -> set[int]:
    """Return the GPUs that are not linked, as far as all is known of them, where more than half of their model are."""
    linked = {gpu for pair, link in document.links.items() if link.fast for gpu in pair}
    if not linked or len(linked) == len(document.gpus):
        return set()
    partners = Counter(gpu for pair in _known(document) for gpu in pair)
    off: set[int] = set()
    for model in {gpu.model for gpu in document.gpus}:
        alike = {i for i, gpu in enumerate(document.gpus) if gpu.model == model}
        lacking = {i for i in alike - linked if partners[i] == len(document.gpus) - 1}
        if len(alike & linked) > max(len(lacking), 1):
            off |= lacking
    return off


def _names(document: NodeDocument, gpus: set[int]) -> str:
    return some(document.gpus[i].id for i in sorted(gpus))

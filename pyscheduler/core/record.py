"""One node as the API describes it, before its GPUs are judged: what lint looks at, and what machines are made of."""

from __future__ import annotations

from dataclasses import dataclass

from pyscheduler.core.capacity.opinions import SAYS_NOTHING, NodeOpinion
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.model import InUse

__all__ = ["NodeRecord"]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What a Node object says.

    Attributes
    ----------
    name
        Name of the node.
    place
        Where it hangs in the fabric.
    levels
        Names of the levels that nodes of its pool should have, nearest first.
    resource, capacity, allocatable
        Its GPU resource, and how many the kubelet has and offers; empty and 0 on a node without GPUs.
    document
        Its node document; that of a preset where it has none of its own; None if there is neither.
    preset
        Name of the preset that `document` is, None if the document is the node's own.
    gpu_schedule
        Value of the label ``ack.node.gpu.schedule``, by which ACK says who schedules the node's GPUs and how; None without it.
    boot_id
        The present boot of the node.
    in_use, in_use_unreadable
        The agent's report; None where no agent reports, or not readably.
    opinion
        What it says of its cards.
    addresses
        Its IP addresses and the names of its host, without its own name.
    findings
        What was found while this node was read.
    """

    name: str
    place: Place = NOWHERE
    levels: tuple[str, ...] = ()
    resource: str = ""
    capacity: int = 0
    allocatable: int = 0
    document: NodeDocument | None = None
    preset: str | None = None
    gpu_schedule: str | None = None
    boot_id: str | None = None
    in_use: InUse | None = None
    in_use_unreadable: bool = False
    opinion: NodeOpinion = SAYS_NOTHING
    addresses: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

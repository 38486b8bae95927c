"""The node document as a value: GPUs of one node, NICs, and what links them. Its JSON form is in `readers.node_document`.

GPU i of the list is bit i of every mask. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.links import UNKNOWN_LINK, Link

__all__ = ["POLICIES", "Gpu", "Measured", "Nic", "NodeDocument"]

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; None where something is not known. An unhealthy one is never given out.

    `nvlink_active` is how many of its NVLinks are up: none of its pairs has more.
    """

    id: str
    uuid: str | None = None
    pci: str | None = None
    model: str | None = None
    numa: int | None = None
    cpu_affinity: str | None = None
    healthy: bool = True
    nvlink_active: int | None = None


@dataclass(frozen=True, slots=True)
class Nic:
    """One network card. `gbps` is the rate of its port in GB/s, one direction."""

    id: str
    name: str | None = None
    pci: str | None = None
    gbps: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What a benchmark saw.

    Attributes
    ----------
    tool
        ``nccl-tests``, ``p2p-bandwidth`` or ``ib-write-bw``.
    gbps
        GB/s in one direction; of nccl-tests the bus bandwidth of large messages.
    gpus
        Ids of the GPUs that took part: two for a pair; all of a collective.
    nic
        The NIC that it went through, for ib-write-bw.
    nodes
        How many nodes took part.
    latency_us
        Microseconds, None if it was not measured.
    observed_at
        When, None if the output does not say.
    """

    tool: str
    gbps: float
    gpus: tuple[str, ...] = ()
    nic: str | None = None
    nodes: int = 1
    latency_us: float | None = None
    observed_at: float | None = None


@dataclass(frozen=True, slots=True)
class NodeDocument:
    """One node.

    Attributes
    ----------
    gpus, nics
        In the order of their indices.
    links
        (a, b) to the link of two GPUs, indices, a < b. A pair that is not there is unknown.
    costs
        (a, b) to what AMD's tools print as the weight of a pair, at least 1: lower is nearer. Not of every pair.
    nic_links
        (gpu, nic) to the distance of a GPU from a NIC, indices.
    p2p
        (a, b) to the status of peer access as the driver prints it, for pairs where it is not OK.
    measured
        Results of benchmarks on this node.
    source
        Who says so: ``agent``, ``preset:NAME``, ``file``, ...
    observed_at
        When it was seen.
    boot_id
        The boot of the node during which it was seen.
    class_hash
        What equal machines share; with it `links`, `nic_links`, models and NUMA nodes may stand elsewhere.
    topology_policy
        One of `POLICIES`, None if not known.
    complete
        False where something that its source shows is missing, cut or hidden.
    warnings
        What its source could not tell, or told twice.
    findings
        What of the document itself could not be used.
    """

    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...] = ()
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    nic_links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    costs: Mapping[tuple[int, int], int] = field(default_factory=dict)
    p2p: Mapping[tuple[int, int], str] = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    source: str = "unknown"
    observed_at: float | None = None
    boot_id: str | None = None
    class_hash: str | None = None
    topology_policy: str | None = None
    complete: bool = True
    warnings: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the document says itself what machine it is of; else its `class_hash` names that."""
        alone = len(self.gpus) == 1 and self.gpus[0].model is not None
        return bool(self.links) or not self.class_hash or alone

    def link(self, a: int, b: int) -> Link:
        """Return the link between GPU a and GPU b (indices)."""
        return self.links.get((min(a, b), max(a, b)), UNKNOWN_LINK)

"""What is asked of the selector, and what it answers. Values only.

A job is one pod or a gang of equal pods; a pod never spans nodes, and a job is
placed whole or not at all.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.links import Link

__all__ = ["NO_LIMITS", "UNKNOWN_MODEL", "Capacity", "Job", "Limits", "PodSet", "Refusal", "Selection"]

# How a GPU whose model is not known counts among models: those are alike to each other, and to no other.
UNKNOWN_MODEL = "?"


class Capacity(enum.StrEnum):
    """What a pod wants of cards that are left out for their capacity: that they are slow, or faulty."""

    # They are taken as any other.
    IGNORE = "ignore"
    # They are taken where nothing else fits.
    PREFER = "prefer"
    # They are not there.
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits on the set of GPUs of one pod.

    Attributes
    ----------
    max_link
        No pair of the set may be worse than this.
    near_nic
        Id or name of a NIC: the set holds a GPU that is nearest to it, of all healthy GPUs of the node.
    same_numa
        All GPUs on one NUMA node.
    model
        All GPUs of this model (`UNKNOWN_MODEL`: of none that is known); None takes any.
    capacity
        Whether cards that are left out for their capacity may be among them.
    pace
        No GPU more steps behind a good one than this (`core.cards`); None takes any. The selector sets it.
    """

    max_link: Link | None = None
    near_nic: str | None = None
    same_numa: bool = False
    model: str | None = None
    capacity: Capacity = Capacity.REQUIRE
    pace: int | None = None

    @property
    def admit_any_set(self) -> bool:
        """Whether any set of the GPUs that the pod may have is as good as another."""
        asked = self.max_link, self.near_nic, self.model
        return self is NO_LIMITS or (asked == (None, None, None) and not self.same_numa)

    @property
    def takes_all(self) -> bool:
        """Whether cards that are left out for their capacity may be taken."""
        return self.capacity is not Capacity.REQUIRE


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be placed.

    Attributes
    ----------
    pods, gpus
        Number of pods, and of GPUs of each; both at least 1.
    resource
        The extended resource that they ask for.
    limits
        Hard limits on each pod's set.
    same_model
        All GPUs of the job must be of one model. Without it they are if that is possible.
    one_pod_per_node
        No two pods on one node.
    required_level
        All pods in one domain of this level (``node``: on one node), or not at all.
    preferred_level
        This level first, then wider ones.
    """

    pods: int
    gpus: int
    resource: str = "nvidia.com/gpu"
    limits: Limits = NO_LIMITS
    same_model: bool = False
    one_pod_per_node: bool = False
    required_level: str | None = None
    preferred_level: str | None = None

    def with_capacity(self, capacity: Capacity) -> Job:
        """Return the same job of pods that want this of cards that are left out."""
        return replace(self, limits=replace(self.limits, capacity=capacity))


@dataclass(frozen=True, slots=True)
class PodSet:
    """The GPUs of one pod: `node` is an index of the fleet, `mask` the GPUs, `ring` the same in ring order."""

    node: int
    mask: int
    ring: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """Where a job goes.

    Attributes
    ----------
    pods
        In rank order.
    level
        ``node`` if all pods are on one node, else the name of the nearest level that holds them all, None if there is none.
    bottleneck
        Weakest link between two GPUs of one pod; None if every pod has one GPU.
    ring_gbps
        Ring bandwidth of the worst pod's set, GB/s; 0 for one GPU or unknown links.
    model
        What `ring_gbps` rests on, as `core.machine.device_table.Choice.model`; ``heuristic``: not proven best.
    warnings
        What the user should know of this choice.
    """

    pods: tuple[PodSet, ...]
    level: str | None
    bottleneck: Link | None
    ring_gbps: float
    model: str
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job cannot be placed now.

    Attributes
    ----------
    reason
        One sentence with numbers: what was asked, what there is, where.
    fits
        How many of its pods would fit; of a single pod, how many GPUs.
    level
        The level at which it fails: ``node`` or that of a domain; None: the whole cluster.
    binds
        Which constraint binds: ``gpus``, ``max-link``, ``near-nic``, ``same-numa``, ``same-model``, ``partitions``, ``level``,
        ``one-pod-per-node``, ``subgroups``, ``kinds``, ``health`` or ``capacity``.
    change
        The smallest change that would make it fit, one sentence.
    """

    reason: str
    fits: int
    level: str | None
    binds: str
    change: str

"""What a refusal owes to how machines give out GPUs: to their partitions, or to a search that is not exhaustive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from pyscheduler.core import bitmap
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.job import Job, Limits
from pyscheduler.core.machine.admission import Rules, rules
from pyscheduler.core.machine.exact_search import EXACT_GPUS
from pyscheduler.core.machine.large_clique import limited_set
from pyscheduler.core.model import Machine
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape

__all__ = ["parted", "sizes", "unproven"]

# Tells of a machine with these free GPUs and so many slots of a shape whether it may have more of them.
_More = Callable[[Machine, int, int, Shape, Rules], bool]


def parted(cluster: Cluster, job: Job, among: int, shapes: Sequence[Shape]) -> list[NodeState]:
    """Return an example of each kind of node whose partitions bind: empty if the job would not fit without these.

    Of several pods that must be in one domain wider than a node nothing is told.
    """
    if job.pods > 1 and job.required_level not in {None, NODE_LEVEL}:
        return []
    return _suspects(cluster, job, among, shapes, _parts_bind)


def unproven(cluster: Cluster, job: Job, among: int, shapes: Sequence[Shape]) -> bool:
    """Tell whether the job might fit after all: on machines where the search for sets is not exhaustive."""
    return bool(_suspects(cluster, job, among, shapes, _in_doubt))


def sizes(states: Iterable[NodeState]) -> list[int]:
    """Return the numbers of GPUs that the partitions of these nodes have, rising."""
    machines = [state.facts.machine for state in states]
    return sorted({mask.bit_count() for machine in machines if machine for mask in machine.table.device_class.partitions})


def _parts_bind(machine: Machine, free: int, _slots: int, shape: Shape, limits: Rules) -> bool:
    device_class = machine.table.device_class
    return bool(device_class.partitions and limited_set(device_class, free, shape.gpus, limits)[0])


def _in_doubt(machine: Machine, free: int, slots: int, shape: Shape, limits: Rules) -> bool:
    device_class = machine.table.device_class
    if device_class.gpus <= EXACT_GPUS or shape.gpus == 1:
        return False
    if slots:
        # Disjoint sets are taken greedily.
        return bool(device_class.partitions) or any(limits.apart)
    return not device_class.partitions and not limited_set(device_class, free, shape.gpus, limits)[1]


def _suspects(cluster: Cluster, job: Job, among: int, shapes: Sequence[Shape], more: _More) -> list[NodeState]:
    """Return the nodes that may have more slots than are found, if with all that they have GPUs for the job would fit."""
    fleet = cluster.fleet
    kinds, numbers = np.unique(fleet.kinds()[fleet.tree().position[bitmap.indices(among)]], return_counts=True)
    for shape in shapes:
        total = most = 0
        found: list[NodeState] = []
        for kind, nodes in zip(kinds.tolist(), numbers.tolist(), strict=True):
            state = fleet.example(kind)
            slots = max((count for _, count in state.supply(shape)), default=0)
            if (by_count := _by_count(state, shape, slots, more)) > slots:
                slots = by_count
                found.append(state)
            slots = min(slots, 1) if job.one_pod_per_node else slots
            total, most = total + nodes * slots, max(most, slots)
        if found and (most if job.required_level == NODE_LEVEL else total) >= job.pods:
            return found
    return []


def _by_count(state: NodeState, shape: Shape, slots: int, more: _More) -> int:
    """Return how many pods the node has GPUs for if it may have more slots, else 0."""
    machine = state.facts.machine
    free, mask = state.open_to(shape.limits)
    # By number alone: whether a set satisfies the limits is what was not searched to the end.
    by_number = replace(shape, limits=Limits(capacity=shape.limits.capacity))
    if machine is None or state.count_only or not state.fits(by_number) or free < (slots + 1) * shape.gpus:
        return 0
    limits = rules(machine.table.device_class, shape.limits, state.healthy(shape.limits))
    by_count = (mask & limits.gpus).bit_count() // shape.gpus
    return by_count if by_count > slots and more(machine, mask, slots, shape, limits) else 0

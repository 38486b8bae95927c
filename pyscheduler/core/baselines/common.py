"""What all baselines share: the room there is, and the answer, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from pyscheduler.core import bitmap
from pyscheduler.core.answer import pod_set, selection
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.job import NO_LIMITS, Job, Refusal, Selection
from pyscheduler.core.node import model_names

__all__ = ["Baseline", "Room", "answer", "lowest", "no_answer", "rooms"]


class Baseline(Protocol):
    """Decides in the place of `core.selector.select`."""

    def __call__(self, cluster: Cluster, job: Job, eligible: int | None = None) -> Selection | Refusal:
        """Return where the job goes, or why this way finds no place."""


@dataclass(slots=True)
class Room:
    """What is left of one node while pods are given out: free GPUs, and which ones (0: not known)."""

    node: int
    allocatable: int
    free: int
    mask: int

    def take(self, mask: int, gpus: int) -> None:
        """Give out these GPUs."""
        self.mask &= ~mask
        self.free -= gpus


def rooms(cluster: Cluster, job: Job, eligible: int | None) -> list[Room]:
    """Return the nodes that have the job's resource, in the total order."""
    among = cluster.present if eligible is None else eligible & cluster.present
    nodes = bitmap.indices(among).tolist()
    order = cluster.table.order()
    found = []
    for node in sorted(nodes, key=lambda node: int(order[node])):
        state = cluster.state(node)
        if state.facts.resource == job.resource:
            known = 0 if state.count_only else state.free_mask
            found.append(Room(node, state.facts.allocatable, state.free, known))
    return found


def lowest(mask: int, gpus: int) -> int:
    """Return the so many lowest GPUs of a mask, what a device manager that knows no links hands out."""
    return sum(1 << gpu for gpu in islice((at for at in range(mask.bit_length()) if mask >> at & 1), gpus))


def answer(cluster: Cluster, job: Job, pods: Sequence[tuple[int, int]]) -> Selection | Refusal:
    """Return the placement of (node, mask) of each pod, or what of the job it breaks: a baseline does not look."""
    for node, mask in pods:
        machine = cluster.state(node).facts.machine
        if machine is None or not mask:
            if job.limits != NO_LIMITS:
                return no_answer(f"picks GPUs of {cluster.table.names[node]} by number alone: its limits cannot be checked")
        elif machine.table.choose(mask, job.gpus, job.limits, machine.healthy) is None:
            ids = ", ".join(machine.ids[gpu] for gpu in range(len(machine.ids)) if mask >> gpu & 1)
            return no_answer(f"picks {ids} of {cluster.table.names[node]}, which may not be given out together")
    if job.same_model and len(_models(cluster, pods)) > 1:
        return no_answer(f"picks GPUs of different models: {', '.join(_models(cluster, pods))}")
    tree = cluster.fleet.tree()
    level = tree.join(node for node, _ in pods)
    reached = [NODE_LEVEL, *tree.levels].index(level or "")
    if job.required_level and reached > [NODE_LEVEL, *tree.levels].index(job.required_level):
        return no_answer(f"picks nodes that lie in no common {job.required_level}")
    return selection(cluster, job, [pod_set(cluster, node, mask) for node, mask in pods])


def no_answer(what: str, fits: int = 0) -> Refusal:
    """Return that this way leads to no valid placement; `what` says why, after "this way of choosing"."""
    return Refusal(f"this way of choosing {what}", fits, None, "gpus", "the selector may find a place")


def _models(cluster: Cluster, pods: Sequence[tuple[int, int]]) -> list[str]:
    found: list[str | None] = []
    for node, mask in pods:
        machine = cluster.state(node).facts.machine
        models = machine.table.device_class.known_models if machine else ()
        found += [models[gpu] for gpu in range(len(models)) if mask >> gpu & 1]
    return model_names(found)

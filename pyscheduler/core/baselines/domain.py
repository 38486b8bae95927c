"""The tightest domain that fits, as schedulers with topology levels do it: whole nodes, no look at the GPUs within."""

from __future__ import annotations

import numpy as np

from pyscheduler.core.baselines.common import Room, answer, lowest, no_answer, rooms
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, MergeTree
from pyscheduler.core.job import Job, Refusal, Selection

__all__ = ["tightest_domain"]


def tightest_domain(cluster: Cluster, job: Job, eligible: int | None = None) -> Selection | Refusal:
    """Place the job in the nearest level's domain with the fewest free GPUs that has room, on its largest nodes first."""
    tree = cluster.fleet.tree()
    by_position = {int(tree.position[room.node]): room for room in rooms(cluster, job, eligible)}
    names = [NODE_LEVEL, *tree.levels]
    last = names.index(job.required_level) if job.required_level else len(names) - 1
    first = names.index(job.preferred_level) if job.preferred_level and job.pods > 1 else 0
    for tier in [*range(first, last + 1), *range(min(first, last + 1))]:
        inside = _tightest(tree, by_position, job, tier - 1)
        if inside is not None:
            return answer(cluster, job, _filled(inside, job))
    return no_answer(f"finds no domain with room for {job.pods} pods of {job.gpus}")


def _tightest(tree: MergeTree, by_position: dict[int, Room], job: Job, tier: int) -> list[Room] | None:
    """Return the nodes of the tightest domain of a tier with room for the job; tier -1 is the node."""
    slots = np.zeros(len(tree.order) + 1, np.int64)
    free = np.zeros(len(tree.order) + 1, np.int64)
    for at, room in by_position.items():
        slots[at + 1], free[at + 1] = _slots(room, job), room.free
    below, free_below = np.cumsum(slots), np.cumsum(free)
    vertices = tree.of_tier(tier)
    low, high = (
        (np.arange(len(tree.order)), np.arange(1, len(tree.order) + 1)) if tier < 0 else (tree.low[vertices], tree.high[vertices])
    )
    fitting = np.flatnonzero(below[high] - below[low] >= job.pods)
    if not len(fitting):
        return None
    chosen = fitting[np.argmin((free_below[high] - free_below[low])[fitting])]
    return [by_position[at] for at in range(int(low[chosen]), int(high[chosen])) if at in by_position]


def _slots(room: Room, job: Job) -> int:
    fitting = room.free // job.gpus
    return min(fitting, 1) if job.one_pod_per_node else fitting


def _filled(inside: list[Room], job: Job) -> list[tuple[int, int]]:
    pods: list[tuple[int, int]] = []
    for room in sorted(inside, key=lambda room: -room.free):
        for _ in range(min(_slots(room, job), job.pods - len(pods))):
            mask = lowest(room.mask, job.gpus)
            room.take(mask, job.gpus)
            pods.append((room.node, mask))
    return pods

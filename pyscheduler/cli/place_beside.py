"""What a choice is measured by: the best conceivable placement, the worst possible one, and the next best with why it lost.

Computed because a person asks, with the very functions that decide. No decision rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

from pyscheduler.cli.place_answer import pods_of, predicted_gbps
from pyscheduler.cli.place_runner_up import runner_up
from pyscheduler.cli.place_scene import Scene
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.job import Job, PodSet, Selection
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import select

__all__ = ["beside"]

# Sets that are looked at for the worst one: some seconds.
_SETS_MAX: Final = 20_000


def beside(scene: Scene, job: Job, selection: Selection) -> dict[str, Any]:
    """Return what the selection is measured by, as fields of the answer. The scene is as it was when it was chosen.

    ``best_gbps`` and ``worst_gbps`` are predicted all-reduce bandwidths, ``runner_up`` is the next best placement and
    ``runner_up_reason`` why it lost; of another policy's choice, it is that of the selector, and there is no reason.
    """
    own = predicted_gbps(scene, selection)
    ideal = scene.emptied().decide(job)
    best = predicted_gbps(scene, ideal) if isinstance(ideal, Selection) else None
    spread = _worst(scene, job, selection)
    worst = predicted_gbps(scene, spread) if spread else None
    other, why = _runner_up(scene, job, selection)
    return {
        "best_gbps": max((each for each in (own, best) if each is not None), default=None),
        "worst_gbps": min((each for each in (own, worst) if each is not None), default=None),
        "runner_up": other and {"pods": pods_of(scene, other), "predicted_allreduce_gbps": predicted_gbps(scene, other)},
        "runner_up_reason": why,
    }


def _runner_up(scene: Scene, job: Job, selection: Selection) -> tuple[Selection | None, str | None]:
    if scene.policy is select:
        return runner_up(scene, job, selection) or (None, None)
    better = replace(scene, policy=select).decide(job)
    # Another policy may have placed what the selector refuses, by a fault of its own.
    return (better if isinstance(better, Selection) else None), None


def _worst(scene: Scene, job: Job, selection: Selection) -> Selection | None:
    """Return a placement that is as bad as it gets: the worst set on each node, the pods on as many nodes as there are.

    Within the required level it stays where the choice is. Only kinds of node that can be looked at count.
    """
    among = _reachable(scene, job, selection)
    free = {node: scene.cluster.state(node) for node in among}
    pods: list[PodSet] = []
    while len(pods) < job.pods:
        sets = _worst_sets(job, free)
        if not sets or (pods and job.one_pod_per_node):
            return None
        for _, node, mask in sets[: job.pods - len(pods)]:
            pods.append(PodSet(node, mask, ()))
            free[node] = replace(free[node], free_mask=free[node].free_mask & ~mask, free=free[node].free - job.gpus)
    level = scene.cluster.fleet.tree().join(pod.node for pod in pods)
    return replace(selection, pods=tuple(pods), level=level)


def _reachable(scene: Scene, job: Job, selection: Selection) -> list[int]:
    """Return the nodes that may be used, within the domain of the required level that the choice is in."""
    tree = scene.cluster.fleet.tree()
    nodes: Sequence[int] = range(len(scene.cluster.table))
    if job.pods > 1 and job.required_level == NODE_LEVEL:
        nodes = [selection.pods[0].node]
    elif job.pods > 1 and job.required_level in tree.levels:
        tier = tree.levels.index(job.required_level)
        inside = [vertex for vertex in tree.above(selection.pods[0].node) if tree.tier[vertex] == tier]
        nodes = tree.order[tree.low[inside[0]] : tree.high[inside[0]]].tolist() if inside else [selection.pods[0].node]
    return [node for node in nodes if scene.eligible is None or scene.eligible >> node & 1]


def _worst_sets(job: Job, states: Mapping[int, NodeState]) -> list[tuple[float, int, int]]:
    """Return (ring, node, set) of each node that has room for a pod, the worst first."""
    known: dict[object, tuple[float, int] | None] = {}
    left = _SETS_MAX
    found = []
    for node, state in states.items():
        if state.kind not in known:
            known[state.kind], looked = _worst_set(job, state, left)
            left -= looked
        worst = known[state.kind]
        if worst is not None:
            found.append((worst[0], node, worst[1]))
    return sorted(found)


def _worst_set(job: Job, state: NodeState, most: int) -> tuple[tuple[float, int] | None, int]:
    """Return ring and mask of the worst admissible set of a node, and how many sets were looked at."""
    machine = state.facts.machine
    if machine is None or state.count_only or not state.fits(Shape(job.resource, job.gpus)):
        return None, 0
    gpus = [gpu for gpu in range(len(machine.ids)) if state.free_mask >> gpu & 1]
    if math.comb(len(gpus), job.gpus) > most:
        return None, 0
    masks = [sum(1 << gpu for gpu in some) for some in combinations(gpus, job.gpus)]
    choices = [choice for mask in masks if (choice := machine.table.choose(mask, job.gpus, job.limits))]
    return min(((choice.ring_gbps, choice.mask) for choice in choices), default=None), len(masks)

"""The next best placement, and in which part of the objective it loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from pyscheduler.cli.place_scene import Scene
from pyscheduler.core.answer import pod_set
from pyscheduler.core.answer import selection as in_full
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.job import UNKNOWN_MODEL, Job, PodSet, Selection
from pyscheduler.core.machine.exact_search import EXACT_GPUS
from pyscheduler.core.machine.set_worth import judge
from pyscheduler.core.node import NodeState, model_names
from pyscheduler.core.predicting import by_node
from pyscheduler.core.request import Shape

__all__ = ["runner_up"]

# Chosen nodes of which each is left out once, to see what comes next.
_NODES_MAX: Final = 32

# Parts of the objective in its order, smaller is better.
_Worth = Mapping[str, float]

_WHY: Final = {
    "unknown": "it is not known which of its GPUs are free: nodes of which it is known come first",
    "ring": "the rings of its slowest pod carry {its:.4g} GB/s, not {mine:.4g}",
    "one": "its best link to another free GPU has {its:.4g} GB/s, not {mine:.4g}: it is kept for larger jobs",
    "together": "the GPUs of the job on its worst node carry {its:.4g} GB/s together, not {mine:.4g}",
    "pairs": "its pairs add up to {its:.4g} GB/s, not {mine:.4g}",
    "numa": "it touches {its:g} NUMA nodes, not {mine:g}",
    "room": "it takes from a domain with room for {its:g} such pods, not {mine:g}: the tighter fit comes first",
    "nodes": "it needs {its:g} nodes, not {mine:g}",
    "imbalance": "its pods are spread less evenly over the nodes",
    "inner": "it touches {its:g} inner domains, not {mine:g}",
    "left": "it leaves {gpus} free on its nodes, not {mine:g}: the tighter fit comes first",
    "near": "{gpus} free in its domain, not {mine:g}: the fuller one comes first, so that others stay whole",
    "wider": "{gpus} free in its wider domain, not {mine:g}: the fuller one comes first, so that others stay whole",
}
_REMAINS: Final = "it is as good, but tears more that is well connected: what it leaves on the node is worth less"
_ORDER: Final = "it is as good, and comes later in the order of domains, nodes and GPUs"
# The search does not compare each of very many domains and sets to the end.
_NOT_COMPARED: Final = "it is as good up to where the search compares; of what remains only the first found is taken"


def runner_up(scene: Scene, job: Job, selection: Selection) -> tuple[Selection, str] | None:
    """Return the next best placement and why it lost; None if there is no other. The scene is as it was when it was chosen."""
    others = [(other, _worth(scene, job, other)) for other in _others(scene, job, selection)]
    if not others:
        return None
    best, worth = min(others, key=lambda each: tuple(each[1].values()))
    return best, _why(scene, job, (selection, _worth(scene, job, selection)), (best, worth))


def _others(scene: Scene, job: Job, selection: Selection) -> Iterator[Selection]:
    """Yield placements that differ: without each of the chosen nodes; of one pod, without each of its GPUs on its node.

    The last are left out first: of equal placements, the one that comes first in the total order is the next best.
    """
    nodes = list(dict.fromkeys(pod.node for pod in selection.pods))
    for node in islice(reversed(nodes), _NODES_MAX):
        other = scene.without(node).decide(job)
        if isinstance(other, Selection):
            yield other
    if len(selection.pods) > 1 or job.gpus == 1:
        return
    (pod,) = selection.pods
    state = scene.cluster.state(pod.node)
    for gpu in sorted(pod.ring, reverse=True):
        freed = replace(state, free_mask=state.free_mask & ~(1 << gpu), free=state.free - 1)
        choice = freed.choose(Shape(job.resource, job.gpus, job.limits))
        if choice is not None and not (job.same_model and len(_models(state, choice.mask)) > 1):
            yield in_full(scene.cluster, job, [pod_set(scene.cluster, pod.node, choice.mask)])


def _models(state: NodeState, mask: int) -> list[str]:
    models = state.facts.machine.table.device_class.known_models if state.facts.machine else ()
    return model_names(model for gpu, model in enumerate(models) if mask >> gpu & 1)


def _worth(scene: Scene, job: Job, selection: Selection) -> _Worth:
    """Return the parts in which two placements of one tier can differ; those of different tiers differ in the first."""
    names = (NODE_LEVEL, *scene.cluster.fleet.tree().levels)
    tier = names.index(selection.level or "")
    first = names.index(job.preferred_level) if job.preferred_level in names else 0
    late = {"tier": float(tier - first if tier >= first else len(names) + first - tier)}
    masks = by_node(selection.pods)
    left = sum(scene.cluster.state(node).free for node in masks) - len(selection.pods) * job.gpus
    if len(selection.pods) == 1:
        return {
            **late,
            **_one_pod(scene.cluster.state(selection.pods[0].node), job, selection.pods[0]),
            "left": left,
            **_round(scene, selection),
        }
    links = _together(scene, masks)
    ring = {"ring": -selection.ring_gbps}
    room = {"room": _room(scene, job, selection)}
    if len(masks) == 1:
        return {**late, **ring, "together": links["together"], **room, "left": left, **links, **_round(scene, selection)}
    counts = [sum(pod.node == node for pod in selection.pods) for node in masks]
    spread = {"nodes": len(counts), "imbalance": max(counts) - min(counts), "together": links["together"]}
    return {**late, **ring, **room, **spread, "inner": _inner(scene, selection), "left": left}


def _one_pod(state: NodeState, job: Job, pod: PodSet) -> _Worth:
    if state.facts.machine is None or not pod.mask:
        return {"unknown": 1}
    if job.gpus == 1:
        choice = state.choose(Shape(job.resource, 1, job.limits))
        return {"unknown": 0, "one": choice.key[0] / 1000 if choice else 0.0}
    choice = state.facts.machine.table.describe(pod.mask)
    return {"unknown": 0, "ring": -choice.ring_gbps, "pairs": -choice.pair_sum_gbps, "numa": choice.numa_nodes}


def _together(scene: Scene, masks: Mapping[int, int]) -> _Worth:
    """Return the links of all GPUs of the job on one node, of the worst node."""
    machines = [(scene.cluster.state(node).facts.machine, mask) for node, mask in masks.items()]
    choices = [machine.table.describe(mask) for machine, mask in machines if machine and mask]
    worst = max(choices, key=lambda choice: choice.key, default=None)
    if worst is None:
        return {"together": 0.0, "pairs": 0.0, "numa": 0}
    return {"together": -worst.ring_gbps, "pairs": -worst.pair_sum_gbps, "numa": worst.numa_nodes}


def _room(scene: Scene, job: Job, selection: Selection) -> int:
    """Return how many such pods the domain that holds the selection has room for, the selection's own among them."""
    cluster = scene.cluster
    tree = cluster.fleet.tree()
    states = [cluster.state(pod.node) for pod in selection.pods]
    models = {model for state, pod in zip(states, selection.pods, strict=True) for model in _models(state, pod.mask)}
    # Where they could be of several models, only those of the one that they have count.
    alike = len(models) == 1 and UNKNOWN_MODEL not in models and len(cluster.models(job.resource)) > 1
    limits = replace(job.limits, model=next(iter(models))) if alike else job.limits
    slots = cluster.fleet.slots(Shape(job.resource, job.gpus, limits), scene.eligible)
    if not slots.grades:
        return 0
    if selection.level == NODE_LEVEL:
        return int(slots.of_node[-1][tree.position[selection.pods[0].node]])
    tier = tree.levels.index(selection.level or "")
    vertex = next(each for each in tree.above(selection.pods[0].node) if tree.tier[each] >= tier)
    return int(slots.totals(np.array([vertex]), one_per_node=job.one_pod_per_node)[0, -1])


def _inner(scene: Scene, selection: Selection) -> int:
    """Return how many domains right below the one that holds the selection, or nodes that hang there themselves, it touches."""
    tree = scene.cluster.fleet.tree()
    tier = tree.levels.index(selection.level or "")
    return len(
        {next((v for v in reversed(tree.above(pod.node)) if tree.tier[v] < tier), -1 - pod.node) for pod in selection.pods}
    )


def _round(scene: Scene, selection: Selection) -> _Worth:
    """Return how many GPUs are free in the nearest domain round the one node, and in the next wider one."""
    path = scene.cluster.state(selection.pods[0].node).facts.place.path
    free = {"near": 0, "wider": 0}
    for state in scene.cluster.states():
        for part, depth in (("near", 0), ("wider", 1)):
            free[part] += state.free if state.facts.place.path[depth:] == path[depth:] else 0
    # Nodes in no such domain come last.
    return {part: float("inf") if len(path) <= depth else free[part] for depth, part in enumerate(free)}


def _why(scene: Scene, job: Job, own: tuple[Selection, _Worth], other: tuple[Selection, _Worth]) -> str:
    """Return the first part of the objective in which the other is worse."""
    (chosen, mine), (rival, its) = own, other
    if its["tier"] > mine["tier"]:
        return f"it is spread over {rival.level or 'the cluster'}, which is tried later"
    differs = next((part for part in mine if mine[part] != its.get(part)), None)
    if differs is None:
        return _last_parts(scene, job, chosen, rival)
    if differs not in its or its[differs] < mine[differs]:
        return _NOT_COMPARED
    if its[differs] == float("inf"):
        return "nothing is known of the domain round it: nodes in a known one come first"
    return _WHY[differs].format(its=abs(its[differs]), mine=abs(mine[differs]), gpus=plural(round(abs(its[differs]))))


def _last_parts(scene: Scene, job: Job, chosen: Selection, rival: Selection) -> str:
    """Tell what remains on one node from the total order, which is all that is left to differ in."""
    (mine, *several), (its, *_) = chosen.pods, rival.pods
    machine = scene.cluster.state(mine.node).facts.machine
    if several or mine.node != its.node or machine is None or job.limits.model is not None:
        return _ORDER
    kind = machine.table.device_class
    if kind.gpus > EXACT_GPUS:
        return _NOT_COMPARED
    both = np.array([its.mask, mine.mask])
    # Asked in either order: of sets that leave as much behind, the first one is named.
    worth, free = judge(kind), scene.cluster.state(mine.node).free_mask
    equal = worth.leaving_most(free, both) != worth.leaving_most(free, both[::-1])
    return _ORDER if equal else _REMAINS

"""What a choice is measured by: the best conceivable placement, the worst possible one, and the next best with why it lost.

Computed because a person asks, with the very functions that decide. No decision rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final

from pyscheduler.cli.place_answer import predicted_gbps
from pyscheduler.cli.place_scene import Scene
from pyscheduler.cli.place_text import Beside
from pyscheduler.core.job import Job, PodSet, Selection
from pyscheduler.core.merge_tree import NODE_LEVEL
from pyscheduler.core.node import NodeState, model_names
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import select

__all__ = ["beside"]

# Chosen nodes of which each is left out once, to see what comes next.
_NODES_MAX: Final = 32
# Sets that are looked at for the worst one: some seconds.
_SETS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class _Worth:
    """A placement by the parts of the objective, in its order; smaller is better.

    Attributes
    ----------
    tier
        How late the level is tried.
    ring_gbps, pairs_gbps, numa
        Links of the worst pod's set, negative; of one pod also the sum over its pairs, and its NUMA nodes. Of one GPU:
        how fast its best link to another free one is, as `ring_gbps`.
    nodes, imbalance
        Nodes, and how much the GPUs on them differ.
    left
        GPUs that stay free on these nodes.
    """

    tier: int
    ring_gbps: float
    pairs_gbps: float
    numa: int
    nodes: int
    imbalance: int
    left: int


def beside(scene: Scene, job: Job, selection: Selection) -> Beside:
    """Return what the selection is measured by. The scene is as it was when it was chosen."""
    own = predicted_gbps(scene, selection)
    ideal = scene.emptied().decide(job)
    best = predicted_gbps(scene, ideal) if isinstance(ideal, Selection) else None
    spread = _worst(scene, job, selection)
    worst = predicted_gbps(scene, spread) if spread else None
    known = [each for each in (own, worst) if each is not None]
    measure = Beside(
        best_gbps=max((each for each in (own, best) if each is not None), default=None), worst_gbps=min(known, default=None)
    )
    if scene.policy is not select:
        better = replace(scene, policy=select).decide(job)
        # Another policy may have placed what the selector refuses, by a fault of its own.
        if not isinstance(better, Selection):
            return measure
        return replace(measure, runner_up=_words(scene, better), runner_up_gbps=predicted_gbps(scene, better))
    others = list(_others(scene, job, selection))
    if not others:
        return measure
    runner_up = min(others, key=lambda other: _order(_worth(scene, job, other)))
    return replace(
        measure,
        runner_up=_words(scene, runner_up),
        runner_up_gbps=predicted_gbps(scene, runner_up),
        why=_why(_worth(scene, job, selection), _worth(scene, job, runner_up), runner_up),
    )


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
        if choice is not None and not (job.same_model and _mixed(state, choice.mask)):
            yield replace(selection, pods=(PodSet(pod.node, choice.mask, ()),), ring_gbps=choice.ring_gbps)


def _mixed(state: NodeState, mask: int) -> bool:
    models = state.facts.machine.table.device_class.models if state.facts.machine else ()
    return len(set(model_names(model for gpu, model in enumerate(models) if mask >> gpu & 1))) > 1


def _worth(scene: Scene, job: Job, selection: Selection) -> _Worth:
    names = (NODE_LEVEL, *scene.cluster.fleet.tree().levels)
    tier = names.index(selection.level or "")
    first = names.index(job.preferred_level) if job.preferred_level in names else 0
    counts: dict[int, int] = {}
    for pod in selection.pods:
        counts[pod.node] = counts.get(pod.node, 0) + job.gpus
    states = {node: scene.cluster.state(node) for node in counts}
    ring, pairs, numa = selection.ring_gbps, 0.0, 0
    if len(selection.pods) == 1:
        ring, pairs, numa = _links(next(iter(states.values())), job, selection.pods[0])
    return _Worth(
        tier=tier - first if tier >= first else len(names) + first - tier,
        ring_gbps=-ring,
        pairs_gbps=-pairs,
        numa=numa,
        nodes=len(counts),
        imbalance=max(counts.values()) - min(counts.values()),
        left=sum(states[node].free - count for node, count in counts.items()),
    )


def _links(state: NodeState, job: Job, pod: PodSet) -> tuple[float, float, int]:
    if state.facts.machine is None or not pod.mask:
        return 0.0, 0.0, 0
    if job.gpus == 1:
        choice = state.choose(Shape(job.resource, 1, job.limits))
        return (-choice.key[0] / 1000 if choice else 0.0), 0.0, 0
    choice = state.facts.machine.table.describe(pod.mask)
    return choice.ring_gbps, choice.pair_sum_gbps, choice.numa_nodes


def _order(worth: _Worth) -> tuple[float, ...]:
    return tuple(getattr(worth, name) for name in _Worth.__slots__)


def _why(own: _Worth, other: _Worth, runner_up: Selection) -> str:
    """Return the first part of the objective in which the runner-up is worse."""
    differs = next((name for name in _Worth.__slots__ if getattr(own, name) != getattr(other, name)), "")
    mine, its = (abs(getattr(worth, differs)) if differs else 0 for worth in (own, other))
    if differs and getattr(other, differs) < getattr(own, differs):
        differs = ""
    single = len(runner_up.pods) == 1 and runner_up.bottleneck is None
    return {
        "tier": f"it is spread over {runner_up.level or 'the cluster'}, which is tried later",
        "ring_gbps": f"its best link to another free GPU has {its:.4g} GB/s, not {mine:.4g}: it is kept for larger jobs"
        if single
        else f"the rings of its slowest pod carry {its:.4g} GB/s, not {mine:.4g}",
        "pairs_gbps": f"its pairs add up to {its:.4g} GB/s, not {mine:.4g}",
        "numa": f"it touches {its:g} NUMA nodes, not {mine:g}",
        "nodes": f"it needs {its:g} nodes, not {mine:g}",
        "imbalance": "its GPUs are spread less evenly over the nodes",
        "left": f"it leaves {its:g} GPUs free on its nodes, not {mine:g}: the tighter fit comes first",
        "": "it is as good; it tears more that is well connected, or comes later in the order of domains, nodes and GPUs",
    }[differs]


def _words(scene: Scene, selection: Selection) -> str:
    names = list(dict.fromkeys(scene.cluster.table.names[pod.node] for pod in selection.pods))
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more nodes" if len(names) > 3 else "")
    machine = scene.cluster.state(selection.pods[0].node).facts.machine
    if len(selection.pods) > 1 or machine is None:
        return listed
    gpus = [machine.ids[gpu] for gpu in range(len(machine.ids)) if selection.pods[0].mask >> gpu & 1]
    return f"{listed}: {' '.join(gpus)}"


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

"""Where a job goes: the one objective, for single pods and gangs alike.

In this order: hard limits, one model among them where it is possible; the nearest
level that holds the whole job, or the preferred one first; the links of the worst pod's set; the speed of the slowest card;
the tightest domain, the fewest nodes, balanced counts, the links of the worst node, the fewest inner
domains, least left over; what remains is best connected; a total order.

A decision reads live counters of the merge tree (`core.fabric.slots`) and the tables of
machine classes; it never looks at an edge. `Cluster` is only read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core import bitmap
from pyscheduler.core.answer import pod_set, selection, worth_of
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.fleet import Fleet
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, MergeTree
from pyscheduler.core.fabric.rails import rails
from pyscheduler.core.fabric.slots import COUNT_ONLY, Slots
from pyscheduler.core.fabric.spread import Share, Spreader, nodes_needed
from pyscheduler.core.job import Capacity, Job, Refusal, Selection
from pyscheduler.core.node import NodeState
from pyscheduler.core.refusing import refusal
from pyscheduler.core.request import Shape

__all__ = ["fits", "select"]

# Of domains that are equally tight and need as many nodes, how many are looked at, and of those that differ, how many
# are compared to the end.
_LOOKED_AT: Final = 8
_COMPARED: Final = 4


Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class _Among:
    """Where a job may go: `eligible` and `room` as in `select`."""

    eligible: int | None
    room: Ints | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """Shares of one shape; `key` orders what was found for different models, smaller is better."""

    shape: Shape
    shares: tuple[Share, ...]
    floor: int
    key: tuple[int, ...]


def select(cluster: Cluster, job: Job, eligible: int | None = None, room: Ints | None = None) -> Selection | Refusal:
    """Return where the job goes, or why it cannot be placed now.

    Parameters
    ----------
    cluster
        What is free.
    job
        What is asked.
    eligible
        Bitmap of the nodes that may be used; None: all.
    room
        By node, how many pods of the job it has room for besides their GPUs, shape (nodes,); None: any number.

    """
    found = _search(cluster, job, _Among(eligible, room))
    if found is None and room is not None and _search(cluster, job, _Among(eligible)) is not None:
        return _no_room(job)
    if found is None:
        shapes = list(_shapes(cluster, job)) if job.same_model else [Shape(job.resource, job.gpus, job.limits)]
        return refusal(cluster, job, eligible, shapes, lambda other: _search(cluster, other, _Among(eligible)) is not None)
    return _selection(cluster, job, _with_faster_cards(cluster, job, _Among(eligible, room), found))


def fits(cluster: Cluster, job: Job, eligible: int | None = None, room: Ints | None = None) -> bool:
    """Return whether the job could be placed now. Parameters as for `select`."""
    return _search(cluster, job, _Among(eligible, room)) is not None


def _no_room(job: Job) -> Refusal:
    reason = f"needs {job.pods} pods of {plural(job.gpus)}; their GPUs are free, and CPU, memory or the number of pods are not on all of these nodes"
    return Refusal(
        reason, 0, job.required_level, "room", "free CPU or memory on nodes that have free GPUs, or ask for less of it"
    )


def _search(cluster: Cluster, job: Job, among: _Among) -> _Found | None:
    if job.limits.capacity is Capacity.PREFER:
        strict = _search(cluster, job.with_capacity(Capacity.REQUIRE), among)
        return strict or _search(cluster, job.with_capacity(Capacity.IGNORE), among)
    shapes, mixed = list(_shapes(cluster, job)), Shape(job.resource, job.gpus, job.limits)
    found = [each for shape in shapes if (each := _in_domains(cluster, job, shape, among))]
    if not found and not job.same_model and mixed not in shapes:
        found = [each for each in [_in_domains(cluster, job, mixed, among)] if each]
    return min(found, key=lambda each: each.key, default=None)


def _with_faster_cards(cluster: Cluster, job: Job, among: _Among, found: _Found) -> _Found:
    """Return the place whose slowest card is fastest, of those at the level and with the links of the one that was found."""
    # The ranking of nodes for one pod knows how fast they are.
    paces = cluster.paces()[:-1] if job.pods > 1 else []

    @cache
    def within(pace: int) -> _Found | None:
        shape = replace(found.shape, limits=replace(found.shape.limits, pace=pace))
        faster = _in_domains(cluster, job, shape, among)
        return faster if faster is not None and faster.key[:2] == found.key[:2] else None

    # What is found among the faster cards is found among more of them, too; most jobs find room among the fastest.
    start = stop = 0
    while stop < len(paces) and within(paces[stop]) is None:
        start, stop = stop + 1, 2 * stop + 1
    first = bisect_left(paces, True, start, min(stop, len(paces)), key=lambda pace: within(pace) is not None)
    return (within(paces[first]) if first < len(paces) else None) or found


def _in_domains(cluster: Cluster, job: Job, shape: Shape, among: _Among) -> _Found | None:
    tree = cluster.fleet.tree()
    if job.pods == 1 or job.required_level is None or job.required_level not in tree.own:
        return _of_shape(cluster, job, shape, among)
    # Some vertices are no domains: each domain is looked at by itself, and nodes in none at the next nearer level.
    nodes = cluster.present if among.eligible is None else among.eligible
    domains = tree.own[job.required_level]
    own = (nodes & _nodes(domains == domain) for domain in range(int(domains.max(initial=-1)) + 1))
    found = [_of_shape(cluster, job, shape, _Among(each, among.room)) for each in own]
    nearer = (NODE_LEVEL, *tree.levels)[tree.levels.index(job.required_level)]
    found.append(
        _in_domains(cluster, replace(job, required_level=nearer), shape, _Among(nodes & _nodes(domains < 0), among.room))
    )
    return min((each for each in found if each), key=lambda each: each.key, default=None)


def _nodes(flags: npt.NDArray[np.bool_]) -> int:
    return bitmap.from_bytes(np.packbits(flags, bitorder="little").tobytes())


def _shapes(cluster: Cluster, job: Job) -> Iterator[Shape]:
    """Yield the shape for each model that the job's GPUs could all be of."""
    models = cluster.models(job.resource)
    if job.limits.model is not None or len(models) <= 1 or job.pods * job.gpus == 1:
        yield Shape(job.resource, job.gpus, job.limits)
    else:
        yield from (Shape(job.resource, job.gpus, replace(job.limits, model=model)) for model in models)


def _of_shape(cluster: Cluster, job: Job, shape: Shape, among: _Among) -> _Found | None:
    if job.pods == 1:
        return _one_pod(cluster, shape, among.eligible)
    fleet = cluster.fleet
    tree, slots = fleet.tree(), fleet.slots(shape, among.eligible, among.room)
    if not slots.grades or slots.totals(np.array([tree.root]), one_per_node=job.one_pod_per_node)[0, -1] < job.pods:
        return None
    for tier in _tiers(tree, job):
        if tier < 0:
            found = None if job.one_pod_per_node else _one_node(cluster, job, shape, slots)
        else:
            found = _one_domain(fleet, job, shape, slots, tier)
        if found is not None:
            return found
    return None


def _tiers(tree: MergeTree, job: Job) -> list[int]:
    """Return the tiers to try in order, none for a required level that no node is in; -1 is the single node."""
    names = (NODE_LEVEL, *tree.levels)
    if job.required_level and job.required_level not in names:
        return []
    last = names.index(job.required_level) if job.required_level else len(names) - 1
    first = names.index(job.preferred_level) if job.preferred_level in names else 0
    # Nearer ones than preferred come last: nodes that say nothing of that level are found there alone.
    return [at - 1 for at in (*range(first, last + 1), *range(min(first, last + 1) - 1, -1, -1))]


def _one_pod(cluster: Cluster, shape: Shape, eligible: int | None) -> _Found | None:
    ranking = cluster.ranking(shape)
    best = ranking.best(cluster.present if eligible is None else eligible & cluster.present, 1, cluster.rank)
    if not best:
        return None
    state = cluster.state(best[0])
    key = tuple(round(part) for part in state.key(shape) or ())
    position = int(cluster.fleet.tree().position[best[0]])
    return _Found(shape, (Share(position, 1),), 0, key)


def _one_node(cluster: Cluster, job: Job, shape: Shape, slots: Slots) -> _Found | None:
    """Return the best single node for several pods."""
    grade = next((at for at in range(len(slots.grades)) if int(slots.of_node[at].max(initial=0)) >= job.pods), None)
    if grade is None:
        return None
    fleet = cluster.fleet
    positions = np.flatnonzero(slots.of_node[grade] >= job.pods)
    kinds, floor = fleet.kinds()[positions], slots.grades[grade]
    room = slots.of_node[-1][positions]
    worth = {
        kind: _on_one(fleet.example(kind), shape, job.pods, floor, int(room[kinds == kind][0]))
        for kind in np.unique(kinds).tolist()
    }
    best = min(worth.values())
    chosen = positions[np.isin(kinds, [kind for kind, each in worth.items() if each == best])]
    nodes = fleet.tree().order[chosen]
    tightest = nodes[np.argmin(cluster.rank(nodes))]
    key = (-1, -floor, *best)
    return _Found(shape, (Share(int(fleet.tree().position[tightest]), job.pods),), floor, key)


def _on_one(state: NodeState, shape: Shape, pods: int, floor: int, slots: int) -> tuple[int, ...]:
    """Return what a job on one node is worth, smaller is better: ring of all its GPUs, free slots, what is left, other links."""
    ring, pair_sum, numa_nodes = _together(state, shape, pods, floor)
    return ring, slots, state.free, pair_sum, numa_nodes


def _together(state: NodeState, shape: Shape, pods: int, floor: int) -> tuple[int, int, int]:
    """Return what the GPUs of so many pods on one node are worth together, as `Choice.key`."""
    if floor == COUNT_ONLY or state.facts.machine is None:
        return (0, 0, 0)
    masks = state.offer(state.facts.machine, state.open_to(shape.limits)[1], shape).pick(pods, floor)
    return worth_of(state.facts.machine.table, sum(masks)).key


def _one_domain(fleet: Fleet, job: Job, shape: Shape, slots: Slots, tier: int) -> _Found | None:
    """Return the best domain of a tier, with the shares of its nodes."""
    tree = fleet.tree()
    vertices = tree.of_tier(tier)
    totals = slots.totals(vertices, one_per_node=job.one_pod_per_node)
    fits = totals >= job.pods
    grade = next((at for at in range(len(slots.grades)) if fits[:, at].any()), None)
    if grade is None:
        return None
    candidates = np.flatnonzero(fits[:, grade])
    tight = totals[candidates, -1]
    candidates = candidates[tight == tight.min()]
    histogram = slots.histogram[vertices[candidates], grade].astype(np.int64)
    if job.one_pod_per_node:
        histogram = np.column_stack([histogram[:, 0], histogram[:, 1:].sum(axis=1)])
    needed = nodes_needed(histogram, job.pods)
    equal = np.flatnonzero(needed == needed.min())
    spreader = _spreader(fleet, job, shape, slots, grade)
    spreads = (
        spreader.over(vertex, job.pods)
        for vertex in _different(fleet, slots.of_node[grade], vertices[candidates[equal]].tolist())
    )
    spread = min(spreads, key=lambda each: each.key)
    key = (tier, -slots.grades[grade], int(tight.min()), len(spread.shares), *spread.key)
    return _Found(shape, spread.shares, slots.grades[grade], key)


def _different(fleet: Fleet, of_node: npt.NDArray[np.int32], vertices: list[int]) -> list[int]:
    """Return the vertices, in order, without those that offer the same as an earlier one; of many, the first few."""
    if len(vertices) == 1:
        return vertices
    tree, kinds = fleet.tree(), fleet.kinds()
    found: dict[object, int] = {}
    for vertex in vertices[:_LOOKED_AT]:
        below = slice(tree.low[vertex], tree.high[vertex])
        # Where inner domains count, too, no two are taken for the same.
        alike = vertex if len(tree.children(vertex)) else np.sort(kinds[below][of_node[below] > 0]).tobytes()
        found.setdefault(alike, vertex)
    return list(found.values())[:_COMPARED]


def _spreader(fleet: Fleet, job: Job, shape: Shape, slots: Slots, grade: int) -> Spreader:
    of_node = slots.of_node[grade]
    floor = slots.grades[grade]

    @cache
    def worth(kind: int, pods: int) -> int:
        return -_together(fleet.example(kind), shape, pods, floor)[0]

    capped = np.minimum(of_node, 1) if job.one_pod_per_node else of_node
    return Spreader(fleet.tree(), capped, fleet.free(), job.gpus, fleet.kinds(), worth)


def _selection(cluster: Cluster, job: Job, found: _Found) -> Selection:
    tree = cluster.fleet.tree()
    nodes = [int(tree.order[share.position]) for share in found.shares]
    sets = rails([cluster.state(node) for node in nodes], [share.pods for share in found.shares], found.shape, found.floor)
    given = zip(nodes, sets, strict=True)
    return selection(cluster, job, [pod_set(cluster, node, mask) for node, masks in given for mask in masks])

"""Which pods to evict so that a pod of higher priority gets its GPUs: the cheapest that make a set which satisfies it.

The cost of an eviction, in this order: pods that a PodDisruptionBudget protects, the highest priority among the victims,
the sum of their priorities, their number, then how long they run (those that started last lose least). Kubernetes
orders candidates alike (framework/preemption, pickOneNodeForPreemption). Of equal costs, the better links come first,
then the order of nodes.

Members of a group of pods are never evicted here: a group that loses one has lost all.

How it is found: of every node it is known what an eviction there costs at least, by the number of GPUs alone. Nodes are
looked at in the order of that bound, until no other can be cheaper.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import accumulate
from operator import or_
from typing import Final, NamedTuple

import numpy as np

from pyscheduler.core import bitmap
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import InUse, NodeFacts, PodUid
from pyscheduler.core.node import Key, NodeState
from pyscheduler.core.request import Shape

__all__ = ["Evictions", "Proposal", "is_evictable", "is_leaving", "propose"]

# Of more pods than this that could go, they are spared one by one, the dearest first, not tried in all combinations.
_EXACT_MAX: Final = 10
# Nodes that can only be as cheap as the best, and are looked at for better links.
_TIES_MAX: Final = 32
# Nodes that are looked at when an eviction has been found: more than the shim asks about at a time.
_LOOKS_MAX: Final = 1000
# Kinds of pods for which what was worked out is kept, all together.
_KINDS_MAX: Final = 1000

_EVICTABLE: Final = (HoldingState.BOUND, HoldingState.FOREIGN)

# Priorities are 32-bit; counted from the lowest, so that each pod more makes a sum larger.
_LOWEST: Final = -(1 << 31)

_Cost = tuple[int, int, int, int, float]
# Nobody goes: no priority is as low.
_NO_COST: Final[_Cost] = (0, _LOWEST - 1, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Proposal:
    """`victims` go, and the pod gets `gpus` (handles) of the node; no handles where it is not known which are free."""

    node: int
    victims: tuple[PodUid, ...]
    gpus: tuple[str, ...]


def propose(
    cluster: Cluster, shape: Shape, uid: PodUid, priority: int, nodes: int, protected: Collection[PodUid] = ()
) -> Proposal | None:
    """Return the same as `Evictions.propose`, without keeping anything."""
    return Evictions(cluster).propose(shape, uid, priority, nodes, protected)


class Evictions:
    """Finds evictions. What was worked out of a node is kept until the node changes.

    Concurrency contract: one caller at a time, under the cluster's lock.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loads: dict[int, _Load] = {}
        # Numbers of shapes and priorities: pods that are alike in them find the same.
        self._kinds: dict[tuple[Shape, int], int] = {}

    def propose(
        self, shape: Shape, uid: PodUid, priority: int, nodes: int, protected: Collection[PodUid] = ()
    ) -> Proposal | None:
        """Return the cheapest eviction that makes room for the pod, None if none does.

        Parameters
        ----------
        shape, uid, priority
            The pod. Only pods of lower priority are evicted.
        nodes
            Bitmap of the nodes where an eviction may be.
        protected
            Pods whose eviction would break a PodDisruptionBudget.

        """
        pod = self._preemptor(uid, priority, shape, protected)
        best: _Found | None = None
        place, looks, ties = (0, 0), 0, 0
        for bound, node in self._most_promising(pod, nodes):
            looks += 1
            if best is not None and bound >= best.cost:
                ties += 1
            if best is not None and (bound > best.cost or ties > _TIES_MAX or looks > _LOOKS_MAX):
                break
            found = self._load(node).cheapest(pod)
            if found is None:
                continue
            here = int(self._cluster.rank(np.array([node], np.intp))[0]), node
            if best is None or (found.cost, found.key, here) < (best.cost, best.key, place):
                best, place = found, here
        return best.proposal(place[1], shape) if best else None

    def possible(self, shape: Shape, uid: PodUid, priority: int, node: int) -> bool:
        """Tell whether an eviction on this node makes room for the pod."""
        pod = self._preemptor(uid, priority, shape, ())
        return any(self._load(at).cheapest(pod) is not None for _, at in self._most_promising(pod, 1 << node))

    def _preemptor(self, uid: PodUid, priority: int, shape: Shape, protected: Collection[PodUid]) -> _Preemptor:
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
            self._loads.clear()
        return _Preemptor(uid, priority, shape, protected, self._kinds.setdefault((shape, priority), len(self._kinds)))

    def _most_promising(self, pod: _Preemptor, nodes: int) -> Iterator[tuple[_Cost, int]]:
        """Yield (least that it can cost, node), the cheapest first."""
        bounds = []
        for node in bitmap.indices(nodes & self._cluster.present & ~self._cluster.ranking(pod.shape).unresolvable).tolist():
            bound = self._load(node).bound(pod)
            if bound is not None:
                bounds.append((bound, node))
        heapq.heapify(bounds)
        while bounds:
            yield heapq.heappop(bounds)

    def _load(self, node: int) -> _Load:
        """Return what is held on the node. Whenever that changes, the node gets a new state."""
        state, load = self._cluster.state(node), self._loads.get(node)
        if load is None or load.state is not state:
            without = partial(self._cluster.state_without, node)
            load = self._loads[node] = _Load(state, self._cluster.ledger.on_node(node), without)
        return load


@dataclass(frozen=True, slots=True)
class _Preemptor:
    uid: PodUid
    priority: int
    shape: Shape
    protected: Collection[PodUid]
    kind: int
    # The rank of a node for the pod, by what decides it: many nodes are alike.
    keys: dict[object, Key | None] = field(default_factory=dict)

    def passes_over(self, held: Holding) -> bool:
        """Tell whether these GPUs are as good as free: on their way, held for this pod or for one of lower priority."""
        if held.state is HoldingState.NOMINATED:
            return held.uid == self.uid or held.priority < self.priority
        return is_leaving(held)

    def key(self, state: NodeState) -> Key | None:
        """Return the rank of a node in this state, None if the pod does not fit."""
        machine = state.facts.machine
        what = (machine.table, machine.healthy) if machine else ()
        kind = what, state.facts.allocatable, state.free, state.free_mask, state.count_only
        if kind not in self.keys:
            self.keys[kind] = state.key(self.shape)
        return self.keys[kind]

    def cost_with(self, cost: _Cost, held: Holding) -> _Cost:
        """Return the cost of an eviction with one pod more, whose priority is not lower than that of the others."""
        return self.costs_with([cost], held)[0]

    def costs_with(self, costs: Iterable[_Cost], held: Holding) -> list[_Cost]:
        """Return the same of each of several."""
        protected, priority, above, start = held.uid in self.protected, held.priority, held.priority - _LOWEST, -held.bound_at
        return [
            (some + protected, priority, total + above, number + 1, max(first, start) if highest == priority else start)
            for some, highest, total, number, first in costs
        ]


class _Found(NamedTuple):
    """The cheapest eviction on a node; `state` is the node without the victims."""

    cost: _Cost
    key: Key
    victims: tuple[PodUid, ...]
    state: NodeState

    def proposal(self, node: int, shape: Shape) -> Proposal:
        choice, machine = self.state.choose(shape), self.state.facts.machine
        return Proposal(node, self.victims, machine.handles(choice.mask) if machine and choice else ())


class _Kind(NamedTuple):
    """What of a pod decides which eviction is the cheapest on a node. `own`: the pod, if something is held for it there."""

    number: int
    protected: frozenset[PodUid]
    own: PodUid | None


_NOBODY: Final = frozenset[PodUid]()


class _Queue:
    """Pods of one node in the order in which they would go: the lowest priority first, of equal ones the newest."""

    def __init__(self, pods: Sequence[Holding], sizes: Sequence[int]) -> None:
        self.pods = pods
        self._priorities = tuple(held.priority for held in pods)
        self._largest = max(sizes, default=0)
        # Of the first n: how many GPUs they have at most, and what their priorities add up to.
        self._gpus = tuple(accumulate(sizes, initial=0))
        self._sums = tuple(accumulate((priority - _LOWEST for priority in self._priorities), initial=0))

    def below(self, priority: int) -> Sequence[Holding]:
        return self.pods[: bisect_left(self._priorities, priority)]

    def least(self, lacking: int, priority: int) -> _Cost | None:
        """Return what it costs at least to get so many GPUs from pods below a priority, None if they have not so many."""
        needed = bisect_left(self._gpus, lacking)
        if needed >= len(self._gpus) or self._priorities[needed - 1] >= priority:
            return None
        highest = self._priorities[needed - 1]
        lower = bisect_left(self._priorities, highest)
        fewest = -(-lacking // self._largest)
        # So many of the highest priority go whatever else does: at best the newest.
        highest_fewest = -((self._gpus[lower] - lacking) // self._largest)
        start = self.pods[lower + highest_fewest - 1].bound_at
        return 0, highest, self._sums[fewest - 1] + highest - _LOWEST, fewest, -start


class _Load:
    """What is held on one node as long as it is in this state."""

    def __init__(
        self, state: NodeState, holdings: Collection[Holding], without: Callable[[Collection[PodUid]], NodeState]
    ) -> None:
        self.state = state
        self.without = without
        self._holdings = tuple(holdings)
        self._reported = state.facts.in_use or {}
        pods = sorted((held for held in holdings if is_evictable(held)), key=lambda h: (h.priority, -h.bound_at, h.uid))
        self._queue = _Queue(pods, [_at_most(held, self._reported) for held in pods])
        # Held by nobody who would have to be evicted.
        self._passing = [held for held in holdings if held.state is HoldingState.NOMINATED or is_leaving(held)]
        self._bounds: dict[_Kind, _Cost | None] = {}
        self._found: dict[_Kind, _Found | None] = {}

    def bound(self, pod: _Preemptor) -> _Cost | None:
        """Return what an eviction costs at least; None if it is known that there is none."""
        kind = self._kind(pod)
        if kind in self._found:
            found = self._found[kind]
            return found.cost if found else None
        if not self._passing and not kind.protected:
            lacking = pod.shape.gpus - self.state.free
            return self._queue.least(lacking, pod.priority) if lacking > 0 else _NO_COST
        if kind not in self._bounds:
            self._bounds[kind] = self._bound_beside(pod)
        return self._bounds[kind]

    def _bound_beside(self, pod: _Preemptor) -> _Cost | None:
        """Return the bound where some pods are protected, or GPUs are on their way or held for others."""
        lacking, staying = pod.shape.gpus - self.state.free, []
        for held in self._passing:
            if pod.passes_over(held):
                lacking -= _at_most(held, self._reported)
            else:
                staying.append(held.uid)
        if lacking <= 0:
            return _NO_COST
        sizes = self.sizes(self._queue.pods, self.union(staying))
        pods = [held for held in self._queue.pods if sizes[held.uid]]
        others = [held for held in pods if held.uid not in pod.protected]
        cost = _Queue(others, [sizes[held.uid] for held in others]).least(lacking, pod.priority)
        if cost is not None or len(others) == len(pods):
            return cost
        cost = _Queue(pods, [sizes[held.uid] for held in pods]).least(lacking, pod.priority)
        if cost is None:
            return None
        lacking -= sum(sizes[held.uid] for held in others if held.priority < pod.priority)
        return -(-lacking // max(sizes[held.uid] for held in pods if held.uid in pod.protected)), *cost[1:]

    def cheapest(self, pod: _Preemptor) -> _Found | None:
        """Return the cheapest eviction, None if none makes room."""
        kind = self._kind(pod)
        if kind not in self._found:
            self._found[kind] = self._cheapest(pod)
        return self._found[kind]

    def _kind(self, pod: _Preemptor) -> _Kind:
        """Return what decides which eviction is the cheapest for the pod."""
        own = any(held.uid == pod.uid for held in self._passing)
        protected = frozenset(held.uid for held in self._queue.pods if held.uid in pod.protected) if pod.protected else _NOBODY
        return _Kind(pod.kind, protected, pod.uid if own else None)

    def _cheapest(self, pod: _Preemptor) -> _Found | None:
        trial = _Trial(self, pod, self._queue.below(pod.priority))
        lower: Sequence[Holding] = trial.lower
        if trial.key(lower) is None:
            return None
        floor, others = _NO_COST[1], [held for held in lower if held.uid not in pod.protected]
        if trial.key(others) is not None:
            lower = trial.lowest(others)
            floor = lower[-1].priority if lower else _NO_COST[1]
        if len(lower) > _EXACT_MAX:
            return trial.without_the_dearest(lower)
        return trial.cheapest(lower, floor)

    @cached_property
    def masks(self) -> Mapping[PodUid, int] | None:
        """The GPUs of each pod; None unless all are located, and no two running pods share one.

        Then what is free without some of them is simple. Where it is not, `without` tells.
        """
        machine = self.state.facts.machine
        if machine is None:
            return None
        masks = {uid: machine.mask_of(handles) for uid, handles in self._reported.items()}
        counts = {uid: len(handles) for uid, handles in self._reported.items()}
        running = dict(masks)
        for held in self._holdings:
            masks[held.uid] = masks.get(held.uid, 0) | machine.mask_of(held.gpus)
            counts[held.uid] = held.count
            if held.state is not HoldingState.NOMINATED:
                running[held.uid] = masks[held.uid]
            elif held.uid in running:
                return None
        located = all(mask.bit_count() == counts[uid] for uid, mask in masks.items())
        apart = sum(mask.bit_count() for mask in running.values()) == reduce(or_, running.values(), 0).bit_count()
        return masks if located and apart else None

    def union(self, pods: Iterable[PodUid]) -> int:
        """Return the mask of the GPUs that these pods have, as far as that is simple."""
        masks = self.masks
        return reduce(or_, (masks[uid] for uid in pods), 0) if masks is not None else 0

    def sizes(self, pods: Iterable[Holding], taken: int) -> Mapping[PodUid, int]:
        """Return how many GPUs are free at most when each of these is gone, besides those of a mask."""
        if self.masks is None:
            return {held.uid: _at_most(held, self._reported) for held in pods}
        return {held.uid: (self.masks[held.uid] & ~taken).bit_count() for held in pods}

    def gone(self, pod: _Preemptor) -> set[PodUid]:
        """Return those whose GPUs are as good as free for the pod."""
        return {held.uid for held in self._passing if pod.passes_over(held)}


class _Trial:
    """A node without some of its pods, for the pod that wants in. `lower` are those that may go and have what it could get."""

    def __init__(self, load: _Load, pod: _Preemptor, lower: Sequence[Holding]) -> None:
        self._load = load
        self._pod = pod
        self._gone = load.gone(pod)
        self._lower = [held.uid for held in lower]
        self._staying = load.union(load.masks.keys() - self._gone.union(self._lower)) if load.masks is not None else 0
        self._sizes = load.sizes(lower, self._staying)
        self.lower = [held for held in lower if self._sizes[held.uid]]

    def key(self, victims: Iterable[Holding]) -> Key | None:
        """Return the node's rank for the pod without these, None if it does not fit."""
        return self._pod.key(self._without({held.uid for held in victims}))

    def lowest(self, pods: Sequence[Holding]) -> Sequence[Holding]:
        """Return those of the lowest priorities that are enough; `pods` are enough, the lowest priority first."""
        ends = [end for end in range(len(pods)) if end == 0 or pods[end - 1].priority < pods[end].priority]
        first = bisect_left(ends, True, key=lambda end: self.key(pods[:end]) is not None)
        return pods[: ends[first]] if first < len(ends) else pods

    def cheapest(self, pods: Sequence[Holding], floor: int) -> _Found | None:
        """Return the cheapest of all evictions of some of these pods whose highest priority is not below the floor."""
        best: _Found | None = None
        for cost, victims in self._evictions(pods, floor):
            if best is not None and cost > best.cost:
                break
            state = self._without(victims)
            key = self._pod.key(state)
            if key is not None and (best is None or key < best.key):
                best = _Found(cost, key, victims, state)
        return best

    def _evictions(self, pods: Sequence[Holding], floor: int) -> list[tuple[_Cost, tuple[PodUid, ...]]]:
        """Return the sets of these pods that have enough GPUs by number, the cheapest first."""
        lacking = self._pod.shape.gpus - self._without(()).free
        costs, sets, gpus = [_NO_COST], [tuple[PodUid, ...]()], [0]
        for held in pods:
            size, uid = self._sizes[held.uid], held.uid
            costs += self._pod.costs_with(costs, held)
            sets += [(*victims, uid) for victims in sets]
            gpus += [number + size for number in gpus]
        found = zip(costs, sets, gpus, strict=True)
        return sorted((cost, victims) for cost, victims, number in found if number >= lacking and cost[1] >= floor)

    def without_the_dearest(self, pods: Sequence[Holding]) -> _Found | None:
        """Return what is left of these pods, which are enough, when those that can be are spared, the dearest first."""
        victims = list(pods)
        for dearest in sorted(pods, key=lambda held: self._pod.cost_with(_NO_COST, held), reverse=True):
            others = [held for held in victims if held is not dearest]
            if self.key(others) is not None:
                victims = others
        uids = tuple(held.uid for held in victims)
        state = self._without(uids)
        key = self._pod.key(state)
        return _Found(reduce(self._pod.cost_with, victims, _NO_COST), key, uids, state) if key is not None else None

    def _without(self, victims: Collection[PodUid]) -> NodeState:
        if self._load.masks is None:
            return self._load.without(self._gone.union(victims))
        mask = self._staying | self._load.union(uid for uid in self._lower if uid not in victims)
        return _state(self._load.state.facts, mask)


def is_evictable(held: Holding) -> bool:
    """Tell whether a pod of higher priority may have this one evicted."""
    return held.state in _EVICTABLE and not held.gang and not held.terminating


def is_leaving(held: Holding) -> bool:
    """Tell whether the pod is gone or being deleted, so that its GPUs are on their way."""
    return held.state is HoldingState.RELEASING or held.terminating


def _at_most(held: Holding, reported: InUse) -> int:
    """Return how many GPUs are free at most when this is gone."""
    if held.uid not in reported:
        return held.count
    return max(held.count, len({*held.gpus, *reported[held.uid]}))


def _state(facts: NodeFacts, held_mask: int) -> NodeState:
    """Return the state of a node where these GPUs are held and no others."""
    assert facts.machine is not None
    healthy = facts.machine.healthy
    free_mask = healthy & ~held_mask
    return NodeState(
        facts,
        present=True,
        free=min(free_mask.bit_count(), max(0, facts.allocatable - held_mask.bit_count())),
        free_mask=free_mask,
        count_only=facts.allocatable < healthy.bit_count(),
        held_mask=held_mask,
    )

"""Which pods to evict so that a pod of higher priority gets its GPUs: the cheapest that make a set which satisfies it.

The cost of an eviction, in this order: pods that a PodDisruptionBudget protects, the highest priority among the victims,
the sum of their priorities, their number, then how long they run (those that started last lose least). Kubernetes
orders candidates alike (framework/preemption, pickOneNodeForPreemption). Of equal costs, the better links come first,
then the order of nodes.

Members of a group of pods are never evicted here: a group that loses one has lost all.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Final

import numpy as np

from pyscheduler.core import bitmap
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import PodUid
from pyscheduler.core.node import Key, NodeState
from pyscheduler.core.request import Shape

__all__ = ["Proposal", "propose"]

# On a node with more pods than this that could go, they are spared one by one, the dearest first, not tried in all combinations.
_EXACT_MAX: Final = 10
# Nodes whose pods are looked at closely, the most promising first.
_NODES_MAX: Final = 200

_EVICTABLE: Final = (HoldingState.BOUND, HoldingState.FOREIGN)

# Priorities are 32-bit; counted from the lowest, so that each pod more makes a sum larger.
_LOWEST: Final = -(1 << 31)

_Cost = tuple[int, int, int, int, float]
_NO_COST: Final[_Cost] = (0, _LOWEST, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Proposal:
    """`victims` go, and the pod gets `gpus` (handles) of the node; no handles where it is not known which are free."""

    node: int
    victims: tuple[PodUid, ...]
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Preemptor:
    uid: PodUid
    priority: int
    shape: Shape
    protected: Collection[PodUid]

    def may_evict(self, held: Holding) -> bool:
        return held.state in _EVICTABLE and held.priority < self.priority and not held.gang

    def ignores(self, held: Holding) -> bool:
        """Tell whether these GPUs are as good as free: on their way, held for this pod or for one of lower priority."""
        if held.state is HoldingState.NOMINATED:
            return held.uid == self.uid or held.priority < self.priority
        return held.state is HoldingState.RELEASING

    def cost(self, victims: Sequence[Holding]) -> _Cost:
        if not victims:
            return _NO_COST
        highest = max(held.priority for held in victims)
        return (
            sum(held.uid in self.protected for held in victims),
            highest,
            sum(held.priority - _LOWEST for held in victims),
            len(victims),
            -min(held.bound_at for held in victims if held.priority == highest),
        )


def propose(
    cluster: Cluster, shape: Shape, uid: PodUid, priority: int, nodes: int, protected: Collection[PodUid] = ()
) -> Proposal | None:
    """Return the cheapest eviction that makes room for the pod, None if none does.

    Parameters
    ----------
    cluster
        What is held.
    shape, uid, priority
        The pod. Only pods of lower priority are evicted.
    nodes
        Bitmap of the nodes where an eviction may be.
    protected
        Pods whose eviction would break a PodDisruptionBudget.

    """
    pod = _Preemptor(uid, priority, shape, protected)
    best: tuple[_Cost, Key, int] | None = None
    proposal = None
    for bound, node in _most_promising(cluster, pod, nodes):
        if best is not None and bound > best[0]:
            break
        found = _on_node(cluster, pod, node)
        if found is None:
            continue
        victims, state = found
        key = pod.cost(victims), state.key(shape) or (), int(cluster.rank(np.array([node], np.intp))[0])
        if best is None or key < best:
            best, proposal = key, Proposal(node, tuple(held.uid for held in victims), _gpus(state, shape))
    return proposal


def _most_promising(cluster: Cluster, pod: _Preemptor, nodes: int) -> Iterator[tuple[_Cost, int]]:
    """Yield (least that it can cost, node), the cheapest first: what the pods of lowest cost with enough GPUs would."""
    bounds = []
    for node in bitmap.indices(nodes & cluster.present & ~cluster.ranking(pod.shape).unresolvable).tolist():
        bound = _bound(cluster, pod, node)
        if bound is not None:
            bounds.append((bound, node))
    heapq.heapify(bounds)
    for _ in range(min(_NODES_MAX, len(bounds))):
        yield heapq.heappop(bounds)


def _bound(cluster: Cluster, pod: _Preemptor, node: int) -> _Cost | None:
    """Return what the eviction costs at least, by number of GPUs alone; None if there are not enough."""
    holdings = cluster.ledger.on_node(node)
    lacking = pod.shape.gpus - cluster.state(node).free - sum(held.count for held in holdings if pod.ignores(held))
    if lacking <= 0:
        return _NO_COST
    victims = sorted(
        (held for held in holdings if pod.may_evict(held)), key=lambda held: (held.uid in pod.protected, held.priority)
    )
    needed = _first_enough([held.count for held in victims], lacking)
    if needed is None:
        return None
    last = victims[needed - 1]
    fewest = _first_enough(sorted((held.count for held in victims), reverse=True), lacking) or needed
    lowest = heapq.nsmallest(fewest, (held.priority - _LOWEST for held in victims))
    newest = max(held.bound_at for held in victims)
    # Where a protected pod has to go, one of a lower priority may do instead of what came before it.
    spared = last.uid not in pod.protected
    return (0 if spared else 1, last.priority if spared else _LOWEST, sum(lowest), fewest, -newest)


def _first_enough(counts: Sequence[int], lacking: int) -> int | None:
    """Return how many of these, from the first on, are enough together."""
    return next((at for at, total in enumerate(accumulate(counts), 1) if total >= lacking), None)


def _on_node(cluster: Cluster, pod: _Preemptor, node: int) -> tuple[tuple[Holding, ...], NodeState] | None:
    """Return the cheapest victims on a node, and what is free there without them; None if even without all it does not fit."""
    holdings = sorted(cluster.ledger.on_node(node), key=lambda held: held.uid)
    ignored = {held.uid for held in holdings if pod.ignores(held)}
    victims = tuple(held for held in holdings if pod.may_evict(held))

    def without(some: Sequence[Holding]) -> NodeState | None:
        state = cluster.state_without(node, ignored.union(held.uid for held in some))
        return state if state.key(pod.shape) is not None else None

    state = without(victims)
    if state is None:
        return None
    if len(victims) <= _EXACT_MAX:
        for some in sorted((c for size in range(len(victims)) for c in combinations(victims, size)), key=pod.cost):
            if (less := without(some)) is not None:
                return some, less
        return victims, state
    for dearest in sorted(victims, key=lambda held: pod.cost((held,)), reverse=True):
        others = tuple(held for held in victims if held is not dearest)
        if (less := without(others)) is not None:
            victims, state = others, less
    return victims, state


def _gpus(state: NodeState, shape: Shape) -> tuple[str, ...]:
    choice, machine = state.choose(shape), state.facts.machine
    return machine.handles(choice.mask) if machine and choice else ()

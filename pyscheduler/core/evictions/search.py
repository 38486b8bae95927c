"""Which pods to evict so that a pod of higher priority gets its GPUs: the cheapest that make a set which satisfies it.

Of equal costs (`evictions.cost`) the better links come first, then the order of nodes. A group goes whole or not at all.

How it is found: of every node it is known what an eviction there costs at least, by the number of GPUs alone. Nodes are
looked at in the order of that bound, until no other can be cheaper.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from pyscheduler.core import bitmap
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.cost import Cost
from pyscheduler.core.evictions.load import Load
from pyscheduler.core.evictions.single import Found, Preemptor, Single
from pyscheduler.core.evictions.units import Units
from pyscheduler.core.model import PodUid
from pyscheduler.core.request import Shape

__all__ = ["Evictions", "Proposal", "propose"]

# Nodes that can only be as cheap as the best, and are looked at for better links.
_TIES_MAX: Final = 32
# Nodes that are looked at when an eviction has been found: more than the shim asks about at a time.
_LOOKS_MAX: Final = 1000
# Kinds of pods for which what was worked out is kept, all together.
_KINDS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Proposal:
    """`victims` go, and the pod gets `gpus` (handles) of the node; no handles where it is not known which are free.

    For a group `node` is one of those where it will be, and there are no handles.
    """

    node: int
    victims: tuple[PodUid, ...]
    gpus: tuple[str, ...]


def propose(
    cluster: Cluster, shape: Shape, uid: PodUid, priority: int, nodes: int, protected: Collection[PodUid] = ()
) -> Proposal | None:
    """Return the same as `Evictions.propose`, without keeping anything."""
    return Evictions(cluster).propose(shape, uid, priority, nodes, protected)


class Evictions:
    """Finds evictions. What was worked out of a node is kept until the node changes, or a group of which members are there.

    Concurrency contract: one caller at a time, under the cluster's lock.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.units = Units(cluster)
        self._nodes: dict[int, Single] = {}
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
            Bitmap of the nodes where the pod may be.
        protected
            Pods whose eviction would break a PodDisruptionBudget.

        """
        pod = self._preemptor(uid, priority, shape, protected)
        best: Found | None = None
        place, looks, ties = (0, 0), 0, 0
        for bound, node in self._most_promising(pod, nodes):
            looks += 1
            if best is not None and bound >= best.cost:
                ties += 1
            if best is not None and (bound > best.cost or ties > _TIES_MAX or looks > _LOOKS_MAX):
                break
            found = self._on(node).cheapest(pod)
            if found is None:
                continue
            here = int(self._cluster.rank(np.array([node], np.intp))[0]), node
            if best is None or (found.cost, found.key, here) < (best.cost, best.key, place):
                best, place = found, here
        return _proposal(best, place[1], shape) if best else None

    def possible(self, shape: Shape, uid: PodUid, priority: int, node: int) -> bool:
        """Tell whether an eviction on this node makes room for the pod."""
        pod = self._preemptor(uid, priority, shape, ())
        return any(self._on(at).cheapest(pod) is not None for _, at in self._most_promising(pod, 1 << node))

    def load(self, node: int) -> Load:
        """Return what is held on the node, by what would have to go together."""
        return self._on(node).load

    def _preemptor(self, uid: PodUid, priority: int, shape: Shape, protected: Collection[PodUid]) -> Preemptor:
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
            self._nodes.clear()
        return Preemptor(uid, priority, shape, protected, self._kinds.setdefault((shape, priority), len(self._kinds)))

    def _most_promising(self, pod: Preemptor, nodes: int) -> Iterator[tuple[Cost, int]]:
        """Yield (least that it can cost, node), the cheapest first."""
        bounds = []
        for node in bitmap.indices(nodes & self._cluster.present & ~self._cluster.ranking(pod.shape).unresolvable).tolist():
            bound = self._on(node).bound(pod)
            if bound is not None:
                bounds.append((bound, node))
        heapq.heapify(bounds)
        while bounds:
            yield heapq.heappop(bounds)

    def _on(self, node: int) -> Single:
        """Return the search on the node. Whenever what is held there changes, the node gets a new state."""
        state, known = self._cluster.state(node), self._nodes.get(node)
        if known is None or known.load.state is not state or not known.load.is_current():
            without = partial(self._cluster.state_without, node)
            known = self._nodes[node] = Single(Load(state, self._cluster.ledger.on_node(node), self.units, without))
        return known


def _proposal(found: Found, node: int, shape: Shape) -> Proposal:
    choice, machine = found.state.choose(shape), found.state.facts.machine
    return Proposal(node, found.victims, machine.handles(choice.mask) if machine and choice else ())

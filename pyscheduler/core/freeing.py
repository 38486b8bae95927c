"""What would have to be freed for a job that does not fit, or that it never could."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyscheduler.core import bitmap
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.job import NO_LIMITS, Job
from pyscheduler.core.machine.admission import rules
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape

__all__ = ["for_gang", "for_one_pod"]

Ints = npt.NDArray[np.int64]


def for_one_pod(cluster: Cluster, eligible: int | None, shapes: Sequence[Shape]) -> str:
    """Return the node where fewest GPUs would have to be freed, of those that could take the pod if they were empty."""
    fleet = cluster.fleet
    positions = _positions(cluster, eligible)
    freest = positions[np.argsort(-fleet.free()[positions], kind="stable")]
    # Nodes of one kind offer the same.
    _, firsts = np.unique(fleet.kinds()[freest], return_index=True)
    least, name = None, ""
    for position in freest[np.sort(firsts)].tolist():
        state = cluster.state(int(fleet.tree().order[position]))
        if least is not None and shapes[0].gpus - state.free >= least:
            break
        for shape in shapes:
            lacking = max(0, shape.gpus - _free_of(state, shape))
            if (least is None or lacking < least) and _could(state, shape):
                least, name = lacking, state.facts.name
    if least is None:
        return "no node could take it even if it were empty: ask for fewer GPUs, or add a larger node"
    return f"{plural(least)} more would have to be freed on {name}" if least else f"other GPUs would have to be free on {name}"


def _free_of(state: NodeState, shape: Shape) -> int:
    """Return how many free GPUs are of the model that the shape asks for."""
    machine = state.facts.machine
    if machine is None or shape.limits.model is None:
        return state.free
    return min(state.free, (state.free_mask & rules(machine.table.device_class, shape.limits).gpus).bit_count())


def for_gang(cluster: Cluster, job: Job, eligible: int | None, shapes: Sequence[Shape]) -> str:
    """Return how many GPUs would have to be freed for several pods, or how many of them there would be room for at most.

    The number of GPUs is the least that it could take: limits and partitions may ask for more.
    """
    rooms = [room for shape in shapes for room in _rooms(cluster, job, eligible, shape)]
    enough = [room for room in rooms if room.most >= job.pods]
    if enough:
        least, lacking = min((room.cost(job.pods), job.pods - room.now) for room in enough)
        return f"at least {plural(least, 'more GPU')} would have to be freed, for {plural(lacking, 'more pod')}"
    everywhere = [_room(cluster, job, shape, _positions(cluster, eligible)) for shape in shapes]
    whole = max(room.most for room in everywhere)
    if not whole:
        return "no node could take one of them even if it were empty: ask for fewer GPUs per pod, or add larger nodes"
    if job.required_level and whole >= job.pods:
        most = max((room.most for room in rooms), default=0)
        return f"one {job.required_level} holds {plural(most, 'such pod')} even if it were empty: ask for fewer, or for a wider level"
    return f"the cluster holds {plural(whole, 'such pod')} even if it were empty: ask for fewer, or add nodes"


@dataclass(frozen=True, slots=True)
class _Room:
    """Nodes of one domain.

    Attributes
    ----------
    now, most
        Pods that fit now, and if nothing were held.
    steps
        What each of the others costs at least, in GPUs, and how many there are at that price.
    """

    now: int
    most: int
    steps: Counter[int]

    def cost(self, pods: int) -> int:
        """Return how many GPUs have to be freed at least until so many pods fit."""
        lacking, total = pods - self.now, 0
        for price in sorted(self.steps):
            taken = min(self.steps[price], lacking)
            total, lacking = total + price * taken, lacking - taken
        return total


def _rooms(cluster: Cluster, job: Job, eligible: int | None, shape: Shape) -> Iterator[_Room]:
    """Yield the room of each domain of the required level, without one of the whole cluster."""
    tree, positions = cluster.fleet.tree(), _positions(cluster, eligible)
    level = job.required_level
    if level is None:
        yield _room(cluster, job, shape, positions)
    elif level in tree.own:
        domains = tree.own[level][tree.order[positions]]
        for domain in np.unique(domains[domains >= 0]):
            yield _room(cluster, job, shape, positions[domains == domain])
    elif level in tree.levels:
        for vertex in tree.of_tier(tree.levels.index(level)).tolist():
            yield _room(cluster, job, shape, positions[(tree.low[vertex] <= positions) & (positions < tree.high[vertex])])
    if level is not None:
        # A node is in one domain of any level with itself; nodes of one kind offer the same.
        _, firsts = np.unique(cluster.fleet.kinds()[positions], return_index=True)
        for first in firsts.tolist():
            yield _room(cluster, job, shape, positions[first : first + 1])


def _room(cluster: Cluster, job: Job, shape: Shape, positions: Ints) -> _Room:
    kinds, numbers = np.unique(cluster.fleet.kinds()[positions], return_counts=True)
    now = most = 0
    steps: Counter[int] = Counter()
    for kind, nodes in zip(kinds.tolist(), numbers.tolist(), strict=True):
        state = cluster.fleet.example(kind)
        fits = max((count for _, count in state.supply(shape)), default=0)
        could = max(fits, _could_hold(state, shape))
        if job.one_pod_per_node:
            fits, could = min(fits, 1), min(could, 1)
        now, most = now + nodes * fits, most + nodes * could
        paid = 0
        for pods in range(fits + 1, could + 1):
            # Where GPUs are free but do not go together, at least one other must be.
            price = max(1, pods * shape.gpus - state.free)
            steps[price - paid] += nodes
            paid = price
    return _Room(now, most, steps)


def _could_hold(state: NodeState, shape: Shape) -> int:
    """Return how many pods of the shape the node could take if nothing were held there."""
    if not _could(state, shape):
        return 0
    machine, by_count = state.facts.machine, state.facts.allocatable // shape.gpus
    return by_count if machine is None else min(by_count, state.offer(machine, machine.healthy, shape).slots)


def _could(state: NodeState, shape: Shape) -> bool:
    """Tell whether the node could take the shape if nothing were held there."""
    if not state.fits(shape):
        return False
    machine = state.facts.machine
    if machine is None:
        return shape.limits == NO_LIMITS
    if machine.healthy.bit_count() < shape.gpus:
        return False
    return machine.table.choose(machine.healthy, shape.gpus, shape.limits) is not None


def _positions(cluster: Cluster, eligible: int | None) -> Ints:
    """Return the positions of the nodes that may be used, in order."""
    among = cluster.present if eligible is None else eligible & cluster.present
    return np.sort(cluster.fleet.tree().position[bitmap.indices(among)])

"""What would have to be freed for a job that does not fit, or that it never could."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core import bitmap
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.fleet import Fleet
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, MergeTree
from pyscheduler.core.job import Job
from pyscheduler.core.machine.admission import rules
from pyscheduler.core.model import NodeFacts
from pyscheduler.core.node import NodeState, derive
from pyscheduler.core.request import Shape

__all__ = ["Advice", "Room", "advice", "domains", "holds", "holds_each", "positions_of", "room_of"]

Ints = npt.NDArray[np.int64]

# What empty nodes hold, by what decides it: asked for with every refusal, and alike on most nodes.
_EMPTY_MAX: Final = 1 << 12
_EMPTY: Final[dict[object, int]] = {}


@dataclass(frozen=True, slots=True)
class Advice:
    """What freeing GPUs can do for a job.

    Attributes
    ----------
    enough
        Whether the job would fit if nothing were held.
    text
        What would have to be freed; where that is not enough, how much there is room for at most.
    """

    enough: bool
    text: str


@dataclass(frozen=True, slots=True)
class Room:
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
        lacking, total = max(0, pods - self.now), 0
        for price in sorted(self.steps):
            taken = min(self.steps[price], lacking)
            total, lacking = total + price * taken, lacking - taken
        return total


def advice(cluster: Cluster, job: Job, eligible: int | None, shapes: Sequence[Shape]) -> Advice:
    """Return what would have to be freed. Parameters as of `refusing.refusal`."""
    positions = positions_of(cluster, eligible)
    return _for_one_pod(cluster, positions, shapes) if job.pods == 1 else _for_gang(cluster.fleet, job, positions, shapes)


def positions_of(cluster: Cluster, eligible: int | None) -> Ints:
    """Return the positions of the nodes that may be used, in order."""
    among = cluster.present if eligible is None else eligible & cluster.present
    return np.sort(cluster.fleet.tree().position[bitmap.indices(among)])


def domains(tree: MergeTree, positions: Ints, level: str | None) -> Ints:
    """Return a number for the domain of this level, or None: of the whole cluster, that each position is in.

    Shape (positions,), from 0. Where no domain of the level is known, that of the widest nearer level counts, or the node alone.
    """
    if level is None:
        return np.zeros_like(positions)
    found, most = positions, len(tree.order)
    for tier in range((NODE_LEVEL, *tree.levels).index(level)):
        known = tree.own[tree.levels[tier]][tree.order[positions]] if tree.own else _vertices(tree, positions, tier)
        found = np.where(known >= 0, (tier + 1) * most + known, found)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _vertices(tree: MergeTree, positions: Ints, tier: int) -> Ints:
    """Return which vertex of the tier, counted from its first, holds each position; -1 where none does."""
    vertices = tree.of_tier(tier)
    if not len(vertices):
        return np.full_like(positions, -1)
    at = np.searchsorted(tree.low[vertices], positions, side="right") - 1
    return np.where((at >= 0) & (positions < tree.high[vertices][at]), at, -1)


def holds(facts: NodeFacts, shape: Shape) -> int:
    """Return how many pods of the shape the node could take if nothing were held there."""
    machine = facts.machine
    # A pure function of this: a race between threads writes the same value twice.
    # How fast its cards are decides nothing here.
    left_out = facts.cards.excluded, facts.cards.unlocated
    query = facts.resource, facts.allocatable, (machine.table, machine.healthy) if machine else None, left_out, shape
    found = _EMPTY.get(query)
    if found is None:
        if len(_EMPTY) >= _EMPTY_MAX:
            _EMPTY.clear()
        found = _EMPTY[query] = _fits(derive(replace(facts, in_use=None), ()), shape)
    return found


def holds_each(fleet: Fleet, job: Job, shape: Shape, positions: Ints) -> Ints:
    """Return how many of the job's pods the node at each position could take if nothing were held, shape (positions,)."""
    kinds, back = np.unique(fleet.kinds()[positions], return_inverse=True)
    return np.array([_could(fleet.example(kind), job, shape)[1] for kind in kinds.tolist()], np.int64)[back]


def room_of(job: Job, shape: Shape, states: Iterable[tuple[NodeState, int]]) -> Room:
    """Return the room of a domain for a job, given the states of its nodes and how many nodes are in each."""
    now = most = 0
    steps: Counter[int] = Counter()
    for state, nodes in states:
        fits, could = _could(state, job, shape)
        now, most = now + nodes * fits, most + nodes * could
        paid, free = 0, _free_of(state, shape)
        for pods in range(fits + 1, could + 1):
            # Where GPUs are free but do not go together, at least one other must be.
            price = max(1, pods * shape.gpus - free)
            steps[price - paid] += nodes
            paid = price
    return Room(now, most, steps)


def _could(state: NodeState, job: Job, shape: Shape) -> tuple[int, int]:
    """Return how many of the job's pods fit on the node now, and how many could if nothing were held there."""
    # One pod is chosen for, several are counted: where an unhealthy GPU is in use, the number alone may bind.
    fits = int(state.key(shape) is not None) if job.pods == 1 else _fits(state, shape)
    could = max(fits, holds(state.facts, shape))
    return (min(fits, 1), min(could, 1)) if job.one_pod_per_node else (fits, could)


def _fits(state: NodeState, shape: Shape) -> int:
    return max((count for _, count in state.supply(shape)), default=0)


def _free_of(state: NodeState, shape: Shape) -> int:
    """Return how many free GPUs are of the model that the shape asks for."""
    machine = state.facts.machine
    free, mask = state.open_to(shape.limits)
    if machine is None or shape.limits.model is None:
        return free
    return min(free, (mask & rules(machine.table.device_class, shape.limits).gpus).bit_count())


def _for_one_pod(cluster: Cluster, positions: Ints, shapes: Sequence[Shape]) -> Advice:
    """Name the node where fewest GPUs would have to be freed, of those that could take the pod if they were empty."""
    fleet = cluster.fleet
    # Nodes of one kind offer the same.
    kinds, firsts = np.unique(fleet.kinds()[positions], return_index=True)
    freest = sorted(
        (-fleet.example(kind).free, position) for kind, position in zip(kinds.tolist(), positions[firsts].tolist(), strict=True)
    )
    least, name = None, ""
    for free, position in freest:
        if least is not None and shapes[0].gpus + free >= least:
            break
        state = cluster.state(int(fleet.tree().order[position]))
        for shape in shapes:
            lacking = max(0, shape.gpus - _free_of(state, shape))
            if (least is None or lacking < least) and holds(state.facts, shape):
                least, name = lacking, state.facts.name
    if least is None:
        return Advice(enough=False, text="no node could take it even if it were empty: ask for fewer GPUs, or add a larger node")
    more = f"{plural(least)} more would have to be freed on {name}" if least else f"other GPUs would have to be free on {name}"
    return Advice(enough=True, text=more)


def _for_gang(fleet: Fleet, job: Job, positions: Ints, shapes: Sequence[Shape]) -> Advice:
    """Tell how many GPUs would have to be freed for several pods, or how many of them there would be room for at most.

    The number of GPUs is the least that it could take: limits and partitions may ask for more.
    """
    known = job.required_level in {None, NODE_LEVEL, *fleet.tree().levels}
    numbers = domains(fleet.tree(), positions, job.required_level) if known else positions
    rooms, most, whole = [], 0, 0
    for shape in shapes:
        could = holds_each(fleet, job, shape, positions)
        totals = np.bincount(numbers, could).astype(np.int64) if known else np.zeros(0, np.int64)
        most, whole = max(most, int(totals.max(initial=0))), max(whole, int(could.sum()))
        rooms += list(_rooms(fleet, job, shape, positions, numbers, totals >= job.pods))
    if rooms:
        least, lacking = min((room.cost(job.pods), job.pods - room.now) for room in rooms)
        text = f"at least {plural(least, 'more GPU')} would have to be freed, for {plural(lacking, 'more pod')}"
        return Advice(enough=True, text=text)
    if not whole:
        text = "no node could take one of them even if it were empty: ask for fewer GPUs per pod, or add larger nodes"
    elif job.required_level and whole >= job.pods:
        such = plural(most, "such pod")
        text = f"one {job.required_level} holds {such} even if it were empty: ask for fewer, or for a wider level"
    else:
        text = f"the cluster holds {plural(whole, 'such pod')} even if it were empty: ask for fewer, or add nodes"
    return Advice(enough=False, text=text)


def _rooms(fleet: Fleet, job: Job, shape: Shape, positions: Ints, numbers: Ints, wanted: npt.NDArray[np.bool_]) -> Iterator[Room]:
    """Yield the room of each domain whose number is wanted; of domains with nodes of the same kinds, once."""
    if not wanted.any():
        return
    kinds = fleet.kinds()[positions]
    by_domain = np.lexsort((kinds, numbers))
    ends = np.searchsorted(numbers[by_domain], np.flatnonzero(wanted), side="right")
    starts = np.searchsorted(numbers[by_domain], np.flatnonzero(wanted), side="left")
    alike = {
        kinds[by_domain[start:end]].tobytes(): by_domain[start:end]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    }
    for members in alike.values():
        found, counts = np.unique(kinds[members], return_counts=True)
        yield room_of(job, shape, zip(map(fleet.example, found.tolist()), counts.tolist(), strict=True))

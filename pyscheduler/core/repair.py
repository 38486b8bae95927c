"""Which unhealthy GPUs would have to be healthy for a job that would not fit even if nothing were held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.freeing import domains, holds, holds_each, positions_of, room_of
from pyscheduler.core.job import Job
from pyscheduler.core.machine.admission import rules
from pyscheduler.core.model import NodeFacts
from pyscheduler.core.node import NodeState, derive
from pyscheduler.core.request import Shape

__all__ = ["Repair", "fewest", "text"]

Ints = npt.NDArray[np.int64]

# (pods, mask): with these GPUs healthy, so many more pods could be on the node.
_Gains = list[tuple[int, int]]

# Sets of unhealthy GPUs that are tried on one node: all sets of ten.
_TRIES: Final = 1 << 10
# GPUs that a sentence names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Repair:
    """GPUs that are unhealthy, and enough for the job once they are healthy and nothing is held.

    Attributes
    ----------
    masks
        Which GPUs, by node.
    freed
        How many others would have to be freed besides, at least; 0 if none.
    """

    masks: Mapping[int, int]
    freed: int

    @property
    def gpus(self) -> int:
        """How many they are."""
        return sum(mask.bit_count() for mask in self.masks.values())


def fewest(cluster: Cluster, job: Job, eligible: int | None, shapes: Sequence[Shape]) -> Repair | None:
    """Return the fewest GPUs whose repair is enough, None if none is. Parameters as of `refusing.refusal`.

    Of domains where equally many are, that where fewest others would have to be freed. Of more than ten unhealthy GPUs on
    one node not all sets are tried: where limits or partitions bind there, fewer may be enough.
    """
    if not cluster.unhealthy() or (job.pods > 1 and job.required_level not in {None, NODE_LEVEL, *cluster.fleet.tree().levels}):
        return None
    positions = positions_of(cluster, eligible)
    level = NODE_LEVEL if job.pods == 1 else job.required_level
    numbers = domains(cluster.fleet.tree(), positions, level)
    found = (repair for shape in shapes for repair in _repairs(cluster, job, shape, positions, numbers))
    return min(found, key=lambda repair: (repair.gpus, repair.freed), default=None)


def text(cluster: Cluster, job: Job, repair: Repair) -> str:
    """Return what to do, in one sentence."""
    nodes = cluster.table.names
    gpus: list[tuple[str, str]] = []
    for node, mask in repair.masks.items():
        machine = cluster.state(node).facts.machine
        gpus += [(each, nodes[node]) for gpu, each in enumerate(machine.ids) if mask >> gpu & 1] if machine else []
    on_one = len(repair.masks) == 1
    named = [gpu if on_one else f"{gpu} on {node}" for gpu, node in gpus[:_NAMED]]
    if len(gpus) > _NAMED:
        named.append(f"{len(gpus) - _NAMED} more")
    listed = f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
    where = f" on {gpus[0][1]}" if on_one and job.pods > 1 else ""
    healthy = f"{listed}{where} {'is' if len(gpus) == 1 else 'are'} healthy"
    if len(gpus) > _NAMED:
        healthy = f"{len(gpus)} GPUs{where} are healthy ({listed})"
    more = f"at least {plural(repair.freed, 'more GPU')} {'is' if repair.freed == 1 else 'are'} freed"
    goal = f"it could go to {gpus[0][1]}" if job.pods == 1 else "it would fit"
    return f"{goal} once {healthy}" + (f" and {more}" if repair.freed else "")


def _repairs(cluster: Cluster, job: Job, shape: Shape, positions: Ints, numbers: Ints) -> Iterator[Repair]:
    """Yield a repair for each domain where one is enough; `numbers` as of `freeing.domains`."""
    tree = cluster.fleet.tree()
    could = holds_each(cluster.fleet, job, shape, positions)
    totals = np.bincount(numbers, could).astype(np.int64)
    by_domain: dict[int, dict[int, _Gains]] = {}
    known: dict[object, _Gains] = {}
    for index in _sick(cluster, positions):
        node = int(tree.order[positions[index]])
        state, without = cluster.state(node), int(could[index])
        # Nodes that agree in this gain the same.
        alike = state.kind, state.held_mask & _unhealthy(state)
        if alike not in known:
            known[alike] = _gains(state, shape, without, 1 if job.one_pod_per_node else job.pods)
        by_domain.setdefault(int(numbers[index]), {})[node] = known[alike]
    for number, gains in sorted(by_domain.items()):
        if masks := _cheapest(gains, job.pods - int(totals[number])):
            yield Repair(masks, _freed(cluster, job, shape, positions[numbers == number], masks))


def _sick(cluster: Cluster, positions: Ints) -> list[int]:
    """Return the indices of the positions whose nodes have unhealthy GPUs, those with most free GPUs first."""
    tree = cluster.fleet.tree()
    sick = np.flatnonzero(np.isin(positions, tree.position[cluster.unhealthy()]))
    return sorted(sick.tolist(), key=lambda index: -cluster.state(int(tree.order[positions[index]])).free)


def _unhealthy(state: NodeState) -> int:
    machine = state.facts.machine
    return (1 << len(machine.ids)) - 1 & ~machine.healthy if machine else 0


def _gains(state: NodeState, shape: Shape, without: int, most: int) -> _Gains:
    """Return what repairs of a node gain, rising: of those that gain as much, one of the fewest GPUs.

    Parameters
    ----------
    without
        Pods that the node could take as it is, if nothing were held there.
    most
        Pods that matter.

    """
    machine = state.facts.machine
    if machine is None or state.facts.resource != shape.resource:
        return []
    of_model = rules(machine.table.device_class, shape.limits).gpus
    sick = [gpu for gpu in range(len(machine.ids)) if _unhealthy(state) & of_model & 1 << gpu]
    # Those that nobody holds first.
    sick.sort(key=lambda gpu: state.held_mask >> gpu & 1)
    healthy = (machine.healthy & of_model).bit_count()
    found: _Gains = []
    best, tries = without, _TRIES
    for size in range(1, len(sick) + 1):
        bound = min(most, (healthy + size) // shape.gpus)
        for some in combinations(sick, size) if bound > best else ():
            mask = sum(1 << gpu for gpu in some)
            pods = min(most, holds(_repaired(state.facts, mask), shape))
            if pods > best:
                best = pods
                found.append((pods - without, mask))
            tries -= 1
            if best == bound:
                break
            if not tries:
                return found + _of_all(state.facts, shape, sick, without, min(best, most))
    return found


def _of_all(facts: NodeFacts, shape: Shape, sick: Sequence[int], without: int, best: int) -> _Gains:
    """Return what a repair of all these gains, if that is more than `best`, without those that it does not take."""
    mask = sum(1 << gpu for gpu in sick)
    pods = holds(_repaired(facts, mask), shape)
    if pods <= best:
        return []
    for gpu in reversed(sick):
        if holds(_repaired(facts, mask & ~(1 << gpu)), shape) >= pods:
            mask &= ~(1 << gpu)
    return [(pods - without, mask)]


def _repaired(facts: NodeFacts, mask: int) -> NodeFacts:
    """Return the node with these GPUs healthy: as long as one is not, its kubelet offers one GPU fewer."""
    machine = facts.machine
    if machine is None:
        return facts
    offered = max(facts.allocatable, min(len(machine.ids), facts.allocatable + mask.bit_count()))
    return replace(facts, allocatable=offered, machine=replace(machine, healthy=machine.healthy | mask))


def _cheapest(gains: Mapping[int, _Gains], lacking: int) -> dict[int, int]:
    """Return the fewest GPUs, masks by node, with which at least so many more pods fit; empty if there are none.

    Of equally good nodes the earlier ones are taken.
    """
    useful = {node: options for node, options in gains.items() if options}
    if lacking <= 0 or sum(options[-1][0] for options in useful.values()) < lacking:
        return {}
    # By number of pods at least gained: how few GPUs that takes on the nodes so far, and which option of each node it takes.
    never = 1 << 40
    cost = np.full(lacking + 1, never, np.int64)
    cost[0] = 0
    taken = np.full((len(useful), lacking + 1), -1, np.int16)
    for row, options in zip(taken, useful.values(), strict=True):
        before = cost.copy()
        for option, (pods, mask) in enumerate(options):
            with_it = before[np.maximum(np.arange(lacking + 1) - pods, 0)] + mask.bit_count()
            row[with_it < cost] = option
            cost = np.minimum(cost, with_it)
    masks: dict[int, int] = {}
    left = lacking
    for row, (node, options) in zip(taken[::-1], reversed(useful.items()), strict=True):
        if row[left] >= 0:
            pods, masks[node] = options[row[left]]
            left = max(0, left - pods)
    return dict(reversed(masks.items()))


def _freed(cluster: Cluster, job: Job, shape: Shape, positions: Ints, masks: Mapping[int, int]) -> int:
    """Return how many GPUs would have to be freed at least in this domain once those of the masks are healthy."""
    fleet = cluster.fleet
    others = positions[~np.isin(positions, fleet.tree().position[list(masks)])]
    kinds, counts = np.unique(fleet.kinds()[others], return_counts=True)
    states = list(zip(map(fleet.example, kinds.tolist()), counts.tolist(), strict=True))
    for node, mask in masks.items():
        facts = _repaired(cluster.state(node).facts, mask)
        states.append((derive(facts, cluster.ledger.on_node(node)), 1))
    return room_of(job, shape, states).cost(job.pods)

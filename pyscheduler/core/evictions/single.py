"""The cheapest eviction on one node that makes room for one pod."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from pyscheduler.core.evictions.cost import NO_COST, Cost, plus, total
from pyscheduler.core.evictions.load import Load, Trial, at_most
from pyscheduler.core.evictions.units import Unit, in_order, is_leaving
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import PodUid
from pyscheduler.core.node import Key, NodeState
from pyscheduler.core.request import Shape

__all__ = ["Found", "Preemptor", "Single"]

# Of more units than this that could go, they are spared one by one, the dearest first, not tried in all combinations.
_EXACT_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A pod that wants in. Pods with one number in `kind` are alike in shape and priority."""

    uid: PodUid
    priority: int
    shape: Shape
    protected: Collection[PodUid]
    kind: int
    given: frozenset[PodUid] = frozenset()
    # The rank of a node for the pod, by what decides it: many nodes are alike.
    keys: dict[object, Key | None] = field(default_factory=dict)
    _costs: dict[Unit, Cost] = field(default_factory=dict)

    def passes_over(self, held: Holding) -> bool:
        """Tell whether these GPUs are as good as free: on their way, held for this pod or for one of lower priority."""
        if held.state is HoldingState.NOMINATED:
            return held.uid == self.uid or held.priority < self.priority
        return is_leaving(held)

    def key(self, state: NodeState) -> Key | None:
        """Return the rank of a node in this state, None if the pod does not fit."""
        kind = state.kind
        if kind not in self.keys:
            self.keys[kind] = state.key(self.shape)
        return self.keys[kind]

    def lacking(self, state: NodeState) -> int:
        """Return how many GPUs more than are free it needs, by their number."""
        return self.shape.gpus - state.open_to(self.shape.limits)[0]

    def cost(self, unit: Unit) -> Cost:
        """Return what it costs that a unit goes."""
        if unit not in self._costs:
            self._costs[unit] = unit.cost(self.protected)
        return self._costs[unit]

    def is_protected(self, unit: Unit) -> bool:
        """Tell whether a PodDisruptionBudget protects a pod of the unit."""
        return self.cost(unit)[0] > 0


class Found(NamedTuple):
    """The cheapest eviction on a node; `state` is the node without the victims."""

    cost: Cost
    key: Key
    victims: tuple[PodUid, ...]
    state: NodeState


class _Kind(NamedTuple):
    """What of a pod decides which eviction is the cheapest on a node. `own`: the pod, if something is held for it there.

    `protected` are the units of which a budget protects a pod, with the number of such pods.
    """

    number: int
    protected: frozenset[tuple[Unit, int]]
    own: PodUid | None


_NOBODY: Final = frozenset[tuple[Unit, int]]()


class _Queue:
    """Units of one node in the order in which they would go, with the GPUs that each has there at most."""

    def __init__(self, units: Sequence[Unit], sizes: Sequence[int]) -> None:
        self.units = units
        self._priorities = tuple(unit.priority for unit in units)
        self._largest = max(sizes, default=0)
        # Of the first n: how many GPUs they have at most. Of the n that have the least of it: the sum of priorities, and pods.
        self._gpus = tuple(accumulate(sizes, initial=0))
        self._sums = tuple(accumulate(sorted(unit.total for unit in units), initial=0))
        self._pods = tuple(accumulate(sorted(len(unit.pods) for unit in units), initial=0))

    def below(self, priority: int) -> Sequence[Unit]:
        return self.units[: bisect_left(self._priorities, priority)]

    def least(self, lacking: int, priority: int) -> Cost | None:
        """Return what it costs at least to get so many GPUs from units below a priority, None if they have not so many."""
        needed = bisect_left(self._gpus, lacking)
        if needed >= len(self._gpus) or self._priorities[needed - 1] >= priority:
            return None
        highest = self._priorities[needed - 1]
        lower = bisect_left(self._priorities, highest)
        fewest = -(-lacking // self._largest)
        # So many of the highest priority go whatever else does: at best the newest.
        highest_fewest = -((self._gpus[lower] - lacking) // self._largest)
        start = self.units[lower + highest_fewest - 1].start
        equal = [unit for unit in self.units[lower:] if unit.priority == highest]
        least, pods = min(unit.total for unit in equal), min(len(unit.pods) for unit in equal)
        return 0, highest, self._sums[fewest - 1] + least, self._pods[fewest - 1] + pods, start


class Single:
    """Finds evictions on one node. What was worked out for pods of a kind is kept as long as the load is."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._bounds: dict[_Kind, Cost | None] = {}
        self._found: dict[_Kind, Found | None] = {}

    @cached_property
    def _queue(self) -> _Queue:
        return _Queue(self.load.units, self.load.most())

    def bound(self, pod: Preemptor) -> Cost | None:
        """Return what an eviction costs at least; None if it is known that there is none."""
        kind = self._kind(pod)
        if kind in self._found:
            found = self._found[kind]
            return found.cost if found else None
        if not self.load.passing and not kind.protected:
            lacking = pod.lacking(self.load.state)
            return self._queue.least(lacking, pod.priority) if lacking > 0 else NO_COST
        if kind not in self._bounds:
            self._bounds[kind] = self._bound_beside(pod)
        return self._bounds[kind]

    def cheapest(self, pod: Preemptor) -> Found | None:
        """Return the cheapest eviction, None if none makes room."""
        kind = self._kind(pod)
        if kind not in self._found:
            self._found[kind] = self._cheapest(pod)
        return self._found[kind]

    def _kind(self, pod: Preemptor) -> _Kind:
        """Return what decides which eviction is the cheapest for the pod."""
        own = any(held.uid == pod.uid for held in self.load.passing)
        protected = frozenset((u, pod.cost(u)[0]) for u in self.load.units if pod.is_protected(u)) if pod.protected else _NOBODY
        return _Kind(pod.kind, protected, pod.uid if own else None)

    def _bound_beside(self, pod: Preemptor) -> Cost | None:
        """Return the bound where some pods are protected, or GPUs are on their way or held for others."""
        load, lacking, staying = self.load, pod.lacking(self.load.state), []
        for held in load.passing:
            if pod.passes_over(held):
                lacking -= at_most(held, load.state.facts.in_use or {})
            else:
                staying.append(held.uid)
        if lacking <= 0:
            return NO_COST
        sizes = load.sizes(load.union(staying))
        units = [unit for unit in load.units if sizes[unit]]
        others = [unit for unit in units if not pod.is_protected(unit)]
        cost = _Queue(others, [sizes[unit] for unit in others]).least(lacking, pod.priority)
        if cost is not None or len(others) == len(units):
            return cost
        cost = _Queue(units, [sizes[unit] for unit in units]).least(lacking, pod.priority)
        if cost is None:
            return None
        lacking -= sum(sizes[unit] for unit in others if unit.priority < pod.priority)
        return -(-lacking // max(sizes[unit] for unit in units if pod.is_protected(unit))), *cost[1:]

    def _cheapest(self, pod: Preemptor) -> Found | None:
        search = _Search(Trial(self.load, pod, set(self._queue.below(pod.priority))), pod)
        units: Sequence[Unit] = search.units
        if search.key(units) is None:
            return None
        floor, others = NO_COST[1], [unit for unit in units if not pod.is_protected(unit)]
        if search.key(others) is not None:
            units = search.lowest(others)
            floor = units[-1].priority if units else NO_COST[1]
        if len(units) > _EXACT_MAX:
            return search.without_the_dearest(units)
        return search.cheapest(units, floor)


class _Search:
    """Tries who of one node goes."""

    def __init__(self, trial: Trial, pod: Preemptor) -> None:
        self._trial = trial
        self._pod = pod
        self.units = trial.units

    def key(self, victims: Iterable[Unit]) -> Key | None:
        """Return the node's rank for the pod without these, None if it does not fit."""
        return self._pod.key(self._trial.state(set(victims)))

    def lowest(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Return those of the lowest priorities that are enough; `units` are enough, the lowest priority first."""
        ends = [end for end in range(len(units)) if end == 0 or units[end - 1].priority < units[end].priority]
        first = bisect_left(ends, True, key=lambda end: self.key(units[:end]) is not None)
        return units[: ends[first]] if first < len(ends) else units

    def cheapest(self, units: Sequence[Unit], floor: int) -> Found | None:
        """Return the cheapest of all evictions of some of these units whose highest priority is not below the floor."""
        best: Found | None = None
        for cost, victims in self._evictions(units, floor):
            if best is not None and cost > best.cost:
                break
            state = self._trial.state(victims)
            key = self._pod.key(state)
            if key is not None and (best is None or key < best.key):
                best = Found(cost, key, _pods(victims), state)
        return best

    def _evictions(self, units: Sequence[Unit], floor: int) -> list[tuple[Cost, tuple[Unit, ...]]]:
        """Return the sets of these units that have enough GPUs by number, the cheapest first."""
        sizes: Mapping[Unit, int] = self._trial.sizes
        lacking = self._pod.lacking(self._trial.state(()))
        costs, sets, gpus = [NO_COST], [tuple[Unit, ...]()], [0]
        for unit in units:
            cost, size = self._pod.cost(unit), sizes[unit]
            costs += [plus(some, cost) for some in costs]
            sets += [(*victims, unit) for victims in sets]
            gpus += [number + size for number in gpus]
        found = zip(costs, sets, gpus, strict=True)
        enough = [(cost, victims) for cost, victims, number in found if number >= lacking and cost[1] >= floor]
        return sorted(enough, key=lambda each: (each[0], [unit.name for unit in each[1]]))

    def without_the_dearest(self, units: Sequence[Unit]) -> Found | None:
        """Return what is left of these units, which are enough, when those that can be are spared, the dearest first."""
        victims = set(units)
        for dearest in sorted(units, key=lambda unit: (self._pod.cost(unit), unit.name), reverse=True):
            if self.key(victims - {dearest}) is not None:
                victims.discard(dearest)
        state, left = self._trial.state(victims), in_order(victims)
        key = self._pod.key(state)
        return Found(total(map(self._pod.cost, left)), key, _pods(left), state) if key is not None else None


def _pods(units: Iterable[Unit]) -> tuple[PodUid, ...]:
    return tuple(uid for unit in units for uid in unit.pods)

"""Who goes so that a job of many pods fits: units of pods (`evictions.units`) of lower priority, wherever they are.

What is guaranteed: the job fits when they are gone; none of them could be spared; no pod goes that a PodDisruptionBudget
protects if the others are enough, and then the highest priority among the victims is the least possible. Up to
`_EXACT_MAX` units are tried in all combinations: then the eviction is the cheapest (`evictions.cost`). Of more, which
nodes are freed is a heuristic: of each domain that could hold the job the nodes that cost least per pod.

The job's pods are counted, node by node, as `core.selector` counts them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core import freeing
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.cost import Cost, total
from pyscheduler.core.evictions.load import Load, Trial
from pyscheduler.core.evictions.units import Unit, in_order, is_leaving
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import Job
from pyscheduler.core.model import PodUid
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape

__all__ = ["Many", "Wanting"]

# Of more units than this that could go, not all combinations are tried.
_EXACT_MAX: Final = 10
# Domains, the most promising first, in which it is worked out who can be spared.
_DOMAINS_MAX: Final = 16
# Units in all of them that are looked at for it; the first domain is looked at in any case.
_SPARED_MAX: Final = 4000

Ints = npt.NDArray[np.int64]
# Cost per pod that fits more: protected pods, sum of priorities.
_Price = tuple[float, float]
# By what machines have in common: how many pods fit, by the mask of the GPUs that are held.
_Known = dict[object, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Wanting:
    """Who wants GPUs: a group.

    Attributes
    ----------
    gang, priority
        It has no member of its own evicted, and nobody whose priority is not lower.
    protected
        Pods whose eviction would break a PodDisruptionBudget.
    given
        Pods that hold what the group gets for nothing: plans that yield, victims that have been named already.
    waits
        Whether GPUs that are on their way count as free.
    """

    gang: GangKey
    priority: int
    protected: Collection[PodUid] = ()
    given: frozenset[PodUid] = frozenset()
    waits: bool = True
    _costs: dict[Unit, Cost] = field(default_factory=dict)

    def passes_over(self, held: Holding) -> bool:
        """Tell whether these GPUs are as good as free for the group, which are on their way or held for a nominated pod."""
        if held.state is HoldingState.NOMINATED:
            return held.priority < self.priority
        return self.waits and is_leaving(held)

    def may_evict(self, unit: Unit) -> bool:
        """Tell whether a unit may go for the group."""
        if unit.priority >= self.priority or unit.gang == self.gang:
            return False
        return not self.given or any(uid not in self.given for uid in unit.pods)

    def protects(self, unit: Unit) -> int:
        """Return how many pods of a unit a PodDisruptionBudget protects."""
        return self.cost(unit)[0] if self.protected else 0

    def cost(self, unit: Unit) -> Cost:
        """Return what it costs that a unit goes."""
        if unit not in self._costs:
            self._costs[unit] = unit.cost(self.protected)
        return self._costs[unit]


class _Site:
    """One node where pods of the job could be."""

    def __init__(self, load: Load, who: Wanting, count: Callable[[NodeState], int], most: int, known: _Known) -> None:
        self._trial = Trial(load, who, {unit for unit in load.units if who.may_evict(unit)})
        self._count = count
        self._most = most
        facts = load.state.facts
        alike = (facts.machine.table, facts.machine.healthy, facts.allocatable, facts.cards) if facts.machine else ()
        self._known = known.setdefault(alike, {})
        self.units = self._trial.units

    def pods(self, gone: Collection[Unit]) -> int:
        """Return how many of the job's pods fit when these are gone."""
        held = self._trial.held(gone)
        if held is None:
            return min(self._count(self._trial.state(gone)), self._most)
        if held not in self._known:
            self._known[held] = self._count(self._trial.state(gone))
        return min(self._known[held], self._most)


class Many:
    """The search for one job.

    Parameters
    ----------
    cluster, loads
        What is known; what is held on each node.
    job, shape
        What has to fit, and the shape of its pods.
    eligible, room
        As in `selector.select`.
    who
        For whom.

    """

    def __init__(
        self,
        cluster: Cluster,
        loads: Callable[[int], Load],
        job: Job,
        shape: Shape,
        eligible: int,
        room: npt.NDArray[np.int32] | None,
        who: Wanting,
    ) -> None:
        self._job = job
        self._who = who
        tree = cluster.fleet.tree()
        level = None if job.pods == 1 else job.required_level
        if level not in {None, NODE_LEVEL, *tree.levels}:
            eligible = 0
        positions = freeing.positions_of(cluster, eligible)
        could = freeing.holds_each(cluster.fleet, job, shape, positions)
        nodes = tree.order[positions]
        if room is not None:
            could = np.minimum(could, room[nodes])
        # Only in some domains the job would fit if nothing were held.
        domain = freeing.domains(tree, positions, level) if len(positions) else positions
        chosen = np.flatnonzero((np.bincount(domain, could) >= job.pods)[domain] & (could > 0)) if len(positions) else positions
        self._domain: Ints = domain[chosen]
        known: _Known = {}

        def count(state: NodeState) -> int:
            # One pod is chosen for, several are counted, as by `core.selector`.
            return int(state.key(shape) is not None) if job.pods == 1 else max((n for _, n in state.supply(shape)), default=0)

        places = zip(nodes[chosen].tolist(), could[chosen].tolist(), strict=True)
        self._sites = [_Site(loads(node), who, count, most, known) for node, most in places]
        # The sites where each unit has GPUs.
        self._where: dict[Unit, list[int]] = {}
        for at, site in enumerate(self._sites):
            for unit in site.units:
                self._where.setdefault(unit, []).append(at)

    def cheapest(self) -> set[Unit] | None:
        """Return who goes, nobody if the job fits already; None if it does not fit whoever goes."""
        now = self._pods(())
        if self._fits(now):
            return set()
        units: Sequence[Unit] = in_order(self._where)
        if not self._fits(self._pods(set(units))):
            return None
        free = [unit for unit in units if not self._who.protects(unit)]
        if len(free) == len(units) or self._fits(self._pods(set(free))):
            units = self._lowest(free)
        if len(units) <= _EXACT_MAX:
            return self._exact(units, now)
        return self._heuristic(units, now)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _pods(self, gone: Collection[Unit]) -> Ints:
        """Return how many pods fit on each site when these are gone, shape (sites,)."""
        return np.array([site.pods(gone) for site in self._sites], np.int64)

    def _fits(self, pods: Ints) -> bool:
        return bool(len(pods)) and int(np.bincount(self._domain, pods).max()) >= self._job.pods

    def _lowest(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Return those of the lowest priorities that are enough; `units` are enough, the lowest priority first."""
        ends = [end for end in range(1, len(units) + 1) if end == len(units) or units[end - 1].priority < units[end].priority]
        return units[: ends[bisect_left(ends[:-1], True, key=lambda end: self._fits(self._pods(set(units[:end]))))]]

    def _exact(self, units: Sequence[Unit], now: Ints) -> set[Unit] | None:
        """Return the cheapest of all sets that are enough."""
        sets = [chosen for size in range(1, len(units) + 1) for chosen in combinations(units, size)]
        for victims in sorted(sets, key=lambda chosen: (self._cost(chosen), [unit.name for unit in chosen])):
            pods, gone = now.copy(), set(victims)
            for at in {at for unit in victims for at in self._where[unit]}:
                pods[at] = self._sites[at].pods(gone)
            if self._fits(pods):
                return gone
        return None

    def _heuristic(self, units: Sequence[Unit], now: Ints) -> set[Unit] | None:
        """Return the cheapest of what is found in the most promising domains."""
        may_go = set(units)
        most = self._pods(may_go)
        totals = np.bincount(self._domain, most)
        found = []
        for domain in np.flatnonzero(totals >= self._job.pods).tolist():
            victims = self._freed(np.flatnonzero(self._domain == domain).tolist(), may_go, now, most)
            found.append((self._cost(victims), domain, victims))
        best: tuple[Cost, int, set[Unit]] | None = None
        spared = 0
        for _, domain, victims in heapq.nsmallest(_DOMAINS_MAX, found, key=lambda each: each[:2]):
            spared += len(victims)
            if best is not None and spared > _SPARED_MAX:
                break
            needed = self._needed(np.flatnonzero(self._domain == domain).tolist(), victims)
            best = min(each for each in (best, (self._cost(needed), domain, needed)) if each is not None)
        return best[2] if best is not None else None

    def _freed(self, sites: Sequence[int], may_go: Collection[Unit], now: Ints, most: Ints) -> set[Unit]:
        """Return who goes when the sites of a domain are freed that cost least per pod, until the job fits."""
        gone: set[Unit] = set()

        def price(at: int) -> _Price:
            gain = int(most[at] - now[at])
            going = [unit for unit in self._sites[at].units if unit in may_go and unit not in gone]
            return sum(map(self._who.protects, going)) / gain, sum(unit.total for unit in going) / gain

        lacking = self._job.pods - int(now[list(sites)].sum())
        heap = [(price(at), at) for at in sites if most[at] > now[at]]
        heapq.heapify(heap)
        while lacking > 0:
            known, at = heapq.heappop(heap)
            cost = price(at)
            if cost != known:
                # Others of its groups go by now.
                heapq.heappush(heap, (cost, at))
                continue
            gone.update(unit for unit in self._sites[at].units if unit in may_go)
            lacking -= int(most[at] - now[at])
        return gone

    def _needed(self, sites: Sequence[int], victims: set[Unit]) -> set[Unit]:
        """Return these units without those that can be spared, the dearest first."""
        gone, inside = set(victims), set(sites)
        pods = {at: self._sites[at].pods(gone) for at in sites}
        spare = sum(pods.values()) - self._job.pods
        for unit in sorted(victims, key=lambda unit: (self._who.cost(unit), unit.name), reverse=True):
            gone.discard(unit)
            less = {at: self._sites[at].pods(gone) for at in self._where[unit] if at in inside}
            lost = sum(pods[at] - count for at, count in less.items())
            if lost > spare:
                gone.add(unit)
            else:
                spare -= lost
                pods.update(less)
        return gone

    def _cost(self, units: Collection[Unit]) -> Cost:
        return total(map(self._who.cost, units))

"""A slow oracle of what is right inside one machine. It enumerates, and shares no code with what it checks.

Every subset, every directed Hamiltonian cycle, every way to carve what is left, every way to part GPUs into sets.
Bandwidths are its own table, GB/s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations

import numpy as np
from scipy.optimize import linprog

# By PCIe generation.
PATH_GBPS = {
    3: {"PIX": 12.0, "PXB": 11.6, "PHB": 11.2, "NODE": 10.8, "SYS": 10.0, "?": 0.0},
    4: {"PIX": 24.0, "PXB": 22.4, "PHB": 20.8, "NODE": 19.2, "SYS": 16.0, "?": 0.0},
}
Gpus = tuple[int, ...]


@dataclass(frozen=True)
class Oracle:
    """A machine by enumeration.

    `links` by pair (a, b), a < b; `per_link` GB/s of an NVLink or xGMI link; `nvlinks` that a GPU has at most.
    Where it is not `exact`, the best single ring counts, in both directions, and not all rings together. Of pairs of one
    kind with `costs` the cheapest has its full rate, one of twice the cost half; one without is worse than all of them.
    """

    links: dict[tuple[int, int], str]
    numa: tuple[int | None, ...]
    per_link: float = 20.0
    nvlinks: int = 18
    policy: str = "none"
    exact: bool = True
    pcie: int = 3
    costs: dict[tuple[int, int], int] = field(default_factory=dict)
    partitions: tuple[Gpus, ...] = ()
    rings: dict[Gpus, float] = field(default_factory=dict)
    carvings: dict[tuple[Gpus, int], tuple[int, int, int]] = field(default_factory=dict)

    @property
    def gpus(self) -> Gpus:
        return tuple(range(len(self.numa)))

    def link(self, a: int, b: int) -> str:
        return self.links.get((min(a, b), max(a, b)), "?")

    def count(self, a: int, b: int) -> int:
        """Direct links between two GPUs."""
        link = self.link(a, b)
        return int(link.removeprefix("NV").removeprefix("XGMI")) if link[:2] in {"NV", "XG"} else 0

    def rate(self, a: int, b: int) -> float:
        full = self.count(a, b) * self.per_link or PATH_GBPS[self.pcie][self.link(a, b)]
        return round(1000 * full * self.share(a, b)) / 1000

    def share(self, a: int, b: int) -> float:
        of_kind = [cost for pair, cost in self.costs.items() if self.link(*pair)[:2] == self.link(a, b)[:2]]
        own = self.costs.get((min(a, b), max(a, b)), max(of_kind, default=0) + 1)
        return min(of_kind) / own if of_kind else 1.0

    def port(self, gpu: int) -> float:
        """Bandwidth that a GPU shares among its peers."""
        counts = [self.count(gpu, other) for other in self.gpus if other != gpu and self.link(gpu, other)[:2] == "NV"]
        return max(counts) * self.per_link if sum(counts) > self.nvlinks else float("inf")

    def ring(self, gpus: Gpus) -> float:
        if gpus not in self.rings:
            self.rings[gpus] = self._ring(gpus)
        return self.rings[gpus]

    def _ring(self, gpus: Gpus) -> float:
        if len(gpus) == 2:
            return self.rate(*gpus)
        cycles = [(gpus[0], *rest, gpus[0]) for rest in permutations(gpus[1:])]
        edges = [list(pairwise(cycle)) for cycle in cycles]
        one = max(min(self.rate(a, b) for a, b in cycle) for cycle in edges)
        fast = [cycle for cycle in edges if all(self.count(a, b) for a, b in cycle)]
        if not fast:
            return one
        widest = max(min(self.rate(a, b) for a, b in cycle) for cycle in fast)
        many = self._flow(gpus, fast) if self.exact else 2 * widest
        return max(one, min(many, *(self.port(gpu) for gpu in gpus)))

    def _flow(self, gpus: Gpus, cycles: list[list[tuple[int, int]]]) -> float:
        """Traffic on all directed cycles at once, each link carrying its rate in each direction."""
        directed = [(a, b) for a in gpus for b in gpus if self.count(a, b)]
        uses = np.array([[edge in cycle for cycle in cycles] for edge in directed], float)
        solution = linprog(-np.ones(len(cycles)), uses, [self.rate(a, b) for a, b in directed])
        assert solution.x is not None
        return float(solution.x.sum())

    def numa_nodes(self, gpus: Gpus) -> int:
        return len({self.numa[gpu] for gpu in gpus})

    def admits(self, gpus: Gpus) -> bool:
        if self.partitions and gpus not in self.partitions:
            return False
        if None in self.numa or self.policy in {"none", "best-effort"}:
            return True
        if self.policy == "single-numa-node":
            return self.numa_nodes(gpus) == 1
        return self.numa_nodes(gpus) == min(map(self.numa_nodes, combinations(self.gpus, len(gpus))))

    def objective(self, gpus: Gpus) -> tuple[int, int, int]:
        """Item 3 of the objective, smaller is better, in MB/s."""
        total = sum(self.rate(a, b) for a, b in combinations(gpus, 2))
        return round(-1000 * self.ring(gpus)), round(-1000 * total), self.numa_nodes(gpus)

    def carve(self, rest: Gpus, k: int) -> tuple[int, int, int]:
        """Best sum of rings over disjoint sets of k, then most sets, then fewest NUMA nodes; smaller is better."""
        if len(rest) < k:
            return 0, 0, 0
        if (rest, k) not in self.carvings:
            ways = [self.carve(rest[1:], k)]
            for others in combinations(rest[1:], k - 1):
                taken = (rest[0], *others)
                if self.admits(taken):
                    ring, sets, nodes = self.carve(tuple(g for g in rest if g not in taken), k)
                    ways.append((ring - round(1000 * self.ring(taken)), sets - 1, nodes + self.numa_nodes(taken)))
            self.carvings[rest, k] = min(ways)
        return self.carvings[rest, k]

    def aligned_pairs(self, gpus: Gpus) -> int:
        return sum(g % 2 == 0 and g + 1 in gpus and self.numa[g] == self.numa[g + 1] for g in gpus)

    def leavings(self, free: Gpus, gpus: Gpus) -> tuple[object, ...]:
        """What decides between sets of equal worth, smaller is better."""
        rest = tuple(g for g in free if g not in gpus)
        whole = self.aligned_pairs(gpus) + self.aligned_pairs(rest)
        return [self.carve(rest, size) for size in (8, 4, 2)], -whole, gpus

    def best(self, free: Gpus, k: int) -> Gpus | None:
        """The one right answer for k >= 2."""
        sets = filter(self.admits, combinations(free, k))
        return min(sets, key=lambda gpus: (self.objective(gpus), self.leavings(free, gpus)), default=None)

    def best_link(self, free: Gpus, gpu: int) -> int:
        """MB/s to the nearest other free GPU."""
        return max((round(1000 * self.rate(gpu, other)) for other in free if other != gpu), default=0)

    def best_one(self, free: Gpus) -> Gpus | None:
        """The one right answer for one GPU."""
        singles = [(gpu,) for gpu in free if self.admits((gpu,))]
        return min(singles, key=lambda gpu: (self.best_link(free, *gpu), self.leavings(free, gpu)), default=None)

    def packings(self, free: Gpus, k: int) -> Iterator[tuple[Gpus, ...]]:
        """All ways to take disjoint admitted sets of k, one and none of them included; lowest GPU first."""
        if len(free) < k:
            yield ()
            return
        yield from self.packings(free[1:], k)
        for others in combinations(free[1:], k - 1):
            taken = (free[0], *others)
            if self.admits(taken):
                for rest in self.packings(tuple(g for g in free if g not in taken), k):
                    yield (taken, *rest)

    def worst(self, sets: tuple[Gpus, ...]) -> int:
        """MB/s of the worst ring."""
        return min(round(1000 * self.ring(each)) if len(each) > 1 else 0 for each in sets)

    def offered(self, free: Gpus, k: int) -> list[tuple[int, int]]:
        """For each ring that can be had, falling, how many sets have it at once; only where the number grows."""
        best: dict[int, int] = {}
        for sets in self.packings(free, k):
            if sets:
                best[len(sets)] = max(best.get(len(sets), 0), self.worst(sets))
        rings = sorted(set(best.values()), reverse=True)
        return [(ring, max(count for count, other in best.items() if other >= ring)) for ring in rings]

    def together(self, free: Gpus, sets: tuple[Gpus, ...]) -> tuple[object, ...]:
        """How good some sets are as one job, smaller is better."""
        gpus = tuple(sorted(gpu for each in sets for gpu in each))
        alone = (self.best_link(free, *gpus), 0, 0) if len(gpus) == 1 else self.objective(gpus)
        rings = [self.worst((each,)) for each in sets]
        sums = [sum(round(1000 * self.rate(a, b)) for a, b in combinations(each, 2)) for each in sets]
        within = sum(map(self.numa_nodes, sets)), -sum(map(self.aligned_pairs, sets))
        return alone, self.leavings(free, gpus), -min(rings), -sum(rings), -sum(sums), within, sets

    def picked(self, free: Gpus, k: int, count: int, floor: int) -> tuple[Gpus, ...] | None:
        """The one right choice of that many sets with at least that ring each."""
        fitting = [sets for sets in self.packings(free, k) if len(sets) == count and self.worst(sets) >= floor]
        return min(fitting, key=lambda sets: self.together(free, sets), default=None)

"""The choice of GPUs inside one machine against a slow oracle that shares no code with it.

The oracle enumerates: every subset, every directed Hamiltonian cycle, every way
to carve what is left. Bandwidths are its own table, GB/s.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from deploy.local import machines
from pyscheduler.core.device_table import DeviceClass, DeviceTable

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
    Where it is not `exact`, the best single ring counts, in both directions, and not all rings together.
    """

    links: dict[tuple[int, int], str]
    numa: tuple[int | None, ...]
    per_link: float = 20.0
    nvlinks: int = 18
    policy: str = "none"
    exact: bool = True
    pcie: int = 3
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
        return self.count(a, b) * self.per_link or PATH_GBPS[self.pcie][self.link(a, b)]

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
        singles = [(gpu,) for gpu in free]
        return min(singles, key=lambda gpu: (self.best_link(free, *gpu), self.leavings(free, gpu)), default=None)


def table_of(oracle: Oracle, models: str | None = None) -> DeviceTable:
    return DeviceTable.build(DeviceClass.of([models] * len(oracle.numa), oracle.numa, oracle.links, oracle.policy))


def mask(gpus: Iterable[int]) -> int:
    return sum(1 << gpu for gpu in gpus)


def members(free_or_set: int) -> Gpus:
    return tuple(gpu for gpu in range(16) if free_or_set >> gpu & 1)


@cache
def real(machine: str) -> tuple[Oracle, DeviceTable]:
    """A real machine, twice: the oracle's rates are those of its model."""
    per_link, nvlinks, pcie = {"dgx-1v": (20.0, 6, 3), "a6000x8-bridged": (12.0, 4, 4), "mi250x": (50.0, 18, 4)}[machine]
    document = machines.document(machine, "n1")
    oracle = Oracle(
        {(int(link["a"][3:]), int(link["b"][3:])): link["type"] for link in document["links"]},
        tuple(gpu["numa"] for gpu in document["gpus"]),
        per_link,
        nvlinks,
        pcie=pcie,
    )
    return oracle, table_of(oracle, document["gpus"][0]["model"])


@pytest.mark.parametrize("machine", ["dgx-1v", "a6000x8-bridged", "mi250x"])
def test_every_case_of_a_real_machine_is_optimal(machine: str) -> None:
    """All 769 pairs of a free set and k >= 2, and all of k = 1; the ties too are the oracle's."""
    oracle, table = real(machine)
    cases = [(free, k) for free in range(256) for k in range(2, free.bit_count() + 1)]
    assert len(cases) == 769
    for free in range(1, 256):
        single = table.choose(free, 1)
        assert single is not None
        assert members(single.mask) == oracle.best_one(members(free))
    for free, k in cases:
        choice = table.choose(free, k)
        assert choice is not None
        assert members(choice.mask) == oracle.best(members(free), k), (members(free), k)
        assert choice.key == oracle.objective(members(choice.mask))


def two_cube_meshes() -> Oracle:
    """16 GPUs: two hybrid cube meshes of eight, SYS between them."""
    mesh = real("dgx-1v")[0].links
    links = {(a + base, b + base): kind for (a, b), kind in mesh.items() for base in (0, 8)}
    across = {(a, b): "SYS" for a in range(8) for b in range(8, 16)}
    return Oracle(links | across, (0,) * 4 + (1,) * 4 + (2,) * 4 + (3,) * 4, exact=False)


def test_sampled_cases_of_sixteen_gpus_are_optimal() -> None:
    oracle = two_cube_meshes()
    table = table_of(oracle)
    draw = random.Random(16)
    for _ in range(150):
        free = tuple(sorted(draw.sample(range(16), draw.randint(2, 8))))
        k = draw.randint(2, min(5, len(free)))
        choice = table.choose(mask(free), k)
        assert choice is not None
        best = min(map(oracle.objective, combinations(free, k)))
        assert (choice.key, oracle.objective(members(choice.mask))) == (best, best), (free, k)


@st.composite
def any_machine(draw: st.DrawFn, links: str = "NV1 NV2 NV4 NV9 XGMI1 PIX PHB SYS ?") -> Oracle:
    """Up to six GPUs, linked in any way: with NV9 to three peers a GPU is behind a switch."""
    n = draw(st.integers(2, 6))
    pairs = list(combinations(range(n), 2))
    kinds = draw(st.lists(st.sampled_from(links.split()), min_size=len(pairs), max_size=len(pairs)))
    numa = draw(st.lists(st.sampled_from([0, 1, 2]), min_size=n, max_size=n))
    unknown = draw(st.booleans()) and draw(st.booleans())
    policy = draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    return Oracle(dict(zip(pairs, kinds, strict=True)), (None if unknown else numa[0], *numa[1:]), policy=policy)


NVIDIA_LINKS = "NV1 NV2 NV4 NV9 PIX PHB SYS ?"
few = settings(max_examples=25, deadline=None)


def every_query(oracle: Oracle) -> list[tuple[int, int]]:
    n = len(oracle.numa)
    return [(free, k) for free in range(1 << n) for k in range(1, n + 2)]


@settings(max_examples=80, deadline=None)
@given(any_machine(NVIDIA_LINKS))
def test_exactly_the_best_k_of_the_free_or_none(oracle: Oracle) -> None:
    """Size, membership, refusal only where nothing fits, optimality and ties."""
    table = table_of(oracle)
    for free, k in every_query(oracle):
        gpus, choice = members(free), table.choose(free, k)
        assert (choice and members(choice.mask)) == (oracle.best_one(gpus) if k == 1 else oracle.best(gpus, k))
        if choice:
            chosen = members(choice.mask)
            assert choice.key == ((oracle.best_link(gpus, *chosen), 0, 1) if k == 1 else oracle.objective(chosen))


@few
@given(any_machine(NVIDIA_LINKS), st.randoms(use_true_random=False))
def test_new_labels_leave_the_worth_unchanged(oracle: Oracle, order: random.Random) -> None:
    n = len(oracle.numa)
    new = order.sample(range(n), n)
    links = {(min(new[a], new[b]), max(new[a], new[b])): kind for (a, b), kind in oracle.links.items()}
    numa = tuple(oracle.numa[new.index(gpu)] for gpu in range(n))
    table, relabelled = table_of(oracle), table_of(Oracle(links, numa, policy=oracle.policy))
    for free, k in every_query(oracle):
        before, after = table.choose(free, k), relabelled.choose(mask(new[gpu] for gpu in members(free)), k)
        assert (before and before.key) == (after and after.key)


@few
@given(any_machine())
def test_more_free_gpus_are_never_worse_and_unused_ones_never_missed(oracle: Oracle) -> None:
    table = table_of(oracle)
    for free, k in every_query(oracle):
        choice = table.choose(free, k) if k > 1 else None
        if choice is None:
            continue
        assert mask(members(choice.mask)) & ~free == 0
        for gpu in oracle.gpus:
            more = table.choose(free | 1 << gpu, k)
            assert more is not None
            assert more.key <= choice.key
            if (free & ~choice.mask) >> gpu & 1:
                fewer = table.choose(free & ~(1 << gpu), k)
                assert fewer is not None
                assert fewer.key == choice.key


@few
@given(any_machine())
def test_all_of_the_free_is_all_of_the_free(oracle: Oracle) -> None:
    table = table_of(Oracle(oracle.links, oracle.numa))
    for free in range(1, 1 << len(oracle.numa)):
        choice = table.choose(free, free.bit_count())
        assert choice is not None
        assert choice.mask == free


@few
@given(any_machine("NV1 NV2 NV4 NV9 ?"))
def test_faster_links_of_one_kind_change_no_choice(oracle: Oracle) -> None:
    """An H100's NVLink runs at 20.6 GB/s, an unknown GPU's at 20: all weights times 1.03."""
    slow, fast = table_of(oracle), table_of(oracle, "NVIDIA H100 80GB HBM3")
    for free, k in every_query(oracle):
        before, after = slow.choose(free, k), fast.choose(free, k)
        assert (before and before.mask) == (after and after.mask)

"""The choice of GPUs inside one machine against a slow oracle that shares no code with it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.local import machines
from pyscheduler.core.machine.device_table import DeviceClass, DeviceTable
from tests.property.set_oracle import Gpus, Oracle


def table_of(oracle: Oracle, models: str | None = None) -> DeviceTable:
    plain = DeviceClass.of([models] * len(oracle.numa), oracle.numa, oracle.links, oracle.policy)
    costs = tuple(oracle.costs.get(pair) for pair in combinations(oracle.gpus, 2)) if oracle.costs else ()
    return DeviceTable.build(replace(plain, costs=costs, partitions=tuple(map(mask, oracle.partitions))))


def mask(gpus: Iterable[int]) -> int:
    return sum(1 << gpu for gpu in gpus)


def members(free_or_set: int) -> Gpus:
    return tuple(gpu for gpu in range(16) if free_or_set >> gpu & 1)


# What the oracle takes a card to have: GB/s of a link, NVLinks, PCIe generation.
CARDS = {
    "Tesla P100-SXM2-16GB": (18.0, 4, 3),
    "Tesla V100-SXM2-16GB": (20.0, 6, 3),
    "Tesla V100-SXM2-32GB": (20.0, 6, 3),
    "NVIDIA A100 80GB PCIe": (20.0, 12, 4),
    "NVIDIA A100-PCIE-40GB": (20.0, 12, 4),
    "NVIDIA RTX A6000": (12.0, 4, 4),
    "AMD Instinct MI210": (50.0, 18, 4),
    "AMD Instinct MI250X": (50.0, 18, 4),
}


def groups(size: int, count: int, inside: str, across: str) -> dict[tuple[int, int], str]:
    """Groups of GPUs, linked alike inside and across."""
    return {(a, b): inside if a // size == b // size else across for a, b in combinations(range(size * count), 2)}


# (card, NUMA nodes, links) of machines that are written down here.
WRITTEN = {
    "dgx-1p": (
        "Tesla P100-SXM2-16GB",
        (0, 0, 0, 0, 1, 1, 1, 1),
        groups(4, 2, "NV1", "SYS") | {(gpu, gpu + 4): "NV1" for gpu in range(4)},
    ),
    "summit": ("Tesla V100-SXM2-16GB", (0, 0, 0, 8, 8, 8), groups(3, 2, "NV2", "SYS")),
    "two-hives-of-four": ("AMD Instinct MI210", (0, 0, 0, 0, 1, 1, 1, 1), groups(4, 2, "XGMI1", "SYS")),
}


@cache
def real(machine: str) -> tuple[Oracle, DeviceTable]:
    """A real machine, twice: the oracle's rates are those of its model."""
    if machine in WRITTEN:
        model, numa, links = WRITTEN[machine]
    else:
        document = machines.document(machine, "n1")
        model, numa = document["gpus"][0]["model"], tuple(gpu["numa"] for gpu in document["gpus"])
        links = {(int(link["a"][3:]), int(link["b"][3:])): link["type"] for link in document["links"]}
    per_link, nvlinks, pcie = CARDS[model]
    oracle = Oracle(links, numa, per_link, nvlinks, pcie=pcie)
    return oracle, table_of(oracle, model)


@pytest.mark.parametrize(
    ("machine", "number"),
    [
        ("dgx-1v", 769),
        ("dgx-1p", 769),
        ("a6000x8-bridged", 769),
        ("mi250x", 769),
        ("two-hives-of-four", 769),
        ("summit", 129),
        ("a100-pcie-bridged", 17),
        ("mi210x4", 17),
    ],
)
def test_every_case_of_a_real_machine_is_optimal(machine: str, number: int) -> None:
    """All pairs of a free set and k >= 2, and all of k = 1; the ties too are the oracle's."""
    oracle, table = real(machine)
    everything = range(1 << len(oracle.gpus))
    cases = [(free, k) for free in everything for k in range(2, free.bit_count() + 1)]
    assert len(cases) == number
    for free in everything[1:]:
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
    # Costs are AMD's, switches NVIDIA's.
    priced = draw(st.booleans())
    allowed = [link for link in links.split() if not (priced and link == "NV9")]
    kinds = draw(st.lists(st.sampled_from(allowed), min_size=len(pairs), max_size=len(pairs)))
    numa = draw(st.lists(st.sampled_from([0, 1, 2]), min_size=n, max_size=n))
    unknown = draw(st.booleans()) and draw(st.booleans())
    policy = draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    costs = {pair: draw(st.sampled_from([10, 20, 40])) for pair in pairs if priced}
    partitions: tuple[Gpus, ...] = ()
    if draw(st.booleans()) and draw(st.booleans()):
        sets = [gpus for k in range(1, n + 1) for gpus in combinations(range(n), k)]
        partitions = tuple(draw(st.lists(st.sampled_from(sets), min_size=1, max_size=8, unique=True)))
    return Oracle(
        links=dict(zip(pairs, kinds, strict=True)),
        numa=(None if unknown else numa[0], *numa[1:]),
        policy=policy,
        costs=costs,
        partitions=partitions,
    )


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
    costs = {(min(new[a], new[b]), max(new[a], new[b])): cost for (a, b), cost in oracle.costs.items()}
    numa = tuple(oracle.numa[new.index(gpu)] for gpu in range(n))
    partitions = tuple(tuple(sorted(new[gpu] for gpu in gpus)) for gpus in oracle.partitions)
    other = Oracle(links, numa, policy=oracle.policy, costs=costs, partitions=partitions)
    table, relabelled = table_of(oracle), table_of(other)
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

"""Machines with more GPUs than are searched exactly: partitioned cards, and boxes of many."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.job import NO_LIMITS, Limits
from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy
from pyscheduler.core.machine.device_table import Choice, DeviceTable
from pyscheduler.core.machine.exact_search import ExactSearch
from pyscheduler.core.machine.large_growth import swapped
from pyscheduler.core.machine.large_search import LargeSearch
from pyscheduler.core.machine.links import Link


def mask(gpus: Iterable[int]) -> int:
    return sum(1 << gpu for gpu in gpus)


def members(value: int) -> list[int]:
    return [gpu for gpu in range(128) if value >> gpu & 1]


def packages(count: int, size: int) -> DeviceClass:
    """Cards split into `size` logical GPUs each; all pairs have one link type, and only the cost tells who shares a card."""
    pairs = list(combinations(range(count * size), 2))
    numa = [at * 2 // (count * size) for at in range(count * size)]
    plain = DeviceClass.of(["Split Card"] * (count * size), numa, dict.fromkeys(pairs, "XGMI"))
    return replace(plain, costs=tuple(13 if a // size == b // size else 52 for a, b in pairs))


SPLIT = DeviceTable.build(packages(6, 8))
ALL_SPLIT = (1 << 48) - 1


def box() -> DeviceClass:
    """20 cards, four PCIe switches of five, bridges over 0-1, 2-3, ... whatever switch they are on."""

    def kind(a: int, b: int) -> str:
        if a % 2 == 0 and b == a + 1:
            return "NV4"
        return "PIX" if a // 5 == b // 5 else "NODE" if a // 10 == b // 10 else "SYS"

    links = {(a, b): kind(a, b) for a, b in combinations(range(20), 2)}
    return DeviceClass.of(["NVIDIA RTX A6000"] * 20, [0] * 10 + [1] * 10, links)


BOX = DeviceTable.build(box())


def chosen(
    table: DeviceTable, k: int, free: int, limits: Limits = NO_LIMITS, healthy: int | None = None
) -> tuple[list[int], Choice] | None:
    choice = table.choose(free, k, limits, healthy)
    return (members(choice.mask), choice) if choice else None


@pytest.mark.parametrize(
    ("busy", "k", "gpus"),
    [
        ([], 8, range(8)),
        ([2], 8, range(8, 16)),
        ([*range(17), *range(24, 33)], 8, range(40, 48)),
        # Half a card is filled before a whole one is begun.
        ([*range(20, 24)], 4, range(16, 20)),
        ([*range(20, 24)], 3, range(16, 19)),
        ([*range(16), *range(17, 24)], 1, [16]),
        ([], 16, range(16)),
        ([], 48, range(48)),
    ],
)
def test_logical_gpus_of_one_card_go_together(busy: list[int], k: int, gpus: Iterable[int]) -> None:
    found = chosen(SPLIT, k, ALL_SPLIT & ~mask(busy))
    assert found is not None
    assert found[0] == list(gpus)
    assert found[1].model == ("heuristic" if k > 1 else "single")


@pytest.mark.parametrize(
    ("k", "gpus", "bottleneck"),
    [(2, [0, 1], "NV4"), (4, [0, 1, 2, 3], "PIX"), (5, [0, 1, 2, 3, 4], "PIX"), (10, list(range(10)), "NODE")],
)
def test_bridges_and_switches(k: int, gpus: list[int], bottleneck: str) -> None:
    found = chosen(BOX, k, (1 << 20) - 1)
    assert found is not None
    assert (found[0], found[1].bottleneck) == (gpus, bottleneck)


def test_bridges_are_not_followed_out_of_the_switch() -> None:
    """Card 5 leads over its bridge to card 4 of another switch: four cards that share their switch are better."""
    found = chosen(BOX, 4, mask(range(4, 10)))
    assert found is not None
    assert found[0] == [6, 7, 8, 9]


def test_too_few_are_none() -> None:
    assert chosen(BOX, 3, 0b11) is None
    assert BOX.offer(0b11, 3).at == ()


@pytest.mark.parametrize(
    ("k", "limits", "at"),
    [
        (2, Limits(max_link=Link.parse("NV1")), ((48_000, 10),)),
        (3, Limits(max_link=Link.parse("NV1")), ()),
        (5, Limits(max_link=Link.parse("PIX")), ((24_000, 4),)),
        (6, Limits(max_link=Link.parse("PIX")), ()),
        (10, Limits(same_numa=True), ((19_200, 2),)),
        (11, Limits(same_numa=True), ()),
        (4, Limits(model="NVIDIA RTX A6000"), ((24_000, 4), (16_000, 5))),
        (1, Limits(model="another"), ()),
    ],
)
def test_limits(k: int, limits: Limits, at: tuple[tuple[int, int], ...]) -> None:
    offer = BOX.offer((1 << 20) - 1, k, limits)
    assert offer.at == at
    assert (BOX.choose((1 << 20) - 1, k, limits) is None) == (not at)


def test_a_nic_draws_the_set_to_its_card() -> None:
    near = [Link.parse("PIX" if gpu == 13 else "NODE" if gpu > 9 else "SYS") for gpu in range(20)]
    table = DeviceTable.build(replace(box(), nics=("fast0",), nic_links=tuple((each,) for each in near)))
    limits = Limits(near_nic="fast0")
    for k in (1, 2, 4, 7):
        found = chosen(table, k, (1 << 20) - 1, limits)
        assert found is not None
        assert 13 in found[0]
    without = (1 << 20) - 1 & ~mask([13])
    assert chosen(table, 2, without, limits) is None
    assert chosen(table, 2, without, limits, healthy=without) is not None


@pytest.mark.parametrize(
    ("policy", "free", "k", "numa_nodes"),
    [
        (TopologyPolicy.SINGLE_NUMA_NODE, range(20), 10, 1),
        (TopologyPolicy.SINGLE_NUMA_NODE, range(20), 11, None),
        (TopologyPolicy.SINGLE_NUMA_NODE, [8, 9, 10, 11], 3, None),
        (TopologyPolicy.RESTRICTED, [8, 9, 10, 11], 3, None),
        (TopologyPolicy.RESTRICTED, range(20), 12, 2),
        (TopologyPolicy.BEST_EFFORT, [8, 9, 10, 11], 3, 2),
    ],
)
def test_policy_of_the_kubelet(policy: TopologyPolicy, free: Iterable[int], k: int, numa_nodes: int | None) -> None:
    found = chosen(DeviceTable.build(replace(box(), policy=policy)), k, mask(free))
    assert (found[1].numa_nodes if found else None) == numa_nodes


def test_partitions() -> None:
    table = DeviceTable.build(replace(box(), partitions=(mask([3, 4]), mask([4, 5]), mask(range(10, 20)), 1)))
    every = (1 << 20) - 1
    assert [members(each) for each in table.offer(every, 2).pick(1)] == [[4, 5]]
    assert table.offer(every, 3).slots == 0
    assert table.offer(every, 10).pick(1) == (mask(range(10, 20)),)
    assert table.offer(every, 1).pick(1) == (1,)


def test_several_pods_share_a_card_where_they_can() -> None:
    offer = SPLIT.offer(ALL_SPLIT, 4)
    assert offer.slots == 12
    assert [members(each) for each in offer.pick(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    singles = SPLIT.offer(ALL_SPLIT & ~mask(range(3)), 1)
    assert singles.slots == 45
    assert sum(singles.pick(8)) == mask(range(8, 16))
    with pytest.raises(ValueError, match="no 13 disjoint sets"):
        offer.pick(13)


def test_ring_order_walks_card_by_card() -> None:
    order = SPLIT.ring_order(mask([0, 1, 2, 3, 8, 9, 10, 11, 20, 21, 22, 23]))
    cards = [gpu // 8 for gpu in order]
    assert sum(a != b for a, b in zip(cards, [*cards[1:], cards[0]], strict=True)) == 3


def test_a_measured_collective_sets_the_scale_and_not_the_order() -> None:
    measured = DeviceTable.build(replace(box(), ring_mbps=8_000))
    every = (1 << 20) - 1
    whole, four = measured.choose(every, 20), measured.choose(every, 4)
    assert whole is not None
    assert four is not None
    assert whole.ring_gbps == 8.0
    assert (members(four.mask), four.ring_gbps) == ([0, 1, 2, 3], 12.0)


def test_no_link_known_is_by_index_and_promises_nothing() -> None:
    table = DeviceTable.build(DeviceClass.of([None] * 24, [None] * 24, {}))
    found = chosen(table, 3, (1 << 24) - 1)
    assert found is not None
    assert (found[0], found[1].ring_gbps, found[1].bottleneck) == ([0, 1, 2], 0.0, "?")


def test_the_largest_machine_is_answered_in_time() -> None:
    """Some milliseconds each; the bound is wide for slow machines that do much else."""
    table = DeviceTable.build(packages(16, 8))
    begun = time.process_time()
    for k in (1, 2, 8, 20, 64, 100):
        assert table.choose((1 << 128) - 1 - (1 << k), k) is not None
    assert time.process_time() - begun < 1.5


def test_tables_pickle_and_answer_alike() -> None:
    copy = pickle.loads(pickle.dumps(BOX))  # noqa: S301 (our own bytes)
    free = mask(range(3, 17))
    assert [copy.choose(free, k) for k in range(1, 15)] == [BOX.choose(free, k) for k in range(1, 15)]


def test_a_swap_brings_in_no_vertex_that_must_be_apart() -> None:
    affinity = np.array([[0, 1, 9, 4], [1, 0, 9, 4], [9, 9, 0, 4], [4, 4, 4, 0]])
    apart = np.zeros((4, 4), np.bool_)
    begin = np.array([0, 1, 3])
    # The best swap brings in vertex 2, for vertex 3.
    assert swapped(affinity, apart, begin).tolist() == [0, 1, 2]
    apart[0, 2] = apart[2, 0] = True
    assert swapped(affinity, apart, begin).tolist() == [1, 2, 3]


@st.composite
def small_machines(draw: st.DrawFn) -> DeviceClass:
    n = draw(st.integers(3, 7))
    pairs = list(combinations(range(n), 2))
    kinds = draw(st.lists(st.sampled_from(["NV1", "NV2", "PIX", "SYS", "?"]), min_size=len(pairs), max_size=len(pairs)))
    numa = draw(st.lists(st.sampled_from([0, 1]), min_size=n, max_size=n))
    return DeviceClass.of([None] * n, numa, dict(zip(pairs, kinds, strict=True)))


@settings(max_examples=40, deadline=None)
@given(small_machines())
def test_what_is_found_is_a_set_of_that_size_and_never_said_to_be_better_than_the_best(kind: DeviceClass) -> None:
    """The same search on machines that can be searched exactly."""
    large, exact = LargeSearch.of(kind), ExactSearch.of(kind)
    for free in range(1 << kind.gpus):
        for k in range(2, free.bit_count() + 1):
            found, best = large.choose(free, k, None), exact.choose(free, k, None)
            assert found is not None
            assert best is not None
            assert found.mask & ~free == 0
            assert found.mask.bit_count() == k
            assert found.ring_gbps <= exact.describe(found.mask).ring_gbps
            assert found.pair_sum_gbps == exact.describe(found.mask).pair_sum_gbps

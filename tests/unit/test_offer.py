"""What a machine offers to several pods at once, by example."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import combinations

import pytest

from pyscheduler.core.job import Limits
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Link

# Two quads, each a ring of doubled links 0-1-3-2 with single ones across; the quads meet over the CPUs.
QUAD = {(0, 1): "NV2", (1, 3): "NV2", (2, 3): "NV2", (0, 2): "NV2", (0, 3): "NV1", (1, 2): "NV1"}
QUADS = DeviceTable.build(
    DeviceClass.of(
        ["Tesla V100-SXM2-16GB"] * 8,
        [0] * 4 + [1] * 4,
        dict.fromkeys(combinations(range(8), 2), "SYS") | QUAD | {(a + 4, b + 4): kind for (a, b), kind in QUAD.items()},
    )
)
SWITCHED = DeviceTable.build(
    DeviceClass.of(["NVIDIA H100 80GB HBM3"] * 8, [0] * 4 + [1] * 4, dict.fromkeys(combinations(range(8), 2), "NV18"))
)
PARTITIONED = DeviceTable.build(
    DeviceClass(
        SWITCHED.device_class.models,
        SWITCHED.device_class.numa,
        SWITCHED.device_class.links,
        partitions=(0b11, 0b110, 0b1100, 0b110000, 0b11000000),
    )
)


def mask(*gpus: int) -> int:
    return sum(1 << gpu for gpu in gpus)


def sets(masks: Iterable[int]) -> list[set[int]]:
    return [{gpu for gpu in range(16) if each >> gpu & 1} for each in masks]


@pytest.mark.parametrize(
    ("free", "k", "at"),
    [
        (range(8), 2, ((40_000, 4),)),
        # Three of one quad: only two of them go on a doubled link with one left over.
        ([0, 1, 2, 4, 5, 7], 2, ((40_000, 2), (10_000, 3))),
        ([0, 3, 4, 7], 2, ((20_000, 2),)),
        ([0, 3, 4, 5], 2, ((40_000, 1), (20_000, 2))),
        (range(8), 4, ((100_000, 2),)),
        (range(8), 8, ((10_000, 1),)),
        (range(8), 1, ((0, 8),)),
        ([2, 6], 1, ((0, 2),)),
        ([0, 1], 3, ()),
        ([], 1, ()),
    ],
)
def test_how_many_pods_have_which_ring(free: Iterable[int], k: int, at: tuple[tuple[int, int], ...]) -> None:
    offer = QUADS.offer(mask(*free), k)
    assert offer.at == at
    assert offer.slots == (at[-1][1] if at else 0)


def test_the_gpus_of_all_pods_together_are_on_the_best_ring() -> None:
    """Both pairs would be as good on their own; in one quad all four share a ring."""
    assert sets(QUADS.offer(mask(0, 1, 4, 5, 6, 7), 2).pick(2)) == [{4, 5}, {6, 7}]


def test_the_same_gpus_are_parted_so_that_the_slowest_pod_is_fastest() -> None:
    """0-1 alone is faster than all others together, but what is left for the second pod is slow."""
    links = {(0, 1): "NV9", (2, 3): "PIX", (0, 2): "NV2", (1, 3): "NV2", (0, 3): "SYS", (1, 2): "SYS"}
    table = DeviceTable.build(DeviceClass.of([None] * 4, [0] * 4, links))
    assert sets(table.offer(0b1111, 2).pick(2)) == [{0, 2}, {1, 3}]


def test_of_equal_rings_those_with_more_links_within_are_parted_off() -> None:
    """Three cards on single links are a ring of one; the doubled link 0-5 makes none faster, but counts among the pairs."""
    links = dict.fromkeys(combinations(range(6), 2), "NV1") | {(0, 5): "NV2"}
    table = DeviceTable.build(DeviceClass.of(["Tesla V100-SXM2-16GB"] * 6, [0] * 6, links))
    assert sets(table.offer(0b111111, 3).pick(2)) == [{0, 1, 5}, {2, 3, 4}]


def test_pods_of_one_gpu_are_placed_together_too() -> None:
    assert sets(QUADS.offer(mask(0, 1, 4, 5, 6, 7), 1).pick(4)) == [{4}, {5}, {6}, {7}]
    # A single one goes where it is missed least: the links of the other quad are more.
    assert sets(QUADS.offer(mask(0, 3, 4, 5, 6, 7), 1).pick(1)) == [{0}]


def test_a_floor_keeps_pods_off_slow_sets() -> None:
    offer = QUADS.offer(mask(0, 3, 4, 5), 2)
    assert sets(offer.pick(1, 40_000)) == [{4, 5}]
    assert sets(offer.pick(2, 20_000)) == [{0, 3}, {4, 5}]
    with pytest.raises(ValueError, match="no 2 disjoint sets with rings of 40000 MB/s"):
        offer.pick(2, 40_000)


@pytest.mark.parametrize("count", [0, -1, 5])
def test_more_pods_than_fit_or_none_is_a_mistake(count: int) -> None:
    with pytest.raises(ValueError, match="disjoint sets"):
        QUADS.offer(mask(*range(8)), 2).pick(count)


@pytest.mark.parametrize(
    ("free", "k", "count", "expected"),
    [
        (range(8), 2, 2, [{0, 1}, {2, 3}]),
        (range(8), 4, 2, [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        # Two on one NUMA node, and no pair of neighbours torn apart.
        ([1, 2, 3, 4, 6, 7], 1, 2, [{2}, {3}]),
        ([1, 2, 3, 4, 5, 6, 7], 2, 3, [{2, 3}, {4, 5}, {6, 7}]),
        (range(1, 8), 3, 2, [{2, 3, 4}, {5, 6, 7}]),
    ],
)
def test_behind_a_switch_numa_nodes_and_neighbours_decide(
    free: Iterable[int], k: int, count: int, expected: list[set[int]]
) -> None:
    offer = SWITCHED.offer(mask(*free), k)
    assert offer.at == ((370_800 if k > 1 else 0, offer.slots),)
    assert sets(offer.pick(count)) == expected


@pytest.mark.parametrize(
    ("free", "slots", "picked"),
    [
        # The overlapping partition in the middle is not taken: two fit beside each other.
        ([0, 1, 2, 3], 2, [{0, 1}, {2, 3}]),
        ([1, 2, 3], 1, [{2, 3}]),
        ([1, 2], 1, [{1, 2}]),
        (range(8), 4, [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
        ([0, 2, 4], 0, []),
    ],
)
def test_partitions_are_packed(free: Iterable[int], slots: int, picked: list[set[int]]) -> None:
    offer = PARTITIONED.offer(mask(*free), 2)
    assert offer.slots == slots
    if slots:
        assert sets(offer.pick(slots)) == picked


def test_limits_count_pods_by_numa_node() -> None:
    offer = SWITCHED.offer(mask(0, 1, 2, 4, 5, 6), 2, Limits(same_numa=True))
    assert offer.slots == 2
    assert QUADS.offer(255, 4, Limits(max_link=Link.parse("NV2"))).slots == 0
    assert QUADS.offer(255, 4, Limits(max_link=Link.parse("NV1"))).slots == 2


def test_an_offer_is_kept_and_pickles() -> None:
    offer = QUADS.offer(0b11110011, 2)
    assert QUADS.offer(0b11110011, 2) is offer
    assert offer.pick(2) is offer.pick(2)
    copy = pickle.loads(pickle.dumps(offer))  # noqa: S301 (our own bytes)
    assert (copy.at, copy.pick(3)) == (offer.at, offer.pick(3))


@pytest.mark.parametrize("k", [0, -2])
def test_an_offer_of_no_gpus_is_a_mistake(k: int) -> None:
    with pytest.raises(ValueError, match="ask for at least 1"):
        QUADS.offer(255, k)


def test_sixteen_gpus_behind_a_switch_hold_every_number_of_pods() -> None:
    links = dict.fromkeys(combinations(range(16), 2), "NV6")
    table = DeviceTable.build(DeviceClass.of(["Tesla V100-SXM3-32GB"] * 16, [0] * 8 + [1] * 8, links))
    for k in range(2, 17):
        offer = table.offer((1 << 16) - 1, k)
        assert offer.at == ((120_000, 16 // k),)
        picked = offer.pick(16 // k)
        assert all(each.bit_count() == k for each in picked)
        assert sum(picked).bit_count() == k * (16 // k)

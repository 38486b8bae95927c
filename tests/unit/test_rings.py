"""The order in which the GPUs of a set stand on their best ring."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.machine.device_table import DeviceClass, DeviceTable
from pyscheduler.core.machine.large_ring import ring_floor, wide_ring
from pyscheduler.core.machine.rings import bottlenecks, ring_order

Matrix = npt.NDArray[np.int64]


def best_ring(capacity: Matrix) -> tuple[tuple[int, ...], int]:
    """By enumeration: the best order, and the weakest edge of its ring."""
    k = len(capacity)
    ranked = []
    for rest in permutations(range(1, k)):
        order = (0, *rest)
        edges = [int(capacity[a, b]) for a, b in pairwise((*order, 0))]
        ranked.append((-min(edges), -sum(edges), order))
    weakest, _, order = min(ranked)
    return (order if weakest else tuple(range(k))), -weakest


@st.composite
def matrices(draw: st.DrawFn, largest: int = 7) -> Matrix:
    k = draw(st.integers(3, largest))
    capacity = np.zeros((k, k), np.int64)
    for a, b in combinations(range(k), 2):
        capacity[a, b] = capacity[b, a] = draw(st.sampled_from([0, 1, 2, 5, 9]))
    return capacity


@settings(max_examples=150, deadline=None)
@given(matrices())
def test_order_is_that_of_the_widest_ring_then_of_the_largest_sum(capacity: Matrix) -> None:
    order, weakest = best_ring(capacity)
    assert bottlenecks(capacity)[-1] == weakest
    assert ring_order(capacity, weakest) == order


@settings(max_examples=150, deadline=None)
@given(matrices())
def test_a_searched_ring_exists_and_is_no_wider_than_the_best(capacity: Matrix) -> None:
    _, weakest = best_ring(capacity)
    floor, order = ring_floor(capacity), wide_ring(capacity)
    assert floor <= weakest
    assert sorted(order) == list(range(len(capacity)))
    if floor and len(capacity) > 3:
        # Where every vertex has half of all others as neighbours, a ring is known to be there without one at hand.
        surely = ((capacity >= floor).sum(axis=1) * 2 >= len(capacity)).all()
        assert surely or min(int(capacity[a, b]) for a, b in pairwise((*order, order[0]))) >= floor
        assert order[0] == 0
        assert order[1] < order[-1]


@pytest.mark.parametrize("size", [20, 64, 127])
def test_a_large_ring_is_found_where_it_hides_among_narrow_edges(size: int) -> None:
    shuffled = np.random.default_rng(size).permutation(size)
    capacity = np.ones((size, size), np.int64)
    for a, b in pairwise([*shuffled, shuffled[0]]):
        capacity[a, b] = capacity[b, a] = 7
    np.fill_diagonal(capacity, 0)
    assert ring_floor(capacity) == 7
    order = wide_ring(capacity)
    assert {int(capacity[a, b]) for a, b in pairwise((*order, order[0]))} == {7}


def test_a_large_machine_that_falls_in_two_has_a_ring_across() -> None:
    half = np.repeat(np.arange(2), 12)
    capacity = np.where(half[:, None] == half, 9, 2)
    np.fill_diagonal(capacity, 0)
    assert ring_floor(capacity) == 2
    order = wide_ring(capacity)
    crossings = [half[a] != half[b] for a, b in pairwise((*order, order[0]))]
    assert sum(crossings) == 2


CUBE = {(0, 1): "NV2", (0, 2): "NV1", (0, 3): "NV1", (1, 2): "NV1", (1, 3): "NV1", (2, 3): "NV2"}


@pytest.mark.parametrize(
    ("gpus", "order"),
    [
        ([], ()),
        ([3], (3,)),
        ([1, 3], (1, 3)),
        ([0, 2, 3], (0, 2, 3)),
        ([0, 1, 2, 3], (0, 1, 2, 3)),
        # Two pairs that are near, and nothing known across: no ring is.
        ([2, 3, 4, 5], (2, 3, 4, 5)),
    ],
)
def test_sets_of_a_machine(gpus: list[int], order: tuple[int, ...]) -> None:
    table = DeviceTable.build(DeviceClass.of([None] * 6, [0] * 6, {**CUBE, (4, 5): "NV2"}))
    assert table.ring_order(sum(1 << gpu for gpu in gpus)) == order


def test_the_ring_goes_over_the_doubled_links() -> None:
    links = {(0, 1): "NV1", (0, 2): "NV2", (0, 3): "NV1", (1, 2): "NV1", (1, 3): "NV2", (2, 3): "NV1"}
    table = DeviceTable.build(DeviceClass.of([None] * 4, [0] * 4, links))
    assert table.ring_order(0b1111) == (0, 1, 3, 2)

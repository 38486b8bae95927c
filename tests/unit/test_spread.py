"""Which nodes of a domain a job takes, and how many of its pods each gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.fabric.carrying import Demand
from pyscheduler.core.fabric.filling import Share
from pyscheduler.core.fabric.merge_tree import merge_tree
from pyscheduler.core.fabric.parts import fewest_parts, largest_parts
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.fabric.spread import Spread, Spreader, balanced, nodes_needed


def spread(
    slots: list[int],
    pods: int,
    *,
    leaves: str = "",
    left: list[int] | None = None,
    worth: Callable[[int, int], int] | None = None,
) -> Spread:
    """Spread over nodes in one spine. `leaves` has one letter per node; `left` is what of a node is free beyond its slots."""
    leaves = leaves or "x" * len(slots)
    names = [f"n{i:02}" for i in range(len(slots))]
    tree = merge_tree(names, [Place((("leaf", leaf), ("spine", "s"))) for leaf in leaves])
    room = np.array(slots, np.int32)[tree.order]
    free = room + np.array(left or [0] * len(slots), np.int32)[tree.order]
    spreader = Spreader(tree, room, free, 1, tree.order.astype(np.int32), worth or (lambda node, count: 1))
    found = spreader.over(tree.root, pods)
    shares = tuple(
        sorted((Share(int(tree.order[share.position]), share.pods) for share in found.shares), key=lambda s: s.position)
    )
    return Spread(shares, found.key)


def by_node(found: Spread) -> dict[int, int]:
    return {share.position: share.pods for share in found.shares}


@pytest.mark.parametrize(
    ("slots", "pods", "right"),
    [([8, 8], 9, [5, 4]), ([8, 2], 9, [7, 2]), ([4, 4, 4], 12, [4, 4, 4]), ([3, 1, 1], 5, [3, 1, 1]), ([5], 2, [2])],
)
def test_counts_are_as_balanced_as_the_slots_allow(slots: list[int], pods: int, right: list[int]):
    assert balanced(slots, pods) == right


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=3), st.integers(1, 12))
def test_nodes_needed_are_the_fewest_that_hold_the_pods(rows: list[list[int]], pods: int):
    histogram = np.array([np.bincount(row, minlength=5) for row in rows])
    for row, found in zip(rows, nodes_needed(histogram, pods).tolist(), strict=True):
        sums = [size for size in range(1, len(row) + 1) for some in combinations(row, size) if sum(some) >= pods]
        if sums:
            assert found == min(sums)
        else:
            assert found > sum(1 for count in row if count)


def test_the_fewest_nodes_are_the_largest():
    assert by_node(spread([2, 6, 1, 5], 10)) == {1: 5, 3: 5}


def test_of_equal_nodes_those_in_the_fewest_leaves():
    assert by_node(spread([4, 4, 4, 4, 4], 12, leaves="xxyyy")) == {2: 4, 3: 4, 4: 4}


def test_in_the_fewest_leaves_the_smallest_that_suffices_comes_last():
    """Sixteen nodes of the largest leaf, and six of that of eight: the leaf of twelve stays whole."""
    nodes = [4] * 40
    found = by_node(spread(nodes, 4 * 22, leaves="w" * 16 + "x" * 12 + "y" * 8 + "z" * 4))
    assert set(found) == {*range(16), *range(28, 34)}


def test_then_the_least_left_over():
    assert by_node(spread([2, 2, 2, 2], 4, left=[3, 0, 2, 1])) == {1: 2, 3: 2}


def test_the_worst_nodes_links_come_before_leaves():
    rings = [1, 5, 1, 5]
    assert by_node(spread([4, 4, 4, 4], 8, leaves="xxyy", worth=lambda node, count: rings[node])) == {1: 4, 3: 4}


def test_a_node_that_is_good_for_three_may_be_bad_for_two():
    """Nodes 0 and 1 can have three pods well, node 2 two: 3 + 2 goes well in one way only."""
    good = {(0, 3), (1, 3), (2, 2)}
    found = spread([3, 3, 3], 5, leaves="xyz", worth=lambda node, count: int((node, count) in good))
    assert by_node(found) in ({0: 3, 2: 2}, {1: 3, 2: 2})


def test_the_key_tells_balance_worst_node_leaves_and_rest():
    found = spread([4, 4, 4], 6, leaves="xyy", left=[0, 0, 1], worth=lambda node, count: 10 * count)
    assert (by_node(found), found.key) == ({1: 3, 2: 3}, (-3, -3, -30, 1, 3))


def carried(signatures: tuple[int, ...], kinds: tuple[int, ...], times: tuple[int, ...]) -> bool:
    """Whether some of the nodes carry so many of each kind: by trying all ways."""
    wanted = Counter(dict(zip(kinds, times, strict=True))) + Counter()
    options = [[None, *(kind for at, kind in enumerate(kinds) if sign >> at & 1)] for sign in signatures]
    return any(Counter(way) - Counter({None: len(way)}) == wanted for way in product(*options))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=6), st.lists(st.sampled_from([5, 3, 2]), min_size=1, max_size=5))
def test_nodes_carry_counts_exactly_where_some_way_of_giving_them_does(signatures: list[int], counts: list[int]):
    demand = Demand(counts, nested=False)
    kinds = demand.kinds
    signs = np.array([sign & ((1 << len(kinds)) - 1) for sign in signatures])
    possible = carried(tuple(signs.tolist()), kinds, tuple(demand.times.tolist()))
    assert demand.fits(demand.covers(signs)) == possible
    if possible:
        costs = np.arange(len(signs)) * 7 % 5
        given_ = demand.assign(signs, costs, demand.times)
        assert Counter(count for _, count in given_) == Counter(counts)
        assert all(signs[at] >> kinds.index(count) & 1 for at, count in given_)
        least = min(
            sum(int(costs[at]) for at in some)
            for some in combinations(range(len(signs)), len(counts))
            if carried(tuple(int(signs[at]) for at in some), kinds, tuple(demand.times.tolist()))
        )
        assert sum(int(costs[at]) for at, _ in given_) == least


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 7), max_size=4),
    st.lists(st.integers(0, 7), max_size=4),
    st.lists(st.sampled_from([5, 3, 2]), min_size=1, max_size=5),
)
def test_as_much_is_taken_here_as_leaves_the_rest_possible(here: list[int], there: list[int], counts: list[int]):
    demand = Demand(counts, nested=False)
    most = (1 << len(demand.kinds)) - 1
    some, others = (np.array([sign & most for sign in signs], np.int64) for signs in (here, there))
    if not demand.fits(demand.covers(some) + demand.covers(others)):
        return
    mine = demand.most(demand.times, demand.covers(some), demand.covers(others))
    assert carried(tuple(some.tolist()), demand.kinds, tuple(mine.tolist()))
    assert carried(tuple(others.tolist()), demand.kinds, tuple((demand.times - mine).tolist()))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=7), st.data())
def test_parts_are_the_fewest(rooms: list[int], data: st.DataObject):
    if not sum(rooms):
        return
    nodes = data.draw(st.integers(1, sum(rooms)))
    found = largest_parts(np.array(rooms), nodes)
    assert sum(count for _, count in found) == nodes
    assert all(0 < count <= rooms[at] for at, count in found)
    fewest = min(size for size in range(1, len(rooms) + 1) for some in combinations(rooms, size) if sum(some) >= nodes)
    assert len(found) == fewest
    sets = fewest_parts(np.array(rooms)[:, None], np.array([nodes]), 5)
    assert {len(some) for some in sets} == {fewest}
    assert all(sum(rooms[at] for at in some) >= nodes for some in sets)


def test_many_different_counts_are_spread_as_well():
    slots = [16, 15, 14, 13, 12, 11, 10, 9, 8, 7]
    found = by_node(spread(slots, sum(slots), leaves="xyxyxyxyxy", worth=lambda node, count: count * 3 % 7))
    assert found == dict(enumerate(slots))

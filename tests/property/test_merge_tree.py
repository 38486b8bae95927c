"""The merge tree against a walk from host to host."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.fabric.merge_tree import MergeTree, merge_tree
from pyscheduler.core.fabric.place import Place
from tests.oracle.fabric import Fabric
from tests.oracle.instances import any_forest

some = settings(max_examples=150, deadline=None)
seeds = st.integers(0, 1 << 20)


def tree_of(fabric: Fabric) -> MergeTree:
    return merge_tree([host.name for host in fabric.hosts], [Place(host.path, host.nvlink) for host in fabric.hosts])


def level_names(fabric: Fabric) -> list[str | None]:
    return [*fabric.levels, None]


@some
@given(seeds)
def test_the_nearest_level_of_any_hosts_is_the_nearest_domain_that_they_share(seed: int):
    fabric = any_forest(seed)[0].fabric
    tree = tree_of(fabric)
    everyone = range(len(fabric.hosts))
    for size in (1, 2, 3):
        for hosts in combinations(everyone, size):
            assert tree.join(hosts) == level_names(fabric)[fabric.common(hosts)], hosts


@some
@given(seeds)
def test_a_vertex_is_a_range_that_holds_what_can_be_walked_to(seed: int):
    fabric = any_forest(seed)[0].fabric
    tree = tree_of(fabric)
    for vertex in range(len(tree.low)):
        inside = set(tree.order[tree.low[vertex] : tree.high[vertex]].tolist())
        level = tree.levels[int(tree.tier[vertex])] or None
        reach = fabric.whole if level is None else fabric.levels.index(level)
        assert inside == fabric.domain(next(iter(inside)), reach)


@some
@given(seeds)
def test_vertices_lie_in_each_other_or_apart(seed: int):
    tree = tree_of(any_forest(seed)[0].fabric)
    assert sorted(tree.order.tolist()) == list(range(len(tree.order)))
    assert (tree.order[tree.position] == np.arange(len(tree.order))).all()
    assert tree.parent[tree.root] == -1
    for vertex in range(tree.root):
        parent = tree.parent[vertex]
        assert tree.low[parent] <= tree.low[vertex] < tree.high[vertex] <= tree.high[parent]
        assert tree.tier[parent] > tree.tier[vertex]
    for vertex in range(len(tree.low)):
        assert tree.children(vertex).tolist() == sorted(np.flatnonzero(tree.parent == vertex), key=lambda v: tree.low[v])
    for node in range(len(tree.order)):
        holding = [v for v in range(len(tree.low)) if tree.low[v] <= tree.position[node] < tree.high[v]]
        assert tree.above(node) == sorted(holding, key=lambda v: tree.tier[v])


@some
@given(seeds, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_come_changes_nothing(seed: int, order: random.Random):
    fabric = any_forest(seed)[0].fabric
    hosts = order.sample(list(fabric.hosts), len(fabric.hosts))
    tree = tree_of(fabric)
    again = merge_tree([host.name for host in hosts], [Place(host.path, host.nvlink) for host in hosts])
    if tree.levels == again.levels:
        assert [fabric.hosts[at].name for at in tree.order] == [hosts[at].name for at in again.order]
        assert (tree.low == again.low).all()
        assert (tree.parent == again.parent).all()

"""Kruskal's merges of nodes into domains, case by case."""

from __future__ import annotations

import pytest

from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, NVLINK_LEVEL, MergeTree, merge_tree, tiers
from pyscheduler.core.fabric.place import NOWHERE, Place


def place(leaf: str | None = None, spine: str | None = None, rack: str | None = None) -> Place:
    path = (("leaf", leaf), ("spine", spine))
    return Place(tuple((level, name) for level, name in path if name is not None), rack)


def tree_of(**places: Place) -> MergeTree:
    return merge_tree(list(places), list(places.values()))


def named(tree: MergeTree, **places: Place) -> list[tuple[str, list[str]]]:
    names = list(places)
    return [
        (tree.levels[tree.tier[v]], [names[at] for at in tree.order[tree.low[v] : tree.high[v]]]) for v in range(len(tree.low))
    ]


def test_domains_of_all_levels_and_the_whole_cluster():
    places = {"d": place("y", "t"), "a": place("x", "s"), "b": place("x", "s"), "c": place("y", "s")}
    assert named(tree_of(**places), **places) == [
        ("leaf", ["a", "b"]),
        ("leaf", ["c"]),
        ("leaf", ["d"]),
        ("spine", ["a", "b", "c"]),
        ("spine", ["d"]),
        ("", ["a", "b", "c", "d"]),
    ]


@pytest.mark.parametrize(
    ("hosts", "level"), [([1], NODE_LEVEL), ([1, 1], NODE_LEVEL), ([1, 2], "leaf"), ([3, 1], "spine"), ([0, 1], None)]
)
def test_the_nearest_level_that_holds_all(hosts: list[int], level: str | None):
    tree = tree_of(d=place("y", "t"), a=place("x", "s"), b=place("x", "s"), c=place("y", "s"))
    assert tree.join(hosts) == level


def test_leaves_of_one_name_under_two_spines_are_two():
    tree = tree_of(a=place("x", "s"), b=place("x", "t"))
    assert tree.join([0, 1]) is None


def test_a_level_that_is_not_known_joins_nobody():
    tree = tree_of(a=place(None, "s"), b=place(None, "s"), c=place("x", "s"), d=NOWHERE, e=NOWHERE)
    assert tree.join([0, 1]) == "spine"
    assert tree.join([0, 2]) == "spine"
    assert tree.join([3, 4]) is None


def test_a_domain_may_be_named_like_a_host_or_another_level():
    tree = tree_of(a=place("a", "s"), s=place("a", "s"), b=place("s", "a"))
    assert (tree.join([0, 1]), tree.join([0, 2])) == ("leaf", None)


def test_nvlink_domains_are_nearer_than_leaves():
    tree = tree_of(a=place("x", "s", "r"), b=place("x", "s", "r"), c=place("x", "s"))
    assert tree.levels == (NVLINK_LEVEL, "leaf", "spine", "")
    assert (tree.join([0, 1]), tree.join([0, 2])) == (NVLINK_LEVEL, "leaf")


def test_domains_that_overlap_become_one():
    tree = tree_of(a=place("x", "s"), b=place("x", "s", "r"), c=place("y", "s", "r"), d=place("y", "s"))
    assert (tree.join([1, 2]), tree.join([0, 1]), tree.join([2, 3])) == (NVLINK_LEVEL, "leaf", "leaf")
    assert len(tree.of_tier(1)) == 1
    # They are one vertex, but the nodes of both still have no leaf in common.
    assert tree.join([0, 3]) == tree.join([0, 1, 2]) == "spine"


def test_a_node_that_is_joined_by_nvlink_alone_is_not_in_the_leaf():
    tree = tree_of(a=place("x", "s", "r"), b=place(None, "s", "r"), c=place("x", "s"))
    assert (tree.join([0, 1]), tree.join([0, 2]), tree.join([1, 2])) == (NVLINK_LEVEL, "leaf", "spine")


def test_vertices_above_a_node_and_right_below_one():
    tree = tree_of(a=place("x", "s"), b=place("y", "s"), c=place(None, "s"), d=NOWHERE)
    spine = tree.above(2)[0]
    assert tree.above(3) == [tree.root]
    assert tree.children(spine).tolist() == tree.of_tier(0).tolist()
    assert tree.children(tree.root).tolist() == [spine]
    assert tree.children(0).tolist() == []


def test_an_empty_cluster_has_the_whole_alone():
    tree = merge_tree([], [])
    assert (tree.root, tree.low.tolist(), tree.high.tolist(), tree.levels) == (0, [0], [0], ("",))
    assert tree.children(0).tolist() == []


def test_one_node():
    tree = tree_of(a=NOWHERE)
    assert (tree.join([0]), tree.above(0)) == (NODE_LEVEL, [0])


def test_levels_are_ordered_by_all_paths_together():
    mixed = [
        Place((("leaf", "x"), ("core", "z"))),
        Place((("leaf", "x"), ("spine", "y"))),
        Place((("spine", "y"), ("core", "z"))),
    ]
    assert tiers(mixed) == ("leaf", "spine", "core")


def test_paths_that_contradict_each_other_still_give_an_order():
    assert sorted(tiers([Place((("a", "1"), ("b", "2"))), Place((("b", "2"), ("a", "1")))])) == ["a", "b"]

"""Slots by grade, live."""

from __future__ import annotations

import numpy as np

from pyscheduler.core.fabric.merge_tree import merge_tree
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.fabric.slots import COUNT_ONLY, SlotIndex, Supply

X, Y = Place((("leaf", "x"),)), Place((("leaf", "y"),))


def index(*places: Place, supplies: dict[int, Supply]) -> SlotIndex:
    tree = merge_tree([f"n{i}" for i in range(len(places))], places)
    return SlotIndex(tree, lambda node: supplies.get(node, ()))


def totals(kept: SlotIndex, *, one_per_node: bool = False) -> dict[int, list[int]]:
    """By grade: leaf x, leaf y, the whole cluster."""
    slots = kept.catch_up()
    found = slots.totals(np.arange(slots.histogram.shape[0]), one_per_node=one_per_node)
    return {grade: found[:, at].tolist() for at, grade in enumerate(slots.grades)}


def test_slots_of_a_grade_are_those_of_at_least_this_ring():
    kept = index(X, X, Y, supplies={0: ((300, 1), (100, 3)), 1: ((100, 2),), 2: ((300, 4),)})
    assert totals(kept) == {300: [1, 4, 5], 100: [5, 4, 9]}
    assert totals(kept, one_per_node=True) == {300: [1, 1, 2], 100: [2, 1, 3]}


def test_a_changed_node_changes_what_holds_it():
    supplies: dict[int, Supply] = {0: ((100, 3),), 2: ((100, 1),)}
    kept = index(X, X, Y, supplies=supplies)
    supplies[0] = ((100, 1),)
    assert totals(kept) == {100: [3, 1, 4]}
    kept.touch(0)
    assert totals(kept) == {100: [1, 1, 2]}


def test_a_ring_or_number_seen_for_the_first_time_finds_room():
    supplies: dict[int, Supply] = {0: ((100, 1),)}
    kept = index(X, X, Y, supplies=supplies)
    kept.catch_up()
    supplies[1] = ((200, 2), (100, 7))
    kept.touch(1)
    assert totals(kept) == {200: [2, 0, 2], 100: [8, 0, 8]}


def test_nodes_known_by_number_alone_are_the_last_grade():
    kept = index(X, Y, supplies={0: ((0, 2),), 1: ((COUNT_ONLY, 5),)})
    assert totals(kept) == {0: [2, 0, 2], COUNT_ONLY: [2, 5, 7]}


def test_only_allowed_positions_count():
    kept = index(X, X, Y, supplies=dict.fromkeys(range(3), ((100, 2),)))
    slots = kept.restricted(np.array([True, False, True]))
    assert slots.of_node.tolist() == [[2, 0, 2]]
    assert slots.totals(np.arange(3), one_per_node=False).tolist() == [[2], [2], [4]]


def test_nothing_to_offer_has_no_grade():
    assert index(NOWHERE, supplies={}).catch_up().grades == ()
    assert index(supplies={}).catch_up().grades == ()

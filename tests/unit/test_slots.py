"""Slots by grade, live."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyscheduler.core.fabric.merge_tree import merge_tree
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.fabric.slots import COUNT_ONLY, SlotIndex, Slots, Supply

X, Y = Place((("leaf", "x"),)), Place((("leaf", "y"),))


def index(*places: Place, supplies: list[Supply]) -> SlotIndex:
    """By kind its supply; node i is of kind i."""
    tree = merge_tree([f"n{i}" for i in range(len(places))], places)
    return SlotIndex(tree, supplies.__getitem__, kinds(*range(len(places))))


def kinds(*numbers: int) -> npt.NDArray[np.int32]:
    return np.array(numbers, np.int32)


def totals(slots: Slots, *, one_per_node: bool = False) -> dict[int, list[int]]:
    """By grade: leaf x, leaf y, the whole cluster."""
    found = slots.totals(np.arange(slots.histogram.shape[0]), one_per_node=one_per_node)
    return {grade: found[:, at].tolist() for at, grade in enumerate(slots.grades)}


ALL = kinds(0, 1, 2)


def test_slots_of_a_grade_are_those_of_at_least_this_ring():
    slots = index(X, X, Y, supplies=[((300, 1), (100, 3)), ((100, 2),), ((300, 4),)]).catch_up(ALL)
    assert totals(slots) == {300: [1, 4, 5], 100: [5, 4, 9]}
    assert totals(slots, one_per_node=True) == {300: [1, 1, 2], 100: [2, 1, 3]}


def test_a_changed_node_changes_what_holds_it():
    kept = index(X, X, Y, supplies=[((100, 3),), (), ((100, 1),)])
    assert totals(kept.catch_up(ALL)) == {100: [3, 1, 4]}
    assert totals(kept.catch_up(kinds(2, 1, 2))) == {100: [1, 1, 2]}


def test_several_nodes_of_one_domain_change_at_one_time():
    kept = index(X, X, Y, supplies=[((100, 3),), (), ((100, 1),)])
    assert totals(kept.catch_up(kinds(2, 2, 0))) == {100: [2, 3, 5]}
    assert totals(kept.catch_up(kinds(2, 2, 0)), one_per_node=True) == {100: [2, 1, 3]}


def test_a_ring_or_number_seen_for_the_first_time_finds_room():
    kept = index(X, X, Y, supplies=[((100, 1),), (), (), ((200, 2), (100, 7)), ((100, 9),)])
    assert totals(kept.catch_up(kinds(0, 3, 2))) == {200: [2, 0, 2], 100: [8, 0, 8]}
    assert totals(kept.catch_up(kinds(4, 3, 4))) == {200: [2, 0, 2], 100: [16, 9, 25]}


def test_nodes_known_by_number_alone_are_the_last_grade():
    slots = index(X, Y, supplies=[((0, 2),), ((COUNT_ONLY, 5),)]).catch_up(kinds(0, 1))
    assert totals(slots) == {0: [2, 0, 2], COUNT_ONLY: [2, 5, 7]}


def test_only_allowed_positions_count():
    kept = index(X, X, Y, supplies=[((100, 2),)] * 3)
    slots = kept.restricted(ALL, np.array([9, 0, 9], np.int32))
    assert slots.of_node.tolist() == [[2, 0, 2]]
    assert totals(slots) == {100: [2, 2, 4]}
    assert totals(kept.catch_up(ALL)) == {100: [4, 2, 6]}, "what is kept is not touched"


def test_nothing_to_offer_has_no_grade():
    assert index(NOWHERE, supplies=[()]).catch_up(kinds(0)).grades == ()
    assert index(supplies=[]).catch_up(kinds()).grades == ()

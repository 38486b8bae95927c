"""Of equal nodes that in the fullest domain comes first."""

from __future__ import annotations

import numpy as np

from pyscheduler.core.fabric.place import Domain
from pyscheduler.core.fabric.tightness import Tightness

X: Domain = (("leaf", "x"), ("spine", "s"))
Y: Domain = (("leaf", "y"), ("spine", "s"))
Z: Domain = (("leaf", "z"), ("spine", "t"))


def tightness(*nodes: tuple[Domain, int]) -> Tightness:
    kept = Tightness()
    for at, (path, free) in enumerate(nodes):
        kept.move(at, path)
        kept.change(at, free)
    return kept


def order(kept: Tightness, count: int) -> list[int]:
    return np.argsort(kept.ranks(np.arange(count), np.arange(count)[::-1].copy())).tolist()


def test_the_fullest_nearest_domain_comes_first():
    assert order(tightness((X, 8), (Y, 3), (Z, 5)), 3) == [1, 2, 0]


def test_then_the_fullest_next_domain():
    assert order(tightness((X, 4), (Y, 4), (Z, 4)), 3)[0] == 2


def test_then_the_total_order():
    assert order(tightness((X, 4), (X, 4), (X, 4)), 3) == [2, 1, 0]


def test_nodes_of_one_leaf_share_its_free_gpus():
    kept = tightness((X, 4), (X, 4), (Y, 7))
    assert order(kept, 3)[0] == 2
    kept.change(0, 1)
    assert order(kept, 3) == [1, 0, 2]


def test_a_node_that_moves_takes_its_free_gpus_along():
    kept = tightness((X, 4), (X, 4), (Y, 5))
    kept.move(0, Y)
    again = tightness((Y, 4), (X, 4), (Y, 5))
    assert (kept.ranks(np.arange(3), np.arange(3)) == again.ranks(np.arange(3), np.arange(3))).all()


def test_nodes_without_a_place_are_in_the_whole_cluster():
    kept = tightness(((), 1), ((), 2), (X, 2))
    assert order(kept, 3) == [2, 1, 0]


def test_many_nodes_and_domains_find_room():
    kept = tightness(*(((("leaf", str(at)),), at % 7) for at in range(300)))
    assert order(kept, 300)[:3] == [294, 287, 280]

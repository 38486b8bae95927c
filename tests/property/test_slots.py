"""What is kept up to date against what is built anew, after any changes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core import bitmap, kinds
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import MergeTree, merge_tree
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.fabric.slots import SlotIndex, Slots, Supply
from pyscheduler.core.job import NO_LIMITS, Limits
from pyscheduler.core.request import Shape
from tests.oracle.boards import families
from tests.oracle.clusters import GPU, cluster_of, facts_of
from tests.oracle.fabric import Host
from tests.oracle.instances import any_cluster, any_forest

some = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 1 << 20)
RINGS = (400, 300, 200, 100, 0)


def any_supply(draw: random.Random) -> Supply:
    """Falling rings, growing numbers."""
    rings = sorted(draw.sample(RINGS, draw.randint(0, 3)), reverse=True)
    counts = sorted(draw.sample(range(1, 9), len(rings)))
    return tuple(zip(rings, counts, strict=True))


def equal_as_counted(kept: Slots, anew: Slots) -> None:
    """Grades and numbers that nobody has any more may still have a place in what is kept."""
    for at, grade in enumerate(anew.grades):
        mine = kept.grades.index(grade)
        assert (kept.of_node[mine] == anew.of_node[at]).all()
        width = anew.histogram.shape[2]
        assert (kept.histogram[:, mine, :width] == anew.histogram[:, at]).all()
        assert (kept.sums[:, mine] == anew.sums[:, at]).all()
        assert not kept.histogram[:, mine, width:].any()


@some
@given(seeds, st.randoms(use_true_random=False))
def test_an_index_after_any_changes_is_one_built_anew(seed: int, draw: random.Random):
    hosts = any_forest(seed)[0].hosts
    tree = merge_tree([host.name for host in hosts], [Place(host.path, host.nvlink) for host in hosts])
    supplies = [any_supply(draw) for _ in range(30)]
    kinds = np.array([draw.randrange(3) for _ in hosts], np.int32)
    index = SlotIndex(tree, supplies.__getitem__, kinds)
    for step in range(12):
        for _ in range(draw.randint(0, 4)):
            kinds[draw.randrange(len(hosts))] = draw.randrange(4 + 2 * step)
        equal_as_counted(index.catch_up(kinds), SlotIndex(tree, supplies.__getitem__, kinds).catch_up(kinds))


@some
@given(seeds, st.randoms(use_true_random=False))
def test_slots_count_what_nodes_supply(seed: int, draw: random.Random):
    hosts = any_forest(seed)[0].hosts
    tree = merge_tree([host.name for host in hosts], [Place(host.path, host.nvlink) for host in hosts])
    supplies = [any_supply(draw) for _ in range(8)]
    most = np.array([draw.choice((0, 0, 1, 2, 99)) for _ in hosts], np.int32)
    kinds = np.zeros(len(hosts), np.int32)
    index = SlotIndex(tree, supplies.__getitem__, kinds)
    for _ in range(4):
        for _ in range(draw.randint(1, len(hosts))):
            kinds[draw.randrange(len(hosts))] = draw.randrange(len(supplies))
        for slots, caps in ((index.catch_up(kinds), [99] * len(hosts)), (index.restricted(kinds, most), most.tolist())):
            supplied = [
                [(ring, min(count, cap)) for ring, count in supplies[kind]] for kind, cap in zip(kinds, caps, strict=True)
            ]
            counted(tree, slots, supplied)


def counted(tree: MergeTree, slots: Slots, supplies: list[list[tuple[int, int]]]) -> None:
    """By position what it supplies: every counter is as counted here."""
    for at, grade in enumerate(slots.grades):
        mine = [max((count for ring, count in supply if ring >= grade), default=0) for supply in supplies]
        assert slots.of_node[at].tolist() == mine
        for vertex in range(len(tree.low)):
            inside = mine[tree.low[vertex] : tree.high[vertex]]
            below = slots.histogram[vertex, at].tolist()
            assert below == [inside.count(number) for number in range(len(below))]
            for one in (False, True):
                total = slots.totals(np.array([vertex]), one_per_node=one)[0, at]
                assert total == sum(min(count, 1) if one else count for count in inside)


def views(cluster: Cluster, shape: Shape) -> list[object]:
    """What the fleet says, by name, without the numbers that it gives to kinds."""
    fleet = cluster.fleet
    tree, slots = fleet.tree(), fleet.slots(shape)
    used = [at for at in range(len(slots.grades)) if at == 0 or (slots.of_node[at] != slots.of_node[at - 1]).any()]
    used = [at for at in used if slots.of_node[at].any()]
    ranking = cluster.ranking(shape)
    return [
        [cluster.table.names[node] for node in tree.order],
        sorted(cluster.table.names[node] for node in bitmap.indices(ranking.feasible)),
        sorted(cluster.table.names[node] for node in bitmap.indices(ranking.unresolvable)),
        [cluster.table.names[node] for node in ranking.best(cluster.present, 99, cluster.rank)],
        fleet.free().tolist(),
        [fleet.example(kind).kind for kind in fleet.kinds().tolist()],
        [(slots.grades[at], slots.of_node[at].tolist()) for at in used],
    ]


@some
@given(seeds, st.randoms(use_true_random=False), st.sampled_from([3, 9, 1 << 16]))
def test_a_fleet_after_any_changes_is_one_built_anew(seed: int, draw: random.Random, kinds_most: int):
    """Also where so many kinds were seen that they get other numbers."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kinds, "_MOST", kinds_most)
        changed_and_compared(seed, draw)


def changed_and_compared(seed: int, draw: random.Random) -> None:
    hosts = list(any_cluster(seed)[0].hosts)
    cluster = cluster_of(hosts)
    shapes = [Shape(GPU, 1, NO_LIMITS), Shape(GPU, 2, NO_LIMITS), Shape(GPU, 2, Limits(same_numa=True))]
    for number in range(12):
        at = draw.randrange(len(hosts))
        if draw.random() < 0.1:
            hosts.append(Host(f"late-{number}", hosts[at].path, hosts[at].board, hosts[at].free))
            at = len(hosts) - 1
        old = hosts[at]
        free = tuple(gpu for gpu in old.board.gpus if draw.random() < 0.5)
        hosts[at] = Host(old.name, draw.choice([old.path, hosts[0].path]), old.board, free, old.nvlink)
        cluster.observe_node(facts_of(hosts[at]), 0.0)
        anew = cluster_of(hosts)
        for shape in draw.sample(shapes, 2):
            assert views(cluster, shape) == views(anew, shape)


@some
@given(seeds, st.randoms(use_true_random=False))
def test_domains_are_as_full_after_any_changes_as_counted_anew(seed: int, draw: random.Random):
    hosts = list(any_forest(seed)[0].hosts)
    cluster = cluster_of(hosts)
    everyone = np.arange(len(hosts))
    for _ in range(12):
        at = draw.randrange(len(hosts))
        old = hosts[at]
        free = tuple(gpu for gpu in old.board.gpus if draw.random() < 0.5)
        hosts[at] = Host(old.name, draw.choice([old.path, draw.choice(hosts).path]), old.board, free)
        cluster.observe_node(facts_of(hosts[at]), 0.0)
        assert (cluster.rank(everyone) == cluster_of(hosts).rank(everyone)).all()


@some
@given(seeds)
def test_a_node_supplies_as_many_disjoint_sets_as_there_are(seed: int):
    fabric, wanted = any_cluster(seed)
    cluster = cluster_of(fabric.hosts)
    slots = cluster.fleet.slots(Shape(GPU, wanted.gpus, NO_LIMITS))
    for at, grade in enumerate(slots.grades):
        for node, host in enumerate(fabric.hosts):
            most = max(
                count
                for count in range(len(host.free) // wanted.gpus + 1)
                if count == 0
                or any(
                    min(host.board.ring(gpus) for gpus in family) >= grade for family in families(host.free, wanted.gpus, count)
                )
            )
            assert slots.of_node[at, cluster.fleet.tree().position[node]] == most

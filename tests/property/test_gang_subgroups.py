"""Subgroups and spread on small fabrics, against a search through all ways to deal the blocks out to the domains."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.gangs.membership import Subgroup
from pyscheduler.core.gangs.packing import pack
from pyscheduler.core.model import Code
from pyscheduler.core.planner import Planner
from tests.builders import attempt, bound, member, node, only, planner, shown, uuids

BOX = "hgx-h100"
BLOCKS_MAX = 5


@dataclass(frozen=True)
class Fabric:
    """Free GPUs of the nodes of each leaf; two leaves are under one spine."""

    leaves: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> list[tuple[str, int, int]]:
        """Name, leaf and free GPUs of each node."""
        return [(f"n{at}{i}", at, free) for at, leaf in enumerate(self.leaves) for i, free in enumerate(leaf)]

    def planner(self) -> Planner:
        made = planner(*(node(name, BOX, path=(f"leaf-{at}", f"spine-{at // 2}")) for name, at, _ in self.nodes))
        for name, _, free in self.nodes:
            if free < 8:
                made.cluster.observe_pod(bound(f"x-{name}", name, 8 - free, uuids(BOX, name, *range(8 - free))), 0.0)
        return made

    def room(self, gpus: int) -> list[int]:
        """Return how many pods fit on each leaf."""
        return [sum(free // gpus for free in leaf) for leaf in self.leaves]


@dataclass(frozen=True)
class Asked:
    """A group of pods, in subgroups of so many."""

    pods: int
    size: int
    gpus: int

    @property
    def blocks(self) -> list[int]:
        return [min(self.size, self.pods - at) for at in range(0, self.pods, self.size)]


FABRICS = st.builds(
    Fabric,
    st.lists(st.lists(st.sampled_from((0, 2, 4, 6, 8)), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple),
)
ASKED = st.builds(Asked, st.integers(2, 10), st.integers(2, 4), st.sampled_from((2, 4, 8))).filter(
    lambda asked: len(asked.blocks) <= BLOCKS_MAX
)


def dealt(blocks: list[int], room: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to give each block a domain."""
    for way in product(range(len(room)), repeat=len(blocks)):
        load = Counter[int]()
        for domain, size in zip(way, blocks, strict=True):
            load[domain] += size
        if all(load[domain] <= room[domain] for domain in load):
            yield way


def ways(fabric: Fabric, asked: Asked) -> Iterator[tuple[int, ...]]:
    """Yield every way to give each block a leaf."""
    return dealt(asked.blocks, fabric.room(asked.gpus))


def placed(fabric: Fabric, asked: Asked, draw: random.Random | None = None, **said: Any) -> list[str] | None:
    """Return the node of each rank, None if the group was refused. `draw`: the pods come and ask in any order."""
    made = fabric.planner()
    pods = [member(f"p{i}", asked.gpus, least=asked.pods, index=i, **said) for i in range(asked.pods)]
    asking = pods if draw is None else draw.sample(pods, len(pods))
    for each in asking:
        made.cluster.observe_pod(shown(each), 0.0)
    known = len(fabric.nodes)
    answer = made.plan(attempt(2), asking[0], only(*range(known), known=known), b"", frozenset(), 0.0)
    if answer.verdict.code is not Code.OK:
        assert not made.gangs.plans.all()
        return None
    seats = made.gangs.plans.all()[0].seats
    return [made.cluster.table.names[seats[each.uid].node] for each in pods]


def leaves_of(names: list[str], asked: Asked) -> list[int]:
    """Return the leaf of each block, which must be one."""
    leaves = [int(name[1]) for name in names]
    found = [set(leaves[at : at + asked.size]) for at in range(0, asked.pods, asked.size)]
    assert all(len(block) == 1 for block in found), f"a subgroup is split: {found}"
    return [block.pop() for block in found]


def is_sound(fabric: Fabric, asked: Asked, names: list[str]) -> bool:
    return all(Counter(names)[name] * asked.gpus <= free for name, _, free in fabric.nodes)


def distance(leaves: tuple[int, ...] | list[int]) -> int:
    """Return 0 for one leaf, 1 for one spine, 2 for the whole cluster."""
    return 0 if len(set(leaves)) == 1 else 1 if len({leaf // 2 for leaf in leaves}) == 1 else 2


@given(FABRICS, ASKED)
@settings(max_examples=80, deadline=None)
def test_group_is_placed_exactly_when_its_blocks_can_be_dealt_out_and_as_near_on_as_few_leaves_as_can_be(
    fabric: Fabric, asked: Asked
):
    possible = [(distance(way), len(set(way))) for way in ways(fabric, asked)]
    names = placed(fabric, asked, subgroup=Subgroup("tier-0", asked.size))
    assert (names is not None) == bool(possible)
    if names is not None:
        found = leaves_of(names, asked)
        assert is_sound(fabric, asked, names)
        assert (distance(found), len(set(found))) == min(possible)


@given(ASKED, st.lists(st.integers(0, 12), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_blocks_are_packed_into_as_few_domains_as_can_be(asked: Asked, room: list[int]):
    possible = [len(set(way)) for way in dealt(asked.blocks, room)]
    found = pack(asked.blocks, np.array(room))
    assert (found is not None) == bool(possible)
    if found is not None:
        assert tuple(found) in set(dealt(asked.blocks, room))
        assert len(set(found)) == min(possible)


@given(FABRICS, ASKED)
@settings(max_examples=40, deadline=None)
def test_required_level_holds_all_blocks_or_none_is_placed(fabric: Fabric, asked: Asked):
    possible = [way for way in ways(fabric, asked) if distance(way) <= 1]
    names = placed(fabric, asked, subgroup=Subgroup("tier-0", asked.size), required_level="tier-1")
    assert (names is not None) == bool(possible)
    assert names is None or distance(leaves_of(names, asked)) <= 1


@given(FABRICS, ASKED)
@settings(max_examples=40, deadline=None)
def test_blocks_that_are_alone_have_a_leaf_each(fabric: Fabric, asked: Asked):
    possible = [way for way in ways(fabric, asked) if len(set(way)) == len(way)]
    names = placed(fabric, asked, subgroup=Subgroup("tier-0", asked.size, alone=True))
    assert (names is not None) == bool(possible)
    assert names is None or len(set(leaves_of(names, asked))) == len(asked.blocks)


@given(FABRICS, ASKED)
@settings(max_examples=80, deadline=None)
def test_blocks_are_spread_as_evenly_as_can_be(fabric: Fabric, asked: Asked):
    possible = [(max(Counter(way).values()), -len(set(way))) for way in ways(fabric, asked)]
    names = placed(fabric, asked, subgroup=Subgroup("tier-0", asked.size), spread_level="tier-0")
    assert (names is not None) == bool(possible)
    if names is not None:
        found = leaves_of(names, asked)
        assert is_sound(fabric, asked, names)
        if len(set(asked.blocks)) == 1:
            assert (max(Counter(found).values()), -len(set(found))) == min(possible)


@given(FABRICS, st.integers(2, 10), st.sampled_from((2, 4, 8)))
@settings(max_examples=80, deadline=None)
def test_pods_are_spread_as_evenly_as_can_be(fabric: Fabric, pods: int, gpus: int):
    room = fabric.room(gpus)
    names = placed(fabric, Asked(pods, 1, gpus), spread_level="tier-0")
    assert (names is not None) == (sum(room) >= pods)
    if names is not None:
        counts = Counter(int(name[1]) for name in names)
        # Whoever has fewer than another by two or more is full.
        assert all(counts[at] >= max(counts.values()) - 1 or counts[at] == most for at, most in enumerate(room))


@given(FABRICS, ASKED, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_answer_does_not_depend_on_who_comes_first(fabric: Fabric, asked: Asked, spread: bool, draw: random.Random):
    said: dict[str, Any] = {"subgroup": Subgroup("tier-0", asked.size), "spread_level": "tier-1" if spread else None}
    assert placed(fabric, asked, draw, **said) == placed(fabric, asked, **said)

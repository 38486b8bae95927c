"""Groups whose members differ in GPUs or in the nodes that they may use: placed if and only if a domain holds them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.gangs.plan import Plan
from pyscheduler.core.planner import Planner
from tests.builders import attempt, bound, member, node, only, planner, shown, uuids

BOX = "hgx-h100"


class World:
    """A few nodes in racks, some of their GPUs taken, and a group of members of several sizes."""

    def __init__(self, draw: random.Random, sets: int) -> None:
        count = draw.randint(2, 6)
        self.rack = [draw.randrange(3) for _ in range(count)]
        self.planner: Planner = planner(*(node(f"n{i}", BOX, path=(f"rack-{rack}", "spine")) for i, rack in enumerate(self.rack)))
        self.free = []
        for i in range(count):
            taken = draw.choice((0, 0, 2, 4, 6, 7))
            self.free.append(8 - taken)
            if taken:
                holder = bound(f"x{i}", f"n{i}", taken, uuids(BOX, f"n{i}", *range(taken)))
                self.planner.cluster.observe_pod(holder, 0.0)
        self.level = draw.choice((None, "tier-0"))
        # Each size divides the larger ones: the largest first, anywhere, they all fit if they fit at all.
        self.gpus = [draw.choice((1, 2, 4, 8)) for _ in range(draw.randint(2, 5))]
        choices = [draw.sample(range(count), draw.randint(1, count)) for _ in range(sets)] or [list(range(count))]
        self.nodes = [draw.choice(choices) for _ in self.gpus]
        size = len(self.gpus)
        self.pods = [member(f"m{i}", gpus, index=i, least=size, required_level=self.level) for i, gpus in enumerate(self.gpus)]
        for pod in self.pods:
            self.planner.cluster.observe_pod(shown(pod), 0.0)

    def plan(self) -> Plan | None:
        """Have all members ask, and again when all are known."""
        asked = [*zip(self.pods, self.nodes, strict=True)] * 2
        for number, (pod, nodes) in enumerate(asked, 1):
            self.planner.plan(attempt(number), pod, only(*nodes, known=len(self.free)), b"", frozenset(), 0.0)
        return next(iter(self.planner.gangs.plans.all()), None)

    def is_held(self) -> bool:
        """Tell, by trying all ways, whether a domain of the level holds all members."""
        racks = set(self.rack) if self.level else {None}
        return any(
            self._fits(0, [free if rack in {None, at} else 0 for free, at in zip(self.free, self.rack, strict=True)])
            for rack in racks
        )

    def _fits(self, at: int, free: list[int]) -> bool:
        if at == len(self.gpus):
            return True
        able = [node for node in self.nodes[at] if free[node] >= self.gpus[at]]
        return any(self._fits(at + 1, [left - self.gpus[at] * (i == node) for i, left in enumerate(free)]) for node in able)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_group_of_several_sizes_is_placed_exactly_when_a_domain_of_its_level_holds_it(seed: int):
    world = World(random.Random(seed), 0)
    assert (world.plan() is not None) == world.is_held()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_member_is_placed_within_its_own_nodes_and_all_within_the_level(seed: int):
    world = World(random.Random(seed), 2)
    plan = world.plan()
    if plan is None:
        return
    assert world.is_held()
    seats = [plan.seats[pod.uid] for pod in world.pods]
    assert all(seat.node in nodes for seat, nodes in zip(seats, world.nodes, strict=True))
    assert world.level is None or len({world.rack[seat.node] for seat in seats}) == 1
    used = [sum(len(seat.gpus) for seat in seats if seat.node == at) for at in range(len(world.free))]
    assert all(count <= free for count, free in zip(used, world.free, strict=True))

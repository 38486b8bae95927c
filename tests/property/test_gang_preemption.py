"""Who goes for a whole group, on small clusters: compared with all that could go.

The oracle counts: on these machines any GPUs are as good as others, so a node takes as many members as its free GPUs admit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

import pytest

from pyscheduler.core.gangs.membership import GangKey, Membership
from pyscheduler.core.model import Code, PodUid
from pyscheduler.core.planner import Planner
from tests.builders import attempt, bound, member, node, only, planner, shown, uuids
from tests.oracle.evictions import Cost, Holder, cost_of

BOX = "hgx-h100"
PRIORITY = 10


@dataclass(frozen=True)
class Pod:
    """A pod that runs on one node, with the fields of the oracle's."""

    node: int
    held: Holder


@dataclass(frozen=True)
class World:
    racks: tuple[int, ...]
    pods: tuple[Pod, ...]
    # What the group wants.
    members: int
    gpus: int
    within_rack: bool
    one_per_node: bool
    room: tuple[int, ...]

    def units(self) -> list[list[Holder]]:
        """Return what may go, each as the pods that go together."""
        runs = [each.held for each in self.pods if each.held.state == "runs"]
        found = [[h] for h in runs if not h.gang]
        found += [[h for h in runs if h.gang == gang] for gang in sorted({h.gang for h in runs if h.gang})]
        return [unit for unit in found if all(h.priority < PRIORITY for h in unit)]

    def fits(self, gone: Collection[Holder]) -> bool:
        """Tell whether the group has room when these are gone, and those that leave anyway."""
        free = [8] * len(self.racks)
        for each in self.pods:
            if each.held not in gone and each.held.state != "leaves":
                free[each.node] -= each.held.count
        fit = [min(room, count // self.gpus, 1 if self.one_per_node else 8) for room, count in zip(self.room, free, strict=True)]
        if self.members == 1 or not self.within_rack:
            return (max if self.members == 1 else sum)(fit) >= self.members
        return any(sum(n for n, rack in zip(fit, self.racks, strict=True) if rack == one) >= self.members for one in self.racks)

    def evictions(self) -> Iterator[list[Holder]]:
        """Yield all sets of pods that would make room."""
        units = self.units()
        for size in range(len(units) + 1):
            for chosen in combinations(units, size):
                gone = [h for unit in chosen for h in unit]
                if self.fits(gone):
                    yield gone


def any_world(draw: random.Random, nodes: int, sizes: tuple[int, ...]) -> World:
    pods: list[Pod] = []
    for at in range(nodes):
        left = 8
        while left and draw.random() < 0.95:
            count = min(draw.choice(sizes), left)
            left -= count
            pods.append(Pod(at, any_holder(draw, f"p{len(pods)}", count)))
    members, gpus = draw.choice([1, 2, 3, 4]), draw.choice([2, 4, 8])
    room = tuple(draw.choice([8, 8, 8, 1, 0]) for _ in range(nodes))
    return World(
        tuple(at // 2 for at in range(nodes)),
        tuple(pods),
        members,
        gpus,
        within_rack=draw.random() < 0.5,
        one_per_node=draw.random() < 0.2,
        room=room,
    )


def any_holder(draw: random.Random, name: str, count: int) -> Holder:
    return Holder(
        name,
        count,
        (),
        draw.choice([0, 0, 1, 2, 5, PRIORITY]),
        float(draw.randint(1, 4)),
        state=draw.choice(["runs"] * 9 + ["leaves"]),
        gang=draw.choice(["", "", "", "a", "b"]),
        protected=draw.random() < 0.15,
    )


def planner_of(world: World) -> Planner:
    plan = planner(*(node(f"n{at}", BOX, path=(f"rack-{rack}",)) for at, rack in enumerate(world.racks)))
    used = [0] * len(world.racks)
    for each in world.pods:
        h, on = each.held, f"n{each.node}"
        gpus = uuids(BOX, on, *range(used[each.node], used[each.node] + h.count))
        used[each.node] += h.count
        group = Membership(GangKey("default", h.gang, "test"), min_members=1) if h.gang else None
        leaves = h.state == "leaves"
        facts = bound(h.name, on, h.count, gpus, priority=h.priority, bound_at=h.start, membership=group, terminating=leaves)
        plan.cluster.observe_pod(facts, 0.0)
    return plan


def ask(world: World) -> set[str] | Code | None:
    """Return who goes for the group, None if nobody's going helps; or that it has a place already."""
    plan = planner_of(world)
    level = "tier-0" if world.within_rack else None
    said = {"required_level": level, "one_pod_per_node": world.one_per_node}
    pods = [
        member(f"m{i}", world.gpus, group="wants", least=world.members, priority=PRIORITY, index=i, **said)
        for i in range(world.members)
    ]
    for each in pods:
        plan.cluster.observe_pod(shown(each), 1.0)
    nodes, room = only(*range(len(world.racks)), known=len(world.racks)), bytes(world.room)
    answer = plan.plan(attempt(2), pods[0], nodes, room, frozenset(), 1.0)
    if answer.verdict.code is Code.OK:
        return Code.OK
    protected = {PodUid(other.held.name) for other in world.pods if other.held.protected}
    found = plan.preempt(attempt(2), pods[0], nodes.nodes, protected, 1.0, room)
    if found.proposal is None:
        return None
    leaves = [PodUid(other.held.name) for other in world.pods if other.held.state == "leaves"]
    for uid in [*found.proposal.victims, *leaves]:
        plan.cluster.forget_pod(uid, 2.0)
    placed = plan.plan(attempt(3), pods[0], nodes, room, frozenset(), 2.0)
    assert placed.verdict.code is Code.OK, f"they went for nothing: {placed.verdict.reason}"
    return set(found.proposal.victims)


def victims_of(world: World, names: Collection[str]) -> list[Holder]:
    victims = [each.held for each in world.pods if each.held.name in names]
    assert len(victims) == len(names)
    for unit in [[h for h in victims if h.gang == gang] for gang in {h.gang for h in victims if h.gang}]:
        assert unit in world.units(), f"a part of group {unit[0].gang} goes"
    return victims


def test_who_goes_is_the_cheapest_set_where_few_could():
    outcomes = Counter[str]()
    for seed in range(500):
        draw = random.Random(seed)
        world = any_world(draw, draw.randint(1, 5), (2, 4, 4, 8, 8))
        if len(world.units()) > 10:
            continue
        least: Cost | None = min((cost_of(gone) for gone in world.evictions()), default=None)
        found = ask(world)
        if found is Code.OK:
            assert world.fits(()), f"seed {seed}"
        elif found is None:
            # Where GPUs are free and room lacks an eviction does not help.
            assert least is None, f"seed {seed}: the least cost is {least}"
        else:
            assert isinstance(found, set)
            victims = victims_of(world, found)
            assert cost_of(victims) == least, f"seed {seed}: {sorted(found)}"
            outcomes["groups"] += any(h.gang for h in victims)
            outcomes["protected"] += any(h.protected for h in victims)
        outcomes["none" if found is None else "fits" if found is Code.OK else f"{min(3, len(found))} victims"] += 1
    assert min(outcomes[kind] for kind in ("none", "fits", "groups", "1 victims", "2 victims", "3 victims", "protected")) > 8, (
        outcomes
    )


def test_of_many_that_could_go_none_is_spared_that_need_not_go():
    many = 0
    for seed in range(300):
        draw = random.Random(seed)
        world = any_world(draw, draw.randint(3, 8), (1, 1, 2, 2, 4))
        units = world.units()
        found = ask(world)
        if found is Code.OK:
            continue
        everybody = [h for unit in units for h in unit]
        assert (found is None) == (not world.fits(everybody)), f"seed {seed}"
        if not isinstance(found, set):
            continue
        victims = victims_of(world, found)
        assert world.fits(victims), f"seed {seed}"
        for unit in units:
            if unit[0] in victims:
                assert not world.fits([h for h in victims if h not in unit]), f"seed {seed}: {unit} could stay"
        free = [h for unit in units if not any(h.protected for h in unit) for h in unit]
        if victims and world.fits(free):
            assert not any(h.protected for h in victims), f"seed {seed}"
            highest = max(h.priority for h in victims)
            lower = [h for unit in units if max(h.priority for h in unit) < highest for h in unit if h in free]
            assert not world.fits(lower), f"seed {seed}: those of lower priority are enough"
        many += len(units) > 10
    assert many > 50


@pytest.mark.parametrize("seed", range(5))
def test_the_same_question_has_the_same_answer(seed: int):
    world = any_world(random.Random(seed), 6, (1, 2, 4))
    assert ask(world) == ask(world)

"""Cards that are left out, against a model that tries every set of cards: who may go where, and what they get."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import combinations

import pytest

from pyscheduler.core.cards import NodeCards
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.search import propose
from pyscheduler.core.fabric.place import NOWHERE
from pyscheduler.core.job import Capacity, Job, Limits, Selection
from pyscheduler.core.machine.links import Link
from pyscheduler.core.model import Code, Machine, NodeFacts, PodUid
from pyscheduler.core.planner import Planner
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import select
from tests.builders import ALL, GPU, OURS, attempt, bound, pod
from tests.oracle.boards import Board, Gpus
from tests.oracle.clusters import table_of

CARDS = 4
# Steps of 0.05 that a card of this score is behind a good one.
STEPS = {1.0: 0, 0.96: 0, 0.93: 1, 0.88: 2}
NEAR, FAR = "NV1", "SYS"


@dataclass(frozen=True)
class Box:
    """A node of four cards; `held` by pods of one card each."""

    name: str
    board: Board
    healthy: frozenset[int]
    held: frozenset[int]
    excluded: frozenset[int]
    scores: tuple[float, ...]
    speeds: tuple[float, ...]

    def handle(self, gpu: int) -> str:
        return f"{self.name}-{gpu}"

    def near(self, pair: Gpus) -> bool:
        return dict(zip(combinations(range(CARDS), 2), self.board.links, strict=True))[pair[0], pair[1]] == NEAR

    def linked(self, some: Gpus) -> bool:
        return all(map(self.near, combinations(some, 2)))

    def alone(self, gpu: int, capacity: str) -> tuple[int, int]:
        """What one card is worth, smaller is better: its best link to another free one, which is lost, then its pace."""
        others = self.open_to(capacity) - {gpu}
        lost = max((1 + self.near(tuple(sorted((gpu, other)))) for other in others), default=0)
        return lost, STEPS[self.scores[gpu]]

    def has(self, count: int, among: frozenset[int], *, near: bool) -> bool:
        return any(not near or self.linked(some) for some in combinations(sorted(among), count))

    def open_to(self, capacity: str) -> frozenset[int]:
        free = self.healthy - self.held
        return free - self.excluded if capacity == "require" else free

    def offered(self, capacity: str) -> int:
        """The kubelet offers all cards: a sick one that is in use counts against those that are free."""
        left_out = self.healthy - self.held & self.excluded if capacity == "require" else ()
        return CARDS - len(self.held) - len(left_out)

    def room(self, gpus: int, capacity: str, steps: int = 99) -> int:
        """How many pods fit, on cards that are no more steps behind."""
        fast = [gpu for gpu in self.open_to(capacity) if STEPS[self.scores[gpu]] <= steps]
        return min(len(fast), self.offered(capacity)) // gpus


def board(draw: random.Random) -> Board:
    return Board(tuple(draw.choice((NEAR, NEAR, FAR)) for _ in range(6)), (0,) * CARDS, (None,) * CARDS)


BOARDS = [board(random.Random(number)) for number in range(6)]


def some(draw: random.Random, chance: float) -> frozenset[int]:
    return frozenset(gpu for gpu in range(CARDS) if draw.random() < chance)


def any_box(draw: random.Random, name: str) -> Box:
    scores = tuple(draw.choice((1.0, 1.0, *STEPS)) for _ in range(CARDS))
    speeds = tuple(draw.choice((1.08, 1.0, 0.9)) for _ in range(CARDS))
    return Box(name, draw.choice(BOARDS), some(draw, 0.9), some(draw, 0.35), some(draw, 0.3), scores, speeds)


def tell(cluster: Cluster, box: Box) -> None:
    """Tell what monitoring says, the node and its pods, in any order that may happen."""
    handles = tuple(map(box.handle, range(CARDS)))
    healthy = sum(1 << gpu for gpu in box.healthy)
    machine = Machine(tuple(f"GPU{gpu}" for gpu in range(CARDS)), handles, healthy, table_of(box.board))
    cluster.observe_node(NodeFacts(box.name, NOWHERE, GPU, CARDS, machine), 0.0)
    for gpu in box.held:
        cluster.observe_pod(bound(f"on-{box.handle(gpu)}", box.name, 1, (box.handle(gpu),)), 0.0)


def made(draw: random.Random, boxes: list[Box]) -> Planner:
    cluster = Cluster(epoch=1, scheduler_name=OURS)
    # First come others, which are recovered: nothing of them may be left.
    early = {box.name for box in boxes if draw.random() < 0.5}
    for late in (False, True):
        for box in boxes:
            if draw.random() < 0.3:
                cluster.set_cards(box.name, NodeCards({box.handle(draw.randrange(CARDS)): "slow"}), 0.0)
            if late == (box.name not in early):
                tell(cluster, box)
    for box in boxes:
        excluded = {box.handle(gpu): draw.choice(("slow", "faulty")) for gpu in box.excluded}
        scores, speeds = (dict(zip(map(box.handle, range(CARDS)), each, strict=True)) for each in (box.scores, box.speeds))
        cluster.set_cards(box.name, NodeCards(excluded, scores, speeds), 0.0)
    plan = Planner(cluster, version="test")
    plan.resync(attempt(1), (), 0.0)
    return plan


def names(plan: Planner, nodes: int) -> set[str]:
    return {name for at, name in enumerate(plan.cluster.table.names) if nodes >> at & 1}


@pytest.mark.parametrize("seed", range(120))
def test_who_may_go_where_and_what_they_get(seed: int):
    draw = random.Random(seed)
    boxes = [any_box(draw, f"n{at}") for at in range(draw.randint(1, 5))]
    plan = made(draw, boxes)
    by_name = {box.name: box for box in boxes}
    for number, capacity in enumerate(("require", "prefer", "ignore")):
        count, near = draw.randint(1, CARDS), draw.random() < 0.4
        settings = {"capacity": capacity} | ({"max-link": NEAR} if near else {})
        wanted = pod(f"p{number}", count, settings=settings)
        answer = plan.filter(attempt(2 + number), wanted, ALL, 1.0)
        fitting = {b.name for b in boxes if count <= b.offered(capacity) and b.has(count, b.open_to(capacity), near=near)}
        assert names(plan, answer.feasible) == fitting
        assert (answer.verdict.code is Code.OK) == bool(fitting)
        whole = {b.name: b.healthy - (b.excluded if capacity == "require" else frozenset()) for b in boxes}
        never = {b.name for b in boxes if count > CARDS - (len(b.excluded & b.healthy) if capacity == "require" else 0)}
        never |= {b.name for b in boxes if near and not b.has(count, whole[b.name], near=True)}
        assert names(plan, answer.unresolvable) == never
        if not fitting:
            continue
        first = by_name[plan.cluster.table.names[answer.candidates[0].node]]
        strict = {b.name for b in boxes if count <= b.offered("require") and b.has(count, b.open_to("require"), near=near)}
        assert capacity != "prefer" or not strict or first.name in strict
        given = plan.reserve(attempt(2 + number), wanted, answer.candidates[0].node, 1.0)
        gpus = [int(each.rpartition("-")[2]) for each in json.loads(dict(given.annotations)["pyscheduler.io/gpus"])["main"]]
        assert len(gpus) == count
        assert first.open_to(capacity) >= set(gpus)
        assert not near or first.linked(tuple(sorted(gpus)))
        if capacity == "prefer" and first.name in strict:
            assert not first.excluded & set(gpus)
        speed = float(dict(given.annotations)["pyscheduler.io/relative-speed"])
        assert speed == min(first.speeds[gpu] for gpu in gpus)
        if count == 1:
            what = "require" if capacity == "prefer" and strict else capacity
            best = min(b.alone(gpu, what) for b in boxes if b.offered(what) for gpu in b.open_to(what))
            assert first.alone(gpus[0], what) == best
        plan.unreserve(attempt(2 + number), PodUid(f"p{number}"), bound_unknown=False, now=1.0)


@pytest.mark.parametrize("seed", range(120))
def test_a_group_fits_where_its_pods_do_one_by_one(seed: int):
    draw = random.Random(1000 + seed)
    boxes = [any_box(draw, f"n{at}") for at in range(draw.randint(1, 5))]
    plan = made(draw, boxes)
    for capacity in ("require", "prefer", "ignore"):
        gpus, pods = draw.randint(1, 2), draw.randint(2, 5)
        found = select(plan.cluster, Job(pods, gpus, limits=Limits(capacity=Capacity(capacity))))
        assert isinstance(found, Selection) == (sum(box.room(gpus, capacity) for box in boxes) >= pods)
        if not isinstance(found, Selection):
            continue
        taken: dict[str, list[int]] = {}
        for each in found.pods:
            taken.setdefault(plan.cluster.table.names[each.node], []).extend(g for g in range(CARDS) if each.mask >> g & 1)
        for box in boxes:
            mine = taken.get(box.name, [])
            assert len(mine) == len(set(mine))
            assert box.open_to(capacity) >= set(mine)
        strict = sum(box.room(gpus, "require") for box in boxes) >= pods
        if capacity == "prefer" and strict:
            assert not any(box.excluded & set(taken.get(box.name, [])) for box in boxes)
        if gpus == 1:
            what = "require" if capacity == "prefer" and strict else capacity
            together = max if found.level == "node" else sum
            best = next(s for s in range(3) if together(box.room(1, what, s) for box in boxes) >= pods)
            assert max(STEPS[box.scores[gpu]] for box in boxes for gpu in taken.get(box.name, [])) == best


@pytest.mark.parametrize("seed", range(120))
def test_an_eviction_makes_room_without_cards_that_are_left_out_and_nobody_goes_for_nothing(seed: int):
    draw = random.Random(2000 + seed)
    box = any_box(draw, "n0")
    box = Box(box.name, box.board, frozenset(range(CARDS)), box.held, box.excluded, box.scores, box.speeds)
    plan = made(draw, [box])
    capacity, count = draw.choice(("require", "ignore")), draw.randint(1, CARDS)
    found = propose(plan.cluster, Shape(GPU, count, Limits(Link.parse(NEAR), capacity=Capacity(capacity))), PodUid("x"), 1, 1)
    cards = frozenset(range(CARDS)) - (box.excluded if capacity == "require" else frozenset())
    assert (found is not None) == box.has(count, cards, near=True)
    if found is None:
        return
    freed = {int(uid.rpartition("-")[2]) for uid in found.victims}
    assert box.has(count, cards - (box.held - freed), near=True)
    for spared in freed:
        assert not box.has(count, cards - (box.held - freed | {spared}), near=True)
    assert {int(each.rpartition("-")[2]) for each in found.gpus} <= cards

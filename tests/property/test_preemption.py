"""Who is evicted for a pod of higher priority: never more, nor more important ones, than brute force finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.search import Evictions, Proposal
from pyscheduler.core.fabric.place import NOWHERE
from pyscheduler.core.gangs.membership import GangKey, Membership
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import Limits
from pyscheduler.core.machine.links import Link
from pyscheduler.core.model import Machine, NodeFacts, PodUid
from pyscheduler.core.request import Shape
from tests.builders import GPU, OURS, attempt, bound
from tests.oracle.boards import Board, Gpus
from tests.oracle.clusters import mask_of, table_of
from tests.oracle.evictions import Box, Holder, Wanted, cost_of, evictions, free_sets

LINKS = ["NV1", "NV2", "NV4", "PIX", "PHB", "SYS"]
PRIORITIES = [-5, 0, 0, 1, 2, 2_000_000_000]
STATES = ["runs"] * 9 + ["starts", "leaves", "ended", "waits"]


def any_board(draw: random.Random, gpus: int) -> Board:
    links = tuple(draw.choice(LINKS) for _ in combinations(range(gpus), 2))
    return Board(links, tuple(draw.randint(0, 1) for _ in range(gpus)), (None,) * gpus)


# Few, for each takes a while to judge.
BOARDS = [any_board(random.Random(gpus * 10 + number), gpus) for gpus in (1, 2, 3, 4, 6, 8) for number in range(3)]
LARGE = [any_board(random.Random(160 + number), 16) for number in range(2)]


def any_box(draw: random.Random, name: str, board: Board, sizes: Sequence[int] = (1, 1, 1, 2, 2, 4)) -> Box:
    """Return a machine with every kind of pod on it, mostly full; some have more pods than GPUs."""
    size, rest = len(board.numa), list(board.gpus)
    healthy = tuple(gpu for gpu in board.gpus if draw.random() < 0.95)
    offered = draw.choice([size, size, size, max(1, len(healthy)), max(1, size - 1)])
    draw.shuffle(rest)
    holders: list[Holder] = []
    while rest and draw.random() < 0.95:
        count = min(draw.choice(sizes), len(rest))
        gpus, rest = tuple(sorted(rest[:count])), rest[count:]
        holders.append(any_holder(draw, f"{name}-{len(holders)}", gpus))
    if draw.random() < 0.1:
        holders.append(Holder(f"{name}-{len(holders)}", 1, (), 0, told="number"))
    if holders and holders[0].told == "report" and draw.random() < 0.2:
        # It is being given GPUs that others are known to have: its pod is about to be replaced, or the report is late.
        holders[0] = replace(holders[0], gpus=tuple(sorted({*holders[0].gpus, draw.choice(board.gpus)})))
    holders = [replace(h, devices=devices(draw, board)) if h.state == "waits" else h for h in holders]
    strangers = tuple(rest[:1]) if draw.random() < 0.2 else ()
    return Box(name, board if draw.random() < 0.85 else None, offered, healthy, tuple(holders), strangers)


def devices(draw: random.Random, board: Board) -> Gpus:
    return tuple(draw.sample(board.gpus, 1)) if draw.random() < 0.3 else ()


def crowded_box(draw: random.Random) -> Box:
    """Return a large machine of small pods, most of which may go."""
    board = draw.choice(LARGE)
    holders: list[Holder] = []
    rest = draw.sample(board.gpus, 16)
    while rest:
        count = draw.choice([1, 1, 1, 1, 2])
        gpus, rest = tuple(sorted(rest[:count])), rest[count:]
        priority, start = draw.choice([0, 0, 1, 1, 2, 9]), float(draw.randint(1, 4))
        holders.append(Holder(f"n0-{len(holders)}", len(gpus), gpus, priority, start, protected=draw.random() < 0.1))
    return Box("n0", board, 16, board.gpus, tuple(holders))


def any_holder(draw: random.Random, name: str, gpus: Gpus) -> Holder:
    state = draw.choice(STATES)
    told = draw.choice(["annotation"] * 5 + ["report"] * 3 + ["number"])
    if state == "ended" and told == "number":
        told = "report"
    if state == "starts" or (state == "waits" and told == "report"):
        told = "annotation"
    return Holder(
        name,
        len(gpus),
        () if told == "number" else gpus,
        draw.choice(PRIORITIES),
        # Seconds: pods of one Job are often bound in the same one.
        float(draw.randint(1, 4)),
        told,
        state,
        gang=draw.choice(["", "", "", "", "a", "b"]) if state != "waits" else "",
        protected=draw.random() < 0.2,
    )


def with_own(holders: tuple[Holder, ...]) -> tuple[Holder, ...]:
    """Make what is held for a nominated pod, if there is any, that of the pod that asks."""
    own = next((h for h in holders if h.state == "waits"), None)
    return tuple(replace(h, name="wanted") if h is own else h for h in holders)


def unprotected(box: Box) -> Box:
    return replace(box, holders=tuple(replace(h, protected=False) for h in box.holders))


def any_wanted(draw: random.Random, largest: int) -> Wanted:
    limit = draw.choice(["", "", "max-link", "max-link", "same-numa"])
    return Wanted(
        draw.randint(1, largest),
        draw.choice([0, 1, 2, 3, 3, 1_000_000_000, 2_000_000_001]),
        max_link=draw.choice(LINKS) if limit == "max-link" else None,
        same_numa=limit == "same-numa",
    )


def cluster_of(boxes: Sequence[Box]) -> Cluster:
    cluster = Cluster(epoch=1, scheduler_name=OURS)
    for box in boxes:
        cluster.observe_node(facts_of(box, ()), 0.0)
    for node, box in enumerate(boxes):
        for h in box.holders:
            put(cluster, node, box, h)
        cluster.observe_node(facts_of(box, box.holders), 0.0)
        for h in box.holders:
            if h.state == "ended":
                cluster.forget_pod(PodUid(h.name), 0.0)
    return cluster


def facts_of(box: Box, reported: Sequence[Holder]) -> NodeFacts:
    """Return the node; its agent reports, of these pods, those that are known by its report or have ended."""
    machine = None
    if box.board is not None:
        names = tuple(f"GPU{gpu}" for gpu in box.board.gpus), handles(box, box.board.gpus)
        machine = Machine(*names, mask_of(box.healthy), table_of(box.board))
    in_use = {PodUid(h.name): handles(box, h.gpus) for h in reported if h.told == "report" or h.state == "ended"}
    in_use |= {PodUid(h.name): handles(box, h.devices) for h in reported if h.devices}
    if box.strangers:
        in_use[PodUid(f"{box.name}-stranger")] = handles(box, box.strangers)
    return NodeFacts(box.name, NOWHERE, GPU, box.offered, machine, in_use or None)


def handles(box: Box, gpus: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{box.name}-gpu-{gpu}" for gpu in gpus)


def put(cluster: Cluster, node: int, box: Box, h: Holder) -> None:
    gpus = handles(box, h.gpus)
    if h.state in ("runs", "leaves", "ended"):
        annotated = gpus if h.told == "annotation" else None
        facts = bound(h.name, box.name, h.count, annotated, priority=h.priority, bound_at=h.start, membership=group(h))
        cluster.observe_pod(facts, 0.0)
        if h.state == "leaves":
            cluster.observe_pod(replace(facts, terminating=True), 0.0)
        return
    if h.gang:
        cluster.observe_pod(bound(h.name, box.name, h.count, priority=h.priority, membership=group(h), node=None), 0.0)
    state = HoldingState.RESERVED if h.state == "starts" else HoldingState.NOMINATED
    holding = Holding(PodUid(h.name), "", h.name, node, state, h.count, gpus, 0.0, "", attempt(1), priority=h.priority)
    cluster.refresh(cluster.ledger.reserve(holding) if h.state == "starts" else cluster.ledger.promise(holding))


def group(h: Holder) -> Membership | None:
    return Membership(GangKey("default", h.gang, "test")) if h.gang else None


def ask(evictions_of: Evictions, boxes: Sequence[Box], wanted: Wanted, nodes: int) -> Proposal | None:
    limits = Limits(Link.parse(wanted.max_link) if wanted.max_link else None, None, wanted.same_numa)
    protected = {PodUid(h.name) for box in boxes for h in box.holders if h.protected}
    shape = Shape(GPU, wanted.gpus, limits)
    return evictions_of.propose(shape, PodUid(wanted.name), wanted.priority, nodes, protected)


def victims_of(boxes: Sequence[Box], found: Proposal) -> list[Holder]:
    victims = [h for box in boxes for h in box.holders if h.name in found.victims]
    assert len(victims) == len(found.victims), "each victim is named once"
    on_node = {h.gang or h.name for h in boxes[found.node].holders}
    assert {h.gang or h.name for h in victims} <= on_node, "pods go that have nothing on the node"
    for gang in {h.gang for h in victims if h.gang}:
        runs = {h.name for box in boxes for h in box.holders if h.gang == gang and h.state == "runs"}
        assert runs <= set(found.victims), f"a part of group {gang} goes"
    return victims


def check_set(boxes: Sequence[Box], wanted: Wanted, found: Proposal) -> None:
    """The set satisfies the limits, and nobody who stays has a GPU of it."""
    box = boxes[found.node]
    assert found.gpus in {handles(box, gpus) for gpus in free_sets(box, wanted, victims_of(boxes, found))}


def check_cheapest(boxes: Sequence[Box], wanted: Wanted, nodes: int, found: Proposal | None) -> None:
    asked_about = [box for node, box in enumerate(boxes) if nodes >> node & 1]
    least = min((cost for box in asked_about for cost, _ in evictions(box, wanted, boxes)), default=None)
    assert (found is None) == (least is None), f"proposed {found}, the least cost is {least}"
    if found is not None:
        assert nodes >> found.node & 1
        assert cost_of(victims_of(boxes, found)) == least, str(found)
        check_set(boxes, wanted, found)


def test_an_eviction_is_the_cheapest_that_brute_force_finds() -> None:
    """Each cluster is asked several times, for what was worked out for one pod is kept for the next."""
    outcomes = Counter[str]()
    for seed in range(5000):
        draw = random.Random(seed)
        boxes = [any_box(draw, f"n{number}", draw.choice(BOARDS)) for number in range(draw.randint(1, 4))]
        boxes[0] = replace(boxes[0], holders=with_own(boxes[0].holders))
        evictions_of = Evictions(cluster_of(boxes))
        largest = max(len(box.healthy) for box in boxes) or 1
        for wanted in [any_wanted(draw, largest) for _ in range(2)]:
            nodes = draw.choice([15, 15, 15, draw.getrandbits(4)])
            for known, asking in product((boxes, [unprotected(box) for box in boxes]), (wanted, replace(wanted, name="other"))):
                found = ask(evictions_of, known, asking, nodes)
                check_cheapest(known, asking, nodes, found)
                outcomes["none" if found is None else f"{min(len(found.victims), 3)} victims"] += 1
                outcomes["groups"] += found is not None and any(h.gang for h in victims_of(known, found))
    assert min(outcomes[kind] for kind in ("none", "groups", "0 victims", "1 victims", "2 victims", "3 victims")) > 50, outcomes


def test_a_machine_with_many_pods_loses_none_that_could_stay() -> None:
    """More pods than are tried in all combinations: of the cost, what is proven is its beginning."""
    crowded = 0
    for seed in range(150):
        draw = random.Random(seed)
        box = crowded_box(draw)
        wanted = replace(any_wanted(draw, 6), priority=3)
        found = ask(Evictions(cluster_of([box])), [box], wanted, 1)
        everybody = [h for h in box.holders if h.priority < wanted.priority]
        assert (found is None) == (not free_sets(box, wanted, everybody)), f"seed {seed}"
        if found is None:
            continue
        check_set([box], wanted, found)
        victims = victims_of([box], found)
        for spared in victims:
            assert not free_sets(box, wanted, [h for h in victims if h is not spared]), f"seed {seed}: {spared} could stay"
        unprotected = [h for h in everybody if not h.protected]
        if free_sets(box, wanted, unprotected):
            assert not any(h.protected for h in victims), f"seed {seed}"
            lower = [h for h in unprotected if h.priority < max(v.priority for v in victims)]
            assert not free_sets(box, wanted, lower), f"seed {seed}: those of lower priority are enough"
        crowded += len(everybody) > 10
    assert crowded > 50


def test_of_many_small_pods_on_a_machine_those_go_that_sorting_puts_first() -> None:
    draw = random.Random(1)
    board = LARGE[0]
    for _ in range(30):
        pods = [Holder(f"n0-{gpu}", 1, (gpu,), draw.choice([0, 0, 1]), float(draw.randint(1, 9))) for gpu in board.gpus]
        boxes, wanted = [Box("n0", board, 16, board.gpus, tuple(pods))], Wanted(draw.randint(11, 16), 3)
        found = ask(Evictions(cluster_of(boxes)), boxes, wanted, 1)
        first = sorted(pods, key=lambda h: (h.priority, -h.start))[: wanted.gpus]
        assert found
        assert cost_of(victims_of(boxes, found)) == cost_of(first)


@pytest.mark.parametrize("others", [50, 200])
def test_a_node_behind_hundreds_that_only_seem_to_do_is_found(others: int) -> None:
    """By number the pods of lowest priority are enough on every node, but their GPUs are not linked by NVLink."""
    pairs = {(0, 1): "NV4", (2, 3): "NV4"}
    board = Board(tuple(pairs.get(pair, "SYS") for pair in combinations(range(4), 2)), (0, 0, 1, 1), (None,) * 4)
    wanted = Wanted(2, 100, max_link="NV4")

    def box(number: int, lowest: Gpus) -> Box:
        pods = [Holder(f"n{number}-{gpu}", 1, (gpu,), 0 if gpu in lowest else others, 1000.0 - number) for gpu in board.gpus]
        return Box(f"n{number}", board, 4, board.gpus, tuple(pods))

    boxes = [*(box(number, (0, 2)) for number in range(600)), box(600, (2, 3))]
    found = ask(Evictions(cluster_of(boxes)), boxes, wanted, (1 << 601) - 1)
    assert found
    assert (found.node, found.victims) == (600, ("n600-2", "n600-3"))


def test_of_equal_costs_the_better_links_win_on_one_node_and_among_nodes() -> None:
    board = Board(("PIX", "SYS", "SYS", "SYS", "SYS", "NV4"), (0, 0, 1, 1), (None,) * 4)
    slow = Board(("PIX",) * 6, (0, 0, 0, 0), (None,) * 4)

    def box(name: str, of: Board) -> Box:
        return Box(name, of, 4, of.gpus, (Holder(f"{name}-a", 2, (0, 1), 0, 1.0), Holder(f"{name}-b", 2, (2, 3), 0, 1.0)))

    boxes = [box("n0", slow), box("n1", board), box("n2", slow)]
    found = ask(Evictions(cluster_of(boxes)), boxes, Wanted(2, 100), 7)
    assert found == Proposal(1, (PodUid("n1-b"),), ("n1-gpu-2", "n1-gpu-3"))

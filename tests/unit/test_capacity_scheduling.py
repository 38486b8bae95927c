"""Cards that are slow or faulty in scheduling: left out, ranked behind, told of, and back again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pyscheduler.adapters.gang_config_map import adds, config_map
from pyscheduler.core.cards import NO_CARDS, NodeCards, cards_of
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.job import Capacity, Job, Limits, Refusal, Selection
from pyscheduler.core.machine.links import Link
from pyscheduler.core.model import Code, PodRequest, PodUid, Verdict
from pyscheduler.core.planner import Planner
from pyscheduler.core.replies import FilterAnswer
from pyscheduler.core.selector import select
from pyscheduler.core.settings import shape_of_pod
from tests.builders import ALL, OURS, attempt, bound, machine, node, planner, pod, shown, uuids
from tests.unit.test_gang_preemption import full, gang
from tests.unit.test_gang_table import bind, started, take
from tests.unit.test_gangs import BOX, members, shim, show

SICK = {0: "slow"}


def handle(on: str, gpu: int, kind: str = BOX) -> str:
    return uuids(kind, on, gpu)[0]


def excluded(on: str, cards: dict[int, str], kind: str = BOX) -> NodeCards:
    return NodeCards({handle(on, gpu, kind): why for gpu, why in cards.items()})


def scores(on: str, cards: dict[int, float], kind: str = BOX) -> NodeCards:
    return NodeCards(scores={handle(on, gpu, kind): score for gpu, score in cards.items()})


def speeds(on: str, cards: dict[int, float], kind: str = BOX) -> NodeCards:
    return NodeCards(speeds={handle(on, gpu, kind): speed for gpu, speed in cards.items()})


def asks(name: str, gpus: int, capacity: str = "", **settings: str) -> PodRequest:
    said = {key.replace("_", "-"): value for key, value in settings.items()}
    return pod(name, gpus, settings={**said, **({"capacity": capacity} if capacity else {})})


def judged(plan: Planner, wanted: PodRequest) -> FilterAnswer:
    return plan.filter(attempt(2), wanted, ALL, 1.0)


def candidates(plan: Planner, wanted: PodRequest) -> list[str]:
    return [plan.cluster.table.names[each.node] for each in judged(plan, wanted).candidates]


def reserved(plan: Planner, wanted: PodRequest, on: str, number: int = 2) -> dict[str, str]:
    index = plan.cluster.table.index_of(on)
    assert index is not None
    answer = plan.reserve(attempt(number), wanted, index, 1.0)
    assert answer.verdict.code is Code.OK, answer.verdict
    return dict(answer.annotations)


def gpus_of(annotations: dict[str, str]) -> list[str]:
    return json.loads(annotations["pyscheduler.io/gpus"])["main"]


def hold(plan: Planner, on: str, *gpus: int, name: str = "", kind: str = BOX) -> None:
    plan.cluster.observe_pod(bound(name or f"on-{on}-{gpus[0]}", on, len(gpus), uuids(kind, on, *gpus)), 0.0)


class TestLeftOut:
    """Cards that are not handed out."""

    def test_a_pod_that_says_nothing_gets_none(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", {0: "slow", 1: "faulty"}), 0.0)
        assert plan.cluster.state(0).free == 6
        given = gpus_of(reserved(plan, asks("p", 6), "a"))
        assert sorted(given) == sorted(uuids(BOX, "a", 2, 3, 4, 5, 6, 7))

    def test_what_is_said_before_the_node_is_there_counts_and_stays_through_its_updates(self):
        plan = planner(node("other"))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        plan.cluster.observe_node(node("a"), 1.0)
        assert plan.cluster.state(1).free == 7
        plan.cluster.observe_node(node("a", path=("rack",)), 2.0)
        assert plan.cluster.state(1).free == 7
        plan.cluster.forget_node("a")
        plan.cluster.observe_node(node("a"), 3.0)
        assert plan.cluster.state(1).free == 7
        plan.cluster.set_cards("a", None, 4.0)
        assert (plan.cluster.state(1).free, plan.cluster.state(1).facts.cards) == (8, NO_CARDS)

    def test_the_same_again_changes_nothing(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        before = plan.cluster.state(0), plan.cluster.generation
        plan.cluster.set_cards("a", excluded("a", SICK), 1.0)
        assert (plan.cluster.state(0), plan.cluster.generation) == before

    def test_a_card_that_is_in_use_stays_so_and_is_not_free_afterwards(self):
        plan = planner(node("a"))
        hold(plan, "a", 0, 1)
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        held = plan.cluster.ledger.get(PodUid("on-a-0"))
        assert held is not None
        assert held.gpus == uuids(BOX, "a", 0, 1)
        assert plan.cluster.state(0).free == 6
        plan.cluster.forget_pod(PodUid("on-a-0"), 1.0)
        assert plan.cluster.state(0).free == 7
        assert candidates(plan, asks("p", 8)) == []
        assert candidates(plan, asks("p", 7)) == ["a"]

    def test_a_pod_that_ignores_it_takes_them_as_any_other(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        wanted = asks("p", 8, "ignore")
        assert candidates(plan, wanted) == ["a"]
        assert len(gpus_of(reserved(plan, wanted, "a"))) == 8

    def test_a_pod_that_prefers_others_takes_them_last(self):
        plan = planner(node("a"), node("b"))
        hold(plan, "a", *range(4))
        plan.cluster.set_cards("a", excluded("a", {7: "slow"}), 0.0)
        # The tightest node would be a.
        assert candidates(plan, asks("p", 4, "ignore")) == ["a", "b"]
        assert candidates(plan, asks("p", 4, "prefer")) == ["b", "a"]
        assert handle("a", 7) not in gpus_of(reserved(plan, asks("three", 3, "prefer"), "a"))
        plan.cluster.set_cards("b", excluded("b", dict.fromkeys(range(8), "faulty")), 0.0)
        assert gpus_of(reserved(plan, asks("last", 1, "prefer"), "a")) == [handle("a", 7)]

    def test_limits_hold_among_the_other_cards(self):
        plan = planner(node("a", "dgx-1v"))
        wanted = asks("p", 4, max_link="NV1")
        assert candidates(plan, wanted) == ["a"]
        plan.cluster.set_cards("a", excluded("a", {0: "slow", 5: "slow"}, "dgx-1v"), 0.0)
        answer = judged(plan, wanted)
        assert answer.verdict.code is Code.UNRESOLVABLE
        assert candidates(plan, asks("p", 4, "ignore", max_link="NV1")) == ["a"]

    def test_the_nearest_card_to_a_nic_is_the_nearest_of_those_that_are_there(self):
        plan = planner(node("a"))
        first = gpus_of(reserved(plan, asks("p", 1, near_nic="mlx5_0"), "a"))
        plan.unreserve(attempt(2), PodUid("p"), bound_unknown=False, now=1.0)
        plan.cluster.set_cards("a", NodeCards(dict.fromkeys(first, "slow")), 0.0)
        assert gpus_of(reserved(plan, asks("p", 1, near_nic="mlx5_0"), "a", 3)) != first

    def test_where_gpus_are_not_known_by_name_as_many_fewer_are_free(self):
        plan = planner(node("a", None))
        plan.cluster.set_cards("a", NodeCards({"GPU-x": "faulty"}), 0.0)
        assert candidates(plan, asks("p", 8)) == []
        assert candidates(plan, asks("p", 7)) == ["a"]
        assert candidates(plan, asks("p", 8, "ignore")) == ["a"]

    def test_where_it_is_not_known_which_are_held_a_card_that_is_left_out_counts_as_not_there(self):
        plan = planner(node("a"))
        plan.cluster.observe_pod(bound("somebody", "a", 2, scheduler="default-scheduler"), 0.0)
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        assert (plan.cluster.state(0).count_only, plan.cluster.state(0).free) == (True, 5)
        assert handle("a", 0) not in gpus_of(reserved(plan, asks("p", 5), "a"))

    def test_handles_that_the_node_does_not_have_are_passed_over(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", NodeCards({"GPU-gone": "faulty"}, {"GPU-gone": 0.5}, {"GPU-gone": 0.5}), 0.0)
        assert plan.cluster.state(0).free == 8
        assert plan.cluster.state(0).facts.cards == NO_CARDS

    def test_a_sick_card_that_is_left_out_too_counts_once(self):
        plan = planner(node("a", sick=(0,)))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        assert plan.cluster.state(0).free == 7
        assert candidates(plan, asks("p", 7)) == ["a"]


class TestCapacitySetting:
    """What a pod says of it."""

    @pytest.mark.parametrize(("said", "capacity"), [("ignore", "ignore"), (" Prefer", "prefer"), ("REQUIRE", "require")])
    def test_is_read(self, said: str, capacity: str):
        shape = shape_of_pod(asks("p", 1, said))
        assert not isinstance(shape, Verdict)
        assert shape.limits.capacity is Capacity(capacity)

    def test_a_bad_value_is_refused_with_those_that_are_allowed(self):
        plan = planner(node("a"))
        verdict = judged(plan, asks("p", 1, "never")).verdict
        assert verdict.code is Code.UNRESOLVABLE
        assert verdict.reason == "pyscheduler.io/capacity is 'never': write ignore, prefer or require"

    def test_members_of_groups_may_say_it(self):
        made = shim("a", "b")
        made.planner.cluster.set_cards("a", excluded("a", SICK), 0.0)
        pods = [replace(each, settings={"capacity": "ignore"}) for each in members(2)]
        for each in pods:
            made.planner.cluster.observe_pod(shown(each, settings=each.settings), 0.0)
        assert {made.place(each) for each in pods} == {"a", "b"}


class TestRanks:
    """Of nodes that are alike in links the better cards come first."""

    def test_between_nodes_the_slowest_card_that_would_be_given_decides_before_tightness(self):
        plan = planner(node("a"), node("b"))
        hold(plan, "a", 0, 1)
        assert candidates(plan, asks("p", 6)) == ["a", "b"]
        plan.cluster.set_cards("a", scores("a", {7: 0.9}), 0.0)
        assert candidates(plan, asks("p", 6)) == ["b", "a"]
        # The slow one is not among five.
        assert candidates(plan, asks("p", 5)) == ["a", "b"]

    def test_links_come_before_speed(self):
        plan = planner(node("slow", "hgx-h100"), node("fast", "hgx-a100"))
        plan.cluster.set_cards("slow", scores("slow", dict.fromkeys(range(8), 0.8)), 0.0)
        assert candidates(plan, asks("p", 8)) == ["slow", "fast"]

    def test_less_than_a_step_does_not_count(self):
        plan = planner(node("a"), node("b"))
        hold(plan, "a", 0)
        plan.cluster.set_cards("a", scores("a", dict.fromkeys(range(8), 0.96)), 0.0)
        assert candidates(plan, asks("p", 1)) == ["a", "b"]
        assert plan.cluster.state(0).facts.cards == NO_CARDS

    @pytest.mark.parametrize(("weight", "first"), [(0.0, "a"), (0.5, "a"), (1.0, "b"), (2.0, "b")])
    def test_the_weight_says_how_finely_it_counts(self, weight: float, first: str):
        cluster = Cluster(epoch=1, scheduler_name=OURS, score_weight=weight)
        for name in ("a", "b"):
            cluster.observe_node(node(name), 0.0)
        plan = Planner(cluster, version="test")
        plan.resync(attempt(1), (), 0.0)
        hold(plan, "a", 0)
        cluster.set_cards("a", scores("a", dict.fromkeys(range(8), 0.92)), 0.0)
        assert candidates(plan, asks("p", 1))[0] == first

    @pytest.mark.parametrize("speed", [0.7, 1.2])
    def test_a_speed_ranks_nobody(self, speed: float):
        plan = planner(node("a"), node("b"))
        hold(plan, "a", 0)
        plan.cluster.set_cards("a", speeds("a", dict.fromkeys(range(8), speed)), 0.0)
        assert candidates(plan, asks("p", 1)) == ["a", "b"]
        assert plan.cluster.state(0).facts.cards == NO_CARDS

    def test_inside_a_node_sets_of_equal_links_take_the_faster_cards(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", scores("a", {0: 0.8, 1: 0.9, 2: 0.9, 3: 0.9}), 0.0)
        given = [gpus_of(reserved(plan, asks(f"p{i}", 2), "a")) for i in range(3)]
        assert {each for some in given[:2] for each in some} == set(uuids(BOX, "a", 4, 5, 6, 7))
        assert handle("a", 0) not in given[2]

    def test_inside_a_node_links_come_first(self):
        plan = planner(node("a", "dgx-1v"))
        hold(plan, "a", 0, kind="dgx-1v")
        best = gpus_of(reserved(plan, asks("p", 4), "a"))
        plan.unreserve(attempt(2), PodUid("p"), bound_unknown=False, now=1.0)
        plan.cluster.set_cards("a", NodeCards(scores=dict.fromkeys(best, 0.7)), 0.0)
        assert gpus_of(reserved(plan, asks("p", 4), "a", 3)) == best

    def test_groups_go_where_the_slowest_card_is_fastest(self):
        made = shim("a", "b", "c", path={"a": ("x",), "b": ("x",), "c": ("y",)})
        made.planner.cluster.observe_node(node("d", path=("y",)), 0.0)
        found = select(made.planner.cluster, Job(2, 8))
        assert isinstance(found, Selection)
        first = {each.node for each in found.pods}
        slow = made.planner.cluster.table.names[min(first)]
        made.planner.cluster.set_cards(slow, scores(slow, {3: 0.9}), 0.0)
        found = select(made.planner.cluster, Job(2, 8))
        assert isinstance(found, Selection)
        assert {each.node for each in found.pods} == {0, 1, 2, 3} - first
        # A nearer level comes before speed.
        other = made.planner.cluster.table.names[min({0, 1, 2, 3} - first)]
        made.planner.cluster.set_cards(other, scores(other, {3: 0.8}), 0.0)
        found = select(made.planner.cluster, Job(2, 8))
        assert isinstance(found, Selection)
        assert {each.node for each in found.pods} == first

    @pytest.mark.parametrize("pods", range(2, 13))
    def test_of_many_steps_groups_take_no_more_than_they_need(self, pods: int):
        made = shim("n0")
        for step in range(12):
            made.planner.cluster.observe_node(node(f"n{step}"), 0.0)
            made.planner.cluster.set_cards(f"n{step}", scores(f"n{step}", {step % 8: 1 - 0.05 * step}), 0.0)
        found = select(made.planner.cluster, Job(pods, 8))
        assert isinstance(found, Selection)
        assert {each.node for each in found.pods} == set(range(pods))

    def test_groups_take_the_faster_cards_of_a_node(self):
        made = shim("a")
        made.planner.cluster.set_cards("a", scores("a", {0: 0.9, 1: 0.8, 2: 0.9, 3: 0.9}), 0.0)
        found = select(made.planner.cluster, Job(2, 2))
        assert isinstance(found, Selection)
        assert sum(each.mask for each in found.pods) == 0b11110000
        found = select(made.planner.cluster, Job(3, 2))
        assert isinstance(found, Selection)
        assert not sum(each.mask for each in found.pods) & 0b10

    def test_kinds_are_told_apart_by_the_speed_of_free_cards_alone(self):
        plan = planner(node("a"), node("b"))
        hold(plan, "a", 0)
        hold(plan, "b", 0)
        plan.cluster.set_cards("a", scores("a", {0: 0.7, 1: 0.97}), 0.0)
        assert plan.cluster.state(0).kind == plan.cluster.state(1).kind
        plan.cluster.set_cards("a", scores("a", {1: 0.9}), 0.0)
        assert plan.cluster.state(0).kind != plan.cluster.state(1).kind

    def test_steps_are_whole_whatever_floats_say(self):
        box = machine(BOX, "a")
        for tenths, steps in ((1.0, 0), (0.95, 1), (0.9, 2), (0.85, 3), (0.7, 6), (0.0, 20)):
            cards = cards_of(box, scores("a", dict.fromkeys(range(8), tenths)), 1.0)
            assert cards.pace(0xFF) == steps, tenths


class TestWords:
    """Refusals say when such cards are what binds."""

    def test_one_pod(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", {0: "slow", 3: "faulty", 5: "slow"}), 0.0)
        verdict = judged(plan, asks("p", 8)).verdict
        assert verdict.code is Code.UNRESOLVABLE
        assert verdict.reason.endswith(
            "; 3 GPUs are left out for their capacity (slow: 2, faulty: 1; `pyscheduler capacity` says which);"
            " pyscheduler.io/capacity: ignore takes them"
        )
        assert "the nearest fit is a with 5" in verdict.reason

    def test_gpus_of_a_node_that_has_no_machine_are_counted_once(self):
        plan = planner(node("a", None))
        named = {f"GPU-{index}": "reported by others" for index in range(8)}
        plan.cluster.set_cards(
            "a", NodeCards({**named, **{f"index:{index}": why for index, why in enumerate(named.values())}}), 0.0
        )
        assert "; 8 GPUs are left out" in judged(plan, asks("p", 1)).verdict.reason

    def test_nothing_is_said_where_they_make_no_difference(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        hold(plan, "a", 1, 2, 3, 4)
        verdict = judged(plan, asks("p", 7)).verdict
        assert verdict.code is Code.UNSCHEDULABLE
        assert "capacity" not in verdict.reason
        assert "capacity" not in judged(plan, asks("p", 9)).verdict.reason
        assert "capacity" not in judged(plan, asks("p", 7, "ignore")).verdict.reason

    def test_no_eviction_cures_a_node_that_could_not_take_it_without_these_cards(self):
        plan = planner(node("a"), node("b"))
        hold(plan, "a", *range(8))
        hold(plan, "b", *range(8))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        answer = judged(plan, asks("p", 8))
        assert (answer.verdict.code, answer.unresolvable) == (Code.UNSCHEDULABLE, 0b01)
        plan.cluster.set_cards("b", excluded("b", SICK), 0.0)
        answer = judged(plan, asks("p", 8))
        assert (answer.verdict.code, answer.unresolvable) == (Code.UNRESOLVABLE, 0b11)
        assert "2 GPUs are left out" in answer.verdict.reason
        assert judged(plan, asks("p", 8, "ignore")).unresolvable == 0

    def test_limits(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        found = select(plan.cluster, Job(1, 8, limits=Limits(max_link=Link.parse("NV1"))))
        assert isinstance(found, Refusal)
        assert (found.binds, found.change) == ("capacity", "pyscheduler.io/capacity: ignore takes them")
        assert found.reason.endswith("; 1 GPU is left out for its capacity (slow: 1; `pyscheduler capacity` says which)")

    def test_groups(self):
        plan = planner(node("a"), node("b"))
        plan.cluster.set_cards("b", excluded("b", SICK), 0.0)
        found = select(plan.cluster, Job(2, 8))
        assert isinstance(found, Refusal)
        assert (found.binds, found.fits) == ("capacity", 1)
        ignoring = Job(2, 8, limits=Limits(capacity=Capacity.IGNORE))
        assert isinstance(select(plan.cluster, ignoring), Selection)

    def test_where_others_would_have_to_be_freed_as_well(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        hold(plan, "a", 1, 2)
        found = select(plan.cluster, Job(1, 8))
        assert isinstance(found, Refusal)
        assert found.binds == "capacity"
        assert found.change == "with pyscheduler.io/capacity: ignore 2 GPUs more would have to be freed on a"


class TestRecovery:
    """A card that is handed out again."""

    def test_wakes_the_pod_that_waits_for_it(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", excluded("a", SICK), 0.0)
        assert judged(plan, asks("p", 8)).verdict.code is Code.UNRESOLVABLE
        plan.wake(2.0)
        plan.cluster.set_cards("a", NodeCards(scores={handle("a", 0): 0.97}), 3.0)
        assert plan.wake(3.0) == (frozenset({"freed"}), [PodUid("p")])

    def test_a_group_avoids_the_node_and_comes_back(self):
        made = shim("a", "b", "c")
        made.planner.cluster.set_cards("a", excluded("a", SICK), 0.0)
        first = members(2, group="first")
        assert set(started(made, first)) == {"b", "c"}
        for each in first:
            made.planner.cluster.forget_pod(each.uid, 1.0)
        second = members(3, group="second")
        show(made, second)
        answer = made.plan(second[0])
        assert answer.verdict.code is not Code.OK
        assert "1 GPU is left out for its capacity (slow: 1" in answer.verdict.reason
        made.due()
        made.planner.cluster.set_cards("a", None, 1.0)
        made.now = 10.0
        assert set(made.due()) & {each.uid for each in second}
        assert {made.place(each) for each in second} == {"a", "b", "c"}

    def test_a_plan_ends_when_one_of_its_cards_is_left_out_and_a_bound_group_stays(self):
        made = shim("a", "b", "c")
        pods = members(2)
        show(made, pods)
        on = made.place(pods[0])
        made.planner.cluster.set_cards(on, excluded(on, SICK), 0.0)
        made.planner.expire(1.0)
        assert made.planner.gangs.seat(pods[1], 0) is None
        going = shim("a", "b")
        names = started(going, pods)
        before = going.planner.cluster.ledger.holdings()
        going.planner.cluster.set_cards(names[0], excluded(names[0], SICK), 0.0)
        going.planner.expire(1.0)
        assert list(going.planner.cluster.ledger.holdings()) == list(before)


class TestEviction:
    """Who goes, where cards are left out."""

    def preempt(self, plan: Planner, wanted: PodRequest) -> list[str] | None:
        answer = plan.preempt(attempt(2), wanted, ALL.nodes, frozenset(), 1.0)
        return sorted(answer.proposal.victims) if answer.proposal else None

    @pytest.mark.parametrize(
        ("gpus", "capacity", "goes"),
        [(4, "require", ["well"]), (5, "require", ["sick", "well"]), (8, "require", None), (8, "ignore", ["sick", "well"])],
    )
    def test_nobody_goes_for_a_card_that_is_not_handed_out(self, gpus: int, capacity: str, goes: list[str] | None):
        plan = planner(node("a"))
        hold(plan, "a", 0, 1, 2, 3, name="sick")
        hold(plan, "a", 4, 5, 6, 7, name="well")
        plan.cluster.set_cards("a", excluded("a", {0: "faulty"}), 0.0)
        assert self.preempt(plan, pod("urgent", gpus, priority=9, settings={"capacity": capacity})) == goes

    @pytest.mark.parametrize(("capacity", "count"), [("require", 2), ("prefer", 1), ("ignore", 1)])
    def test_what_is_free_is_counted_without_them_or_with_them_for_who_takes_them(self, capacity: str, count: int):
        plan = planner(node("a"))
        hold(plan, "a", 2, 3, name="one")
        hold(plan, "a", 4, 5, name="two")
        hold(plan, "a", 6, 7, name="three")
        plan.cluster.set_cards("a", excluded("a", {0: "slow"}), 0.0)
        goes = self.preempt(plan, pod("urgent", 4, priority=9, settings={"capacity": capacity}))
        assert goes is not None
        assert len(goes) == count

    def test_a_group_has_those_evicted_whose_nodes_can_take_its_members(self):
        made = full("a", "b", "c")
        made.planner.cluster.set_cards("a", excluded("a", SICK), 0.0)
        wanted = made.show(gang(2))
        assert made.asks(wanted[0]) == ["on-b", "on-c"]
        less = full("a", "b", "c")
        for name in ("a", "b"):
            less.planner.cluster.set_cards(name, excluded(name, SICK), 0.0)
        wanted = less.show(gang(2))
        less.plan(wanted[0])
        assert less.preempt(wanted[0]).proposal is None


class TestTold:
    """Each pod is told its own speed."""

    def test_on_the_binding_its_slowest_card(self):
        plan = planner(node("a"), node("b"))
        plan.cluster.set_cards("a", replace(speeds("a", {0: 0.9312, 1: 1.04}), scores={handle("a", 1): 0.4}), 0.0)
        assert reserved(plan, asks("p", 8), "a")["pyscheduler.io/relative-speed"] == "0.931"
        assert "pyscheduler.io/relative-speed" not in reserved(plan, asks("q", 8), "b")

    def test_a_card_that_is_not_known_counts_as_one_of_its_peers(self):
        plan = planner(node("a"))
        plan.cluster.set_cards("a", speeds("a", {0: 1.04}), 0.0)
        assert plan.cluster.relative_speed(0, uuids(BOX, "a", 0, 1)) == 1.0
        assert plan.cluster.relative_speed(0, uuids(BOX, "a", 0)) == 1.04
        assert plan.cluster.relative_speed(0, uuids(BOX, "a", 1)) is None
        assert plan.cluster.relative_speed(0, ("index:0",)) == 1.04

    def test_in_the_table_of_its_group(self):
        made = shim("a", "b")
        made.planner.cluster.set_cards("a", speeds("a", {2: 0.88}), 0.0)
        pods = members(2)
        names = started(made, pods)
        table = take(made)[-1]
        assert {row.node: row.relative_speed for row in table.rows} == {"a": 0.88, "b": None}
        written = config_map(table)
        assert written is not None
        rows = json.loads(written["data"]["ranks.json"])
        assert [row.get("relative_speed") for row in rows] == [0.88 if name == "a" else None for name in names]

    def test_a_speed_that_wavers_is_no_reason_to_write_a_table_again(self):
        made = shim("a", "b")
        made.planner.cluster.set_cards("a", speeds("a", {2: 0.88}), 0.0)
        pods = members(2)
        show(made, pods)
        names = [made.place(each) for each in pods]
        written = take(made)[-1]
        made.planner.cluster.set_cards("a", speeds("a", {2: 0.87}), 0.0)
        for each, name in zip(pods, names, strict=True):
            bind(made, each, name)
        assert take(made) == []
        made.planner.gangs.tables.renew()
        again = take(made)[-1]
        assert again != written
        assert not adds(config_map(again) or {}, config_map(written) or {})

"""Groups: placed whole, answered member by member, ended whole."""

from __future__ import annotations

import pytest

from pyscheduler.core.gangs.keeping import PATIENCE_S
from pyscheduler.core.gangs.plan import PLAN_S
from pyscheduler.core.holdings import HoldingState
from pyscheduler.core.model import Code, PodRequest, PodUid
from pyscheduler.core.planner import Planner
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.replies import HeldByShim, PlanAnswer
from tests.builders import attempt, bound, member, node, only, planner, pod, shown, uuids

BOX = "hgx-h100"


class Shim:
    """Calls a planner as the plugin does."""

    def __init__(self, plan: Planner) -> None:
        self.planner = plan
        self.number = 1
        self.now = 0.0

    def plan(
        self, wanted: PodRequest, *, refused: tuple[str, ...] = (), eligible: Eligible | None = None, room: bytes = b""
    ) -> PlanAnswer:
        self.number += 1
        everywhere = eligible or only(*range(len(self.planner.cluster.table)), known=len(self.planner.cluster.table))
        return self.planner.plan(attempt(self.number), wanted, everywhere, room, frozenset(refused), self.now)

    def reserve(self, wanted: PodRequest, answer: PlanAnswer) -> tuple[Code, dict[str, str]]:
        assert answer.node is not None
        reserved = self.planner.reserve(attempt(self.number), wanted, answer.node, self.now)
        return reserved.verdict.code, dict(reserved.annotations)

    def place(self, wanted: PodRequest) -> str:
        answer = self.plan(wanted)
        assert answer.verdict.code is Code.OK, answer.verdict
        assert self.reserve(wanted, answer)[0] is Code.OK
        return self.planner.cluster.table.names[answer.node or 0]

    def due(self) -> list[PodUid]:
        return self.planner.wake(self.now)[1]


def shim(*boxes: str, path: dict[str, tuple[str, ...]] | None = None) -> Shim:
    return Shim(planner(*(node(name, BOX, path=(path or {}).get(name, ())) for name in boxes)))


def members(
    count: int, gpus: int = 8, *, group: str = "job", least: int | None = 0, priority: int = 0, **said: object
) -> list[PodRequest]:
    """Return a whole group; `least` of 0 are all of them."""
    needed = count if least == 0 else least
    return [member(f"{group}-{i}", gpus, group=group, least=needed, priority=priority, index=i, **said) for i in range(count)]


def show(made: Shim, pods: list[PodRequest]) -> None:
    for each in pods:
        made.planner.cluster.observe_pod(shown(each), made.now)


def free(made: Shim) -> int:
    return sum(state.free for state in made.planner.cluster.states())


def test_members_wait_without_holding_anything_until_all_are_there():
    made, pods = shim("a", "b"), members(2)
    show(made, pods[:1])
    answer = made.plan(pods[0])
    assert (answer.verdict.code, answer.verdict.reason) == (
        Code.UNSCHEDULABLE,
        "waits for its group default/job: 1 of 2 members is there",
    )
    assert free(made) == 16
    assert made.due() == []
    show(made, pods[1:])
    assert made.due() == ["job-0"]


def test_whole_group_is_held_by_the_first_members_plan_and_the_others_are_woken():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    made.plan(member("job-1", 8, index=1, least=3))
    first = made.plan(pods[0])
    assert first.member is not None
    assert (first.verdict.code, first.member.needed, free(made)) == (Code.OK, 2, 8)
    assert made.due() == ["job-1"]
    second = made.plan(pods[1])
    assert second.member == first.member
    assert {first.node, second.node} == {0, 1}


def test_answer_that_the_plan_is_made_for_tells_where_the_others_go_and_later_ones_do_not():
    made, pods = shim("a", "b", "c", "d"), members(3, least=2)
    show(made, pods)
    first = made.plan(pods[1])
    assert dict(first.seats).keys() == {"job-0", "job-2"}
    assert len({first.node, *dict(first.seats).values()}) == 3
    assert made.plan(pods[1]).seats == ()
    other = made.plan(pods[2])
    assert (other.node, other.seats) == (dict(first.seats)[pods[2].uid], ())


def test_members_that_are_reserved_are_not_told_where_a_late_one_goes():
    made, pods = shim("a", "b", "c", "d"), members(3, least=2)
    show(made, pods[:2])
    for each in pods[:2]:
        made.place(each)
    show(made, pods[2:])
    late = made.plan(pods[2])
    assert (late.verdict.code, late.seats) == (Code.OK, ())


def test_each_member_carries_its_rank_and_the_gpus_that_were_held():
    made, pods = shim("a"), members(2, 4)
    show(made, pods)
    ranks = {}
    for each in reversed(pods):
        answer = made.plan(each)
        held = made.planner.cluster.ledger.get(each.uid)
        code, annotations = made.reserve(each, answer)
        after = made.planner.cluster.ledger.get(each.uid)
        assert held is not None
        assert after is not None
        assert (code, held.state, after.state, after.gpus) == (Code.OK, HoldingState.PLANNED, HoldingState.RESERVED, held.gpus)
        ranks[each.name] = annotations["pyscheduler.io/rank"]
    assert ranks == {"job-0": "0", "job-1": "1"}


def test_two_groups_that_do_not_both_fit_never_hold_parts():
    made = shim("a", "b", "c", "d", "e", "f")
    first, second = members(4, group="x"), members(4, group="y")
    show(made, [*first, *second])
    placed, refused = [], []
    for one, other in zip(first, second, strict=True):
        placed.append(made.place(one))
        refused.append(made.plan(other).verdict.code)
    assert (sorted(placed), set(refused), free(made)) == (["a", "b", "c", "d"], {Code.UNSCHEDULABLE}, 16)
    for each in first:
        made.planner.cluster.forget_pod(each.uid, 1.0)
    made.now = 10.0
    assert made.due() == ["y-0"]
    assert sorted(made.place(each) for each in second) == ["a", "b", "c", "d"]


def test_plan_that_nobody_asks_about_ends_and_returns_every_gpu():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    made.plan(pods[0])
    made.now = PLAN_S + 1
    made.planner.expire(made.now)
    assert free(made) == 16


def test_plan_lives_while_a_member_is_reserved():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    made.place(pods[0])
    made.now = 2 * PLAN_S
    made.planner.expire(made.now)
    assert free(made) == 0


def test_failure_before_all_were_let_go_ends_the_plan_whole():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    answer = made.plan(pods[0])
    made.reserve(pods[0], answer)
    assert answer.member is not None
    made.planner.unreserve(attempt(made.number), pods[0].uid, bound_unknown=False, now=0.0, ended_plan=answer.member.plan)
    assert free(made) == 16
    assert made.planner.gangs.plans.take_ended() == [answer.member.plan]


def test_what_members_of_a_plan_that_ended_have_reserved_is_held_until_the_scheduler_gives_it_back():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    made.place(pods[0])
    answer, first = made.plan(pods[1]), made.number - 1
    made.reserve(pods[1], answer)
    assert answer.member is not None
    for each, number, left in zip(pods, (first, first + 1), (8, 16), strict=True):
        made.planner.unreserve(attempt(number), each.uid, bound_unknown=False, now=0.0, ended_plan=answer.member.plan)
        assert free(made) == left
    made.now = 2.0
    again = made.plan(pods[0])
    assert again.member is not None
    assert again.member.plan != answer.member.plan


def test_failure_after_they_were_let_go_costs_one_seat_alone():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    names = [made.place(each) for each in pods]
    made.planner.unreserve(attempt(made.number), pods[1].uid, bound_unknown=False, now=0.0)
    assert free(made) == 16
    answer = made.plan(pods[1])
    assert answer.member is not None
    assert (answer.verdict.code, answer.member.needed) == (Code.OK, 0)
    assert names[0] != made.planner.cluster.table.names[answer.node or 0]


def test_node_that_other_plugins_refused_brings_a_plan_without_it():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    first = made.plan(pods[0])
    assert first.node is not None
    taken = made.planner.cluster.table.names[first.node]
    again = made.plan(pods[0], refused=(taken,))
    assert again.member is not None
    assert first.member is not None
    assert again.member.plan != first.member.plan
    other = made.plan(pods[1])
    assert {again.node, other.node} == {0, 1, 2} - {first.node}


def test_gpus_of_a_plan_that_others_take_bring_a_new_plan():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    answer = made.plan(pods[0])
    name = made.planner.cluster.table.names[answer.node or 0]
    made.planner.cluster.observe_pod(bound("x", name, 8, scheduler="other"), 0.0)
    again = made.plan(pods[0])
    assert again.verdict.code is Code.OK
    assert again.node != answer.node


def test_node_that_goes_brings_a_new_plan():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    answer = made.plan(pods[0])
    made.planner.cluster.forget_node(made.planner.cluster.table.names[answer.node or 0])
    again = made.plan(pods[0])
    assert (again.verdict.code, again.node != answer.node) == (Code.OK, True)


def test_member_deleted_before_it_was_reserved_ends_the_plan():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    made.plan(pods[0])
    made.planner.cluster.forget_pod(pods[1].uid, 0.0)
    made.planner.expire(0.0)
    assert free(made) == 16
    assert "1 of 2 members" in made.plan(pods[0]).verdict.reason


def test_pod_recreated_under_the_same_name_is_another_member():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    names = [made.place(each) for each in pods]
    made.planner.cluster.observe_pod(shown(pods[0], names[0]), 0.0)
    made.planner.cluster.forget_pod(pods[1].uid, 0.0)
    new = PodRequest(PodUid("new"), "default", "job-1", pods[1].containers, {}, 0, pods[1].membership)
    show(made, [new])
    answer = made.plan(new)
    assert answer.member is not None
    assert (answer.verdict.code, answer.member.needed, made.planner.cluster.table.names[answer.node or 0]) == (
        Code.OK,
        0,
        names[1],
    )


def test_launcher_without_gpus_waits_for_the_others_and_counts():
    made = shim("a", "b")
    workers = members(2, least=3)
    launcher = member("launcher", 0, least=3, role=(0, "launcher"))
    show(made, [*workers, launcher])
    assert "members of its group default/job that ask for GPUs" in made.plan(launcher).verdict.reason
    first = made.plan(workers[0])
    assert first.member is not None
    assert first.member.needed == 3
    assert set(made.due()) == {"launcher"}
    answer = made.plan(launcher)
    assert (answer.verdict.code, answer.node, answer.member) == (Code.OK, None, first.member)


def test_elastic_group_starts_with_as_many_as_fit():
    made, pods = shim("a", "b", "c"), members(4, least=2)
    show(made, pods)
    answers = [made.plan(each) for each in pods]
    assert [answer.verdict.code for answer in answers] == [Code.OK] * 3 + [Code.UNSCHEDULABLE]
    assert answers[0].member is not None
    assert answers[0].member.needed == 2


def test_group_takes_no_more_members_than_it_may():
    made, pods = shim("a", "b", "c"), members(3, least=2, max_members=2)
    show(made, pods)
    assert [made.plan(each).verdict.code for each in pods] == [Code.OK, Code.OK, Code.UNSCHEDULABLE]


SPINES: dict[str, tuple[str, ...]] = {f"n{i}": (f"leaf-{(i + 1) // 2}", f"spine-{(i + 3) // 4}") for i in range(1, 13)}


def test_late_member_joins_near_the_others():
    made = shim(*SPINES, path=SPINES)
    pods = members(3, least=2)
    made.planner.cluster.observe_pod(bound("x", "n1", 8, uuids(BOX, "n1", *range(8))), 0.0)
    show(made, pods[:2])
    names = [made.place(each) for each in pods[:2]]
    for each, name in zip(pods, names, strict=False):
        made.planner.cluster.observe_pod(shown(each, name), 0.0)
    show(made, pods[2:])
    late = made.place(pods[2])
    assert {SPINES[name][1] for name in (*names, late)} == {SPINES[names[0]][1]}


def test_required_level_that_is_too_small_says_how_many_fit_where():
    made = shim(*SPINES, path=SPINES)
    pods = members(3, required_level="tier-0")
    show(made, pods)
    verdict = made.plan(pods[0]).verdict
    assert verdict.code is Code.UNSCHEDULABLE
    assert "2 of 3 fit in tier-0 leaf-1; 3 fit in tier-1 spine-1" in verdict.reason


def test_group_waits_for_its_preferred_level_and_then_takes_a_wider_one():
    made = shim(*SPINES, path=SPINES)
    pods = members(3, preferred_level="tier-0", wait_s=60.0)
    show(made, pods)
    assert made.plan(pods[0]).verdict.code is Code.UNSCHEDULABLE
    made.now = 61.0
    assert made.due() == ["job-0"]
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_room_by_cpu_and_memory_bounds_how_many_pods_a_node_gets():
    made, pods = shim("a", "b"), members(2, 4)
    show(made, pods)
    answers = [made.plan(each, room=bytes([1, 1])) for each in pods]
    assert {answer.node for answer in answers} == {0, 1}


def test_group_whose_gpus_are_free_but_not_its_cpu_says_so():
    made, pods = shim("a", "b"), members(3, 4)
    show(made, pods)
    assert "CPU, memory" in made.plan(pods[0], room=bytes([1, 1])).verdict.reason


def test_size_is_awaited_and_asked_for():
    made, pods = shim("a", "b"), members(2, least=None)
    show(made, pods)
    assert "pyscheduler.io/min-members" in made.plan(pods[0]).verdict.reason


@pytest.mark.parametrize("gpus", [(8, 4), (4, 8)])
def test_members_of_two_kinds_are_placed_together_or_not_at_all(gpus: tuple[int, int]):
    made = shim("a", "b")
    pods = [member(f"job-{i}", each, index=i, least=2) for i, each in enumerate(gpus)]
    show(made, pods)
    assert sorted(made.place(each) for each in pods) == ["a", "b"]
    late = shim("a")
    show(late, pods)
    assert late.plan(pods[0]).verdict.code is Code.UNSCHEDULABLE
    assert free(late) == 8


def test_bound_group_is_known_as_started_after_a_restart_of_the_service():
    made, pods = shim("a", "b", "c"), members(2)
    made.planner.cluster.observe_pod(shown(pods[0], "a", gpus={"main": uuids(BOX, "a", *range(8))}), 0.0)
    show(made, pods[1:])
    answer = made.plan(pods[1])
    assert answer.member is not None
    assert answer.member.needed == 0


def test_single_pods_go_on_while_a_group_waits():
    made, pods = shim("a", "b"), members(3)
    show(made, pods)
    made.plan(pods[0])
    verdict = made.planner.filter(attempt(99), pod("single", 8), only(0, 1, known=2), 0.0).verdict
    assert verdict.code is Code.OK


def test_group_of_higher_priority_takes_the_place_of_a_plan_whose_members_have_not_all_come():
    made = shim("a", "b", "c")
    low, high = members(2, group="low"), members(2, group="high", priority=10)
    show(made, [*low, *high])
    there = made.place(low[0])
    first = made.plan(low[1])
    assert first.member is not None
    # Not where the one that has come waits: it counts on its node until the scheduler has refused it.
    assert {made.place(each) for each in high} == {"a", "b", "c"} - {there}
    assert made.planner.gangs.plans.take_ended() == [first.member.plan]
    assert free(made) == 0


def test_group_of_higher_priority_waits_until_members_that_have_come_are_refused():
    made = shim("a", "b")
    low, high = members(2, group="low"), members(2, group="high", priority=10)
    show(made, [*low, *high])
    made.place(low[0])
    reserved, first = made.number, made.plan(low[1])
    assert first.member is not None
    refused = made.plan(high[0])
    assert (refused.verdict.code, refused.preempt) == (Code.UNSCHEDULABLE, True)
    # Nothing has ended yet: perhaps it may not preempt.
    assert made.planner.gangs.plans.take_ended() == []
    answer = made.planner.preempt(attempt(made.number), high[0], 3, frozenset(), made.now)
    assert (answer.proposal is not None and answer.proposal.victims, answer.ended_plans) == ((), ())
    assert made.planner.gangs.plans.take_ended() == [first.member.plan]
    assert "waits for GPUs that 1 pod of lower priority give" in made.plan(high[1]).verdict.reason
    # Nobody of the same or lower priority gets there first.
    assert single(made, "quick", priority=10)[0] is Code.UNSCHEDULABLE
    assert made.plan(low[1]).verdict.code is Code.UNSCHEDULABLE
    assert made.due() == []
    made.planner.unreserve(attempt(reserved), low[0].uid, bound_unknown=False, now=made.now, ended_plan=first.member.plan)
    made.now = 10.0
    assert made.due() == ["high-0"]
    assert sorted(made.place(each) for each in high) == ["a", "b"]


def test_pod_of_higher_priority_is_nominated_where_a_member_waits_whose_plan_then_ends():
    made = shim("a")
    low, high = members(2, 4, group="low"), pod("high", 8, priority=10)
    show(made, low)
    made.place(low[0])
    reserved, first = made.number, made.plan(low[1])
    assert first.member is not None
    # The scheduler counts the member that waits: it would refuse the node.
    assert made.planner.filter(attempt(90), high, only(0, known=1), 0.0).verdict.code is Code.UNSCHEDULABLE
    answer = made.planner.preempt(attempt(90), high, 1, frozenset(), 0.0)
    assert answer.proposal is not None
    assert (answer.proposal.victims, answer.ended_plans, len(answer.proposal.gpus)) == ((), (first.member.plan,), 8)
    made.planner.unreserve(attempt(reserved), low[0].uid, bound_unknown=False, now=0.0, ended_plan=first.member.plan)
    made.now = 10.0
    assert made.due() == ["high"]
    assert made.planner.filter(attempt(91), high, only(0, known=1), made.now).verdict.code is Code.OK
    assert made.planner.reserve(attempt(91), high, 0, made.now).verdict.code is Code.OK


def test_group_whose_members_do_not_all_come_lets_others_have_its_place_for_ever_longer():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    rests = []
    for _ in range(3):
        answer = made.plan(pods[0])
        assert answer.member is not None
        made.reserve(pods[0], answer)
        made.planner.unreserve(
            attempt(made.number), pods[0].uid, bound_unknown=False, now=made.now, ended_plan=answer.member.plan
        )
        ended = made.now
        refused = made.plan(pods[0])
        assert (refused.verdict.code, free(made)) == (Code.UNSCHEDULABLE, 16)
        assert "not all its members came" in refused.verdict.reason
        while not made.due():
            made.now += 0.25
        rests.append(made.now - ended)
    assert rests == [1.0, 2.0, 4.0]


def test_gpus_of_a_member_that_waits_are_taken_by_others_and_the_plan_ends():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    name, plan = made.place(pods[0]), made.planner.gangs.plans.all()[0].id
    made.planner.expire(0.0)
    assert made.planner.gangs.plans.take_ended() == []
    made.planner.cluster.observe_pod(bound("x", name, 8, uuids(BOX, name, *range(8)), scheduler="other"), 0.0)
    made.planner.expire(0.0)
    assert made.planner.gangs.plans.take_ended() == [plan]


def test_last_member_is_not_given_its_place_if_others_took_that_of_one_that_waits():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    name, plan = made.place(pods[0]), made.planner.gangs.plans.all()[0].id
    answer = made.plan(pods[1])
    made.planner.cluster.observe_pod(bound("x", name, 8, uuids(BOX, name, *range(8)), scheduler="other"), 0.0)
    assert made.reserve(pods[1], answer)[0] is Code.RETRY
    assert made.planner.gangs.plans.take_ended() == [plan]


def test_member_that_the_scheduler_has_not_asked_about_is_not_named_in_place_of_one_that_waits():
    made, pods = shim("a", "b", "c"), members(3, least=2)
    show(made, pods[2:])
    assert made.plan(pods[2]).verdict.code is Code.UNSCHEDULABLE
    show(made, pods[:1])
    assert made.due() == ["job-2"]


def test_group_that_may_have_been_let_go_gives_way_to_nobody():
    made = shim("a", "b")
    low, high = members(2, group="low"), members(2, group="high", priority=10)
    show(made, [*low, *high])
    for each in low:
        made.place(each)
    assert made.plan(high[0]).verdict.code is Code.UNSCHEDULABLE
    assert free(made) == 0


def test_plan_stays_if_its_end_would_not_help():
    made = shim("a", "b")
    low, high = members(2, group="low"), members(3, group="high", priority=10)
    show(made, [*low, *high])
    answer = made.plan(low[0])
    assert made.plan(high[0]).verdict.code is Code.UNSCHEDULABLE
    assert made.plan(low[1]).member == answer.member
    assert free(made) == 0


def test_single_pod_of_higher_priority_ends_a_plan_whose_member_has_not_come_only_when_it_is_reserved():
    made = shim("a", "b")
    low = members(2, group="low")
    show(made, low)
    made.plan(low[0])
    high = pod("high", 8, priority=10)
    answer = made.planner.filter(attempt(90), high, only(0, 1, known=2), 0.0)
    assert (answer.verdict.code, free(made)) == (Code.OK, 0)
    chosen = answer.candidates[0].node
    assert answer.feasible >> chosen & 1
    assert made.planner.reserve(attempt(90), high, chosen, 0.0).verdict.code is Code.OK
    assert free(made) == 8


def test_of_two_plans_the_one_that_is_in_the_way_ends():
    made = shim(*SPINES, path=SPINES)
    one, other = members(4, group="one"), members(4, group="other")
    show(made, [*one, *other])
    kept, gone = made.plan(one[0]), made.plan(other[0])
    for name in ("n9", "n10", "n11", "n12"):
        made.planner.cluster.observe_pod(bound(f"x{name}", name, 8, uuids(BOX, name, *range(8))), 0.0)
    assert kept.member is not None
    assert gone.member is not None
    high = members(4, group="high", priority=10)
    show(made, high)
    made.plan(high[0])
    assert len(made.planner.gangs.plans.take_ended()) == 1


def single(made: Shim, name: str, gpus: int = 8, priority: int = 0) -> tuple[Code, str, str]:
    """Try to place a single pod. Return the verdict, why, and its node."""
    made.number += 1
    wanted, known = pod(name, gpus, priority=priority), len(made.planner.cluster.table)
    answer = made.planner.filter(attempt(made.number), wanted, only(*range(known), known=known), made.now)
    if answer.verdict.code is not Code.OK:
        return answer.verdict.code, answer.verdict.reason, ""
    chosen = answer.candidates[0].node
    assert made.planner.reserve(attempt(made.number), wanted, chosen, made.now).verdict.code is Code.OK
    return Code.OK, "", made.planner.cluster.table.names[chosen]


def test_smaller_jobs_pass_a_group_that_does_not_fit_but_not_for_ever():
    made, pods = shim("a", "b", "c"), members(2)
    taken = dict.fromkeys(single(made, f"s{i}")[2] for i in range(2))
    show(made, pods)
    assert made.plan(pods[0]).verdict.code is Code.UNSCHEDULABLE
    # A node is free, and a smaller job has it.
    code, _, third = single(made, "passes")
    assert (code, {*taken, third}) == (Code.OK, {"a", "b", "c"})
    made.now = PATIENCE_S
    made.planner.expire(made.now)
    made.planner.cluster.forget_pod(PodUid("passes"), made.now)
    code, why, _ = single(made, "too late")
    assert (code, "kept for the group default/job, which has waited longest" in why) == (Code.UNSCHEDULABLE, True)
    assert single(made, "important", priority=5)[0] is Code.OK
    made.planner.cluster.forget_pod(PodUid("important"), made.now)
    made.planner.cluster.forget_pod(PodUid("s0"), made.now)
    made.planner.expire(made.now)
    assert [made.plan(each).verdict.code for each in pods] == [Code.OK, Code.OK]
    made.planner.expire(made.now)
    made.planner.cluster.forget_pod(PodUid("s1"), made.now)
    assert single(made, "afterwards")[0] is Code.OK


def test_no_nodes_are_kept_for_a_group_that_would_fit_nowhere():
    made, pods = shim("a", "b"), members(3)
    show(made, pods)
    made.plan(pods[0])
    made.now = PATIENCE_S
    made.planner.expire(made.now)
    assert single(made, "s")[0] is Code.OK


def test_level_may_be_named_by_the_label_that_says_it_or_by_its_number():
    for level in ("example.com/rack", "#1"):
        cluster = planner(*(node(name, BOX, path=SPINES[name]) for name in SPINES)).cluster
        made = Shim(Planner(cluster, version="test", levels={"example.com/rack": "tier-0"}))
        pods = members(3, required_level=level)
        show(made, pods)
        assert "2 of 3 fit in tier-0 leaf-1" in made.plan(pods[0]).verdict.reason


def test_node_is_left_out_for_a_while_that_doubles_with_each_refusal():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    made.plan(pods[0])
    refused = made.plan(pods[0], refused=("a",))
    assert refused.verdict.code is Code.UNSCHEDULABLE
    assert "without a, which other plugins refused for a member" in refused.verdict.reason
    made.now = 2.5
    assert made.due() == ["job-0"]
    assert made.plan(pods[0]).verdict.code is Code.OK
    made.plan(pods[0], refused=("a",))
    made.now = 5.0
    assert made.plan(pods[0]).verdict.code is Code.UNSCHEDULABLE
    made.now = 7.0
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_members_that_were_told_that_others_are_missing_are_told_when_that_has_changed():
    made, pods = shim("a"), members(3)
    for each in pods:
        show(made, [each])
        made.plan(each)
    assert {*made.due()} == {"job-0", "job-1"}
    assert "needs 3 pods" in made.plan(pods[0]).verdict.reason
    made.now = 60.0
    assert made.due() == ["job-1"]


def test_scheduler_that_missed_the_end_of_a_plan_is_told_at_its_resync():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    answer = made.plan(pods[0])
    made.reserve(pods[0], answer)
    held = made.planner.cluster.ledger.get(pods[0].uid)
    assert held is not None
    said = HeldByShim(pods[0], made.number, "a", held.gpus, doubtful=False, member=answer.member)
    assert made.planner.resync(attempt(made.number), [said], 0.0).conflicts == ()
    # The other is gone before it was reserved: the plan ends.
    made.planner.cluster.forget_pod(pods[1].uid, 0.0)
    made.planner.expire(0.0)
    assert made.planner.resync(attempt(made.number), [said], 0.0).conflicts == ("job-0",)


def test_plan_is_taken_up_by_a_service_that_starts_anew():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    answer = made.plan(pods[0])
    made.reserve(pods[0], answer)
    held = made.planner.cluster.ledger.get(pods[0].uid)
    assert held is not None
    anew = shim("a", "b")
    anew.number = made.number
    show(anew, pods)
    said = HeldByShim(
        pods[0], made.number, made.planner.cluster.table.names[held.node], held.gpus, doubtful=False, member=answer.member
    )
    anew.planner.resync(attempt(anew.number), [said], 0.0)
    other = anew.plan(pods[1])
    assert (other.verdict.code, other.member, other.node != held.node) == (Code.OK, answer.member, True)

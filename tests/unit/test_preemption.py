"""Who goes for a pod of higher priority, and what is held for it until then."""

from __future__ import annotations

import pytest

from pyscheduler.core.model import Code, NodeFacts, PodRequest, PodUid
from pyscheduler.core.nominations import NOMINATION_S
from pyscheduler.core.planner import Planner
from pyscheduler.core.replies import HeldByShim, PreemptAnswer
from tests.builders import ALL, attempt, bound, member, node, only, planner, pod, shown, uuids

BOX = "hgx-h100"


def full(*nodes: tuple[str, list[tuple[str, int, int]]], kind: str = BOX) -> Planner:
    """By node its pods (name, GPUs, priority), which get its GPUs in order, and were bound in order."""
    plan = planner(*(node(name, kind) for name, _ in nodes))
    moment = 0
    for name, pods in nodes:
        at = 0
        for uid, gpus, priority in pods:
            moment += 1
            handles = uuids(kind, name, *range(at, at + gpus))
            plan.cluster.observe_pod(bound(uid, name, gpus, handles, priority=priority, bound_at=float(moment)), 0.0)
            at += gpus
    return plan


def preempt(
    plan: Planner,
    wanted: PodRequest,
    number: int = 1,
    *,
    nodes: int = ALL.nodes,
    protected: tuple[str, ...] = (),
    now: float = 1.0,
) -> PreemptAnswer:
    return plan.preempt(attempt(number), wanted, nodes, frozenset(map(PodUid, protected)), now)


def victims(answer: PreemptAnswer) -> list[str]:
    assert answer.proposal is not None, answer.verdict.reason
    return sorted(answer.proposal.victims)


def urgent(gpus: int, **settings: str) -> PodRequest:
    return pod("urgent", gpus, priority=100, settings={key.replace("_", "-"): value for key, value in settings.items()})


def ends(plan: Planner, *uids: str) -> None:
    for uid in uids:
        plan.cluster.forget_pod(PodUid(uid), 2.0)


def feasible(plan: Planner, wanted: PodRequest, number: int, now: float = 3.0) -> list[str]:
    answer = plan.filter(attempt(number), wanted, ALL, now)
    return [plan.cluster.table.names[candidate.node] for candidate in answer.candidates]


def test_the_pods_of_lowest_priority_go_first():
    plan = full(("a", [("a1", 4, 5), ("a2", 4, 1)]), ("b", [("b1", 4, 3), ("b2", 4, 2)]))
    assert victims(preempt(plan, urgent(4))) == ["a2"]


def test_one_pod_goes_rather_than_two_of_the_same_priority():
    plan = full(("a", [("a1", 2, 1), ("a2", 2, 1), ("a3", 4, 1)]))
    assert victims(preempt(plan, urgent(4))) == ["a3"]


def test_of_equal_pods_the_one_that_started_last_goes():
    plan = full(("a", [("a1", 4, 1), ("a2", 4, 1)]), ("b", [("b1", 8, 9)]))
    assert victims(preempt(plan, urgent(4))) == ["a2"]


def test_a_pod_that_a_disruption_budget_protects_goes_last():
    plan = full(("a", [("a1", 4, 1), ("a2", 4, 7)]))
    assert victims(preempt(plan, urgent(4), protected=("a1",))) == ["a2"]
    assert victims(preempt(plan, urgent(8), 2, protected=("a1",))) == ["a1", "a2"]


def test_free_gpus_are_part_of_the_set():
    assert victims(preempt(full(("a", [("a1", 2, 1), ("a2", 4, 0)])), urgent(4))) == ["a2"]
    assert victims(preempt(full(("a", [("a1", 2, 1), ("a2", 4, 2)])), urgent(4))) == ["a1"]
    assert victims(preempt(full(("a", [("a1", 2, 1), ("a2", 4, 0)])), urgent(2))) == []


def test_pods_of_the_same_or_higher_priority_stay():
    plan = full(("a", [("a1", 8, 100)]), ("b", [("b1", 8, 101)]))
    answer = preempt(plan, urgent(1))
    assert (answer.verdict.code, answer.proposal) == (Code.UNSCHEDULABLE, None)


def grouped(plan: Planner, *members: tuple[str, str, int, int]) -> None:
    """Bind the members of one group: name, node, GPUs from the first, priority."""
    for moment, (name, on, gpus, priority) in enumerate(members):
        handles = uuids(BOX, on, *range(gpus))
        facts = shown(member(name, gpus, priority=priority), on, gpus={"main": handles}, bound_at=float(moment + 1))
        plan.cluster.observe_pod(facts, 0.0)


def test_a_group_goes_whole_wherever_its_members_are():
    plan = planner(node("a"), node("b"), node("c", None, allocatable=0))
    grouped(plan, ("g-0", "a", 8, 0), ("g-1", "b", 8, 0))
    plan.cluster.observe_pod(shown(member("g-launcher", 0), "c"), 0.0)
    answer = preempt(plan, urgent(1))
    assert victims(answer) == ["g-0", "g-1", "g-launcher"]


def test_a_group_stays_if_one_member_is_as_important_or_its_binding_is_under_way():
    plan = planner(node("a"), node("b"))
    grouped(plan, ("g-0", "a", 8, 0), ("g-1", "b", 4, 100))
    assert preempt(plan, urgent(8)).verdict.code is Code.UNSCHEDULABLE
    plan = planner(node("a"), node("b"))
    grouped(plan, ("g-0", "a", 8, 0))
    plan.cluster.observe_pod(bound("b1", "b", 8, uuids(BOX, "b", *range(8)), priority=100), 0.0)
    late = member("g-1", 0)
    plan.cluster.observe_pod(shown(late), 0.0)
    assert victims(preempt(plan, urgent(8))) == ["g-0"]
    plan = planner(node("a"), node("b"))
    grouped(plan, ("g-0", "a", 8, 0))
    late = member("g-1", 8)
    plan.cluster.observe_pod(shown(late), 0.0)
    placed = plan.plan(attempt(2), late, ALL, b"", frozenset(), 0.0)
    assert plan.reserve(attempt(2), late, placed.node or 0, 0.0).verdict.code is Code.OK
    assert preempt(plan, urgent(8)).verdict.code is Code.UNSCHEDULABLE
    plan.cluster.observe_pod(shown(late, "b", gpus={"main": uuids(BOX, "b", *range(8))}), 0.0)
    assert victims(preempt(plan, urgent(8), 2)) == ["g-0", "g-1"]


@pytest.mark.parametrize(("launcher", "goes"), [(False, ["g-0", "g-1"]), (True, ["c1", "c2"])])
def test_what_a_group_has_elsewhere_counts_when_the_cheapest_is_chosen(launcher: bool, goes: list[str]):
    """The group started last, so it goes if it is no larger than the two single pods."""
    plan = planner(node("a"), node("b"), node("c"))
    grouped(plan, ("g-0", "a", 8, 0), ("g-1", "b", 8, 0))
    for name, at in (("c1", range(4)), ("c2", range(4, 8))):
        plan.cluster.observe_pod(bound(name, "c", 4, uuids(BOX, "c", *at), bound_at=0.5), 0.0)
    if launcher:
        plan.cluster.observe_pod(shown(member("g-2", 0), "b", bound_at=3.0), 0.0)
    assert victims(preempt(plan, urgent(8))) == goes


def test_pod_is_woken_when_a_group_may_go_since_the_binding_of_a_member_elsewhere_is_done():
    plan = planner(node("a"), node("b"))
    grouped(plan, ("g-0", "a", 8, 0))
    late = member("g-1", 8)
    plan.cluster.observe_pod(shown(late), 0.0)
    placed = plan.plan(attempt(2), late, ALL, b"", frozenset(), 0.0)
    plan.reserve(attempt(2), late, placed.node or 0, 0.0)
    wanted = urgent(8)
    assert feasible(plan, wanted, 3) == []
    assert preempt(plan, wanted, 3, nodes=1, now=3.0).verdict.code is Code.UNSCHEDULABLE
    assert plan.wake(4.0)[1] == []
    plan.cluster.observe_pod(shown(late, "b", gpus={"main": uuids(BOX, "b", *range(8))}), 4.0)
    assert plan.wake(5.0)[1] == ["urgent"]


def test_members_that_go_already_are_not_named_and_the_rest_of_them_is_named_again():
    plan = planner(node("a"), node("b"))
    grouped(plan, ("g-0", "a", 8, 0), ("g-1", "b", 8, 0))
    assert victims(preempt(plan, urgent(8), 1, nodes=1)) == ["g-0", "g-1"]
    going = shown(member("g-0", 8), "a", terminating=True)
    plan.cluster.observe_pod(going, 1.0)
    assert victims(preempt(plan, urgent(8), 2, nodes=1)) == ["g-1"]
    plan.cluster.forget_pod(PodUid("g-1"), 1.0)
    assert victims(preempt(plan, urgent(8), 3, nodes=1)) == []


def test_pods_of_other_schedulers_go_too():
    plan = planner(node("a", in_use={PodUid("theirs"): uuids(BOX, "a", *range(8))}))
    plan.cluster.observe_pod(bound("theirs", "a", 8, None, scheduler="default-scheduler"), 0.0)
    assert victims(preempt(plan, urgent(2))) == ["theirs"]


def test_where_no_set_would_satisfy_the_limits_nobody_goes():
    plan = full(("a", [("a1", 2, 1), ("a2", 2, 1)]), kind="a100-pcie-bridged")
    refused = preempt(plan, urgent(4, max_link="NV4"))
    assert (refused.verdict.code, refused.proposal) == (Code.UNSCHEDULABLE, None)
    assert "satisfy the pod" in refused.verdict.reason


def test_victims_are_those_whose_gpus_are_linked_well_enough():
    """On a bridged box only pairs 0-1, 2-3, ... have NVLink: of four pods of one GPU two neighbours go, not the two newest."""
    plan = full(("a", [("a1", 1, 1), ("a2", 1, 1), ("a3", 1, 9), ("a4", 1, 1)]), kind="a100-pcie-bridged")
    answer = preempt(plan, urgent(2, max_link="NV12"))
    assert victims(answer) == ["a1", "a2"]


def test_what_was_made_room_for_is_kept_from_others_until_the_pod_has_it():
    plan = full(("a", [("a1", 4, 1), ("a2", 4, 5)]))
    answer = preempt(plan, urgent(4))
    assert victims(answer) == ["a1"]
    assert feasible(plan, urgent(4), 2) == [], "the victim still has them"
    ends(plan, "a1")
    assert feasible(plan, pod("small", 1), 3) == []
    assert feasible(plan, urgent(4), 4) == ["a"]
    assert plan.reserve(attempt(4), urgent(4), 0, 3.0).verdict.code is Code.OK
    held = plan.cluster.ledger.get(PodUid("urgent"))
    assert answer.proposal
    assert held
    assert held.gpus == answer.proposal.gpus


def test_the_waiting_pod_is_told_what_it_waits_for_and_woken_when_it_is_there():
    plan = full(("a", [("a1", 4, 1), ("a2", 4, 5)]))
    preempt(plan, urgent(4))
    verdict = plan.filter(attempt(2), urgent(4), ALL, 1.0).verdict
    assert verdict.code is Code.UNSCHEDULABLE
    assert verdict.reason == "waits for 4 GPUs on a that pods of lower priority give up"
    assert plan.wake(2.0)[1] == []
    ends(plan, "a1")
    assert plan.wake(3.0)[1] == [PodUid("urgent")]
    assert plan.wake(3.2)[1] == [], "not again at once"


def test_asked_again_no_other_pod_is_named():
    plan = full(("a", [("a1", 2, 1), ("a2", 2, 1), ("a3", 4, 9)]), ("b", [("b1", 4, 2), ("b2", 4, 9)]))
    first = preempt(plan, urgent(4))
    assert victims(first) == ["a1", "a2"]
    ends(plan, "a2")
    assert victims(preempt(plan, urgent(4), 2)) == ["a1"]
    ends(plan, "a1")
    assert victims(preempt(plan, urgent(4), 3)) == []


def test_asked_again_without_the_node_another_is_named_and_the_first_let_go():
    plan = full(("a", [("a1", 8, 1)]), ("b", [("b1", 8, 2)]))
    assert victims(preempt(plan, urgent(8))) == ["a1"]
    assert victims(preempt(plan, urgent(8), 2, nodes=0b10)) == ["b1"]
    ends(plan, "a1")
    assert feasible(plan, pod("small", 8), 3) == ["a"]
    assert preempt(plan, urgent(8), 4, nodes=0).verdict.code is Code.UNSCHEDULABLE
    ends(plan, "b1")
    assert set(feasible(plan, pod("other", 8), 5)) == {"a", "b"}


def test_a_pod_of_higher_priority_takes_what_is_held_for_one_of_lower():
    plan = full(("a", [("a1", 8, 1)]))
    preempt(plan, urgent(8))
    ends(plan, "a1")
    higher, same = pod("higher", 8, priority=200), pod("same", 8, priority=100)
    assert feasible(plan, same, 2) == []
    assert feasible(plan, higher, 3) == ["a"]
    assert plan.reserve(attempt(3), higher, 0, 3.0).verdict.code is Code.OK
    assert feasible(plan, urgent(8), 4) == []
    assert plan.reserve(attempt(4), urgent(8), 0, 3.0).verdict.code is not Code.OK


def test_free_gpus_are_taken_before_those_that_are_held_for_pods_of_lower_priority():
    plan = full(("a", [("a1", 8, 1)]), ("b", []))
    preempt(plan, urgent(8), nodes=0b01)
    ends(plan, "a1")
    assert feasible(plan, pod("higher", 8, priority=200), 2) == ["b"]


@pytest.mark.parametrize("outcome", [False, True])
def test_a_failed_binding_does_not_lose_what_is_held(outcome: bool):
    plan = full(("a", [("a1", 8, 1)]))
    preempt(plan, urgent(8))
    ends(plan, "a1")
    plan.reserve(attempt(2), urgent(8), 0, 3.0)
    plan.unreserve(attempt(2), PodUid("urgent"), bound_unknown=outcome, now=4.0)
    if outcome:
        plan.unreserve(attempt(2), PodUid("urgent"), bound_unknown=False, now=5.0)
    assert feasible(plan, pod("small", 1), 3) == []
    assert feasible(plan, urgent(8), 4) == ["a"]


def test_what_is_held_ends_with_the_pod():
    plan = full(("a", [("a1", 8, 1)]))
    preempt(plan, urgent(8))
    ends(plan, "a1", "urgent")
    assert feasible(plan, pod("small", 8), 2) == ["a"]


def test_what_is_held_ends_after_five_minutes():
    plan = full(("a", [("a1", 8, 1)]))
    preempt(plan, urgent(8), now=1.0)
    ends(plan, "a1")
    assert feasible(plan, pod("small", 8), 2, now=1.0 + NOMINATION_S) == []
    assert feasible(plan, pod("small", 8), 3, now=1.1 + NOMINATION_S) == ["a"]


def test_a_pod_bound_by_others_ends_what_was_held_of_the_same_gpus():
    plan = full(("a", [("a1", 8, 1)]))
    preempt(plan, urgent(8))
    ends(plan, "a1")
    plan.cluster.observe_pod(bound("other", "a", 8, uuids(BOX, "a", *range(8))), 3.0)
    assert plan.cluster.ledger.get(PodUid("urgent")) is None


def test_a_set_that_fell_sick_is_given_up_for_another():
    plan = full(("a", [("a1", 8, 1)]), ("b", [("b1", 8, 2)]))
    assert victims(preempt(plan, urgent(8))) == ["a1"]
    plan.cluster.observe_node(node("a", sick=(3,)), 2.0)
    assert victims(preempt(plan, urgent(8), 2)) == ["b1"]


def test_gpus_that_nobody_can_locate_are_counted():
    """Of machines whose links are not known only the number counts, and a limit cannot be promised."""
    facts = NodeFacts("a", resource=node("x").resource, allocatable=8)
    plan = planner(facts)
    plan.cluster.observe_pod(bound("a1", "a", 4, None, priority=1), 0.0)
    plan.cluster.observe_pod(bound("a2", "a", 4, None, priority=2), 0.0)
    answer = preempt(plan, urgent(4))
    assert victims(answer) == ["a1"]
    assert answer.proposal
    assert answer.proposal.gpus == ()
    ends(plan, "a1")
    assert feasible(plan, pod("small", 1), 2) == []
    assert feasible(plan, urgent(4), 3) == ["a"]
    assert preempt(plan, pod("picky", 2, priority=50, settings={"same-numa": "true"}), 4).verdict.code is not Code.OK


def test_gpus_that_a_gone_pod_still_holds_need_no_victim():
    plan = planner(node("a", in_use={PodUid("old"): uuids(BOX, "a", *range(8))}))
    plan.cluster.observe_pod(bound("old", "a", 8, uuids(BOX, "a", *range(8)), priority=1), 0.0)
    ends(plan, "old")
    assert feasible(plan, urgent(8), 1) == []
    assert victims(preempt(plan, urgent(8), 2)) == []


def test_a_nominated_pod_of_the_shim_is_taken_up_after_a_restart():
    plan = full(("a", [("a1", 8, 1)]))
    mine = HeldByShim(urgent(8), 1, "a", uuids(BOX, "a", *range(8)), doubtful=False, nominated=True)
    assert plan.resync(attempt(5), [mine], 1.0).conflicts == ()
    ends(plan, "a1")
    assert feasible(plan, pod("small", 1), 6) == []
    assert feasible(plan, urgent(8), 7) == ["a"]
    # It is no reservation: a resync that does not name it leaves it.
    plan.resync(attempt(8), [], 2.0)
    assert feasible(plan, pod("small", 1), 9) == []


def test_only_nodes_that_are_asked_about_are_named():
    plan = full(("a", [("a1", 8, 1)]), ("b", [("b1", 8, 2)]))
    assert victims(preempt(plan, urgent(8), nodes=only(1, known=2).nodes)) == ["b1"]

"""What the API shows, and what is free because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyscheduler.core.holdings import HoldingState
from pyscheduler.core.ledger import UNLISTED_S
from pyscheduler.core.model import Code, NodeFacts, PodUid, binding_order
from tests.builders import ALL, attempt, bound, machine, node, planner, pod, uuids

H100 = "hgx-h100"


def _free(*nodes: NodeFacts, pods: tuple[object, ...] = ()) -> int:
    cluster = planner(*nodes).cluster
    for facts in pods:
        cluster.observe_pod(facts, 0.0)  # type: ignore[arg-type]
    return cluster.state(0).free


def test_bound_pod_holds_the_gpus_of_its_annotation() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 2, uuids(H100, "n1", 3, 5)), 0.0)
    assert plan.cluster.state(0).free_mask == 0b11010111


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"scheduler": "default-scheduler"}, "another scheduler", id="bound by another scheduler"),
        pytest.param({"handles": None}, "without naming", id="no annotation"),
        pytest.param({"handles": uuids(H100, "n1", 0)}, "another number", id="fewer GPUs than it asks for"),
        pytest.param({"handles": uuids(H100, "n1", 0) * 2}, "another number", id="one GPU named twice"),
        pytest.param({"handles": uuids(H100, "n1", 0, 7)}, "that default/first holds", id="a GPU of an earlier bound pod"),
        pytest.param({"claimed": True}, "resource claim", id="served by a claim"),
    ],
)
def test_annotation_that_cannot_be_trusted_counts_by_number_only(fields: dict[str, object], why: str) -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("first", "n1", 1, uuids(H100, "n1", 7)), 0.0)
    plan.cluster.observe_pod(bound("p", "n1", 2, **{"handles": uuids(H100, "n1", 0, 1), **fields}), 0.0)  # type: ignore[arg-type]
    held, state = plan.cluster.ledger.get(PodUid("p")), plan.cluster.state(0)
    assert held is not None
    assert held.state is HoldingState.FOREIGN
    assert why in held.reason
    assert (state.free, state.count_only) == (5, True)


def test_gpus_that_are_not_on_the_node_count_by_number() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 2, ("GPU-elsewhere", "GPU-nowhere")), 0.0)
    assert (plan.cluster.state(0).free, plan.cluster.state(0).count_only) == (6, True)


def test_later_edit_of_a_bound_pods_annotation_is_ignored() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 1, uuids(H100, "n1", 0)), 0.0)
    plan.cluster.observe_pod(bound("p", "n1", 1, uuids(H100, "n1", 7)), 0.0)
    assert plan.cluster.state(0).free_mask == 0b11111110


def test_count_only_node_ranks_behind_and_promises_no_link() -> None:
    plan = planner(node("known", "rtx-4090x8"), node("counted"))
    plan.cluster.observe_pod(bound("x", "counted", 1, scheduler="default-scheduler"), 0.0)
    answer = plan.filter(attempt(1), pod("p", 2), ALL, 0.0)
    assert [plan.cluster.table.names[c.node] for c in answer.candidates] == ["known", "counted"]
    placement = dict(plan.reserve(attempt(1), pod("p", 2), 1, 0.0).annotations)["pyscheduler.io/placement"]
    assert '"advisory":true' in placement
    assert '"bottleneck":null' in placement


def test_node_without_a_document_is_given_out_by_index() -> None:
    plan = planner(node("n1", None, allocatable=4))
    first = plan.reserve(attempt(1), pod("a", 1), 0, 0.0)
    second = plan.reserve(attempt(2), pod("b", 2), 0, 0.0)
    assert '["index:0"]' in dict(first.annotations)["pyscheduler.io/gpus"]
    assert '["index:1","index:2"]' in dict(second.annotations)["pyscheduler.io/gpus"]
    assert plan.cluster.state(0).free == 1


def test_agent_locates_a_foreign_pods_gpus() -> None:
    in_use = {PodUid("x"): uuids(H100, "n1", 0, 1)}
    plan = planner(node("n1", in_use=in_use))
    plan.cluster.observe_pod(bound("x", "n1", 2, scheduler="default-scheduler"), 0.0)
    assert (plan.cluster.state(0).free_mask, plan.cluster.state(0).count_only) == (0b11111100, False)


def test_agents_report_wins_over_the_annotation() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 1, uuids(H100, "n1", 0)), 0.0)
    plan.cluster.observe_node(node("n1", in_use={PodUid("p"): uuids(H100, "n1", 4)}), 0.0)
    assert plan.cluster.state(0).free_mask == 0b11101111


@pytest.mark.parametrize(
    "report",
    [
        pytest.param((), id="no device"),
        pytest.param(("GPU-unknown",), id="a device that the document lacks"),
        pytest.param(uuids(H100, "n1", 0), id="fewer devices than it holds"),
    ],
)
def test_report_that_does_not_locate_all_devices_frees_none(report: tuple[str, ...]) -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("x", "n1", 4, scheduler="default-scheduler"), 0.0)
    plan.cluster.observe_node(node("n1", in_use={PodUid("x"): report}), 1.0)
    assert (plan.cluster.state(0).free, plan.cluster.state(0).count_only) == (4, True)


def test_devices_of_a_document_that_changed_stay_held() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 4, uuids(H100, "n1", 0, 1, 2, 3)), 0.0)
    other = replace(node("n1"), machine=machine(H100, "another"), in_use={PodUid("p"): uuids(H100, "n1", 0, 1, 2, 3)})
    plan.cluster.observe_node(other, 1.0)
    assert (plan.cluster.state(0).free, plan.cluster.state(0).count_only) == (4, True)


def test_one_lost_gpu_of_a_pod_leaves_the_others_held() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 4, ("GPU-lost", *uuids(H100, "n1", 1, 2, 3))), 0.0)
    given = dict(plan.reserve(attempt(1), pod("q", 4), 0, 0.0).annotations)["pyscheduler.io/gpus"]
    assert not any(uuid in given for uuid in uuids(H100, "n1", 1, 2, 3))


def test_gpus_given_by_index_stay_held_when_the_document_comes() -> None:
    plan = planner(node("n1", None))
    plan.cluster.observe_pod(bound("p", "n1", 2, ("index:0", "index:1")), 0.0)
    plan.cluster.observe_node(node("n1"), 1.0)
    assert (plan.cluster.state(0).free_mask, plan.cluster.state(0).count_only) == (0b11111100, False)


@pytest.mark.parametrize("how", ["the agent is gone", "the node is gone", "the report cannot be read"])
def test_releasing_ends_with_the_agent_or_the_node_but_not_with_an_unreadable_report(how: str) -> None:
    plan = planner(node("n1", in_use={PodUid("p"): uuids(H100, "n1", 0)}))
    plan.cluster.observe_pod(bound("p", "n1", 1, uuids(H100, "n1", 0)), 0.0)
    plan.cluster.forget_pod(PodUid("p"), 1.0)
    if how == "the node is gone":
        plan.cluster.forget_node("n1")
        plan.cluster.observe_node(node("n1"), 2.0)
    else:
        plan.cluster.observe_node(replace(node("n1"), in_use_unreadable=how == "the report cannot be read"), 2.0)
    assert plan.cluster.state(0).free == (7 if how == "the report cannot be read" else 8)


def test_devices_stay_held_after_the_pod_until_the_agent_lets_them_go() -> None:
    in_use = {PodUid("p"): uuids(H100, "n1", 0)}
    plan = planner(node("n1", in_use=in_use))
    plan.cluster.observe_pod(bound("p", "n1", 1, uuids(H100, "n1", 0)), 0.0)
    plan.cluster.forget_pod(PodUid("p"), 1.0)
    held = plan.cluster.ledger.get(PodUid("p"))
    assert held is not None
    assert (held.state, plan.cluster.state(0).free_mask) == (HoldingState.RELEASING, 0b11111110)
    plan.cluster.observe_node(node("n1", in_use={}), 2.0)
    assert plan.cluster.ledger.get(PodUid("p")) is None
    assert plan.cluster.state(0).free == 8


def test_devices_that_the_agent_has_not_told_of_yet_stay_held_for_a_moment() -> None:
    """A pod that goes just after its start: its node gives out the devices, and tells of it after the pod is gone."""
    plan = planner(node("n1", in_use={}))
    plan.cluster.observe_pod(bound("p", "n1", 8, uuids(H100, "n1", *range(8))), 0.0)
    plan.cluster.forget_pod(PodUid("p"), 1.0)
    assert plan.cluster.state(0).free == 0
    plan.cluster.observe_node(node("n1", in_use={PodUid("other"): ()}), 2.0)
    assert plan.cluster.state(0).free == 0, "a report of others says nothing of it"
    plan.cluster.observe_node(node("n1", in_use={PodUid("p"): uuids(H100, "n1", *range(8))}), 3.0)
    plan.wake(2.0 + UNLISTED_S)
    assert plan.cluster.state(0).free == 0, "told of by now"
    plan.cluster.observe_node(node("n1", in_use={}), 20.0)
    assert plan.cluster.state(0).free == 8


def test_devices_that_no_agent_tells_of_are_free_after_a_moment() -> None:
    plan = planner(node("n1", in_use={}))
    plan.cluster.observe_pod(bound("p", "n1", 8, uuids(H100, "n1", *range(8))), 0.0)
    plan.cluster.forget_pod(PodUid("p"), 1.0)
    waiting = pod("q", 8)
    assert plan.filter(attempt(1), waiting, ALL, 1.0 + UNLISTED_S).verdict.code is Code.UNSCHEDULABLE
    assert plan.wake(1.1 + UNLISTED_S)[1] == [waiting.uid]
    assert plan.filter(attempt(2), waiting, ALL, 1.2 + UNLISTED_S).verdict.code is Code.OK


def test_without_an_agent_a_gone_pod_frees_its_gpus_at_once() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 1, uuids(H100, "n1", 0)), 0.0)
    plan.cluster.forget_pod(PodUid("p"), 1.0)
    assert plan.cluster.state(0).free == 8


def test_completed_pod_frees_its_gpus() -> None:
    plan = planner(node("n1"))
    plan.cluster.observe_pod(bound("p", "n1", 8, uuids(H100, "n1", *range(8))), 0.0)
    plan.cluster.observe_pod(bound("p", "n1", 8, uuids(H100, "n1", *range(8)), finished=True), 1.0)
    assert plan.cluster.state(0).free == 8


def test_free_is_never_negative() -> None:
    # Eight held, two cards fail, allocatable drops to 6: a pod of 6 must not fit.
    held = bound("p", "n1", 8, uuids(H100, "n1", *range(8)))
    assert _free(node("n1", sick=(6, 7), allocatable=6), pods=(held,)) == 0


def test_unhealthy_gpu_is_not_given_out() -> None:
    plan = planner(node("n1", sick=(0,)))
    assert (plan.cluster.state(0).free, plan.cluster.state(0).free_mask) == (7, 0b11111110)


def test_fewer_allocatable_than_healthy_gpus_is_known_by_number_only() -> None:
    state = planner(node("n1", allocatable=6)).cluster.state(0)
    assert (state.free, state.count_only) == (6, True)


def test_node_with_nothing_allocatable_is_never_feasible() -> None:
    verdict = planner(node("n1", allocatable=0)).filter(attempt(1), pod("p"), ALL, 0.0).verdict
    assert verdict.code is Code.UNRESOLVABLE


def test_pod_seen_before_its_node_is_held_when_the_node_comes() -> None:
    plan = planner()
    plan.cluster.observe_pod(bound("p", "n1", 2, uuids(H100, "n1", 0, 1)), 0.0)
    plan.cluster.observe_node(node("n1"), 1.0)
    assert plan.cluster.state(0).free_mask == 0b11111100


def test_full_list_of_pods_ends_those_that_are_not_in_it() -> None:
    plan = planner(node("n1"))
    kept = bound("kept", "n1", 1, uuids(H100, "n1", 0))
    plan.cluster.observe_pod(kept, 0.0)
    plan.cluster.observe_pod(bound("missed", "n1", 1, uuids(H100, "n1", 1)), 0.0)
    plan.reserve(attempt(1), pod("newer-than-the-list", 1), 0, 0.0)
    plan.cluster.settle_pod(bound("read-live", "n1", 1, uuids(H100, "n1", 7)), 0.0)
    plan.cluster.forget_other_pods({kept.uid}, 1.0)
    assert plan.cluster.ledger.get(PodUid("missed")) is None
    assert plan.cluster.state(0).free == 5


def test_in_a_full_list_the_earlier_bound_keeps_a_disputed_gpu() -> None:
    plan = planner(node("n1"))
    disputed = uuids(H100, "n1", 0)
    later, earlier = (bound(n, "n1", 1, disputed, bound_at=t) for n, t in (("later", 2.0), ("earlier", 1.0)))
    for facts in sorted([later, earlier], key=binding_order):
        plan.cluster.observe_pod(facts, 3.0)
    states = {n: plan.cluster.ledger.get(PodUid(n)).state for n in ("earlier", "later")}  # type: ignore[union-attr]
    assert states == {"earlier": HoldingState.BOUND, "later": HoldingState.FOREIGN}


def test_deleted_node_keeps_its_index_when_it_comes_back() -> None:
    plan = planner(node("a"), node("b"))
    plan.cluster.forget_other_nodes({"b"})
    assert plan.filter(attempt(1), pod("p"), ALL, 0.0).feasible == 0b10
    plan.cluster.observe_node(node("a"), 2.0)
    assert plan.cluster.table.names == ["a", "b"]
    assert plan.filter(attempt(2), pod("p"), ALL, 0.0).feasible == 0b11


def test_rankings_equal_those_built_from_scratch_after_any_changes() -> None:
    plan = planner(node("a", "dgx-1v"), node("b"), node("c", "rtx-4090x8"))
    plan.filter(attempt(1), pod("probe", 2), ALL, 0.0)  # the ranking exists from here on and is kept up to date
    plan.cluster.observe_pod(bound("x", "a", 3, uuids("dgx-1v", "a", 1, 2, 3)), 0.0)
    plan.reserve(attempt(2), pod("y", 7), 1, 0.0)
    plan.cluster.forget_node("c")
    plan.cluster.observe_node(node("d"), 0.0)
    fresh = planner(node("a", "dgx-1v"), node("b"), node("c", "rtx-4090x8"), node("d"))
    fresh.cluster.forget_node("c")
    for holding in plan.cluster.ledger.holdings():
        fresh.cluster.refresh(fresh.cluster.ledger.adopt(holding, fresh.cluster.state(holding.node).facts))
    kept, rebuilt = (p.filter(attempt(9), pod("q", 2), ALL, 0.0) for p in (plan, fresh))
    assert (kept.candidates, kept.feasible, kept.unresolvable) == (rebuilt.candidates, rebuilt.feasible, rebuilt.unresolvable)


def test_of_two_live_pods_that_name_one_gpu_the_later_one_is_in_conflict_until_one_is_gone_or_the_agent_settles_it() -> None:
    plan = planner(node("n1"))
    cluster = plan.cluster
    cluster.observe_pod(bound("first", "n1", 2, uuids("hgx-h100", "n1", 0, 1), bound_at=1.0), 0.0)
    cluster.observe_pod(bound("second", "n1", 2, uuids("hgx-h100", "n1", 1, 2), bound_at=2.0), 0.0)
    assert [(held.uid, held.rival) for held in cluster.ledger.conflicts()] == [("second", "first")]
    cluster.observe_node(node("n1", in_use={PodUid("second"): uuids("hgx-h100", "n1", 6, 7)}), 0.0)
    assert cluster.ledger.conflicts() == []
    cluster.observe_pod(bound("third", "n1", 1, uuids("hgx-h100", "n1", 0), bound_at=3.0), 0.0)
    assert [held.uid for held in cluster.ledger.conflicts()] == ["third"]
    cluster.forget_pod(PodUid("first"), 1.0)
    assert cluster.ledger.conflicts() == []

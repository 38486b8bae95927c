"""Filter, Reserve and Unreserve on real machines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.core.cluster import RANKINGS_MAX
from pyscheduler.core.holdings import HoldingState
from pyscheduler.core.model import Code, PodRequest
from pyscheduler.core.planner import Planner
from tests.builders import ALL, attempt, bound, node, only, planner, pod, uuids


def _place(plan: Planner, name: str, gpus: int, number: int = 1) -> tuple[str, tuple[str, ...]]:
    """Send a pod through Filter and Reserve; return its node and GPUs."""
    answer = plan.filter(attempt(number), pod(name, gpus), ALL, 0.0)
    assert answer.verdict.code is Code.OK, answer.verdict.reason
    chosen = plan.reserve(attempt(number), pod(name, gpus), answer.candidates[0].node, 0.0)
    assert chosen.verdict.code is Code.OK, chosen.verdict.reason
    gpus_of = json.loads(dict(chosen.annotations)["pyscheduler.io/gpus"])
    return plan.cluster.table.names[answer.candidates[0].node], tuple(gpus_of["main"])


@pytest.mark.parametrize(
    ("busy", "gpus", "want"),
    [
        pytest.param((1, 2, 3), 4, (4, 5, 6, 7), id="four of {0,4,5,6,7}: the NVLink quad, not the low indices"),
        pytest.param((1, 2, 3, 7), 2, (5, 6), id="two of {0,4,5,6}: the double link on one socket"),
    ],
)
def test_dgx_1v_gives_the_set_with_the_best_ring(busy: tuple[int, ...], gpus: int, want: tuple[int, ...]) -> None:
    plan = planner(node("n1", "dgx-1v"))
    plan.cluster.observe_pod(bound("other", "n1", len(busy), uuids("dgx-1v", "n1", *busy)), 0.0)
    assert _place(plan, "p", gpus)[1] == uuids("dgx-1v", "n1", *want)


def test_two_gpus_on_a_bridged_box_are_a_bridged_pair() -> None:
    plan = planner(node("n1", "a100-pcie-bridged"))
    first, second = (set(_place(plan, name, 2)[1]) for name in ("a", "b"))
    pairs = [set(uuids("a100-pcie-bridged", "n1", *pair)) for pair in ((0, 1), (2, 3))]
    assert sorted(map(sorted, (first, second))) == sorted(map(sorted, pairs))


def test_best_connected_node_comes_first_and_the_tightest_among_equals() -> None:
    plan = planner(node("pcie", "rtx-4090x8"), node("full"), node("tight"))
    plan.cluster.observe_pod(bound("other", "tight", 4, uuids("hgx-h100", "tight", 0, 1, 2, 3)), 0.0)
    answer = plan.filter(attempt(1), pod("p", 4), ALL, 0.0)
    assert [plan.cluster.table.names[c.node] for c in answer.candidates] == ["tight", "full", "pcie"]
    assert [c.score for c in answer.candidates] == [100, 99, 98]


def test_ties_are_broken_by_fabric_path_and_name_not_by_arrival() -> None:
    plan = planner(node("z", path=("leaf-1",)), node("b", path=("leaf-2",)), node("a", path=("leaf-2",)))
    answer = plan.filter(attempt(1), pod("p", 8), ALL, 0.0)
    assert [plan.cluster.table.names[c.node] for c in answer.candidates] == ["z", "a", "b"]


def test_only_eligible_nodes_are_candidates_but_all_are_judged() -> None:
    plan = planner(node("a"), node("b"))
    answer = plan.filter(attempt(1), pod("p"), only(1, known=2), 0.0)
    assert [c.node for c in answer.candidates] == [1]
    assert answer.feasible == 0b11


def test_at_most_sixteen_candidates_the_best_of_many() -> None:
    plan = planner(*(node(f"n{i:03}") for i in range(40)))
    plan.cluster.observe_pod(bound("x", "n030", 7, uuids("hgx-h100", "n030", *range(7))), 0.0)
    answer = plan.filter(attempt(1), pod("p", 1), ALL, 0.0)
    assert len(answer.candidates) == 16
    assert plan.cluster.table.names[answer.candidates[0].node] == "n030"


def test_pod_that_fits_nowhere_is_told_what_is_lacking_and_where_the_nearest_fit_is() -> None:
    plan = planner(node("n1"), node("n2"))
    plan.cluster.observe_pod(bound("x", "n1", 6, uuids("hgx-h100", "n1", *range(6))), 0.0)
    plan.cluster.observe_pod(bound("y", "n2", 5, uuids("hgx-h100", "n2", *range(5))), 0.0)
    verdict = plan.filter(attempt(1), pod("p", 8), ALL, 0.0).verdict
    assert verdict.code is Code.UNSCHEDULABLE
    assert verdict.reason == (
        "needs 8 GPUs (nvidia.com/gpu) on one node; the nearest fit is n2 with 3, 5 too few; "
        "5 GPUs are free on the 2 eligible nodes"
    )


def test_more_gpus_than_any_node_has_is_unresolvable_and_names_the_fix() -> None:
    verdict = planner(node("n1")).filter(attempt(1), pod("p", 9), ALL, 0.0).verdict
    assert verdict.code is Code.UNRESOLVABLE
    assert "largest eligible node has 8 (n1), 1 too few: ask for at most 8 per pod" in verdict.reason


def test_pod_that_comes_before_any_node_is_tried_again_not_refused() -> None:
    plan = planner()
    assert plan.filter(attempt(1), pod("p"), ALL, 0.0).verdict.code is Code.RETRY


def test_no_eligible_node_says_so() -> None:
    verdict = planner(node("n1"), node("n2")).filter(attempt(1), pod("p"), only(known=2), 0.0).verdict
    assert verdict.code is Code.UNRESOLVABLE
    assert "admit none of the 2 nodes" in verdict.reason


@pytest.mark.parametrize("gpus", [17, 3_000_000_000])
def test_absurd_number_of_gpus_is_refused_and_costs_nothing_that_stays(gpus: int) -> None:
    plan = planner(node("n1"))
    for number in range(1, 4):
        assert plan.filter(attempt(number), pod("p", gpus + number), ALL, 0.0).verdict.code is Code.UNRESOLVABLE
    assert plan.wake(1.0)[1] == []
    assert plan.cluster._rankings == {}


def test_number_of_rankings_is_bounded() -> None:
    plan = planner(node("n1", None, allocatable=1000))
    for number in range(1, 200):
        plan.filter(attempt(number), pod(f"p{number}", number), ALL, 0.0)
    assert len(plan.cluster._rankings) <= RANKINGS_MAX


def test_settings_that_are_not_supported_are_refused_not_ignored() -> None:
    verdict = planner(node("n1")).filter(attempt(1), pod("p", settings={"max-links": "PIX"}), ALL, 0.0).verdict
    assert verdict.code is Code.UNRESOLVABLE
    assert "pyscheduler.io/max-links" in verdict.reason


@pytest.mark.parametrize(
    ("settings", "gpus", "want"),
    [
        ({"max-link": "NV12"}, 2, ("GPU2", "GPU3")),
        ({"same-numa": "true"}, 2, ("GPU2", "GPU3")),
        ({"max-link": "SYS"}, 3, ("GPU1", "GPU2", "GPU3")),
        ({}, 3, ("GPU1", "GPU2", "GPU3")),
    ],
)
def test_limits_of_the_pod_are_kept(settings: dict[str, str], gpus: int, want: tuple[str, ...]) -> None:
    plan = planner(node("n1", "a100-pcie-bridged"))
    _place(plan, "first", 1)
    wanted = pod("p", gpus, settings=settings)
    assert plan.filter(attempt(2), wanted, ALL, 0.0).verdict.code is Code.OK
    assert plan.reserve(attempt(2), wanted, 0, 0.0).verdict.code is Code.OK
    held = plan.cluster.ledger.get(wanted.uid)
    assert held
    assert held.gpus == uuids("a100-pcie-bridged", "n1", *(int(gpu[3:]) for gpu in want))


def test_a_limit_that_freed_gpus_can_keep_waits_and_one_that_no_machine_keeps_is_told() -> None:
    plan = planner(node("n1", "a100-pcie-bridged"))
    _place(plan, "first", 1)
    _place(plan, "second", 2, 2)
    waits = plan.filter(attempt(3), pod("p", 2, settings={"max-link": "NV12"}), ALL, 0.0).verdict
    assert waits.code is Code.UNSCHEDULABLE
    never = plan.filter(attempt(4), pod("q", 3, settings={"max-link": "NV12"}), ALL, 0.0).verdict
    assert never.code is Code.UNRESOLVABLE
    assert "no link worse than NV12" in never.reason


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max-link", "fast", "use NV<n>"),
        ("max-link", "", "use NV<n>"),
        ("same-numa", "maybe", "write true or false"),
        ("near-nic", " ", "write the id or the name of a NIC"),
    ],
)
def test_a_bad_value_is_told_with_the_allowed_ones(key: str, value: str, said: str) -> None:
    verdict = planner(node("n1")).filter(attempt(1), pod("p", settings={key: value}), ALL, 0.0).verdict
    assert verdict.code is Code.UNRESOLVABLE
    assert f"pyscheduler.io/{key}" in verdict.reason
    assert said in verdict.reason


def test_refusal_is_the_same_sentence_while_nothing_changes() -> None:
    plan = planner(node("n1"))
    reasons = {plan.filter(attempt(i), pod("p", 9), ALL, float(i)).verdict.reason for i in range(1, 4)}
    assert len(reasons) == 1


def test_reserving_twice_in_one_attempt_gives_the_same_gpus() -> None:
    plan = planner(node("n1"))
    answers = [plan.reserve(attempt(1), pod("p", 2), 0, 0.0) for _ in range(2)]
    assert answers[0].annotations == answers[1].annotations
    assert plan.cluster.state(0).free == 6


def test_reserve_refuses_when_the_gpus_were_taken_since() -> None:
    plan = planner(node("n1"))
    plan.filter(attempt(1), pod("p", 8), ALL, 0.0)
    plan.reserve(attempt(2), pod("quick", 1), 0, 0.0)
    verdict = plan.reserve(attempt(1), pod("p", 8), 0, 0.0).verdict
    assert verdict.code is Code.UNSCHEDULABLE
    assert "n1" in verdict.reason


def test_a_newer_attempt_replaces_the_reservation_of_an_older_one() -> None:
    plan = planner(node("n1"), node("n2"))
    plan.reserve(attempt(1), pod("p", 8), 0, 0.0)
    plan.reserve(attempt(2), pod("p", 8), 1, 0.0)
    assert [plan.cluster.state(i).free for i in (0, 1)] == [8, 0]


@pytest.mark.parametrize("late", [attempt(1), attempt(9, session=0)], ids=["older attempt", "older session"])
def test_late_and_repeated_unreserve_of_an_earlier_attempt_frees_nothing(late: object) -> None:
    plan = planner(node("n1"))
    plan.reserve(attempt(1), pod("p", 4), 0, 0.0)
    plan.unreserve(attempt(1), pod("p").uid, bound_unknown=False, now=0.0)
    plan.reserve(attempt(2), pod("p", 4), 0, 0.0)
    for _ in range(2):
        plan.unreserve(late, pod("p").uid, bound_unknown=False, now=0.0)  # type: ignore[arg-type]
    assert plan.cluster.state(0).free == 4


def test_reserve_that_arrives_after_its_unreserve_holds_nothing() -> None:
    plan = planner(node("n1"))
    plan.unreserve(attempt(1), pod("p").uid, bound_unknown=False, now=0.0)
    assert plan.reserve(attempt(1), pod("p", 4), 0, 0.0).verdict.code is Code.RETRY
    assert plan.cluster.state(0).free == 8


def test_unknown_outcome_holds_the_gpus_until_it_is_settled() -> None:
    plan = planner(node("n1"))
    plan.reserve(attempt(1), pod("p", 4), 0, 0.0)
    plan.unreserve(attempt(1), pod("p").uid, bound_unknown=True, now=0.0)
    assert plan.filter(attempt(2), pod("p", 4), ALL, 0.0).verdict.code is Code.RETRY
    assert plan.cluster.state(0).free == 4
    plan.unreserve(attempt(1), pod("p").uid, bound_unknown=False, now=0.0)
    assert plan.cluster.state(0).free == 8


def test_unknown_outcome_becomes_bound_when_the_watch_shows_it() -> None:
    plan = planner(node("n1"))
    _, gpus = _place(plan, "p", 4)
    plan.unreserve(attempt(1), pod("p").uid, bound_unknown=True, now=0.0)
    plan.cluster.observe_pod(bound("p", "n1", 4, gpus), 0.0)
    plan.unreserve(attempt(1), pod("p").uid, bound_unknown=False, now=0.0)
    held = plan.cluster.ledger.get(pod("p").uid)
    assert held is not None
    assert (held.state, held.gpus, plan.cluster.state(0).free) == (HoldingState.BOUND, gpus, 4)


def test_pod_recreated_under_its_name_is_another_pod() -> None:
    plan = planner(node("n1"))
    plan.reserve(attempt(1), pod("uid-1", 8), 0, 0.0)
    plan.cluster.forget_pod(pod("uid-1").uid, 0.0)
    assert plan.reserve(attempt(2), pod("uid-2", 8), 0, 0.0).verdict.code is Code.OK
    assert plan.reserve(attempt(3), pod("uid-1", 8), 0, 0.0).verdict.code is Code.RETRY


def test_placement_names_the_bandwidth_that_is_predicted() -> None:
    plan = planner(node("n1", "dgx-1v"))
    four = placement(plan, 1, pod("four", 4))
    assert 60 < four["predicted_allreduce_gbps"] <= 80
    assert placement(plan, 2, pod("one", 1))["predicted_allreduce_gbps"] is None


def placement(plan: Planner, number: int, wanted: PodRequest) -> dict[str, Any]:
    answer = plan.reserve(attempt(number), wanted, 0, 0.0)
    found: dict[str, Any] = json.loads(dict(answer.annotations)["pyscheduler.io/placement"])
    return found


def test_pod_that_other_plugins_refused_is_woken_by_a_node_that_was_not_judged() -> None:
    plan = planner(node("n1"))
    wanted = pod("p", 1)
    judged = only(0, known=1)
    assert plan.filter(attempt(1), wanted, judged, 0.0).verdict.code is Code.OK
    assert plan.wake(1.0)[1] == []
    plan.cluster.observe_node(node("n2"), 1.0)
    assert plan.wake(2.0)[1] == ["p"]


def test_pod_that_was_reserved_is_woken_by_no_node() -> None:
    plan = planner(node("n1"))
    plan.filter(attempt(1), pod("p", 1), only(0, known=1), 0.0)
    plan.reserve(attempt(1), pod("p", 1), 0, 0.0)
    plan.cluster.observe_node(node("n2"), 1.0)
    assert plan.wake(2.0)[1] == []

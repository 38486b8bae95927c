"""Who is woken, and how many."""

from __future__ import annotations

from pyscheduler.core.model import Code, PodUid
from pyscheduler.core.planner import Planner
from pyscheduler.core.refusals import RENAME_AFTER_S, Eligible
from tests.builders import ALL, attempt, bound, node, only, planner, pod, uuids

H100 = "hgx-h100"


def _full(*names: str) -> Planner:
    plan = planner(*(node(name) for name in names))
    for name in names:
        plan.cluster.observe_pod(bound(f"on-{name}", name, 8, uuids(H100, name, *range(8))), 0.0)
    return plan


def _refuse(plan: Planner, count: int, gpus: int = 1, eligible: Eligible = ALL) -> list[str]:
    names = [f"w{i}" for i in range(count)]
    for i, name in enumerate(names):
        plan.filter(attempt(i + 1), pod(name, gpus), eligible, 0.0)
    return names


def test_nobody_is_woken_while_nothing_fits() -> None:
    plan = _full("n1")
    _refuse(plan, 3)
    assert plan.wake(1.0)[1] == []


def test_no_more_are_woken_than_fit_longest_waiting_first() -> None:
    plan = _full("n1")
    names = _refuse(plan, 20)
    plan.cluster.forget_pod(PodUid("on-n1"), 1.0)
    grown, due = plan.wake(1.0)
    assert due == names[:8]
    assert "freed" in grown


def test_a_woken_pod_that_is_heard_of_no_more_is_named_again_later() -> None:
    plan = _full("n1")
    names = _refuse(plan, 1)
    plan.cluster.forget_pod(PodUid("on-n1"), 1.0)
    assert plan.wake(1.0)[1] == names
    assert plan.wake(1.0 + RENAME_AFTER_S / 2)[1] == []
    assert plan.wake(1.0 + RENAME_AFTER_S)[1] == names


def test_pod_refused_again_is_named_at_once_when_something_fits() -> None:
    plan = _full("n1")
    names = _refuse(plan, 1, gpus=8)
    plan.cluster.forget_pod(PodUid("on-n1"), 1.0)
    assert plan.wake(1.0)[1] == names
    plan.reserve(attempt(50), pod("quick", 1), 0, 1.0)
    _refuse(plan, 1, gpus=8)
    plan.unreserve(attempt(50), PodUid("quick"), bound_unknown=False, now=1.0)
    assert plan.wake(1.1)[1] == names


def test_pods_are_woken_only_by_nodes_they_may_use() -> None:
    plan = _full("n1", "n2")
    _refuse(plan, 1, eligible=only(1, known=2))
    plan.cluster.forget_pod(PodUid("on-n1"), 1.0)
    assert plan.wake(1.0)[1] == []
    plan.cluster.forget_pod(PodUid("on-n2"), 1.0)
    assert plan.wake(1.2)[1] == ["w0"]


def test_node_that_joins_wakes_pods_that_could_not_know_it() -> None:
    plan = _full("n1")
    names = _refuse(plan, 1, eligible=only(0, known=1))
    plan.cluster.observe_node(node("n2"), 1.0)
    assert plan.wake(1.0)[1] == names


def test_node_that_joined_before_the_refusal_but_was_not_judged_wakes_the_pod() -> None:
    plan = _full("n1")
    plan.cluster.observe_node(node("n2"), 0.5)
    # The shim had not fetched n2 when it said which nodes are eligible.
    names = _refuse(plan, 1, eligible=only(0, known=1))
    assert plan.wake(1.0)[1] == names


def test_pod_that_fits_is_bound_or_gone_is_not_woken() -> None:
    plan = _full("n1")
    _refuse(plan, 3)
    plan.cluster.forget_pod(PodUid("on-n1"), 1.0)
    plan.filter(attempt(90), pod("w0"), ALL, 1.0)
    plan.cluster.observe_pod(bound("w1", "n1", 1, uuids(H100, "n1", 0)), 1.0)
    plan.cluster.forget_pod(PodUid("w2"), 1.0)
    assert plan.wake(1.0)[1] == []


def test_higher_priority_is_woken_first() -> None:
    plan = _full("n1")
    for i, priority in enumerate((1, 1, 1000)):
        plan.filter(attempt(i + 1), pod(f"w{i}", 8, priority=priority), ALL, float(i))
    plan.cluster.forget_pod(PodUid("on-n1"), 5.0)
    assert plan.wake(5.0)[1] == ["w2"]


def test_pod_that_cannot_go_on_does_not_keep_the_others_from_their_turn() -> None:
    plan = _full("n1")
    names = _refuse(plan, 3, gpus=8)
    plan.cluster.forget_pod(PodUid("on-n1"), 1.0)
    turns = [plan.wake(1.0 + turn * RENAME_AFTER_S)[1] for turn in range(4)]
    assert turns == [[names[0]], [names[1]], [names[2]], [names[0]]]


def test_pod_whose_fitting_nodes_lack_something_else_is_woken_by_the_other_nodes() -> None:
    plan = planner(node("n1"), node("n2"))
    plan.cluster.observe_pod(bound("x", "n1", 8, uuids(H100, "n1", *range(8))), 0.0)
    assert plan.filter(attempt(1), pod("p", 1), ALL, 0.0).verdict.code is Code.OK
    assert plan.wake(0.1)[1] == []
    plan.cluster.forget_pod(PodUid("x"), 1.0)
    assert plan.wake(1.0)[1] == ["p"]


def test_reserve_refusal_is_woken_by_room_anywhere() -> None:
    plan = planner(node("n1"), node("n2"))
    plan.reserve(attempt(1), pod("quick", 8), 0, 0.0)
    plan.reserve(attempt(2), pod("late", 8), 0, 0.0)
    assert plan.wake(0.1)[1] == ["late"]

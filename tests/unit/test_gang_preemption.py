"""Groups that have others evicted: who goes, what is kept for them meanwhile, and when they are tried again."""

from __future__ import annotations

from typing import Any

import pytest

from pyscheduler.core.gangs.evicting import AGAIN_S
from pyscheduler.core.gangs.keeping import KEPT_S
from pyscheduler.core.model import Code, PodRequest, PodUid
from pyscheduler.core.planner import Planner
from pyscheduler.core.replies import PlanAnswer, PreemptAnswer
from tests.builders import ALL, attempt, bound, member, node, planner, pod, shown, uuids

BOX = "hgx-h100"


class Shim:
    """Asks as the plugin does, on a cluster whose nodes are in racks of two."""

    def __init__(self, *names: str) -> None:
        self.planner: Planner = planner(*(node(name, path=(f"rack-{at // 2}",)) for at, name in enumerate(names)))
        self.number, self.now = 1, 1.0

    def run(self, name: str, on: str, gpus: tuple[int, ...] = tuple(range(8)), priority: int = 0, **fields: Any) -> None:
        handles = uuids(BOX, on, *gpus)
        self.planner.cluster.observe_pod(bound(name, on, len(gpus), handles, priority=priority, **fields), self.now)

    def show(self, pods: list[PodRequest]) -> list[PodRequest]:
        for each in pods:
            self.planner.cluster.observe_pod(shown(each), self.now)
        return pods

    def plan(self, wanted: PodRequest) -> PlanAnswer:
        self.number += 1
        return self.planner.plan(attempt(self.number), wanted, ALL, b"", frozenset(), self.now)

    def preempt(
        self, wanted: PodRequest, nodes: int = ALL.nodes, protected: tuple[str, ...] = (), room: bytes = b""
    ) -> PreemptAnswer:
        uids = frozenset(map(PodUid, protected))
        return self.planner.preempt(attempt(self.number), wanted, nodes, uids, self.now, room)

    def asks(self, wanted: PodRequest) -> list[str]:
        """Return the victims of a group that does not fit."""
        answer = self.plan(wanted)
        assert (answer.verdict.code, answer.preempt) == (Code.UNSCHEDULABLE, True), answer
        return victims(self.preempt(wanted))

    def goes(self, name: str, on: str, gpus: tuple[int, ...] = tuple(range(8)), **fields: Any) -> None:
        self.run(name, on, gpus, terminating=True, **fields)

    def gone(self, *names: str) -> None:
        for name in names:
            self.planner.cluster.forget_pod(PodUid(name), self.now)

    def filter(self, wanted: PodRequest) -> list[str]:
        self.number += 1
        answer = self.planner.filter(attempt(self.number), wanted, ALL, self.now)
        return [self.planner.cluster.table.names[candidate.node] for candidate in answer.candidates]

    def due(self) -> list[PodUid]:
        return self.planner.wake(self.now)[1]


def victims(answer: PreemptAnswer) -> list[str]:
    assert answer.proposal is not None, answer.verdict.reason
    return sorted(answer.proposal.victims)


def gang(count: int, gpus: int = 8, *, group: str = "job", priority: int = 100, **said: object) -> list[PodRequest]:
    return [member(f"{group}-{i}", gpus, group=group, least=count, priority=priority, index=i, **said) for i in range(count)]


def full(*names: str) -> Shim:
    """Each node is held by one pod of all its GPUs, of priority 0, named like it."""
    shim = Shim(*names)
    for name in names:
        shim.run(f"on-{name}", name)
    return shim


def test_pods_of_lower_priority_go_for_a_whole_group_and_no_more_than_it_needs():
    shim = full("a", "b", "c", "d")
    shim.run("free", "d", (0,))
    pods = shim.show(gang(3))
    assert len(shim.asks(pods[0])) == 3


def test_those_of_the_lowest_priority_go():
    shim = Shim("a", "b", "c", "d")
    for at, name in enumerate("abcd"):
        shim.run(f"on-{name}", name, priority=at)
    assert shim.asks(shim.show(gang(2))[0]) == ["on-a", "on-b"]


def test_group_within_one_rack_has_the_cheapest_rack_freed():
    shim = Shim("a", "b", "c", "d")
    for at, name in enumerate("abcd"):
        shim.run(f"on-{name}", name, priority=(1, 3, 2, 2)[at])
    assert shim.asks(shim.show(gang(2, required_level="tier-0"))[0]) == ["on-c", "on-d"]


def test_pods_that_a_disruption_budget_protects_stay_if_the_others_are_enough():
    shim = Shim("a", "b", "c")
    for at, name in enumerate("abc"):
        shim.run(f"on-{name}", name, priority=at)
    pods = shim.show(gang(2))
    assert shim.plan(pods[0]).preempt
    assert victims(shim.preempt(pods[0], protected=("on-a",))) == ["on-b", "on-c"]


def test_a_group_goes_whole_for_a_group():
    shim = Shim("a", "b", "c", "d")
    lower = gang(2, group="lower", priority=1)
    for each, on in zip(lower, "ab", strict=True):
        shim.planner.cluster.observe_pod(shown(each, on, gpus={"main": uuids(BOX, on, *range(8))}), 0.0)
    shim.run("on-c", "c", priority=100)
    shim.run("on-d", "d", priority=100)
    assert shim.asks(shim.show(gang(1))[0]) == ["lower-0", "lower-1"]


def test_of_two_groups_the_one_that_frees_enough_alone_goes():
    shim = Shim("a", "b", "c", "d")
    for group, nodes in (("x", "ac"), ("y", "bd")):
        for each, on in zip(gang(2, group=group, priority=1), nodes, strict=True):
            shim.planner.cluster.observe_pod(shown(each, on, gpus={"main": uuids(BOX, on, *range(8))}), 0.0)
    named = shim.asks(shim.show(gang(2))[0])
    assert named in (["x-0", "x-1"], ["y-0", "y-1"])


def test_nobody_goes_where_all_that_could_would_not_be_enough():
    shim = full("a", "b", "c")
    shim.run("on-d", "c", priority=100)
    pods = shim.show(gang(4))
    assert shim.plan(pods[0]).preempt
    answer = shim.preempt(pods[0])
    assert answer.verdict.code is Code.UNSCHEDULABLE
    assert answer.verdict.reason == "no eviction of pods of lower priority makes room for its group default/job"
    # The others of the group need not ask for the same.
    assert not shim.plan(pods[1]).preempt


def test_members_of_a_group_that_no_eviction_helps_do_not_all_ask_for_one_while_the_cluster_changes():
    made = Shim("a", "b", "c")
    made.run("low", "a")
    made.run("high", "b", priority=200)
    made.run("other", "c", priority=200)
    job = made.show(gang(2))
    assert made.plan(job[0]).preempt
    assert made.preempt(job[0]).proposal is None
    made.run("more", "a", (), priority=0)
    assert not made.plan(job[1]).preempt
    made.now += AGAIN_S
    assert made.plan(job[1]).preempt


def test_group_that_nobody_is_below_does_not_ask_for_an_eviction():
    shim = full("a", "b")
    pods = shim.show(gang(2, priority=0))
    assert not shim.plan(pods[0]).preempt
    assert not shim.plan(shim.show(gang(3, group="incomplete"))[:1][0]).verdict.reason.startswith("waits for its group")


def test_incomplete_group_has_nobody_evicted():
    shim = full("a", "b")
    pods = gang(2)
    shim.show(pods[:1])
    assert not shim.plan(pods[0]).preempt
    assert shim.preempt(pods[0]).verdict.code is Code.UNSCHEDULABLE


def test_where_cpu_lacks_and_not_gpus_nobody_goes():
    shim = Shim("a", "b")
    shim.run("other", "a", (0,))
    pods = shim.show(gang(2, 4))
    shim.number += 1
    answer = shim.planner.plan(attempt(shim.number), pods[0], ALL, bytes([0, 0]), frozenset(), shim.now)
    assert answer.verdict.code is Code.UNSCHEDULABLE
    assert shim.preempt(pods[0], nodes=3, room=bytes([255, 255])).verdict.code is Code.UNSCHEDULABLE


def test_no_more_members_are_counted_on_a_node_than_its_cpu_admits():
    shim = full("a", "b")
    pods = shim.show(gang(2, 4))
    assert shim.plan(pods[0]).preempt
    assert victims(shim.preempt(pods[0], nodes=3, room=bytes([1, 1]))) == ["on-a", "on-b"]


def test_nodes_are_kept_for_the_group_while_it_waits_and_the_refusal_says_for_what():
    shim = full("a", "b", "c")
    pods = shim.show(gang(2))
    named = shim.asks(pods[0])
    for name in named:
        shim.goes(name, name.removeprefix("on-"))
    waits = shim.plan(pods[1])
    assert (waits.verdict.reason, waits.preempt) == (
        "its group default/job waits for GPUs that 2 pods of lower priority give up",
        False,
    )
    assert victims(shim.preempt(pods[1])) == []
    shim.gone(named[0])
    assert shim.filter(pod("other", 8, priority=100)) == []
    assert shim.filter(pod("urgent", 8, priority=101)) == [named[0].removeprefix("on-")]
    assert shim.due() == []
    shim.gone(named[1])
    assert shim.due() == ["job-0"]
    placed = [shim.plan(each).node for each in pods]
    assert {shim.planner.cluster.table.names[at or 0] for at in placed} == {name.removeprefix("on-") for name in named}


def test_a_pod_that_is_refused_says_for_whom_nodes_are_kept():
    shim = full("a")
    pods = shim.show(gang(1))
    shim.asks(pods[0])
    shim.gone("on-a")
    shim.number += 1
    answer = shim.planner.filter(attempt(shim.number), pod("other", 8), ALL, shim.now)
    assert "1 node is kept for the group default/job, for which pods of lower priority give way" in answer.verdict.reason


def test_no_other_pod_of_its_priority_has_anybody_evicted_where_the_group_will_be():
    shim = full("a", "b")
    pods = shim.show(gang(2))
    shim.asks(pods[0])
    assert shim.preempt(pod("other", 8, priority=100)).verdict.code is Code.UNSCHEDULABLE
    assert shim.preempt(pod("urgent", 8, priority=101)).verdict.code is Code.OK


def test_victims_that_have_not_begun_to_go_are_named_again():
    shim = full("a", "b")
    pods = shim.show(gang(2))
    assert shim.asks(pods[0]) == ["on-a", "on-b"]
    shim.goes("on-a", "a")
    assert victims(shim.preempt(pods[0])) == []
    shim.now += AGAIN_S
    assert shim.due() == ["job-0"]
    assert shim.asks(pods[0]) == ["on-b"]
    assert not shim.plan(pods[0]).preempt


def test_victims_that_have_not_begun_to_go_stay_if_others_have_gone_meanwhile():
    shim = full("a", "b", "c")
    pods = shim.show(gang(2))
    named = shim.asks(pods[0])
    (other,) = {"on-a", "on-b", "on-c"} - set(named)
    shim.goes(named[0], named[0].removeprefix("on-"))
    shim.goes(other, other.removeprefix("on-"))
    shim.now += AGAIN_S
    assert shim.asks(pods[0]) == []


def test_rest_of_a_group_is_named_again_when_some_of_it_go():
    shim = Shim("a", "b", "c")
    lower = gang(2, group="lower", priority=1)
    for each, on in zip(lower, "ab", strict=True):
        shim.planner.cluster.observe_pod(shown(each, on, gpus={"main": uuids(BOX, on, *range(8))}), 0.0)
    shim.run("on-c", "c", priority=100)
    pods = shim.show(gang(1))
    assert shim.asks(pods[0]) == ["lower-0", "lower-1"]
    shim.planner.cluster.observe_pod(shown(lower[0], "a", terminating=True), shim.now)
    shim.now += AGAIN_S
    assert shim.asks(pods[0]) == ["lower-1"]


def test_group_whose_place_is_taken_by_one_of_higher_priority_has_others_evicted():
    shim = full("a", "b", "c")
    pods = shim.show(gang(2))
    named = shim.asks(pods[0])
    shim.gone(*named)
    shim.run("urgent", named[0].removeprefix("on-"), priority=200)
    assert shim.due() == ["job-0"]
    rest = {"on-a", "on-b", "on-c"} - set(named)
    assert shim.asks(pods[0]) == sorted(rest)


def test_nodes_are_not_kept_for_ever_and_others_are_tried_again_then():
    shim = full("a", "b")
    pods, others = shim.show(gang(2)), shim.show(gang(1, group="other"))
    assert shim.asks(pods[0]) == ["on-a", "on-b"]
    shim.gone("on-b")
    assert shim.plan(others[0]).verdict.code is Code.UNSCHEDULABLE
    shim.number += 1
    assert shim.planner.filter(attempt(shim.number), pod("single", 8), ALL, shim.now).verdict.code is Code.UNSCHEDULABLE
    assert "other-0" not in shim.due()
    shim.now += KEPT_S + 1
    due = shim.due()
    assert "other-0" in due
    assert "single" in due
    assert "job-0" in due


def test_what_is_kept_ends_with_the_group():
    shim = full("a")
    pods = shim.show(gang(1))
    shim.asks(pods[0])
    shim.gone("on-a", pods[0].uid)
    shim.due()
    assert shim.filter(pod("other", 8)) == ["a"]


def test_pods_that_are_on_their_way_out_are_waited_for_and_their_nodes_kept():
    """As after a restart of the service, which does not know any more for whom they go."""
    shim = full("a", "b")
    shim.goes("on-b", "b")
    pods = shim.show(gang(1))
    assert shim.asks(pods[0]) == []
    assert shim.plan(pods[0]).verdict.reason.endswith("waits for GPUs that 1 pod of lower priority give up")
    shim.gone("on-b")
    assert shim.filter(pod("other", 8)) == []
    assert shim.plan(pods[0]).node == 1


def test_plans_and_nominations_of_lower_priority_are_no_reason_to_evict_anybody():
    shim = Shim("a", "b", "c")
    shim.run("on-c", "c")
    planned = shim.show(gang(1, group="planned", priority=1))
    assert shim.plan(planned[0]).verdict.code is Code.OK
    shim.run("on-b", "b")
    nominated = pod("nominated", 8, priority=2)
    assert shim.filter(nominated) == ["a"]
    assert victims(shim.preempt(nominated, nodes=2)) == ["on-b"]
    shim.gone("on-b")
    pods = shim.show(gang(2))
    assert [shim.plan(each).node for each in pods] == [0, 1]
    assert "nominated" in shim.due()


def test_late_member_of_a_group_that_runs_has_somebody_evicted_but_none_of_its_own():
    shim = Shim("a", "b", "c", "d")
    pods = gang(1, priority=1)
    shim.planner.cluster.observe_pod(shown(pods[0], "a", gpus={"main": uuids(BOX, "a", *range(8))}), 0.0)
    for name, priority in zip("bcd", (3, 0, 200), strict=True):
        shim.run(f"on-{name}", name, priority=priority)
    late = member("job-late", 8, least=1, priority=100, index=1)
    shim.show([late])
    assert shim.asks(late) == ["on-c"]


def test_members_without_gpus_have_nobody_evicted():
    shim = full("a", "b")
    launcher = member("job-launcher", 0, least=3, priority=100)
    shim.show([*gang(2)[:2], launcher])
    assert not shim.plan(launcher).preempt
    assert shim.preempt(launcher).verdict.code is not Code.OK


def test_members_of_two_kinds_get_room_together():
    shim = Shim("a", "b")
    for gpu in range(8):
        shim.run(f"a{gpu}", "a", (gpu,))
        shim.run(f"b{gpu}", "b", (gpu,), priority=1)
    pods = shim.show([*gang(1, 8), member("job-small", 2, least=2, priority=100, index=1)])
    for each in pods:
        shim.planner.cluster.observe_pod(shown(each), shim.now)
    named = shim.asks(pods[0])
    assert (len([name for name in named if name < "b"]), len(named)) == (8, 10)
    shim.gone(*named)
    assert all(shim.plan(each).verdict.code is Code.OK for each in pods)


def test_group_that_was_evicted_starts_anew_as_a_whole():
    shim = Shim("a", "b")
    old = gang(2, priority=0)
    shim.show(old)
    for each in old:
        answer = shim.plan(each)
        assert shim.planner.reserve(attempt(shim.number), each, answer.node or 0, shim.now).verdict.code is Code.OK
    for each, on in zip(old, "ab", strict=True):
        handles = uuids(BOX, on, *range(8))
        shim.planner.cluster.observe_pod(shown(each, on, gpus={"main": handles}, terminating=True), shim.now)
    shim.planner.expire(shim.now)
    anew = [member(f"new-{i}", 8, least=2, index=i) for i in range(2)]
    shim.show(anew[:1])
    shim.gone(old[0].uid)
    assert shim.plan(anew[0]).verdict.reason == "waits for its group default/job: 1 of 2 members is there"


@pytest.mark.parametrize("count", [2, 4])
def test_nothing_is_changed_by_the_question(count: int):
    shim = full("a", "b", "c")
    pods = shim.show(gang(count))
    shim.plan(pods[0])
    before = shim.planner.cluster.states(), list(shim.planner.cluster.ledger.holdings())
    shim.preempt(pods[0])
    after = shim.planner.cluster.states(), list(shim.planner.cluster.ledger.holdings())
    assert before == after

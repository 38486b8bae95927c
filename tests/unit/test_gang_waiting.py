"""Groups that cannot start: for a member without GPUs that fits nowhere, or because members have gone while nodes are kept."""

from __future__ import annotations

import pytest

from pyscheduler.core.gangs.evicting import AGAIN_S
from pyscheduler.core.model import Code, PodRequest, PodUid
from pyscheduler.core.planner import Planner
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.replies import PlanAnswer
from tests.builders import attempt, bound, member, node, only, planner, pod, shown, uuids

BOX = "hgx-h100"
WAITS = "waits for its member job-launcher, which fits no node: see its Events"


class Shim:
    """Asks as the plugin does."""

    def __init__(self, *names: str) -> None:
        self.planner: Planner = planner(*(node(name) for name in names))
        self.number, self.now = 1, 1.0

    def show(self, *pods: PodRequest) -> None:
        for each in pods:
            self.planner.cluster.observe_pod(shown(each), self.now)

    def run(self, name: str, on: str, priority: int = 0) -> None:
        self.planner.cluster.observe_pod(bound(name, on, 8, uuids(BOX, on, *range(8)), priority=priority), self.now)

    def gone(self, *names: str) -> None:
        for name in names:
            self.planner.cluster.forget_pod(PodUid(name), self.now)

    def everywhere(self) -> Eligible:
        known = len(self.planner.cluster.table)
        return only(*range(known), known=known)

    def plan(self, wanted: PodRequest, eligible: Eligible | None = None, room: bytes = b"") -> PlanAnswer:
        self.number += 1
        return self.planner.plan(attempt(self.number), wanted, eligible or self.everywhere(), room, frozenset(), self.now)

    def nowhere(self, wanted: PodRequest) -> PlanAnswer:
        """Ask for a pod that no node admits."""
        return self.plan(wanted, only(known=len(self.planner.cluster.table)))

    def place(self, wanted: PodRequest) -> None:
        answer = self.plan(wanted)
        assert answer.node is not None, answer.verdict.reason
        assert self.planner.reserve(attempt(self.number), wanted, answer.node, self.now).verdict.code is Code.OK

    def evict(self, wanted: PodRequest) -> list[str]:
        """Ask for the group of a member that lacks room, and return who goes for it."""
        answer = self.plan(wanted)
        assert answer.preempt, answer.verdict.reason
        proposal = self.planner.preempt(attempt(self.number), wanted, self.everywhere().nodes, frozenset(), self.now).proposal
        assert proposal is not None
        return sorted(proposal.victims)

    def refusal(self, wanted: PodRequest) -> str:
        self.number += 1
        return self.planner.filter(attempt(self.number), wanted, self.everywhere(), self.now).verdict.reason

    def due(self) -> list[PodUid]:
        return self.planner.wake(self.now)[1]

    def free(self) -> int:
        return sum(state.free for state in self.planner.cluster.states())


def workers(count: int, *, group: str = "job", least: int, priority: int = 0) -> list[PodRequest]:
    return [member(f"{group}-{i}", 8, group=group, least=least, priority=priority, index=i) for i in range(count)]


def launcher(least: int, priority: int = 0) -> PodRequest:
    return member("job-launcher", 0, least=least, priority=priority, role=(0, "launcher"))


NO_NODE = pytest.mark.parametrize(("nodes", "room"), [((), b""), ((0, 1), bytes([0, 0]))], ids=["none admits", "none has room"])


@NO_NODE
def test_group_whose_launcher_fits_nowhere_holds_nothing_and_says_so(nodes: tuple[int, ...], room: bytes):
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first, *others)
    shim.plan(first, only(*nodes, known=2), room)
    answers = [shim.plan(each) for each in others]
    assert {(each.verdict.code, each.verdict.reason, each.preempt) for each in answers} == {(Code.UNSCHEDULABLE, WAITS, False)}
    assert shim.free() == 16
    assert shim.due() == []


def test_the_cycle_of_a_launcher_that_fits_nowhere_goes_on_so_that_the_framework_says_why():
    shim, first = Shim("a", "b"), launcher(3)
    shim.show(first, *workers(2, least=3))
    answer = shim.nowhere(first)
    assert answer.verdict.code is Code.OK
    assert answer.member is not None
    # Should it come to Permit all the same it is refused there, and asks again.
    assert shim.planner.gangs.plans.take_ended() == [answer.member.plan]
    assert shim.plan(workers(2, least=3)[0]).verdict.reason == WAITS


def test_launcher_that_was_told_that_members_are_missing_is_tried_when_they_are_there():
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first)
    assert "1 of 3 members is there" in shim.nowhere(first).verdict.reason
    shim.show(*others)
    assert shim.plan(others[0]).verdict.reason == WAITS
    assert shim.due() == [first.uid]
    assert shim.nowhere(first).verdict.code is Code.OK
    shim.now += 100.0
    assert shim.due() == []


def test_group_starts_when_its_launcher_fits_again():
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first, *others)
    shim.nowhere(first)
    assert [shim.plan(each).verdict.reason for each in others] == [WAITS, WAITS]
    assert "to be placed" in shim.plan(first, room=bytes([0, 1])).verdict.reason
    assert shim.due() == [others[0].uid]
    assert all(shim.plan(each).verdict.code is Code.OK for each in (*others, first))


def test_node_that_was_not_judged_may_have_room_for_a_launcher():
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first, *others)
    shim.plan(first, only(known=1))
    assert shim.plan(others[0]).verdict.code is Code.OK


def test_another_launcher_takes_the_place_of_one_that_fits_nowhere():
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first, *others)
    shim.nowhere(first)
    shim.gone(first.uid)
    shim.show(member("new-launcher", 0, least=3, role=(0, "launcher")))
    assert shim.plan(others[0]).verdict.code is Code.OK


def test_plan_ends_when_the_launcher_is_found_to_fit_nowhere():
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first, *others)
    for each in others:
        shim.place(each)
    plan = shim.planner.gangs.plans.all()[0].id
    shim.nowhere(first)
    assert plan in shim.planner.gangs.plans.take_ended()
    for at, each in enumerate(others):
        shim.planner.unreserve(attempt(shim.number - 1 - at), each.uid, bound_unknown=False, now=shim.now)
    assert shim.plan(others[0]).verdict.reason == WAITS


def test_group_that_takes_the_room_of_its_launcher_is_not_placed_again_at_once():
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first, *others)
    assert shim.plan(others[0]).verdict.code is Code.OK
    shim.plan(first, room=bytes([0, 0]))
    shim.plan(first, room=bytes([1, 1]))
    assert "it is placed anew after a while" in shim.plan(others[0]).verdict.reason


def test_group_that_has_started_does_without_its_launcher():
    shim, first, others = Shim("a", "b"), launcher(3), workers(2, least=3)
    shim.show(first, *others)
    for each, on in zip(others, "ab", strict=True):
        shim.place(each)
        handles = {"main": uuids(BOX, on, *range(8))}
        shim.planner.cluster.observe_pod(shown(each, on, gpus=handles), shim.now)
    plan = shim.planner.gangs.plans.all()[0].id
    assert shim.nowhere(first).verdict.code is Code.OK
    assert [each.id for each in shim.planner.gangs.plans.all()] == [plan]


def test_elastic_group_starts_without_a_launcher_that_it_does_not_need():
    shim, first, others = Shim("a", "b"), launcher(2), workers(2, least=2)
    shim.show(first, *others)
    shim.nowhere(first)
    assert all(shim.plan(each).verdict.code is Code.OK for each in others)
    assert shim.nowhere(first).verdict.code is Code.OK
    assert shim.planner.gangs.plans.take_ended() == []


def test_launcher_that_fits_nowhere_is_not_counted_on_in_its_place():
    shim, first, others = Shim("a", "b"), launcher(3), workers(3, least=3)
    shim.show(first, *others)
    shim.nowhere(first)
    assert shim.plan(others[0]).verdict.code is Code.UNSCHEDULABLE
    assert shim.free() == 16


def test_nobody_is_evicted_for_a_group_whose_launcher_fits_nowhere():
    shim, first, others = Shim("a", "b"), launcher(3, 100), workers(2, least=3, priority=100)
    for name in "ab":
        shim.run(f"on-{name}", name)
    shim.show(first, *others)
    shim.nowhere(first)
    for _ in range(3):
        shim.now += 100.0
        assert [shim.plan(each).preempt for each in others] == [False, False]
    assert shim.due() == []
    # It may when the launcher fits.
    shim.plan(first)
    assert shim.due() == [others[0].uid]
    assert shim.evict(others[0]) == ["on-a", "on-b"]


def test_nodes_are_not_kept_for_a_group_whose_launcher_fits_nowhere():
    shim, first, others = Shim("a", "b"), launcher(3, 100), workers(2, least=3, priority=100)
    for name in "ab":
        shim.run(f"on-{name}", name)
    shim.show(first, *others)
    shim.evict(others[0])
    shim.gone("on-a")
    shim.nowhere(first)
    assert shim.refusal(pod("other", 8)) == ""
    shim.now += AGAIN_S
    shim.plan(first)
    assert others[0].uid in shim.due()
    assert shim.evict(others[0]) == ["on-b"]


def test_group_without_gpus_holds_no_room_for_a_member_that_fits_nowhere():
    shim = Shim("a", "b")
    pods = [member(f"job-{name}", 0, least=2) for name in ("launcher", "helper")]
    shim.show(*pods)
    shim.nowhere(pods[0])
    assert shim.plan(pods[1]).verdict.reason == WAITS
    shim.plan(pods[0])
    assert set(shim.due()) == {pods[1].uid}
    assert shim.plan(pods[1]).member == shim.plan(pods[0]).member


@pytest.mark.parametrize("lost", ["deleted", "on its way out"])
def test_nodes_are_not_kept_for_a_group_that_has_become_incomplete(lost: str):
    shim, pods = Shim("a", "b"), workers(2, least=2, priority=100)
    for name in "ab":
        shim.run(f"on-{name}", name)
    shim.show(*pods)
    shim.evict(pods[0])
    shim.gone("on-a")
    assert "1 node" not in shim.refusal(pod("other", 8))
    assert "2 nodes are kept for the group default/job" in shim.refusal(pod("other", 8))
    if lost == "deleted":
        shim.gone(pods[0].uid)
    else:
        shim.planner.cluster.observe_pod(shown(pods[0], terminating=True), shim.now)
    assert "other" in shim.due()
    assert shim.refusal(pod("other", 8)) == ""


def test_elastic_group_that_has_enough_members_left_keeps_its_nodes():
    shim, pods = Shim("a", "b"), workers(3, least=2, priority=100)
    for name in "ab":
        shim.run(f"on-{name}", name)
    shim.show(*pods)
    shim.evict(pods[0])
    shim.gone("on-a", pods[2].uid)
    shim.due()
    assert "2 nodes are kept for the group default/job" in shim.refusal(pod("other", 8))


def test_group_that_no_eviction_helped_asks_again_soon_but_not_at_once_after_the_cluster_has_changed():
    shim, pods = Shim("a", "b"), workers(2, least=2, priority=100)
    shim.run("equal", "a", priority=100)
    shim.run("low", "b")
    shim.show(*pods)
    assert shim.plan(pods[0]).preempt
    everywhere = shim.everywhere().nodes
    assert shim.planner.preempt(attempt(shim.number), pods[0], everywhere, frozenset(), shim.now).proposal is None
    shim.now += AGAIN_S
    assert shim.due() == []
    shim.now -= 1.0
    shim.gone("equal")
    shim.run("other", "a")
    assert shim.due() == []
    shim.now += 1.0
    assert shim.due() == [pods[0].uid]
    assert shim.evict(pods[0]) == ["low", "other"]


def kept_for_hi() -> Shim:
    """Return two nodes that are kept for a group, while those that go for it are still there."""
    shim, pods = Shim("a", "b"), workers(2, group="hi", least=2, priority=100)
    for name in "ab":
        shim.run(f"on-{name}", name)
    shim.show(*pods)
    assert shim.evict(pods[0]) == ["on-a", "on-b"]
    return shim


KEPT = "2 nodes are kept for the group default/hi, for which pods of lower priority give way"


def test_pod_that_asks_before_the_victims_have_gone_is_told_that_the_nodes_are_kept():
    shim = kept_for_hi()
    assert shim.refusal(pod("other", 8)) == f"needs 8 GPUs (nvidia.com/gpu) on one node; {KEPT}"


def test_group_that_asks_before_the_victims_have_gone_is_told_that_the_nodes_are_kept():
    shim, pods = kept_for_hi(), workers(2, least=2)
    shim.show(*pods)
    assert shim.plan(pods[0]).verdict.reason == f"its group default/job needs 2 pods of 8 GPUs; {KEPT}"


def test_what_other_nodes_lack_is_said_beside_what_is_kept():
    shim, pods = kept_for_hi(), workers(2, least=2)
    for name in "cd":
        shim.planner.cluster.observe_node(node(name), shim.now)
        shim.run(f"on-{name}", name, priority=100)
    shim.show(*pods)
    single, group = shim.refusal(pod("other", 8)), shim.plan(pods[0]).verdict.reason
    assert single.endswith(f"8 too few; 0 GPUs are free on the 2 eligible nodes; {KEPT}")
    assert "at least 16 more GPUs would have to be freed, for 2 more pods" in group
    assert group.endswith(KEPT)


def test_nodes_that_are_too_small_are_not_said_to_be_kept():
    shim, pods = kept_for_hi(), workers(3, least=3)
    shim.show(*pods)
    assert "kept" not in shim.refusal(pod("other", 9))
    assert "kept" not in shim.plan(pods[0]).verdict.reason

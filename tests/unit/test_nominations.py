"""What is held for pods that preemption makes room for: who keeps it, who is woken, what a late or a false claim does."""

from __future__ import annotations

import pytest

from pyscheduler.core.holdings import HoldingState
from pyscheduler.core.model import Code, NodeFacts, PodRequest, PodUid
from pyscheduler.core.nominations import NOMINATION_S
from pyscheduler.core.planner import Planner
from pyscheduler.core.replies import HeldByShim, PreemptAnswer
from tests.builders import ALL, GPU, attempt, bound, node, planner, pod, uuids

BOX = "hgx-h100"
ALL_EIGHT = tuple(range(8))


class Scene:
    """A planner whose calls are numbered attempts, at a time that stands still unless it is moved."""

    def __init__(self, *nodes: NodeFacts) -> None:
        self.plan: Planner = planner(*nodes)
        self.number = 0
        self.now = 1.0

    def runs(
        self, name: str, on: str, gpus: tuple[int, ...], priority: int = 0, *, gang: bool = False, terminating: bool = False
    ) -> None:
        shares = uuids(BOX, on, *gpus)
        facts = bound(name, on, len(gpus), shares, priority=priority, gang=gang, terminating=terminating)
        self.plan.cluster.observe_pod(facts, self.now)

    def ends(self, *names: str) -> None:
        for name in names:
            self.plan.cluster.forget_pod(PodUid(name), self.now)

    def asks(self, wanted: PodRequest) -> list[str]:
        """Filter; returns the nodes it is given."""
        self.number += 1
        answer = self.plan.filter(attempt(self.number), wanted, ALL, self.now)
        return [self.plan.cluster.table.names[candidate.node] for candidate in answer.candidates]

    def preempts(self, wanted: PodRequest, nodes: int = ALL.nodes) -> PreemptAnswer:
        """Filter, then Preempt in the same attempt."""
        assert self.asks(wanted) == []
        return self.plan.preempt(attempt(self.number), wanted, nodes, frozenset(), self.now)

    def reserves(self, wanted: PodRequest, on: int) -> Code:
        self.number += 1
        return self.plan.reserve(attempt(self.number), wanted, on, self.now).verdict.code

    def fails_to_bind(self, wanted: PodRequest) -> None:
        self.plan.unreserve(attempt(self.number), wanted.uid, bound_unknown=False, now=self.now)

    def woken(self) -> list[PodUid]:
        return self.plan.wake(self.now)[1]

    def held_for(self, wanted: PodRequest) -> bool:
        return wanted.uid in {held.uid for held in self.plan.cluster.ledger.nominated()}

    def claim(self, wanted: PodRequest, on: str, gpus: tuple[int, ...]) -> None:
        """The shim says in a Resync that this is held for the pod."""
        self.number += 1
        said = HeldByShim(wanted, 1, on, uuids(BOX, on, *gpus), doubtful=False, nominated=True)
        self.plan.resync(attempt(self.number), [said], self.now)


def low(gpus: int, name: str = "low") -> PodRequest:
    return pod(name, gpus, priority=50)


def high(gpus: int, name: str = "high") -> PodRequest:
    return pod(name, gpus, priority=100)


def victims(answer: PreemptAnswer) -> list[str]:
    assert answer.proposal, answer.verdict
    return sorted(answer.proposal.victims)


def test_a_pod_that_steps_before_another_is_woken_when_the_victims_of_both_are_gone():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    assert victims(scene.preempts(high(8))) == ["a1"]
    scene.woken()
    scene.ends("a1")
    assert scene.woken() == ["high"]
    assert scene.asks(high(8)) == ["a"]


def test_a_pod_that_lost_what_was_held_for_it_is_woken_to_look_elsewhere():
    scene = Scene(node("a"), node("b"))
    scene.runs("a1", "a", ALL_EIGHT, 0)
    scene.runs("b1", "b", ALL_EIGHT, 10)
    scene.preempts(low(8))
    scene.preempts(high(8))
    assert not scene.held_for(low(8))
    assert scene.woken() == ["low"]
    assert victims(scene.preempts(low(8))) == ["b1"]


def test_a_pod_whose_gpus_another_is_bound_to_is_woken():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    scene.ends("a1")
    assert scene.woken() == ["low"]
    scene.now += 6
    scene.runs("other", "a", ALL_EIGHT)
    assert scene.woken() == ["low"]
    assert victims(scene.preempts(low(8))) == ["other"]


def test_a_pod_whose_hold_ends_by_time_is_woken():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    scene.now += NOMINATION_S + 1
    assert scene.woken() == ["low"]


def test_a_pod_that_could_evict_nobody_is_woken_when_a_pod_of_lower_priority_has_been_bound():
    """Pods whose Binding is under way cannot be evicted; a moment later they can."""
    scene = Scene(node("a"))
    assert scene.reserves(pod("small", 8), 0) is Code.OK
    assert scene.preempts(high(8)).verdict.code is Code.UNSCHEDULABLE
    assert scene.woken() == []
    scene.runs("small", "a", ALL_EIGHT)
    assert scene.woken() == ["high"]
    assert victims(scene.preempts(high(8))) == ["small"]


def test_a_pod_is_woken_when_small_pods_took_what_pods_of_higher_priority_gave_up():
    scene = Scene(node("a"))
    for gpu in range(8):
        scene.runs(f"a{gpu}", "a", (gpu,), 1000)
    scene.preempts(high(2))
    for gpu in (0, 1):
        scene.ends(f"a{gpu}")
        scene.runs(f"small{gpu}", "a", (gpu,), 0)
    assert scene.woken() == ["high"]
    assert victims(scene.preempts(high(2))) == ["small0", "small1"]


def test_of_each_kind_only_as_many_are_woken_as_evictions_have_become_possible():
    scene = Scene(node("a"), node("b"))
    scene.runs("a1", "a", ALL_EIGHT, 1000)
    scene.runs("b1", "b", ALL_EIGHT, 1000)
    for wanted in (low(8, "low1"), low(8, "low2"), high(8, "high1"), high(8, "high2"), high(8, "high3")):
        scene.preempts(wanted)
    scene.ends("a1", "b1")
    scene.runs("a2", "a", ALL_EIGHT, 0)
    scene.runs("b2", "b", ALL_EIGHT, 75)
    assert scene.woken() == ["high1", "low1", "high2"]
    assert scene.woken() == []


def test_one_after_the_other_is_woken_where_several_evictions_have_become_possible():
    scene = Scene(node("a"), node("b"))
    for on in ("a", "b"):
        for gpu in range(8):
            scene.runs(f"{on}{gpu}", on, (gpu,), 1000)
    names = [f"high{number}" for number in range(4)]
    for name in names:
        scene.preempts(high(1, name))
    for gpu in (0, 1, 2):
        scene.ends(f"b{gpu}")
        scene.runs(f"small{gpu}", "b", (gpu,), 0)
    scene.ends("a0")
    scene.runs("small3", "a", (0,), 5)
    woken: list[PodUid] = []
    while due := scene.woken():
        woken += due
        for name in due:
            assert len(victims(scene.preempts(high(1, name)))) == 1
        scene.now += 0.2
    assert sorted(woken) == names


def test_a_woken_pod_that_is_gone_leaves_its_chance_to_another():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT, 1000)
    for name in ("high1", "high2"):
        scene.preempts(high(8, name))
    scene.ends("a1")
    scene.runs("a2", "a", ALL_EIGHT, 0)
    assert scene.woken() == ["high1"]
    scene.ends("high1")
    assert scene.woken() == []
    scene.now += 6
    assert scene.woken() == ["high2"]


def test_a_pod_that_no_node_with_a_change_would_help_is_left_alone():
    scene = Scene(node("a"), node("b"))
    scene.runs("a1", "a", ALL_EIGHT, 1000)
    scene.runs("b1", "b", ALL_EIGHT, 1000)
    scene.preempts(high(8), nodes=0b01)
    scene.ends("b1")
    scene.runs("b2", "b", ALL_EIGHT, 0)
    assert scene.woken() == []


def test_a_nominated_pod_is_named_again_in_seconds_not_at_once_when_nothing_has_changed():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    scene.ends("a1")
    names = []
    for _ in range(60):
        if scene.woken():
            names.append(scene.now)
            # The node takes it, but the other plugins do not.
            assert scene.asks(low(8)) == ["a"]
        scene.now += 0.2
    assert len(names) == 3


def test_a_nominated_pod_is_woken_when_its_victims_are_gone_and_it_still_does_not_fit():
    scene = Scene(node("a"), node("b"))
    scene.runs("a1", "a", ALL_EIGHT, 0)
    scene.runs("b1", "b", ALL_EIGHT, 10)
    scene.preempts(low(8))
    scene.plan.cluster.observe_node(node("a", sick=(0,)), scene.now)
    assert scene.woken() == []
    scene.ends("a1")
    assert scene.woken() == ["low"]
    assert victims(scene.preempts(low(8))) == ["b1"]


def test_a_nominated_pod_is_woken_when_its_node_is_gone():
    scene = Scene(node("a"), node("b"))
    scene.runs("a1", "a", ALL_EIGHT, 0)
    scene.runs("b1", "b", ALL_EIGHT, 10)
    scene.preempts(low(8))
    scene.plan.cluster.forget_node("a")
    assert scene.woken() == ["low"]


def test_of_what_is_held_for_pods_of_lower_priority_no_more_is_taken_than_is_needed():
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0, 1, 2, 3))
    scene.runs("a2", "a", (4, 5, 6, 7))
    scene.preempts(pod("lower", 4, priority=50))
    scene.preempts(pod("low", 4, priority=60))
    scene.ends("a1", "a2")
    assert scene.asks(high(2)) == ["a"]
    assert scene.reserves(high(2), 0) is Code.OK
    assert [held.uid for held in scene.plan.cluster.ledger.nominated()] == ["low"]


def test_an_eviction_lets_pods_of_lower_priority_keep_what_is_held_for_them_beside_it():
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0,), 0)
    scene.runs("a2", "a", (1, 2, 3), 1000)
    scene.runs("a3", "a", (4, 5, 6, 7), 1)
    assert victims(scene.preempts(low(1))) == ["a1"]
    answer = scene.preempts(high(4))
    assert victims(answer) == ["a3"]
    assert answer.proposal
    assert answer.proposal.gpus == uuids(BOX, "a", 4, 5, 6, 7)
    assert scene.held_for(low(1))


@pytest.mark.parametrize("told_to_go", [False, True])
def test_of_pods_that_were_named_for_a_set_that_fell_sick_only_those_count_as_going_that_were_told_to_go(*, told_to_go: bool):
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0,), 1)
    scene.runs("a2", "a", (1,), 2)
    scene.runs("a3", "a", (2, 3), 10)
    scene.runs("a4", "a", (4, 5, 6, 7), 1000)
    assert victims(scene.preempts(high(2))) == ["a1", "a2"]
    # The sick one that a3 has is one fewer of all that the node gives out.
    scene.plan.cluster.observe_node(node("a", sick=(3,)), scene.now)
    assert victims(scene.preempts(low(1))) == ["a3"]
    for name, gpu, priority in (("a1", 0, 1), ("a2", 1, 2)) if told_to_go else ():
        scene.runs(name, "a", (gpu,), priority, terminating=True)
    answer = scene.preempts(high(2))
    assert victims(answer) == (["a3"] if told_to_go else ["a1", "a3"])
    assert answer.proposal
    assert answer.proposal.gpus == uuids(BOX, "a", 0, 1 if told_to_go else 2)
    assert scene.held_for(low(1)) is told_to_go


def test_two_holds_never_name_one_gpu():
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0, 1, 2, 3), 0)
    scene.runs("a2", "a", (4, 5, 6, 7), 0)
    scene.preempts(low(4))
    scene.preempts(high(4))
    named = [gpu for held in scene.plan.cluster.ledger.nominated() for gpu in held.gpus]
    assert len(named) == len(set(named))


def test_a_claim_of_the_shim_does_not_bring_back_what_ended_by_time():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    scene.now += NOMINATION_S + 1
    scene.woken()
    scene.claim(low(8), "a", ALL_EIGHT)
    assert not scene.held_for(low(8))
    scene.ends("a1")
    assert scene.asks(pod("small", 1)) == ["a"]


def test_a_claim_of_the_shim_does_not_bring_back_what_a_pod_of_higher_priority_took():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    scene.ends("a1")
    scene.asks(high(4))
    assert scene.reserves(high(4), 0) is Code.OK
    scene.claim(low(8), "a", ALL_EIGHT)
    assert not scene.held_for(low(8))
    assert scene.asks(pod("small", 4)) == ["a"]


def test_after_a_restart_a_claim_is_not_taken_up_where_a_pod_of_higher_priority_has_the_gpus():
    scene = Scene(node("a"))
    scene.runs("high", "a", (0, 1, 2, 3), 100)
    scene.claim(low(8), "a", ALL_EIGHT)
    assert not scene.held_for(low(8))
    assert scene.asks(pod("small", 4)) == ["a"]


@pytest.mark.parametrize("order", [("low", "high"), ("high", "low")])
def test_after_a_restart_the_higher_priority_has_what_two_claim(order: tuple[str, str]):
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    wanted = {"low": low(8), "high": high(8)}
    scene.number += 1
    said = [HeldByShim(wanted[name], 1, "a", uuids(BOX, "a", *ALL_EIGHT), doubtful=False, nominated=True) for name in order]
    scene.plan.resync(attempt(scene.number), said, scene.now)
    assert [held.uid for held in scene.plan.cluster.ledger.nominated()] == ["high"]


def test_after_a_restart_no_other_pods_are_named_than_those_that_have_the_gpus():
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0, 1, 2, 3), 10)
    scene.runs("a2", "a", (4, 5, 6, 7), 0)
    scene.claim(low(4), "a", (0, 1, 2, 3))
    assert scene.woken() == []
    assert victims(scene.preempts(low(4))) == ["a1"]
    scene.woken()
    scene.ends("a1")
    assert scene.woken() == ["low"]


def test_a_call_that_comes_late_changes_nothing():
    scene = Scene(node("a"), node("b"))
    scene.runs("a1", "a", ALL_EIGHT, 0)
    scene.runs("b1", "b", ALL_EIGHT, 10)
    late = scene.number = 1
    newer = scene.preempts(low(8), nodes=0b10)
    assert victims(newer) == ["b1"]
    assert scene.plan.preempt(attempt(late), low(8), 0b01, frozenset(), scene.now).proposal is None
    held = scene.plan.cluster.ledger.get(PodUid("low"))
    assert held
    assert held.victims == ("b1",)


def test_a_reserve_in_the_attempt_that_preempted_gives_gpus_or_refuses():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    answer = scene.plan.reserve(attempt(scene.number), low(8), 0, scene.now)
    assert answer.annotations or answer.verdict.code is not Code.OK


def test_asked_again_nobody_is_named_when_the_gpus_are_free_and_something_else_lacks():
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0, 1, 2, 3), 0)
    scene.runs("a2", "a", (4, 5, 6, 7), 60)
    assert victims(scene.preempts(low(4))) == ["a1"]
    scene.ends("a2")
    assert scene.asks(low(4)) == ["a"]
    again = scene.plan.preempt(attempt(scene.number), low(4), ALL.nodes, frozenset(), scene.now)
    assert victims(again) == []


def test_asked_again_the_first_answer_stands_though_a_cheaper_one_is_possible_since():
    scene = Scene(node("a"), node("b"))
    scene.runs("a1", "a", ALL_EIGHT, 10)
    scene.runs("b1", "b", ALL_EIGHT, 1000)
    assert victims(scene.preempts(low(8))) == ["a1"]
    scene.ends("b1")
    scene.runs("b2", "b", ALL_EIGHT, 0)
    scene.now += 10
    assert victims(scene.preempts(low(8))) == ["a1"]
    scene.now += NOMINATION_S - 9
    assert scene.woken() == ["low"], "asking again does not prolong it"
    assert victims(scene.preempts(low(8))) == ["b2"]


def test_what_an_earlier_attempt_has_reserved_is_no_reason_to_evict_anybody():
    """Its Unreserve is repeated until it is acknowledged, and may come after the next attempt."""
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0, 1, 2, 3), 0)
    assert scene.reserves(low(4), 0) is Code.OK
    scene.number += 1
    answer = scene.plan.preempt(attempt(scene.number), low(4), ALL.nodes, frozenset(), scene.now)
    assert victims(answer) == []
    scene.plan.unreserve(attempt(scene.number - 1), PodUid("low"), bound_unknown=False, now=scene.now)
    assert scene.held_for(low(4))


def test_a_hold_on_a_node_known_by_number_gives_way_to_a_pod_of_higher_priority():
    facts = NodeFacts("a", resource=GPU, allocatable=8)
    scene = Scene(facts)
    for name in ("a1", "a2"):
        scene.plan.cluster.observe_pod(bound(name, "a", 4, None), 0.0)
    scene.preempts(low(8))
    scene.preempts(high(4))
    assert not scene.held_for(low(8))
    scene.ends("a1", "a2")
    assert scene.asks(high(4)) == ["a"]
    assert scene.asks(pod("small", 4)) == ["a"]


def test_the_pod_that_is_waited_for_is_told_alike_in_every_attempt():
    scene = Scene(node("a"))
    scene.runs("a1", "a", (0, 1, 2, 3), 0)
    scene.runs("a2", "a", (4, 5, 6, 7), 0)
    scene.preempts(high(8))
    reasons = set()
    for ended in ("", "a1"):
        scene.ends(ended)
        scene.number += 1
        reasons.add(scene.plan.filter(attempt(scene.number), high(8), ALL, scene.now).verdict.reason)
        scene.plan.preempt(attempt(scene.number), high(8), ALL.nodes, frozenset(), scene.now)
        scene.now += 10
    assert reasons == {"waits for 8 GPUs on a that pods of lower priority give up"}


def test_a_failed_binding_leaves_the_hold_as_old_as_it_is():
    scene = Scene(node("a"))
    scene.runs("a1", "a", ALL_EIGHT)
    scene.preempts(low(8))
    scene.ends("a1")
    scene.now += NOMINATION_S - 1
    assert scene.reserves(low(8), 0) is Code.OK
    scene.now += 2
    scene.fails_to_bind(low(8))
    held = scene.plan.cluster.ledger.get(PodUid("low"))
    assert held
    assert held.state is HoldingState.NOMINATED
    assert scene.asks(pod("small", 8)) == ["a"]

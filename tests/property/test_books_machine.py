"""Nothing lost, nothing doubled, whatever happens in which order: the planner and its books in a world of dictionaries.

`tests/oracle/books` has the world: the API server with its logs, hosts with kubelets and agents, the scheduler's plugin and
its protocol, and the model of the books that everything is compared with after each step. The events are one list
(`events.EVENTS`), used by Hypothesis (which finds plain traces) and by dice (which take a million steps in a minute).
What fails by the dice is cut down and told as a story.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from pyscheduler.core.holdings import Holding
from pyscheduler.core.model import Code, PodFacts, PodUid
from pyscheduler.core.planner import Planner
from pyscheduler.core.replies import HeldByShim
from tests.builders import ALL, attempt, bound, node, planner, pod, uuids
from tests.oracle.books.ending import end_all
from tests.oracle.books.event import Event
from tests.oracle.books.events import EVENTS
from tests.oracle.books.memory import most_remembered
from tests.oracle.books.runs import run
from tests.oracle.books.world import World

# What has to happen in a run for it to show anything.
NEEDED = (
    "bound",
    "bound by a superseded scheduler",
    "Preempt handled",
    "Reserve handled",
    "Reserve handled late",
    "Resync handled late",
    "Unreserve handled late",
    "nodes compared with a rebuild",
)


class Drawn:
    """Choices that Hypothesis makes."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def below(self, count: int) -> int:
        return self._data.draw(st.integers(0, count - 1))


class Machine(RuleBasedStateMachine):
    """One rule for each event; they are added below."""

    world: World | None = None

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.world, self.sound = World(Drawn(data), told=True), True

    def happen(self, event: Event, data: st.DataObject) -> None:
        assert self.world is not None
        self.sound = False
        self.world.say(event.words)
        event.run(self.world, Drawn(data))
        self.sound = True

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            if self.sound:
                self.world.say("the end")
                end_all(self.world)
        finally:
            for line in self.world.story or ():
                note(line)


def _rule_of(event: Event) -> Any:
    def step(self: Machine, data: st.DataObject) -> None:
        self.happen(event, data)

    step.__name__ = event.name
    return rule(data=st.data())(precondition(lambda self: event.ready(self.world))(step))


for each in EVENTS:
    setattr(Machine, each.name, _rule_of(each))

TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=120,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def _check_lively(counts: Counter[str], steps: int) -> None:
    """A run in which nothing happens would show nothing."""
    print(f"{steps:,} steps: " + ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())))
    assert all(counts[what] > steps / 20_000 for what in NEEDED), counts
    assert counts["nodes compared with a rebuild"] > counts["nodes not compared"], counts


def test_eighty_thousand_steps():
    _check_lively(*run(range(80), 1_000))


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_three_million_steps():
    _check_lively(*run(range(1_000, 4_000), 1_000))


# -- each was a fault of the books, in the fewest steps -------------------------------------------------------------------

FOUR = "a100-pcie-bridged"
GPUS = uuids(FOUR, "n1", 0, 1, 2, 3)


def said(name: str, number: int, *gpus: str, doubtful: bool = False, nominated: bool = False) -> HeldByShim:
    """Return what the shim says in a Resync of a pod that it holds."""
    return HeldByShim(pod(name, len(gpus)), number, "n1", gpus, doubtful, nominated)


def reserve(plan: Planner, name: str, gpus: int, number: int, *, session: int = 1, on: int = 0) -> Code:
    return plan.reserve(attempt(number, session), pod(name, gpus), on, 0.0).verdict.code


def holder(plan: Planner, name: str) -> Holding | None:
    return plan.cluster.ledger.get(PodUid(name))


def settle(plan: Planner, orphans: tuple[Holding, ...], **read: PodFacts | None) -> None:
    """Settle what a Resync found, by what live reads show: None where the pod is gone; unbound where it is not named."""
    for orphan in orphans:
        facts = read.get(orphan.uid, orphan)
        if facts is None:
            plan.cluster.forget_pod(orphan.uid, 0.0)
        elif isinstance(facts, PodFacts):
            plan.cluster.settle_pod(facts, 0.0)
        else:
            plan.settle_orphan(orphan)


def test_what_the_shim_holds_is_not_given_out_before_it_could_say_so():
    plan = planner(node("n1", FOUR))  # started anew, while the Binding of p is under way
    reserve(plan, "q", 4, 3, session=2)
    assert plan.resync(attempt(2, 2), [said("p", 2, GPUS[0])], 0.0).conflicts == ()


@pytest.mark.parametrize("how", ["seen bound", "said in a Resync"])
def test_reservation_outlives_a_bound_pod_that_names_its_gpus(how: str):
    plan = planner(node("n1", FOUR))
    forged = bound("x", "n1", 1, GPUS[:1])
    if how == "seen bound":
        reserve(plan, "p", 1, 2)
        plan.cluster.observe_pod(forged, 0.0)
    else:
        plan.cluster.observe_pod(forged, 0.0)
        plan.resync(attempt(2), [said("p", 2, GPUS[0])], 0.0)
    plan.cluster.forget_pod(PodUid("x"), 0.0)
    # The Binding of p may land at any moment.
    assert reserve(plan, "q", 4, 3) is Code.UNSCHEDULABLE


def test_reservation_is_taken_up_when_its_node_becomes_known():
    plan = planner(node("n2", FOUR))
    plan.resync(attempt(2), [said("p", 2, GPUS[0])], 0.0)
    plan.cluster.observe_node(node("n1", FOUR), 0.0)
    assert reserve(plan, "q", 4, 3, on=1) is Code.UNSCHEDULABLE


def test_finished_pod_stays_finished_when_the_watch_is_late():
    plan = planner(node("n1", FOUR))
    reserve(plan, "p", 1, 2)
    plan.cluster.settle_pod(bound("p", "n1", 1, GPUS[:1], finished=True), 0.0)
    reserve(plan, "q", 4, 3)
    plan.cluster.observe_pod(bound("p", "n1", 1, GPUS[:1]), 0.0)
    assert (holder(plan, "p"), holder(plan, "q") is None) == (None, False)


def test_pod_that_the_watch_never_showed_is_not_held_for_ever():
    plan = planner(node("n1", FOUR))
    reserve(plan, "p", 1, 2)
    settle(plan, plan.resync(attempt(2), [], 0.0).orphans, p=bound("p", "n1", 1, GPUS[:1]))
    plan.cluster.forget_other_pods(set(), 1.0)  # the list after a gap, in which p was deleted
    settle(plan, plan.resync(attempt(2), [], 30.0).orphans, p=None)
    assert holder(plan, "p") is None


def test_refusal_of_a_pod_that_is_heard_of_no_more_is_forgotten():
    plan = planner(node("n1", FOUR))
    plan.filter(attempt(2), pod("p", 5), ALL, 0.0)
    plan.wake(3600.0)  # the scheduler tries every pod again within six minutes
    assert len(plan.cluster.refusals) == 0


def test_late_reserve_of_an_older_attempt_changes_nothing():
    plan = planner(node("n1", FOUR))
    reserve(plan, "p", 1, 3)
    before = holder(plan, "p")
    assert (reserve(plan, "p", 1, 2), holder(plan, "p")) == (Code.RETRY, before)


def test_what_an_older_session_reserved_is_held_until_it_is_settled():
    plan = planner(node("n1", FOUR), node("n2", FOUR))
    reserve(plan, "p", 1, 2)  # bound by now, and no watch has shown it yet
    plan.resync(attempt(1, 2), [], 0.0)
    reserve(plan, "p", 1, 2, session=2, on=1)
    assert reserve(plan, "q", 4, 3, session=2) is Code.UNSCHEDULABLE


def test_repeated_reserve_does_not_end_what_the_pod_is_bound_with():
    plan = planner(node("n1", FOUR), node("n2", FOUR))
    reserve(plan, "p", 1, 2)
    plan.cluster.observe_pod(bound("p", "n2", 1, uuids(FOUR, "n2", 0)), 0.0)  # by a Binding of an older session
    reserve(plan, "p", 1, 2)
    assert reserve(plan, "q", 4, 3, on=1) is Code.UNSCHEDULABLE


def test_late_resync_does_not_take_up_what_was_given_back():
    plan = planner(node("n1", FOUR))
    plan.unreserve(attempt(2), PodUid("p"), bound_unknown=False, now=0.0)
    plan.resync(attempt(2), [said("p", 2, GPUS[0])], 0.0)
    assert holder(plan, "p") is None


def test_reservation_in_doubt_is_taken_up_though_its_attempt_has_ended():
    plan = planner(node("n1", FOUR))  # started anew: the doubt is told before the Resync
    plan.unreserve(attempt(2), PodUid("p"), bound_unknown=True, now=0.0)
    plan.resync(attempt(2), [said("p", 2, GPUS[0], doubtful=True)], 0.0)
    assert reserve(plan, "q", 4, 3) is Code.UNSCHEDULABLE


def test_newest_session_says_what_is_held():
    plan = planner(node("n1", FOUR))
    plan.resync(attempt(2, 1), [said("p", 2, GPUS[0])], 0.0)  # by a scheduler that does not know that it was deposed
    plan.resync(attempt(2, 2), [said("p", 2, GPUS[1])], 0.0)
    held = holder(plan, "p")
    assert held is not None
    assert held.gpus == GPUS[1:2]


def test_reservation_that_the_shim_does_not_know_is_settled_though_the_pod_is_nominated():
    plan = planner(node("n1", FOUR))
    reserve(plan, "p", 1, 2)
    orphans = plan.resync(attempt(2), [said("p", 1, GPUS[1], nominated=True)], 0.0).orphans
    assert [orphan.uid for orphan in orphans] == ["p"]


def test_filter_and_reserve_agree_on_what_the_agent_reports_of_a_nominated_pod():
    plan = planner(node("n1", FOUR, in_use={PodUid("p"): GPUS[:1]}))  # bound by others; the watch of pods is late
    plan.cluster.observe_pod(bound("v", "n1", 3, GPUS[1:], priority=-1), 0.0)
    assert plan.preempt(attempt(2), pod("p", 2), 1, (), 0.0).verdict.code is Code.OK
    plan.cluster.forget_pod(PodUid("v"), 0.0)
    plan.wake(10.0)
    wants = pod("q", 4, priority=10)
    verdicts = [plan.filter(attempt(3), wants, ALL, 10.0).verdict.code, plan.reserve(attempt(3), wants, 0, 10.0).verdict.code]
    assert verdicts == [Code.UNSCHEDULABLE] * 2


def test_preempt_does_not_count_on_what_the_agent_reports_of_a_nominated_pod():
    plan = planner(node("n1", FOUR, in_use={PodUid("p"): GPUS[:1]}))  # bound by others; the watch of pods is late
    plan.cluster.observe_pod(bound("v", "n1", 3, GPUS[1:], priority=-1), 0.0)
    assert plan.preempt(attempt(2), pod("p", 2), 1, (), 0.0).verdict.code is Code.OK
    assert plan.preempt(attempt(3), pod("q", 4, priority=10), 1, (), 0.0).verdict.code is Code.UNSCHEDULABLE


def test_pod_that_is_bound_to_a_node_not_known_keeps_no_reservation_elsewhere():
    plan = planner(node("n1", FOUR))
    reserve(plan, "p", 1, 2)
    plan.cluster.observe_pod(bound("p", "n2", 1), 0.0)
    assert plan.cluster.state(0).free == 4


def test_two_pods_on_one_gpu_count_as_two():
    plan = planner(node("n1", FOUR))
    reserve(plan, "p", 2, 2)
    taken = {PodUid("x"): GPUS[:2]}  # the kubelet gave them to a pod of another scheduler; p will get others, or none
    plan.cluster.observe_node(node("n1", FOUR, in_use=taken), 0.0)
    assert plan.cluster.state(0).free == 0


# -- what the books do not keep yet ---------------------------------------------------------------------------------------


def test_end_of_an_attempt_is_forgotten_when_its_pod_is_heard_of_no_more():
    plan = planner(node("n1", FOUR))  # started anew, or the watch had a gap, when the pod was gone already
    plan.unreserve(attempt(2), PodUid("p"), bound_unknown=False, now=0.0)
    plan.wake(3600.0)  # no call is under way for so long
    count, where = most_remembered(plan, {"p"})
    assert count == 0, where

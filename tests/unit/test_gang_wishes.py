"""Groups whose objects say how large they are and where they are to be; and what is told of what cannot be used."""

from __future__ import annotations

import pytest

from pyscheduler.core.gangs.membership import GangKey, GroupSpec, ObjectRef, Size
from pyscheduler.core.model import Code, PodRequest
from tests.builders import member, shown
from tests.unit.test_gangs import SPINES, Shim, members, shim, show

OBJECT = ObjectRef("scheduling.volcano.sh/v1beta1", "PodGroup", "default", "job")
GANG = GangKey("default", "job", "test")


def waiting(count: int, *, least: int | None = None, **said: object) -> tuple[Shim, list[PodRequest]]:
    """Return a shim of 12 nodes in leaves of two, and pods of a group that has an object."""
    made = shim(*SPINES, path=SPINES)
    pods = members(count, least=least, spec_from=OBJECT, **said)  # type: ignore[arg-type]
    show(made, pods)
    return made, pods


def say(made: Shim, spec: GroupSpec | None) -> None:
    made.planner.gangs.specs.note(GANG, spec, made.now)


def reason(made: Shim, pod: PodRequest) -> str:
    return made.plan(pod).verdict.reason


def test_size_is_that_of_the_object_once_it_was_read():
    made, pods = waiting(2)
    assert "is read from PodGroup default/job, which has not said so yet" in reason(made, pods[0])
    assert made.planner.gangs.specs.unread() == {GANG: OBJECT}
    say(made, GroupSpec(Size(2)))
    assert (made.planner.gangs.specs.unread(), made.due()) == ({}, ["job-0"])
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_group_that_says_its_size_is_not_placed_before_its_object_was_read():
    made, pods = waiting(3, least=3)
    assert reason(made, pods[0]) == "PodGroup default/job of its group default/job is being read"
    assert made.planner.gangs.specs.unread() == {GANG: OBJECT}
    assert made.due() == []
    say(made, GroupSpec(required_level="tier-0"))
    assert made.due() == ["job-0"]
    assert "2 of 3 fit in tier-0 leaf-1" in reason(made, pods[0])


def test_members_are_waited_for_while_the_object_is_read():
    made, pods = waiting(2, least=3)
    assert "2 of 3 members are there" in reason(made, pods[0])
    assert made.planner.gangs.specs.unread() == {GANG: OBJECT}


@pytest.mark.parametrize("spec", [None, GroupSpec()])
def test_object_that_is_not_there_or_cannot_be_read_says_nothing(spec: GroupSpec | None):
    made, pods = waiting(3, least=3)
    made.plan(pods[0])
    say(made, spec)
    assert made.due() == ["job-0"]
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_object_that_cannot_be_read_any_more_goes_on_to_count():
    made, pods = waiting(3)
    made.plan(pods[0])
    say(made, GroupSpec(Size(3), required_level="tier-0"))
    say(made, None)
    assert "2 of 3 fit in tier-0 leaf-1" in reason(made, pods[0])


def test_level_of_a_pod_wins_over_that_of_its_object():
    made, pods = waiting(3, least=3, required_level="tier-1")
    made.plan(pods[0])
    say(made, GroupSpec(required_level="tier-0"))
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_preferred_level_of_the_object_is_taken_beside_the_required_one_of_the_pods():
    made, pods = waiting(3, least=3, required_level="tier-1", wait_s=60.0)
    made.plan(pods[0])
    say(made, GroupSpec(preferred_level="tier-0"))
    assert "within one tier-0" in reason(made, pods[0])
    made.now = 61.0
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_group_that_waits_for_room_is_placed_when_its_object_asks_for_less():
    made, pods = waiting(3)
    made.plan(pods[0])
    say(made, GroupSpec(Size(3), required_level="tier-0"))
    made.plan(pods[0])
    made.now = 31.0
    assert made.due() == []
    # While it waits, the object is read again from time to time.
    assert made.planner.gangs.specs.unread() == {GANG: OBJECT}
    say(made, GroupSpec(Size(3), required_level="tier-1"))
    assert made.due() == ["job-0"]
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_hard_wish_of_the_object_that_cannot_be_read_keeps_the_group_waiting_until_it_is_mended():
    made, pods = waiting(2)
    made.plan(pods[0])
    say(made, GroupSpec(Size(2), refusal="PodGroup default/job: its tier is odd"))
    assert reason(made, pods[0]) == "PodGroup default/job: its tier is odd"
    assert made.due() == []
    say(made, GroupSpec(Size(2)))
    assert made.due() == ["job-0"]
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_object_that_says_no_size_yet_is_read_sooner_than_one_that_does():
    made, pods = waiting(2)
    for spec, known_s, after_s in ((GroupSpec(), 1.0, 3.0), (GroupSpec(Size(3)), 29.0, 31.0)):
        made.plan(pods[0])
        say(made, spec)
        started = made.now
        made.now = started + known_s
        made.plan(pods[0])
        assert made.planner.gangs.specs.unread() == {}
        made.now = started + after_s
        made.plan(pods[0])
        assert made.planner.gangs.specs.unread() == {GANG: OBJECT}


def test_group_that_is_gone_is_forgotten():
    made, pods = waiting(2, least=2, problems=("it is odd",))
    made.plan(pods[0])
    say(made, GroupSpec(required_level="tier-0"))
    for pod in pods:
        made.planner.cluster.forget_pod(pod.uid, made.now)
    made.planner.expire(made.now)
    say(made, GroupSpec(required_level="node"))
    made.plan(member("of-the-next", least=1, spec_from=OBJECT, problems=("it is odd",)))
    assert made.planner.gangs.specs.unread() == {GANG: OBJECT}
    assert len(made.planner.gangs.problems.take()) == 2


def test_problems_are_told_once_for_all_members_and_with_the_pod_that_came_first():
    made, pods = waiting(3, least=3, problems=("it is odd",))
    say(made, None)
    made.plan(pods[1])
    say(made, GroupSpec(problems=("its object is odd",)))
    for pod in pods:
        made.plan(pod)
    told = made.planner.gangs.problems.take()
    assert [(each.gang, each.pod.name, each.text) for each in told] == [
        (GANG, "job-1", "it is odd"),
        (GANG, "job-0", "its object is odd"),
    ]
    assert made.planner.gangs.problems.take() == []


def test_problems_of_a_pod_that_is_refused_are_told_too():
    made = shim("a")
    made.plan(member("p", refusal="it cannot be", problems=("it is odd",)))
    assert [each.text for each in made.planner.gangs.problems.take()] == ["it is odd"]


def test_of_problems_that_differ_by_pod_some_are_told():
    made = shim("a")
    pods = [member(f"p{i}", least=100, problems=(f"index {i} is odd",)) for i in range(20)]
    for pod in pods:
        made.planner.cluster.observe_pod(shown(pod), 0.0)
        made.plan(pod)
    assert [each.text for each in made.planner.gangs.problems.take()] == [f"index {i} is odd" for i in range(8)]


def test_all_members_are_told_anew_when_the_object_was_read():
    made, pods = waiting(3)
    for pod in pods:
        assert "has not said so yet" in reason(made, pod)
    say(made, GroupSpec(Size(3), required_level="tier-0"))
    assert made.due() == ["job-0"]
    assert "2 of 3 fit in tier-0 leaf-1" in reason(made, pods[0])
    assert {*made.due()} == {"job-1", "job-2"}


def test_group_without_gpus_starts_when_its_object_was_read():
    made = shim("a")
    pods = [member(f"job-{i}", 0, index=i, least=None, spec_from=OBJECT) for i in range(2)]
    show(made, pods)
    assert "has not said so yet" in reason(made, pods[0])
    say(made, GroupSpec(Size(2)))
    assert made.due() == ["job-0"]
    assert made.plan(pods[0]).verdict.code is Code.OK

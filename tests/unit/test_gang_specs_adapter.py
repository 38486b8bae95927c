"""Objects of groups are read beside what goes on, whatever the API server answers; what is wrong is told as an Event."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.events import EventWriter, Subject
from pyscheduler.adapters.gang_events import GangEvents
from pyscheduler.adapters.gang_specs import GangSpecs
from pyscheduler.core.gangs.membership import GangKey, GroupSpec, ObjectRef, Size
from pyscheduler.core.gangs.problems import Problem
from pyscheduler.errors import KubernetesError
from tests.builders import attempt, member, node, only, planner

WAIT_S = 20.0
POD_GROUP = ObjectRef("scheduling.volcano.sh/v1beta1", "PodGroup", "default", "job")
PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


class Lists:
    """Answers each list with `answer`, or fails with it."""

    def __init__(self) -> None:
        self.answer: object = {"items": []}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.was_asked = threading.Event()

    def get(self, path: str, query: dict[str, str]) -> Any:
        self.asked.append((path, query))
        self.was_asked.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Reading:
    """The adapter, with a planner that was asked about a pod of each of some groups."""

    def __init__(self, *groups: str) -> None:
        self.planner = planner(node("a", "hgx-h100"))
        self.api = Lists()
        self.told: list[Problem] = []
        self.now = 0.0
        self.specs = GangSpecs(
            cast("ApiServer", self.api),
            self.planner.gangs,
            threading.Lock(),
            lambda: self.now,
            self.told.append,
            structlog.get_logger(),
        )
        self.pods = [
            member(f"{group}-0", group=group, least=None, spec_from=POD_GROUP, problems=(f"{group} is odd",)) for group in groups
        ]
        self.plan()

    def plan(self) -> list[str]:
        """Ask about each pod; return what is said."""
        asked = [self.planner.plan(attempt(2), pod, only(0, known=1), b"", frozenset(), self.now) for pod in self.pods]
        return [answer.verdict.reason for answer in asked]

    def known(self, group: str = "job") -> GroupSpec | None:
        """Return what is known of a group's object."""
        membership = member("any", group=group, least=None, spec_from=POD_GROUP).membership
        assert membership is not None
        return self.planner.gangs.specs.of(membership, self.now)


def pod_group(spec: Any) -> dict[str, Any]:
    return {"items": [{"metadata": {"name": "job"}, "spec": spec}]}


def test_object_is_listed_by_its_name_and_read_once():
    made = Reading("job")
    made.api.answer = pod_group({"minMember": 3, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}})
    made.specs.look()
    made.specs.look()
    assert made.api.asked == [(PATH, {"fieldSelector": "metadata.name=job"})]
    assert made.known() == GroupSpec(Size(3), required_level="#1")
    assert made.plan() == ["waits for its group default/job: 1 of 3 members is there"]


@pytest.mark.parametrize(
    "answer", [{"items": []}, {"items": None}, {}, {"items": {"a": 1}}, {"items": "x"}, {"items": [None]}, pod_group([1])]
)
def test_answer_without_such_an_object_says_nothing(answer: dict[str, Any]):
    made = Reading("job")
    made.api.answer = answer
    with capture_logs() as logs:
        made.specs.look()
    assert made.known() == GroupSpec()
    assert logs == []


def test_kind_that_cannot_be_read_says_nothing_and_is_told_once_in_the_log():
    made = Reading("job", "other")
    made.api.answer = KubernetesError("podgroups is forbidden: grant the rights of deploy/rbac")
    with capture_logs() as logs:
        made.specs.look()
    assert [(line["event"], line["group"], line["error"]) for line in logs] == [
        ("object of a group not read", "default/job", "podgroups is forbidden: grant the rights of deploy/rbac")
    ]
    assert made.known("job") == made.known("other") == GroupSpec()


def test_kind_that_fails_anew_is_told_anew():
    made = Reading("job")
    answers: tuple[object, ...] = (KubernetesError("away"), {"items": []}, KubernetesError("away again"))
    with capture_logs() as logs:
        for answer in answers:
            made.api.answer = answer
            made.specs.look()
            made.now += 3.0
            made.plan()
    assert [line["error"] for line in logs] == ["away", "away again"]


def test_bug_in_one_object_keeps_no_group_waiting():
    made = Reading("job", "other")
    made.api.answer = ZeroDivisionError("a bug")
    with capture_logs() as logs:
        made.specs.look()
    assert [line["log_level"] for line in logs] == ["error", "error"]
    assert made.known("job") == made.known("other") == GroupSpec()


def test_thread_reads_as_soon_as_it_is_asked():
    made = Reading("job")
    made.specs.start()
    made.specs.ask()
    assert made.api.was_asked.wait(WAIT_S)
    made.specs.stop()


def test_problems_are_handed_on_once():
    made = Reading("job", "other")
    made.specs.look()
    made.plan()
    made.specs.look()
    assert [problem.text for problem in made.told] == ["job is odd", "other is odd"]


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Subject, str, str]] = []

    def tell(self, subject: Subject, reason: str, message: str) -> None:
        self.events.append((subject, reason, message))


def test_problem_is_an_event_on_the_pod_and_a_line_in_the_log():
    writer = Told()
    with capture_logs() as logs:
        problem = Problem(GangKey("default", "job", "test"), member("job-0"), "a/wait is 'soon': write 10m")
        GangEvents(cast("EventWriter", writer), structlog.get_logger()).tell(problem)
    message = "its group default/job: a/wait is 'soon': write 10m"
    assert writer.events == [(Subject("Pod", "job-0", "job-0", "default"), "GPUGroupProblem", message)]
    assert [(line["event"], line["pod"], line["message"]) for line in logs] == [("group problem", "default/job-0", message)]

"""The recorder of the chaos run, told events by hand: it sees every kind of violation, and none where there is none."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from deploy.local.chaos_recorder import Recorder
from deploy.local.chaos_violations import Kind, Violation

SCHEDULER = "gpu-topology"
NODE = "n1"


class Story:
    """Tells a recorder what happens: revisions grow by one, time passes as told."""

    def __init__(self) -> None:
        self.recorder = Recorder(SCHEDULER)
        self.now_s = 0.0
        self.revisions = count(1)
        self.last = 0
        self.pods: dict[str, dict[str, Any]] = {}

    def next(self) -> str:
        self.last = next(self.revisions)
        return str(self.last)

    # nodes

    def node_item(
        self, gpus: int = 8, in_use: dict[str, list[str]] | None = None, *, name: str = NODE, ready: bool = True, **spec: Any
    ) -> dict[str, Any]:
        pods = {uid: {"main": handles} for uid, handles in (in_use or {}).items()}
        return {
            "metadata": {
                "name": name,
                "resourceVersion": self.next(),
                "annotations": {
                    "pyscheduler.io/topology": json.dumps({"gpus": [{"uuid": f"{name}/{number}"} for number in range(gpus)]}),
                    "pyscheduler.io/in-use": json.dumps({"pods": pods}),
                },
            },
            "spec": spec,
            "status": {
                "allocatable": {"nvidia.com/gpu": str(gpus)},
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        }

    def node(self, gpus: int = 8, in_use: dict[str, list[str]] | None = None, **what: Any) -> None:
        self.recorder.see_node("MODIFIED", self.node_item(gpus, in_use, **what), self.now_s)

    def node_gone(self, name: str = NODE) -> None:
        item = {"metadata": {"name": name, "resourceVersion": self.next()}, "status": {}}
        self.recorder.see_node("DELETED", item, self.now_s)

    # pods

    def pod(self, name: str, gpus: int = 2, *, scheduler: str = SCHEDULER, **spec: Any) -> None:
        container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        self.pods[name] = {
            "metadata": {"uid": f"uid-{name}", "namespace": "ns", "name": name, "resourceVersion": self.next()},
            "spec": {"schedulerName": scheduler, "containers": [container], **spec},
            "status": {"phase": "Pending"},
        }
        self.tell(name)

    def bind(self, name: str, *gpus: int, node: str = NODE, tell: bool = True) -> None:
        self.annotate(name, {"main": [f"{node}/{number}" for number in gpus]}, tell=False)
        self.pods[name]["spec"] = {**self.pods[name]["spec"], "nodeName": node}
        self.change(name, tell=tell)

    def annotate(self, name: str, named: Any, *, tell: bool = True) -> None:
        text = named if isinstance(named, str) else json.dumps(named)
        self.pods[name]["metadata"] = {**self.pods[name]["metadata"], "annotations": {"pyscheduler.io/gpus": text}}
        if tell:
            self.change(name)

    def phase(self, name: str, phase: str, *, tell: bool = True, **status: str) -> None:
        self.pods[name]["status"] = {"phase": phase, **status}
        self.change(name, tell=tell)

    def delete(self, name: str, *, tell: bool = True) -> None:
        self.change(name, tell=False)
        item = self.pods.pop(name)
        if tell:
            self.recorder.see_pod("DELETED", item, self.now_s)

    def change(self, name: str, *, tell: bool = True) -> None:
        self.pods[name]["metadata"] = {**self.pods[name]["metadata"], "resourceVersion": self.next()}
        if tell:
            self.tell(name)

    def tell(self, name: str) -> None:
        self.recorder.see_pod("MODIFIED", dict(self.pods[name]), self.now_s)

    def relist(self) -> None:
        self.recorder.see_pods([dict(item) for item in self.pods.values()], self.now_s)

    # judgements

    def end(self, created: tuple[str, ...] = (), deleted: tuple[str, ...] = ()) -> list[Violation]:
        self.recorder.judge_end(self.now_s, {f"ns/{name}" for name in created}, {f"ns/{name}" for name in deleted})
        return self.recorder.violations

    def kinds(self, **names: tuple[str, ...]) -> list[Kind]:
        return [violation.kind for violation in self.end(**names)]


@pytest.fixture
def story() -> Story:
    told = Story()
    told.node()
    return told


def run(story: Story, name: str, *gpus: int) -> None:
    story.pod(name, len(gpus))
    story.bind(name, *gpus)
    story.phase(name, "Running")


def test_pods_on_other_gpus_violate_nothing(story: Story) -> None:
    run(story, "a", 0, 1)
    run(story, "b", 2, 3)
    story.phase("a", "Succeeded")
    story.phase("b", "Succeeded")
    assert story.end(created=("a", "b")) == []


# One GPU in two live pods


def test_gpu_of_two_live_pods_is_told_with_both_pods_node_gpu_and_time(story: Story) -> None:
    story.now_s = 3.0
    run(story, "a", 0, 1)
    story.now_s = 5.0
    run(story, "b", 1, 2)
    (violation,) = story.recorder.violations
    assert violation.kind is Kind.GPU_TWICE
    assert violation.pods == ("ns/a", "ns/b")
    assert (violation.node, violation.gpus, violation.at_s) == (NODE, ("n1/1",), 5.0)
    assert "since 3.0 s" in violation.detail
    assert all(part in str(violation) for part in ("ns/a", "ns/b", "n1/1", "5.0 s"))


def test_gpu_is_told_once_however_long_two_pods_hold_it(story: Story) -> None:
    run(story, "a", 0)
    run(story, "b", 0)
    story.change("a")
    story.change("b")
    assert [each.kind for each in story.recorder.violations] == [Kind.GPU_TWICE]


def test_gpu_held_twice_only_for_a_moment_is_told(story: Story) -> None:
    run(story, "a", 0)
    run(story, "b", 0)
    story.phase("a", "Succeeded")
    story.phase("b", "Succeeded")
    assert story.kinds() == [Kind.GPU_TWICE]


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "deleted"])
def test_gpu_of_a_pod_that_has_ended_is_free(story: Story, end: str) -> None:
    run(story, "a", 0)
    story.delete("a") if end == "deleted" else story.phase("a", end)
    run(story, "b", 0)
    assert story.recorder.violations == []


def test_pod_that_is_being_deleted_holds_its_gpus_still(story: Story) -> None:
    run(story, "a", 0)
    story.pods["a"]["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    story.change("a")
    run(story, "b", 0)
    assert [each.kind for each in story.recorder.violations] == [Kind.GPU_TWICE]


def test_same_number_on_two_nodes_is_two_gpus(story: Story) -> None:
    story.node(name="n2")
    run(story, "a", 0)
    story.pod("b", 1)
    story.bind("b", 0, node="n2")
    assert story.recorder.violations == []


def test_gpu_is_one_whether_named_by_uuid_or_by_index(story: Story) -> None:
    run(story, "a", 3)
    story.pod("b", 1)
    story.annotate("b", {"main": ["index:3"]})
    story.pods["b"]["spec"]["nodeName"] = NODE
    story.change("b")
    assert [each.kind for each in story.recorder.violations] == [Kind.GPU_TWICE]


def test_pods_of_other_schedulers_hold_what_they_name(story: Story) -> None:
    story.pod("a", 1, scheduler="other")
    story.bind("a", 0)
    run(story, "b", 0)
    assert [each.kind for each in story.recorder.violations] == [Kind.GPU_TWICE]


# Lists after a gap


def test_gpu_of_two_pods_in_a_list_after_a_gap_is_told(story: Story) -> None:
    story.pod("a", 1)
    story.pod("b", 1)
    story.bind("a", 0, tell=False)
    story.bind("b", 0, tell=False)
    story.relist()
    assert [each.kind for each in story.recorder.violations] == [Kind.GPU_TWICE]


def test_gpu_that_went_from_one_pod_to_another_in_a_gap_is_no_violation(story: Story) -> None:
    run(story, "a", 0)
    run(story, "b", 1)
    story.pod("c", 1)
    story.pod("d", 1)
    story.delete("a", tell=False)
    story.phase("b", "Succeeded", tell=False)
    # In the list the pod that has ended may stand behind the one that has its GPU.
    story.bind("c", 0, tell=False)
    story.bind("d", 1, tell=False)
    story.pods = dict(reversed(story.pods.items()))
    story.relist()
    assert story.recorder.violations == []
    run(story, "e", 0)
    assert [each.pods for each in story.recorder.violations] == [("ns/c", "ns/e")]


def test_pod_that_moved_in_a_gap_is_told(story: Story) -> None:
    story.node(name="n2")
    run(story, "a", 0)
    story.bind("a", 0, node="n2", tell=False)
    story.relist()
    assert Kind.MOVED in [each.kind for each in story.recorder.violations]


# Bound once


def test_pod_that_moves_to_another_node_is_told(story: Story) -> None:
    story.node(name="n2")
    run(story, "a", 0)
    story.pods["a"]["spec"]["nodeName"] = "n2"
    story.change("a")
    (violation,) = story.recorder.violations
    assert (violation.kind, violation.node) == (Kind.MOVED, "n2")
    assert "bound to n1" in violation.detail


def test_pod_that_loses_its_node_is_told(story: Story) -> None:
    run(story, "a", 0)
    del story.pods["a"]["spec"]["nodeName"]
    story.change("a")
    assert [each.kind for each in story.recorder.violations] == [Kind.UNBOUND]


def test_gpus_that_change_after_the_binding_are_told(story: Story) -> None:
    run(story, "a", 0)
    story.annotate("a", {"main": ["n1/1"]})
    assert [each.kind for each in story.recorder.violations] == [Kind.RENAMED]


# What the annotation says


@pytest.mark.parametrize("named", ["", "{", "[]", '{"main": "n1/0"}'])
def test_binding_that_names_no_gpus_is_told(story: Story, named: str) -> None:
    story.pod("a", 1)
    story.annotate("a", named)
    story.pods["a"]["spec"]["nodeName"] = NODE
    story.change("a")
    assert {each.kind for each in story.recorder.violations} <= {Kind.UNNAMED, Kind.WRONG_COUNT}
    assert story.recorder.violations


def test_binding_without_the_annotation_is_told_only_of_pods_that_ask_for_gpus_of_our_scheduler(story: Story) -> None:
    for name, gpus, scheduler in (("a", 1, SCHEDULER), ("plain", 0, SCHEDULER), ("other", 1, "other")):
        story.pod(name, gpus, scheduler=scheduler)
        story.pods[name]["spec"]["nodeName"] = NODE
        story.change(name)
    assert [(each.kind, each.pods) for each in story.recorder.violations] == [(Kind.UNNAMED, ("ns/a",))]


@pytest.mark.parametrize("gpus", [(0,), (0, 1, 2), (0, 0)])
def test_wrong_number_of_gpus_is_told(story: Story, gpus: tuple[int, ...]) -> None:
    story.pod("a", 2)
    story.bind("a", *gpus)
    assert [each.kind for each in story.recorder.violations] == [Kind.WRONG_COUNT]


def containers(**gpus: int) -> list[dict[str, Any]]:
    return [{"name": name, "resources": {"limits": {"nvidia.com/gpu": str(number)}}} for name, number in gpus.items()]


INITIAL = {"initContainers": containers(first=1), "containers": containers(one=1, two=2)}
SIDECAR = {
    "initContainers": [{**containers(side=1)[0], "restartPolicy": "Always"}, *containers(first=2)],
    "containers": containers(one=1),
}


@pytest.mark.parametrize(
    ("spec", "named", "right"),
    [
        (INITIAL, {"first": [0], "one": [0], "two": [1, 2]}, True),
        (INITIAL, {"first": [3], "one": [0], "two": [1, 2]}, False),  # four GPUs where three are asked for
        (INITIAL, {"first": [0], "one": [0], "two": [0, 2]}, False),  # two containers share one
        (INITIAL, {"one": [0], "two": [1, 2]}, False),
        ({"initContainers": containers(first=2), "containers": containers(one=2)}, {"first": [0, 0], "one": [0, 1]}, False),
        (SIDECAR, {"side": [0], "first": [1, 2], "one": [1]}, True),
        (SIDECAR, {"side": [0], "first": [0, 1], "one": [1]}, False),  # a sidecar runs beside the init containers after it
    ],
)
def test_number_of_gpus_is_the_effective_request(
    story: Story, spec: dict[str, Any], named: dict[str, list[int]], right: bool
) -> None:
    story.pod("a", **spec)
    story.annotate("a", {name: [f"n1/{number}" for number in numbers] for name, numbers in named.items()})
    story.pods["a"]["spec"]["nodeName"] = NODE
    story.change("a")
    assert [each.kind for each in story.recorder.violations] == ([] if right else [Kind.WRONG_COUNT])


# What the node has


def test_gpu_that_the_node_never_had_is_told(story: Story) -> None:
    run(story, "a", 7, 8)
    story.delete("a")
    (violation,) = story.end()
    assert (violation.kind, violation.gpus) == (Kind.NO_SUCH_GPU, ("n1/8",))


def test_gpu_that_the_node_lost_long_before_is_told(story: Story) -> None:
    story.now_s = 10.0
    story.node(gpus=6)
    story.now_s = 30.0
    run(story, "a", 7)
    story.phase("a", "Failed")
    assert story.kinds() == [Kind.NO_SUCH_GPU]


def test_gpu_that_the_node_lost_just_before_is_not_told(story: Story) -> None:
    story.now_s = 10.0
    story.node(gpus=6)
    story.now_s = 11.0
    run(story, "a", 7)
    story.phase("a", "Failed")
    assert story.kinds() == []


def test_gpu_that_the_node_got_only_after_the_binding_is_told(story: Story) -> None:
    story.now_s = 30.0
    story.node(gpus=6)
    story.now_s = 50.0
    run(story, "a", 7)
    story.node(gpus=8)
    story.phase("a", "Failed")
    assert story.kinds() == [Kind.NO_SUCH_GPU]


@pytest.mark.parametrize("seen", [True, False])
def test_node_may_have_had_the_gpu_in_a_gap(story: Story, seen: bool) -> None:
    story.node(gpus=6)
    last = story.last
    story.now_s = 50.0
    run(story, "a", 7)
    # The list says that it has eight; unless changes were missed, it has them only since after the binding.
    node = story.node_item(gpus=8)
    story.recorder.see_nodes([node], story.last - 1 if seen else last, story.last, story.now_s)
    story.phase("a", "Succeeded")
    assert story.kinds() == ([Kind.NO_SUCH_GPU] if seen else [])


def test_node_that_was_gone_before_the_binding_has_no_gpus(story: Story) -> None:
    story.node_gone()
    story.now_s = 60.0
    run(story, "a", 0)
    story.delete("a")
    assert story.kinds() == [Kind.NO_SUCH_GPU]


def test_gpu_that_the_node_still_holds_for_a_pod_that_is_gone_is_told(story: Story) -> None:
    run(story, "a", 0)
    story.node(in_use={"uid-a": ["n1/0"]})
    story.now_s = 10.0
    story.delete("a")
    run(story, "b", 0)
    story.node(in_use={"uid-b": ["n1/0"]})
    story.phase("b", "Succeeded")
    (violation,) = story.end()
    assert (violation.kind, violation.pods, violation.gpus) == (Kind.IN_USE, ("ns/b",), ("n1/0",))
    assert "ns/a" in violation.detail


def test_gpu_that_the_node_has_released_may_be_given_again(story: Story) -> None:
    run(story, "a", 0)
    story.node(in_use={"uid-a": ["n1/0"]})
    story.now_s = 10.0
    story.delete("a")
    story.node()
    run(story, "b", 0)
    story.phase("b", "Succeeded")
    assert story.kinds() == []


# Refusals


def test_refusal_is_explained_by_gpus_that_the_node_lost_meanwhile(story: Story) -> None:
    run(story, "a", 0)
    run(story, "b", 7)
    story.node(gpus=6)
    for name in ("a", "b"):
        story.phase(name, "Failed", reason="UnexpectedAdmissionError", message="Pod was rejected")
    lost = {each.bind.pod.name: each.lost for each in story.recorder.refused()}
    assert lost == {"ns/a": (), "ns/b": ("n1/7",)}


# Waiting


def test_pod_that_waits_with_room_for_too_long_is_parked(story: Story) -> None:
    story.pod("a", 8)
    story.now_s = 30.0
    story.recorder.judge_parked(calm_s=0.0, at_s=30.0, limit_s=30.0)
    assert story.recorder.violations == []
    story.recorder.judge_parked(calm_s=0.0, at_s=31.0, limit_s=30.0)
    (violation,) = story.recorder.violations
    assert (violation.kind, violation.pods) == (Kind.PARKED, ("ns/a",))
    assert "8 GPUs free on n1" in violation.detail
    story.recorder.judge_parked(calm_s=0.0, at_s=32.0, limit_s=30.0)
    assert len(story.recorder.violations) == 1


def test_time_before_the_calm_does_not_count(story: Story) -> None:
    story.pod("a", 8)
    story.recorder.judge_parked(calm_s=20.0, at_s=49.0, limit_s=30.0)
    assert story.recorder.violations == []


@pytest.mark.parametrize("why", ["full", "cordoned", "tainted", "not ready", "too few GPUs", "devices in use", "other nodes"])
def test_pod_without_room_is_not_parked(story: Story, why: str) -> None:
    selector: dict[str, str] = {}
    match why:
        case "full":
            run(story, "holder", 0)
        case "cordoned":
            story.node(unschedulable=True)
        case "tainted":
            story.node(taints=[{"key": "k", "effect": "NoSchedule"}])
        case "not ready":
            story.node(ready=False)
        case "too few GPUs":
            story.node(gpus=6)
        case "devices in use":
            story.node(in_use={"uid-gone": ["n1/0"]})
        case _:
            selector = {"pool": "other"}
    story.pod("a", 8, nodeSelector=selector)
    story.recorder.judge_parked(calm_s=0.0, at_s=100.0, limit_s=30.0)
    assert story.recorder.violations == []


def test_room_counts_from_when_it_is_there(story: Story) -> None:
    run(story, "holder", 0)
    story.pod("a", 8)
    story.now_s = 50.0
    story.phase("holder", "Succeeded")
    story.recorder.judge_parked(calm_s=0.0, at_s=79.0, limit_s=30.0)
    assert story.recorder.violations == []
    story.recorder.judge_parked(calm_s=0.0, at_s=81.0, limit_s=30.0)
    assert [each.pods for each in story.recorder.violations] == [("ns/a",)]


def test_room_counts_anew_after_it_was_gone(story: Story) -> None:
    story.pod("a", 8)
    story.now_s = 20.0
    story.node(gpus=6)
    story.now_s = 40.0
    story.node(gpus=8)
    story.recorder.judge_parked(calm_s=0.0, at_s=69.0, limit_s=30.0)
    assert story.recorder.violations == []


def test_what_happens_to_others_does_not_shorten_a_wait(story: Story) -> None:
    story.node(name="n2")
    story.pod("a", 8)
    story.now_s = 20.0
    run(story, "b", 0)
    story.recorder.judge_parked(calm_s=0.0, at_s=31.0, limit_s=30.0)
    assert [each.pods for each in story.recorder.violations] == [("ns/a",)]


def test_pod_that_waits_at_the_end_is_parked_even_without_room(story: Story) -> None:
    story.pod("a", 64)
    assert story.kinds(created=("a",)) == [Kind.PARKED]


def test_pod_that_is_bound_and_never_runs_is_told(story: Story) -> None:
    story.pod("a", 1)
    story.bind("a", 0)
    assert story.kinds(created=("a",)) == [Kind.NOT_RUN]


def test_pod_that_was_created_and_never_seen_is_lost(story: Story) -> None:
    assert story.kinds(created=("a",)) == [Kind.LOST]


def test_waiting_pod_that_nobody_deleted_is_lost(story: Story) -> None:
    for name in ("a", "b"):
        story.pod(name, 1)
        story.delete(name)
    violations = story.end(created=("a", "b"), deleted=("b",))
    assert [(each.kind, each.pods) for each in violations] == [(Kind.LOST, ("ns/a",))]


# Times


def test_next_binding_counts_from_the_first_pod_that_waits_with_room(story: Story) -> None:
    recorder = story.recorder
    run(story, "holder", *range(8))
    story.now_s = 10.0
    story.pod("a", 4)
    assert recorder.hungry_s(5.0, 11.0) is None
    story.now_s = 12.0
    story.phase("holder", "Succeeded")
    story.now_s = 15.0
    story.bind("a", 0, 1, 2, 3)
    bind = recorder.next_bind(11.0)
    assert bind is not None
    assert (bind.at_s, bind.pod.name) == (15.0, "ns/a")
    assert recorder.hungry_s(11.0, bind.at_s) == 12.0
    assert recorder.hungry_s(13.0, bind.at_s) == 13.0
    assert recorder.longest_wait_s(11.0, 20.0) == 3.0
    assert recorder.longest_wait_s(13.0, 20.0) == 2.0
    assert recorder.next_bind(15.0) is None


def test_pod_that_waits_still_counts_as_the_longest_wait(story: Story) -> None:
    story.now_s = 10.0
    story.pod("a", 4)
    assert story.recorder.longest_wait_s(5.0, 40.0) == 30.0

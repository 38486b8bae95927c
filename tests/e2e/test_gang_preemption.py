"""Preemption by groups and of groups with the real scheduler: a group goes whole or not at all, and only for a higher priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from deploy.local.api import Object
from deploy.local.control_plane import ControlPlane
from deploy.local.workspace import Workspace
from tests.e2e.test_gangs import BOX, bound_of, each_gpu_once, group, known, names, running
from tests.e2e.test_preemption import NAMES, URGENT, classes

__all__ = ["classes"]

BY_GROUP = "preempting {} pods of lower priority for the group of the pod"


def add_group(own: Workspace, name: str, members: int, *, priority: int = 0, count: int = 8) -> list[str]:
    for index in range(members):
        spec = own.pod_spec(count)
        if NAMES[priority]:
            spec["priorityClassName"] = NAMES[priority]
        labels = {"batch.kubernetes.io/job-completion-index": str(index)}
        own.add_pod(f"{name}-{index}", spec, group(name, members, index), labels)
    return names(name, members)


def run_group(own: Workspace, name: str, members: int, *, priority: int = 0) -> dict[str, str]:
    """Run a group, and return the UID of each of its pods. What no node has reported in use would be free only seconds later."""
    pods = running(own, add_group(own, name, members, priority=priority))
    for pod in pods:
        wait_reported(own, pod)
    return uids(pods)


def wait_reported(own: Workspace, pod: Object) -> None:
    own.wait_in_use(pod["spec"]["nodeName"], lambda report: pod["metadata"]["uid"] in report)


def uids(pods: Sequence[Object]) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def staying(own: Workspace) -> dict[str, str]:
    """Return the UIDs of the pods that are there and are not being deleted."""
    pods, _ = own.api.read_all(own.pods)
    return uids([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]])


def wait_refused(own: Workspace, pods: Sequence[str]) -> None:
    """Wait until a scheduling cycle of each has ended, and whom it had evicted would be gone."""
    for pod in pods:
        own.wait_event(pod, "needs 2 pods")
    own.add_pod("probe", own.pod_spec())
    own.wait_phase("probe", "Running")


def test_one_of_two_groups_goes_whole_for_a_group_of_higher_priority(control_plane: ControlPlane, workspace: Workspace) -> None:
    known(control_plane, workspace.add_nodes(BOX, 4))
    low = [run_group(workspace, name, 2) for name in ("x", "y")]
    high = running(workspace, add_group(workspace, "high", 2, priority=URGENT))
    assert each_gpu_once(high)
    left = staying(workspace)
    kept: list[Mapping[str, str]] = [pods for pods in low if pods.items() <= left.items()]
    assert len(kept) == 1
    assert left == {**uids(high), **kept[0]}
    for pod in {name for pods in low for name in pods} - kept[0].keys():
        assert workspace.wait_event(pod, "Preempted by")["reason"] == "Preempted"
    event = workspace.api.wait_for(
        f"/api/v1/namespaces/{workspace.name}/events", lambda event: event.get("message") == BY_GROUP.format(2)
    )
    assert event["involvedObject"]["name"] in uids(high)


def test_whole_group_goes_for_one_pod_that_needs_the_gpus_of_one_member(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    known(control_plane, workspace.add_nodes(BOX, 3))
    low = run_group(workspace, "low", 3)
    workspace.add_pod("urgent", {**workspace.pod_spec(8), "priorityClassName": NAMES[URGENT]})
    workspace.wait_pods_gone(list(low))
    workspace.wait_phase("urgent", "Running")
    workspace.wait_event("urgent", "and 2 pods of the same groups on other nodes for 8 GPUs")


@pytest.mark.parametrize("priority", [0, URGENT])
def test_nobody_goes_for_a_group_of_equal_priority(control_plane: ControlPlane, workspace: Workspace, priority: int) -> None:
    known(control_plane, workspace.add_nodes(BOX, 2))
    first = run_group(workspace, "first", 2, priority=priority)
    second = add_group(workspace, "second", 2, priority=priority)
    wait_refused(workspace, second)
    assert first.items() <= staying(workspace).items()
    assert bound_of(workspace, second) == set()

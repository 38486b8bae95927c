"""The life of a plan on the real control plane: it ends whole, whatever ends it, and the group runs once nothing hinders it.

A member names a claim that is not there: the scheduler refuses it before the plugin is asked, so that the others wait for it
in Permit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import grpc
import pytest
import yaml

from deploy.local import components
from deploy.local.api import Object
from deploy.local.control_plane import ControlPlane
from deploy.local.simulated_nodes import NODES
from deploy.local.workspace import Workspace
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc
from tests.e2e.known_nodes import until
from tests.e2e.test_gangs import BOX, add_member, bound_of, each_gpu_once, group, known, names, running

CLAIM: Final = "data"
# Kubernetes has it from the start, and allows it in every namespace.
URGENT: Final = "system-cluster-critical"
# The longest: nothing is waited for so long.
FOR_EVER: Final = "15m"
SOON_S: Final = 20.0
TOO_LATE: Final = "not all members could be reserved in time"


@contextmanager
def permit_timeout(plane: ControlPlane, patience: str) -> Iterator[None]:
    """Let members wait for each other for so long."""
    config = plane.layout.config / f"{components.SCHEDULER}.yaml"
    before = config.read_text()
    content = yaml.safe_load(before)
    content["profiles"][-1]["pluginConfig"][0]["args"]["permitTimeout"] = patience
    config.write_text(yaml.safe_dump(content))
    plane.restart_component(components.SCHEDULER)
    try:
        yield
    finally:
        config.write_text(before)
        plane.restart_component(components.SCHEDULER)


def add_members_without_claim(own: Workspace, members: int, lacking: int) -> list[str]:
    """Create the members of the group train; one of them names a claim that is not there."""
    spec = {**own.pod_spec(8), "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]}
    labels = {"batch.kubernetes.io/job-completion-index": str(lacking)}
    own.add_pod(f"train-{lacking}", spec, group("train", members, lacking), labels)
    # It counts as a member, and the plugin is not asked about it.
    own.wait_event(f"train-{lacking}", "not found")
    for index in range(members):
        if index != lacking:
            add_member(own, "train", members, index)
    return names("train", members)


@contextmanager
def claimed(own: Workspace) -> Iterator[None]:
    """Create the claim, bound to a volume: the controllers that bind and protect them are not here."""
    volumes, claims = "/api/v1/persistentvolumes", f"/api/v1/namespaces/{own.name}/persistentvolumeclaims"
    amounts: Object = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        **amounts,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/data"},
        "claimRef": {"namespace": own.name, "name": CLAIM},
    }
    claim = {**amounts, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": own.name}
    own.api.create(volumes, {"metadata": {"name": own.name}, "spec": volume})
    bound = {"name": CLAIM, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    own.api.create(claims, {"metadata": bound, "spec": claim})
    try:
        yield
    finally:
        for path in (f"{claims}/{CLAIM}", f"{volumes}/{own.name}"):
            own.api.patch(path, {"metadata": {"finalizers": None}})
            own.api.delete(path)


def places(plane: ControlPlane, own: Workspace) -> dict[str, tuple[str, str]]:
    """Return the state and the node of what the service holds for each pod of a workspace."""
    with grpc.insecure_channel(f"unix:{plane.layout.socket}") as channel:
        answer = inspect_pb2_grpc.InspectStub(channel).ListHoldings(inspect_pb2.ListHoldingsRequest(), timeout=10)
    return {held.name: (held.state, held.node) for held in answer.holdings if held.namespace == own.name}


def wait_for_the_last(plane: ControlPlane, own: Workspace) -> dict[str, str]:
    """Wait until all members but one wait in Permit, and GPUs are held for that one too; return their nodes."""

    def planned() -> dict[str, str]:
        found = {name: place for name, place in places(plane, own).items() if name.startswith("train-")}
        waiting = sorted(state for state, _ in found.values())
        complete = waiting == ["planned", *["reserved"] * (len(found) - 1)]
        return {name: node for name, (_, node) in found.items()} if complete else {}

    nodes: dict[str, str] = until(planned, "all members but one reserved")
    return nodes


def cordon(own: Workspace, nodes: Sequence[str], *, unschedulable: bool = True) -> None:
    for node in nodes:
        own.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": unschedulable}})


def urgent(own: Workspace) -> Object:
    return {**own.pod_spec(8), "priorityClassName": URGENT}


def add_tolerant(own: Workspace, name: str, members: int) -> list[str]:
    """Create a group that goes to cordoned nodes, too."""
    for index in range(members):
        spec = {**own.pod_spec(8), "tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
        own.add_pod(f"{name}-{index}", spec, group(name, members, index))
    return names(name, members)


def test_plan_whose_members_wait_too_long_ends_whole(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    wide, narrow = own.add_nodes(BOX, 4, fabric=("leaf-1", "spine-1")), own.add_nodes(BOX, 2, fabric=("leaf-2", "spine-1"))
    known(control_plane, [*wide, *narrow])
    own.wait_untainted()
    with permit_timeout(control_plane, "5s"):
        pods = add_members_without_claim(own, 4, lacking=2)
        assert set(wait_for_the_last(control_plane, own).values()) == set(wide)
        # These take all nodes: there is room only if all GPUs of the plan are free.
        others = add_tolerant(own, "other", 6)
        own.wait_event(others[-1], "2 of them fit")
        # Or the group would be placed anew at once.
        cordon(own, [*wide, *narrow])
        assert each_gpu_once(running(own, others))
        assert bound_of(own, pods) == set()
        events = f"/api/v1/namespaces/{own.name}/events"
        own.api.wait_for(events, lambda event: event["involvedObject"]["name"] in pods and TOO_LATE in event["message"])
        with claimed(own):
            for pod in others:
                own.delete_pod(pod)
            cordon(own, [*wide, *narrow], unschedulable=False)
            found = running(own, pods)
    assert {pod["spec"]["nodeName"] for pod in found} == set(wide)
    assert each_gpu_once(found)


def test_plan_that_waits_gives_way_whole_to_a_group_of_higher_priority(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    known(control_plane, own.add_nodes(BOX, 4))
    own.wait_untainted()
    with permit_timeout(control_plane, FOR_EVER):
        low = add_members_without_claim(own, 4, lacking=1)
        wait_for_the_last(control_plane, own)
        high = names("urgent", 4)
        for index, name in enumerate(high):
            own.add_pod(name, urgent(own), group("urgent", 4, index))
        assert each_gpu_once(own.wait_phase(name, "Running", SOON_S) for name in high)
        assert bound_of(own, low) == set()
        for name in high:
            own.delete_pod(name)
        # Its plan is made anew, and the member that lacks the claim is replaced by one that needs none.
        wait_for_the_last(control_plane, own)
        own.delete_pod("train-1")
        add_member(own, "train", 4, 1)
        assert each_gpu_once(running(own, low))


def test_plan_that_waits_gives_way_whole_to_a_pod_of_higher_priority(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    known(control_plane, own.add_nodes(BOX, 2))
    own.wait_untainted()
    with permit_timeout(control_plane, FOR_EVER):
        low = add_members_without_claim(own, 2, lacking=1)
        node = wait_for_the_last(control_plane, own)["train-0"]
        spec = urgent(own)
        spec["nodeSelector"]["kubernetes.io/hostname"] = node
        own.add_pod("urgent", spec)
        own.wait_phase("urgent", "Running", SOON_S)
        assert bound_of(own, low) == set()


@pytest.mark.parametrize(
    "lacking",
    [
        pytest.param(0, id="of the member that has not come"),
        pytest.param(1, id="of one that waits in Permit"),
    ],
)
def test_planned_gpus_that_a_pod_of_another_scheduler_takes_are_not_given_twice(
    control_plane: ControlPlane, workspace: Workspace, lacking: int
) -> None:
    own = workspace
    nodes = own.add_nodes(BOX, 3)
    known(control_plane, nodes)
    own.wait_untainted()
    with permit_timeout(control_plane, FOR_EVER):
        pods = add_members_without_claim(own, 2, lacking)
        taken = wait_for_the_last(control_plane, own)["train-0"]
        own.occupy(taken, range(8))
        assert bound_of(own, pods) == set()
        with claimed(own):
            assert {own.wait_bound(pod)["spec"]["nodeName"] for pod in pods} == set(nodes) - {taken}
            assert each_gpu_once(running(own, pods))

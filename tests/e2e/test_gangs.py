"""Groups on the real control plane: whole or not at all, in the nearest domain, right in the end whatever comes between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from deploy.local import components
from deploy.local.api import Object
from deploy.local.control_plane import ControlPlane
from deploy.local.simulated_nodes import NODES
from deploy.local.workspace import Workspace, annotation
from tests.e2e.known_nodes import shown, until, wait_known
from tests.e2e.test_placement import PLACEMENT, gpus

BOX = "hgx-h100"


def group(name: str, members: int, index: int, **wishes: str) -> dict[str, str]:
    """Return the annotations of a member."""
    said = {"group": name, "min-members": str(members), **{key.replace("_", "-"): value for key, value in wishes.items()}}
    return {f"pyscheduler.io/{key}": value for key, value in said.items()}


def names(name: str, members: int) -> list[str]:
    return [f"{name}-{i}" for i in range(members)]


def add_member(own: Workspace, name: str, members: int, index: int, count: int = 8, **wishes: str) -> None:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    own.add_pod(f"{name}-{index}", own.pod_spec(count), group(name, members, index, **wishes), labels)


def add_group(own: Workspace, name: str, members: int, count: int = 8, **wishes: str) -> list[str]:
    for index in range(members):
        add_member(own, name, members, index, count, **wishes)
    return names(name, members)


def bound_of(own: Workspace, pods: Iterable[str]) -> set[str]:
    """Return which of these pods have a node."""
    items, _ = own.api.read_all(own.pods)
    return {item["metadata"]["name"] for item in items if item["spec"].get("nodeName")} & set(pods)


def running(own: Workspace, pods: Sequence[str]) -> list[Object]:
    return [own.wait_phase(pod, "Running") for pod in pods]


def each_gpu_once(pods: Iterable[Object]) -> bool:
    given = Counter((pod["spec"]["nodeName"], gpu) for pod in pods for gpu in gpus(pod))
    return bool(given) and max(given.values()) == 1


def known(plane: ControlPlane, nodes: Iterable[str]) -> None:
    """Wait until the service knows the GPUs of these nodes, and they have lost the taint that each new one has for a moment."""
    for name in nodes:
        wait_known(plane.layout.socket, name, lambda node: len(node.gpus) > 0)
        until(lambda: not plane.api.get(f"{NODES}/{name}")["spec"].get("taints"), f"node {name} has no taint")  # noqa: B023


def level_of(plane: ControlPlane, node: str, domain: str) -> str:
    """Return the level of one of the domains that hold a node."""
    found = shown(plane.layout.socket, node)
    assert found is not None
    return next(level for level, _, name in (each.partition("=") for each in found.path) if name == domain)


def test_two_interleaved_groups_that_do_not_both_fit_run_one_after_the_other(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    interleave(control_plane, workspace, rounds=5)


@pytest.mark.long
def test_two_interleaved_groups_never_wait_for_each_other(control_plane: ControlPlane, workspace: Workspace) -> None:
    interleave(control_plane, workspace, rounds=100)


def interleave(plane: ControlPlane, own: Workspace, rounds: int) -> None:
    known(plane, own.add_nodes(BOX, 6))
    for number in range(rounds):
        pair = [names(f"g{number}{side}", 4) for side in "xy"]
        for index in range(4):
            for side in "xy":
                add_member(own, f"g{number}{side}", 4, index)
        both = {*pair[0], *pair[1]}
        first = own.api.wait_for(own.pods, lambda pod: "nodeName" in pod["spec"] and pod["metadata"]["name"] in both)  # noqa: B023
        winner, loser = sorted(pair, key=lambda pods: first["metadata"]["name"] not in pods)
        assert each_gpu_once(running(own, winner))
        assert bound_of(own, loser) == set()
        for pod in winner:
            own.delete_pod(pod)
        assert each_gpu_once(running(own, loser))
        for pod in loser:
            own.delete_pod(pod)


def test_group_of_three_goes_into_the_only_spine_that_has_three_free_nodes(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    nodes = {
        number: workspace.add_nodes(BOX, fabric=(f"leaf-{(number + 1) // 2}", f"spine-{(number + 3) // 4}"))[0]
        for number in range(1, 13)
    }
    known(control_plane, list(nodes.values()))
    for number in (1, 3, 6, 11, 12):
        workspace.occupy(nodes[number], range(8))
    pods = running(workspace, add_group(workspace, "train", 3))
    assert [pod["spec"]["nodeName"] for pod in pods] == [nodes[5], nodes[7], nodes[8]]
    assert [annotation(pod, "pyscheduler.io/rank") for pod in pods] == ["0", "1", "2"]
    assert {json.loads(annotation(pod, PLACEMENT) or "{}")["group"] for pod in pods} == {f"{workspace.name}/train"}


def test_required_rack_that_is_too_small_says_how_many_fit_where(control_plane: ControlPlane, workspace: Workspace) -> None:
    racks = [("r1", "b1")] * 3 + [("r2", "b1")] * 2
    nodes = [workspace.add_nodes(BOX, fabric=domains)[0] for domains in racks]
    known(control_plane, nodes)
    pods = add_group(workspace, "train", 4, required_level=level_of(control_plane, nodes[0], "r1"))
    # A node that has just come has a taint for a moment: what is said then counts fewer.
    event = workspace.wait_event(pods[0], "; 4 fit in")
    assert "3 of 4 fit in" in event["message"]
    assert "r1" in event["message"]
    assert "b1" in event["message"]
    assert bound_of(workspace, pods) == set()


def test_members_that_come_out_of_order_are_deleted_and_recreated_while_the_service_is_killed(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    known(control_plane, workspace.add_nodes(BOX, 4))
    pods = names("train", 4)
    for index in (3, 1):
        add_member(workspace, "train", 4, index)
    # Whichever of them was asked about first.
    workspace.wait_event("train-3", "of 4 members")
    workspace.delete_pod("train-1")
    control_plane.kill_component(components.SERVICE)
    add_member(workspace, "train", 4, 0)
    control_plane.start_component(components.SERVICE)
    add_member(workspace, "train", 4, 1)
    assert bound_of(workspace, pods) == set()
    add_member(workspace, "train", 4, 2)
    found = running(workspace, pods)
    assert each_gpu_once(found)
    assert [annotation(pod, "pyscheduler.io/rank") for pod in found] == ["0", "1", "2", "3"]


def test_member_that_other_plugins_refuse_everywhere_keeps_the_whole_group_from_starting(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    known(control_plane, workspace.add_nodes(BOX, 3, cpu="16"))
    add_member(workspace, "train", 3, 0)
    add_member(workspace, "train", 3, 1)
    labels = {"batch.kubernetes.io/job-completion-index": "2"}
    workspace.add_pod("train-2", workspace.pod_spec(8, cpu="64"), group("train", 3, 2), labels)
    workspace.api.wait_for(
        f"/api/v1/namespaces/{workspace.name}/events", lambda event: "refused for a member" in event.get("message", "")
    )
    assert bound_of(workspace, names("train", 3)) == set()
    # What it kept from them is free for others.
    assert each_gpu_once(running(workspace, add_group(workspace, "other", 3)))


def test_group_that_waits_for_room_runs_when_there_is_room(control_plane: ControlPlane, workspace: Workspace) -> None:
    known(control_plane, workspace.add_nodes(BOX, 2))
    workspace.add_pod("blocker", workspace.pod_spec(8))
    workspace.wait_phase("blocker", "Running")
    pods = add_group(workspace, "train", 2)
    for pod in pods:
        workspace.wait_event(pod, "needs 2 pods")
    workspace.delete_pod("blocker")
    assert each_gpu_once(running(workspace, pods))


def test_launcher_without_gpus_starts_with_its_workers(control_plane: ControlPlane, workspace: Workspace) -> None:
    known(control_plane, workspace.add_nodes(BOX, 2))
    workspace.add_pod("launcher", workspace.pod_spec(0), group("mpi", 3, 0))
    workspace.wait_event("launcher", "1 of 3 members is there")
    for index in range(2):
        add_member(workspace, "mpi", 3, index)
    running(workspace, ["launcher", *names("mpi", 2)])

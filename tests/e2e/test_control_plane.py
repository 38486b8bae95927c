"""The embedded control plane and its simulated nodes: they behave as a cluster does."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import components, control_plane, machines, simulated_nodes, users
from deploy.local.api import Object
from deploy.local.components import STOP_ORDER, Ports
from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.devices import GPUS
from deploy.local.errors import AlreadyRunningError, ApiError, BinaryMissingError, ComponentFailedError
from deploy.local.layout import BINARIES, Layout
from deploy.local.scheduler_config import DEFAULT_PROFILE, GPU_PROFILE
from deploy.local.simulated_nodes import IN_USE, TOPOLOGY
from deploy.local.users import User
from deploy.local.workspace import Workspace, annotation, has_condition
from tests.e2e.command_line import command

NVIDIA = "nvidia.com/gpu"
ENDS_AFTER_1_S = {"pyscheduler.io/simulate": '{"runSeconds": 1}'}
HOUR_S = 3600


@pytest.fixture
def own_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane that the test may break."""
    with ControlPlane.start(Options(root=tmp_path / "own", mode=Mode.DEFAULT_ONLY)) as plane:
        yield plane


def uuids(node: str, *indexes: int, machine: str = "dgx-1v") -> list[str]:
    gpus = machines.document(machine, node)["gpus"]
    return [gpus[index]["uuid"] for index in indexes]


def taints(node: Object) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints", [])}


# Start and stop


def test_serves_the_pinned_version_of_kubernetes(control_plane: ControlPlane) -> None:
    assert control_plane.api.get("/version")["gitVersion"] == "v1.37.2"


def test_credentials_are_for_the_owner_alone(control_plane: ControlPlane) -> None:
    layout = control_plane.layout
    secrets = [*layout.kubeconfigs.iterdir(), layout.pki / "tokens.csv", layout.pki / "apiserver.key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE(layout.etcd.stat().st_mode) == 0o700


def test_components_end_in_an_order_that_lets_each_go(own_plane: ControlPlane) -> None:
    """The watcher sees each exit as it happens; with etcd gone first the API server would hang."""
    poll = select.poll()
    watched = {}
    for name in own_plane.names:
        descriptor = os.pidfd_open(own_plane.process(name).pid)
        watched[descriptor] = name
        poll.register(descriptor, select.POLLIN)
    stopping = threading.Thread(target=own_plane.stop)
    stopping.start()
    ended: list[str] = []
    while len(ended) < len(own_plane.names):
        # Of exits seen at one time the order is not known: they count as right.
        at_once = [descriptor for descriptor, _ in poll.poll(60_000)]
        ended += sorted((watched[descriptor] for descriptor in at_once), key=STOP_ORDER.index)
        for descriptor in at_once:
            poll.unregister(descriptor)
            os.close(descriptor)
    stopping.join()
    assert ended[-2:] == [components.API_SERVER, components.ETCD]
    assert ended == [name for name in STOP_ORDER if name in own_plane.names]


def test_only_the_logs_are_left(tmp_path: Path) -> None:
    with ControlPlane.start(Options(root=tmp_path / "own", mode=Mode.DEFAULT_ONLY)) as plane:
        layout = plane.layout
    left = {path.name for path in layout.root.iterdir()} - {".pyscheduler-local", "lock"}
    assert left == {"logs"}
    assert layout.log(components.API_SERVER).stat().st_size > 0


def test_second_control_plane_in_the_same_folder_is_refused(own_plane: ControlPlane) -> None:
    with pytest.raises(AlreadyRunningError, match=re.escape(f"down --dir {own_plane.layout.root}")):
        ControlPlane.start(Options(root=own_plane.layout.root, mode=Mode.DEFAULT_ONLY))
    own_plane.check()


def test_crash_is_named_with_the_end_of_the_log(own_plane: ControlPlane) -> None:
    own_plane.process(components.KWOK).kill()
    with pytest.raises(ComponentFailedError, match=f"kwok has ended with code -9; its log {own_plane.layout.logs}/kwok"):
        own_plane.check()


@pytest.mark.long
def test_component_that_cannot_start_takes_the_others_down(tmp_path: Path) -> None:
    """kwok is replaced by a program that fails; the control plane names it and leaves nothing running."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in (components.ETCD, components.API_SERVER, components.CONTROLLER_MANAGER, components.SCHEDULER):
        (binaries / name).symlink_to(BINARIES / name)
    (binaries / components.KWOK).write_text("#!/bin/sh\necho out of memory >&2\nexit 3\n")
    (binaries / components.KWOK).chmod(0o700)
    options = Options(root=tmp_path / "own", mode=Mode.DEFAULT_ONLY, binaries=binaries)
    with pytest.raises(ComponentFailedError, match=r"(?s)kwok ended with code 3 before it was ready.*out of memory"):
        ControlPlane.start(options)
    assert control_plane.running(Layout.of(tmp_path / "own")) == {}


@pytest.mark.long
def test_port_that_another_takes_first_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = Ports.free
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = replace(free(), api_server=other.getsockname()[1])
        choices = iter([taken, free()])
        monkeypatch.setattr(Ports, "free", lambda: next(choices))
        with ControlPlane.start(Options(root=tmp_path / "own", mode=Mode.DEFAULT_ONLY)) as plane:
            assert plane.api.get("/version")["major"] == "1"
    assert next(choices, None) is None


@pytest.mark.long
def test_what_a_crash_left_can_be_stopped(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "own")
    plane = ControlPlane.start(Options(root=layout.root, mode=Mode.DEFAULT_ONLY))
    for name in plane.names:
        plane.process(name).kill()
    assert command("status", "--dir", str(layout.root)).stdout.count("ended") == len(plane.names)
    ended = command("down", "--dir", str(layout.root))
    assert (ended.returncode, "stopped nothing" in ended.stdout) == (0, True)
    assert not layout.run.exists()


def test_missing_program_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(BinaryMissingError, match=r"etcd is not in .*: run `make build`"):
        ControlPlane.start(Options(root=tmp_path / "own", mode=Mode.DEFAULT_ONLY, binaries=tmp_path))


def test_component_comes_back_after_a_kill(control_plane: ControlPlane, workspace: Workspace) -> None:
    workspace.add_nodes("dgx-1v")
    control_plane.kill_component(components.SCHEDULER)
    workspace.add_pod("waits", workspace.pod_spec(1, scheduler=DEFAULT_PROFILE))
    control_plane.start_component(components.SCHEDULER)
    workspace.wait_phase("waits", "Running")


def test_frozen_component_goes_on_where_it_was(control_plane: ControlPlane, workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    with control_plane.frozen_component(components.SCHEDULER):
        workspace.add_pod("waits", workspace.pod_spec(1, scheduler=DEFAULT_PROFILE))
        workspace.occupy(node, [0])  # longer than a scheduler that runs would take
        assert "nodeName" not in workspace.pod("waits")["spec"]
    workspace.wait_phase("waits", "Running")


def test_another_process_sees_and_stops_it(tmp_path: Path) -> None:
    folder = ("--dir", str(tmp_path / "own"))
    assert command("down", *folder).stderr.endswith("no control plane runs there\n")
    started = command("up", *folder, "--profile", "default-only")
    assert started.returncode == 0, started.stderr
    try:
        assert command("kubeconfig", *folder).stdout == started.stdout
        listed = command("status", *folder)
        assert (listed.returncode, listed.stdout.count("running (pid")) == (0, 6)
        assert "already runs a control plane" in command("up", *folder).stderr
    finally:
        ended = command("down", *folder)
    assert ended.stdout.startswith("stopped kube-scheduler, kube-controller-manager"), ended.stderr
    assert command("status", *folder).returncode == 1


@pytest.mark.parametrize("mode", [Mode.REPLACE, Mode.BESIDE])
def test_each_way_of_running_serves_both_profiles(tmp_path: Path, mode: Mode) -> None:
    with (
        ControlPlane.start(Options(root=tmp_path / "own", mode=mode)) as plane,
        Workspace(plane.api) as workspace,
    ):
        workspace.add_nodes("dgx-1v")
        for profile in (DEFAULT_PROFILE, GPU_PROFILE):
            workspace.add_pod(profile, workspace.pod_spec(2, scheduler=profile))
            pod = workspace.wait_phase(profile, "Running")
            assert (annotation(pod, GPUS) is not None) is (profile == GPU_PROFILE)


@pytest.mark.long
def test_beside_the_own_scheduler_does_not_need_ours(tmp_path: Path) -> None:
    with (
        ControlPlane.start(Options(root=tmp_path / "own", mode=Mode.BESIDE)) as plane,
        Workspace(plane.api) as workspace,
    ):
        workspace.add_nodes("dgx-1v")
        plane.kill_component(components.SCHEDULER)
        plane.kill_component(components.SERVICE)
        workspace.add_pod("default", workspace.pod_spec(1, scheduler=DEFAULT_PROFILE))
        workspace.wait_phase("default", "Running")


# Rights


RIGHTS = [
    (users.SERVICE, "list", "", "pods", True),
    (users.SERVICE, "watch", "", "nodes", True),
    (users.SERVICE, "create", "", "events", True),
    (users.SERVICE, "get", "coordination.k8s.io", "leases", False),
    (users.SERVICE, "delete", "", "pods", False),
    (users.SERVICE, "patch", "", "pods", False),
    (users.SERVICE, "patch", "", "nodes", False),
    (users.SERVICE, "get", "", "secrets", False),
    (users.SCHEDULER, "create", "", "pods/binding", True),
    (users.SCHEDULER, "get", "", "secrets", False),
    (users.SCHEDULER, "patch", "", "nodes", False),
    (users.KWOK, "patch", "", "pods/status", True),
    (users.KWOK, "create", "", "pods", False),
    (users.KWOK, "get", "", "secrets", False),
    (users.SIMULATOR, "patch", "", "nodes", True),
    (users.SIMULATOR, "delete", "", "nodes", False),
    (users.SIMULATOR, "delete", "", "pods", False),
    (users.SIMULATOR, "get", "", "secrets", False),
]


@pytest.mark.parametrize(("user", "verb", "group", "resource", "allowed"), RIGHTS)
def test_each_user_may_do_its_work_and_no_more(
    control_plane: ControlPlane, user: User, verb: str, group: str, resource: str, allowed: bool
) -> None:
    kind, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": part, "namespace": "kube-system"}
    review = control_plane.api_of(user).create(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}}
    )
    assert review["status"]["allowed"] is allowed


def test_service_is_refused_what_it_has_no_right_to(control_plane: ControlPlane, workspace: Workspace) -> None:
    workspace.add_pod("stays", workspace.pod_spec(scheduler=DEFAULT_PROFILE))
    service = control_plane.api_of(users.SERVICE)
    pods, _ = service.read_all(workspace.pods)
    assert [pod["metadata"]["name"] for pod in pods] == ["stays"]
    with pytest.raises(ApiError, match="403 Forbidden"):
        service.delete(f"{workspace.pods}/stays")
    with pytest.raises(ApiError, match="403 Forbidden"):
        service.get("/api/v1/secrets")


# Workloads on simulated nodes


def test_indexed_job_runs_to_its_end(workspace: Workspace) -> None:
    workspace.add_nodes("dgx-1v", count=2)
    spec = workspace.pod_spec(4, scheduler=DEFAULT_PROFILE)
    workspace.add_indexed_job("train", 4, spec, annotations=ENDS_AFTER_1_S)
    job = workspace.wait_job("train", "Complete")
    assert job["status"]["completedIndexes"] == "0-3"
    pods, _ = workspace.api.read_all(workspace.pods)
    assert {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in pods} == set("0123")


def test_pod_without_gpus_runs_without_devices(workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    workspace.add_pod("plain", workspace.pod_spec(scheduler=DEFAULT_PROFILE))
    pod = workspace.wait_phase("plain", "Running")
    assert has_condition(pod, "Ready")
    assert pod["metadata"]["uid"] not in workspace.wait_in_use(node, lambda _: True)


def test_node_shows_its_machine(workspace: Workspace) -> None:
    [name] = workspace.add_nodes("mi210x4", fabric=("leaf-a", "spine-1"))
    node = workspace.wait_node(name, lambda node: annotation(node, IN_USE) is not None and not taints(node))
    assert node["status"]["allocatable"]["amd.com/gpu"] == "4"
    assert node["metadata"]["labels"]["fabric.topograph.run/tier-0"] == "leaf-a"
    assert node["metadata"]["labels"]["fabric.topograph.run/tier-1"] == "spine-1"
    assert [gpu["uuid"] for gpu in topology(node)["gpus"]] == uuids(name, 0, 1, 2, 3, machine="mi210x4")
    assert has_condition(node, "Ready")


def test_pod_of_another_scheduler_gets_the_first_free_gpus(workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    workspace.occupy(node, [0, 2])
    workspace.add_pod("foreign", workspace.pod_spec(2, scheduler=DEFAULT_PROFILE))
    uid = workspace.wait_phase("foreign", "Running")["metadata"]["uid"]
    report = workspace.wait_in_use(node, lambda report: uid in report)
    assert report[uid] == {"main": uuids(node, 1, 3)}


def test_pod_gets_the_gpus_that_its_annotation_names(workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    name = workspace.occupy(node, [5, 6])
    workspace.wait_phase(name, "Running")
    uid = workspace.pod(name)["metadata"]["uid"]
    assert workspace.wait_in_use(node, lambda report: uid in report)[uid] == {"main": uuids(node, 5, 6)}


def test_report_leaves_the_topology_alone(workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    before = annotation(workspace.node(node), TOPOLOGY)
    workspace.occupy(node, [0])
    assert annotation(workspace.node(node), TOPOLOGY) == before


def test_devices_outlive_their_pod_for_a_while(workspace: Workspace) -> None:
    """Like a kubelet's: the API no longer shows the pod, and its GPU is not free yet."""
    [node] = workspace.add_nodes("dgx-1v")
    simulated_nodes.simulate(workspace.api, node, {"releaseSeconds": HOUR_S})
    held = workspace.occupy(node, [3])
    uid = workspace.pod(held)["metadata"]["uid"]
    workspace.delete_pod(held)
    later = workspace.occupy(node, [4])
    assert uid in workspace.wait_in_use(node, lambda report: len(report) > 1)

    simulated_nodes.simulate(workspace.api, node, {"releaseSeconds": 1})
    uid = workspace.pod(later)["metadata"]["uid"]
    workspace.delete_pod(later)
    workspace.wait_in_use(node, lambda report: uid not in report)


def test_pod_whose_gpus_are_taken_is_refused(workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    workspace.occupy(node, [1])
    spec = {**workspace.pod_spec(1), "nodeName": node}
    workspace.add_pod("late", spec, annotations={"pyscheduler.io/gpus": json.dumps({"main": uuids(node, 1)})})
    status = workspace.wait_phase("late", "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert uuids(node, 1)[0] in status["message"]


def test_node_refuses_pods_when_told(workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    simulated_nodes.simulate(workspace.api, node, {"refusePods": True})
    workspace.add_pod("refused", workspace.pod_spec(1, scheduler=DEFAULT_PROFILE))
    assert workspace.wait_phase("refused", "Failed")["status"]["reason"] == "UnexpectedAdmissionError"

    simulated_nodes.simulate(workspace.api, node, None)
    workspace.add_pod("taken", workspace.pod_spec(8, scheduler=DEFAULT_PROFILE))
    workspace.wait_phase("taken", "Running")


def test_node_that_is_not_ready_is_tainted_until_it_is(workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    tainted = ("node.kubernetes.io/not-ready", "NoSchedule")
    workspace.wait_node(node, lambda item: not taints(item))
    simulated_nodes.simulate(workspace.api, node, {"ready": False})
    workspace.wait_node(node, lambda item: tainted in taints(item) and not has_condition(item, "Ready"))
    simulated_nodes.simulate(workspace.api, node, None)
    workspace.wait_node(node, lambda item: tainted not in taints(item) and has_condition(item, "Ready"))


@pytest.mark.parametrize("left", [6, 0])
def test_node_loses_gpus_and_gets_them_back(workspace: Workspace, left: int) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    simulated_nodes.simulate(workspace.api, node, {"gpus": left})
    item = workspace.wait_node(node, lambda item: shown_gpus(item) == (left, left, left))
    assert linked_gpus(item) == {f"GPU{index}" for index in range(left)}
    simulated_nodes.simulate(workspace.api, node, None)
    item = workspace.wait_node(node, lambda item: shown_gpus(item) == (8, 8, 8))
    assert linked_gpus(item) == {f"GPU{index}" for index in range(8)}


def topology(node: Object) -> Object:
    document: Object = json.loads(annotation(node, TOPOLOGY) or "")
    return document


def shown_gpus(node: Object) -> tuple[int, int, int]:
    status = node["status"]
    return int(status["capacity"][NVIDIA]), int(status["allocatable"][NVIDIA]), len(topology(node)["gpus"])


def linked_gpus(node: Object) -> set[str]:
    return {link[end] for link in topology(node)["links"] for end in ("a", "b")}


def test_simulator_remembers_devices_over_a_restart(control_plane: ControlPlane, workspace: Workspace) -> None:
    [node] = workspace.add_nodes("dgx-1v")
    before, gone = workspace.occupy(node, [7]), workspace.occupy(node, [0])
    uids = [workspace.pod(name)["metadata"]["uid"] for name in (before, gone)]
    control_plane.kill_component(components.SIMULATOR)
    workspace.delete_pod(gone)
    control_plane.start_component(components.SIMULATOR)
    report = workspace.wait_in_use(node, lambda report: uids[1] not in report)
    assert report == {uids[0]: {"main": uuids(node, 7)}}

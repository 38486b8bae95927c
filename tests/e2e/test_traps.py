"""What has broken schedulers before, each with the real scheduler: lost replies, late news, late calls, dead services."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import yaml

from deploy.local import components
from deploy.local.api import Object, in_parallel
from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.layout import BINARIES
from deploy.local.scheduler_config import DEFAULT_PROFILE
from deploy.local.simulated_nodes import NODES
from deploy.local.workspace import Workspace, annotation
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from tests.e2e.proxy import Proxy
from tests.e2e.test_placement import gpus

PLACEMENT = "pyscheduler.io/placement"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose components the tests of this file may stop and start."""
    with ControlPlane.start(Options(root=tmp_path_factory.mktemp("traps"), mode=Mode.REPLACE)) as started:
        yield started


@pytest.fixture
def own(plane: ControlPlane) -> Iterator[Workspace]:
    with Workspace(plane.api, "trap") as workspace:
        yield workspace


def _reconfigure(plane: ControlPlane, component: str, **settings: object) -> None:
    """Start a component again with other settings in its configuration file."""
    path = plane.layout.config / f"{component}.yaml"
    content = yaml.safe_load(path.read_text())
    for key, value in settings.items():
        if isinstance(value, dict):
            content[key] = {**content[key], **value}
        else:
            content[key] = value
    plane.stop_component(component)
    path.write_text(yaml.safe_dump(content))
    plane.start_component(component)


@pytest.fixture
def service_behind_proxy(plane: ControlPlane, tmp_path: Path) -> Iterator[Proxy]:
    kubeconfig = plane.layout.kubeconfig("pyscheduler")
    with Proxy(kubeconfig, plane.layout.pki) as proxy:
        _reconfigure(plane, components.SERVICE, kubeconfig=str(proxy.write_kubeconfig(tmp_path / "service")))
        yield proxy
        _reconfigure(plane, components.SERVICE, kubeconfig=str(kubeconfig))


@pytest.fixture
def scheduler_behind_proxy(plane: ControlPlane, tmp_path: Path) -> Iterator[Proxy]:
    kubeconfig = plane.layout.kubeconfig("system-kube-scheduler")
    with Proxy(kubeconfig, plane.layout.pki) as proxy:
        through = {"kubeconfig": str(proxy.write_kubeconfig(tmp_path / "scheduler"))}
        _reconfigure(plane, components.SCHEDULER, clientConnection=through)
        yield proxy
        _reconfigure(plane, components.SCHEDULER, clientConnection={"kubeconfig": str(kubeconfig)})


def _given_once(pods: list[Object]) -> bool:
    """Return whether no GPU was given to two of these pods."""
    given = [(pod["spec"]["nodeName"], handle) for pod in pods for handle in gpus(pod)]
    return len(given) == len(set(given))


def _holdings(plane: ControlPlane) -> dict[str, inspect_pb2.Holding]:
    with grpc.insecure_channel(f"unix:{plane.layout.socket}") as channel:
        answer = inspect_pb2_grpc.InspectStub(channel).ListHoldings(inspect_pb2.ListHoldingsRequest(), timeout=10)
    return {holding.name: holding for holding in answer.holdings}


def test_no_pod_stays_parked_though_the_services_watch_is_two_seconds_late(own: Workspace, service_behind_proxy: Proxy) -> None:
    service_behind_proxy.watch_delay_s = 2.0
    own.add_nodes("hgx-h100")
    names = [f"p{i}" for i in range(5)]
    for name in names:
        own.add_pod(name, own.pod_spec(4))
    placed: list[str] = []
    # Two fit at a time; each end of a pod must wake another one, well before the scheduler's own flush of five minutes.
    while len(placed) < len(names):
        pod = own.api.wait_for(
            own.pods, lambda p: p["status"]["phase"] == "Running" and p["metadata"]["name"] not in placed, timeout_s=60
        )
        placed.append(pod["metadata"]["name"])
        if len(placed) >= 2:
            own.delete_pod(placed[len(placed) - 2])


def test_binding_whose_reply_is_lost_gives_no_gpu_twice(
    plane: ControlPlane, own: Workspace, scheduler_behind_proxy: Proxy
) -> None:
    own.add_nodes("hgx-h100")
    lost: set[str] = set()
    all_lost = threading.Event()

    def drops(method: str, path: str) -> bool:
        first = method == "POST" and path.endswith("/binding") and path not in lost
        lost.add(path) if first else None
        if len(lost) == 4:
            all_lost.set()
        return first

    scheduler_behind_proxy.drops_reply = drops
    for i in range(4):
        own.add_pod(f"p{i}", own.pod_spec(2))
    pods = [own.wait_phase(f"p{i}", "Running") for i in range(4)]
    # A pod may run before the reply to its Binding has come as far as the proxy.
    assert all_lost.wait(30)
    assert _given_once(pods)
    own.add_pod("more", own.pod_spec(1))
    own.wait_event("more", "needs 1 GPU")
    states = {name: holding.state for name, holding in _holdings(plane).items()}
    assert {states[f"p{i}"] for i in range(4)} == {"bound"}


def test_late_and_repeated_unreserve_of_an_earlier_attempt_frees_nothing(plane: ControlPlane, own: Workspace) -> None:
    own.add_nodes("hgx-h100")
    own.add_pod("p", own.pod_spec(8))
    own.wait_phase("p", "Running")
    held = _holdings(plane)["p"]
    session = json.loads(annotation(own.pod("p"), PLACEMENT) or "{}")["leader"].rsplit("/", 1)[1]
    with grpc.insecure_channel(f"unix:{plane.layout.socket}") as channel:
        stub = scheduler_pb2_grpc.SchedulerPluginStub(channel)
        for number in (held.attempt - 1, held.attempt, held.attempt):
            attempt = scheduler_pb2.Attempt(session=int(session), number=max(1, number), host="late")
            outcome = scheduler_pb2.UnreserveRequest.OUTCOME_NOT_BOUND
            stub.Unreserve(scheduler_pb2.UnreserveRequest(attempt=attempt, pod_uid=held.pod_uid, outcome=outcome), timeout=10)
    assert _holdings(plane)["p"].state == "bound"
    own.add_pod("q", own.pod_spec(1))
    own.wait_event("q", "needs 1 GPU")


def test_pods_that_wait_while_the_service_is_killed_are_placed_rightly_when_it_is_back(
    plane: ControlPlane, own: Workspace
) -> None:
    own.add_nodes("hgx-h100", 2)
    own.add_pod("before", own.pod_spec(4))
    pods = [own.wait_phase("before", "Running")]
    plane.kill_component(components.SERVICE)
    for i in range(3):
        own.add_pod(f"p{i}", own.pod_spec(4))
    event = own.wait_event("p0", "GPU topology service")
    assert "pyscheduler" in event["message"]
    assert all("nodeName" not in own.pod(f"p{i}")["spec"] for i in range(3))
    plane.start_component(components.SERVICE)
    pods += [own.wait_phase(f"p{i}", "Running") for i in range(3)]
    assert _given_once(pods)


def test_killed_scheduler_loses_nothing(plane: ControlPlane, own: Workspace) -> None:
    own.add_nodes("hgx-h100", 2)
    for i in range(8):
        own.add_pod(f"p{i}", own.pod_spec(2))
        if i == 3:
            plane.kill_component(components.SCHEDULER)
            plane.start_component(components.SCHEDULER)
    assert _given_once([own.wait_phase(f"p{i}", "Running") for i in range(8)])


def test_stopped_service_keeps_gpu_pods_waiting_and_no_others(plane: ControlPlane, own: Workspace) -> None:
    own.add_nodes("hgx-h100", 2)
    own.wait_untainted()
    waiting = [f"gpu-{i}" for i in range(16)]
    with plane.frozen_component(components.SERVICE):
        in_parallel(lambda name: own.add_pod(name, own.pod_spec(1)), waiting)
        own.wait_pods(waiting, _was_tried)
        own.add_pod("default", own.pod_spec(scheduler=DEFAULT_PROFILE))
        own.add_pod("plain", own.pod_spec())
        own.wait_pods(["default", "plain"], _is_bound)
        assert not any(_is_bound(own.pod(name)) for name in waiting)
    own.wait_pods(waiting, _is_bound)
    assert _given_once([own.pod(name) for name in waiting])


@pytest.mark.long
def test_stopped_service_does_not_slow_the_default_profile(plane: ControlPlane, own: Workspace) -> None:
    """Pods per second of the default profile, without GPU pods and with 500 that wait for a stopped service."""
    own.add_nodes("hgx-h100", 64)
    own.wait_untainted()

    def rate(title: str) -> float:
        names = [f"{title}-{i}" for i in range(1000)]
        with plane.frozen_component(components.SCHEDULER):
            in_parallel(lambda name: own.add_pod(name, own.pod_spec(scheduler=DEFAULT_PROFILE, cpu="10m")), names)
            begun = time.monotonic()
        own.wait_pods(names, _is_bound)
        took_s = time.monotonic() - begun
        own.api.delete(own.pods, fieldSelector=f"spec.schedulerName={DEFAULT_PROFILE}")
        own.wait_pods_gone(names)
        return len(names) / took_s

    rate("warm-up")
    alone = max(rate(f"alone-{i}") for i in range(3))
    waiting = [f"gpu-{i}" for i in range(500)]
    with plane.frozen_component(components.SERVICE):
        in_parallel(lambda name: own.add_pod(name, own.pod_spec(1)), waiting)
        own.wait_pods(waiting, _was_tried)
        beside = max(rate(f"beside-{i}") for i in range(3))
    print(f"default profile: {alone:.0f} pods/s alone, {beside:.0f} with 500 GPU pods waiting for a stopped service")
    assert beside >= 0.8 * alone
    own.wait_pods(waiting, _is_bound)


def _is_bound(pod: Object) -> bool:
    return "nodeName" in pod["spec"]


def _was_tried(pod: Object) -> bool:
    """Return whether the scheduler has failed to place the pod once: from then on it repeats what is written already."""
    return any(condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions", ()))


SIZES = pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])


@SIZES
def test_only_node_that_the_selector_accepts_ranks_last(own: Workspace, count: int) -> None:
    own.add_nodes("a100-pcie-bridged", count - 1)
    (last,) = own.add_nodes("a100-pcie-bridged", labels={"pool": "special"})
    own.wait_untainted()
    spec = own.pod_spec(1)
    spec["nodeSelector"]["pool"] = "special"
    own.add_pod("p", spec)
    assert own.wait_bound("p")["spec"]["nodeName"] == last


@SIZES
def test_only_node_with_the_cpu_ranks_last(own: Workspace, count: int) -> None:
    own.add_nodes("a100-pcie-bridged", count - 1, cpu="1")
    (last,) = own.add_nodes("a100-pcie-bridged")
    own.wait_untainted()
    own.add_pod("p", own.pod_spec(1, cpu="100"))
    assert own.wait_bound("p")["spec"]["nodeName"] == last
    # The narrow cycle tells that its candidates lack CPU; the wide one binds, maybe before the Event is written.
    own.wait_event("p", "all nodes are looked at next")
    assert len([event for event in own.events("p") if event["reason"] == "FailedScheduling"]) == 1
    own.api.patch(f"{NODES}/{last}", {"spec": {"unschedulable": True}})
    own.add_pod("q", own.pod_spec(1, cpu="100"))
    assert "Insufficient cpu" in own.wait_event("q", "unschedulable")["message"]


def test_wrong_socket_path_is_told_with_the_remedy_and_harms_no_other_pod(plane: ControlPlane, own: Workspace) -> None:
    own.add_nodes("a100-pcie-bridged")
    path = plane.layout.config / f"{components.SCHEDULER}.yaml"
    right = path.read_text()
    try:
        path.write_text(right.replace("pyscheduler.sock", "wrong.sock"))
        plane.restart_component(components.SCHEDULER)
        own.add_pod("gpu", own.pod_spec(1))
        own.add_pod("plain", own.pod_spec())
        event = own.wait_event("gpu", "wrong.sock")
        assert "check that" in event["message"]
        own.wait_phase("plain", "Running")
    finally:
        path.write_text(right)
        plane.restart_component(components.SCHEDULER)
    own.wait_phase("gpu", "Running")


def test_unknown_argument_of_the_plugin_stops_the_start_and_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    config = yaml.safe_load((plane.layout.config / f"{components.SCHEDULER}.yaml").read_text())
    config["profiles"][-1]["pluginConfig"][0]["args"]["endpiont"] = "unix:///x"
    path = tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    ended = subprocess.run(
        [BINARIES / components.SCHEDULER, "--config", path, "--secure-port=0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode != 0
    assert "endpiont" in ended.stderr
    assert "onUnavailable" in ended.stderr  # the keys that there are

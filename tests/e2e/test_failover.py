"""Two schedulers, each with its service: one leads, the other is warm, and takes over when the leader dies or hangs."""

from __future__ import annotations

import asyncio
import json
import queue
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from aiohttp import web

from deploy.local.api import Object
from deploy.local.components import REPLICAS, Replica
from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.processes import can_name_host
from deploy.local.simulated_nodes import NODES
from deploy.local.workspace import Workspace, annotation
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc
from tests.e2e.known_nodes import until
from tests.e2e.proxy import Proxy
from tests.e2e.test_placement import gpus

PLACEMENT = "pyscheduler.io/placement"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
REFUSED = "UnexpectedAdmissionError"

pytestmark = pytest.mark.skipif(
    not can_name_host(), reason="two schedulers on one machine need host names of their own: run as root or allow user namespaces"
)


class HoldingProxy(Proxy):
    """A proxy that keeps back the Bindings that come while `holds` is true, until `release`."""

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        super().__init__(kubeconfig, pki)
        self.holds = False
        self.held: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._released = asyncio.Event()

    def release(self) -> None:
        self.holds = False
        self._loop.call_soon_threadsafe(self._released.set)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if self.holds and request.method == "POST" and request.path.endswith("/binding"):
            await request.read()
            self.held.put(request.path)
            await self._released.wait()
        return await super()._forward(request)


class Pair:
    """The two replicas of a control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def holder(self) -> str:
        """Return the host name of the scheduler that holds the Lease, empty if none does."""
        return (self.plane.api.get(LEASE)["spec"].get("holderIdentity") or "").rpartition("_")[0]

    def leader(self) -> Replica:
        """Return the replica that leads, as soon as one does."""
        host = until(self.holder, "a holder of the Lease")
        return next(replica for replica in REPLICAS if replica.host == host)

    def other(self, replica: Replica) -> Replica:
        return next(each for each in REPLICAS if each != replica)

    def lead(self, replica: Replica) -> None:
        """Let a replica lead: while the other's scheduler is stopped, which gives the Lease up."""
        if self.leader() != replica:
            self.plane.stop_component(self.other(replica).scheduler)
            until(lambda: self.holder() == replica.host, f"{replica.host} leads")
            self.plane.start_component(self.other(replica).scheduler)

    def reconfigure(self, replica: Replica, kubeconfig: Path) -> None:
        """Start a scheduler again with another kubeconfig."""
        path = self.plane.layout.config / f"{replica.scheduler}.yaml"
        content = yaml.safe_load(path.read_text())
        content["clientConnection"]["kubeconfig"] = str(kubeconfig)
        self.plane.stop_component(replica.scheduler)
        path.write_text(yaml.safe_dump(content))
        self.plane.start_component(replica.scheduler)

    def log(self, replica: Replica, event: str) -> list[dict[str, Any]]:
        """Return the lines of a service's log that tell an event."""
        lines = map(json.loads, self.plane.layout.log(replica.service).read_text().splitlines())
        return [line for line in lines if line["event"] == event]

    def holdings(self, replica: Replica) -> dict[str, tuple[object, ...]]:
        """Return by pod what a service knows to be held, without the ages."""
        with grpc.insecure_channel(f"unix:{self.plane.layout.socket_of(replica.service)}") as channel:
            answer = inspect_pb2_grpc.InspectStub(channel).ListHoldings(inspect_pb2.ListHoldingsRequest(), timeout=10)
        return {h.pod_uid: (h.namespace, h.name, h.node, h.state, h.gpus, tuple(h.gpu_ids)) for h in answer.holdings}

    def http(self, replica: Replica, path: str) -> str:
        """Return what a service answers over HTTP; an error if not 200."""
        port = self.log(replica, "serving")[-1]["http_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def metric(self, replica: Replica, name: str) -> float:
        lines = self.http(replica, "/metrics").splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def written(self) -> list[Object]:
        """Return the requests of services to change anything, as the API server recorded them."""
        return [json.loads(line) for line in self.plane.layout.audit.read_text().splitlines()]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    options = Options(root=tmp_path_factory.mktemp("pair"), mode=Mode.REPLACE, replicated=True, audit=True)
    with ControlPlane.start(options) as plane:
        yield Pair(plane)


@pytest.fixture
def own(pair: Pair) -> Iterator[Workspace]:
    with Workspace(pair.plane.api, "pair") as workspace:
        yield workspace


def placed_by(pod: Object) -> str:
    """Return the host name of the scheduler whose Binding the pod has."""
    return str(json.loads(annotation(pod, PLACEMENT) or "{}")["leader"]).partition("/")[0]


def given_once(pods: list[Object]) -> bool:
    """Return whether no GPU was given to two of these pods that have not ended."""
    live = [pod for pod in pods if "nodeName" in pod["spec"] and pod["status"]["phase"] not in ("Failed", "Succeeded")]
    given = [(pod["spec"]["nodeName"], handle) for pod in live for handle in gpus(pod)]
    return bool(given) and len(given) == len(set(given))


def conflicts(own: Workspace, pod: str) -> list[Object]:
    return [event for event in own.events(pod) if event["reason"] == "GPUConflict"]


def test_standby_is_warm_and_writes_nothing(pair: Pair, own: Workspace) -> None:
    leader = pair.leader()
    standby = pair.other(leader)
    until(lambda: pair.metric(leader, "pyscheduler_leads") == 1, "the leader's service leads")
    assert pair.metric(standby, "pyscheduler_leads") == 0
    [odd] = own.add_nodes("hgx-h100")
    own.add_nodes("hgx-h100")
    for i in range(3):
        own.add_pod(f"p{i}", own.pod_spec(4))
    assert {placed_by(own.wait_phase(f"p{i}", "Running")) for i in range(3)} == {leader.host}
    own.api.patch(f"{NODES}/{odd}", {"metadata": {"annotations": {"pyscheduler.io/topology": "{"}}})

    def tells(replica: Replica) -> bool:
        return any(line["node"] == odd for line in pair.log(replica, "node finding"))

    until(lambda: tells(standby), "the standby sees what is wrong with the node")
    event = own.api.wait_for(
        "/api/v1/namespaces/default/events",
        lambda event: (event["involvedObject"]["name"], event["reason"]) == (odd, "GPUTopologyFinding"),
    )
    assert event["source"]["host"] == leader.host
    until(lambda: pair.holdings(standby) == pair.holdings(leader), "the standby knows what is held")
    assert {holding[1] for holding in pair.holdings(standby).values()} == {"p0", "p1", "p2"}
    assert [pair.http(standby, path) for path in ("/healthz", "/readyz")] == ["ok\n", "ok\n"]
    written = pair.written()
    assert {(each["verb"], each["objectRef"]["resource"]) for each in written} == {("create", "events")}
    assert {each["requestObject"]["source"]["host"] for each in written} == {leader.host}


def test_killed_leader_is_followed_by_the_standby(pair: Pair, own: Workspace) -> None:
    own.add_nodes("hgx-h100", 2)
    own.wait_untainted()
    leader = pair.leader()
    standby = pair.other(leader)
    own.add_pod("before", own.pod_spec(4))
    assert placed_by(own.wait_phase("before", "Running")) == leader.host
    pair.plane.kill_component(leader.scheduler)
    expires_s = expiry_s(pair.plane.api.get(LEASE))
    try:
        names = [f"p{i}" for i in range(3)]
        for name in names:
            own.add_pod(name, own.pod_spec(4))
        own.api.wait_for(own.pods, lambda pod: "nodeName" in pod["spec"] and pod["metadata"]["name"] in names)
        took_s = time.time() - expires_s
        pods = [own.wait_phase(name, "Running") for name in names]
        assert {placed_by(pod) for pod in pods} == {standby.host}
        assert given_once([own.pod("before"), *pods])
        until(lambda: pair.metric(standby, "pyscheduler_leads") == 1, "the standby's service leads")
        assert pair.metric(leader, "pyscheduler_leads") == 0
    finally:
        pair.plane.start_component(leader.scheduler)
    print(f"\nfail-over after kill -9: {took_s:.2f} s from the expiry of the Lease to the next bind")
    assert took_s < 30


def expiry_s(lease: Object) -> float:
    """Return until when a Lease holds, in Unix time."""
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
    return renewed.timestamp() + float(lease["spec"]["leaseDurationSeconds"])


@pytest.fixture
def urgent(pair: Pair) -> Iterator[str]:
    """A priority above that of other pods."""
    name = "urgent"
    pair.plane.api.create(PRIORITIES, {"metadata": {"name": name}, "value": 1000})
    yield name
    pair.plane.api.delete(f"{PRIORITIES}/{name}")


@pytest.fixture
def held_leader(pair: Pair, tmp_path: Path) -> Iterator[tuple[Replica, HoldingProxy]]:
    """The replica that leads, with a proxy before its scheduler that keeps Bindings back when told."""
    replica = REPLICAS[0]
    kubeconfig = pair.plane.layout.kubeconfig("system-kube-scheduler")
    with HoldingProxy(kubeconfig, pair.plane.layout.pki) as proxy:
        pair.reconfigure(replica, proxy.write_kubeconfig(tmp_path / "scheduler"))
        pair.lead(replica)
        yield replica, proxy
        pair.reconfigure(replica, kubeconfig)


def test_late_bindings_of_a_stopped_leader_give_no_gpu_to_two_pods(
    pair: Pair, own: Workspace, urgent: str, held_leader: tuple[Replica, HoldingProxy]
) -> None:
    """Three Bindings are under way when the leader stops.

    The new leader gives the GPUs of the first to another pod, and binds the second itself; then those of the old one
    arrive, and it goes on and schedules, too, until it sees that it has lost the Lease.
    """
    leader, proxy = held_leader
    standby = pair.other(leader)
    contested, shared, *_ = own.add_nodes("hgx-h100", 5)
    own.wait_untainted()

    def add_whole(name: str, node: str, **more: Any) -> None:
        spec = own.pod_spec(8)
        own.add_pod(name, {**spec, "nodeSelector": {**spec["nodeSelector"], "kubernetes.io/hostname": node}, **more})

    proxy.holds = True
    add_whole("late", contested)
    add_whole("twice", shared)
    for _ in range(2):
        proxy.held.get(timeout=60)
    stopped = pair.plane.process(leader.scheduler)
    with pair.plane.frozen_component(leader.scheduler):
        add_whole("winner", contested, priorityClassName=urgent)
        bound = [own.wait_phase(name, "Running", 90) for name in ("winner", "twice")]
        assert {placed_by(pod) for pod in bound} == {standby.host}
        own.wait_event("late", "needs 8 GPU")
    proxy.release()
    # Both schedule now. In the end the old one keeps neither the Lease nor itself.
    racers: list[str] = []
    while not stopped.wait(0.2) and len(racers) < 24:
        racers.append(f"racer-{len(racers)}")
        own.add_pod(racers[-1], own.pod_spec(1))
    assert stopped.wait(60)
    assert stopped.exit_code != 0
    late = own.wait_phase("late", "Failed")
    assert (placed_by(late), late["status"]["reason"]) == (leader.host, REFUSED)
    assert set(gpus(late)) & set(gpus(bound[0]))
    message = own.wait_event("late", "held by pod")["message"]
    assert all(part in message for part in (f"{own.name}/late", f"{own.name}/winner", contested))
    assert any(gpu in message for gpu in gpus(late))
    own.wait_pods(racers, lambda pod: pod["status"]["phase"] in ("Running", "Failed"))
    raced = [own.pod(name) for name in racers]
    lost = [pod["metadata"]["name"] for pod in raced if pod["status"]["phase"] == "Failed"]
    for name in lost:
        own.wait_event(name, "held by pod")
    assert given_once([*bound, *raced])
    assert own.pod("twice")["status"]["phase"] == "Running"
    assert not conflicts(own, "twice")
    # Each is told once, by the service that leads; the other has seen it, too.
    told = [event for name in ("late", *lost) for event in conflicts(own, name)]
    assert len(told) == 1 + len(lost)
    assert {event["source"]["host"] for event in told} == {standby.host}
    until(lambda: all(conflict_logged(pair, replica, late) for replica in REPLICAS), "both services see the conflict")
    until(lambda: pair.holdings(leader) == pair.holdings(standby), "both know the same")
    # Its node refused it, and has no devices of it to tell of.
    until(lambda: late["metadata"]["uid"] not in pair.holdings(standby), "the refused pod holds nothing")


def conflict_logged(pair: Pair, replica: Replica, pod: Object) -> bool:
    return any(line["uid"] == pod["metadata"]["uid"] for line in pair.log(replica, "pod conflict"))

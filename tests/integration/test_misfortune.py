"""What the API server, the network, the clock and callers can do to the service: it stays bounded, honest, and right in the end.

The API server is `little_api`, the rest is the real code.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.local import simulated_nodes
from deploy.local.simulated_nodes import SimulatedNode
from pyscheduler.adapters import api as api_module
from pyscheduler.adapters import http as http_module
from pyscheduler.adapters import pages as pages_module
from pyscheduler.adapters import watch as watch_module
from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.http import HttpServer
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.settler import Settler
from pyscheduler.adapters.watch import Watcher
from pyscheduler.adapters.worker import Worker
from pyscheduler.app import Service
from pyscheduler.config import Config
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import PodUid
from pyscheduler.edge import changes as changes_module
from pyscheduler.edge.changes import Changes
from pyscheduler.edge.inspect_servicer import InspectServicer
from pyscheduler.edge.interceptors import guarded
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from pyscheduler.edge.plugin_servicer import PluginServicer
from pyscheduler.edge.server import CALLS_MAX, THREADS, EdgeServer
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.lists import raw_page
from pyscheduler.readers.objects import ObjectReader
from tests.builders import node, planner
from tests.integration.little_api import WAIT_S, Exchange, LittleApi, gone, gone_at_once

GPU = "nvidia.com/gpu"
LOGGER = structlog.get_logger()
HOURS_S = 6 * 3600.0


def until(done: Callable[[], bool], what: str = "") -> None:
    """Wait until something is so that nobody tells of."""
    ends = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < ends, f"{what or done} is not so after {WAIT_S} s"
        time.sleep(0.01)


@pytest.fixture
def little() -> Iterator[LittleApi]:
    api = LittleApi()
    api.start()
    yield api
    api.stop()


def thing(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, **fields}


# -- lists and watches ----------------------------------------------------------------------------------------------


class Things:
    """A sink that keeps what there is, as the watcher tells it."""

    def __init__(self) -> None:
        self.change = threading.Condition()
        self.now: dict[str, Any] = {}
        self.lists = 0

    def replace(self, items: list[Any]) -> None:
        with self.change:
            self.now = {raw["metadata"]["name"]: raw for raw in items}
            self.lists += 1
            self.change.notify_all()

    def changed(self, raw: dict[str, Any]) -> None:
        with self.change:
            self.now[raw["metadata"]["name"]] = raw
            self.change.notify_all()

    def gone(self, raw: dict[str, Any]) -> None:
        with self.change:
            self.now.pop(raw["metadata"]["name"], None)
            self.change.notify_all()

    def wait(self, *names: str) -> None:
        """Wait until these are known, and no others."""
        with self.change:
            assert self.change.wait_for(lambda: set(self.now) == set(names), WAIT_S), sorted(self.now)


class Patience(threading.Event):
    """Waits no time, but notes for how long it should, and lets a clock go on by as much."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def clock(self) -> float:
        return sum(self.waited)

    def wait(self, timeout: float | None = None) -> bool:
        self.waited += [timeout] if timeout else []
        return self.is_set()


class Watch:
    """A watcher of things, and what it tells."""

    def __init__(self, kubeconfig: Path, patience: Patience | None = None) -> None:
        self.things = Things()
        self.died = threading.Event()
        self.watcher: Watcher[Any] = Watcher(
            ApiServer(str(kubeconfig)),
            "things",
            "/api/things",
            selector={},
            read_page=raw_page,
            sink=self.things,
            metrics=Metrics(LOGGER),
            logger=LOGGER,
            died=self.died.set,
            clock=patience.clock if patience else time.monotonic,
        )
        if patience:
            self.watcher._stopped = self.watcher._pages._stopped = patience


@pytest.fixture
def watch(little: LittleApi, tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    started: list[Watch] = []

    def begin(patience: Patience | None = None, **user: str) -> Watch:
        found = Watch(little.kubeconfig(tmp_path, **user), patience)
        found.watcher.start()
        started.append(found)
        return found

    yield begin
    for each in started:
        each.watcher.stop()
        assert not each.died.is_set()


@pytest.mark.parametrize("answer", [gone, gone_at_once], ids=["as an event", "as a status"])
def test_storm_of_410_is_met_with_lists_that_are_ever_further_apart(
    little: LittleApi, watch: Callable[..., Watch], answer: Callable[[Exchange], None]
) -> None:
    storm, patience = 50, Patience()
    for i in range(100):
        little.put("things", thing(f"t{i}", text="x" * 1000))
    little.fault("things", "watch", *[answer] * storm)
    tracemalloc.start()
    try:
        seen = watch(patience)
        little.wait("things", "list", 10)
        early = tracemalloc.get_traced_memory()[0]
        little.wait("things", "watch", storm + 1)
        late = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # The first two lists are free.
    assert patience.waited == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, *[30.0] * (storm - 8)])
    assert late - early < 1_000_000
    little.put("things", thing("last"))
    seen.things.wait("last", *(f"t{i}" for i in range(100)))
    assert little.count("things", "list") == storm + 1


def test_storm_is_forgotten_after_a_calm(little: LittleApi, watch: Callable[..., Watch]) -> None:
    """A version is gone now and then without any storm: then the list is read at once."""
    patience = Patience()

    def later(exchange: Exchange) -> None:
        patience.waited.append(3600.0)
        gone(exchange)

    little.fault("things", "watch", gone, gone, gone, later, gone, gone)
    watch(patience)
    little.wait("things", "watch", 7)
    assert patience.waited == pytest.approx([0.2, 0.4, 3600.0, 0.2])


def test_watch_that_is_always_ended_at_once_is_asked_for_ever_more_seldom(little: LittleApi, watch: Callable[..., Watch]) -> None:
    patience = Patience()
    little.fault("things", "watch", *[Exchange.begin] * 8)
    seen = watch(patience)
    little.wait("things", "watch", 9)
    assert patience.waited == [0.2, 0.4, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]
    little.put("things", thing("a"))
    seen.things.wait("a")
    assert seen.things.lists == 1


def test_event_that_is_cut_off_is_asked_for_again(little: LittleApi, watch: Callable[[], Watch]) -> None:
    little.put("things", thing("a"))

    def cut(exchange: Exchange) -> None:
        exchange.begin()
        little.put("things", thing("b"))
        little.put("things", thing("c"))
        exchange.write(little.event("ADDED", "things", "b"), b'{"type": "ADDED", "object": {"metadata": {"na\n')

    little.fault("things", "watch", cut)
    seen = watch()
    seen.things.wait("a", "b", "c")
    versions = [each.query["resourceVersion"] for each in little.wait("things", "watch", 2)]
    assert int(versions[1]) == int(versions[0]) + 1
    assert seen.things.lists == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "ADDED", "obj\n',
        b"<html>\n",
        b"[]\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
    ],
)
def test_watch_that_does_not_get_past_nonsense_begins_with_a_new_list(
    little: LittleApi, watch: Callable[[], Watch], line: bytes
) -> None:
    def nonsense(exchange: Exchange) -> None:
        exchange.begin()
        exchange.write(line)

    little.put("things", thing("a"))
    little.fault("things", "watch", nonsense)
    seen = watch()
    little.wait("things", "list", 2)
    little.put("things", thing("b"))
    seen.things.wait("a", "b")


def test_event_of_ten_megabytes_is_taken(little: LittleApi, watch: Callable[[], Watch]) -> None:
    seen = watch()
    little.wait("things", "watch", 1)
    little.put("things", thing("large", text="x" * 10_000_000))
    seen.things.wait("large")
    assert seen.things.lists == 1


def test_event_without_end_is_given_up(little: LittleApi, watch: Callable[[], Watch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "LINE_MAX", 100_000)
    sent: list[int] = []

    def endless(exchange: Exchange) -> None:
        exchange.begin()
        for i in range(10_000):
            exchange.write(b"x" * 10_000)
            sent.append(i)

    little.put("things", thing("a"))
    little.fault("things", "watch", endless)
    seen = watch()
    little.wait("things", "list", 2)
    little.put("things", thing("b"))
    seen.things.wait("a", "b")
    assert len(sent) < 5_000


def test_watch_that_says_a_byte_now_and_then_and_no_event_is_given_up(
    little: LittleApi, watch: Callable[[], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "SILENCE_S", 0.3)

    def slow(exchange: Exchange) -> None:
        exchange.begin()
        exchange.dribble(b"x" * 10_000, 0.05)

    little.fault("things", "watch", slow)
    seen = watch()
    little.wait("things", "watch", 2)
    little.put("things", thing("a"))
    seen.things.wait("a")


def test_list_that_comes_byte_by_byte_is_asked_for_in_smaller_pages(
    little: LittleApi, watch: Callable[[], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "ANSWER_S", 0.2)

    def slow(exchange: Exchange) -> None:
        exchange.begin()
        exchange.dribble(b"{" * 10_000, 0.05)

    little.put("things", thing("a"))
    little.fault("things", "list", slow, slow)
    watch().things.wait("a")
    assert [each.query["limit"] for each in little.wait("things", "list", 3)] == ["500", "250", "125"]


def test_pages_of_large_objects_hold_fewer_of_them(
    little: LittleApi, watch: Callable[[], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "PAGE", 10)
    monkeypatch.setattr(pages_module, "PAGE_BYTES", 20_000)
    names = [f"t{i:02}" for i in range(30)]
    for name in names:
        little.put("things", thing(name, text="x" * 10_000))
    watch().things.wait(*names)
    assert [int(each.query["limit"]) for each in little.wait("things", "list", 4)] == [10, 1, 1, 1]


def test_answer_that_is_too_large_is_asked_for_in_parts(
    little: LittleApi, watch: Callable[[], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "PAGE", 16)
    monkeypatch.setattr(api_module, "ANSWER_MAX", 100_000)
    names = [f"t{i:02}" for i in range(16)]
    for name in names:
        little.put("things", thing(name, text="x" * 20_000))
    watch().things.wait(*names)
    limits = [int(each.query["limit"]) for each in little.wait("things", "list", 6)]
    assert limits == [16, 8, 4, 4, 4, 4]


def test_page_that_fails_half_way_is_read_again_and_not_the_pages_before_it(
    little: LittleApi, watch: Callable[[], Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "PAGE", 2)
    for name in "abcde":
        little.put("things", thing(name))

    def half(exchange: Exchange) -> None:
        exchange.answer(200, b'{"items": [{"metadata"', length=5000)

    little.fault("things", "list", little.list, half)
    watch().things.wait(*"abcde")
    asked = [each.query.get("continue") for each in little.wait("things", "list", 4)]
    assert asked == [None, "2", "2", "4"]


@pytest.mark.parametrize("body", [b'{"metadata": {"resourceVersion": "5"}, "ite', b"[]", b"{}", b"null", b"\xff"])
def test_page_that_is_no_list_is_no_empty_list(little: LittleApi, watch: Callable[[], Watch], body: bytes) -> None:
    little.put("things", thing("a"))
    little.fault("things", "list", lambda exchange: exchange.answer(200, body))
    seen = watch()
    seen.things.wait("a")
    assert seen.things.lists == 1


def test_server_that_asks_for_rest_is_left_alone_for_as_long(little: LittleApi, watch: Callable[[], Watch]) -> None:
    little.put("things", thing("a"))
    little.fault("things", "list", lambda exchange: exchange.answer(429, b'{"message": "busy"}', Retry_After="1"))
    watch().things.wait("a")
    first, second = little.wait("things", "list", 2)
    assert second.at - first.at >= 1.0


@pytest.mark.parametrize("after", ["99999999999", "Wed, 21 Oct 2099 07:28:00 GMT", "-5", "nan", "²"])
def test_no_answer_sends_the_service_to_sleep(
    little: LittleApi, watch: Callable[[], Watch], monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    monkeypatch.setattr(api_module, "RETRY_AFTER_MAX_S", 0.1)
    little.put("things", thing("a"))
    header = after.encode("utf-8").decode("latin-1")
    little.fault("things", "list", lambda exchange: exchange.answer(429, b"busy", Retry_After=header))
    watch().things.wait("a")


def test_token_that_was_replaced_in_its_file_is_used_once_the_old_one_is_refused(
    little: LittleApi, watch: Callable[..., Watch], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    little.token = token.read_text()
    little.put("things", thing("a"))
    seen = watch(tokenFile=str(token))
    seen.things.wait("a")
    token.write_text("second")
    little.token = token.read_text()
    little.stop()  # what is open goes on with the old token
    little.start()
    little.put("things", thing("b"))
    seen.things.wait("a", "b")
    assert seen.things.lists == 1


def test_wrong_credentials_are_not_read_over_and_over(little: LittleApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[float] = [0.0]
    loads: list[str | None] = []
    load = api_module._Access.load

    def counted(path: str | None) -> Any:
        loads.append(path)
        return load(path)

    monkeypatch.setattr(api_module._Access, "load", counted)
    little.token = "of another"  # noqa: S105  no secret
    api = ApiServer(str(little.kubeconfig(tmp_path)), lambda: now[0])
    for _ in range(5):
        with pytest.raises(KubernetesError, match="check the token"):
            api.get("/api/things")
    assert len(loads) == 2
    now[0] += api_module.RENEW_S
    with pytest.raises(KubernetesError):
        api.get("/api/things")
    assert len(loads) == 3


def test_objects_can_be_created_one_after_the_other(little: LittleApi, tmp_path: Path) -> None:
    """A connection whose answer was not read to its end cannot carry another request."""
    api = ApiServer(str(little.kubeconfig(tmp_path)))
    for _ in range(5):
        api.post("/api/things", {})
    assert little.count("things", "create") == 5


def test_blindness_is_told_until_the_watch_is_open_again(little: LittleApi, watch: Callable[[], Watch]) -> None:
    seen = watch()
    little.wait("things", "watch", 1)
    until(lambda: seen.watcher.blind_s() == 0)
    little.stop()
    until(lambda: seen.watcher.blind_s() > 0.1)
    little.start()
    until(lambda: seen.watcher.blind_s() == 0)


# -- the whole service ----------------------------------------------------------------------------------------------


def gpu_node(name: str) -> dict[str, Any]:
    raw = simulated_nodes.manifest(SimulatedNode(name=name, machine="hgx-h100"))
    raw["metadata"]["uid"] = name
    return raw


def gpu_pod(name: str, on: str | None, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"containers": [container], "schedulerName": "default-scheduler"} | ({"nodeName": on} if on else {})
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec, "status": {}}


class Running:
    """A service, and those who ask it."""

    def __init__(self, little: LittleApi, folder: Path) -> None:
        self.died = threading.Event()
        path = folder / "s.sock"
        config = Config(
            socket=str(path), kubeconfig=str(little.kubeconfig(folder)), http_host="127.0.0.1", http_port=0, log_level="warning"
        )
        self.service = Service(config, LOGGER, self.died.set)
        self.service.start()
        self.channel = grpc.insecure_channel(f"unix:{path}")
        self.plugin = scheduler_pb2_grpc.SchedulerPluginStub(self.channel)
        self.inspect = inspect_pb2_grpc.InspectStub(self.channel)

    def stop(self) -> None:
        self.channel.close()
        self.service.stop()

    def readyz(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.service.http_port}/readyz", timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as cause:
            with cause:
                return cause.code, cause.read().decode()

    def serves(self) -> bool:
        answer = health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def free(self) -> int:
        # Without a time-out: gRPC counts it from the time of day, which a test sets.
        return int(self.inspect.GetState(inspect_pb2.GetStateRequest()).gpus_free)

    def greet(self) -> None:
        """Say, as a scheduler that connects, that nothing is held."""
        self.plugin.Resync(scheduler_pb2.ResyncRequest(attempt=attempt()), timeout=WAIT_S)

    def filter(self, uid: str, gpus: int, session: int = 1) -> scheduler_pb2.FilterResponse:
        table = self.plugin.Nodes(scheduler_pb2.NodesRequest(), timeout=WAIT_S)
        known = len(table.names)
        eligible = scheduler_pb2.NodeSet(epoch=table.epoch, bitmap=((1 << known) - 1).to_bytes(8, "little"), known=known)
        request = scheduler_pb2.FilterRequest(attempt=attempt(session), pod=waiting_pod(uid, gpus), eligible=eligible)
        return self.plugin.Filter(request, timeout=WAIT_S)


def attempt(session: int = 1, number: int = 1) -> scheduler_pb2.Attempt:
    return scheduler_pb2.Attempt(session=session, number=number, host="h")


def waiting_pod(uid: str, gpus: int = 1) -> scheduler_pb2.Pod:
    kind = scheduler_pb2.ContainerRequest.KIND_APP
    container = scheduler_pb2.ContainerRequest(name="main", kind=kind, resource=GPU, gpus=gpus)
    return scheduler_pb2.Pod(uid=uid, namespace="default", name=uid, containers=[container])


@pytest.fixture
def running(little: LittleApi, tmp_path: Path) -> Iterator[Running]:
    little.put("nodes", gpu_node("n1"))
    little.put("pods", gpu_pod("p1", "n1", 2))
    found = Running(little, tmp_path)
    yield found
    found.stop()
    assert not found.died.is_set()


def test_service_is_not_ready_before_it_knows_nodes_and_pods_and_becomes_so_by_itself(
    little: LittleApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyscheduler.app.OBJECTS_S", 0.1)
    little.put("nodes", gpu_node("n1"))
    little.put("pods", gpu_pod("p1", "n1", 2))
    held = threading.Event()

    def hold(exchange: Exchange) -> None:
        held.wait(WAIT_S)
        little.list(exchange)

    little.fault("pods", "list", hold)
    little.stop()
    running = Running(little, tmp_path)
    try:
        assert running.readyz() == (503, "not ready: the list of nodes has not been read yet\n")
        assert not running.serves()
        with pytest.raises(grpc.RpcError) as caught:
            running.filter("u1", 1)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        little.start()
        little.wait("pods", "list", 1)
        assert running.readyz() == (503, "not ready: the list of pods has not been read yet\n")
        assert not running.serves()
        held.set()
        until(running.serves)
        assert running.readyz()[0] == 200
        assert running.free() == 6
    finally:
        held.set()
        running.stop()


def test_service_stays_ready_while_the_api_server_is_away_and_catches_up(little: LittleApi, running: Running) -> None:
    until(running.serves)
    until(lambda: running.readyz() == (200, "ok\n"))
    running.greet()
    little.stop()
    answer = running.filter("u1", 6)
    assert answer.verdict.code == scheduler_pb2.Verdict.CODE_OK
    assert running.readyz()[0] == 200
    assert running.serves()
    little.delete("pods", "p1")
    little.put("nodes", gpu_node("n2"))
    assert running.free() == 6
    little.start()
    until(lambda: running.free() == 16)


def test_readiness_tells_for_how_long_changes_have_not_been_seen(
    little: LittleApi, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyscheduler.app.BLIND_S", 0.0)
    until(running.serves)
    little.stop()
    until(lambda: running.service._pod_watch.blind_s() > 0)
    status, text = running.readyz()
    assert (status, "pods" in text) == (200, True)


@pytest.mark.parametrize("step_s", [HOURS_S, -HOURS_S], ids=["forward", "back"])
def test_wall_clock_that_jumps_ends_and_revives_nothing(
    little: LittleApi, running: Running, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    until(running.serves)
    until(lambda: little.count("pods", "watch") == 1)
    running.greet()
    table = running.plugin.Nodes(scheduler_pb2.NodesRequest())
    reserve = scheduler_pb2.ReserveRequest(attempt=attempt(), pod=waiting_pod("u1", 2), epoch=table.epoch, node=0)
    first = running.plugin.Reserve(reserve)
    assert first.verdict.code == scheduler_pb2.Verdict.CODE_OK
    little.delete("pods", "p1")
    until(lambda: running.free() == 6)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step_s)
    # A reservation does not expire, and is the same; a pod that is gone stays gone.
    assert running.plugin.Reserve(reserve).annotations == first.annotations
    late = scheduler_pb2.ReserveRequest(attempt=attempt(), pod=waiting_pod("p1", 2), epoch=table.epoch, node=0)
    assert running.plugin.Reserve(late).verdict.reason == "the pod was deleted"
    holding = running.inspect.ListHoldings(inspect_pb2.ListHoldingsRequest()).holdings[0]
    assert (holding.pod_uid, 0 <= holding.age_seconds < WAIT_S) == ("u1", True)
    # Nothing is read anew, and nothing is missed.
    little.put("pods", gpu_pod("p2", "n1", 4))
    until(lambda: running.free() == 2)
    assert [little.count(kind, verb) for kind in ("nodes", "pods") for verb in ("list", "watch")] == [1, 1, 1, 1]


def test_time_outs_are_counted_on_a_clock_that_does_not_jump() -> None:
    """Who asks for the time of day is listed here, with what for."""
    allowed = {
        "adapters/cards.py",  # samples of Prometheus have the time of day
        "adapters/metrics_collector.py",  # the same
        "adapters/prometheus_session.py",  # the same: it asks for a span of it
        "adapters/events.py",  # says when in an Event
        "adapters/linter.py",  # the age of documents, which say when they were written
        "app.py",  # the same; and the epoch, which is a name
        "readers/document_values.py",  # reads the times that documents say
        "readers/objects.py",  # reads the time of a binding
    }
    root = Path("pyscheduler")
    asks = ("time.time", "datetime.", "from time import")
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if not {"pb", "cli"} & set(path.parts) and any(each in path.read_text(encoding="utf-8") for each in asks)
    }
    assert found - allowed == set()


# -- callers --------------------------------------------------------------------------------------------------------


class Silent:
    """Hears of calls, and keeps nothing."""

    def call(self, *_: object, **__: object) -> None: ...

    def failed(self, *_: object, **__: object) -> None: ...


class Edge:
    """The real server round a planner that the test holds."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.sock"
        self.lock = threading.Lock()
        self.planner = planner(node("n1"))
        self.changes = Changes(self.planner, self.lock, time.monotonic, Silent())
        common: dict[str, Any] = {"ready": lambda: True, "clock": time.monotonic, "log": Silent(), "version": "test"}
        plugin = PluginServicer(self.planner, self.lock, changes=self.changes, settle=lambda _: None, **common)
        self.server = EdgeServer(self.path, plugin, InspectServicer(self.planner.cluster, self.lock, **common))
        self.server.start()
        self.server.serving()
        self.channels: list[grpc.Channel] = []

    def plugin(self) -> scheduler_pb2_grpc.SchedulerPluginStub:
        """Return a stub on a connection of its own."""
        # Without the first all channels of a process to one address share a connection; the second keeps buffers small.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
        self.channels.append(grpc.insecure_channel(f"unix:{self.path}", options=options))
        return scheduler_pb2_grpc.SchedulerPluginStub(self.channels[-1])

    def listen(self) -> Any:
        """Open a stream of changes of which nobody takes anything but the first message."""
        stream = self.plugin().Changes(scheduler_pb2.ChangesRequest(attempt=attempt()), timeout=10 * WAIT_S)
        next(stream)
        return stream

    def wake(self, monkeypatch: pytest.MonkeyPatch, pods: int) -> None:
        """Let the planner name so many other pods at each look."""
        looks = iter(range(10**9))
        monkeypatch.setattr(
            self.planner,
            "wake",
            lambda _: (frozenset({"freed"}), [PodUid(f"{look}-{i}-{'u' * 100}") for look in [next(looks)] for i in range(pods)]),
        )

    def stop(self) -> None:
        self.changes.stop()
        for channel in self.channels:
            channel.close()
        self.server.stop(1.0)


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    started = Edge(tmp_path)
    yield started
    started.stop()


def test_subscriber_that_takes_nothing_is_ended_and_harms_nobody(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "PODS_MAX", 5_000)
    edge.wake(monkeypatch, 100)
    stuck, sound = edge.changes.subscribe(), edge.listen()
    for _ in range(200):
        edge.changes.tell()
        assert len(next(sound).pod_uids) == 100
    # It ends, and what it did not take is not kept.
    assert list(stuck) == []
    assert list(edge.plugin().Nodes(scheduler_pb2.NodesRequest(), timeout=WAIT_S).names) == ["n1"]


def test_streams_that_nobody_reads_give_back_their_threads(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    # More than the buffers between the two hold.
    edge.wake(monkeypatch, changes_module.PODS_MAX)
    silent = []
    for _ in range(THREADS):
        silent.append(edge.listen())
        edge.changes.tell()
        until(lambda: list(edge.changes._subscribers)[-1]._pending is None)
    try:
        answer = edge.plugin().Nodes(scheduler_pb2.NodesRequest(), timeout=3)
        assert list(answer.names) == ["n1"]
    finally:
        for stream in silent:
            stream.cancel()


def test_of_many_calls_at_one_time_those_too_many_are_refused_at_once_and_the_others_answered(edge: Edge) -> None:
    stub, many = edge.plugin(), 200
    stub.Nodes(scheduler_pb2.NodesRequest(), timeout=WAIT_S)
    eligible = scheduler_pb2.NodeSet(epoch=1, bitmap=b"\x01", known=1)
    with edge.lock:  # nobody is judged
        calls = [
            stub.Filter.future(scheduler_pb2.FilterRequest(attempt=attempt(), pod=waiting_pod(f"u{i}"), eligible=eligible))
            for i in range(many)
        ]
        until(lambda: sum(call.done() for call in calls) == many - CALLS_MAX)
        assert {call.code() for call in calls if call.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    codes = [call.code() for call in calls]
    assert codes.count(grpc.StatusCode.OK) == CALLS_MAX


class Late:
    """What a handler sees of a call whose caller has given up."""

    def __init__(self) -> None:
        self.codes: list[grpc.StatusCode] = []

    def time_remaining(self) -> float:
        return 0.0

    def abort(self, code: grpc.StatusCode, _: str) -> None:
        self.codes.append(code)
        raise InterruptedError


def test_call_that_waited_until_its_caller_gave_up_is_not_begun() -> None:
    begun: list[Any] = []
    late = Late()

    def judge(request: Any, _: object) -> scheduler_pb2.FilterResponse:
        begun.append(request)
        return scheduler_pb2.FilterResponse()

    call = guarded("Filter", judge, ready=lambda: True, clock=time.monotonic, log=Silent())
    with pytest.raises(InterruptedError):
        call(scheduler_pb2.FilterRequest(), late)  # type: ignore[arg-type]
    assert (begun, late.codes) == ([], [grpc.StatusCode.DEADLINE_EXCEEDED])


def test_clients_that_do_not_ask_do_not_keep_probes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "SILENCE_S", 10 * WAIT_S)
    server = HttpServer("127.0.0.1", 0, {"/healthz": lambda: (200, b"ok\n")})
    server.start()
    before = threading.active_count()
    with contextlib.ExitStack() as silent:
        for _ in range(3 * http_module.REQUESTS_MAX):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=WAIT_S) as answer:
                assert answer.read() == b"ok\n"
        assert threading.active_count() - before <= http_module.REQUESTS_MAX
    server.stop()


def test_requests_that_wait_for_a_lock_are_bounded_and_the_next_are_refused() -> None:
    lock, asked = threading.Lock(), threading.Semaphore(0)

    def metrics() -> tuple[int, bytes]:
        asked.release()
        with lock:
            return 200, b"ok\n"

    server = HttpServer("127.0.0.1", 0, {"/metrics": metrics})
    server.start()
    with lock, contextlib.ExitStack() as waiting:
        for _ in range(http_module.REQUESTS_MAX):
            client = waiting.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        for _ in range(http_module.REQUESTS_MAX):
            assert asked.acquire(timeout=WAIT_S)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=WAIT_S)
        with caught.value as refusal:
            assert refusal.code == 503
    until(lambda: not server._server._open)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=WAIT_S) as answer:
        assert answer.status == 200
    server.stop()


# -- the service's own parts ----------------------------------------------------------------------------------------


def test_orphans_that_are_named_again_and_again_wait_once(little: LittleApi, tmp_path: Path) -> None:
    """The shim names them every 30 s; while the API server is away nobody settles them."""
    plan, lock = planner(node("n1")), threading.Lock()
    orphans = tuple(
        Holding(PodUid(f"u{i}"), "default", f"u{i}", 0, HoldingState.RESERVED, 1, (), 0.0, "chosen") for i in range(3)
    )
    for orphan in orphans:
        plan.cluster.refresh(plan.cluster.ledger.adopt(orphan, plan.cluster.state(0).facts))
    api = ApiServer(str(little.kubeconfig(tmp_path)))
    settler = Settler(api, plan, lock, time.monotonic, ObjectReader((GPU,)), LOGGER)
    for _ in range(100):
        settler.submit(orphans)
    assert settler.waiting() == 3
    little.put("pods", gpu_pod("u0", None, 1))
    settler.start()
    until(lambda: not plan.cluster.ledger.holdings())
    settler.stop()
    assert little.count("pods", "list") == 3


def test_worker_that_is_killed_is_replaced() -> None:
    worker = Worker()
    first = worker.run(os.getpid)
    os.kill(first, 9)
    until(lambda: not Path(f"/proc/{first}").exists() or _is_zombie(first))
    assert worker.run(os.getpid) != first
    worker.stop()


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


_HOLDS_A_WORKER = """
import os, sys, time
from pyscheduler.adapters.worker import Worker
if __name__ == "__main__":
    print(Worker().run(os.getpid), flush=True)
    sys.stdin.read()
"""


def test_worker_ends_with_a_service_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "holds_a_worker.py"
    program.write_text(_HOLDS_A_WORKER)
    with subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as service:
        assert service.stdout is not None
        worker = int(service.stdout.readline())
        service.kill()
    until(lambda: not Path(f"/proc/{worker}").exists() or _is_zombie(worker))

"""Events are written beside what goes on, by the service that leads, and each once."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters import events as events_module
from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.events import EventWriter, Subject
from pyscheduler.errors import KubernetesError

WAIT_S = 20.0


class SlowApi:
    """Takes Events when `gate` is open; refuses those on objects in `refuses`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.refuses: set[str] = set()
        self.written: queue.Queue[dict[str, Any]] = queue.Queue()
        self.tried = threading.Semaphore(0)
        self.paths: list[str] = []

    def post(self, path: str, event: dict[str, Any]) -> None:
        self.paths.append(path)
        self.tried.release()
        assert self.gate.wait(WAIT_S)
        if event["involvedObject"]["name"] in self.refuses:
            raise KubernetesError("events is forbidden: grant the rights of deploy/rbac")
        self.written.put(event)

    def next(self) -> str:
        """Return the name of the object of the next Event that is written."""
        return str(self.written.get(timeout=WAIT_S)["involvedObject"]["name"])


class Writer(EventWriter):
    """A writer whose clock stands at `now`."""

    def __init__(self, api: SlowApi) -> None:
        self.now = 0.0
        super().__init__(cast("ApiServer", api), "gpu-0", lambda: self.now, lambda: 0.0, structlog.get_logger())


@pytest.fixture
def api() -> SlowApi:
    return SlowApi()


@pytest.fixture
def writer(api: SlowApi) -> Iterator[Writer]:
    started = Writer(api)
    started.start()
    yield started
    started.stop()
    api.gate.set()


def tell(writer: EventWriter, *names: str) -> None:
    for name in names:
        writer.tell(Subject("Node", name, f"uid-of-{name}"), "Odd", f"{name} is odd; mend it")


def test_event_names_object_fault_and_writer(api: SlowApi, writer: Writer) -> None:
    api.gate.set()
    writer.lead(True)
    writer.tell(Subject("Pod", "p", "uid-of-p", "team"), "Odd", "its GPU is odd; mend it")
    event = api.written.get(timeout=WAIT_S)
    assert api.paths == ["/api/v1/namespaces/team/events"]
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "team", "uid": "uid-of-p"}
    assert (event["metadata"]["namespace"], event["involvedObject"]) == ("team", about)
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Odd", "its GPU is odd; mend it")
    assert event["source"] == {"component": "pyscheduler", "host": "gpu-0"}
    assert event["firstTimestamp"] == "1970-01-01T00:00:00Z"


def test_event_on_what_has_no_namespace_is_in_the_default_one(api: SlowApi, writer: Writer) -> None:
    api.gate.set()
    writer.lead(True)
    tell(writer, "a")
    event = api.written.get(timeout=WAIT_S)
    assert (event["metadata"]["namespace"], "namespace" in event["involvedObject"]) == ("default", False)


def test_telling_does_not_wait_for_the_api_server(api: SlowApi, writer: Writer) -> None:
    writer.lead(True)
    names = [f"n{i}" for i in range(50)]
    tell(writer, *names)
    assert api.written.empty()
    api.gate.set()
    assert [api.next() for _ in names] == names


def test_refusal_costs_one_event_alone(api: SlowApi, writer: Writer) -> None:
    api.refuses = {"a"}
    writer.lead(True)
    with capture_logs() as logs:
        tell(writer, "a", "b")
        api.gate.set()
        assert api.next() == "b"
    assert [(line["event"], line["node"]) for line in logs] == [("event not written", "a")]


def test_events_beyond_what_may_wait_are_logged_instead(api: SlowApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "_WAITING_MAX", 2)
    writer = Writer(api)
    writer.start()
    writer.lead(True)
    tell(writer, "first")
    assert api.tried.acquire(timeout=WAIT_S)
    with capture_logs() as logs:
        tell(writer, "second", "third", "too-many")
    assert [line["node"] for line in logs] == ["too-many"]
    # Those that wait do not keep it from ending.
    writer.stop()
    api.gate.set()
    writer._thread.join(WAIT_S)
    assert not writer._thread.is_alive()
    assert (api.next(), api.written.empty()) == ("first", True)


def test_standby_writes_nothing_until_it_leads(api: SlowApi, writer: Writer) -> None:
    api.gate.set()
    tell(writer, "never-led")
    writer.lead(False)
    tell(writer, "stands-by")
    assert not api.tried.acquire(timeout=0.05)
    writer.lead(True)
    assert [api.next(), api.next()] == ["never-led", "stands-by"]


def test_what_the_leader_before_has_long_told_is_not_told_again(api: SlowApi, writer: Writer) -> None:
    api.gate.set()
    writer.lead(False)
    tell(writer, "old")
    writer.now = events_module._STANDBY_S / 2
    tell(writer, "of-late")
    writer.now = events_module._STANDBY_S + 1
    writer.lead(True)
    assert (api.next(), api.written.empty()) == ("of-late", True)


def test_former_leader_writes_no_more(api: SlowApi, writer: Writer) -> None:
    writer.lead(True)
    tell(writer, "first", "second")
    assert api.tried.acquire(timeout=WAIT_S)
    writer.lead(False)
    api.gate.set()
    assert api.next() == "first"
    assert not api.tried.acquire(timeout=0.05)


def test_standby_keeps_the_latest_events_only(api: SlowApi, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "_WAITING_MAX", 2)
    api.gate.set()
    with capture_logs() as logs:
        tell(writer, "first", "second", "third")
        writer.lead(True)
        assert [api.next(), api.next()] == ["second", "third"]
    assert logs == []


def written_by(*subjects: Subject, message: str = "is odd") -> list[str]:
    """Return the names of the Events that a writer of its own makes for these objects."""
    api = SlowApi()
    api.gate.set()
    writer = Writer(api)
    writer.start()
    writer.lead(True)
    for subject in subjects:
        writer.tell(subject, "Odd", message)
    names = [api.written.get(timeout=WAIT_S)["metadata"]["name"] for _ in subjects]
    writer.stop()
    return names


def test_two_services_give_one_name_to_what_they_both_tell() -> None:
    # A list of nodes does not tell their UIDs.
    assert written_by(Subject("Node", "a", "a")) == written_by(Subject("Node", "a", "uid-of-a"))
    assert written_by(Subject("Pod", "p", "uid", "ns")) == written_by(Subject("Pod", "p", "uid", "ns"))


def test_other_things_have_other_names() -> None:
    pod = Subject("Pod", "p", "1", "ns")
    names = written_by(pod, Subject("Pod", "p", "2", "ns"), Subject("Node", "p", "p"))
    assert len({*names, *written_by(pod, message="is very odd")}) == 4


@pytest.mark.parametrize("name", ["a" * 253, "a" * 235 + "." + "b" * 17, "a" * 234 + "-." + "b" * 17])
def test_name_of_an_event_is_one_that_the_api_server_takes(name: str) -> None:
    [written] = written_by(Subject("Node", name, ""))
    assert len(written) <= 253
    assert all(label and label.strip("-") == label for label in written.split("."))


@pytest.fixture
def has_it_already(tmp_path: Path) -> Iterator[tuple[ApiServer, threading.Semaphore]]:
    """An API server that answers that there is an object of this name, and what is released by each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"kind": "Status", "reason": "AlreadyExists", "message": "exists", "code": 409}).encode()
            self.send_response(409)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            asked.release()

        def log_message(self, *args: object) -> None:
            pass

    asked = threading.Semaphore(0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    path = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    path.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "x"}))
    yield ApiServer(str(path)), asked
    server.shutdown()
    server.server_close()


def test_event_that_is_there_already_is_no_failure(has_it_already: tuple[ApiServer, threading.Semaphore]) -> None:
    api, asked = has_it_already
    writer = EventWriter(api, "gpu-0", lambda: 0.0, lambda: 0.0, structlog.get_logger())
    with capture_logs() as logs:
        writer.start()
        writer.lead(True)
        tell(writer, "a", "b")
        assert all(asked.acquire(timeout=WAIT_S) for _ in range(2))
        writer.stop()
        writer._thread.join(WAIT_S)
    assert logs == []

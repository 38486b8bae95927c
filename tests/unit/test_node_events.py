"""Events on nodes are written beside what goes on: a slow API server holds up no node."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters import node_events
from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.node_events import NodeEvents
from pyscheduler.core.findings import Finding
from pyscheduler.core.model import NodeFacts
from pyscheduler.errors import KubernetesError

WAIT_S = 20.0


class SlowApi:
    """Takes Events when `gate` is open; refuses those on nodes in `refuses`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.refuses: set[str] = set()
        self.written: queue.Queue[dict[str, Any]] = queue.Queue()
        self.tried = threading.Semaphore(0)

    def post(self, _path: str, event: dict[str, Any]) -> None:
        self.tried.release()
        assert self.gate.wait(WAIT_S)
        if event["involvedObject"]["name"] in self.refuses:
            raise KubernetesError("events is forbidden: grant the rights of deploy/rbac")
        self.written.put(event)


@pytest.fixture
def api() -> SlowApi:
    return SlowApi()


@pytest.fixture
def events(api: SlowApi) -> Iterator[NodeEvents]:
    started = NodeEvents(cast("ApiServer", api), lambda: 0.0, structlog.get_logger())
    started.start()
    yield started
    started.stop()
    api.gate.set()


def wrong(name: str) -> NodeFacts:
    """Return a node with something wrong."""
    return NodeFacts(name, findings=(Finding("odd", "its label is odd", "mend it"),))


def test_event_names_node_fault_and_remedy(api: SlowApi, events: NodeEvents) -> None:
    api.gate.set()
    events.tell(wrong("a"), "uid-of-a")
    event = api.written.get(timeout=WAIT_S)
    assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == ("a", "uid-of-a")
    assert (event["message"], event["firstTimestamp"]) == ("its label is odd; mend it", "1970-01-01T00:00:00Z")


def test_telling_does_not_wait_for_the_api_server(api: SlowApi, events: NodeEvents) -> None:
    with capture_logs() as logs:
        for i in range(50):
            events.tell(wrong(f"n{i}"), "")
    assert api.written.empty()
    assert [line["node"] for line in logs] == [f"n{i}" for i in range(50)]
    api.gate.set()
    assert [api.written.get(timeout=WAIT_S)["involvedObject"]["name"] for _ in range(50)] == [f"n{i}" for i in range(50)]


def test_refusal_costs_one_event_alone(api: SlowApi, events: NodeEvents) -> None:
    api.refuses = {"a"}
    with capture_logs() as logs:
        events.tell(wrong("a"), "")
        events.tell(wrong("b"), "")
        api.gate.set()
        assert api.written.get(timeout=WAIT_S)["involvedObject"]["name"] == "b"
    assert [line["node"] for line in logs if line["event"] == "event not written"] == ["a"]


def test_events_beyond_what_may_wait_are_logged_instead(api: SlowApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_events, "_WAITING_MAX", 2)
    events = NodeEvents(cast("ApiServer", api), lambda: 0.0, structlog.get_logger())
    events.start()
    events.tell(wrong("first"), "")
    assert api.tried.acquire(timeout=WAIT_S)
    with capture_logs() as logs:
        for name in ("second", "third", "too-many"):
            events.tell(wrong(name), "")
    assert [line["node"] for line in logs if line["event"] == "event not written"] == ["too-many"]
    # A full queue does not keep it from ending.
    events.stop()
    api.gate.set()
    assert api.written.get(timeout=WAIT_S)["involvedObject"]["name"] == "first"
    with pytest.raises(queue.Empty):
        api.written.get(timeout=0.05)

"""The node simulator against an API server that a test plays."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, cast

import pytest

from deploy.local.api import Api, Object
from deploy.local.errors import ApiError, LocalError
from deploy.local.simulated_nodes import IN_USE, NODES, SIMULATE, SimulatedNode, manifest
from deploy.local.simulator import Simulator

NVIDIA = "nvidia.com/gpu"


class FakeApi:
    """Plays the part of `Api` that the simulator uses: events that the test sends, writes that it looks at."""

    def __init__(self) -> None:
        self.events: dict[str, SimpleQueue[tuple[str, Object]]] = {}
        self.writes: list[tuple[float, str, Object]] = []
        self.failures: dict[str, list[LocalError]] = {}
        self._changed = threading.Condition()

    def follow(self, path: str, **_: str) -> Iterator[tuple[str, Object]]:
        queue = self.queue(path)
        while True:
            yield queue.get()

    def queue(self, path: str) -> SimpleQueue[tuple[str, Object]]:
        return self.events.setdefault(path, SimpleQueue())

    def patch(self, path: str, body: Object) -> Object:
        return self._write(path, body)

    def patch_status(self, path: str, status: Object, uid: str | None = None) -> Object:
        return self._write(f"{path}/status", {"status": status, "uid": uid})

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=30), self.writes

    def happens(self, condition: Callable[[], bool], within_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout=within_s)

    def to(self, path: str) -> list[Object]:
        return [body for _, where, body in self.writes if where == path]

    def reports(self, node: str) -> list[dict[str, Any]]:
        annotations = [body["metadata"]["annotations"] for body in self.to(f"{NODES}/{node}")]
        return [json.loads(each[IN_USE])["pods"] for each in annotations if IN_USE in each]

    def _write(self, path: str, body: Object) -> Object:
        with self._changed:
            self.writes.append((time.monotonic(), path, body))
            self._changed.notify_all()
            if waiting := self.failures.get(path):
                raise waiting.pop(0)
        return {}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A simulator runs against it, and knows node `n`."""
    api = FakeApi()
    simulator = Simulator(cast(Api, api), release_delay_s=0)
    ready = threading.Event()
    thread = threading.Thread(target=simulator.run, args=(ready.set,))
    thread.start()
    api.queue(NODES).put(("LIST", {"items": [node()]}))
    api.queue("/api/v1/pods").put(("LIST", {"items": []}))
    assert ready.wait(timeout=30)
    api.wait(lambda: api.reports("n") == [{}])
    yield api
    simulator.stop()
    thread.join(timeout=30)
    assert not thread.is_alive()


def node(name: str = "n", instructions: str | None = None) -> Object:
    item = manifest(SimulatedNode(name=name, machine="dgx-1v"))
    if instructions is not None:
        item["metadata"]["annotations"][SIMULATE] = instructions
    return item


def pod(uid: str, gpus: int = 1, phase: str = "Pending", where: str = "n") -> Object:
    container = {"name": "main", "image": "pause", "resources": {"limits": {NVIDIA: str(gpus)}}}
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"nodeName": where, "containers": [container]},
        "status": {"phase": phase},
    }


def send(api: FakeApi, kind: str, item: Object) -> None:
    api.queue("/api/v1/pods").put((kind, item))


def status_path(uid: str) -> str:
    return f"/api/v1/namespaces/default/pods/{uid}/status"


def test_burst_of_pods_makes_few_reports(api: FakeApi) -> None:
    """The first may go out at once, the others wait together."""
    send(api, "LIST", {"items": [pod(f"u{number}") for number in range(8)]})
    api.wait(lambda: len(api.reports("n")[-1]) == 8)
    assert len(api.reports("n")) <= 3


def test_admitted_pod_runs(api: FakeApi) -> None:
    send(api, "ADDED", pod("u1"))
    api.wait(lambda: bool(api.to(status_path("u1"))))
    [written] = api.to(status_path("u1"))
    assert (written["status"]["phase"], written["uid"]) == ("Running", "u1")


def test_pod_is_judged_once_however_often_it_changes(api: FakeApi) -> None:
    send(api, "ADDED", pod("large", gpus=9))
    send(api, "MODIFIED", pod("large", gpus=9))
    send(api, "ADDED", pod("small"))
    api.wait(lambda: bool(api.to(status_path("small"))))
    assert [body["status"]["phase"] for body in api.to(status_path("large"))] == ["Failed"]


@pytest.mark.parametrize("last", [("MODIFIED", "Succeeded"), ("MODIFIED", "Failed"), ("DELETED", "Running")])
def test_devices_of_an_ended_pod_are_reported_free(api: FakeApi, last: tuple[str, str]) -> None:
    send(api, "ADDED", pod("u1"))
    api.wait(lambda: "u1" in api.reports("n")[-1])
    send(api, last[0], pod("u1", phase=last[1]))
    api.wait(lambda: "u1" not in api.reports("n")[-1])


def test_pod_that_is_seen_before_its_node_gets_its_devices(api: FakeApi) -> None:
    send(api, "ADDED", pod("early", where="m"))
    send(api, "ADDED", pod("late"))
    api.wait(lambda: bool(api.to(status_path("late"))))
    api.queue(NODES).put(("ADDED", node("m")))
    api.wait(lambda: bool(api.to(status_path("early"))))
    api.wait(lambda: any("early" in report for report in api.reports("m")))


def test_pod_that_ended_unseen_is_found_by_the_next_list(api: FakeApi) -> None:
    send(api, "ADDED", pod("u1"))
    api.wait(lambda: "u1" in api.reports("n")[-1])
    send(api, "LIST", {"items": []})
    api.wait(lambda: "u1" not in api.reports("n")[-1])


def test_failed_write_is_repeated(api: FakeApi) -> None:
    api.failures[status_path("u1")] = [LocalError("the API server does not answer")]
    send(api, "ADDED", pod("u1"))
    api.wait(lambda: len(api.to(status_path("u1"))) == 2)


def test_write_to_a_gone_pod_is_not_repeated(api: FakeApi) -> None:
    api.failures[status_path("u1")] = [ApiError("PATCH", 404, "NotFound", "gone")]
    send(api, "ADDED", pod("u1"))
    api.wait(lambda: len(api.to(status_path("u1"))) == 1)
    assert not api.happens(lambda: len(api.to(status_path("u1"))) > 1, within_s=1.5)


def test_bad_instructions_are_logged_and_change_nothing(api: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        api.queue(NODES).put(("MODIFIED", node(instructions='{"gpu": 6}')))
        # Nodes and pods come on threads of their own: the report of a later node tells that the instructions were read.
        api.queue(NODES).put(("ADDED", node("m")))
        api.wait(lambda: bool(api.reports("m")))
        send(api, "ADDED", pod("u1", gpus=8))
        api.wait(lambda: bool(api.to(status_path("u1"))))
    assert api.to(status_path("u1"))[0]["status"]["phase"] == "Running"
    assert not api.to(f"{NODES}/n/status")
    assert "unknown gpu; known are ready, gpus, refusePods, releaseSeconds" in caplog.text


def test_node_that_is_no_machine_of_ours_is_logged_and_left_alone(api: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    stranger = node("x")
    stranger["metadata"]["annotations"] = {}
    with caplog.at_level(logging.ERROR):
        api.queue(NODES).put(("ADDED", stranger))
        api.queue(NODES).put(("ADDED", node("m")))
        api.wait(lambda: bool(api.reports("m")))
    assert "is not one of dgx-1v" in caplog.text
    assert not api.to(f"{NODES}/x")


def test_lost_gpus_are_written_before_they_come_back(api: FakeApi) -> None:
    api.queue(NODES).put(("MODIFIED", node(instructions='{"gpus": 6}')))
    api.queue(NODES).put(("MODIFIED", node()))
    api.queue(NODES).put(("MODIFIED", node(instructions='{"gpus": 2}')))
    api.wait(lambda: bool(api.to(f"{NODES}/n/status")) and api.to(f"{NODES}/n/status")[-1]["status"]["capacity"][NVIDIA] == "2")
    assert api.to(f"{NODES}/n/status")[-1]["status"]["allocatable"][NVIDIA] == "2"

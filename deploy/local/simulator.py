"""The node simulator: it plays device manager and agent of every simulated node.

It watches nodes and bound pods, gives pods their devices, lets them run or refuses them, and reports on the node what
is in use. One thread decides; it takes events from a queue. Others carry events to it and requests to the API server.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from deploy.local import machines
from deploy.local.api import Api, Object
from deploy.local.components import SIMULATED_LABEL
from deploy.local.devices import DeviceManager, GpuPod, Instructions, Refusal
from deploy.local.errors import ApiError, LocalError
from deploy.local.simulated_nodes import IN_USE, MACHINE, NODES, SIMULATE, TOPOLOGY, encode_topology, first_gpus, now

_PODS: Final = "/api/v1/pods"
_REPORT_INTERVAL_S: Final = 0.1
_WRITERS: Final = 8
_RETRY_S: Final = 0.5
_TERMINAL: Final = ("Succeeded", "Failed")
# The object is gone, or another of the same name stands in its place: there is nothing left to write.
_GONE: Final = (404, 409)

_log = logging.getLogger("simulator")

Event = Callable[[], None]
Request = Callable[[], object]


@dataclass(slots=True)
class _Node:
    """What the simulator knows of a node.

    Attributes
    ----------
    announced
        Number of GPUs that the Node object shows.
    reported_at_s
        When `in-use` was last sent.
    stale
        Whether it is to be sent again.
    sending
        Whether requests about it are on their way.

    """

    name: str
    machine: str
    devices: DeviceManager
    announced: int
    reported_at_s: float = float("-inf")
    stale: bool = True
    sending: bool = False

    @property
    def resource(self) -> str:
        return machines.resource(self.machine)


class Simulator:
    """The state of all simulated nodes. Its methods are called by one thread."""

    def __init__(self, api: Api, release_delay_s: float) -> None:
        self._api = api
        self._release_delay_s = release_delay_s
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._nodes: dict[str, _Node] = {}
        self._early: defaultdict[str, dict[str, Object]] = defaultdict(dict)  # pods of nodes not seen yet, by node
        self._timers: list[tuple[float, str]] = []
        self._writers = ThreadPoolExecutor(_WRITERS)
        self._stopped = threading.Event()
        self._follows_pods = False
        self._ready: Callable[[], None] | None = None

    def run(self, ready: Callable[[], None]) -> None:
        """Simulate until `stop`; `ready` is called once all nodes and pods are known."""
        self._ready = ready
        self._follow(NODES, self._on_node, self._on_nodes, labelSelector=f"{SIMULATED_LABEL}=true")
        while not self._stopped.is_set():
            self._take_event()
            self._fire_timers()
        self._writers.shutdown(cancel_futures=True)

    def stop(self) -> None:
        """End `run`; may be called by any thread or signal handler."""
        self._stopped.set()
        self._events.put(lambda: None)

    def _take_event(self) -> None:
        timeout_s = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        try:
            self._events.get(timeout=timeout_s)()
        except Empty:
            return

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            _, name = heapq.heappop(self._timers)
            if node := self._nodes.get(name):
                node.stale |= node.devices.release(time.monotonic())
                self._sync(node)

    def _on_nodes(self, items: list[Object]) -> None:
        for name in self._nodes.keys() - {item["metadata"]["name"] for item in items}:
            del self._nodes[name]
        for item in items:
            self._on_node("ADDED", item)
        if not self._follows_pods:
            # Only now: which pods have ended while nobody watched shows against the devices that the nodes report.
            self._follows_pods = True
            self._follow(_PODS, self._on_pod, self._on_pods, fieldSelector="spec.nodeName!=")

    def _on_node(self, kind: str, item: Object) -> None:
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self._nodes.pop(name, None)
            return
        node = self._nodes.get(name)
        if node is None:
            node = _new_node(item)
            if node is None:
                return
            self._nodes[name] = node
        self._instruct(node, item)
        for pod in self._early.pop(name, {}).values():
            self._on_pod("ADDED", pod)
        self._sync(node)

    def _instruct(self, node: _Node, item: Object) -> None:
        text = item["metadata"]["annotations"].get(SIMULATE)
        try:
            node.devices.instructions = Instructions.parse(text)
        except (ValueError, TypeError) as error:
            _log.error("node %s: annotation %s=%r cannot be used: %s", node.name, SIMULATE, text, error)

    def _on_pods(self, items: list[Object]) -> None:
        alive = {item["metadata"]["uid"] for item in items}
        self._early.clear()
        for node in self._nodes.values():
            for uid in node.devices.held.keys() - alive:
                self._end(node, uid)
        for item in items:
            self._on_pod("ADDED", item)
        if self._ready:
            self._ready()
            self._ready = None

    def _on_pod(self, kind: str, item: Object) -> None:
        uid, name = item["metadata"]["uid"], item["spec"]["nodeName"]
        node = self._nodes.get(name)
        if kind == "DELETED" or item["status"].get("phase") in _TERMINAL:
            self._early.get(name, {}).pop(uid, None)
            if node:
                self._end(node, uid)
        elif node is None:
            self._early[name][uid] = item
        elif kind == "ADDED" and (pod := GpuPod.of(item, node.resource)):
            self._admit(node, pod, item)

    def _admit(self, node: _Node, pod: GpuPod, item: Object) -> None:
        refusal = node.devices.admit(pod)
        if refusal:
            _log.info("node %s refuses pod %s: %s", node.name, pod.uid, refusal.message)
        else:
            node.stale = True
            self._sync(node)
        if item["status"].get("phase") == "Pending":
            status = _refused(refusal) if refusal else _running(item)
            self._write([partial(self._api.patch_status, _pod_path(item), status, pod.uid)])

    def _end(self, node: _Node, uid: str) -> None:
        at_s = node.devices.end(uid, time.monotonic(), self._release_delay_s)
        if at_s is not None:
            heapq.heappush(self._timers, (at_s, node.name))

    def _sync(self, node: _Node) -> None:
        """Write to the Node object what it does not show yet; one write at a time, so that none overtakes another."""
        if node.sending:
            return
        if requests := [*self._capacity(node), *self._report(node)]:
            node.sending = True
            self._write(requests, then=partial(self._sent, node))

    def _sent(self, node: _Node) -> None:
        node.sending = False
        self._sync(node)

    def _capacity(self, node: _Node) -> list[Request]:
        count = len(node.devices.present)
        if count == node.announced:
            return []
        node.announced = count
        _log.info("node %s has %s GPUs now", node.name, count)
        amounts = {"capacity": {node.resource: str(count)}, "allocatable": {node.resource: str(count)}}
        topology = encode_topology(first_gpus(machines.document(node.machine, node.name), count))
        path = f"{NODES}/{node.name}"
        return [partial(self._api.patch_status, path, amounts), partial(self._api.patch, path, _annotate(TOPOLOGY, topology))]

    def _report(self, node: _Node) -> list[Request]:
        """Return the report of what is in use, if it is stale; if the last one is too recent, at a later call."""
        if not node.stale:
            return []
        due_s = node.reported_at_s + _REPORT_INTERVAL_S
        if time.monotonic() < due_s:
            heapq.heappush(self._timers, (due_s, node.name))
            return []
        node.stale, node.reported_at_s = False, time.monotonic()
        report = json.dumps({"observed_at": now(), "pods": node.devices.held}, separators=(",", ":"))
        return [partial(self._api.patch, f"{NODES}/{node.name}", _annotate(IN_USE, report))]

    def _write(self, requests: list[Request], then: Event | None = None) -> None:
        self._writers.submit(self._write_now, requests, then)

    def _write_now(self, requests: list[Request], then: Event | None) -> None:
        for request in requests:
            self._insist(request)
        if then:
            self._events.put(then)

    def _insist(self, request: Request) -> None:
        while not self._stopped.is_set():
            try:
                request()
            except LocalError as error:
                if isinstance(error, ApiError) and error.status in _GONE:
                    return
                _log.warning("%s; trying again", error)
                self._stopped.wait(_RETRY_S)
            else:
                return

    def _follow(
        self,
        path: str,
        on_change: Callable[[str, Object], None],
        on_list: Callable[[list[Object]], None],
        **query: str,
    ) -> None:
        def carry() -> None:
            for kind, item in self._api.follow(path, **query):
                if kind == "LIST":
                    self._events.put(partial(on_list, item["items"]))
                else:
                    self._events.put(partial(on_change, kind, item))

        def carry_on() -> None:
            while not self._stopped.is_set():
                try:
                    carry()
                except LocalError as error:
                    _log.warning("%s; trying again", error)
                    self._stopped.wait(_RETRY_S)

        threading.Thread(target=carry_on, name=f"watch {path}", daemon=True).start()


def run(kubeconfig: Path, ready_file: Path, release_delay_s: float) -> None:
    """Simulate until SIGTERM; write the pid into `ready_file` once all nodes are known."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    simulator = Simulator(Api(kubeconfig), release_delay_s)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: simulator.stop())
    simulator.run(lambda: _write_whole(ready_file, str(os.getpid())))


def _write_whole(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def _new_node(item: Object) -> _Node | None:
    """Return a node as its object shows it, with the devices that it reported in an earlier life; None if not ours."""
    annotations = item["metadata"].get("annotations") or {}
    name, machine = item["metadata"]["name"], annotations.get(MACHINE)
    if machine not in machines.NAMES:
        _log.error("node %s: annotation %s=%r is not one of %s", name, MACHINE, machine, ", ".join(machines.NAMES))
        return None
    uuids = tuple(gpu["uuid"] for gpu in machines.document(machine, name)["gpus"])
    held = json.loads(annotations.get(IN_USE, '{"pods":{}}'))["pods"]
    announced = int(item["status"]["capacity"].get(machines.resource(machine), 0))
    return _Node(name, machine, DeviceManager(uuids, held=held), announced)


def _annotate(key: str, value: str) -> Object:
    return {"metadata": {"annotations": {key: value}}}


def _pod_path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _refused(refusal: Refusal) -> Object:
    return {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": refusal.message}


def _running(pod: Object) -> Object:
    since = now()[:19] + "Z"  # the API keeps whole seconds
    return {
        "phase": "Running",
        "startTime": since,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        "containerStatuses": [_container_running(container, since) for container in pod["spec"]["containers"]],
    }


def _container_running(container: Object, since: str) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": since}},
    }

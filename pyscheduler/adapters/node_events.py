"""Findings on nodes, told once: a log line and a Kubernetes Event that names the fix."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.core.model import NodeFacts
from pyscheduler.errors import KubernetesError

__all__ = ["NodeEvents"]

# Events that wait to be written. What is wrong with more nodes than this is told by lint, not node by node.
_WAITING_MAX: Final = 1000


class NodeEvents:
    """Posts Events of reason GPUTopologyFinding, from a thread of its own.

    An API server that is slow or away costs the Event, and never holds up a node.
    """

    def __init__(self, api: ApiServer, wall_clock: Callable[[], float], logger: FilteringBoundLogger) -> None:
        self._api = api
        self._wall_clock = wall_clock
        self._logger = logger
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_WAITING_MAX)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-events", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present Event; those that wait are not written."""
        self._stopped.set()
        with contextlib.suppress(queue.Full):  # then the thread is awake
            self._waiting.put_nowait(None)

    def tell(self, facts: NodeFacts, uid: str) -> None:
        """Tell what is wrong with the node's documents."""
        sentences = [f"{f.message}; {f.remedy}" if f.remedy else f.message for f in facts.findings]
        message = "; ".join(sentences)
        self._logger.warning("node finding", node=facts.name, codes=sorted({f.code for f in facts.findings}), findings=sentences)
        now = datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{facts.name}.", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": facts.name, "uid": uid or facts.name},
            "type": "Warning",
            "reason": "GPUTopologyFinding",
            "message": message[:1024],
            "source": {"component": "pyscheduler"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._logger.warning("event not written", node=facts.name, error=f"{_WAITING_MAX} Events wait already")

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None and not self._stopped.is_set():
            try:
                self._api.post("/api/v1/namespaces/default/events", event)
            except KubernetesError as cause:
                self._logger.warning("event not written", node=event["involvedObject"]["name"], error=str(cause))

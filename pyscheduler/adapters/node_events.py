"""Findings on nodes, told once: a log line and a Kubernetes Event that names the fix."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.core.model import NodeFacts
from pyscheduler.errors import KubernetesError

__all__ = ["NodeEvents"]


class NodeEvents:
    """Posts Events of reason GPUTopologyFinding. The API server being away costs the Event, never the node."""

    def __init__(self, api: ApiServer, wall_clock: Callable[[], float], logger: FilteringBoundLogger) -> None:
        self._api = api
        self._wall_clock = wall_clock
        self._logger = logger

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
            self._api.post("/api/v1/namespaces/default/events", event)
        except KubernetesError as cause:
            self._logger.warning("event not written", node=facts.name, error=str(cause))

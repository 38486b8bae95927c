"""What the watches show, told to the core under its lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyscheduler.adapters.machines import Machines
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.model import NodeFacts, PodFacts, binding_order
from pyscheduler.readers.objects import ObjectReader

__all__ = ["NodeSink", "PodSink"]

Clock = Callable[[], float]


class NodeSink:
    """Nodes: their machine is attached outside the lock, findings are told once per change."""

    def __init__(
        self,
        cluster: Cluster,
        lock: threading.Lock,
        clock: Clock,
        reader: ObjectReader,
        machines: Machines,
        tell: Callable[[NodeFacts, str], None],
    ) -> None:
        self._cluster = cluster
        self._lock = lock
        self._clock = clock
        self._reader = reader
        self._machines = machines
        self._tell = tell
        self._told: dict[str, tuple[str, ...]] = {}

    def replace(self, items: list[tuple[NodeFacts, str | None]]) -> None:
        """Take a full list. The lock is taken for each node anew, so that calls are answered in between."""
        for listed, text in items:
            facts = self._machines.attach(listed, text)
            with self._lock:
                self._cluster.observe_node(facts, self._clock())
            self._tell_findings(facts, "")
        with self._lock:
            self._cluster.forget_other_nodes({listed.name for listed, _ in items})

    def changed(self, raw: dict[str, Any]) -> None:
        """Take one node."""
        facts = self._machines.attach(*self._reader.node(raw))
        with self._lock:
            self._cluster.observe_node(facts, self._clock())
        self._tell_findings(facts, raw["metadata"]["uid"])

    def gone(self, raw: dict[str, Any]) -> None:
        """Take a deleted node."""
        name = raw["metadata"]["name"]
        self._machines.forget(name)
        self._told.pop(name, None)
        with self._lock:
            self._cluster.forget_node(name)

    def _tell_findings(self, facts: NodeFacts, uid: str) -> None:
        if self._told.get(facts.name, ()) != facts.findings:
            self._told[facts.name] = facts.findings
            if facts.findings:
                self._tell(facts, uid)


class PodSink:
    """Pods that ask for GPUs."""

    def __init__(self, cluster: Cluster, lock: threading.Lock, clock: Clock, reader: ObjectReader) -> None:
        self._cluster = cluster
        self._lock = lock
        self._clock = clock
        self._reader = reader

    def replace(self, items: list[PodFacts]) -> None:
        """Take a full list, as that of nodes."""
        for pod in sorted(items, key=binding_order):
            with self._lock:
                self._cluster.observe_pod(pod, self._clock())
        with self._lock:
            self._cluster.forget_other_pods({pod.uid for pod in items}, self._clock())

    def changed(self, raw: dict[str, Any]) -> None:
        """Take one pod."""
        pod = self._reader.pod(raw)
        if pod is not None:
            with self._lock:
                self._cluster.observe_pod(pod, self._clock())

    def gone(self, raw: dict[str, Any]) -> None:
        """Take a pod that was deleted or is finished."""
        pod = self._reader.pod(raw)
        if pod is not None:
            with self._lock:
                self._cluster.forget_pod(pod.uid, self._clock())

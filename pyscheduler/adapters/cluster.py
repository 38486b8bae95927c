"""What the watches show, told to the core under its lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyscheduler.adapters.machines import Machines
from pyscheduler.adapters.node_addresses import NodeAddresses
from pyscheduler.adapters.node_opinions import NodeOpinions
from pyscheduler.core.capacity.opinions import SAYS_NOTHING
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.model import NodeFacts, PodFacts, binding_order
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers.objects import ObjectReader

__all__ = ["NodeSink", "PodSink"]

Clock = Callable[[], float]


class NodeSink:
    """Nodes: their machine is attached outside the cluster's lock, findings are told once per change.

    A node that waits for the table or the class of its machine is taken again when it may be there (`retry`). Watches and
    the builder of tables do so from threads of their own.

    Attributes
    ----------
    changes
        Grows with every change of a node's findings.
    opinions
        What nodes say of their cards.
    addresses
        By what else than their names nodes are known.
    """

    def __init__(
        self,
        cluster: Cluster,
        lock: threading.Lock,
        clock: Clock,
        reader: Callable[[], ObjectReader],
        machines: Machines,
        tell: Callable[[NodeFacts, str], None],
    ) -> None:
        self._cluster = cluster
        self._lock = lock
        self._clock = clock
        self._reader = reader
        self._machines = machines
        self._tell = tell
        self._told: dict[str, tuple[Finding, ...]] = {}
        self.changes = 0
        self.opinions = NodeOpinions()
        self.addresses = NodeAddresses()
        # Always taken before the cluster's lock, never after it.
        self._turn = threading.RLock()
        self._waiting: dict[str, tuple[NodeRecord, str]] = {}

    def replace(self, items: list[NodeRecord]) -> None:
        """Take a full list. The lock is taken for each node anew, so that calls are answered in between."""
        names = {record.name for record in items}
        with self._turn:
            self._waiting.clear()
            self._machines.forget_others(names)
            self.opinions.forget_others(names)
            self.addresses.forget_others(names)
            self._told = {name: told for name, told in self._told.items() if name in names}
            for record in items:
                self._take(record, "")
            with self._lock:
                self._cluster.forget_other_nodes(names)

    def changed(self, raw: dict[str, Any]) -> None:
        """Take one node."""
        with self._turn:
            self._take(self._reader().node(raw), raw["metadata"]["uid"])

    def gone(self, raw: dict[str, Any]) -> None:
        """Take a deleted node."""
        name = raw["metadata"]["name"]
        with self._turn:
            self._waiting.pop(name, None)
            self._machines.forget(name)
            self.opinions.take(name, SAYS_NOTHING)
            self.addresses.forget(name)
            self._told.pop(name, None)
            with self._lock:
                self._cluster.forget_node(name)

    def retry(self) -> None:
        """Take the nodes that wait, in case that what they wait for is there."""
        with self._turn:
            for record, uid in list(self._waiting.values()):
                self._take(record, uid)

    def share(self, classes: Mapping[str, DeviceClass]) -> None:
        """Take the classes that documents name by hash, and the nodes that lacked theirs."""
        with self._turn:
            self._machines.share(classes)
            self.retry()

    def _take(self, record: NodeRecord, uid: str) -> None:
        self.opinions.take(record.name, record.opinion)
        self.addresses.take(record.name, record.addresses)
        attached = self._machines.attach(record)
        if attached.settled:
            self._waiting.pop(record.name, None)
        else:
            self._waiting[record.name] = (record, uid)
        if attached.facts is not None:
            with self._lock:
                self._cluster.observe_node(attached.facts, self._clock())
            self._tell_findings(attached.facts, uid)

    def _tell_findings(self, facts: NodeFacts, uid: str) -> None:
        if self._told.get(facts.name, ()) != facts.findings:
            self._told[facts.name] = facts.findings
            self.changes += 1
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

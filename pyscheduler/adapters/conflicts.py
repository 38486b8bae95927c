"""Pods of ours whose annotation does not count, told once: a log line, and an Event where they name a GPU of an earlier pod."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.events import EventWriter, Subject
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import PodFacts, PodUid
from pyscheduler.readers.objects import ObjectReader

if TYPE_CHECKING:
    from pyscheduler.adapters.watch import Sink

__all__ = ["ConflictSink"]

# GPUs that a message names one by one.
_NAMED_MAX: Final = 3


class ConflictSink:
    """Stands before the sink of pods, and looks at what became of each pod there.

    A conflict may last for milliseconds only, until the node refuses the pod: so no pod is looked at later.
    """

    def __init__(
        self,
        pods: Sink[PodFacts],
        cluster: Cluster,
        lock: threading.Lock,
        reader: ObjectReader,
        writer: EventWriter,
        logger: FilteringBoundLogger,
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._lock = lock
        self._reader = reader
        self._writer = writer
        self._logger = logger
        self._told: set[PodUid] = set()

    def replace(self, items: list[PodFacts]) -> None:
        """Take a full list."""
        self._pods.replace(items)
        self._told.intersection_update({pod.uid for pod in items})
        for pod in items:
            if self._is_new(pod.uid):
                self._tell(pod)

    def changed(self, raw: dict[str, Any]) -> None:
        """Take one pod."""
        self._pods.changed(raw)
        pod = self._reader.pod(raw) if self._is_new(PodUid(raw["metadata"]["uid"])) else None
        if pod is not None:
            self._tell(pod)

    def gone(self, raw: dict[str, Any]) -> None:
        """Take a pod that was deleted or is finished."""
        self._pods.gone(raw)
        self._told.discard(PodUid(raw["metadata"]["uid"]))

    def _is_new(self, uid: PodUid) -> bool:
        """Return whether the pod counts as foreign and that was not looked at."""
        with self._lock:
            held = self._cluster.ledger.get(uid)
        return held is not None and held.state is HoldingState.FOREIGN and uid not in self._told

    def _tell(self, pod: PodFacts) -> None:
        self._told.add(pod.uid)
        if pod.scheduler != self._cluster.ledger.scheduler_name:
            return
        handles = {handle for share in (pod.gpus or {}).values() for handle in share}
        with self._lock:
            held = self._cluster.ledger.get(pod.uid)
            keeper = self._cluster.ledger.get(held.rival) if held is not None and held.rival is not None else None
        if held is None:
            return  # settled meanwhile
        if keeper is None:
            self._logger.warning("pod distrusted", pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, reason=held.reason)
            return
        shared = handles.intersection(keeper.gpus)
        message = _sentence(pod, keeper, shared)
        self._logger.warning("pod conflict", pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, keeper=keeper.uid, message=message)
        self._writer.tell(Subject("Pod", pod.name, pod.uid, pod.namespace), "GPUConflict", message)


def _sentence(pod: PodFacts, keeper: Holding, shared: Collection[str]) -> str:
    named = sorted(shared)[:_NAMED_MAX]
    more = f" and {len(shared) - len(named)} more" if len(shared) > len(named) else ""
    return (
        f"GPU {', '.join(named)}{more} of node {pod.node} is held by pod {keeper.namespace}/{keeper.name}, which was bound earlier: "
        f"delete pod {pod.namespace}/{pod.name}, which names it too, so that a pod in its place gets GPUs of its own"
    )

"""Settles reservations that the scheduler no longer knows, by reading their pods live."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.core.holdings import Holding
from pyscheduler.core.model import PodFacts, PodUid
from pyscheduler.core.planner import Planner
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.objects import ObjectReader

__all__ = ["Settler"]

Clock = Callable[[], float]


class Settler:
    """Reads live the pods whose reservation the scheduler no longer knows: bound ones stay, the others are dropped.

    The watch may lag behind a Binding, so its silence proves nothing.
    """

    def __init__(
        self,
        api: ApiServer,
        planner: Planner,
        lock: threading.Lock,
        clock: Clock,
        reader: ObjectReader,
        logger: FilteringBoundLogger,
    ) -> None:
        self._api = api
        self._planner = planner
        self._lock = lock
        self._clock = clock
        self._reader = reader
        self._logger = logger
        self._queue: queue.SimpleQueue[tuple[Holding, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="settler", daemon=True)

    def start(self) -> None:
        """Begin to settle."""
        self._thread.start()

    def stop(self) -> None:
        """End after what is queued."""
        self._queue.put(None)

    def submit(self, orphans: tuple[Holding, ...]) -> None:
        """Queue orphans; returns at once."""
        if orphans:
            self._queue.put(orphans)

    def _run(self) -> None:
        while (orphans := self._queue.get()) is not None:
            for orphan in orphans:
                try:
                    self._settle(orphan)
                except KubernetesError as cause:
                    # The next resync, 30 s later, names it again.
                    self._logger.warning("orphan not settled", uid=orphan.uid, error=str(cause))

    def _settle(self, orphan: Holding) -> None:
        pod = self._read(orphan)
        with self._lock:
            now = self._clock()
            if pod is None:
                self._planner.cluster.forget_pod(orphan.uid, now)
            elif pod.node or pod.finished:
                self._planner.cluster.settle_pod(pod, now)
            else:
                self._planner.settle_orphan(orphan)
        outcome = "gone" if pod is None else "bound" if pod.node else "dropped"
        self._logger.info("orphan settled", uid=orphan.uid, pod=f"{orphan.namespace}/{orphan.name}", outcome=outcome)

    def _read(self, orphan: Holding) -> PodFacts | None:
        """Return the pod as the API server has it now, None if it is gone."""
        query = {"fieldSelector": f"metadata.name={orphan.name}"}
        # A list and not a get: no object is an answer, not an error.
        items = self._api.get(f"/api/v1/namespaces/{orphan.namespace}/pods", query)["items"]
        pod = self._reader.pod(items[0]) if items else None
        return pod if pod is not None and pod.uid == PodUid(orphan.uid) else None

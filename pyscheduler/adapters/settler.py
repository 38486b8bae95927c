"""Settles reservations that the scheduler no longer knows, by reading their pods live."""

from __future__ import annotations

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

    The watch may lag behind a Binding, so its silence proves nothing. Each resync names an orphan again until it is settled:
    while the API server is away each waits once, however often it is named.
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
        self._change = threading.Condition()
        self._waiting: dict[PodUid, Holding] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="settler", daemon=True)

    def start(self) -> None:
        """Begin to settle."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present pod; those that wait are not settled."""
        with self._change:
            self._stopped = True
            self._change.notify()

    def submit(self, orphans: tuple[Holding, ...]) -> None:
        """Queue orphans; returns at once."""
        with self._change:
            self._waiting |= {orphan.uid: orphan for orphan in orphans}
            self._change.notify()

    def waiting(self) -> int:
        """Return how many orphans wait."""
        with self._change:
            return len(self._waiting)

    def _next(self) -> Holding | None:
        """Wait for the next orphan; None at the end."""
        with self._change:
            self._change.wait_for(lambda: self._stopped or self._waiting)
            return None if self._stopped else self._waiting.pop(next(iter(self._waiting)))

    def _run(self) -> None:
        while (orphan := self._next()) is not None:
            try:
                self._settle(orphan)
            except KubernetesError as cause:
                # The next resync, 30 s later, names it again.
                self._logger.warning("orphan not settled", uid=orphan.uid, error=str(cause))
            except Exception:  # one pod that trips a bug must not keep all others reserved
                self._logger.exception("orphan not settled", uid=orphan.uid)

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

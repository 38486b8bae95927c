"""Kubernetes Events, written beside what goes on, and only by the service that leads."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.errors import KubernetesError

__all__ = ["EventWriter", "Subject"]

# Events that wait to be written. What is wrong with more objects than this is told by lint, not one by one.
_WAITING_MAX: Final = 1000
# Seconds that Events of a standby wait: longer than it takes to elect it after the leader, who would have written them,
# died (kube-scheduler's default is 15 s, and the news of it may be late).
_STANDBY_S: Final = 60.0
# The API server keeps 1,024 characters of a message. Names of objects are of at most 253; ours end in a dot and 16 digits.
_MESSAGE_MAX: Final = 1024
_NAME_MAX: Final = 253 - 17


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an Event is about. Without a namespace the Event is in ``default``."""

    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class _Waiting:
    event: dict[str, Any]
    since: float


class EventWriter:
    """Writes Events of type Warning from a thread of its own.

    An API server that is slow or away costs the Event, and never holds up who tells it. An Event has its name from what
    it says, so that of two services that say the same, or of one that was started again, the second adds nothing.

    Parameters
    ----------
    host
        Name of the writer's host, as it stands in the Events.
    clock, wall_clock
        Seconds on a clock that only grows, and Unix time in seconds.

    """

    def __init__(
        self,
        api: ApiServer,
        host: str,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        logger: FilteringBoundLogger,
    ) -> None:
        self._api = api
        self._host = host
        self._clock = clock
        self._wall_clock = wall_clock
        self._logger = logger
        self._change = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._leads = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to write, once `lead` has said so."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present Event; those that wait are not written."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    def lead(self, leads: bool) -> None:  # noqa: FBT001
        """Write from now on, or do not any more."""
        with self._change:
            self._drop_late()
            self._leads = leads
            self._change.notify_all()

    def tell(self, subject: Subject, reason: str, message: str) -> None:
        """Write that something is wrong with an object, as soon as may be. Returns at once."""
        event = self._event(subject, reason, message)
        with self._change:
            self._drop_late()
            full = len(self._waiting) >= _WAITING_MAX
            if full and not self._leads:
                self._waiting.popleft()
            if not full or not self._leads:
                self._waiting.append(_Waiting(event, self._clock()))
                self._change.notify_all()
                return
        self._complain(event, f"{_WAITING_MAX} Events wait already")

    def _drop_late(self) -> None:
        """Drop what waits for longer than a leader who writes it could be missing."""
        while not self._leads and self._waiting and self._clock() - self._waiting[0].since > _STANDBY_S:
            self._waiting.popleft()

    def _event(self, subject: Subject, reason: str, message: str) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # A node that comes again is the same machine; a pod is another one.
        identity = subject.uid if subject.namespace else subject.name
        digest = hashlib.sha256(f"{subject.kind}\n{identity}\n{reason}\n{message}".encode()).hexdigest()[:16]
        about = {"apiVersion": "v1", "kind": subject.kind, "name": subject.name, "uid": subject.uid}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{subject.name[:_NAME_MAX].rstrip('.-')}.{digest}",
                "namespace": subject.namespace or "default",
            },
            "involvedObject": about | ({"namespace": subject.namespace} if subject.namespace else {}),
            "type": "Warning",
            "reason": reason,
            "message": message[:_MESSAGE_MAX],
            "source": {"component": "pyscheduler", "host": self._host},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _run(self) -> None:
        while (event := self._next()) is not None:
            try:
                self._api.post(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)
            except KubernetesError as cause:
                if cause.status != HTTPStatus.CONFLICT:  # it is there already
                    self._complain(event, str(cause))

    def _next(self) -> dict[str, Any] | None:
        """Wait for the next Event to write; None at the end."""
        with self._change:
            self._change.wait_for(lambda: self._stopped or (self._leads and self._waiting))
            return None if self._stopped else self._waiting.popleft().event

    def _complain(self, event: dict[str, Any], error: str) -> None:
        about = event["involvedObject"]
        name = "/".join(part for part in (about.get("namespace"), about["name"]) if part)
        self._logger.warning("event not written", **{about["kind"].lower(): name}, error=error)

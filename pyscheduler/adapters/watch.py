"""List, then watch, one kind of object, for ever.

The list is read in pages; the watch resumes where it ended; a version that the
server no longer has (410) starts the list again; a connection that is silent
for longer than the server's bookmarks is taken for dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer, Gone
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.lists import Page

__all__ = ["Sink", "Watcher"]

PAGE = 500
# Seconds after which the server ends a watch, so that load spreads over its replicas.
WATCH_S = 290
# The server sends a bookmark about every minute.
SILENCE_S = 75.0
# Seconds between tries while the server is away: doubling, up to the last.
BACKOFF_S = (0.2, 0.4, 0.8, 1.6, 3.2, 5.0)

T = TypeVar("T")


class Sink(Protocol[T]):
    """Where objects are told. Called from the watcher's thread only."""

    def replace(self, items: list[T]) -> None:
        """Take a full list: what is not in it is gone."""

    def changed(self, raw: dict[str, Any]) -> None:
        """Take an object that was added or modified."""

    def gone(self, raw: dict[str, Any]) -> None:
        """Take the last state of an object that was deleted, or that the selector no longer admits."""


class Watcher(Generic[T]):
    """Watches one kind in a thread of its own."""

    def __init__(
        self,
        api: ApiServer,
        kind: str,
        path: str,
        *,
        selector: dict[str, str],
        read_page: Callable[[bytes], Page[T]],
        sink: Sink[T],
        metrics: Metrics,
        logger: FilteringBoundLogger,
        died: Callable[[], None],
    ) -> None:
        self._api = api
        self._died = died
        self.kind = kind
        self._path = path
        self._selector = selector
        self._read_page = read_page
        self._sink = sink
        self._metrics = metrics
        self._logger = logger.bind(watch=kind)
        self._stopped = threading.Event()
        self._again = threading.Event()
        self._complaint = ""
        self.listed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind}", daemon=True)

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """End as soon as the present event is told. Does not wait: a silent watch may last a minute."""
        self._stopped.set()

    def relist(self) -> None:
        """Read the full list again, after the next event: objects are to be read in another way. Within a minute."""
        self._again.set()

    def _run(self) -> None:
        try:
            self._watch_for_ever()
        except Exception as cause:  # a service that sees nothing must not look alive
            if not self._stopped.is_set():  # the worker that reads pages ends, too
                self._logger.critical("watch died", exc_info=cause)
                self._died()

    def _watch_for_ever(self) -> None:
        version, failures = "", 0
        while not self._stopped.is_set():
            try:
                version = "" if self._again.is_set() else version
                version = version or self._list()
                version = self._watch(version)
                failures = 0
            except Gone:
                version = ""
            except KubernetesError as cause:
                self._complain(str(cause))
                self._stopped.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1

    def _list(self) -> str:
        self._again.clear()
        items: list[T] = []
        query = {**self._selector, "limit": str(PAGE)}
        while True:
            page = self._read_page(self._api.get_bytes(self._path, query))
            items += page.items
            for unread in page.unread:
                self._logger.error("object not read", object=unread)
            if not page.token:
                break
            query["continue"] = page.token
        self._sink.replace(items)
        self._metrics.listed(self.kind)
        self._logger.info("listed", objects=len(items), version=page.version)
        self._complaint = ""
        self.listed.set()
        return page.version

    def _watch(self, version: str) -> str:
        """Watch until the server ends it; return the version to go on from."""
        query = {
            **self._selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            for event in self._api.watch(self._path, query, SILENCE_S):
                raw = event["object"]
                if event["type"] == "ERROR":
                    raise self._ended(raw)
                self._tell(event["type"], raw)
                version = raw["metadata"]["resourceVersion"]
                if self._stopped.is_set() or self._again.is_set():
                    break
        except KubernetesError as cause:
            # Not raised: what was watched so far must not be watched again.
            self._complain(str(cause))
            self._stopped.wait(BACKOFF_S[0])
        return version

    def _tell(self, kind: str, raw: dict[str, Any]) -> None:
        try:
            if kind in ("ADDED", "MODIFIED"):
                self._sink.changed(raw)
            elif kind == "DELETED":
                self._sink.gone(raw)
        except Exception as cause:  # one object must not keep the service from all others
            self._logger.critical("object not read", object=raw["metadata"].get("name"), exc_info=cause)

    def _ended(self, status: dict[str, Any]) -> Exception:
        if status.get("code") == 410:
            return Gone(str(status.get("message")))
        return KubernetesError(f"watch of {self._path} ended with {status.get('code')} ({status.get('message')}): retried")

    def _complain(self, text: str) -> None:
        """Count every failure, log each cause once until the next good list."""
        self._metrics.watch_failed(self.kind)
        if text != self._complaint and not self._stopped.is_set():
            self._complaint = text
            self._logger.warning("watch failed", error=text)

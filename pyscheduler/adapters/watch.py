"""List, then watch, one kind of object, for ever.

The list is read in pages; the watch resumes where it ended; a version that the
server no longer has (410) starts the list again; a connection that is silent
for longer than the server's bookmarks is given up, and another one opened.

Whatever the server answers, it is asked again after a pause, which grows while
nothing comes of it. Nothing but a bug here ends a watcher.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer, Busy, Gone, Nonsense, Silent
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.pages import PAGE, Pages
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.lists import Page

__all__ = ["PAGE", "Sink", "Watcher"]

# Seconds after which the server ends a watch, so that load spreads over its replicas.
WATCH_S = 290
# The server sends a bookmark about every minute, unless nothing has happened to this kind since the server's start
# (kubernetes/kubernetes, storage/cacher/cacher.go, dispatchEvents).
SILENCE_S = 75.0
# Seconds between tries while the server is away or refuses: doubling, up to the last. It is short, for nobody here sees
# anything until a try succeeds.
PAUSES_S = (0.2, 0.4, 0.8)
# A watch that showed something, or lasted as long, was good: the next failure is a first one.
GOOD_S = 10.0
# Seconds between the lists of one kind, from the third on: doubling, up to the last. A list costs the server much.
LISTS_S = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 30.0)
# After as many seconds without a list the next one is a first one.
CALM_S = 60.0

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._died = died
        self.kind = kind
        self._path = path
        self._selector = selector
        self._sink = sink
        self._metrics = metrics
        self._logger = logger.bind(watch=kind)
        self._clock = clock
        self._stopped = threading.Event()
        self._pages = Pages(api, path, selector, read_page, self._stopped)
        self._again = threading.Event()
        self._complaint = ""
        # Where the watch goes on; empty where a list must be read first.
        self._version = ""
        self._failures = 0
        self._lists = _Spacing(clock)
        # Since when no watch is open; None while one is.
        self._blind_since: float | None = clock()
        metrics.watch_blindness(kind, self.blind_s)
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

    def blind_s(self) -> float:
        """Return for how many seconds changes may have been missed: 0 while a watch is open. Safe from any thread."""
        since = self._blind_since
        return 0.0 if since is None else self._clock() - since

    def _run(self) -> None:
        try:
            self._watch_for_ever()
        except Exception as cause:  # a service that sees nothing must not look alive
            if not self._stopped.is_set():  # the worker that reads pages ends, too
                self._logger.critical("watch died", exc_info=cause)
                self._died()

    def _watch_for_ever(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version or self._is_to_list():
                    self._list()
                self._watch()
            except Gone:
                self._version = ""
            except KubernetesError as cause:
                self._complain(str(cause))
                pause = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
                self._failures += 1
                self._stopped.wait(max(pause, cause.after_s) if isinstance(cause, Busy) else pause)

    def _is_to_list(self) -> bool:
        return self._again.is_set() and self._lists.due_s() <= 0

    def _list(self) -> None:
        if self._stopped.wait(self._lists.due_s()):
            return
        self._again.clear()
        # What is to be read in another way stays to be read if this list fails.
        self._version = version = ""
        items: list[T] = []
        for page in self._pages.read():
            items += page.items
            version = page.version
            for unread in page.unread:
                self._logger.error("object not read", object=unread)
        self._sink.replace(items)
        self._version = version
        self._lists.note()
        self._metrics.listed(self.kind)
        self._logger.info("listed", objects=len(items), version=version)
        self.listed.set()

    def _watch(self) -> None:
        """Watch until the server ends it."""
        query = {
            **self._selector,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        events = self._api.watch(self._path, query, SILENCE_S)
        begun, told = self._clock(), False
        self._blind_since = None
        try:
            for event in events:
                raw = event["object"]
                if event["type"] == "ERROR":
                    raise self._ended(raw)
                self._tell(event["type"], raw)
                self._version = raw["metadata"]["resourceVersion"]
                told = True
                self._well()
                if self._stopped.is_set() or self._is_to_list():
                    return
        except (Silent, Nonsense) as cause:
            if told:
                raise
            if isinstance(cause, Silent):  # perhaps nothing has happened: the next watch shows whether the server is there
                return
            self._version = ""  # from here the watch does not get on
            raise
        finally:
            self._blind_since = self._clock()
        if not told and self._clock() - begun < GOOD_S:
            raise KubernetesError(f"the watch of {self._path} was ended at once: is there a proxy in between?")
        self._well()

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

    def _well(self) -> None:
        """Note that a watch shows what happens."""
        self._failures = 0
        if self._complaint:
            self._complaint = ""
            self._logger.info("watch goes on")

    def _complain(self, text: str) -> None:
        """Count every failure, log each cause once until the watch goes on."""
        self._metrics.watch_failed(self.kind)
        if text != self._complaint and not self._stopped.is_set():
            self._complaint = text
            self._logger.warning("watch failed", error=text)


class _Spacing:
    """Says when the next list may begin."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._read_at = clock()
        self._in_a_row = 0

    def note(self) -> None:
        """Note that a list was read."""
        calm = self._clock() - self._read_at > CALM_S
        self._in_a_row = 1 if calm else self._in_a_row + 1
        self._read_at = self._clock()

    def due_s(self) -> float:
        """Return in how many seconds the next may begin. The first two may at once: a version is gone now and then."""
        if self._in_a_row < 2:
            return 0.0
        pause: Final = LISTS_S[min(self._in_a_row - 2, len(LISTS_S) - 1)]
        return max(0.0, self._read_at + pause - self._clock())

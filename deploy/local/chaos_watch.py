"""The recorder's own watches of the API server, which outlive its death and that of etcd.

When changes were missed, the list is read at each revision in between, from the history that the server keeps, so that they
are judged as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from deploy.local.api import Api, Object
from deploy.local.chaos_objects import revision
from deploy.local.chaos_recorder import Recorder
from deploy.local.errors import ApiError, LocalError, NeverHappenedError

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"

_LISTED_S: Final = 60.0
_RETRY_S: Final = 0.05
# The server ends a watch after this: so long takes the end of a run. A server that goes down waits for watches.
_WATCH_S: Final = 2.0
_GONE: Final = 410
# Revisions that are read of one gap at most; each takes about 10 ms.
_READS: Final = 500


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects of a kind at a revision; `states` are their own revisions, by UID."""

    version: int
    items: tuple[Object, ...]
    states: Mapping[str, int]

    @classmethod
    def of(cls, version: int, items: list[Object]) -> Snapshot:
        """Return the snapshot of a list."""
        return cls(version, tuple(items), {item["metadata"]["uid"]: revision(item) for item in items})


OnChange = Callable[[str, Object], None]
OnList = Callable[[Snapshot, int], None]


@dataclass(slots=True)
class Feed:
    """Carries what two watches see to a recorder, from threads of its own. A context manager.

    Attributes
    ----------
    kubeconfig
        How the API server is reached.
    recorder
        Who judges. It is read and written under `changed`, which is notified of every change.
    clock
        Seconds since the run began.
    gaps
        How often changes were missed, and afterwards read from the server's history.
    unjudged
        How many of these gaps could not be read.

    """

    kubeconfig: Path
    recorder: Recorder
    clock: Callable[[], float]
    changed: threading.Condition = field(default_factory=threading.Condition)
    gaps: int = 0
    unjudged: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        # Nodes first: a pod is judged against the node that it is on.
        for path, on_change, on_list in ((NODES, self._node, self._nodes), (PODS, self._pod, self._pods)):
            listed = threading.Event()
            self._follow(path, on_change, on_list, listed)
            if not listed.wait(_LISTED_S):
                raise NeverHappenedError(f"{path}: the recorder could not read the list in {_LISTED_S:g} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(10 * _WATCH_S)

    def wait_for(self, condition: Callable[[Recorder], Any], timeout_s: float) -> Any:
        """Wait until something that is asked of the recorder is true, and return it; what it is at the end of the time-out."""
        with self.changed:
            return self.changed.wait_for(lambda: condition(self.recorder), timeout_s)

    def _node(self, kind: str, item: Object) -> None:
        with self.changed:
            self.recorder.see_node(kind, item, self.clock())
            self.changed.notify_all()

    def _nodes(self, found: Snapshot, last: int) -> None:
        with self.changed:
            self.recorder.see_nodes(found.items, last, found.version, self.clock())
            self.changed.notify_all()

    def _pod(self, kind: str, item: Object) -> None:
        with self.changed:
            self.recorder.see_pod(kind, item, self.clock())
            self.changed.notify_all()

    def _pods(self, found: Snapshot, _: int) -> None:
        with self.changed:
            self.recorder.see_pods(found.items, self.clock())
            self.changed.notify_all()

    def _follow(self, path: str, on_change: OnChange, on_list: OnList, listed: threading.Event) -> None:
        def take(found: Snapshot, last: int) -> None:
            on_list(found, last)
            listed.set()

        follower = Follower(Api(self.kubeconfig), path, on_change, take)

        def follow() -> None:
            while not self._stopped.is_set():
                try:
                    gap = follower.carry()
                except LocalError:  # it is the point of the run that the server goes away
                    self._stopped.wait(_RETRY_S)
                    continue
                with self.changed:
                    self.gaps += gap is not None
                    self.unjudged += gap is False

        thread = threading.Thread(target=follow, name=f"recorder of {path}", daemon=True)
        self._threads.append(thread)
        thread.start()


class Follower:
    """One watch: what was seen last, and how to go on from there.

    Parameters
    ----------
    api, path
        What is watched.
    on_change
        Told of each change: the kind of event, and the object.
    on_list
        Told of each list, and of the revision up to which nothing was missed.

    """

    def __init__(self, api: Api, path: str, on_change: OnChange, on_list: OnList) -> None:
        self._api = api
        self._path = path
        self._on_change = on_change
        self._on_list = on_list
        self._version = 0
        self._states: dict[str, int] = {}
        self._broken = True

    def carry(self) -> bool | None:
        """Read the list if changes may have been missed, then the watch until it ends.

        Returns
        -------
        bool or None
            Whether what was missed could be read; None if nothing was.

        """
        if self._broken:
            judged = self.catch_up()
            self._broken = False
            if judged is not None:
                return judged
        try:
            for kind, item in self._api.watch(self._path, str(self._version), _WATCH_S):
                self._take(kind, item)
        except ApiError as error:
            if error.status != _GONE:
                raise
            self._broken = True
        return None

    def _take(self, kind: str, item: Object) -> None:
        self._version = revision(item)
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self._states.pop(item["metadata"]["uid"], None)
        else:
            self._states[item["metadata"]["uid"]] = self._version
        self._on_change(kind, item)

    def catch_up(self) -> bool | None:
        """Read the list, and what was missed before it; returns as `carry` does."""
        items, version = self._api.read_all(self._path)
        found = Snapshot.of(int(version), items)
        judged = None
        # A list in which all is as it was counts as one before which nothing happened.
        if self._version and found.states != self._states:
            judged = self._judge_missed(found)
        self._list(found)
        return judged

    def _judge_missed(self, found: Snapshot) -> bool:
        """Judge the states in between; what has been judged need not be again if the server goes away meanwhile."""
        missed = range(self._version + 1, found.version)
        if len(missed) > _READS:
            return False
        for version in missed:
            try:
                answer = self._api.get(self._path, resourceVersion=str(version), resourceVersionMatch="Exact")
            except ApiError as error:
                if error.status != _GONE:
                    raise
                return False  # the server has forgotten it
            self._list(Snapshot.of(version, answer["items"]))
        return True

    def _list(self, found: Snapshot) -> None:
        self._on_list(found, self._version)
        self._states = dict(found.states)
        self._version = found.version

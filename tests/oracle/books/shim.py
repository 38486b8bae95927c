"""The scheduler's plugin as dictionaries: what it holds, what it owes, and its own late view of the pods.

Written after plugin_shim/gputopology: the methods that change what is held are those of books.go. One instance is one session.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from pyscheduler.core.model import Attempt
from pyscheduler.core.replies import HeldByShim
from tests.builders import OURS
from tests.oracle.books.cluster_api import Api, Pod
from tests.oracle.books.model import NOMINATION_S, Held, Wants

__all__ = ["Binding", "Call", "Ending", "Holds", "Method", "Room", "Shim", "Stage", "Statement"]


class Stage(enum.Enum):
    """How far the binding of a pod is that a shim holds."""

    CHOSEN = "chosen"
    # The Binding was posted, its answer is awaited.
    POSTED = "posted"
    BOUND = "bound"
    # No answer came: the pod is read live until the outcome is known.
    DOUBTFUL = "doubtful"


@dataclass(eq=False)
class Holds:
    """What a shim holds for one pod."""

    pod: Pod
    attempt: Attempt
    node: str
    shares: dict[str, tuple[str, ...]]
    stage: Stage = Stage.CHOSEN
    conflicting: bool = False

    @property
    def handles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(gpu for share in self.shares.values() for gpu in share))

    @property
    def gpus(self) -> frozenset[str]:
        return frozenset(self.handles)


class Room(NamedTuple):
    """What Preempt holds for a pod, until then."""

    pod: Pod
    number: int
    node: str
    gpus: tuple[str, ...]
    until: float


class Ending(NamedTuple):
    """An Unreserve that is owed until it is acknowledged."""

    attempt: Attempt
    unknown: bool


class Statement(NamedTuple):
    """A Resync: all that is held, up to the newest attempt that is decided."""

    attempt: Attempt
    held: tuple[HeldByShim, ...]
    said: tuple[Held, ...]


class Method(enum.Enum):
    RESERVE = "Reserve"
    UNRESERVE = "Unreserve"
    RESYNC = "Resync"
    PREEMPT = "Preempt"


@dataclass(eq=False)
class Call:
    """A call on its way to one run of the service. `awaited`: its caller still waits for the answer."""

    method: Method
    shim: Shim
    service: int
    pod: Pod | None = None
    attempt: Attempt | None = None
    node: str = ""
    nodes: tuple[str, ...] = ()
    protected: frozenset[str] = frozenset()
    ending: Ending | None = None
    statement: Statement | None = None
    awaited: bool = True


@dataclass(eq=False)
class Binding:
    """A Binding on its way to the API server."""

    shim: Shim
    holds: Holds


class Shim:
    """One session of the plugin."""

    def __init__(self, session: int, api: Api) -> None:
        self.session = session
        self.begun = self.decided = 1
        self.held: dict[str, Holds] = {}
        self.endings: dict[str, Ending] = {}
        self.nominated: dict[str, Room] = {}
        # What is read live until its outcome is known; that goes on when the pod is no longer held.
        self.doubts: list[Holds] = []
        # The call that holds the scheduling cycle, and the one of the books' worker.
        self.cycle: Call | None = None
        self.sending: Call | None = None
        # The run of the service that it has made a Resync with.
        self.greeted = 0
        self._api = api
        self._position = len(api.pod_log)
        # Live pods of its own by UID: their node, None while they wait.
        self.view: dict[str, str | None] = {pod.uid: pod.node for pod in api.live() if pod.scheduler == OURS}

    # -- its own view ---------------------------------------------------------------------------------------------------

    @property
    def behind(self) -> int:
        return len(self._api.pod_log) - self._position

    def look(self, count: int) -> None:
        """Take the next events of its own watch of pods."""
        for uid, _, sight in self._api.pod_log[self._position : self._position + count]:
            if sight is None:
                self.view.pop(uid, None)
            elif sight.ours:
                self.view[uid] = sight.node
        self._position = min(self._position + count, len(self._api.pod_log))

    def waiting(self) -> list[Pod]:
        """Return the pods that a scheduling cycle may be begun for."""
        return [self._api.pods[uid] for uid, node in self.view.items() if node is None and uid not in self.held]

    # -- its books ------------------------------------------------------------------------------------------------------

    def begin(self) -> Attempt:
        self.decided = self.begun
        self.begun += 1
        return self.attempt(self.begun)

    def attempt(self, number: int) -> Attempt:
        return Attempt(self.session, number, f"host-{self.session}")

    def hold(self, holds: Holds) -> None:
        self.held[holds.pod.uid] = holds
        self.decided = max(self.decided, holds.attempt.number)

    def nominate(self, pod: Pod, number: int, node: str, gpus: tuple[str, ...]) -> None:
        before, until = self.nominated.get(pod.uid), self._api.now + NOMINATION_S
        if before is not None and before.node == node and self._api.now < before.until:
            until = before.until
        self.nominated[pod.uid] = Room(pod, number, node, gpus, until)

    def give_back(self, uid: str, attempt: Attempt) -> None:
        """The pod is certainly not bound by this attempt."""
        holds = self.held.get(uid)
        if holds is not None and holds.attempt == attempt:
            del self.held[uid]
        self._end(uid, Ending(attempt, unknown=False))

    def doubt(self, holds: Holds) -> None:
        """Nobody knows what became of the Binding."""
        holds.stage = Stage.DOUBTFUL
        self.doubts.append(holds)
        self._end(holds.pod.uid, Ending(holds.attempt, unknown=True))

    def no_doubt(self, holds: Holds) -> None:
        holds.stage = Stage.BOUND

    def acknowledged(self, uid: str, ending: Ending) -> None:
        if self.endings.get(uid) is ending:
            del self.endings[uid]

    def statement(self) -> Statement:
        """Return what a Resync says now."""
        self._forget_gone()
        said = [_said(h.pod, h.attempt.number, h.node, h.handles, doubtful=h.stage is Stage.DOUBTFUL) for h in self.held.values()]
        rooms = [room for uid, room in self.nominated.items() if uid not in self.held]
        said += [_said(r.pod, r.number, r.node, r.gpus, doubtful=False, nominated=True) for r in rooms]
        said.sort(key=lambda both: both[0].number)
        return Statement(self.attempt(self.decided), tuple(held for held, _ in said), tuple(held for _, held in said))

    def answered(self, statement: Statement, conflicts: Collection[str]) -> None:
        """Take the answer to a Resync. Who is bound by its own view need not be told of once more."""
        for uid in conflicts:
            if uid in self.held:
                self.held[uid].conflicting = True
            else:
                self.nominated.pop(uid, None)
        for told in statement.said:
            holds = self.held.get(told.wants.uid)
            if holds is not None and holds.attempt.number == told.number and not self._is_unbound(told.wants.uid):
                del self.held[told.wants.uid]

    def _forget_gone(self) -> None:
        """Let go of the pods that are gone by its own view, and of what is no longer held for nominated ones."""
        for uid in [uid for uid in self.held if uid not in self.view]:
            del self.held[uid]
        for uid, room in list(self.nominated.items()):
            if self._api.now >= room.until or not self._is_unbound(uid):
                del self.nominated[uid]

    def _is_unbound(self, uid: str) -> bool:
        return uid in self.view and self.view[uid] is None

    def _end(self, uid: str, ending: Ending) -> None:
        earlier = self.endings.get(uid)
        if earlier is None or earlier.attempt <= ending.attempt:
            self.endings[uid] = ending


def _said(
    pod: Pod, number: int, node: str, gpus: tuple[str, ...], *, doubtful: bool, nominated: bool = False
) -> tuple[HeldByShim, Held]:
    """Return what is said of one pod, for the service and for the model."""
    wants = Wants(pod.uid, pod.request.peak, pod.priority)
    return (
        HeldByShim(pod.waits, number, node, gpus, doubtful, nominated),
        Held(wants, number, node, frozenset(gpus), doubtful, nominated),
    )

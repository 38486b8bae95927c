"""Judges every state of pods and nodes that the watches of the chaos run see. Pure: time is an argument.

It believes nothing but the API's objects: a pod that is bound and not over holds the GPUs that its annotation names, from
the revision of its binding to the revision at which it is over or deleted.

Concurrency contract: its callers hold one lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from deploy.local import chaos_objects
from deploy.local.chaos_nodes import NodeHistory
from deploy.local.chaos_objects import Node, Object, Pod
from deploy.local.chaos_violations import Kind, Violation

# A decision is older than its Binding, and a stopped process carries on with what it decided before.
_DECIDED_BEFORE_S: Final = 10.0
# How far the agent's report of what is in use lags behind.
_REPORTED_AFTER_S: Final = 1.0
_REFUSED: Final = "UnexpectedAdmissionError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A binding that was seen.

    Attributes
    ----------
    pod
        The pod as it was then.
    gpus
        UUIDs that it names.
    at_s
        When it was seen.
    room_s
        Since when there was room for it at every moment; None if there was none, as far as that was seen.

    """

    pod: Pod
    gpus: tuple[str, ...]
    at_s: float
    room_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A pod that its node refused.

    Attributes
    ----------
    bind
        Its binding.
    ended_s
        When it was refused.
    message
        What the node says.
    lost
        Those of its GPUs that the node lost about that time: nobody could know.

    """

    bind: Bind
    ended_s: float
    message: str
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a pod waited while there was room for it; times are seconds since the run began."""

    pod: str
    since_s: float
    until_s: float


@dataclass(slots=True)
class _Known:
    """What is known of a pod: its latest state, when it was first seen, since when there is room for it, and its binding."""

    pod: Pod
    seen_s: float
    room_s: float | None = None
    bind: Bind | None = None
    ended_s: float | None = None
    has_run: bool = False
    gone: bool = False


@dataclass(slots=True)
class Recorder:
    """What was seen, and what of it must not be.

    Attributes
    ----------
    scheduler
        Scheduler whose pods must name their GPUs.
    violations
        All violations so far, in the order in which they were seen.
    binds
        All bindings, in the order in which they were seen.
    changes
        How many states of pods were judged.

    """

    scheduler: str
    violations: list[Violation] = field(default_factory=list)
    binds: list[Bind] = field(default_factory=list)
    changes: int = 0
    _pods: dict[str, _Known] = field(default_factory=dict)
    _nodes: NodeHistory = field(default_factory=NodeHistory)
    _holders: dict[tuple[str, str], dict[str, Pod]] = field(default_factory=dict)
    _hungry: list[tuple[float, bool]] = field(default_factory=list)

    # -- what the watches tell ---------------------------------------------------------------------------------------

    def see_node(self, kind: str, item: Object, at_s: float) -> None:
        """Take an event of the watch of nodes: ADDED, MODIFIED or DELETED, and the object."""
        node = chaos_objects.node(item)
        if kind == "DELETED":
            self._nodes.see_gone(node.name, node.revision, at_s)
        else:
            self._nodes.see(node, at_s)
        self._note_room(at_s)

    def see_nodes(self, items: Iterable[Object], last: int, version: int, at_s: float) -> None:
        """Take the list of nodes at the revision `version`; changes after the revision `last` may have been missed."""
        self._nodes.see_all(map(chaos_objects.node, items), last, version, at_s)
        self._note_room(at_s)

    def see_pod(self, kind: str, item: Object, at_s: float) -> None:
        """Take an event of the watch of pods."""
        pod = chaos_objects.pod(item)
        if kind == "DELETED":
            self._see_gone(pod.uid)
        else:
            self._release_ended([pod])
            self._see(pod, at_s)
        self.changes += 1
        self._note_room(at_s)

    def see_pods(self, items: Iterable[Object], at_s: float) -> None:
        """Take a list of all pods; changes before it may have been missed.

        Pods that have ended by then free their GPUs before those that are bound by then take theirs: in which order it
        was nobody saw.
        """
        pods = [chaos_objects.pod(item) for item in items]
        for uid in self._pods.keys() - {pod.uid for pod in pods}:
            self._see_gone(uid)
        self._release_ended(pods)
        for pod in pods:
            known = self._pods.get(pod.uid)
            if known is None or known.pod.revision != pod.revision:
                self.changes += 1
                self._see(pod, at_s)
        self._note_room(at_s)

    # -- what is asked of it ------------------------------------------------------------------------------------------

    def over(self) -> list[str]:
        """Return the names of the pods that are over and not deleted."""
        return [known.pod.name for known in self._pods.values() if known.pod.is_over and not known.gone]

    def unfinished(self) -> list[str]:
        """Return the names of the pods that are neither over nor gone."""
        return [known.pod.name for known in self._pods.values() if not known.gone and not known.pod.is_over]

    def seen(self) -> set[str]:
        """Return the names of all pods that were ever seen."""
        return {known.pod.name for known in self._pods.values()}

    def gone_unbound(self) -> list[str]:
        """Return the names of the pods that were deleted before they had a node."""
        return [known.pod.name for known in self._pods.values() if known.gone and known.pod.node is None]

    def refused(self) -> list[Refusal]:
        """Return the pods that their node refused."""
        return [
            Refusal(bind=known.bind, ended_s=known.ended_s, message=known.pod.message, lost=self._lost(known.bind, known.ended_s))
            for known in self._pods.values()
            if known.bind and known.ended_s is not None and known.pod.reason == _REFUSED
        ]

    def next_bind(self, after_s: float) -> Bind | None:
        """Return the first binding that was seen after a moment."""
        return next((bind for bind in self.binds if bind.at_s > after_s), None)

    def hungry_s(self, after_s: float, until_s: float) -> float | None:
        """Return the first moment of a stretch of time at which a pod waited that had room; None if none did."""
        hungry = False
        for at_s, now_hungry in self._hungry:
            if at_s >= until_s:
                break
            if at_s > after_s and (hungry or now_hungry):
                return after_s if hungry else at_s
            hungry = now_hungry
        return after_s if hungry else None

    def longest_wait_s(self, since_s: float, until_s: float) -> float:
        """Return how long a pod waited at most in a stretch of time, counted while there was room for it without a break."""
        bound = ((bind.room_s, bind.at_s) for bind in self.binds if since_s < bind.at_s <= until_s)
        still = ((known.room_s, until_s) for known in self._waiting())
        waits = (end - max(room, since_s) for room, end in (*bound, *still) if room is not None)
        return max(waits, default=0.0)

    def waits(self, at_s: float) -> list[Wait]:
        """Return how long each pod that had room without a break waited with it."""
        bound = ((bind.pod.name, bind.room_s, bind.at_s) for bind in self.binds)
        still = ((known.pod.name, known.room_s, at_s) for known in self._waiting())
        return [Wait(name, since_s, end_s) for name, since_s, end_s in (*bound, *still) if since_s is not None]

    def judge_parked(self, calm_s: float, at_s: float, limit_s: float) -> None:
        """Judge the pods that wait, with room since `calm_s` or later, for longer than they may."""
        for known in self._waiting():
            since_s = None if known.room_s is None else max(known.room_s, calm_s)
            if since_s is not None and at_s - since_s > limit_s:
                self._violate(Kind.PARKED, at_s, known.pod, detail=f"room since {since_s:.1f} s: {self._room(known.pod)}")

    def judge_end(self, at_s: float, expected: Collection[str], deleted: Collection[str]) -> None:
        """Judge the whole, when everything should have come to an end.

        Parameters
        ----------
        at_s
            Now.
        expected
            Names of the pods whose creation the API server has acknowledged.
        deleted
            Names of the pods that were deleted on purpose.

        """
        for bind in self.binds:
            self._judge_devices(bind)
        for known in self._pods.values():
            if known.bind and not known.has_run and not known.pod.is_over and not known.gone:
                self._violate(Kind.NOT_RUN, at_s, known.pod, detail=f"bound at {known.bind.at_s:.1f} s")
        for known in self._waiting():
            self._violate(Kind.PARKED, at_s, known.pod, detail=f"at the end; first seen at {known.seen_s:.1f} s")
        lost = dict.fromkeys(set(expected) - self.seen(), "its creation was acknowledged")
        lost |= dict.fromkeys(set(self.gone_unbound()) - set(deleted), "deleted by nobody before it was bound")
        self.violations += [
            Violation(kind=Kind.LOST, at_s=at_s, pods=(name,), detail=detail) for name, detail in sorted(lost.items())
        ]

    # -- pods -----------------------------------------------------------------------------------------------------------

    def _see(self, pod: Pod, at_s: float) -> None:
        known = self._pods.get(pod.uid)
        if known is None:
            known = self._pods[pod.uid] = _Known(pod, seen_s=at_s)
        elif known.bind:
            self._judge_bound(known.bind, pod, at_s)
        if pod.node and known.bind is None:
            known.bind = self._bind(known, pod, at_s)
        known.pod = pod
        known.has_run |= pod.phase == "Running"
        if pod.is_over and known.ended_s is None:
            known.ended_s = at_s
        if pod.node and not pod.is_over:
            self._hold(pod, pod.node, at_s)

    def _see_gone(self, uid: str) -> None:
        if known := self._pods.get(uid):
            known.gone = True
            self._release(uid)

    def _bind(self, known: _Known, pod: Pod, at_s: float) -> Bind:
        bind = Bind(pod=pod, gpus=self._named_by(pod), at_s=at_s, room_s=known.room_s)
        self.binds.append(bind)
        self._judge_named(pod, at_s)
        return bind

    def _judge_bound(self, bind: Bind, pod: Pod, at_s: float) -> None:
        before = bind.pod
        if pod.node is None:
            self._violate(Kind.UNBOUND, at_s, pod, detail=f"bound to {before.node} at {bind.at_s:.1f} s")
        elif pod.node != before.node:
            self._violate(Kind.MOVED, at_s, pod, detail=f"bound to {before.node} at {bind.at_s:.1f} s")
        if pod.named != before.named:
            self._violate(Kind.RENAMED, at_s, pod, pod.handles, detail=f"at its binding {dict(before.named or {})}")

    def _judge_named(self, pod: Pod, at_s: float) -> None:
        if pod.named is None:
            if pod.need and pod.scheduler == self.scheduler:
                self._violate(Kind.UNNAMED, at_s, pod)
            return
        named = {name: len(set(gpus)) for name, gpus in pod.named.items()}
        if named != dict(pod.asked) or len(pod.handles) != pod.need:
            self._violate(Kind.WRONG_COUNT, at_s, pod, pod.handles, detail=f"asks for {dict(pod.asked)}, {pod.need} in all")

    # -- GPUs -----------------------------------------------------------------------------------------------------------

    def _hold(self, pod: Pod, node: str, at_s: float) -> None:
        shared: dict[str, list[str]] = {}
        for gpu in self._named_by(pod):
            holders = self._holders.setdefault((node, gpu), {})
            if pod.uid not in holders:
                for uid in holders:
                    shared.setdefault(uid, []).append(gpu)
            holders[pod.uid] = pod
        for uid, gpus in shared.items():
            self._violate_twice(self._pods[uid], pod, gpus, at_s)

    def _release_ended(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.is_over or pod.node is None:
                self._release(pod.uid)

    def _release(self, uid: str) -> None:
        known = self._pods.get(uid)
        if known and known.bind:
            for gpu in known.bind.gpus:
                self._holders.get((known.bind.pod.node or "", gpu), {}).pop(uid, None)

    def _named_by(self, pod: Pod) -> tuple[str, ...]:
        node = self._nodes.widest(pod.node or "")
        return tuple(node.uuid(handle) if node else handle for handle in pod.handles)

    def _lost(self, bind: Bind, ended_s: float) -> tuple[str, ...]:
        about = self._nodes.during(bind.pod.node or "", bind.at_s - _DECIDED_BEFORE_S, ended_s + _REPORTED_AFTER_S)
        return tuple(gpu for gpu in bind.gpus if not all(gpu in _uuids(node) for node in about))

    def _judge_devices(self, bind: Bind) -> None:
        name, revision = bind.pod.node or "", bind.pod.revision
        recent = self._nodes.since(name, bind.at_s - _DECIDED_BEFORE_S, revision)
        absent = tuple(gpu for gpu in bind.gpus if not any(gpu in _uuids(node) for node in recent))
        if absent:
            self._violate(Kind.NO_SUCH_GPU, bind.at_s, bind.pod, absent, detail=f"in the last {_DECIDED_BEFORE_S:g} s")
        reports = self._nodes.since(name, bind.at_s - _REPORTED_AFTER_S, revision)
        for uid in {uid for node in reports for uid in node.in_use.values()} - {bind.pod.uid}:
            gpus = tuple(gpu for gpu in bind.gpus if all(node.in_use.get(gpu) == uid for node in reports))
            if gpus:
                holder = self._pods[uid].pod.name if uid in self._pods else uid
                self._violate(Kind.IN_USE, bind.at_s, bind.pod, gpus, detail=f"in use by {holder}")

    # -- room -----------------------------------------------------------------------------------------------------------

    def _waiting(self) -> Iterator[_Known]:
        for known in self._pods.values():
            pod = known.pod
            if pod.node is None and not (known.gone or pod.is_over or pod.ending) and pod.scheduler == self.scheduler:
                yield known

    def _note_room(self, at_s: float) -> None:
        """Note since when there is room for each pod that waits."""
        waiting = list(self._waiting())
        free = [(node, self._free(node)) for node in self._nodes.latest() if node.usable] if waiting else []
        for known in waiting:
            if any(_fits(known.pod, node, count) for node, count in free):
                known.room_s = at_s if known.room_s is None else known.room_s
            else:
                known.room_s = None
        hungry = any(known.room_s is not None for known in waiting)
        if not self._hungry or self._hungry[-1][1] != hungry:
            self._hungry.append((at_s, hungry))

    def _room(self, pod: Pod) -> str:
        free = {node.name: self._free(node) for node in self._nodes.latest() if node.usable and _selects(pod, node)}
        return ", ".join(f"{count} GPUs free on {name}" for name, count in free.items() if count >= pod.need)

    def _free(self, node: Node) -> int:
        held = {gpu for (name, gpu), holders in self._holders.items() if name == node.name and holders}
        taken = held | set(node.in_use)
        return min(len(set(node.gpus.values()) - taken), node.allocatable - len(held))

    # -- violations -----------------------------------------------------------------------------------------------------

    def _violate_twice(self, earlier: _Known, later: Pod, gpus: Iterable[str], at_s: float) -> None:
        assert earlier.bind is not None
        detail = f"the first since {earlier.bind.at_s:.1f} s; revisions {earlier.pod.revision} and {later.revision}"
        names, node = (earlier.pod.name, later.name), later.node or ""
        self.violations.append(Violation(kind=Kind.GPU_TWICE, at_s=at_s, pods=names, node=node, gpus=tuple(gpus), detail=detail))

    def _violate(self, kind: Kind, at_s: float, pod: Pod, gpus: Iterable[str] = (), detail: str = "") -> None:
        violation = Violation(kind=kind, at_s=at_s, pods=(pod.name,), node=pod.node or "", gpus=tuple(gpus), detail=detail)
        about = (kind, violation.pods, violation.node, violation.gpus)
        if not any((each.kind, each.pods, each.node, each.gpus) == about for each in self.violations):
            self.violations.append(violation)


def _uuids(node: Node) -> set[str]:
    return set(node.gpus.values())


def _selects(pod: Pod, node: Node) -> bool:
    return pod.selector.items() <= node.labels.items()


def _fits(pod: Pod, node: Node, free: int) -> bool:
    return free >= pod.need and _selects(pod, node)

"""Who holds which GPU.

The rules of the books, one method per event. Each returns the set of nodes
whose holdings changed, so that the caller derives just those anew.

Invariants
    A pod has at most one holding. Two bound holdings never name one GPU of one node, unless the
    node's agent says so; a reservation shares one only with what was bound, or taken up from a
    scheduler, since it was made. An attempt that is older than the newest
    one seen of its pod, or of an older shim session, changes nothing.

Concurrency contract: one writer; readers hold the same lock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import Attempt, Code, InUse, NodeFacts, PodFacts, PodUid, Verdict
from pyscheduler.core.request import effective_gpus

__all__ = ["ALREADY_BOUND", "MADE_ROOM", "TOMBSTONE_S", "UNLISTED_S", "Ledger"]

# How long a deleted pod's UID is remembered, in seconds: longer than any call of its can still be under way.
TOMBSTONE_S = 600.0

# Seconds for which the GPUs of a gone pod are held whose devices the node's agent has not reported: it may have given
# them out just before, and tells of it a moment later.
UNLISTED_S = 5.0

# Why a pod is not considered that is bound.
ALREADY_BOUND = "the pod is already bound; the scheduler has not seen it yet"

# Why GPUs are held for a pod that is not reserved.
MADE_ROOM = "preemption makes room for the pod"

_UNBOUND = (HoldingState.RESERVED, HoldingState.DOUBTFUL)
# What gives way to a pod that is bound.
_YIELDING = (*_UNBOUND, HoldingState.NOMINATED, HoldingState.PLANNED)


class Ledger:
    """Holdings by pod and by node, with the attempts and deletions that guard them.

    Attributes
    ----------
    scheduler_name
        Whose bindings are ours.
    """

    def __init__(self, scheduler_name: str) -> None:
        self.scheduler_name = scheduler_name
        self._holdings: dict[PodUid, Holding] = {}
        self._by_node: dict[int, dict[PodUid, Holding]] = {}
        # The newest attempt of each pod that has ended, and when; in the order of that.
        self._ended: dict[PodUid, tuple[Attempt, float]] = {}
        self._tombstones: dict[PodUid, float] = {}
        self._nominated: set[PodUid] = set()
        self._unbound: set[PodUid] = set()
        self._rivals: set[PodUid] = set()
        # Gone pods whose devices were never reported.
        self._unlisted: set[PodUid] = set()
        self._session = self._stated = 0

    def get(self, uid: PodUid) -> Holding | None:
        """Return the pod's holding, if it has one."""
        return self._holdings.get(uid)

    def holdings(self) -> Collection[Holding]:
        """Return all holdings."""
        return self._holdings.values()

    def on_node(self, node: int) -> Collection[Holding]:
        """Return the holdings on the node of this index."""
        return self._by_node.get(node, {}).values()

    def nominated(self) -> list[Holding]:
        """Return what is held for pods that preemption makes room for, by UID."""
        return [self._holdings[uid] for uid in sorted(self._nominated)]

    def unbound(self) -> list[Holding]:
        """Return the reservations whose Binding was not seen yet, in any order."""
        return [self._holdings[uid] for uid in self._unbound]

    def conflicts(self) -> list[Holding]:
        """Return the live pods that name a GPU which an earlier one, live as well, keeps; by UID."""
        return [held for uid in sorted(self._rivals) if self._is_live((held := self._holdings[uid]).rival)]

    def session(self) -> int:
        """Return the newest shim session seen, 0 if none."""
        return self._session

    # -- calls of the shim ------------------------------------------------------------------------------------------

    def refusal(self, attempt: Attempt, uid: PodUid) -> Verdict | None:
        """Return why this attempt may not reserve now, None if it may (or if it already has)."""
        ended = self._ended_of(uid)
        if attempt.session < self._session:
            return Verdict(Code.RETRY, "this scheduler instance was superseded by a newer one: it must stop scheduling")
        if attempt.session > self._stated:
            return Verdict(Code.RETRY, "this scheduler has not said yet what it holds: it does so when it connects")
        if uid in self._tombstones:
            return Verdict(Code.RETRY, "the pod was deleted")
        if ended is not None and attempt <= ended:
            return Verdict(Code.RETRY, "this scheduling attempt has already ended")
        held = self._holdings.get(uid)
        why = self._in_the_way(attempt, held) if held is not None else ""
        return Verdict(Code.RETRY, why) if why else None

    @staticmethod
    def _in_the_way(attempt: Attempt, held: Holding) -> str:
        """Return why the pod may not be reserved for beside what it holds, empty if it may."""
        if held.state not in _YIELDING:
            return ALREADY_BOUND
        if held.attempt == attempt:
            return ""
        if held.attempt is not None and attempt < held.attempt:
            return "a newer scheduling attempt of the pod is under way"
        if held.is_unbound and held.attempt is not None and held.attempt.session < attempt.session:
            # It may be bound, and no watch has shown it yet: a live read settles it.
            return "what an earlier scheduler reserved for the pod is not settled yet"
        return "the outcome of an earlier binding is not known yet" if held.state is HoldingState.DOUBTFUL else ""

    def reserve(self, holding: Holding) -> set[int]:
        """Hold GPUs for an attempt that `refusal` let pass; an older reservation of the pod ends."""
        assert holding.attempt is not None
        self.note_session(holding.attempt.session)
        return self._put(holding)

    def promise(self, holding: Holding) -> set[int]:
        """Hold GPUs for a pod that is not reserved yet, nominated or planned, in place of what was held for it before."""
        return self._put(holding)

    def note_session(self, session: int) -> None:
        """Remember the newest shim session: older ones are ignored from now on."""
        self._session = max(self._session, session)

    def note_statement(self, session: int) -> None:
        """Remember that this session has said what it holds: from now on it may reserve."""
        self.note_session(session)
        self._stated = self._session

    def unreserve(self, attempt: Attempt, uid: PodUid, *, bound_unknown: bool, now: float) -> set[int]:
        """End the attempt's reservation, or mark it doubtful. Without a reservation only the attempt is ended."""
        if attempt.session < self._session:
            return set()
        self.note_session(attempt.session)
        self._note_end(attempt, uid, now)
        held = self._holdings.get(uid)
        # Only the attempt that made a reservation ends it: of any other it proves nothing.
        if held is None or held.state not in _UNBOUND or held.attempt != attempt:
            return set()
        if bound_unknown:
            reason = "the answer to its Binding was lost"
            return self._put(replace(held, state=HoldingState.DOUBTFUL, since=now, reason=reason))
        if held.nominated_at is not None:
            return self._put(replace(held, state=HoldingState.NOMINATED, since=held.nominated_at, reason=MADE_ROOM))
        return self._drop(uid)

    def orphans(self, attempt: Attempt, kept: Collection[PodUid]) -> list[Holding]:
        """Return unbound holdings that this shim no longer knows, up to its newest attempt."""
        return [
            h
            for h in self._holdings.values()
            if h.state in _UNBOUND and h.uid not in kept and h.attempt is not None and h.attempt <= attempt
        ]

    def drop(self, holding: Holding) -> set[int]:
        """Drop a holding, unless it changed since it was read."""
        return self._drop(holding.uid) if self._holdings.get(holding.uid) == holding else set()

    # -- what the API shows -----------------------------------------------------------------------------------------

    def see_bound(self, pod: PodFacts, node: int, now: float, facts: NodeFacts) -> set[int]:
        """Note that the pod is bound to the node, of which the API says `facts`, and runs or may run there."""
        held = self._holdings.get(pod.uid)
        if pod.uid in self._tombstones:
            return set()
        if held is not None and held.state not in _YIELDING and held.node == node:
            # The value first seen at the binding stands; later edits are ignored.
            return self._put(replace(held, terminating=True)) if pod.terminating and not held.terminating else set()
        believed, distrust, rival = self._judged(pod, node, facts)
        touched: set[int] = set()
        # What is bound is a fact, and what is held for a pod that is not reserved is not. A reservation stays: its Binding may land.
        for other in self._others_with(pod.uid, node, believed, facts):
            touched |= self._drop(other.uid) if other.is_promised else set()
        return touched | self._put(
            Holding(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                node=node,
                state=HoldingState.FOREIGN if distrust else HoldingState.BOUND,
                count=effective_gpus(pod.containers),
                gpus=believed,
                since=now,
                reason=distrust or "bound by this scheduler",
                attempt=held.attempt if held else None,
                bound_at=pod.bound_at,
                priority=pod.priority,
                gang=pod.gang,
                terminating=pod.terminating,
                listed=pod.uid in (facts.in_use or {}),
                rival=rival,
                plan=held.plan if held else "",
            )
        )

    def see_gone(self, uid: PodUid, *, reported: bool | None, now: float) -> set[int]:
        """Note that the pod is finished or deleted. `reported`: its node's agent lists its devices; None: there is none."""
        self._bury(uid, now)
        held = self._holdings.get(uid)
        if held is None or held.state is HoldingState.RELEASING:
            return set()
        if reported and not held.is_promised:
            reason = "the pod is gone, the node still holds its devices"
            return self._put(replace(held, state=HoldingState.RELEASING, since=now, reason=reason, listed=True))
        if reported is False and not held.listed and held.state not in _YIELDING:
            reason = "the pod is gone, its node has not told of its devices"
            return self._put(replace(held, state=HoldingState.RELEASING, since=now, reason=reason))
        return self._drop(uid)

    def end_unlisted(self, now: float) -> set[int]:
        """Note that time has passed: devices of gone pods that no agent has told of since are free.

        Ends of attempts are forgotten when no call of them can be under way.
        """
        while self._ended and now - next(iter(self._ended.values()))[1] > TOMBSTONE_S:
            del self._ended[next(iter(self._ended))]
        late = [uid for uid in self._unlisted if now - self._holdings[uid].since > UNLISTED_S]
        return set().union(*(self._drop(uid) for uid in late))

    def follow_report(self, node: int, reported: InUse) -> set[int]:
        """Note what the node's agent reports: it says which GPUs a pod really has, and when they are released."""
        touched: set[int] = set()
        for holding in list(self.on_node(node)):
            held, handles = holding, reported.get(holding.uid)
            if handles and not held.listed:
                held = replace(held, listed=True)
                self._put(held)
            if handles is None and held.state is HoldingState.RELEASING and held.listed:
                touched |= self._drop(held.uid)
            elif handles and len(handles) == held.count and set(handles) != set(held.gpus) and held.state not in _YIELDING:
                # A report of another number is of a moment in between: what is known stays.
                touched |= self._put(replace(held, gpus=tuple(handles), reason="the node's agent reports these GPUs", rival=None))
        return touched

    def end_releasing(self, node: int) -> set[int]:
        """Note that nobody reports any more what the node's devices are used for, or that the node is gone."""
        releasing = [h.uid for h in self.on_node(node) if h.state is HoldingState.RELEASING]
        return set().union(*(self._drop(uid) for uid in releasing))

    def adopt(self, holding: Holding, facts: NodeFacts) -> set[int]:
        """Take up a reservation that the shim holds and these books lack, unless it has ended since."""
        ended = self._ended_of(holding.uid)
        # Of a doubtful one the attempt has ended, and its Binding may land.
        doubtful = holding.state is HoldingState.DOUBTFUL
        late = not doubtful and ended is not None and holding.attempt is not None and holding.attempt <= ended
        if late or holding.uid in self._tombstones:
            return set()
        others = self.others_with(holding, facts)
        promised = [other for other in others if other.is_promised]
        return self._put(holding).union(*(self._drop(other.uid) for other in promised))

    def others_with(self, holding: Holding, facts: NodeFacts) -> list[Holding]:
        """Return what others hold of the same GPUs."""
        return self._others_with(holding.uid, holding.node, holding.gpus, facts)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _ended_of(self, uid: PodUid) -> Attempt | None:
        ended = self._ended.get(uid)
        return ended[0] if ended is not None else None

    def _note_end(self, attempt: Attempt, uid: PodUid, now: float) -> None:
        if uid not in self._tombstones:
            before = self._ended.pop(uid, (attempt, now))[0]
            self._ended[uid] = max(attempt, before), now

    def _is_live(self, uid: PodUid | None) -> bool:
        held = self._holdings.get(uid) if uid is not None else None
        return held is not None and held.state is not HoldingState.RELEASING

    def _judged(self, pod: PodFacts, node: int, facts: NodeFacts) -> tuple[tuple[str, ...], str, PodUid | None]:
        """Return the GPUs that the pod is taken to have, why it is foreign, and the pod that keeps what it names."""
        # The agent's report wins over the annotation.
        reported = _reported(pod, facts)
        # Each once: init containers name GPUs that the app containers reuse.
        named = tuple(dict.fromkeys(h for share in (pod.gpus or {}).values() for h in share))
        distrust, rival = self._foreign(pod), None
        if not distrust and not reported:
            distrust, rival = self._distrust(pod, node, named, facts)
        if distrust:
            return (), distrust, rival
        # Those of them that are there stay held by name: a lost GPU may come back.
        return reported or named, _lacking(reported or named, facts), None

    def _foreign(self, pod: PodFacts) -> str:
        """Return why the pod is not ours, empty if it is."""
        if pod.scheduler != self.scheduler_name:
            return "bound by another scheduler"
        return "its devices come from a resource claim" if pod.claimed else ""

    def _distrust(self, pod: PodFacts, node: int, handles: tuple[str, ...], facts: NodeFacts) -> tuple[str, PodUid | None]:
        """Return why the annotation of a pod of ours does not count, empty if it does, and the pod that keeps what it names."""
        if pod.gpus is None:
            return "bound without naming its GPUs", None
        if len(handles) != effective_gpus(pod.containers):
            return "its annotation names another number of GPUs than it asks for", None
        others = self._others_with(pod.uid, node, handles, facts)
        earlier = [h for h in others if h.state in (HoldingState.BOUND, HoldingState.FOREIGN)]
        if earlier:
            return f"names a GPU that {earlier[0].namespace}/{earlier[0].name} holds", earlier[0].uid
        if any(uid != pod.uid and _share_one(gpus, handles, facts) for uid, gpus in (facts.in_use or {}).items()):
            return "names a GPU that the node's agent reports of another pod", None
        return "", None

    def _others_with(self, uid: PodUid, node: int, handles: tuple[str, ...], facts: NodeFacts | None = None) -> list[Holding]:
        return [
            h
            for h in self.on_node(node)
            if h.uid != uid and h.state is not HoldingState.RELEASING and _share_one(h.gpus, handles, facts)
        ]

    def _bury(self, uid: PodUid, now: float) -> None:
        self._ended.pop(uid, None)
        self._tombstones[uid] = now
        # Insertion order is time order: the oldest are at the front.
        while self._tombstones:
            oldest = next(iter(self._tombstones))
            if now - self._tombstones[oldest] <= TOMBSTONE_S:
                break
            del self._tombstones[oldest]

    def _put(self, holding: Holding) -> set[int]:
        touched = self._drop(holding.uid)
        self._holdings[holding.uid] = holding
        if holding.state is HoldingState.NOMINATED:
            self._nominated.add(holding.uid)
        if holding.is_unbound:
            self._unbound.add(holding.uid)
        if holding.rival is not None:
            self._rivals.add(holding.uid)
        if holding.state is HoldingState.RELEASING and not holding.listed:
            self._unlisted.add(holding.uid)
        self._by_node.setdefault(holding.node, {})[holding.uid] = holding
        return touched | {holding.node}

    def _drop(self, uid: PodUid) -> set[int]:
        held = self._holdings.pop(uid, None)
        if held is None:
            return set()
        del self._by_node[held.node][uid]
        self._nominated.discard(uid)
        self._unbound.discard(uid)
        self._rivals.discard(uid)
        self._unlisted.discard(uid)
        return {held.node}


def _reported(pod: PodFacts, facts: NodeFacts) -> tuple[str, ...]:
    """Return the GPUs that the node's agent reports of the pod; empty where it reports none, or another number."""
    handles = (facts.in_use or {}).get(pod.uid, ())
    return handles if len(handles) == effective_gpus(pod.containers) else ()


def _share_one(some: tuple[str, ...], others: tuple[str, ...], facts: NodeFacts | None) -> bool:
    """Return whether both name one GPU of the node, by whichever name."""
    machine = facts.machine if facts else None
    by_place = machine is not None and machine.mask_of(some) & machine.mask_of(others) != 0
    return by_place or not set(some).isdisjoint(others)


def _lacking(handles: tuple[str, ...], facts: NodeFacts) -> str:
    """Return why these are not as many GPUs of the node, empty if they are or if its GPUs are not known by name."""
    machine = facts.machine
    if machine is None or machine.mask_of(handles).bit_count() == len(handles):
        return ""
    return "names GPUs that the node does not have"

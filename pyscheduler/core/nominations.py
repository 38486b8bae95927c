"""What is held for pods that preemption makes room for, until those that have it are gone.

Such GPUs are not free for others, except for pods of higher priority. A pod keeps what is held for it through failed
bindings; it ends when the pod is bound or gone, when a pod of higher priority takes it, or after `NOMINATION_S`.

Pods that wait for an eviction are woken from here, for no GPU that is free for everybody tells of it: those whose GPUs
are there, those that have lost what was held for them, and those that could have nobody evicted when they asked and
now could.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.search import Evictions, Proposal
from pyscheduler.core.evictions.units import Unit, is_leaving
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.ledger import MADE_ROOM
from pyscheduler.core.model import Attempt, PodRequest, PodUid
from pyscheduler.core.node import NodeState
from pyscheduler.core.refusals import RENAME_AFTER_S
from pyscheduler.core.request import Shape

__all__ = ["NOMINATION_S", "Nominations", "OpenTo"]

# Seconds after which what is held is free again: longer than pods take to end, which is 30 s unless they ask for more.
NOMINATION_S: Final = 300.0
# Seconds for which a call is remembered: longer than the scheduler leaves a pod alone, which then calls again, and
# longer than the shim may still say that something is held.
_REMEMBERED_S: Final = 2 * NOMINATION_S
# How often one call of `ready` looks whether an eviction on some node would help some kind of pod, and how many pods of
# the kind it looks at then. The rest is left for the next call.
_LOOKS_MAX: Final = 200
_PODS_MAX: Final = 50

# A pod whose GPUs are held may be held for again.
_WAITING: Final = (HoldingState.NOMINATED, HoldingState.RESERVED, HoldingState.DOUBTFUL)


@dataclass(frozen=True, slots=True)
class OpenTo:
    """What one pod may have of what is held for pods.

    Attributes
    ----------
    own
        The node where its own GPUs are free by now.
    lower
        Nodes that could take it in place of pods of lower priority, best first.
    """

    own: int | None
    lower: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """All of them, as a bitmap."""
        bits = 0 if self.own is None else 1 << self.own
        for node in self.lower:
            bits |= 1 << node
        return bits


# Priority and shape: an eviction that helps one pod of a kind would help any.
_Kind = tuple[int, Shape]


@dataclass(frozen=True, slots=True)
class _Call:
    """The latest attempt in which a pod asked for an eviction, and all nodes that it asked about in it."""

    attempt: Attempt
    priority: int
    shape: Shape
    nodes: int
    at: float

    @property
    def kind(self) -> _Kind:
        return self.priority, self.shape


@dataclass(frozen=True, slots=True)
class _Look:
    """Whether a nominated pod was worth another try when its node was in this state, and when it was last named."""

    state: NodeState
    is_due: bool
    named_at: float


class Nominations:
    """Keeps the nominated holdings of a cluster's ledger."""

    def __init__(self, cluster: Cluster, evictions: Evictions) -> None:
        self._cluster = cluster
        self._evictions = evictions
        # When it was last told what time it is.
        self._now = 0.0
        # Both in the order of their time.
        self._calls: dict[PodUid, _Call] = {}
        self._ended: dict[PodUid, float] = {}
        # Pods that something is held for; whether that has ended is found out later.
        self._holders: set[PodUid] = set()
        self._looks: dict[PodUid, _Look] = {}
        # Pods that nobody could be evicted for, by kind.
        self._unhelped: dict[_Kind, dict[PodUid, _Call]] = {}
        # The nodes when they were last looked at for those, and what has changed since.
        self._seen: list[NodeState] = []
        self._changed: set[int] = set()
        # What would have to go together with a member of each group, when it was looked at last.
        self._groups: dict[GangKey, Unit | None] = {}
        # By pod that was woken for an eviction: on which node it was possible, and when.
        self._offers: dict[PodUid, tuple[int, float]] = {}

    def of(self, uid: PodUid) -> Holding | None:
        """Return what is held for a pod, None if nothing is."""
        held = self._cluster.ledger.get(uid)
        return held if held is not None and held.state is HoldingState.NOMINATED else None

    def expire(self, now: float) -> None:
        """Let go what was held for too long."""
        self._now = now
        for held in self._cluster.ledger.nominated():
            if now - held.since > NOMINATION_S:
                self._drop(held)
        while self._calls and now - next(iter(self._calls.values())).at > _REMEMBERED_S:
            self._forget_call(next(iter(self._calls)))
        while self._ended and now - next(iter(self._ended.values())) > _REMEMBERED_S:
            del self._ended[next(iter(self._ended))]

    def open_to(self, uid: PodUid, priority: int, shape: Shape) -> OpenTo:
        """Return what the pod may have of what is held for pods."""
        hidden: dict[int, set[PodUid]] = {}
        for held in self._cluster.ledger.nominated():
            if _gives_way(held, uid, priority):
                hidden.setdefault(held.node, set()).add(held.uid)
        own, lower = None, []
        for node, uids in hidden.items():
            key = self._cluster.state_without(node, uids).key(shape)
            if key is not None and uid in uids:
                own = node
            elif key is not None:
                lower.append((key, self._cluster.table.names[node], node))
        return OpenTo(own, tuple(node for *_, node in sorted(lower)))

    def give_way(self, node: int, uid: PodUid, priority: int, shape: Shape) -> bool:
        """Let go what is held on the node for pods of lower priority, if the pod then fits. Return whether it does."""
        hidden = self._hidden(node, uid, priority)
        if not self._fits(node, hidden, shape):
            return False
        self._push_aside(node, hidden, (), uid, shape)
        return True

    def make_room(
        self, attempt: Attempt, pod: PodRequest, shape: Shape, nodes: int, protected: Collection[PodUid], now: float
    ) -> Proposal | None:
        """Return who has to go from one of these nodes, and hold what the pod then gets; what is on its way already stands."""
        mine, held = self._cluster.ledger.get(pod.uid), self.of(pod.uid)
        call = self._remember(attempt, pod, shape, nodes, now)
        going = self._going(held, pod, shape) if held is not None and nodes >> held.node & 1 else None
        if held is not None and going is not None:
            return self._hold(call, pod, held.node, going, held.victims, held.since)
        if mine is not None:
            # Also what an earlier attempt has reserved and not given back yet.
            self._drop(mine)
        found = self._evictions.propose(shape, pod.uid, pod.priority, nodes, protected)
        offer = self._offers.pop(pod.uid, None)
        if found is not None:
            # What it was woken for may help another.
            self._changed.update({offer[0]} if offer else ())
            return self._hold(call, pod, found.node, found.victims, found.victims, now)
        if pod.uid in self._holders:
            self._note_end(pod.uid)
        if not self._unhelped:
            self._seen = self._cluster.states()
        self._unhelped.setdefault(call.kind, {})[pod.uid] = call
        return None

    def adopt(self, attempt: Attempt, pod: PodRequest, shape: Shape, node: int, gpus: tuple[str, ...], now: float) -> bool:
        """Take up what the shim says was held for a pod before this service started.

        Return False if it is not to be held: it has ended here since, or others have it that do not go for this pod.
        """
        ledger = self._cluster.ledger
        ended = pod.uid in self._holders or pod.uid in self._ended
        if ended or ledger.get(pod.uid) is not None or ledger.refusal(attempt, pod.uid) is not None:
            return False
        here = ledger.on_node(node)
        units = {held.uid: unit for held in here if (unit := self._evictions.units.of(held)) and unit.priority < pod.priority}
        hidden = self._hidden(node, pod.uid, pod.priority)
        gone = {*units, *hidden, *self._leaving(node, ())}
        if any(held.uid not in gone and self._share(node, held.gpus, gpus) for held in here) or not self._fits(node, gone, shape):
            return False
        taken = [held for held in here if self._share(node, held.gpus, gpus)]
        for held in taken:
            if held.uid in hidden:
                self._drop(held)
        victims = tuple(sorted({uid for held in taken if held.uid in units for uid in units[held.uid].pods}))
        self._put(self._remember(attempt, pod, shape, 1 << node, now), pod, Proposal(node, victims, gpus), now)
        return True

    def ready(self) -> list[PodUid]:
        """Return the pods that wait for an eviction and are worth another try. As of the last `expire`."""
        return [*self._lost(), *self._served(), *self._helped()]

    # -- what is held -----------------------------------------------------------------------------------------------

    def _going(self, held: Holding, pod: PodRequest, shape: Shape) -> tuple[PodUid, ...] | None:
        """Return who still has to go for what is held, None if it would not do any more."""
        passing = self._hidden(held.node, pod.uid, pod.priority) | self._leaving(held.node, held.victims)
        standing = tuple(uid for uid in held.victims if self._evictions.units.stands(uid))
        if self._fits(held.node, passing, shape):
            # Of a group the rest goes as well when some do.
            return tuple(uid for uid in standing if self._evictions.units.is_broken(uid))
        return standing if self._fits(held.node, passing.union(standing), shape) else None

    def _hold(
        self, call: _Call, pod: PodRequest, node: int, going: tuple[PodUid, ...], victims: tuple[PodUid, ...], since: float
    ) -> Proposal:
        """Hold what the pod gets when these are gone; pods of lower priority keep what is held for them beside it."""
        leaving = self._leaving(node, victims).union(going)
        self._push_aside(node, self._hidden(node, pod.uid, pod.priority), leaving, pod.uid, call.shape)
        state = self._cluster.state_without(node, leaving | {pod.uid})
        choice, machine = state.choose(call.shape), state.facts.machine
        gpus = machine.handles(choice.mask) if machine and choice else ()
        self._put(call, pod, Proposal(node, victims, gpus), since)
        return Proposal(node, going, gpus)

    def _put(self, call: _Call, pod: PodRequest, held: Proposal, since: float) -> None:
        holding = Holding(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=held.node,
            state=HoldingState.NOMINATED,
            count=call.shape.gpus,
            gpus=held.gpus,
            since=since,
            reason=MADE_ROOM,
            attempt=call.attempt,
            priority=pod.priority,
            victims=held.victims,
            nominated_at=since,
        )
        self._cluster.refresh(self._cluster.ledger.promise(holding))
        self._holders.add(pod.uid)
        self._ended.pop(pod.uid, None)

    def _push_aside(self, node: int, hidden: Collection[PodUid], leaving: Collection[PodUid], uid: PodUid, shape: Shape) -> None:
        """Let go of what is hidden, as far as the pod needs it: of the lowest priority first."""
        ended = set(hidden)
        holdings = [held for held in self._cluster.ledger.nominated() if held.uid in hidden and held.uid != uid]
        for held in sorted(holdings, key=lambda held: (-held.priority, held.since, held.uid)):
            if self._fits(node, ended.difference({held.uid}).union(leaving), shape):
                ended.discard(held.uid)
            else:
                self._drop(held)

    def _drop(self, held: Holding) -> None:
        self._cluster.refresh(self._cluster.ledger.drop(held))

    def _fits(self, node: int, gone: Collection[PodUid], shape: Shape) -> bool:
        return self._cluster.state_without(node, gone).key(shape) is not None

    def _hidden(self, node: int, uid: PodUid, priority: int) -> set[PodUid]:
        """Return the pods whose holds on the node are as good as free for this one, itself among them."""
        return {held.uid for held in self._cluster.ledger.nominated() if held.node == node and _gives_way(held, uid, priority)}

    def _leaving(self, node: int, victims: Iterable[PodUid]) -> set[PodUid]:
        """Return the pods whose GPUs on the node are on their way; of victims that are gone the node's agent may report some."""
        here = {held.uid: held for held in self._cluster.ledger.on_node(node)}
        return {uid for uid, held in here.items() if is_leaving(held)}.union(uid for uid in victims if uid not in here)

    def _share(self, node: int, some: Iterable[str], others: Iterable[str]) -> bool:
        """Tell whether both name a GPU of the node, by whichever name."""
        machine = self._cluster.state(node).facts.machine
        by_place = machine is not None and machine.mask_of(some) & machine.mask_of(others) != 0
        return by_place or not set(some).isdisjoint(others)

    # -- what is remembered -----------------------------------------------------------------------------------------

    def _remember(self, attempt: Attempt, pod: PodRequest, shape: Shape, nodes: int, now: float) -> _Call:
        before = self._calls.get(pod.uid)
        if before is not None:
            nodes |= before.nodes if before.attempt == attempt else 0
            self._forget_call(pod.uid)
        call = self._calls[pod.uid] = _Call(attempt, pod.priority, shape, nodes, now)
        return call

    def _forget_call(self, uid: PodUid) -> None:
        kind = self._calls.pop(uid).kind
        pods = self._unhelped.get(kind, {})
        pods.pop(uid, None)
        if not pods:
            self._unhelped.pop(kind, None)

    def _note_end(self, uid: PodUid) -> None:
        """Note that nothing is held for the pod any more."""
        self._holders.discard(uid)
        self._ended.pop(uid, None)
        self._ended[uid] = self._now

    # -- who is worth another try -----------------------------------------------------------------------------------

    def _lost(self) -> list[PodUid]:
        """Return the pods for which something was held, and no longer is."""
        lost = []
        for uid in sorted(self._holders):
            held = self._cluster.ledger.get(uid)
            if held is None:
                self._note_end(uid)
                lost.append(uid)
            elif held.state not in _WAITING:
                self._holders.discard(uid)
        return lost

    def _served(self) -> list[PodUid]:
        """Return the nominated pods for which there is nothing left to wait for, now and then again."""
        looks, due = {}, []
        for held in self._cluster.ledger.nominated():
            state, look = self._cluster.state(held.node), self._looks.get(held.uid)
            if look is None or look.state is not state:
                named_at = look.named_at if look and look.is_due else -RENAME_AFTER_S
                look = _Look(state, self._is_due(held), named_at)
            if look.is_due and self._now - look.named_at >= RENAME_AFTER_S:
                look = _Look(state, look.is_due, self._now)
                due.append(held.uid)
            looks[held.uid] = look
        self._looks = looks
        return due

    def _is_due(self, held: Holding) -> bool:
        """Tell whether the pod's GPUs are free by now, or nothing more will happen that could free them."""
        call, state = self._calls.get(held.uid), self._cluster.state(held.node)
        if call is None or not state.present:
            return True
        if self._fits(held.node, self._hidden(held.node, held.uid, held.priority), call.shape):
            return True
        to_come = {
            other.uid for other in self._cluster.ledger.on_node(held.node) if is_leaving(other) or other.uid in held.victims
        }
        return not to_come and not (state.facts.in_use or {}).keys() & held.victims

    def _helped(self) -> list[PodUid]:
        """Return pods for which an eviction has become possible: of each kind one for each node where it has."""
        if not self._unhelped:
            self._changed.clear()
            self._groups.clear()
            self._offers.clear()
            return []
        states, seen = self._cluster.states(), self._seen
        changed = {node for node, state in enumerate(states) if node >= len(seen) or state is not seen[node]}
        self._changed |= changed.union(*map(self._with_groups, changed))
        self._seen = states
        for late in [uid for uid, (_, at) in self._offers.items() if self._now - at >= RENAME_AFTER_S]:
            # It is gone, or has found GPUs without an eviction.
            self._changed.add(self._offers.pop(late)[0])
        kinds = sorted(self._unhelped, key=lambda kind: -kind[0])
        helped = []
        for node in sorted(self._changed)[: max(1, _LOOKS_MAX // len(kinds))]:
            self._changed.discard(node)
            for kind in kinds:
                uid = self._helped_on(node, kind)
                if uid is not None:
                    self._forget_call(uid)
                    self._offers[uid] = node, self._now
                    helped.append(uid)
        return helped

    def _with_groups(self, node: int) -> set[int]:
        """Return the nodes of groups that may be evicted since they have changed on this one."""
        nodes: set[int] = set()
        for held in self._cluster.ledger.on_node(node):
            gang = self._cluster.roster.gang_of(held.uid) if held.gang else None
            unit = self._evictions.units.group(gang) if gang is not None else None
            if gang is not None and unit is not self._groups.get(gang):
                self._groups[gang] = unit
                others = map(self._cluster.ledger.get, unit.pods if unit is not None else ())
                nodes.update(other.node for other in others if other is not None)
        return nodes

    def _helped_on(self, node: int, kind: _Kind) -> PodUid | None:
        """Return a pod of this kind that could have somebody evicted from the node, None if there is none."""
        calls = islice(self._unhelped.get(kind, {}).items(), _PODS_MAX)
        uid = next((uid for uid, call in calls if call.nodes >> node & 1), None)
        priority, shape = kind
        return uid if uid is not None and self._evictions.possible(shape, uid, priority, node) else None


def _gives_way(held: Holding, uid: PodUid, priority: int) -> bool:
    return held.uid == uid or held.priority < priority

"""What is held for pods that preemption makes room for, until those that have it are gone.

Such GPUs are not free for others, except for pods of higher priority. A pod keeps what is held for it through failed
bindings; it ends when the pod is bound or gone, when a pod of higher priority takes it, or after `NOMINATION_S`.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.ledger import MADE_ROOM
from pyscheduler.core.model import Attempt, PodRequest, PodUid
from pyscheduler.core.preemption import Proposal, propose
from pyscheduler.core.request import Shape

__all__ = ["NOMINATION_S", "Nominations", "OpenTo"]

# Seconds after which what is held is free again: longer than pods take to end, which is 30 s unless they ask for more.
NOMINATION_S: Final = 300.0


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


class Nominations:
    """Keeps the nominated holdings of a cluster's ledger."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, uid: PodUid) -> Holding | None:
        """Return what is held for a pod, None if nothing is."""
        held = self._cluster.ledger.get(uid)
        return held if held is not None and held.state is HoldingState.NOMINATED else None

    def expire(self, now: float) -> None:
        """Let go what was held for too long."""
        for held in self._cluster.ledger.nominated():
            if now - held.since > NOMINATION_S:
                self.drop(held)

    def drop(self, held: Holding) -> None:
        """Let go what is held."""
        self._cluster.refresh(self._cluster.ledger.drop(held))

    def open_to(self, uid: PodUid, priority: int, shape: Shape) -> OpenTo:
        """Return what the pod may have of what is held for pods."""
        own, lower = None, []
        for node in {held.node for held in self._cluster.ledger.nominated() if _gives_way(held, uid, priority)}:
            state = self._cluster.state_without(node, self._hidden(node, uid, priority))
            key = state.key(shape)
            if key is None:
                continue
            mine = self.of(uid)
            if mine is not None and mine.node == node:
                own = node
            else:
                lower.append((key, self._cluster.table.names[node], node))
        return OpenTo(own, tuple(node for *_, node in sorted(lower)))

    def give_way(self, node: int, uid: PodUid, priority: int, shape: Shape) -> bool:
        """Let go what is held on the node for pods of lower priority, if the pod then fits. Return whether it does."""
        hidden = self._hidden(node, uid, priority)
        if self._cluster.state_without(node, hidden).key(shape) is None:
            return False
        for held in self._cluster.ledger.nominated():
            if held.uid in hidden and held.uid != uid and held.node == node:
                self.drop(held)
        return True

    def make_room(
        self, attempt: Attempt, pod: PodRequest, shape: Shape, nodes: int, protected: Collection[PodUid], now: float
    ) -> Proposal | None:
        """Return who has to go from one of these nodes, and hold what the pod then gets; what is on its way already stands."""
        held = self.of(pod.uid)
        known = self._standing(held, pod, shape) if held is not None and nodes >> held.node & 1 else None
        if held is not None and known is None:
            self.drop(held)
        found = known or propose(self._cluster, shape, pod.uid, pod.priority, nodes, protected)
        if found is None:
            return None
        since = held.since if known and held else now
        self._hold(attempt, pod, shape, found, held if known else None, since)
        return found

    def adopt(self, attempt: Attempt, pod: PodRequest, shape: Shape, node: int, gpus: tuple[str, ...], now: float) -> None:
        """Take up what the shim says was held for a pod before this service started."""
        if self._cluster.ledger.refusal(attempt, pod.uid) is None and self._cluster.ledger.get(pod.uid) is None:
            self._hold(attempt, pod, shape, Proposal(node, (), gpus), None, now)

    def ready(self) -> list[PodUid]:
        """Return the pods whose GPUs are free by now."""
        return [
            held.uid
            for held in self._cluster.ledger.nominated()
            if not any(self._in_the_way(other, held) for other in self._cluster.ledger.on_node(held.node))
        ]

    # -- inside -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _in_the_way(other: Holding, held: Holding) -> bool:
        return other.uid != held.uid and (other.uid in held.victims or not set(other.gpus).isdisjoint(held.gpus))

    def _hidden(self, node: int, uid: PodUid, priority: int) -> set[PodUid]:
        return {held.uid for held in self._cluster.ledger.nominated() if held.node == node and _gives_way(held, uid, priority)}

    def _standing(self, held: Holding, pod: PodRequest, shape: Shape) -> Proposal | None:
        """Return the earlier proposal as far as it is still under way, None if it would not do any more."""
        ledger = self._cluster.ledger
        going = tuple(uid for uid in held.victims if (other := ledger.get(uid)) is not None and other.node == held.node)
        releasing = {other.uid for other in ledger.on_node(held.node) if other.state is HoldingState.RELEASING}
        state = self._cluster.state_without(held.node, {*self._hidden(held.node, pod.uid, pod.priority), *going, *releasing})
        if state.key(shape) is None:
            return None
        choice, machine = state.choose(shape), state.facts.machine
        victims = tuple(uid for uid in going if uid not in releasing)
        return Proposal(held.node, victims, machine.handles(choice.mask) if machine and choice else ())

    def _hold(
        self, attempt: Attempt, pod: PodRequest, shape: Shape, found: Proposal, before: Holding | None, since: float
    ) -> None:
        holding = Holding(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=found.node,
            state=HoldingState.NOMINATED,
            count=shape.gpus,
            gpus=found.gpus,
            since=since,
            reason=MADE_ROOM,
            attempt=attempt,
            priority=pod.priority,
            victims=before.victims if before else found.victims,
            nominated_at=since,
        )
        self._cluster.refresh(self._cluster.ledger.nominate(holding))


def _gives_way(held: Holding, uid: PodUid, priority: int) -> bool:
    return held.uid == uid or held.priority < priority

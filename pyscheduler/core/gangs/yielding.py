"""What gives way to jobs of higher priority, for no pod runs there yet.

Plans do, whole, as long as none of their members may have been let go, and what is held for pods that preemption makes room for.
What a plan holds for members that have not come is free when it ends. Members that wait in Permit count on their nodes
until the scheduler has refused them: what they have is on its way, as that of pods that are evicted.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.plan import Plan, Plans
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import PodUid
from pyscheduler.core.request import Shape

__all__ = ["Yielding"]


class _Claim(NamedTuple):
    """A plan, or what is held for a nominated pod. The first three order claims: `newness` is when it was made, negative."""

    priority: int
    newness: float
    name: str
    pod: PodUid | None
    plan: Plan | None = None


class Yielding:
    """Finds what has to end for a job; what is of the lowest priority, and of that the newest, goes first."""

    def __init__(self, cluster: Cluster, plans: Plans) -> None:
        self._cluster = cluster
        self._plans = plans

    def make_room(self, priority: int, fits: Callable[[], bool]) -> bool:
        """End claims of lower priority until the job fits at once, and no more than it needs.

        Return whether it does; if not, none ends.
        """
        hidden: list[tuple[_Claim, list[Holding]]] = []
        for claim in self._claims(priority):
            hidden.append((claim, self._hide(claim)))
            if fits():
                break
        else:
            for _, holdings in hidden:
                self._show(holdings)
            return False
        # Without the last one it did not fit; of the others some may not be in the way.
        for claim, holdings in hidden[-2::-1]:
            self._show(holdings)
            if fits():
                hidden.remove((claim, holdings))
            else:
                self._hide(claim)
        for claim, holdings in hidden:
            self._show(holdings)
            if claim.plan is not None:
                self._plans.end(claim.plan)
            else:
                self._hide(claim)
        return True

    def uids(self, priority: int, *, at_once: bool = False) -> set[PodUid]:
        """Return the pods whose claims give way to this priority. `at_once`: only those whose GPUs are free then."""
        uids = {held.uid for claim in self._claims(priority) for held in self._of(claim)}
        return uids if at_once else uids.union(held.uid for plan in self._lower(priority) for held in self._waiting(plan))

    def open_to(self, priority: int, shape: Shape) -> list[int]:
        """Return the nodes that could take a pod at once, in place of planned members of lower priority, best first."""
        return self._open(shape, (held for plan in self._lower(priority) for held in self._planned(plan)))

    def opens(self, priority: int, shape: Shape) -> list[int]:
        """Return the nodes that could take a pod when the members of lower priority that wait there are refused, best first."""
        lower = self._lower(priority)
        waiting = {held.node for plan in lower for held in self._waiting(plan)}
        holdings = (held for plan in lower for held in (*self._planned(plan), *self._waiting(plan)))
        return self._open(shape, (held for held in holdings if held.node in waiting))

    def give_way(self, node: int, priority: int, shape: Shape) -> bool:
        """End the plans that keep a pod of this priority from the node. Return whether it fits at once then."""
        return self.make_room(priority, lambda: self._cluster.state(node).key(shape) is not None)

    def refuse(self, nodes: int, priority: int) -> list[str]:
        """End the plans of lower priority of which members wait on these nodes (a bitmap), and return their names."""
        found = [plan for plan in self._lower(priority) if any(nodes >> held.node & 1 for held in self._waiting(plan))]
        for plan in found:
            self._plans.end(plan)
        return [plan.id for plan in found]

    def any_wait(self, priority: int) -> bool:
        """Tell whether members of a plan of lower priority wait in Permit."""
        return any(self._waiting(plan) for plan in self._lower(priority))

    def _open(self, shape: Shape, holdings: Iterable[Holding]) -> list[int]:
        """Return the nodes that could take a pod without these, best first."""
        uids: dict[int, set[PodUid]] = {}
        for held in holdings:
            uids.setdefault(held.node, set()).add(held.uid)
        found = [
            (key, self._cluster.table.names[node], node)
            for node, gone in uids.items()
            if (key := self._cluster.state_without(node, gone).key(shape)) is not None
        ]
        return [node for *_, node in sorted(found)]

    def _lower(self, priority: int) -> list[Plan]:
        lower = [plan for plan in self._plans.all() if plan.priority < priority and not self._may_be_let_go(plan)]
        return sorted(lower, key=lambda plan: (plan.priority, -plan.made_at, plan.id))

    def _may_be_let_go(self, plan: Plan) -> bool:
        members = self._cluster.roster.members(plan.gang)
        return self._plans.may_be_let_go(plan, len([member for member in members if not member.pod.containers]))

    def _planned(self, plan: Plan) -> list[Holding]:
        """Return what is held for members that have not come."""
        return self._held(plan, HoldingState.PLANNED)

    def _waiting(self, plan: Plan) -> list[Holding]:
        """Return what members have that wait in Permit."""
        return self._held(plan, HoldingState.RESERVED)

    def _held(self, plan: Plan, state: HoldingState) -> list[Holding]:
        holdings = (self._cluster.ledger.get(uid) for uid in plan.seats)
        return [held for held in holdings if held is not None and held.plan == plan.id and held.state is state]

    def _claims(self, priority: int) -> list[_Claim]:
        nominated = [held for held in self._cluster.ledger.nominated() if held.priority < priority]
        claims = [_Claim(held.priority, -held.since, held.uid, held.uid) for held in nominated]
        claims += [_Claim(plan.priority, -plan.made_at, plan.id, None, plan) for plan in self._lower(priority)]
        return sorted(claims, key=lambda claim: claim[:3])

    def _of(self, claim: _Claim) -> list[Holding]:
        if claim.plan is not None:
            return self._planned(claim.plan)
        held = self._cluster.ledger.get(claim.pod) if claim.pod is not None else None
        return [held] if held is not None else []

    def _hide(self, claim: _Claim) -> list[Holding]:
        holdings = self._of(claim)
        self._cluster.refresh(set().union(*(self._cluster.ledger.drop(held) for held in holdings)))
        return holdings

    def _show(self, holdings: list[Holding]) -> None:
        self._cluster.refresh(set().union(*(self._cluster.ledger.promise(held) for held in holdings)))

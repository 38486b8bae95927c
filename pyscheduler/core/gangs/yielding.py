"""Plans give way whole to jobs of higher priority, as long as none of their members may have been let go.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Callable

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.plan import Plan, Plans
from pyscheduler.core.holdings import Holding
from pyscheduler.core.request import Shape

__all__ = ["Yielding"]


class Yielding:
    """Finds which plans have to end for a job; those of the lowest priority, and of these the newest, go first."""

    def __init__(self, cluster: Cluster, plans: Plans) -> None:
        self._cluster = cluster
        self._plans = plans

    def make_room(self, priority: int, fits: Callable[[], bool], now: float) -> bool:
        """End plans of lower priority until the job fits, and no more than it needs. Return whether it does; if not, none ends."""
        hidden: list[tuple[Plan, list[Holding]]] = []
        for plan in self._lower(priority):
            hidden.append((plan, self._hide(plan)))
            if fits():
                break
        else:
            for _, holdings in hidden:
                self._show(holdings)
            return False
        # Without the last one it did not fit; of the others some may not be in the way.
        for plan, holdings in hidden[-2::-1]:
            self._show(holdings)
            if fits():
                hidden.remove((plan, holdings))
            else:
                self._hide(plan)
        for plan, holdings in hidden:
            self._show(holdings)
            self._plans.end(plan, at_once=now)
        return True

    def open_to(self, priority: int, shape: Shape) -> list[int]:
        """Return the nodes that could take a pod in place of planned members of lower priority, best first."""
        planned: dict[int, set[Holding]] = {}
        for plan in self._lower(priority):
            for held in self._holdings(plan):
                planned.setdefault(held.node, set()).add(held)
        found = []
        for node, holdings in planned.items():
            key = self._cluster.state_without(node, {held.uid for held in holdings}).key(shape)
            if key is not None:
                found.append((key, self._cluster.table.names[node], node))
        return [node for *_, node in sorted(found)]

    def give_way(self, node: int, priority: int, shape: Shape, now: float) -> bool:
        """End the plans that keep a pod of this priority from the node. Return whether it fits then."""
        return self.make_room(priority, lambda: self._cluster.state(node).key(shape) is not None, now)

    def _lower(self, priority: int) -> list[Plan]:
        lower = [plan for plan in self._plans.all() if plan.priority < priority and not self._may_be_let_go(plan)]
        return sorted(lower, key=lambda plan: (plan.priority, -plan.made_at, plan.id))

    def _may_be_let_go(self, plan: Plan) -> bool:
        members = self._cluster.roster.members(plan.gang)
        return self._plans.may_be_let_go(plan, len([member for member in members if not member.pod.containers]))

    def _holdings(self, plan: Plan) -> list[Holding]:
        ledger = self._cluster.ledger
        return [held for uid in plan.seats if (held := ledger.get(uid)) is not None and held.plan == plan.id]

    def _hide(self, plan: Plan) -> list[Holding]:
        holdings = self._holdings(plan)
        self._cluster.refresh(set().union(*(self._cluster.ledger.drop(held) for held in holdings)))
        return holdings

    def _show(self, holdings: list[Holding]) -> None:
        self._cluster.refresh(set().union(*(self._cluster.ledger.promise(held) for held in holdings)))

"""Makes plans: seats for all members of a group at once, or for one that came late.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.plan import Plan, Plans, Seat, rank_of
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.gangs.seating import Kind, Offer, Seating
from pyscheduler.core.gangs.yielding import Yielding
from pyscheduler.core.job import Job, Refusal, Selection
from pyscheduler.core.model import PodUid

__all__ = ["Maker", "Unplaced", "ranks_of"]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What did not fit, and why."""

    job: Job
    refusal: Refusal


class Maker:
    """Places members and holds what they get."""

    def __init__(self, cluster: Cluster, chooser: Chooser, levels: Mapping[str, str], plans: Plans, yielding: Yielding) -> None:
        self._cluster = cluster
        self._chooser = chooser
        self._plans = plans
        self._yielding = yielding
        self._seating = Seating(cluster, chooser, levels)

    def whole(
        self,
        plan: Plan,
        kinds: Sequence[Kind],
        least: int,
        offer: Offer,
        ranks: Mapping[PodUid, int],
        now: float,
        *,
        insists: bool,
    ) -> Plan | Unplaced:
        """Seat the members of all kinds, at least so many of them, or none. `insists`: nowhere but within the preferred level."""
        spare = sum(len(kind.members) for kind in kinds) - least
        for at, kind in enumerate(kinds):
            pods = len(kind.members)
            # An elastic group does without members of the kind that has the most GPUs.
            fewest = max(1, pods - spare) if at == 0 else pods
            nodes = list(dict.fromkeys(seat.node for seat in plan.seats.values()))
            job = self._seating.job(kind, pods, insists=insists)
            found = self._found(job, fewest, offer, kind, nodes, plan.priority, now)
            if isinstance(found, Refusal):
                if plan.seats:
                    self._plans.end(plan)
                return Unplaced(replace(job, pods=fewest), found)
            plan = self._seat(plan, kind, found, ranks, now)
        return plan

    def late(
        self, plan: Plan, kind: Kind, others: Sequence[Member], offer: Offer, ranks: Mapping[PodUid, int], now: float
    ) -> Plan | Unplaced:
        """Seat one member near the others."""
        job = self._seating.job(kind, 1, insists=False)
        found = self._found(job, 1, offer, kind, self._anchors(others, kind.members[0], ranks), plan.priority, now)
        return Unplaced(job, found) if isinstance(found, Refusal) else self._seat(plan, kind, found, ranks, now)

    def _found(
        self, job: Job, fewest: int, offer: Offer, kind: Kind, nodes: Sequence[int], priority: int, now: float
    ) -> Selection | Refusal:
        """Place members of one kind, round the nodes of those that are placed already; plans of lower priority give way."""

        def place() -> Selection | Refusal:
            return self._seating.near(job, offer, kind, nodes) if nodes else self._seating.whole(job, fewest, offer, kind)

        found = place()
        if isinstance(found, Refusal) and self._yielding.make_room(priority, lambda: isinstance(place(), Selection), now):
            found = place()
        return found

    def _anchors(self, others: Sequence[Member], late: Member, ranks: Mapping[PodUid, int]) -> list[int]:
        """Return the nodes of the other members, those of the nearest ranks first."""
        ledger, mine = self._cluster.ledger, ranks[late.pod.uid]
        found = [
            (abs(ranks[m.pod.uid] - mine), held.node) for m in others if m.pod.uid in ranks and (held := ledger.get(m.pod.uid))
        ]
        return list(dict.fromkeys(node for _, node in sorted(found)))

    def _seat(self, plan: Plan, kind: Kind, found: Selection, ranks: Mapping[PodUid, int], now: float) -> Plan:
        placement = self._chooser.of_job(found)
        taken = zip(kind.members, found.pods, self._seating.seated(found.pods, kind.shape.gpus), strict=False)
        for member, each, (node, gpus) in taken:
            said = {**placement, "advisory": self._chooser.is_advisory(node, each.mask), "group": str(plan.gang)}
            plan = self._plans.hold(plan, [Seat(member.pod, node, gpus, ranks[member.pod.uid], said)], now)
        return plan


def ranks_of(members: Sequence[Member], plan: Plan | None) -> dict[PodUid, int]:
    """Return the ranks of the members with GPUs: their indices if all have one and are of one role, else their places.

    Who has a rank keeps it, and others take those that are free. A member that is being deleted has none: another has it.
    """
    ranked = [member for member in members if member.pod.containers and member.ready]
    indices = [member.membership.index for member in ranked]
    alike = len({member.membership.role for member in ranked}) == 1 and None not in indices and len(set(indices)) == len(indices)
    if alike:
        return {m.pod.uid: m.membership.index for m in ranked if m.membership.index is not None}
    kept = {m.pod.uid: rank for m in ranked if (rank := rank_of(plan, m)) is not None}
    free = (rank for rank in count() if rank not in kept.values())
    return {m.pod.uid: kept[m.pod.uid] if m.pod.uid in kept else next(free) for m in ranked}

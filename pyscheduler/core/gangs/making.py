"""Makes plans: seats for all members of a group at once, or for one that came late.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.plan import Plan, Plans, Seat, rank_of
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.gangs.seating import Kind, Offer, Seating
from pyscheduler.core.gangs.subgroups import mates
from pyscheduler.core.gangs.yielding import Yielding
from pyscheduler.core.job import Job, Refusal, Selection
from pyscheduler.core.model import PodUid
from pyscheduler.core.node import NodeState

__all__ = ["Maker", "Unplaced", "Wanted", "ranks_of"]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What did not fit, and why."""

    job: Job
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Wanted:
    """Members that have no place.

    Attributes
    ----------
    kinds, least
        The members, and how many of them must have a place at least.
    ranks
        Of all members.
    priority
        The lowest of theirs.
    others
        Empty for a group that has not started. Else all members: the only one of `kinds` goes near them.
    """

    kinds: tuple[Kind, ...]
    least: int
    ranks: Mapping[PodUid, int]
    priority: int
    others: tuple[Member, ...] = ()


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
        for kind, sizes, job, fewest in self._jobs(kinds, least, ranks, insists=insists):
            nodes = list(dict.fromkeys(seat.node for seat in plan.seats.values()))
            found = self._found(plan.priority, partial(self._place, job, fewest, offer, kind, sizes, nodes))
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
        found = self._found(plan.priority, self._near(job, kind, others, offer, ranks))
        return Unplaced(job, found) if isinstance(found, Refusal) else self._seat(plan, kind, found, ranks, now)

    def plain_job(self, wanted: Wanted) -> Job | None:
        """Return the job of members that differ in nothing and may be anywhere within one level; None for others."""
        if len(wanted.kinds) > 1:
            return None
        kind, sizes, job, fewest = next(self._jobs(wanted.kinds, wanted.least, wanted.ranks, insists=False))
        return replace(job, pods=fewest) if self._seating.division(kind, sizes) is None else None

    def may_fit(self, wanted: Wanted, offer: Offer) -> bool:
        """Tell whether the subgroups of members that have not started have room, or what is spread; of others nothing is said."""
        if wanted.others:
            return True
        kind, sizes, job, fewest = next(self._jobs(wanted.kinds, wanted.least, wanted.ranks, insists=False))
        division = self._seating.division(kind, sizes)
        return division is None or self._seating.can_divide(job, fewest, offer, kind, division)

    def rehearse(self, wanted: Wanted, offer: Offer) -> set[int] | None:
        """Return the nodes where the members would go as things are, None if they have no place. Plans do not give way."""
        nodes: dict[int, None] = {}
        with ExitStack() as supposed:
            for kind, sizes, job, fewest in self._jobs(wanted.kinds, wanted.least, wanted.ranks, insists=False):
                if wanted.others:
                    found = self._near(job, kind, wanted.others, offer, wanted.ranks)()
                else:
                    found = self._place(job, fewest, offer, kind, sizes, list(nodes))
                if isinstance(found, Refusal):
                    return None
                nodes |= dict.fromkeys(each.node for each in found.pods)
                supposed.enter_context(self._cluster.supposing(self._taken(found, kind.shape.gpus)))
        return set(nodes)

    def _taken(self, found: Selection, gpus: int) -> dict[int, NodeState]:
        """Return the nodes as they are when pods have these sets."""
        states: dict[int, NodeState] = {}
        for each in found.pods:
            states[each.node] = states.get(each.node, self._cluster.state(each.node)).taking(each.mask, gpus)
        return states

    def _jobs(
        self, kinds: Sequence[Kind], least: int, ranks: Mapping[PodUid, int], *, insists: bool
    ) -> Iterator[tuple[Kind, tuple[int, ...], Job, int]]:
        """Yield the members of each kind, the sizes of their subgroups, their job, and how many pods of it suffice."""
        spare = sum(len(kind.members) for kind in kinds) - least
        for at, each in enumerate(kinds):
            kind, sizes = each.grouped(ranks)
            pods = len(kind.members)
            # An elastic group does without members of the kind that has the most GPUs.
            fewest = max(1, pods - spare) if at == 0 else pods
            yield kind, sizes, self._seating.job(kind, pods, insists=insists), fewest

    def _near(
        self, job: Job, kind: Kind, others: Sequence[Member], offer: Offer, ranks: Mapping[PodUid, int]
    ) -> Callable[[], Selection | Refusal]:
        """Return how a late member is placed near the others."""
        late = kind.members[0]
        nodes = self._nodes(others, late, ranks)
        if late.membership.subgroup is not None and len(same := mates(others, late, ranks)):
            return partial(self._seating.rejoining, job, offer, kind, self._nodes(same, late, ranks), nodes, self._waiting(same))
        if late.membership.spread_level is not None:
            return partial(self._seating.apart, job, offer, kind, nodes)
        return partial(self._seating.near, job, offer, kind, list(dict.fromkeys(nodes)))

    def _place(
        self, job: Job, fewest: int, offer: Offer, kind: Kind, sizes: Sequence[int], nodes: Sequence[int]
    ) -> Selection | Refusal:
        """Place the members of one kind, round the nodes of those that are placed already."""
        division = self._seating.division(kind, sizes)
        if division is not None:
            return self._seating.divided(job, fewest, offer, kind, division)
        return self._seating.near(job, offer, kind, nodes) if nodes else self._seating.whole(job, fewest, offer, kind)

    def _found(self, priority: int, place: Callable[[], Selection | Refusal]) -> Selection | Refusal:
        """Place members; plans of lower priority give way."""
        found = place()
        if isinstance(found, Refusal) and self._yielding.make_room(priority, lambda: isinstance(place(), Selection)):
            found = place()
        return found

    def _nodes(self, others: Sequence[Member], late: Member, ranks: Mapping[PodUid, int]) -> list[int]:
        """Return the node of each of the other members that has one, those of the nearest ranks first."""
        ledger, mine = self._cluster.ledger, ranks[late.pod.uid]
        found = [
            (abs(ranks[m.pod.uid] - mine), held.node) for m in others if m.pod.uid in ranks and (held := ledger.get(m.pod.uid))
        ]
        return [node for _, node in sorted(found)]

    def _waiting(self, members: Sequence[Member]) -> int:
        return sum(self._cluster.ledger.get(member.pod.uid) is None for member in members)

    def _seat(self, plan: Plan, kind: Kind, found: Selection, ranks: Mapping[PodUid, int], now: float) -> Plan:
        placement = self._chooser.of_job(found)
        taken = zip(kind.members, found.pods, self._seating.seated(found.pods, kind.shape), strict=False)
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

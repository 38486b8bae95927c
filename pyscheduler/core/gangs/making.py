"""Makes plans: seats for all members of a group at once, or for one that came late.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import count
from operator import or_
from typing import Final

from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.mixed import Mixed, Part
from pyscheduler.core.gangs.plan import Plan, Plans, Seat, rank_of
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.gangs.seating import Kind, Offer, Seating, merged
from pyscheduler.core.gangs.subgroups import mates
from pyscheduler.core.gangs.yielding import Yielding
from pyscheduler.core.holdings import Holding
from pyscheduler.core.job import Job, Refusal, Selection
from pyscheduler.core.model import PodUid
from pyscheduler.core.node import model_names

__all__ = ["Maker", "Unplaced", "Wanted", "ranks_of"]

_NOWHERE: Final = Offer(0)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What did not fit, and why; `kind`: of the members whose job it is."""

    job: Job
    refusal: Refusal
    kind: Kind


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

    def reach(self, offer: Offer) -> Offer:
        """Return the offer of the nodes of all kinds; for how many pods they have room is not known then."""
        if len(self.kinds) == 1:
            return offer
        return replace(offer, eligible=reduce(or_, (offer.of_kind(kind).eligible for kind in self.kinds)), room=None)


class Maker:
    """Places members and holds what they get."""

    def __init__(self, cluster: Cluster, chooser: Chooser, levels: Mapping[str, str], plans: Plans, yielding: Yielding) -> None:
        self._cluster = cluster
        self._chooser = chooser
        self._plans = plans
        self._yielding = yielding
        self._seating = Seating(cluster, chooser, levels)
        self._mixed = Mixed(cluster, self._seating)

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
        """Seat the members of all kinds, at least so many of them, or none. `insists`: nowhere but within the preferred level.

        Members of one shape are placed as one where all of them may be, if there is room; else each kind on its own nodes.
        """
        alike = merged(kinds)
        if alike is not None:
            made = self.whole(plan, alike, least, offer, ranks, now, insists=insists)
            if isinstance(made, Plan):
                return made
        parts = list(self._parts(kinds, least, offer, ranks, insists=insists))
        if len(parts) > 1:
            return self._mixed_seats(plan, parts, ranks, now)
        only = parts[0]
        found = self._found(plan.priority, partial(self._place, only))
        if isinstance(found, Refusal):
            return Unplaced(replace(only.job, pods=only.fewest), found, only.kind)
        return self._seat(plan, only.kind, found, ranks, now)

    def late(
        self, plan: Plan, kind: Kind, others: Sequence[Member], offer: Offer, ranks: Mapping[PodUid, int], now: float
    ) -> Plan | Unplaced:
        """Seat one member near the others."""
        job = self._late_job(kind, others)
        found = self._found(plan.priority, self._near(job, kind, others, offer, ranks))
        return Unplaced(job, found, kind) if isinstance(found, Refusal) else self._seat(plan, kind, found, ranks, now)

    def joining(self, kind: Kind, eligible: int, others: Sequence[Member]) -> Kind:
        """Return a late member with the nodes that it may have beside the others: of the eligible ones, a bitmap."""
        if not kind.members[0].membership.one_pod_per_node:
            return kind
        nodes = {held.node for held in self._held_by_others(kind, others)}
        return replace(kind, eligible=eligible & ~sum(1 << node for node in nodes))

    def plain_job(self, wanted: Wanted) -> Job | None:
        """Return the job of members that differ in nothing and may be anywhere within one level; None for others."""
        if len(wanted.kinds) > 1:
            return None
        only = next(self._parts(wanted.kinds, wanted.least, _NOWHERE, wanted.ranks, insists=False))
        return replace(only.job, pods=only.fewest) if only.division is None else None

    def may_fit(self, wanted: Wanted, offer: Offer) -> bool:
        """Tell whether members that have not started have room that are of several kinds, in subgroups or spread; of others nothing is said."""
        if wanted.others:
            return True
        parts = list(self._parts(wanted.kinds, wanted.least, offer, wanted.ranks, insists=False))
        if len(parts) > 1:
            return self._mixed.place(parts) is not None
        only = parts[0]
        return only.division is None or self._seating.can_divide(only.job, only.fewest, offer, only.kind, only.division)

    def rehearse(self, wanted: Wanted, offer: Offer) -> set[int] | None:
        """Return the nodes where the members would go as things are, None if they have no place. Plans do not give way."""
        parts = list(self._parts(wanted.kinds, wanted.least, offer, wanted.ranks, insists=False))
        if len(parts) > 1:
            placed = self._mixed.place(parts)
            return None if placed is None else {each.node for _, found in placed for each in found.pods}
        only = parts[0]
        if wanted.others:
            found = self._near(self._late_job(only.kind, wanted.others), only.kind, wanted.others, offer, wanted.ranks)()
        else:
            found = self._place(only)
        return None if isinstance(found, Refusal) else {each.node for each in found.pods}

    def _parts(
        self, kinds: Sequence[Kind], least: int, offer: Offer, ranks: Mapping[PodUid, int], *, insists: bool
    ) -> Iterator[Part]:
        """Yield the members of each kind, with their job, where they may go and how they are divided."""
        spare = sum(len(kind.members) for kind in kinds) - least
        for at, each in enumerate(kinds):
            kind, sizes = each.grouped(ranks)
            pods = len(kind.members)
            # An elastic group does without members of the kind that has the most GPUs.
            fewest = max(1, pods - spare) if at == 0 else pods
            job = self._seating.job(kind, pods, insists=insists)
            yield Part(kind, job, fewest, offer.of_kind(kind), self._seating.division(kind, sizes))

    def _mixed_seats(self, plan: Plan, parts: Sequence[Part], ranks: Mapping[PodUid, int], now: float) -> Plan | Unplaced:
        """Seat members of several kinds; plans of lower priority give way."""
        placed = self._mixed.place(parts)
        if placed is None and self._yielding.make_room(plan.priority, lambda: self._mixed.place(parts) is not None):
            placed = self._mixed.place(parts)
        if placed is None:
            return Unplaced(*self._mixed.refusal(parts))
        for kind, found in placed:
            plan = self._seat(plan, kind, found, ranks, now)
        return plan

    def _late_job(self, kind: Kind, others: Sequence[Member]) -> Job:
        """Return the job of a late member; where all are to have GPUs of one model, on that of the others."""
        job = self._seating.job(kind, 1, insists=False)
        names = (self._models(held) for held in self._held_by_others(kind, others) if job.same_model)
        model = next((found[0] for found in names if len(found) == 1), None)
        return job if model is None else replace(job, limits=replace(job.limits, model=model))

    def _models(self, held: Holding) -> list[str]:
        """Return the models of a pod's GPUs, those of its node if it is not known which it has."""
        machine = self._cluster.state(held.node).facts.machine
        if machine is None:
            return []
        mask = machine.mask_of(held.gpus)
        return model_names(
            model for gpu, model in enumerate(machine.table.device_class.known_models) if not mask or mask >> gpu & 1
        )

    def _held_by_others(self, kind: Kind, others: Sequence[Member]) -> list[Holding]:
        mine = kind.members[0].pod.uid
        found = (self._cluster.ledger.get(other.pod.uid) for other in others if other.pod.uid != mine)
        return [held for held in found if held is not None]

    def _near(
        self, job: Job, kind: Kind, others: Sequence[Member], offer: Offer, ranks: Mapping[PodUid, int]
    ) -> Callable[[], Selection | Refusal]:
        """Return how a late member is placed near the others."""
        offer = offer.of_kind(kind)
        late = kind.members[0]
        nodes = self._nodes(others, late, ranks)
        if late.membership.subgroup is not None and len(same := mates(others, late, ranks)):
            return partial(self._seating.rejoining, job, offer, kind, self._nodes(same, late, ranks), nodes, self._waiting(same))
        if late.membership.spread_level is not None:
            return partial(self._seating.apart, job, offer, kind, nodes)
        return partial(self._seating.near, job, offer, kind, list(dict.fromkeys(nodes)))

    def _place(self, only: Part) -> Selection | Refusal:
        """Place the members of a group of one kind."""
        return self._seating.placed(only.job, only.fewest, only.offer, only.kind, only.division)

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

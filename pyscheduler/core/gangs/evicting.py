"""Room for a whole group at the cost of pods of lower priority: who goes, and which nodes are kept for it meanwhile.

What is asked for is worked out by number of pods (`core.evictions.many`, which says what is guaranteed), and nobody goes
unless the group is then placed by the same functions that will place it. Where they do not agree, and for groups with
subgroups, a spread or members of several kinds, it is tried out by those functions alone: then the highest priority among
the victims is the least possible too, and of the first `_REHEARSALS_MAX` nobody goes who could be spared.

CPU and memory are known by what the scheduler says: how many members a node would have room for without all pods of lower
priority. Where fewer go they may still lack; then the group is refused on that node, and asks again without it.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from pyscheduler.core import bitmap
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.cost import total
from pyscheduler.core.evictions.many import Many, Wanting
from pyscheduler.core.evictions.search import Evictions, Proposal
from pyscheduler.core.evictions.units import Unit, in_order, is_leaving
from pyscheduler.core.gangs.keeping import Keeping, MadeRoom
from pyscheduler.core.gangs.making import Maker, Wanted
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.gangs.seating import Offer, with_room
from pyscheduler.core.gangs.state import GangState
from pyscheduler.core.gangs.yielding import Yielding
from pyscheduler.core.job import Job
from pyscheduler.core.model import Code, PodUid, Verdict
from pyscheduler.core.replies import PlanAnswer
from pyscheduler.core.request import Shape

__all__ = ["AGAIN_S", "Evicting"]

# Seconds after which victims are named again that have not begun to go, and after which a group that nobody could be
# evicted for is tried again if the cluster has changed.
AGAIN_S: Final = 5.0
# How often it is tried out whether one more can be spared.
_REHEARSALS_MAX: Final = 20


class Evicting:
    """Makes room for groups."""

    def __init__(self, cluster: Cluster, evictions: Evictions, maker: Maker, yielding: Yielding, keeping: Keeping) -> None:
        self._cluster = cluster
        self._evictions = evictions
        self._maker = maker
        self._yielding = yielding
        self._keeping = keeping

    def make_room(
        self, gang: GangKey, state: GangState, offer: Offer, protected: Collection[PodUid], now: float
    ) -> Proposal | None:
        """Return who has to go so that the group fits, and keep the nodes where it will be; None if nobody's going helps.

        Asked again while they go nobody is named, but those that have not begun to after a while. `offer` says how much
        room nodes have without all pods of lower priority.
        """
        wanted, before = state.wanted, self._keeping.made_for(gang)
        if wanted is None:
            return None
        named = self._going(before, now) if before is not None else ()
        yielding = frozenset(self._yielding.uids(wanted.priority))
        who = Wanting(gang, wanted.priority, protected, yielding.union(named))
        found = self._find(wanted, offer, who)
        if found is not None and not found[0] and not any(map(self._evictions.units.stands, named)):
            # It lacks something else if the GPUs are free by now.
            free = frozenset(self._yielding.uids(wanted.priority, at_once=True))
            at_once = self._rehearse(wanted, offer, replace(who, given=free, waits=False), ())
            found = found if at_once is None else None
        if found is None:
            self._keeping.release(gang)
            state.unhelped, state.unhelped_at, state.asked_at = self._cluster.generation, now, now
            return None
        more, nodes = tuple(uid for unit in in_order(found[0]) for uid in unit.pods), found[1]
        # The plans end now and not when the group is placed, for members that wait in Permit have to be refused before.
        self._yielding.refuse(nodes, wanted.priority)
        late = self._late(before, named, now) if before is not None else ()
        again = tuple(dict.fromkeys((*late, *more)))
        victims = tuple(dict.fromkeys((*named, *more))) or tuple(self._leaving(nodes))
        since, named_at = (before.since, before.named_at) if before is not None else (now, now)
        self._keeping.keep(MadeRoom(gang, nodes, wanted.priority, victims, since, now if again else named_at))
        return Proposal(int(bitmap.indices(nodes)[0]), again, ())

    def told(self, answer: PlanAnswer, gang: GangKey, state: GangState, now: float) -> PlanAnswer:
        """Return what a member is told whose group lacks room: what it waits for, and whether an eviction may help."""
        if state.wanted is None or answer.verdict.code is not Code.UNSCHEDULABLE:
            return answer
        state.asked_at = now
        made = self._keeping.made_for(gang)
        if made is not None and not self._any_there(made):
            # They are gone, and it does not fit: somebody else has what they had.
            self._keeping.release(gang)
            made = None
        if made is None:
            # To find that nobody's going helps takes longest, and its members ask one after the other.
            rested = state.unhelped != self._cluster.generation and now - state.unhelped_at >= AGAIN_S
            return replace(answer, preempt=rested and self._any_lower(gang, state.wanted.priority))
        count = len(made.victims)
        reason = f"its group {gang} waits for GPUs that {count} {'pod' if count == 1 else 'pods'} of lower priority give up"
        return replace(answer, verdict=Verdict(Code.UNSCHEDULABLE, reason), preempt=self._is_late(made, now))

    def is_due(self, gang: GangKey, state: GangState, now: float) -> bool:
        """Tell whether a group that lacks room is worth another try for the sake of an eviction."""
        made = self._keeping.made_for(gang)
        if made is not None:
            return self._is_late(made, now) or not self._any_there(made)
        if state.wanted is None or now - state.asked_at < AGAIN_S or state.unhelped == self._cluster.generation:
            return False
        state.asked_at = now
        return self._any_lower(gang, state.wanted.priority)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _going(self, made: MadeRoom, now: float) -> tuple[PodUid, ...]:
        """Return the victims that are counted on; who has not begun to go in time is only if others of its group have."""
        units = self._evictions.units
        if now - made.named_at < AGAIN_S:
            return made.victims
        return tuple(uid for uid in made.victims if not units.stands(uid) or units.is_broken(uid))

    def _late(self, made: MadeRoom, named: Collection[PodUid], now: float) -> tuple[PodUid, ...]:
        """Return those of these victims that have to be named again."""
        late = now - made.named_at >= AGAIN_S
        return tuple(uid for uid in named if late and self._evictions.units.stands(uid))

    def _is_late(self, made: MadeRoom, now: float) -> bool:
        """Tell whether victims have not begun to go, though they were named a while ago."""
        return now - made.named_at >= AGAIN_S and any(self._evictions.units.stands(uid) for uid in made.victims)

    def _any_there(self, made: MadeRoom) -> bool:
        """Tell whether a victim is still there, or its node still has its devices."""
        ledger, roster = self._cluster.ledger, self._cluster.roster
        return any(ledger.get(uid) is not None or ((member := roster.get(uid)) and member.bound) for uid in made.victims)

    def _any_lower(self, gang: GangKey, priority: int) -> bool:
        """Tell whether there is a pod or a group of lower priority that may be evicted, or waits in Permit."""
        if self._yielding.any_wait(priority):
            return True
        lower = (held for held in self._cluster.ledger.holdings() if held.priority < priority)
        units = (self._evictions.units.of(held) for held in lower)
        return any(unit is not None and unit.priority < priority and unit.gang != gang for unit in units)

    def _leaving(self, nodes: int) -> Iterator[PodUid]:
        for node in bitmap.indices(nodes).tolist():
            yield from (held.uid for held in self._cluster.ledger.on_node(node) if is_leaving(held))

    def _find(self, wanted: Wanted, offer: Offer, who: Wanting) -> tuple[Collection[Unit], int] | None:
        """Return who goes, and the nodes where the group is then, as a bitmap."""
        job = self._maker.plain_job(wanted)
        if job is not None:
            units = self._by_number(job, offer, who)
            if units is None:
                return None
            nodes = self._rehearse(wanted, offer, who, units)
            if nodes is not None:
                return units, nodes
        return self._by_rehearsal(wanted, offer, who)

    def _by_number(self, job: Job, offer: Offer, who: Wanting) -> set[Unit] | None:
        shape = Shape(job.resource, job.gpus, job.limits)
        room = offer.room_for(shape)
        shapes = [shape]
        if job.same_model and job.limits.model is None:
            models = self._cluster.models(job.resource)
            shapes = [replace(shape, limits=replace(job.limits, model=model)) for model in models]
        load, eligible = self._evictions.load, with_room(offer.eligible, room)
        searches = [Many(self._cluster, load, job, each, eligible, room, who) for each in shapes]
        found = [units for search in searches if (units := search.cheapest()) is not None]
        return min(found, key=lambda units: total(map(who.cost, units)), default=None)

    def _rehearse(self, wanted: Wanted, offer: Offer, who: Wanting, units: Collection[Unit]) -> int | None:
        """Return the nodes where the group would be if these units went, as a bitmap; None if it would not fit."""
        gone = who.given.union(uid for unit in units for uid in unit.pods)
        hidden: dict[int, set[PodUid]] = {}
        for node in bitmap.indices(offer.eligible & self._cluster.present).tolist():
            if uids := self._evictions.load(node).gone(who):
                hidden[node] = uids
        for held in map(self._cluster.ledger.get, gone):
            if held is not None:
                hidden.setdefault(held.node, set()).add(held.uid)
        states = {node: self._cluster.state_without(node, uids) for node, uids in hidden.items()}
        with self._cluster.supposing(states):
            nodes = self._maker.rehearse(wanted, offer)
        return sum(1 << node for node in nodes) if nodes is not None else None

    def _by_rehearsal(self, wanted: Wanted, offer: Offer, who: Wanting) -> tuple[Collection[Unit], int] | None:
        """Return the same as `_find`, found by trying out alone."""

        def nodes_without(units: Collection[Unit]) -> int | None:
            return self._rehearse(wanted, offer, who, units)

        nodes = nodes_without(())
        if nodes is not None:
            return (), nodes
        units = in_order(self._may_go(offer.eligible, who))
        if nodes_without(units) is None:
            return None
        free = [unit for unit in units if not who.protects(unit)]
        if len(free) == len(units) or nodes_without(free) is not None:
            ends = [end for end in range(1, len(free)) if free[end - 1].priority < free[end].priority]
            first = bisect_left(ends, True, key=lambda end: nodes_without(free[:end]) is not None)
            units = free[: ends[first]] if first < len(ends) else free
        nodes = nodes_without(units) or 0
        # Who is on none of these nodes stays at once.
        there = {unit for node in bitmap.indices(nodes).tolist() for unit in self._evictions.load(node).units}
        victims = there.intersection(units)
        nodes = nodes_without(victims) or 0
        dearest = sorted(victims, key=lambda unit: (who.cost(unit), unit.name), reverse=True)
        for unit in dearest[:_REHEARSALS_MAX]:
            without = nodes_without(victims - {unit})
            if without is not None:
                victims.discard(unit)
                nodes = without
        return victims, nodes

    def _may_go(self, nodes: int, who: Wanting) -> set[Unit]:
        among = bitmap.indices(nodes & self._cluster.present).tolist()
        return {unit for node in among for unit in self._evictions.load(node).units if who.may_evict(unit)}

"""Groups of pods: placed whole, once, and each member answered from that plan.

The way of a member: `plan` in place of Filter names its node; `seat` gives Reserve the GPUs that are held for it there;
`give_back` is Unreserve. Who waits for others of its group, or for room, holds nothing, and is named by `ready` when
it is worth another try. Rules of a plan's life are in `core.gangs.plan`.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs import words
from pyscheduler.core.gangs.keeping import Keeping, Waiter
from pyscheduler.core.gangs.making import Maker, Unplaced, ranks_of
from pyscheduler.core.gangs.membership import GangKey, Membership, ObjectRef
from pyscheduler.core.gangs.plan import PLAN_S, Plan, Plans, Seat
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.gangs.seating import Offer, by_kind
from pyscheduler.core.gangs.state import GangState
from pyscheduler.core.gangs.table import Tables
from pyscheduler.core.gangs.yielding import Yielding
from pyscheduler.core.model import Attempt, Code, PodRequest, PodUid, Verdict
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.replies import PlanAnswer, PlanMember
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import fits
from pyscheduler.core.settings import shape_of_pod

__all__ = ["Gangs", "Size"]

OK: Final = Verdict(Code.OK)

# After how many seconds an object is read again that says how large a group is, and one that has not said so yet.
_SIZE_S: Final = 30.0
_NO_SIZE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Size:
    """How many members a group must have to start, and may have; `most` is None if nothing limits it."""

    least: int
    most: int | None = None


class Gangs:
    """All groups of a cluster."""

    def __init__(self, cluster: Cluster, chooser: Chooser, levels: Mapping[str, str]) -> None:
        self._cluster = cluster
        self.plans = Plans(cluster)
        self.yielding = Yielding(cluster, self.plans)
        self.keeping = Keeping(cluster)
        self.tables = Tables(cluster, self.plans)
        self._maker = Maker(cluster, chooser, levels, self.plans, self.yielding)
        self._states: dict[GangKey, GangState] = {}
        # Sizes that objects of the API tell, and when they were read; and the objects to read.
        self._sizes: dict[GangKey, tuple[Size | None, float]] = {}
        self._unread: dict[GangKey, ObjectRef] = {}

    # -- calls of the shim ----------------------------------------------------------------------------------------------

    def plan(
        self, attempt: Attempt, pod: PodRequest, eligible: Eligible, room: bytes, refused: frozenset[str], now: float
    ) -> PlanAnswer:
        """Return where a member goes, or what its group waits for.

        Parameters
        ----------
        attempt, pod
            The cycle, and the member that it is for.
        eligible, room
            The nodes that the framework admits, and how many such pods each has room for: one byte by eligible node.
        refused
            Names of nodes that other plugins refused the member on.
        now
            Seconds.

        """
        membership = pod.membership
        assert membership is not None
        self._cluster.roster.meet(pod, now)
        if membership.refusal:
            return self._no(Code.UNRESOLVABLE, membership.refusal)
        state = self._states.setdefault(membership.gang, GangState())
        state.leave_out([node for name in refused if (node := self._cluster.table.index_of(name)) is not None], now)
        plan = self._current(pod, state, now)
        if plan is not None and (pod.uid in plan.seats or not pod.containers):
            return self._yes(plan, pod.uid, now)
        size = self._size(membership, now)
        if size is None:
            return self._no(Code.UNSCHEDULABLE, words.no_size(membership))
        members = [member for member in self._cluster.roster.members(membership.gang) if member.bound or member.ready]
        if plan is None and not _has_started(members) and len(members) < size.least:
            state.uninformed.add(pod.uid)
            return self._no(Code.UNSCHEDULABLE, words.incomplete(membership, len(members), size.least))
        state.uninformed.discard(pod.uid)
        if not pod.containers:
            return self._without_gpus(attempt, membership, members, size, now)
        shape = shape_of_pod(pod)
        if isinstance(shape, Verdict):
            return PlanAnswer(shape, self._cluster.generation)
        allowed = ~sum(1 << node for node in state.left_out(now)) & ~self.keeping.closed_to(pod.priority, membership.gang)
        offer = Offer.of(eligible, allowed, shape, room)
        question = self._cluster.generation, offer.eligible, shape, room, size, len(members), plan is None
        made = state.refusal_of(question) or self._make(attempt, pod, members, size, offer, plan, state, now)
        if isinstance(made, Plan):
            return self._yes(made, pod.uid, now)
        state.refusal = question, made
        return made

    def seat(self, pod: PodRequest, node: int) -> Seat | None:
        """Return what is held for the member on this node, None if nothing is, or somebody took it."""
        plan = self._plan_of(pod)
        seat = plan.seats.get(pod.uid) if plan is not None else None
        if plan is None or seat is None or seat.node != node or not self.plans.is_sound(plan, pod.uid):
            return None
        self.tables.touch(plan.gang)
        return seat

    def member_of(self, pod: PodRequest) -> PlanMember | None:
        """Return to which plan a member belongs."""
        plan = self._plan_of(pod)
        return self._member(plan) if plan is not None else None

    def give_back(self, uid: PodUid, plan_id: str, ended_plan: str) -> None:
        """Note that a member's reservation has ended. `ended_plan`: the plan ends with it, for none of its members was let go."""
        plan = self.plans.named(ended_plan) if ended_plan else None
        if plan is not None:
            self.plans.end(plan)
            return
        plan = self.plans.named(plan_id) if plan_id else None
        if plan is not None and not ended_plan:
            # A single failure: it has been let go.
            self.plans.put(replace(self.plans.unseat(plan, uid), let_go=True))

    def adopt(self, pod: PodRequest, member: PlanMember, seat: Seat, now: float, *, let_go: bool) -> None:
        """Take up the plan that a scheduler tells of in its Resync: this service has started anew since it was made."""
        if pod.membership is None:
            return
        gang = pod.membership.gang
        plan = self.plans.of(gang)
        if plan is None or plan.id != member.plan:
            plan = Plan(member.plan, gang, member.needed, pod.priority, {}, now, now)
        self.plans.put(replace(plan, seats={**plan.seats, pod.uid: seat}, let_go=plan.let_go or let_go))
        self.tables.touch(gang)

    # -- time and wake-ups ----------------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Look after the plans: note which have been let go, and end those that have become void."""
        roster = self._cluster.roster
        roster.expire(now)
        for plan in self.plans.all():
            if plan.let_go:
                if roster.is_empty(plan.gang):
                    self.plans.forget(plan)
            elif self.plans.has_bound(plan):
                self.plans.put(replace(plan, let_go=True))
            elif not self.plans.may_be_let_go(plan, _without_gpus(roster.members(plan.gang))):
                expired = now - plan.asked_at > PLAN_S and not self.plans.has_reserved(plan)
                if expired or not self.plans.is_whole(plan):
                    self.plans.end(plan)
        for gang in [gang for gang in self._states if roster.is_empty(gang) and self.plans.of(gang) is None]:
            del self._states[gang]
            self._sizes.pop(gang, None)
            self._unread.pop(gang, None)
        self.keeping.update([state.parked for state in self._states.values() if state.parked is not None], now)

    def ready(self, refused: Iterable[PodUid], now: float) -> list[PodUid]:
        """Return those of the refused members that are worth another try."""
        due: list[PodUid] = []
        for gang in dict.fromkeys(gang for uid in refused if (gang := self._cluster.roster.gang_of(uid)) is not None):
            members = self._cluster.roster.members(gang)
            waiting = [member for member in members if member.ready and not member.bound]
            plan, state = self.plans.of(gang), self._states.get(gang)
            if plan is not None:
                due += [member.pod.uid for member in waiting if self._may_go_on(plan, member)]
            if state is not None and (plan is not None or state.parked is not None):
                # What they were told is not true any more.
                due += [member.pod.uid for member in waiting if member.pod.uid in state.uninformed]
            unseated = [
                member for member in waiting if member.pod.containers and (plan is None or member.pod.uid not in plan.seats)
            ]
            if not unseated or state is None:
                continue
            if self._fits_now(state, now) if state.parked is not None else plan is not None or self._is_complete(members, now):
                due.append(unseated[0].pod.uid)
        return due

    # -- sizes that objects tell ----------------------------------------------------------------------------------------

    def unread(self) -> dict[GangKey, ObjectRef]:
        """Return the objects that have to be read for the sizes of groups."""
        return dict(self._unread)

    def note_size(self, gang: GangKey, size: Size | None, now: float) -> None:
        """Note what the object of a group says; None: it is not there, or says nothing."""
        self._unread.pop(gang, None)
        if not self._cluster.roster.is_empty(gang):
            self._sizes[gang] = size, now

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _size(self, membership: Membership, now: float) -> Size | None:
        if membership.min_members is not None:
            return Size(membership.min_members, membership.max_members)
        if membership.size_from is None:
            return None
        size, read_at = self._sizes.get(membership.gang, (None, -math.inf))
        if now - read_at > (_SIZE_S if size is not None else _NO_SIZE_S):
            self._unread[membership.gang] = membership.size_from
        return size

    def _plan_of(self, pod: PodRequest) -> Plan | None:
        gang = pod.membership.gang if pod.membership is not None else self._cluster.roster.gang_of(pod.uid)
        return self.plans.of(gang) if gang is not None else None

    def _current(self, pod: PodRequest, state: GangState, now: float) -> Plan | None:
        """Return the plan of the pod's group, unless it has to be made anew; the pod keeps its seat if it is good."""
        plan = self._plan_of(pod)
        if plan is not None and not plan.let_go and self.plans.has_bound(plan):
            plan = replace(plan, let_go=True)
            self.plans.put(plan)
        if plan is None or pod.uid not in plan.seats:
            return plan
        good = plan.seats[pod.uid].node not in state.left_out(now) and self.plans.is_sound(plan, pod.uid)
        if good:
            return plan
        if self.plans.may_be_let_go(plan, _without_gpus(self._cluster.roster.members(plan.gang))):
            # The others are being bound: it alone is placed anew.
            return self.plans.unseat(plan, pod.uid)
        self.plans.end(plan)
        return None

    def _make(
        self,
        attempt: Attempt,
        pod: PodRequest,
        members: list[Member],
        size: Size,
        offer: Offer,
        plan: Plan | None,
        state: GangState,
        now: float,
    ) -> Plan | PlanAnswer:
        """Place the members that have no seat: all of the group, or the one that came late."""
        waiting = [member for member in members if not member.bound and member.pod.containers]
        unseated = [member for member in waiting if plan is None or member.pod.uid not in plan.seats]
        seated = len(members) - len(unseated)
        if size.most is not None:
            unseated = unseated[: max(0, size.most - seated)]
        mine = [member for member in unseated if member.pod.uid == pod.uid]
        if not mine:
            return self._no(Code.UNSCHEDULABLE, words.too_many(members[0].membership, size.most))
        fresh = plan is None and not _has_started(members)
        kinds = by_kind(unseated if fresh else mine)
        if isinstance(kinds, Verdict):
            return PlanAnswer(kinds, self._cluster.generation)
        membership, ranks = mine[0].membership, ranks_of(members, plan)
        if plan is None:
            plan = self._new(attempt, members, size.least if fresh else 0, now)
        if fresh:
            insists = state.insists(membership, now)
            made = self._maker.whole(plan, kinds, size.least - seated, offer, ranks, now, insists=insists)
        else:
            made = self._maker.late(plan, kinds[0], members, offer, ranks, now)
        if isinstance(made, Unplaced):
            return self._park(state, made, offer, membership, plan.priority, now)
        state.parked = state.insists_since = None
        return made

    def _new(self, attempt: Attempt, members: list[Member], needed: int, now: float) -> Plan:
        """Return a plan without seats. That of a group that has started needs nobody: its members are let go one by one."""
        gang, priority = members[0].membership.gang, min(member.pod.priority for member in members)
        return Plan(f"{gang}/{attempt.session}.{attempt.number}", gang, needed, priority, {}, now, now, let_go=needed == 0)

    def _park(
        self, state: GangState, unplaced: Unplaced, offer: Offer, membership: Membership, priority: int, now: float
    ) -> PlanAnswer:
        job, gang = unplaced.job, membership.gang
        since = state.parked.since if state.parked is not None else now
        state.parked, state.looked = Waiter(gang, job, offer, priority, since), self._cluster.generation
        curable = self._cluster.could_fit(Shape(job.resource, job.gpus, job.limits))
        text = words.no_room(self._cluster, job, offer.eligible, membership, unplaced.refusal)
        if left_out := state.left_out(now):
            text = f"{words.refused_nodes(self._cluster, left_out)}; {text}"
            state.again_at = state.readmits_at(now)
        closed = self.keeping.closed_to(priority, gang)
        if closed and fits(self._cluster, job, offer.eligible | closed):
            text = f"{text}; {self.keeping.why()}"
        return self._no(Code.UNSCHEDULABLE if curable else Code.UNRESOLVABLE, text)

    def _fits_now(self, state: GangState, now: float) -> bool:
        """Tell whether a group that was refused for lack of room might be placed now."""
        if state.parked is None:
            return False
        job, offer = state.parked.job, state.parked.offer
        if state.insists_since is not None and job.preferred_level is not None and job.required_level == job.preferred_level:
            # It may be content with less by now; that is looked at when it is tried.
            return True
        if now >= state.again_at:
            state.again_at = math.inf
            return True
        if state.looked == self._cluster.generation:
            return False
        state.looked = self._cluster.generation
        return fits(self._cluster, job, offer.eligible & ~self.keeping.closed_to(state.parked.priority, state.parked.gang))

    def _may_go_on(self, plan: Plan, member: Member) -> bool:
        """Tell whether a member has a seat and is not reserved yet, or needs none."""
        held = self._cluster.ledger.get(member.pod.uid)
        return not member.pod.containers or (member.pod.uid in plan.seats and held is not None and held.is_promised)

    def _is_complete(self, members: list[Member], now: float) -> bool:
        """Tell whether as many members are there as the group needs."""
        live = [member for member in members if member.bound or member.ready]
        sizes = [size for member in live[:1] if (size := self._size(member.membership, now))]
        return _has_started(live) or any(len(live) >= size.least for size in sizes)

    def _without_gpus(
        self, attempt: Attempt, membership: Membership, members: list[Member], size: Size, now: float
    ) -> PlanAnswer:
        """Answer a member without GPUs of a group that has no plan: those with GPUs are placed first."""
        if any(member.pod.containers for member in members) and not _has_started(members):
            return self._no(Code.UNSCHEDULABLE, words.gpus_first(membership))
        plan = self._new(attempt, members, 0 if _has_started(members) else size.least, now)
        self.plans.put(plan)
        return self._yes(plan, None, now)

    def _yes(self, plan: Plan, uid: PodUid | None, now: float) -> PlanAnswer:
        plan = replace(plan, asked_at=now)
        self.plans.put(plan)
        seat = plan.seats.get(uid) if uid is not None else None
        return PlanAnswer(OK, self._cluster.generation, seat.node if seat else None, self._member(plan))

    def _no(self, code: Code, reason: str) -> PlanAnswer:
        return PlanAnswer(Verdict(code, reason), self._cluster.generation)

    def _member(self, plan: Plan) -> PlanMember:
        return PlanMember(plan.id, str(plan.gang), 0 if plan.let_go else plan.needed)


def _has_started(members: list[Member]) -> bool:
    return any(member.bound for member in members)


def _without_gpus(members: list[Member]) -> int:
    return len([member for member in members if not member.pod.containers])

"""Groups of pods: placed whole, once, and each member answered from that plan.

The way of a member: `plan` in place of Filter names its node; `seat` gives Reserve the GPUs that are held for it there;
`give_back` is Unreserve. Who waits for others of its group, or for room, holds nothing, and is named by `ready` when
it is worth another try. Rules of a plan's life are in `core.gangs.plan`.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from pyscheduler.core import freeing
from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.search import Evictions, Proposal
from pyscheduler.core.gangs import words
from pyscheduler.core.gangs.evicting import Evicting
from pyscheduler.core.gangs.keeping import Keeping, Waiter
from pyscheduler.core.gangs.making import Maker, Unplaced, Wanted, ranks_of
from pyscheduler.core.gangs.membership import GangKey, GroupSpec, Membership, Size
from pyscheduler.core.gangs.plan import PLAN_S, Plan, Plans, Seat
from pyscheduler.core.gangs.problems import Problems
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.gangs.seating import Offer, by_kind
from pyscheduler.core.gangs.specs import Specs
from pyscheduler.core.gangs.state import GangState
from pyscheduler.core.gangs.table import Tables
from pyscheduler.core.gangs.yielding import Yielding
from pyscheduler.core.model import Attempt, Code, PodRequest, PodUid, Verdict
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.replies import PlanAnswer, PlanMember
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import fits
from pyscheduler.core.settings import shape_of_pod

__all__ = ["Gangs"]

OK: Final = Verdict(Code.OK)


class Gangs:
    """All groups of a cluster."""

    def __init__(self, cluster: Cluster, chooser: Chooser, levels: Mapping[str, str], evictions: Evictions) -> None:
        self._cluster = cluster
        self.plans = Plans(cluster)
        self.yielding = Yielding(cluster, self.plans)
        self.keeping = Keeping(cluster)
        self.tables = Tables(cluster, self.plans)
        self._maker = Maker(cluster, chooser, levels, self.plans, self.yielding)
        self._evicting = Evicting(cluster, evictions, self._maker, self.yielding, self.keeping)
        self.specs = Specs(cluster.roster)
        self.problems = Problems()
        self._states: dict[GangKey, GangState] = {}

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
        state = self._states.setdefault(membership.gang, GangState())
        state.spec, state.eligible = self.specs.of(membership, now), eligible.nodes
        state.reach.note(pod.uid, eligible)
        state.note_room(pod, eligible, room, len(self._cluster.table))
        self.problems.note(membership.gang, pod, (*membership.problems, *(state.spec.problems if state.spec else ())))
        if membership.refusal:
            return self._no(Code.UNRESOLVABLE, membership.refusal)
        state.leave_out([node for name in refused if (node := self._cluster.table.index_of(name)) is not None], now)
        plan = self._current(pod, state, now)
        if plan is not None and (pod.uid in plan.seats or not pod.containers):
            return self._yes(plan, pod.uid, now)
        members = _live(self._cluster.roster.members(membership.gang))
        state.reach.keep([pod.uid, *(member.pod.uid for member in members)])
        size = _may_start(pod.uid, membership, state, len(members), others=plan is not None or _has_started(members))
        if isinstance(size, Verdict):
            return PlanAnswer(size, self._cluster.generation)
        if plan is None and (answer := self._held_up(attempt, pod, members, size, state, now)):
            return answer
        if not pod.containers:
            return self._without_gpus(attempt, membership, members, size, now)
        shape = shape_of_pod(pod)
        if isinstance(shape, Verdict):
            return PlanAnswer(shape, self._cluster.generation)
        offer = Offer.of(eligible, self._allowed(membership.gang, pod.priority, state, now), shape, room)
        able = _completed(state.able(members), state.spec)
        question = (
            self._cluster.generation,
            offer.eligible,
            shape,
            room,
            state.spec,
            size,
            len(able),
            plan is None,
            state.reach.changes,
        )
        made = state.refusal_of(question) or self._make(attempt, pod, able, size, offer, plan, state, now)
        if isinstance(made, Plan):
            self.keeping.release(made.gang)
            return replace(self._yes(made, pod.uid, now), seats=self._unreserved(made, pod.uid))
        state.refusal = question, made
        return self._evicting.told(made, membership.gang, state, now)

    def make_room(
        self, pod: PodRequest, eligible: Eligible, room: bytes, protected: Collection[PodUid], now: float
    ) -> Proposal | None:
        """Return which pods of lower priority have to go for a group that was refused, None if nobody's going helps.

        `room`: as for `plan`, as if all pods of lower priority were gone. `protected`: pods whose eviction would break a
        PodDisruptionBudget.
        """
        gang, shape = pod.membership.gang if pod.membership is not None else None, shape_of_pod(pod)
        state = self._states.get(gang) if gang is not None else None
        if gang is None or state is None or isinstance(shape, Verdict):
            return None
        offer = Offer.of(eligible, self._allowed(gang, pod.priority, state, now), shape, room)
        if state.wanted is not None:
            offer = state.wanted.reach(offer)
        return self._evicting.make_room(gang, state, offer, protected, now)

    def seat(self, pod: PodRequest, node: int) -> Seat | None:
        """Return what is held for the member on this node, None if nothing is, or somebody took it."""
        plan = self._plan_of(pod)
        seat = plan.seats.get(pod.uid) if plan is not None else None
        if plan is None or seat is None or seat.node != node or not self.plans.is_sound(plan, pod.uid):
            return None
        if self._is_last(plan) and not self.plans.is_whole(plan):
            # Others took what one has that waits: when all are let go it is too late.
            self.plans.end(plan)
            return None
        self.tables.touch(plan.gang)
        return seat

    def member_of(self, pod: PodRequest) -> PlanMember | None:
        """Return to which plan a member belongs."""
        plan = self._plan_of(pod)
        return self._member(plan) if plan is not None else None

    def give_back(self, uid: PodUid, plan_id: str, ended_plan: str, now: float) -> None:
        """Note that a member's reservation has ended. `ended_plan`: the plan ends with it, for none of its members was let go."""
        plan = self.plans.named(ended_plan) if ended_plan else None
        if plan is not None:
            self._states.setdefault(plan.gang, GangState()).rest(now)
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
                if self._is_over(plan):
                    self.plans.close(plan)
            elif self.plans.has_bound(plan):
                self.plans.put(replace(plan, let_go=True))
            elif not self.plans.may_be_let_go(plan, _without_gpus(roster.members(plan.gang))):
                expired = now - plan.asked_at > PLAN_S and not self.plans.has_reserved(plan)
                if expired or not self.plans.is_whole(plan):
                    self.plans.end(plan)
        for gang in [gang for gang in self._states if roster.is_empty(gang) and self.plans.of(gang) is None]:
            del self._states[gang]
            self.keeping.release(gang)
            self.specs.forget(gang)
            self.problems.forget(gang)
        self.keeping.update(self._waiters(), now)

    def ready(self, refused: Iterable[PodUid], now: float) -> list[PodUid]:
        """Return those of the refused members that are worth another try."""
        due: list[PodUid] = []
        refused = set(refused)
        for gang in dict.fromkeys(gang for uid in refused if (gang := self._cluster.roster.gang_of(uid)) is not None):
            members = self._cluster.roster.members(gang)
            waiting = [member for member in members if member.ready and not member.bound]
            plan, state = self.plans.of(gang), self._states.get(gang)
            if plan is not None:
                due += [member.pod.uid for member in waiting if self._may_go_on(plan, member)]
            if state is not None and (plan is not None or state.parked is not None or _lacks_room(members, state)):
                # What they were told is not true any more.
                due += [member.pod.uid for member in waiting if member.pod.uid in state.uninformed]
            # Members without GPUs wait for those with GPUs, if there are any.
            with_gpus = _without_gpus(members) < len(members)
            unseated = [
                member
                for member in waiting
                if member.pod.uid in refused
                and bool(member.pod.containers) is with_gpus
                and (plan is None or member.pod.uid not in plan.seats)
            ]
            if unseated and state is not None and self._may_be_placed(state, plan, members, unseated[0].membership, now):
                due.append(unseated[0].pod.uid)
        return due

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _waiters(self) -> list[Waiter]:
        """Return the groups that wait for room. For those that could not start if they had it no nodes are kept."""
        waiters: list[Waiter] = []
        for gang, state in self._states.items():
            if state.parked is None and self.keeping.made_for(gang) is None:
                continue
            if self.plans.of(gang) is None and not _can_start(self._cluster.roster.unsorted(gang), state):
                self.keeping.release(gang)
            elif state.parked is not None:
                waiters.append(state.parked)
        return waiters

    def _held_up(
        self, attempt: Attempt, pod: PodRequest, members: list[Member], size: Size, state: GangState, now: float
    ) -> PlanAnswer | None:
        """Answer a member of a complete group that is not placed now: it rests, or a member without GPUs has room on no node."""
        if len(state.able(members)) >= size.least or _has_started(members):
            return self._no(Code.UNSCHEDULABLE, words.rests(members[0].membership)) if state.rests(now) else None
        # Nothing is held or kept for it, and nobody is evicted.
        state.parked = state.wanted = None
        self.keeping.release(members[0].membership.gang)
        if pod.uid not in state.nowhere:
            lost = next(member for member in members if member.pod.uid in state.nowhere)
            return self._no(Code.UNSCHEDULABLE, words.fits_nowhere(lost.pod))
        # Its cycle goes on, so that the framework says why, makes room for it if it can, and tries it again when nodes
        # change. With a plan that has ended it is refused if it fits after all, and asks again.
        plan = self._new(attempt, members, size.least, now)
        self.plans.end(plan)
        return PlanAnswer(OK, self._cluster.generation, None, self._member(plan))

    def _may_be_filled(self, plan: Plan, state: GangState) -> bool:
        """Tell whether as many members as a plan needs may come, if some have room on no node."""
        if not state.nowhere:
            return True
        members = _live(self._cluster.roster.unsorted(plan.gang))
        able = state.able(members)
        coming = [member for member in able if member.pod.uid in plan.seats or not member.pod.containers]
        return len(able) == len(members) or len(coming) >= plan.needed or _has_started(members)

    def _is_over(self, plan: Plan) -> bool:
        """Tell whether all members that were placed by the plan are gone or on their way out."""
        members = self._cluster.roster.unsorted(plan.gang)
        ran, runs = [member for member in members if member.bound], _has_started(list(members))
        return not members or (bool(ran) and not runs and not self.plans.has_reserved(plan))

    def _allowed(self, gang: GangKey, priority: int, state: GangState, now: float) -> int:
        """Return the nodes that the group does not do without, and that are not kept for others; a bitmap without end."""
        return ~sum(1 << node for node in state.left_out(now)) & ~self.keeping.closed_to(priority, gang)

    def _is_last(self, plan: Plan) -> bool:
        """Tell whether all members may be let go when one more is reserved."""
        others = _without_gpus(list(self._cluster.roster.unsorted(plan.gang)))
        return not self.plans.may_be_let_go(plan, others) and self.plans.may_be_let_go(plan, others + 1)

    def _plan_of(self, pod: PodRequest) -> Plan | None:
        gang = pod.membership.gang if pod.membership is not None else self._cluster.roster.gang_of(pod.uid)
        return self.plans.of(gang) if gang is not None else None

    def _current(self, pod: PodRequest, state: GangState, now: float) -> Plan | None:
        """Return the plan of the pod's group, unless it has to be made anew; the pod keeps its seat if it is good."""
        plan = self._plan_of(pod)
        if plan is not None and not plan.let_go and self.plans.has_bound(plan):
            plan = replace(plan, let_go=True)
            self.plans.put(plan)
        if plan is not None and plan.let_go and self._is_over(plan):
            self.plans.close(plan)
            return None
        if plan is not None and not plan.let_go and not self._may_be_filled(plan, state):
            # Its own members may be what takes the room.
            state.rest(now)
            self.plans.end(plan)
            return None
        if plan is None or pod.uid not in plan.seats:
            return plan
        node = plan.seats[pod.uid].node
        admitted = node not in state.left_out(now) and not state.reach.excludes(pod.uid, node)
        good = admitted and self.plans.is_sound(plan, pod.uid)
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
        state.wanted = None
        waiting = [member for member in members if not member.bound and member.pod.containers]
        unseated = [member for member in waiting if plan is None or member.pod.uid not in plan.seats]
        seated = len(members) - len(unseated)
        if size.most is not None:
            unseated = unseated[: max(0, size.most - seated)]
        mine = [member for member in unseated if member.pod.uid == pod.uid]
        if not mine:
            return self._no(Code.UNSCHEDULABLE, words.too_many(members[0].membership, size.most))
        fresh = plan is None and not _has_started(members)
        uids = [member.pod.uid for member in unseated]
        kinds = by_kind(unseated, state.reach.of(uids, pod.uid, len(self._cluster.table))) if fresh else by_kind(mine)
        if isinstance(kinds, Verdict):
            return PlanAnswer(kinds, self._cluster.generation)
        membership, ranks = mine[0].membership, ranks_of(members, plan)
        if plan is None:
            plan = self._new(attempt, members, size.least if fresh else 0, now)
        least, insists = size.least - seated if fresh else 1, fresh and state.insists(membership, now)
        if fresh:
            made = self._maker.whole(plan, kinds, least, offer, ranks, now, insists=insists)
        else:
            kinds = [self._maker.joining(kinds[0], state.eligible, members)]
            made = self._maker.late(plan, kinds[0], members, offer, ranks, now)
        if isinstance(made, Unplaced):
            if not insists:
                state.wanted = Wanted(tuple(kinds), least, ranks, plan.priority, () if fresh else tuple(members))
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
        closed = self.keeping.closed_to(priority, gang)
        # It may have the nodes that are kept for others when they are kept no more.
        kind = unplaced.kind
        opened = closed & (state.eligible if kind.eligible is None else kind.eligible)
        offer = offer.of_kind(kind)
        wide = replace(offer.changed(opened=opened), allowed=offer.allowed | closed)
        state.parked, state.looked = Waiter(gang, job, wide, priority, since), (self._cluster.generation, closed)
        curable = self._cluster.could_fit(Shape(job.resource, job.gpus, job.limits))
        text = self._why_not(unplaced, offer, wide, membership, priority)
        if left_out := state.left_out(now):
            text = f"{words.refused_nodes(self._cluster, left_out)}; {text}"
            state.again_at = state.readmits_at(now)
        return self._no(Code.UNSCHEDULABLE if curable else Code.UNRESOLVABLE, text)

    def _why_not(self, unplaced: Unplaced, offer: Offer, wide: Offer, membership: Membership, priority: int) -> str:
        """Return why a group has no place. `wide`: with the nodes that are kept for others."""
        job = unplaced.job
        text = words.no_room(self._cluster, job, offer.eligible, membership, unplaced.refusal)
        shapes = [Shape(job.resource, job.gpus, job.limits)]
        if wide.eligible == offer.eligible or not freeing.advice(self._cluster, job, wide.eligible, shapes).enough:
            return text
        if not freeing.advice(self._cluster, job, offer.eligible, shapes).enough:
            # What could be done about the other nodes is no help.
            text = words.on_kept_nodes(job, membership)
        return f"{text}; {self.keeping.why(priority, membership.gang)}"

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
        closed = self.keeping.closed_to(state.parked.priority, state.parked.gang)
        if state.looked == (self._cluster.generation, closed):
            return False
        state.looked = self._cluster.generation, closed
        open_now = offer.changed(closed=closed)
        wanted = state.wanted
        return fits(self._cluster, job, open_now.eligible) and (wanted is None or self._maker.may_fit(wanted, open_now))

    def _may_go_on(self, plan: Plan, member: Member) -> bool:
        """Tell whether a member has a seat and is not reserved yet, or needs none."""
        held = self._cluster.ledger.get(member.pod.uid)
        return not member.pod.containers or (member.pod.uid in plan.seats and held is not None and held.is_promised)

    def _may_be_placed(
        self, state: GangState, plan: Plan | None, members: list[Member], membership: Membership, now: float
    ) -> bool:
        """Tell whether a member without a seat is worth another try; `membership` is its own."""
        live, gang, spec = _live(members), membership.gang, self.specs.of(membership, now)
        if plan is None and state.rests(now):
            return False
        if spec is None or spec != state.spec:
            # It wants something else than when it was looked at.
            return spec is not None
        size = membership.size(spec)
        if plan is None and not _has_started(live) and (size is None or len(state.able(live)) < size.least):
            return False
        if spec.refusal or state.parked is not None:
            return not spec.refusal and (self._fits_now(state, now) or self._evicting.is_due(gang, state, now))
        return True

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

    def _unreserved(self, plan: Plan, but: PodUid) -> tuple[tuple[PodUid, int], ...]:
        """Return the nodes of the other members that are not reserved yet."""
        others = [(uid, seat.node, self._cluster.ledger.get(uid)) for uid, seat in plan.seats.items() if uid != but]
        return tuple((uid, node) for uid, node, held in others if held is not None and held.is_promised)

    def _no(self, code: Code, reason: str) -> PlanAnswer:
        return PlanAnswer(Verdict(code, reason), self._cluster.generation)

    def _member(self, plan: Plan) -> PlanMember:
        return PlanMember(plan.id, str(plan.gang), 0 if plan.let_go else plan.needed)


def _may_start(uid: PodUid, membership: Membership, state: GangState, there: int, *, others: bool) -> Size | Verdict:
    """Return how large the group is, or what it waits for. `others`: some of it are placed already; it waits for none."""
    spec = state.spec
    state.uninformed.add(uid)
    if spec is not None and spec.refusal:
        return Verdict(Code.UNRESOLVABLE, spec.refusal)
    size = membership.size(spec or GroupSpec())
    if size is None:
        return Verdict(Code.UNSCHEDULABLE, words.no_size(membership))
    if not others and there < size.least:
        return Verdict(Code.UNSCHEDULABLE, words.incomplete(membership, there, size.least))
    if spec is None:
        # A wish that is read when the group has its place would come too late.
        return Verdict(Code.UNSCHEDULABLE, words.unread(membership))
    state.uninformed.discard(uid)
    return size


def _completed(members: list[Member], spec: GroupSpec | None) -> list[Member]:
    """Return the members with what the object of the group says."""
    if spec is None or (spec.required_level is None and spec.preferred_level is None):
        return members
    return [replace(member, membership=member.membership.completed(spec)) for member in members]


def _has_started(members: list[Member]) -> bool:
    return any(member.bound and member.ready for member in members)


def _least(members: Iterable[Member], state: GangState) -> float:
    """Return how many members the group needs to start; infinity if that is not known."""
    sizes = (member.membership.size(state.spec or GroupSpec()) for member in members)
    return min((size.least for size in sizes if size is not None), default=math.inf)


def _can_start(members: Collection[Member], state: GangState) -> bool:
    """Tell whether a group runs, or has as many members as it needs that have room on some node."""
    live = _live(members)
    return _has_started(live) or len(state.able(live)) >= _least(live, state)


def _lacks_room(members: Collection[Member], state: GangState) -> bool:
    """Tell whether a group is complete and cannot start all the same."""
    return bool(state.nowhere) and not _can_start(members, state) and len(live := _live(members)) >= _least(live, state)


def _live(members: Iterable[Member]) -> list[Member]:
    """Return the members that run or may be scheduled. When all that ran are on their way out the group starts anew, without them."""
    live = [member for member in members if member.bound or member.ready]
    return live if _has_started(live) else [member for member in live if member.ready]


def _without_gpus(members: list[Member]) -> int:
    return len([member for member in members if not member.pod.containers])

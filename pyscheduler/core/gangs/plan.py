"""Plans: which node and GPUs each member of a group gets. The GPUs are held for all of them at once.

The life of a plan: it is made whole; its members are reserved one by one; when as many are reserved as are needed, the
scheduler lets them go, all together, and each is bound by itself from then on. Until then it can end, and ends whole.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import NO_LIMITS
from pyscheduler.core.model import PodRequest, PodUid
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape
from pyscheduler.core.settings import shape_of_pod

__all__ = ["PLAN_S", "Plan", "Plans", "Seat", "rank_of"]

# Seconds after which a plan ends that nobody asks about and no member of which is reserved: longer than the scheduler
# has members wait for each other.
PLAN_S: Final = 120.0

_ENDED_MAX: Final = 1000

_HELD = "the plan of its group"
_GIVEN: Final = (HoldingState.PLANNED, HoldingState.RESERVED)
_BOUND: Final = (HoldingState.BOUND, HoldingState.FOREIGN)


@dataclass(frozen=True, slots=True)
class Seat:
    """What one member gets. `placement` is what is said of it on its Binding."""

    pod: PodRequest
    node: int
    gpus: tuple[str, ...]
    rank: int
    placement: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one group.

    Attributes
    ----------
    id
        Names it for ever.
    needed
        How many members, with those that have no GPUs, must be reserved before any is let go.
    priority
        The lowest of its members.
    seats
        By member with GPUs.
    made_at, asked_at
        When it was made, and when a member last asked about it; seconds.
    let_go
        Its members are being bound, or are.
    """

    id: str
    gang: GangKey
    needed: int
    priority: int
    seats: Mapping[PodUid, Seat]
    made_at: float
    asked_at: float
    let_go: bool = False


class Plans:
    """The live plan of each group, and the holdings that go with it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._plans: dict[GangKey, Plan] = {}
        self._by_id: dict[str, GangKey] = {}
        # The last ones that ended: a scheduler may tell of them as if they lived.
        self._dead: dict[str, None] = {}
        # What nobody takes is of no use for long: the scheduler refuses its members when they are reserved, or time out.
        self._ended: deque[str] = deque(maxlen=_ENDED_MAX)
        # By plan and member: with which holding, and in which state of its node, it was found sound.
        self._sound: dict[str, dict[PodUid, tuple[Holding | None, NodeState]]] = {}

    def of(self, gang: GangKey) -> Plan | None:
        """Return the group's plan."""
        return self._plans.get(gang)

    def all(self) -> list[Plan]:
        """Return all plans, the oldest first."""
        return list(self._plans.values())

    def put(self, plan: Plan) -> None:
        """Note a plan, new or changed."""
        self._plans[plan.gang] = plan
        self._by_id[plan.id] = plan.gang

    def hold(self, plan: Plan, seats: Iterable[Seat], now: float) -> Plan:
        """Hold the GPUs of these seats, and return the plan with them."""
        added = {seat.pod.uid: seat for seat in seats}
        for seat in added.values():
            self._cluster.refresh(self._cluster.ledger.promise(holding_of(plan, seat, now)))
        plan = replace(plan, seats={**plan.seats, **added})
        self.put(plan)
        return plan

    def named(self, plan_id: str) -> Plan | None:
        """Return the live plan of this name."""
        gang = self._by_id.get(plan_id)
        return self._plans.get(gang) if gang is not None else None

    def unseat(self, plan: Plan, uid: PodUid) -> Plan:
        """Take a member's seat away, and what is held for it if it is not reserved."""
        held = self._cluster.ledger.get(uid)
        if held is not None and held.plan == plan.id and held.state is HoldingState.PLANNED:
            self._cluster.refresh(self._cluster.ledger.drop(held))
        plan = replace(plan, seats={other: seat for other, seat in plan.seats.items() if other != uid})
        self.put(plan)
        return plan

    def end(self, plan: Plan) -> None:
        """End a plan of which nobody was let go: what it holds is free.

        What is reserved is on its way until the scheduler gives it back, for it counts on that until then.
        """
        ledger = self._cluster.ledger
        for uid in plan.seats:
            held = ledger.get(uid)
            if held is None or held.plan != plan.id:
                continue
            if held.state is HoldingState.PLANNED:
                self._cluster.refresh(ledger.drop(held))
            elif held.state is HoldingState.RESERVED:
                self._cluster.refresh(ledger.promise(replace(held, plan="", terminating=True)))
        self.forget(plan)
        self._ended.append(plan.id)
        self._dead[plan.id] = None
        if len(self._dead) > _ENDED_MAX:
            del self._dead[next(iter(self._dead))]

    def close(self, plan: Plan) -> None:
        """Forget a plan whose members have run; what it holds for others is free."""
        for uid in plan.seats:
            self.unseat(plan, uid)
        self.forget(plan)

    def forget(self, plan: Plan) -> None:
        """Forget a plan; what its members hold stays."""
        self._plans.pop(plan.gang, None)
        self._by_id.pop(plan.id, None)
        self._sound.pop(plan.id, None)

    def has_ended(self, plan_id: str) -> bool:
        """Tell whether a plan has ended, as far back as that is remembered."""
        return plan_id in self._dead

    def take_ended(self) -> list[str]:
        """Return the plans that have ended since the last call."""
        ended = list(self._ended)
        self._ended.clear()
        return ended

    # -- what is true of a plan now -----------------------------------------------------------------------------------

    def is_sound(self, plan: Plan, uid: PodUid) -> bool:
        """Tell whether a member still has what the plan gives it: nobody took it, and it is there."""
        seat, held = plan.seats[uid], self._cluster.ledger.get(uid)
        if held is None or held.plan != plan.id:
            return False
        if held.state not in _GIVEN:
            return True
        state, machine = self._cluster.state(seat.node), self._cluster.state(seat.node).facts.machine
        if not state.present:
            return False
        alone, shape = self._cluster.state_without(seat.node, {uid}), shape_of_pod(seat.pod)
        free, free_mask = alone.open_to(shape.limits if isinstance(shape, Shape) else NO_LIMITS)
        if alone.count_only or machine is None:
            return free >= held.count
        mask = machine.mask_of(seat.gpus)
        return mask.bit_count() == held.count and free_mask & mask == mask and free >= held.count

    def is_whole(self, plan: Plan) -> bool:
        """Tell whether every member still has what the plan gives it."""
        known = self._sound.setdefault(plan.id, {})
        for uid, seat in plan.seats.items():
            held, state = self._cluster.ledger.get(uid), self._cluster.state(seat.node)
            last = known.get(uid)
            if last is None or last[0] is not held or last[1] is not state:
                if not self.is_sound(plan, uid):
                    return False
                known[uid] = held, state
        return True

    def may_be_let_go(self, plan: Plan, without_gpus: int) -> bool:
        """Tell whether the scheduler may have let its members go by now: as many as needed have been reserved.

        `without_gpus`: how many members have no GPUs; of these nobody knows here whether they have come.
        """
        if plan.let_go:
            return True
        states = [
            held.state for uid in plan.seats if (held := self._cluster.ledger.get(uid)) is not None and held.plan == plan.id
        ]
        return len([state for state in states if state is not HoldingState.PLANNED]) + without_gpus >= plan.needed

    def has_reserved(self, plan: Plan) -> bool:
        """Tell whether a member is reserved."""
        return any((held := self._cluster.ledger.get(uid)) is not None and held.is_unbound for uid in plan.seats)

    def has_bound(self, plan: Plan) -> bool:
        """Tell whether a member is bound."""
        return any((held := self._cluster.ledger.get(uid)) is not None and held.state in _BOUND for uid in plan.seats)


def holding_of(plan: Plan, seat: Seat, now: float) -> Holding:
    """Return what is held for a member until it is reserved."""
    return Holding(
        uid=seat.pod.uid,
        namespace=seat.pod.namespace,
        name=seat.pod.name,
        node=seat.node,
        state=HoldingState.PLANNED,
        count=len(seat.gpus),
        gpus=seat.gpus,
        since=now,
        reason=_HELD,
        priority=seat.pod.priority,
        gang=True,
        plan=plan.id,
    )


def rank_of(plan: Plan | None, member: Member) -> int | None:
    """Return the member's rank: that of its plan, else what its Binding says. A seat that a scheduler told of has no rank."""
    seat = plan.seats.get(member.pod.uid) if plan is not None else None
    return seat.rank if seat is not None and seat.placement else member.rank

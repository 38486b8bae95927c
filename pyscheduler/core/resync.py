"""What a scheduler says that it holds, compared with the books: taken up where they lack it.

Concurrency contract: one writer at a time; the caller holds one lock round every call.
"""

from __future__ import annotations

from dataclasses import replace

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.gangs import Gangs
from pyscheduler.core.gangs.plan import Seat
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import Attempt, Verdict
from pyscheduler.core.nominations import Nominations
from pyscheduler.core.replies import HeldByShim, PlanMember, ResyncAnswer
from pyscheduler.core.request import Shape
from pyscheduler.core.settings import shape_of_pod

__all__ = ["resync"]

_BOUND = (HoldingState.BOUND, HoldingState.FOREIGN)


def resync(
    cluster: Cluster, nominations: Nominations, gangs: Gangs, attempt: Attempt, held: tuple[HeldByShim, ...], now: float
) -> ResyncAnswer:
    """Take up what the books lack, and return what is to be read live, and what must not be bound."""
    ledger = cluster.ledger
    if attempt.session < ledger.session():
        return ResyncAnswer((), tuple(sorted(h.pod.uid for h in held)))
    ledger.note_statement(attempt.session)
    conflicts = []
    for each in held:
        by = replace(attempt, number=each.number)
        if each.member is not None and not each.let_go and gangs.plans.has_ended(each.member.plan):
            # It missed that: none of the plan's members may be bound.
            kept = False
        else:
            kept = _keep_room(cluster, nominations, by, each, now) if each.nominated else _keep(cluster, by, each, now)
        if not kept:
            conflicts.append(each.pod.uid)
        elif each.member is not None and each.pod.containers:
            _keep_plan(cluster, gangs, each, each.member, now)
    reserved = {h.pod.uid for h in held if not h.nominated}
    return ResyncAnswer((*ledger.orphans(attempt, reserved), *cluster.unseen()), tuple(sorted(conflicts)))


def _keep_room(cluster: Cluster, nominations: Nominations, by: Attempt, held: HeldByShim, now: float) -> bool:
    """Hold on to what preemption made room for. It is no promise: what cannot be held is let go."""
    shape, node = shape_of_pod(held.pod), cluster.table.index_of(held.node)
    known = cluster.ledger.get(held.pod.uid) is not None or cluster.early(held.pod.uid) is not None
    if not known and node is not None and isinstance(shape, Shape):
        nominations.adopt(by, held.pod, shape, node, held.gpus, now)
    return True


def _keep(cluster: Cluster, by: Attempt, held: HeldByShim, now: float) -> bool:
    """Hold on to one reservation. Return False if others hold its GPUs, or it has ended: it must not be bound."""
    ledger, mine = cluster.ledger, cluster.ledger.get(held.pod.uid)
    if mine is not None and mine.is_unbound and mine.attempt is not None and mine.attempt < by:
        # What an older attempt held counts no more.
        cluster.refresh(ledger.drop(mine))
        mine = None
    if mine is not None and mine.state is not HoldingState.NOMINATED:
        return not (mine.is_unbound and _is_disputed(cluster, mine))
    bound_to = cluster.early(held.pod.uid)
    if bound_to is not None:
        return bound_to == held.node
    shape = shape_of_pod(held.pod)
    if isinstance(shape, Verdict):
        return False
    node = cluster.join(held.node)
    taken = Holding(
        uid=held.pod.uid,
        namespace=held.pod.namespace,
        name=held.pod.name,
        node=node,
        state=HoldingState.DOUBTFUL if held.doubtful else HoldingState.RESERVED,
        count=shape.gpus,
        gpus=held.gpus,
        since=now,
        reason="taken up from the scheduler after a restart",
        attempt=by,
        gang=held.pod.membership is not None,
        plan=held.member.plan if held.member is not None else "",
    )
    facts = cluster.state(node).facts
    touched = ledger.adopt(taken, facts)
    cluster.refresh(touched)
    return bool(touched) and not ledger.others_with(taken, facts)


def _keep_plan(cluster: Cluster, gangs: Gangs, held: HeldByShim, member: PlanMember, now: float) -> None:
    """Take up the plan of a group as far as this member tells of it. Its rank is not known any more: its Binding carries it."""
    node = cluster.table.index_of(held.node)
    if node is not None:
        gangs.adopt(held.pod, member, Seat(held.pod, node, held.gpus, 0, {}), now, let_go=held.let_go)


def _is_disputed(cluster: Cluster, held: Holding) -> bool:
    """Tell whether others are bound with GPUs of this reservation."""
    others = cluster.ledger.others_with(held, cluster.state(held.node).facts)
    return any(other.state in _BOUND for other in others)

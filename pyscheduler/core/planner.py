"""The one place where a pod meets the cluster.

The path of a pod: `filter` judges all nodes, `reserve` chooses the GPUs on the
node that the framework took, `unreserve` gives them back. Where no node can take
it, `preempt` says who goes, and holds what it then gets (`core.nominations`).
What is known of the cluster, and who keeps it up to date, is in `core.cluster`.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from pyscheduler.core import explain, left_out
from pyscheduler.core.chooser import Chooser, Chosen
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.search import Evictions
from pyscheduler.core.gangs.gangs import Gangs
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import Job
from pyscheduler.core.job import Refusal as Unplaced
from pyscheduler.core.ledger import ALREADY_BOUND
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.model import Attempt, Code, PodRequest, PodUid, Verdict
from pyscheduler.core.nominations import Nominations
from pyscheduler.core.refusals import Eligible, Refusal
from pyscheduler.core.replies import (
    Candidate,
    FilterAnswer,
    HeldByShim,
    PlanAnswer,
    PlanMember,
    PreemptAnswer,
    ReserveAnswer,
    ResyncAnswer,
)
from pyscheduler.core.request import Shape
from pyscheduler.core.resync import resync
from pyscheduler.core.selector import select
from pyscheduler.core.settings import shape_of_pod

__all__ = ["CANDIDATES", "Planner"]

# How many nodes an answer names: enough that the other plugins nearly always accept one, few enough to be cheap to check.
CANDIDATES = 16

# Scores fall from here by one per rank, down to 1.
_SCORE_MAX = 100

OK = Verdict(Code.OK)


class Planner:
    """Decides on the cluster that it is given.

    Parameters
    ----------
    cluster
        What is known.
    version
        Written on Bindings.
    weights
        What links are worth; None: the defaults.
    levels
        Names of levels by node label: a group may name a level by either.

    """

    def __init__(
        self, cluster: Cluster, *, version: str, weights: Weights | None = None, levels: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.cluster = cluster
        self._chooser = Chooser(cluster, weights or Weights(), version)
        evictions = Evictions(cluster)
        self._nominations = Nominations(cluster, evictions)
        self.gangs = Gangs(cluster, self._chooser, levels, evictions)

    def filter(self, attempt: Attempt, pod: PodRequest, eligible: Eligible, now: float) -> FilterAnswer:
        """Judge all nodes for one pod.

        Parameters
        ----------
        attempt
            The scheduling cycle that asks.
        pod
            What it asks for.
        eligible
            The nodes that the framework's other rules admit.
        now
            Seconds, on any clock that only grows.

        """
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return FilterAnswer(shape, self.cluster.generation)
        self._expire_holdings(now)
        if not self.cluster.could_fit(shape):
            return FilterAnswer(self._refuse(pod, shape, eligible, now), self.cluster.generation)
        kept = self.gangs.keeping.closed_to(pod.priority)
        ranking = self.cluster.ranking(shape)
        open_to = self._nominations.open_to(pod.uid, pod.priority, shape)
        best = self._best(shape, eligible.nodes & ~kept, CANDIDATES, open_to.own)
        # What is held for pods of lower priority is taken only where nothing else is free, and plans come last.
        given = [*open_to.lower, *([] if best or open_to.lower else self.gangs.yielding.open_to(pod.priority, shape))]
        best = best or [node for node in given if (eligible.nodes & ~kept) >> node & 1][:CANDIDATES]
        verdict = self._accept(pod, shape, eligible, now) if best else self._refuse(pod, shape, eligible, now)
        feasible = (ranking.feasible | open_to.nodes | sum({1 << node for node in given})) & ~kept
        return FilterAnswer(verdict, self.cluster.generation, feasible, ranking.unresolvable, _scored(best))

    def plan(
        self, attempt: Attempt, pod: PodRequest, eligible: Eligible, room: bytes, refused_nodes: frozenset[str], now: float
    ) -> PlanAnswer:
        """Say where a member of a group goes, in place of `filter`: see `Gangs.plan`."""
        verdict = self._judge_pod(attempt, pod)
        if verdict is not None:
            return PlanAnswer(verdict, self.cluster.generation)
        self._expire_holdings(now)
        answer = self.gangs.plan(attempt, pod, eligible, room, refused_nodes, now)
        if answer.verdict.code is Code.OK:
            self.cluster.refusals.clear(pod.uid)
        else:
            shape = shape_of_pod(pod)
            known = shape if isinstance(shape, Shape) else Shape("", 0)
            self._record(pod, known, eligible, answer.verdict.reason, now)
        return answer

    def score(self, attempt: Attempt, pod: PodRequest, nodes: int) -> tuple[Verdict, tuple[Candidate, ...]]:
        """Rank those of these nodes that are still feasible, best first, at most 100."""
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return shape, ()
        open_to = self._nominations.open_to(pod.uid, pod.priority, shape)
        return OK, _scored(self._best(shape, nodes, _SCORE_MAX, open_to.own))

    def reserve(self, attempt: Attempt, pod: PodRequest, node: int, now: float) -> ReserveAnswer:
        """Hold GPUs on the node of this index for the pod: those that its group's plan gives it, or the best ones there."""
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return ReserveAnswer(shape, self.cluster.generation)
        held = self.cluster.ledger.get(pod.uid)
        if held is not None and held.is_unbound and held.attempt == attempt and held.node == node:
            return ReserveAnswer(OK, self.cluster.generation, held.annotations, self.gangs.member_of(pod))
        take = self._reserve if pod.membership is None else self._reserve_seat
        return take(attempt, pod, shape, node, now)

    def preempt(
        self, attempt: Attempt, pod: PodRequest, nodes: int, protected: Collection[PodUid], now: float, room: bytes = b""
    ) -> PreemptAnswer:
        """Say which pods of lower priority have to go from these nodes (a bitmap), and hold what the pod gets then.

        Asked again without the node of an earlier answer another is named, and where there is none nothing is held.
        `protected` are the pods whose eviction would break a PodDisruptionBudget. A member of a group asks for all of it:
        `room` is how many such pods each node has room for, see `Gangs.make_room`.
        """
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return PreemptAnswer(shape, self.cluster.generation)
        self._expire_holdings(now)
        refused: list[str] = []
        if pod.membership is not None:
            found = self.gangs.make_room(pod, Eligible(nodes, len(self.cluster.table)), room, protected, now)
            what = f"its group {pod.membership.gang}"
        else:
            nodes &= ~self.gangs.keeping.closed_to(pod.priority)
            nodes, refused = self._refuse_plans(pod, shape, nodes)
            found = self._nominations.make_room(attempt, pod, shape, nodes, protected, now)
            what = f"{explain.plural(shape.gpus)} that satisfy the pod"
        if found is None:
            reason = f"no eviction of pods of lower priority makes room for {what}"
            return PreemptAnswer(Verdict(Code.UNSCHEDULABLE, reason), self.cluster.generation)
        return PreemptAnswer(OK, self.cluster.generation, found, tuple(refused))

    def unreserve(self, attempt: Attempt, uid: PodUid, *, bound_unknown: bool, now: float, ended_plan: str = "") -> None:
        """Give the attempt's GPUs back, or hold them as doubtful while the outcome of its Binding is unknown.

        `ended_plan`: the plan of the pod's group ends whole with this, for none of its members was let go.
        """
        ledger = self.cluster.ledger
        held = ledger.get(uid)
        self.cluster.refresh(ledger.unreserve(attempt, uid, bound_unknown=bound_unknown, now=now))
        mine = held is not None and held.attempt == attempt and held.is_unbound
        if attempt.session >= ledger.session() and not bound_unknown:
            self.gangs.give_back(uid, held.plan if held is not None and mine else "", ended_plan, now)

    def resync(self, attempt: Attempt, held: Iterable[HeldByShim], now: float) -> ResyncAnswer:
        """Compare with what the shim holds: take up what is lacking, and return what the shim no longer knows."""
        return resync(self.cluster, self._nominations, self.gangs, attempt, tuple(held), now)

    def settle_orphan(self, orphan: Holding) -> bool:
        """Drop an orphan that a live read has shown to be unbound. Return whether it was dropped."""
        touched = self.cluster.ledger.drop(orphan)
        self.cluster.refresh(touched)
        return bool(touched)

    def expire(self, now: float) -> None:
        """Let go what is held for a time only, and end plans that have become void. To be called several times a second."""
        self._expire_holdings(now)
        self.gangs.expire(now)

    def wake(self, now: float) -> tuple[frozenset[str], list[PodUid]]:
        """Return what grew since the last call, and the refused pods that are worth another try."""
        self.expire(now)
        refusals = self.cluster.refusals
        ready = [*self._nominations.ready(), *self.gangs.ready(refusals.members(), now)]
        kept = self.gangs.keeping.nodes

        def room(shape: Shape, nodes: int) -> int:
            return self.cluster.room(shape, nodes & ~kept)

        due = [*refusals.name(ready, now), *refusals.due(room, len(self.cluster.table), now)]
        return self.cluster.take_grown(), list(dict.fromkeys(due))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _refuse_plans(self, pod: PodRequest, shape: Shape, nodes: int) -> tuple[int, list[str]]:
        """End plans of lower priority whose members wait in Permit, if that makes room for the pod: it costs no running pod.

        Return the nodes to look at, which then is one, and the names of the plans.
        """
        held = self._nominations.of(pod.uid)
        if held is not None and nodes >> held.node & 1:
            return nodes, []
        for node in self.gangs.yielding.opens(pod.priority, shape):
            if nodes >> node & 1:
                return 1 << node, self.gangs.yielding.refuse(1 << node, pod.priority)
        return nodes, []

    def _expire_holdings(self, now: float) -> None:
        self.cluster.expire(now)
        self._nominations.expire(now)

    def _judge(self, attempt: Attempt, pod: PodRequest) -> Shape | Verdict:
        """Return the pod's shape, or why it cannot be considered now or ever."""
        shape = shape_of_pod(pod)
        if isinstance(shape, Verdict):
            return shape
        return self._judge_pod(attempt, pod) or shape

    def _judge_pod(self, attempt: Attempt, pod: PodRequest) -> Verdict | None:
        """Return why the pod cannot be considered now, None if it can."""
        if not self.cluster.present:
            # Not a refusal: nobody would try the pod again when the first nodes do not fit, and its Event would stay.
            return Verdict(Code.RETRY, "no node is known yet: wait, or check that there are Node objects")
        if self.cluster.early(pod.uid) is not None:
            return Verdict(Code.RETRY, ALREADY_BOUND)
        return self.cluster.ledger.refusal(attempt, pod.uid)

    def _best(self, shape: Shape, among: int, limit: int, first: int | None) -> list[int]:
        """Return the best feasible nodes of the set, that one first which was made room on for the pod."""
        best = self.cluster.ranking(shape).best(among, limit, self.cluster.rank)
        if first is None or not among >> first & 1:
            return best
        return [first, *(node for node in best if node != first)][:limit]

    def _accept(self, pod: PodRequest, shape: Shape, eligible: Eligible, now: float) -> Verdict:
        """Let the pod go on. If the other plugins refuse the nodes that fit, others may wake it.

        Those are the nodes that lack GPUs now, and those that were not judged: they join the table later.
        """
        lacking = eligible.nodes & self.cluster.present & ~self.cluster.ranking(shape).feasible
        self._record(pod, shape, Eligible(lacking, eligible.known), "the nodes that fit are judged by the other plugins", now)
        return OK

    def _refuse(self, pod: PodRequest, shape: Shape, eligible: Eligible, now: float) -> Verdict:
        kept = eligible.nodes & self.gangs.keeping.closed_to(pod.priority)
        reason, curable = self._why_not(pod, shape, Eligible(eligible.nodes & ~kept, eligible.known))
        if kept and kept & self._large_enough(shape):
            if not eligible.nodes & ~kept & self._large_enough(shape):
                # What could be done about the other nodes is no help.
                reason = f"needs {explain.plural(shape.gpus)} ({shape.resource}) on one node"
            reason, curable = f"{reason}; {self.gangs.keeping.why(pod.priority)}", True
        self._record(pod, shape, eligible, reason, now)
        return Verdict(Code.UNSCHEDULABLE if curable else Code.UNRESOLVABLE, reason)

    def _large_enough(self, shape: Shape) -> int:
        """Return the nodes that could take the shape if they were empty, as a bitmap."""
        return self.cluster.present & ~self.cluster.ranking(shape).unresolvable

    def _why_not(self, pod: PodRequest, shape: Shape, eligible: Eligible) -> tuple[str, bool]:
        """Return why no eligible node takes the pod, and whether it could if others were gone."""
        nominated = self._nominations.of(pod.uid)
        if nominated is not None and eligible.nodes >> nominated.node & 1:
            name = self.cluster.table.names[nominated.node]
            return f"waits for {explain.plural(shape.gpus)} on {name} that pods of lower priority give up", True
        present = self.cluster.present & eligible.nodes
        largest, freest, free = self.cluster.holes(shape.resource, eligible.nodes, shape.limits)
        if not shape.limits.admit_any_set and self.cluster.could_fit(shape) and present:
            unplaced = select(self.cluster, Job(1, shape.gpus, shape.resource, shape.limits), present)
            if isinstance(unplaced, Unplaced):
                unseen = f"; {explain.UNSEEN}" if freest.gpus >= shape.gpus else ""
                return f"{unplaced.reason}: {unplaced.change}{unseen}", bool(present & ~self.cluster.ranking(shape).unresolvable)
        reason = explain.no_node(
            shape,
            eligible=present.bit_count(),
            known=self.cluster.present.bit_count(),
            largest=largest,
            freest=freest,
            free=free,
        )
        if left_out.binds(self.cluster, shape, present):
            reason = f"{reason}; {left_out.text(self.cluster, shape.resource, present)}; {left_out.REMEDY} takes them"
        curable = largest.gpus >= shape.gpus and bool(present & ~self.cluster.ranking(shape).unresolvable)
        return reason, curable

    def _reserve(self, attempt: Attempt, pod: PodRequest, shape: Shape, node: int, now: float) -> ReserveAnswer:
        ledger = self.cluster.ledger
        held = ledger.get(pod.uid)
        if held is not None:
            self.cluster.refresh(ledger.drop(held))
        chosen = self._chooser.choose(node, shape)
        if chosen is None and self._nominations.give_way(node, pod.uid, pod.priority, shape):
            chosen = self._chooser.choose(node, shape)
        if chosen is None and self.gangs.yielding.give_way(node, pod.priority, shape):
            chosen = self._chooser.choose(node, shape)
        if chosen is None:
            if held is not None and held.state is HoldingState.NOMINATED:
                self.cluster.refresh(ledger.promise(held))
            return ReserveAnswer(self._refuse_node(pod, shape, node, now), self.cluster.generation)
        annotations = self._chooser.annotations(attempt, pod, node, chosen)
        holding = _reservation(attempt, pod, node, shape.gpus, chosen.handles, annotations, now)
        if held is not None:
            holding = replace(holding, victims=held.victims, nominated_at=held.nominated_at)
        return self._held(holding, None)

    def _reserve_seat(self, attempt: Attempt, pod: PodRequest, shape: Shape, node: int, now: float) -> ReserveAnswer:
        """Give a member of a group what its plan holds for it."""
        seat, member = self.gangs.seat(pod, node), self.gangs.member_of(pod)
        if seat is None or member is None:
            return ReserveAnswer(
                Verdict(Code.RETRY, "the plan of its group has ended: the group is placed anew"), self.cluster.generation
            )
        annotations = self._chooser.annotations(attempt, pod, node, Chosen(seat.gpus, seat.placement), seat.rank)
        holding = _reservation(attempt, pod, node, shape.gpus, seat.gpus, annotations, now)
        return self._held(replace(holding, gang=True, plan=member.plan), member)

    def _held(self, holding: Holding, member: PlanMember | None) -> ReserveAnswer:
        self.cluster.refresh(self.cluster.ledger.reserve(holding))
        self.cluster.refusals.clear(holding.uid)
        return ReserveAnswer(OK, self.cluster.generation, holding.annotations, member)

    def _refuse_node(self, pod: PodRequest, shape: Shape, node: int, now: float) -> Verdict:
        name = self.cluster.table.names[node] if node < len(self.cluster.table) else f"node {node}"
        reason = f"{name} no longer has {explain.plural(shape.gpus)} free: taken since the pod was judged"
        # Woken by room on any node; the next Filter says again which ones are eligible.
        self._record(pod, shape, Eligible(self.cluster.present, len(self.cluster.table)), reason, now)
        return Verdict(Code.UNSCHEDULABLE, reason)

    def _record(self, pod: PodRequest, shape: Shape, eligible: Eligible, reason: str, now: float) -> None:
        self.cluster.refusals.record(
            Refusal(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                priority=pod.priority,
                shape=shape,
                eligible=eligible,
                generation=self.cluster.generation,
                reason=reason,
                since=self.cluster.refusals.first_refused(pod.uid, now),
                at=now,
                member=pod.membership is not None,
            )
        )


def _reservation(
    attempt: Attempt,
    pod: PodRequest,
    node: int,
    count: int,
    gpus: tuple[str, ...],
    annotations: tuple[tuple[str, str], ...],
    now: float,
) -> Holding:
    """Return what is held for a pod until it is seen bound."""
    return Holding(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=node,
        state=HoldingState.RESERVED,
        count=count,
        gpus=gpus,
        since=now,
        reason="chosen, its Binding is under way",
        attempt=attempt,
        annotations=annotations,
        priority=pod.priority,
    )


def _scored(nodes: list[int]) -> tuple[Candidate, ...]:
    return tuple(Candidate(node, max(1, _SCORE_MAX - rank)) for rank, node in enumerate(nodes))

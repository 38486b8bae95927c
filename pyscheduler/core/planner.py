"""The one place where a pod meets the cluster.

The path of a pod: `filter` judges all nodes, `reserve` chooses the GPUs on the
node that the framework took, `unreserve` gives them back. Where no node can take
it, `preempt` says who goes, and holds what it then gets (`core.nominations`).
What is known of the cluster, and who keeps it up to date, is in `core.cluster`.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyscheduler.core import explain
from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import NO_LIMITS, Job
from pyscheduler.core.job import Refusal as Unplaced
from pyscheduler.core.ledger import ALREADY_BOUND
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.model import Attempt, Code, PodRequest, PodUid, Verdict
from pyscheduler.core.nominations import Nominations
from pyscheduler.core.refusals import Eligible, Refusal
from pyscheduler.core.replies import Candidate, FilterAnswer, HeldByShim, PreemptAnswer, ReserveAnswer, ResyncAnswer
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
    """Decides on the cluster that it is given."""

    def __init__(self, cluster: Cluster, *, version: str, weights: Weights | None = None) -> None:
        self.cluster = cluster
        self._chooser = Chooser(cluster, weights or Weights(), version)
        self._nominations = Nominations(cluster)

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
        self.expire(now)
        if not self.cluster.could_fit(shape):
            return FilterAnswer(self._refuse(pod, shape, eligible, now), self.cluster.generation)
        ranking = self.cluster.ranking(shape)
        open_to = self._nominations.open_to(pod.uid, pod.priority, shape)
        best = self._best(shape, eligible.nodes, CANDIDATES, open_to.own)
        # What is held for pods of lower priority is taken only where nothing else is free.
        best = best or [node for node in open_to.lower if eligible.nodes >> node & 1][:CANDIDATES]
        verdict = self._accept(pod, shape, eligible, now) if best else self._refuse(pod, shape, eligible, now)
        feasible = ranking.feasible | open_to.nodes
        return FilterAnswer(verdict, self.cluster.generation, feasible, ranking.unresolvable, _scored(best))

    def score(self, attempt: Attempt, pod: PodRequest, nodes: int) -> tuple[Verdict, tuple[Candidate, ...]]:
        """Rank those of these nodes that are still feasible, best first, at most 100."""
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return shape, ()
        open_to = self._nominations.open_to(pod.uid, pod.priority, shape)
        return OK, _scored(self._best(shape, nodes, _SCORE_MAX, open_to.own))

    def reserve(self, attempt: Attempt, pod: PodRequest, node: int, now: float) -> ReserveAnswer:
        """Choose the GPUs on the node of this index and hold them for the pod."""
        ledger = self.cluster.ledger
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return ReserveAnswer(shape, self.cluster.generation)
        held = ledger.get(pod.uid)
        if held is not None and held.is_unbound and held.attempt == attempt and held.node == node:
            return ReserveAnswer(OK, self.cluster.generation, held.annotations)
        if held is not None:
            self.cluster.refresh(ledger.drop(held))
        chosen = self._chooser.choose(node, shape)
        if chosen is None and self._nominations.give_way(node, pod.uid, pod.priority, shape):
            chosen = self._chooser.choose(node, shape)
        if chosen is None:
            if held is not None and held.state is HoldingState.NOMINATED:
                self.cluster.refresh(ledger.nominate(held))
            return ReserveAnswer(self._refuse_node(pod, shape, node, now), self.cluster.generation)
        annotations = self._chooser.annotations(attempt, pod, chosen)
        holding = Holding(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=node,
            state=HoldingState.RESERVED,
            count=shape.gpus,
            gpus=chosen.handles,
            since=now,
            reason="chosen, its Binding is under way",
            attempt=attempt,
            annotations=annotations,
            priority=pod.priority,
            victims=held.victims if held else (),
            nominated_at=held.nominated_at if held else None,
        )
        self.cluster.refresh(ledger.reserve(holding))
        self.cluster.refusals.clear(pod.uid)
        return ReserveAnswer(OK, self.cluster.generation, annotations)

    def preempt(self, attempt: Attempt, pod: PodRequest, nodes: int, protected: Collection[PodUid], now: float) -> PreemptAnswer:
        """Say which pods of lower priority have to go from one of these nodes (a bitmap), and hold what the pod gets then.

        Asked again without the node of an earlier answer another is named, and where there is none nothing is held.
        `protected` are the pods whose eviction would break a PodDisruptionBudget.
        """
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return PreemptAnswer(shape, self.cluster.generation)
        self.expire(now)
        found = self._nominations.make_room(attempt, pod, shape, nodes, protected, now)
        if found is None:
            reason = f"no eviction of pods of lower priority makes room for {explain.plural(shape.gpus)} that satisfy the pod"
            return PreemptAnswer(Verdict(Code.UNSCHEDULABLE, reason), self.cluster.generation)
        return PreemptAnswer(OK, self.cluster.generation, found)

    def unreserve(self, attempt: Attempt, uid: PodUid, *, bound_unknown: bool, now: float) -> None:
        """Give the attempt's GPUs back, or hold them as doubtful while the outcome of its Binding is unknown."""
        self.cluster.refresh(self.cluster.ledger.unreserve(attempt, uid, bound_unknown=bound_unknown, now=now))

    def resync(self, attempt: Attempt, held: Iterable[HeldByShim], now: float) -> ResyncAnswer:
        """Compare with what the shim holds: take up what is lacking, and return what the shim no longer knows."""
        return resync(self.cluster, self._nominations, attempt, tuple(held), now)

    def settle_orphan(self, orphan: Holding) -> bool:
        """Drop an orphan that a live read has shown to be unbound. Return whether it was dropped."""
        touched = self.cluster.ledger.drop(orphan)
        self.cluster.refresh(touched)
        return bool(touched)

    def expire(self, now: float) -> None:
        """Let go what is held for a time only."""
        self.cluster.expire(now)
        self._nominations.expire(now)

    def wake(self, now: float) -> tuple[frozenset[str], list[PodUid]]:
        """Return what grew since the last call, and the refused pods that are worth another try."""
        self.expire(now)
        refusals = self.cluster.refusals
        due = [*refusals.name(self._nominations.ready(), now), *refusals.due(self.cluster.room, len(self.cluster.table), now)]
        return self.cluster.take_grown(), list(dict.fromkeys(due))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _judge(self, attempt: Attempt, pod: PodRequest) -> Shape | Verdict:
        """Return the pod's shape, or why it cannot be considered now or ever."""
        shape = shape_of_pod(pod)
        if isinstance(shape, Verdict):
            return shape
        if not self.cluster.present:
            # Not a refusal: nobody would try the pod again when the first nodes do not fit, and its Event would stay.
            return Verdict(Code.RETRY, "no node is known yet: wait, or check that there are Node objects")
        if self.cluster.early(pod.uid) is not None:
            return Verdict(Code.RETRY, ALREADY_BOUND)
        return self.cluster.ledger.refusal(attempt, pod.uid) or shape

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
        reason, curable = self._why_not(pod, shape, eligible)
        self._record(pod, shape, eligible, reason, now)
        return Verdict(Code.UNSCHEDULABLE if curable else Code.UNRESOLVABLE, reason)

    def _why_not(self, pod: PodRequest, shape: Shape, eligible: Eligible) -> tuple[str, bool]:
        """Return why no eligible node takes the pod, and whether it could if others were gone."""
        nominated = self._nominations.of(pod.uid)
        if nominated is not None and eligible.nodes >> nominated.node & 1:
            name = self.cluster.table.names[nominated.node]
            return f"waits for {explain.plural(shape.gpus)} on {name} that pods of lower priority give up", True
        present = self.cluster.present & eligible.nodes
        if shape.limits != NO_LIMITS and self.cluster.could_fit(shape) and present:
            unplaced = select(self.cluster, Job(1, shape.gpus, shape.resource, shape.limits), present)
            if isinstance(unplaced, Unplaced):
                return f"{unplaced.reason}: {unplaced.change}", bool(present & ~self.cluster.ranking(shape).unresolvable)
        largest, freest, free = self.cluster.holes(shape.resource, eligible.nodes)
        reason = explain.no_node(
            shape,
            eligible=present.bit_count(),
            known=self.cluster.present.bit_count(),
            largest=largest,
            freest=freest,
            free=free,
        )
        return reason, largest.gpus >= shape.gpus

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
            )
        )


def _scored(nodes: list[int]) -> tuple[Candidate, ...]:
    return tuple(Candidate(node, max(1, _SCORE_MAX - rank)) for rank, node in enumerate(nodes))

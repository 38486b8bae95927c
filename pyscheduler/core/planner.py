"""The one place where a pod meets the cluster.

The path of a pod: `filter` judges all nodes, `reserve` chooses the GPUs on the
node that the framework took, `unreserve` gives them back. What is known of the
cluster, and who keeps it up to date, is in `core.cluster`.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyscheduler.core import explain
from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.model import Attempt, Code, PodRequest, PodUid, Verdict
from pyscheduler.core.refusals import Eligible, Refusal
from pyscheduler.core.request import Shape, shape_of

__all__ = ["CANDIDATES", "Candidate", "FilterAnswer", "HeldByShim", "Planner", "ReserveAnswer", "ResyncAnswer"]

# How many nodes an answer names: enough that the other plugins nearly always accept one, few enough to be cheap to check.
CANDIDATES = 16

# Settings of pods that are not for the scheduler.
_IGNORED = {"simulate"}

# Scores fall from here by one per rank, down to 1.
_SCORE_MAX = 100

OK = Verdict(Code.OK)


@dataclass(frozen=True, slots=True)
class Candidate:
    """`score` is 1 to 100, falling with the rank."""

    node: int
    score: int


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """`feasible` and `unresolvable` are bitmaps over the whole table."""

    verdict: Verdict
    generation: int
    feasible: int = 0
    unresolvable: int = 0
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class ReserveAnswer:
    """`annotations` go verbatim to the Binding."""

    verdict: Verdict
    generation: int
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ResyncAnswer:
    """`orphans` are to be read live and then given to `settle_orphan`."""

    orphans: tuple[Holding, ...]
    conflicts: tuple[PodUid, ...]


@dataclass(frozen=True, slots=True)
class HeldByShim:
    """One pod that the shim holds, as it says in a resync."""

    pod: PodRequest
    number: int
    node: str
    gpus: tuple[str, ...]
    doubtful: bool


class Planner:
    """Decides on the cluster that it is given."""

    def __init__(self, cluster: Cluster, *, version: str, weights: Weights | None = None) -> None:
        self.cluster = cluster
        self._chooser = Chooser(cluster, weights or Weights(), version)

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
        if not self.cluster.could_fit(shape):
            return FilterAnswer(self._refuse(pod, shape, eligible, now), self.cluster.generation)
        ranking = self.cluster.ranking(shape)
        best = ranking.best(eligible.nodes, CANDIDATES, self.cluster.rank)
        verdict = self._accept(pod, shape, eligible, now) if best else self._refuse(pod, shape, eligible, now)
        return FilterAnswer(verdict, self.cluster.generation, ranking.feasible, ranking.unresolvable, _scored(best))

    def score(self, attempt: Attempt, pod: PodRequest, nodes: int) -> tuple[Verdict, tuple[Candidate, ...]]:
        """Rank those of these nodes that are still feasible, best first, at most 100."""
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return shape, ()
        return OK, _scored(self.cluster.ranking(shape).best(nodes, _SCORE_MAX, self.cluster.rank))

    def reserve(self, attempt: Attempt, pod: PodRequest, node: int, now: float) -> ReserveAnswer:
        """Choose the GPUs on the node of this index and hold them for the pod."""
        ledger = self.cluster.ledger
        shape = self._judge(attempt, pod)
        if isinstance(shape, Verdict):
            return ReserveAnswer(shape, self.cluster.generation)
        held = ledger.get(pod.uid)
        if held is not None and held.attempt == attempt and held.node == node:
            return ReserveAnswer(OK, self.cluster.generation, held.annotations)
        if held is not None:
            self.cluster.refresh(ledger.drop(held))
        chosen = self._chooser.choose(node, shape)
        if chosen is None:
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
        )
        self.cluster.refresh(ledger.reserve(holding))
        self.cluster.refusals.clear(pod.uid)
        return ReserveAnswer(OK, self.cluster.generation, annotations)

    def unreserve(self, attempt: Attempt, uid: PodUid, *, bound_unknown: bool, now: float) -> None:
        """Give the attempt's GPUs back, or hold them as doubtful while the outcome of its Binding is unknown."""
        self.cluster.refresh(self.cluster.ledger.unreserve(attempt, uid, bound_unknown=bound_unknown, now=now))

    def resync(self, attempt: Attempt, held: Iterable[HeldByShim], now: float) -> ResyncAnswer:
        """Compare with what the shim holds: take up what is lacking, and return what the shim no longer knows."""
        mine = list(held)
        if attempt.session < self.cluster.ledger.session():
            return ResyncAnswer((), tuple(sorted(h.pod.uid for h in mine)))
        self.cluster.ledger.note_session(attempt.session)
        conflicts = [h.pod.uid for h in mine if not self._adopt(attempt, h, now)]
        return ResyncAnswer(tuple(self.cluster.ledger.orphans(attempt, {h.pod.uid for h in mine})), tuple(sorted(conflicts)))

    def settle_orphan(self, orphan: Holding) -> bool:
        """Drop an orphan that a live read has shown to be unbound. Return whether it was dropped."""
        touched = self.cluster.ledger.drop(orphan)
        self.cluster.refresh(touched)
        return bool(touched)

    def wake(self, now: float) -> tuple[frozenset[str], list[PodUid]]:
        """Return what grew since the last call, and the refused pods that are worth another try."""
        return self.cluster.take_grown(), self.cluster.refusals.due(self.cluster.room, len(self.cluster.table), now)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _judge(self, attempt: Attempt, pod: PodRequest) -> Shape | Verdict:
        """Return the pod's shape, or why it cannot be considered now or ever."""
        unsupported = sorted(pod.settings.keys() - _IGNORED)
        if unsupported:
            names = " and ".join(f"pyscheduler.io/{key}" for key in unsupported)
            return Verdict(Code.UNRESOLVABLE, f"the pod asks for {names}, which this version does not support: remove it")
        if not self.cluster.present:
            # Not a refusal: nobody would try the pod again when the first nodes do not fit, and its Event would stay.
            return Verdict(Code.RETRY, "no node is known yet: wait, or check that there are Node objects")
        return self.cluster.ledger.refusal(attempt, pod.uid) or shape_of(pod.containers)

    def _accept(self, pod: PodRequest, shape: Shape, eligible: Eligible, now: float) -> Verdict:
        """Let the pod go on. If the other plugins refuse the nodes that fit, others may wake it.

        Those are the nodes that lack GPUs now, and those that were not judged: they join the table later.
        """
        lacking = eligible.nodes & self.cluster.present & ~self.cluster.ranking(shape).feasible
        self._record(pod, shape, Eligible(lacking, eligible.known), "the nodes that fit are judged by the other plugins", now)
        return OK

    def _refuse(self, pod: PodRequest, shape: Shape, eligible: Eligible, now: float) -> Verdict:
        present = self.cluster.present
        largest, freest, free = self.cluster.holes(shape.resource, eligible.nodes)
        reason = explain.no_node(
            shape,
            eligible=(eligible.nodes & present).bit_count(),
            known=present.bit_count(),
            largest=largest,
            freest=freest,
            free=free,
        )
        self._record(pod, shape, eligible, reason, now)
        return Verdict(Code.UNSCHEDULABLE if largest.gpus >= shape.gpus else Code.UNRESOLVABLE, reason)

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
            )
        )

    def _adopt(self, attempt: Attempt, held: HeldByShim, now: float) -> bool:
        """Take up one reservation of the shim. Return False if others hold its GPUs."""
        node, mine = self.cluster.table.index_of(held.node), self.cluster.ledger.get(held.pod.uid)
        if mine is not None:
            return True
        shape = shape_of(held.pod.containers)
        if node is None or isinstance(shape, Verdict):
            return False
        touched = self.cluster.ledger.adopt(
            Holding(
                uid=held.pod.uid,
                namespace=held.pod.namespace,
                name=held.pod.name,
                node=node,
                state=HoldingState.DOUBTFUL if held.doubtful else HoldingState.RESERVED,
                count=shape.gpus,
                gpus=held.gpus,
                since=now,
                reason="taken up from the scheduler after a restart",
                attempt=replace(attempt, number=held.number),
            )
        )
        self.cluster.refresh(touched or set())
        return touched is not None


def _scored(nodes: list[int]) -> tuple[Candidate, ...]:
    return tuple(Candidate(node, max(1, _SCORE_MAX - rank)) for rank, node in enumerate(nodes))

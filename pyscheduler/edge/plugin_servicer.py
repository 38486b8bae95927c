"""The calls of the kube-scheduler plugin: decode, ask the planner under its lock, encode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyscheduler.core import bitmap
from pyscheduler.core.holdings import Holding
from pyscheduler.core.model import Code, PodUid, Verdict
from pyscheduler.core.planner import Planner
from pyscheduler.edge import codec
from pyscheduler.edge.changes import Changes
from pyscheduler.edge.interceptors import CallLog, guarded
from pyscheduler.edge.pb.v1 import scheduler_pb2 as pb
from pyscheduler.edge.pb.v1 import scheduler_pb2_grpc

if TYPE_CHECKING:
    import grpc

__all__ = ["PluginServicer"]

Fields = dict[str, object]


class PluginServicer(scheduler_pb2_grpc.SchedulerPluginServicer):
    """Serves one planner.

    Parameters
    ----------
    planner, lock
        The decisions, and the lock that every use of them takes.
    changes
        Source of the stream that wakes refused pods.
    settle
        Takes the reservations that the shim no longer knows; it reads them live and drops the unbound ones.
    read_specs
        Told that there may be groups whose object has to be read.
    ready, clock, log, version
        Readiness, seconds on a growing clock, where calls are told, and the version to report.

    """

    def __init__(
        self,
        planner: Planner,
        lock: threading.Lock,
        *,
        changes: Changes,
        settle: Callable[[tuple[Holding, ...]], None],
        read_specs: Callable[[], None] = lambda: None,
        ready: Callable[[], bool],
        clock: Callable[[], float],
        log: CallLog,
        version: str,
    ) -> None:
        self._planner = planner
        self._lock = lock
        self._changes = changes
        self._settle = settle
        self._read_specs = read_specs
        self._clock = clock
        self._version = version
        for name, handler in (
            ("Nodes", self._nodes),
            ("Filter", self._filter),
            ("Plan", self._plan),
            ("Score", self._score),
            ("Reserve", self._reserve),
            ("Preempt", self._preempt),
            ("Unreserve", self._unreserve),
            ("Resync", self._resync),
        ):
            setattr(self, name, guarded(name, handler, ready=ready, clock=clock, log=log))

    def Changes(  # noqa: N802  named by the .proto
        self, request: pb.ChangesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ChangesResponse]:
        """Stream what grew until the shim goes away."""
        subscription = self._changes.subscribe(context.cancel)
        context.add_callback(subscription.close)
        yield from subscription

    def _nodes(self, request: pb.NodesRequest, fields: Fields) -> pb.NodesResponse:
        with self._lock:
            table = self._planner.cluster.table
            first = min(request.known, len(table)) if request.epoch == table.epoch else 0
            fields.update(first=first, names=len(table) - first)
            session = self._planner.cluster.ledger.session()
            return pb.NodesResponse(epoch=table.epoch, first=first, names=table.names[first:], newest_session=session)

    def _filter(self, request: pb.FilterRequest, fields: Fields) -> pb.FilterResponse:
        attempt, pod, eligible = codec.attempt(request.attempt), codec.pod(request.pod), codec.eligible(request.eligible)
        fields.update(pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, attempt=attempt.number)
        with self._lock:
            table = self._planner.cluster.table
            if request.eligible.epoch != table.epoch:
                fields["verdict"] = "other-table"
                return pb.FilterResponse(verdict=codec.verdict(_OTHER_TABLE), epoch=table.epoch, table_size=len(table))
            answer = self._planner.filter(attempt, pod, eligible, self._clock())
            size = len(table)
        fields.update(verdict=answer.verdict.code.value, candidates=len(answer.candidates), generation=answer.generation)
        if answer.verdict.reason:
            fields["reason"] = answer.verdict.reason
        return pb.FilterResponse(
            verdict=codec.verdict(answer.verdict),
            epoch=table.epoch,
            table_size=size,
            generation=answer.generation,
            feasible=bitmap.to_bytes(answer.feasible),
            unresolvable=bitmap.to_bytes(answer.unresolvable),
            candidates=codec.candidates(answer.candidates),
        )

    def _plan(self, request: pb.PlanRequest, fields: Fields) -> pb.PlanResponse:
        attempt, pod, eligible = codec.attempt(request.attempt), codec.pod(request.pod), codec.eligible(request.eligible)
        if pod.membership is None:
            raise codec.BadRequest("pod.membership: says nothing of a group")
        refused = frozenset(request.refused_nodes)
        if pod.membership.problems:
            fields["problems"] = list(pod.membership.problems)
        fields.update(pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, attempt=attempt.number, group=str(pod.membership.gang))
        with self._lock:
            table = self._planner.cluster.table
            if request.eligible.epoch != table.epoch:
                fields["verdict"] = "other-table"
                return pb.PlanResponse(verdict=codec.verdict(_OTHER_TABLE), epoch=table.epoch, table_size=len(table))
            answer = self._planner.plan(attempt, pod, eligible, request.room, refused, self._clock())
            size = len(table)
            if answer.node is not None:
                fields["node"] = table.names[answer.node]
        self._read_specs()
        fields.update(verdict=answer.verdict.code.value, generation=answer.generation)
        if answer.verdict.reason:
            fields["reason"] = answer.verdict.reason
        member = codec.plan_member(answer.member)
        message = pb.PlanResponse(
            verdict=codec.verdict(answer.verdict),
            epoch=table.epoch,
            table_size=size,
            generation=answer.generation,
            member=member,
            seats=[pb.PlanSeat(pod_uid=uid, node=node) for uid, node in answer.seats],
            preempt=answer.preempt,
        )
        if answer.node is not None:
            message.node = answer.node
        return message

    def _score(self, request: pb.ScoreRequest, fields: Fields) -> pb.ScoreResponse:
        attempt, pod, nodes = codec.attempt(request.attempt), codec.pod(request.pod), bitmap.from_bytes(request.nodes.bitmap)
        fields.update(pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, attempt=attempt.number)
        with self._lock:
            if request.nodes.epoch != self._planner.cluster.table.epoch:
                fields["verdict"] = "other-table"
                return pb.ScoreResponse(verdict=codec.verdict(_OTHER_TABLE))
            verdict, ranked = self._planner.score(attempt, pod, nodes)
        fields.update(verdict=verdict.code.value, ranked=len(ranked))
        return pb.ScoreResponse(verdict=codec.verdict(verdict), ranked=codec.candidates(ranked))

    def _reserve(self, request: pb.ReserveRequest, fields: Fields) -> pb.ReserveResponse:
        attempt, pod = codec.attempt(request.attempt), codec.pod(request.pod)
        fields.update(pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, attempt=attempt.number)
        with self._lock:
            if request.epoch != self._planner.cluster.table.epoch:
                fields["verdict"] = "other-table"
                return pb.ReserveResponse(verdict=codec.verdict(_OTHER_TABLE))
            answer = self._planner.reserve(attempt, pod, request.node, self._clock())
            if request.node < len(self._planner.cluster.table):
                fields["node"] = self._planner.cluster.table.names[request.node]
        fields.update(verdict=answer.verdict.code.value, generation=answer.generation, **dict(answer.annotations[:1]))
        if answer.verdict.reason:
            fields["reason"] = answer.verdict.reason
        return pb.ReserveResponse(
            verdict=codec.verdict(answer.verdict),
            generation=answer.generation,
            annotations=dict(answer.annotations),
            member=codec.plan_member(answer.member),
        )

    def _preempt(self, request: pb.PreemptRequest, fields: Fields) -> pb.PreemptResponse:
        attempt, pod, nodes = codec.attempt(request.attempt), codec.pod(request.pod), bitmap.from_bytes(request.nodes.bitmap)
        protected = frozenset(PodUid(uid) for uid in request.protected_uids)
        fields.update(pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, attempt=attempt.number, nodes=nodes.bit_count())
        if pod.membership is not None:
            fields["group"] = str(pod.membership.gang)
        with self._lock:
            table = self._planner.cluster.table
            if request.nodes.epoch != table.epoch:
                fields["verdict"] = "other-table"
                return pb.PreemptResponse(verdict=codec.verdict(_OTHER_TABLE))
            answer = self._planner.preempt(attempt, pod, nodes, protected, self._clock(), request.room)
            found = answer.proposal
            if found is not None:
                fields.update(node=table.names[found.node], victims=len(found.victims), gpus=list(found.gpus))
        fields.update(verdict=answer.verdict.code.value, generation=answer.generation)
        message = pb.PreemptResponse(verdict=codec.verdict(answer.verdict), generation=answer.generation)
        if found is not None:
            message.node = found.node
            message.victim_uids.extend(found.victims)
            message.gpus.extend(found.gpus)
            message.ended_plans.extend(answer.ended_plans)
        return message

    def _unreserve(self, request: pb.UnreserveRequest, fields: Fields) -> pb.UnreserveResponse:
        attempt = codec.attempt(request.attempt)
        if request.outcome == pb.UnreserveRequest.OUTCOME_UNSPECIFIED or not request.pod_uid:
            raise codec.BadRequest("pod_uid and outcome: must be set")
        unknown = request.outcome == pb.UnreserveRequest.OUTCOME_UNKNOWN
        fields.update(uid=request.pod_uid, attempt=attempt.number, outcome="unknown" if unknown else "not-bound")
        if request.ended_plan:
            fields["ended_plan"] = request.ended_plan
        uid, ended_plan = PodUid(request.pod_uid), request.ended_plan
        with self._lock:
            self._planner.unreserve(attempt, uid, bound_unknown=unknown, now=self._clock(), ended_plan=ended_plan)
        return pb.UnreserveResponse()

    def _resync(self, request: pb.ResyncRequest, fields: Fields) -> pb.ResyncResponse:
        attempt, held = codec.attempt(request.attempt), [codec.held(h) for h in request.held]
        with self._lock:
            answer = self._planner.resync(attempt, held, self._clock())
            table, generation = self._planner.cluster.table, self._planner.cluster.generation
            size = len(table)
        self._settle(answer.orphans)
        fields.update(held=len(held), orphans=len(answer.orphans), conflicts=len(answer.conflicts), shim=request.shim_version)
        return pb.ResyncResponse(
            epoch=table.epoch,
            table_size=size,
            generation=generation,
            service_version=self._version,
            dropped=sorted(o.uid for o in answer.orphans),
            conflicts=answer.conflicts,
        )


_OTHER_TABLE = Verdict(Code.RETRY, "the node set refers to another node table: fetch Nodes and ask again")

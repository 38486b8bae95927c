"""The real gRPC server on a real unix socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pyscheduler.core.cards import NodeCards
from pyscheduler.core.holdings import Holding
from pyscheduler.core.model import PodUid
from pyscheduler.edge.changes import SUBSCRIBERS_MAX, Changes
from pyscheduler.edge.inspect_servicer import InspectServicer
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from pyscheduler.edge.plugin_servicer import PluginServicer
from pyscheduler.edge.server import EdgeServer
from pyscheduler.errors import ServeError
from tests.builders import bound, node, planner, uuids

SESSION = 1_000


class Recorder:
    """Keeps the calls that it is told of."""

    def __init__(self) -> None:
        self.calls: list[dict[str, object]] = []

    def call(self, method: str, code: str, verdict: str, seconds: float, **fields: object) -> None:
        self.calls.append({"method": method, "code": code, "verdict": verdict, "seconds": seconds, **fields})

    def failed(self, method: str, cause: BaseException, **fields: object) -> None:
        self.calls.append({"method": method, "bug": cause, **fields})


class Edge:
    """A server, its planner, and a channel to it."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.is_ready = True
        self.log = Recorder()
        self.orphans: list[Holding] = []
        self.planner = planner(node("n1"), node("n2", "dgx-1v"), session=SESSION)
        self.planner.cluster.take_grown()
        lock = threading.Lock()
        self.changes = Changes(self.planner, lock, lambda: self.now, self.log)
        common = {"ready": lambda: self.is_ready, "clock": lambda: self.now, "log": self.log, "version": "test"}
        plugin = PluginServicer(self.planner, lock, changes=self.changes, settle=self.orphans.extend, **common)  # type: ignore[arg-type]
        self.server = EdgeServer(path, plugin, InspectServicer(self.planner.cluster, lock, **common))  # type: ignore[arg-type]
        self.server.start()
        self.server.serving()
        self.channel = grpc.insecure_channel(f"unix:{path}")
        self.stub = scheduler_pb2_grpc.SchedulerPluginStub(self.channel)
        self.inspect = inspect_pb2_grpc.InspectStub(self.channel)

    def stop(self) -> None:
        self.changes.stop()
        self.channel.close()
        self.server.stop(1.0)


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    started = Edge(tmp_path / "s.sock")
    yield started
    started.stop()


def _attempt(number: int = 1) -> scheduler_pb2.Attempt:
    return scheduler_pb2.Attempt(session=SESSION, number=number, host="h")


def _pod(uid: str = "u1", gpus: int = 2) -> scheduler_pb2.Pod:
    container = scheduler_pb2.ContainerRequest(
        name="main", kind=scheduler_pb2.ContainerRequest.KIND_APP, resource="nvidia.com/gpu", gpus=gpus
    )
    return scheduler_pb2.Pod(uid=uid, namespace="ns", name=uid, containers=[container])


def _filter(edge: Edge, epoch: int = 1, bits: bytes = b"\x03", **fields: object) -> scheduler_pb2.FilterResponse:
    eligible = scheduler_pb2.NodeSet(epoch=epoch, bitmap=bits, known=2)
    request = {"attempt": _attempt(), "pod": _pod(), "eligible": eligible, **fields}
    return edge.stub.Filter(scheduler_pb2.FilterRequest(**request))  # type: ignore[arg-type]


def test_a_pod_goes_through_nodes_filter_reserve_unreserve(edge: Edge) -> None:
    nodes = edge.stub.Nodes(scheduler_pb2.NodesRequest())
    assert (list(nodes.names), nodes.first) == (["n1", "n2"], 0)
    answer = _filter(edge)
    assert answer.verdict.code == scheduler_pb2.Verdict.CODE_OK
    assert [c.node for c in answer.candidates] == [0, 1]
    request = scheduler_pb2.ReserveRequest(attempt=_attempt(), pod=_pod(), epoch=1, node=0)
    reserved = edge.stub.Reserve(request)
    assert set(reserved.annotations) == {"pyscheduler.io/gpus", "pyscheduler.io/placement"}
    edge.stub.Unreserve(
        scheduler_pb2.UnreserveRequest(attempt=_attempt(), pod_uid="u1", outcome=scheduler_pb2.UnreserveRequest.OUTCOME_NOT_BOUND)
    )
    assert edge.planner.cluster.state(0).free == 8
    assert [c["method"] for c in edge.log.calls] == ["Nodes", "Filter", "Reserve", "Unreserve"]


def test_node_table_is_sent_from_where_the_caller_stands(edge: Edge) -> None:
    assert list(edge.stub.Nodes(scheduler_pb2.NodesRequest(epoch=1, known=1)).names) == ["n2"]
    assert list(edge.stub.Nodes(scheduler_pb2.NodesRequest(epoch=9, known=1)).names) == ["n1", "n2"]


def test_newest_session_is_told_so_that_a_shim_that_starts_takes_a_larger_one(edge: Edge) -> None:
    assert edge.stub.Nodes(scheduler_pb2.NodesRequest()).newest_session == SESSION
    newer = scheduler_pb2.Attempt(session=SESSION + 1, number=1, host="h")
    edge.stub.Resync(scheduler_pb2.ResyncRequest(attempt=newer))
    assert edge.stub.Nodes(scheduler_pb2.NodesRequest()).newest_session == SESSION + 1


def test_shim_is_asked_to_say_what_it_holds_before_it_is_given_anything(edge: Edge) -> None:
    newer = scheduler_pb2.Attempt(session=SESSION + 1, number=1, host="h")
    verdict = _filter(edge, attempt=newer).verdict
    assert (verdict.code, "not said yet what it holds" in verdict.reason) == (scheduler_pb2.Verdict.CODE_RETRY, True)
    edge.stub.Resync(scheduler_pb2.ResyncRequest(attempt=newer))
    assert _filter(edge, attempt=newer).verdict.code == scheduler_pb2.Verdict.CODE_OK


def test_preempt_names_who_goes_and_holds_what_they_give_up(edge: Edge) -> None:
    edge.planner.cluster.observe_pod(bound("low", "n1", 8, uuids("hgx-h100", "n1", *range(8))), 0.0)
    nodes = scheduler_pb2.NodeSet(epoch=1, bitmap=b"\x01", known=2)
    wanted = scheduler_pb2.Pod()
    wanted.CopyFrom(_pod())
    wanted.priority = 5
    answer = edge.stub.Preempt(scheduler_pb2.PreemptRequest(attempt=_attempt(), pod=wanted, nodes=nodes))
    assert (answer.verdict.code, answer.node, list(answer.victim_uids)) == (scheduler_pb2.Verdict.CODE_OK, 0, ["low"])
    held = edge.planner.cluster.ledger.get(PodUid(wanted.uid))
    assert held
    assert tuple(answer.gpus) == held.gpus
    other = scheduler_pb2.NodeSet(epoch=9, bitmap=b"\x01", known=2)
    retried = edge.stub.Preempt(scheduler_pb2.PreemptRequest(attempt=_attempt(), pod=wanted, nodes=other))
    assert retried.verdict.code == scheduler_pb2.Verdict.CODE_RETRY


def test_time_passes_though_no_shim_listens(edge: Edge) -> None:
    edge.planner.cluster.observe_node(node("n1", in_use={}), 0.0)
    edge.planner.cluster.observe_pod(bound("gone", "n1", 1, uuids("hgx-h100", "n1", 0)), 0.0)
    edge.planner.cluster.forget_pod(PodUid("gone"), 0.0)
    assert edge.planner.cluster.state(0).free == 7
    edge.now = 60.0
    edge.changes.tell()
    assert edge.planner.cluster.state(0).free == 8


def test_other_table_is_retried_not_judged(edge: Edge) -> None:
    answer = _filter(edge, epoch=7)
    assert (answer.verdict.code, answer.epoch) == (scheduler_pb2.Verdict.CODE_RETRY, 1)


def test_score_ranks_the_nodes_that_survived(edge: Edge) -> None:
    nodes = scheduler_pb2.NodeSet(epoch=1, bitmap=b"\x03")
    ranked = edge.stub.Score(scheduler_pb2.ScoreRequest(attempt=_attempt(), pod=_pod(), nodes=nodes)).ranked
    assert [(c.node, c.score) for c in ranked] == [(0, 100), (1, 99)]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param({"attempt": scheduler_pb2.Attempt()}, "attempt", id="no attempt"),
        pytest.param({"pod": scheduler_pb2.Pod()}, "pod: uid", id="no pod"),
        pytest.param(
            {"pod": scheduler_pb2.Pod(uid="u", namespace="n", name="p", containers=[scheduler_pb2.ContainerRequest(name="c")])},
            "pod.containers[c].kind",
            id="container kind not said",
        ),
    ],
)
def test_message_that_breaks_the_contract_is_refused_by_field(edge: Edge, change: dict[str, object], names: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _filter(edge, **change)  # type: ignore[arg-type]
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert names in (caught.value.details() or "")


def test_calls_before_the_first_lists_are_refused_as_unavailable(edge: Edge) -> None:
    edge.is_ready = False
    with pytest.raises(grpc.RpcError) as caught:
        _filter(edge)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert edge.inspect.GetState(inspect_pb2.GetStateRequest()).synced is False


def test_changes_begin_at_once_and_name_the_pods_to_wake(edge: Edge) -> None:
    edge.planner.cluster.observe_pod(bound("x", "n1", 8, uuids("hgx-h100", "n1", *range(8))), 0.0)
    _filter(edge, bits=b"\x01")
    stream = edge.stub.Changes(scheduler_pb2.ChangesRequest(attempt=_attempt()))
    assert next(stream).pod_uids == []
    edge.planner.cluster.forget_pod("x", 1.0)  # type: ignore[arg-type]
    edge.changes.tell()
    message = next(stream)
    assert list(message.pod_uids) == ["u1"]
    assert list(message.kinds) == [scheduler_pb2.ChangesResponse.KIND_FREED]
    stream.cancel()


def test_slow_subscriber_gets_the_union_of_what_it_missed(edge: Edge) -> None:
    stream = edge.changes.subscribe()
    taken = iter(stream)
    next(taken)
    for name in ("n3", "n4"):
        edge.planner.cluster.observe_node(node(name), 0.0)
        edge.changes.tell()
    assert next(taken).table_size == 4
    stream.close()
    assert list(taken) == []


def test_oldest_of_too_many_subscribers_makes_room_for_the_newest(edge: Edge) -> None:
    streams = [edge.changes.subscribe() for _ in range(SUBSCRIBERS_MAX + 1)]
    assert len(list(streams[0])) == 1
    edge.planner.cluster.observe_node(node("n3"), 0.0)
    edge.changes.tell()
    assert next(iter(streams[-1])).table_size == 3


def test_bug_in_a_wake_up_is_told_and_does_not_end_the_others(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def wake(now: float) -> tuple[frozenset[str], list[PodUid]]:
        if not failed.is_set():
            failed.set()
            raise OverflowError("a bug")
        return frozenset({"nodes"}), []

    monkeypatch.setattr(edge.planner, "wake", wake)
    stream = iter(edge.changes.subscribe())
    next(stream)
    threading.Thread(target=edge.changes.run, daemon=True).start()
    assert list(next(stream).kinds) == [scheduler_pb2.ChangesResponse.KIND_NODES]
    assert any("bug" in call for call in edge.log.calls)


def test_resync_takes_up_what_is_lacking_and_hands_over_what_the_shim_no_longer_knows(edge: Edge) -> None:
    edge.stub.Reserve(scheduler_pb2.ReserveRequest(attempt=_attempt(1), pod=_pod("lost"), epoch=1, node=0))
    gpus = uuids("dgx-1v", "n2", 0, 3)
    held = scheduler_pb2.Held(pod=_pod("kept"), attempt=2, node_name="n2", gpus=f'{{"main":["{gpus[0]}","{gpus[1]}"]}}')
    answer = edge.stub.Resync(scheduler_pb2.ResyncRequest(attempt=_attempt(3), held=[held], shim_version="test"))
    assert (list(answer.dropped), list(answer.conflicts), answer.service_version) == (["lost"], [], "test")
    assert [o.uid for o in edge.orphans] == ["lost"]
    assert edge.planner.cluster.state(1).free == 6


def test_resync_names_the_pods_whose_gpus_others_hold(edge: Edge) -> None:
    gpus = uuids("hgx-h100", "n1", 0)
    edge.planner.cluster.observe_pod(bound("x", "n1", 1, gpus), 0.0)
    held = scheduler_pb2.Held(pod=_pod("u", 1), attempt=1, node_name="n1", gpus=f'{{"main":["{gpus[0]}"]}}')
    answer = edge.stub.Resync(scheduler_pb2.ResyncRequest(attempt=_attempt(2), held=[held]))
    assert list(answer.conflicts) == ["u"]


def test_inspect_shows_each_gpu_and_who_holds_it(edge: Edge) -> None:
    edge.stub.Reserve(scheduler_pb2.ReserveRequest(attempt=_attempt(), pod=_pod(gpus=1), epoch=1, node=0))
    shown = edge.inspect.ListNodes(inspect_pb2.ListNodesRequest(name="n1")).nodes
    assert [(g.state, g.pod_uid) for g in shown[0].gpus].count(("reserved", "u1")) == 1
    holdings = edge.inspect.ListHoldings(inspect_pb2.ListHoldingsRequest()).holdings
    assert [(h.name, h.node, h.state, len(h.gpu_ids)) for h in holdings] == [("u1", "n1", "reserved", 1)]


def test_inspect_shows_what_is_left_out_and_how_fast_the_slowest_card_of_a_pod_is(edge: Edge) -> None:
    slow, *others = uuids("hgx-h100", "n1", *range(8))
    edge.planner.cluster.set_cards("n1", NodeCards({slow: "slow"}, speeds=dict.fromkeys(others, 0.94)), 0.0)
    edge.stub.Reserve(scheduler_pb2.ReserveRequest(attempt=_attempt(), pod=_pod(gpus=7), epoch=1, node=0))
    shown = edge.inspect.ListNodes(inspect_pb2.ListNodesRequest(name="n1")).nodes[0]
    assert [(g.uuid, g.state) for g in shown.gpus if g.state != "reserved"] == [(slow, "left-out")]
    assert shown.free == 0
    (holding,) = edge.inspect.ListHoldings(inspect_pb2.ListHoldingsRequest()).holdings
    assert (holding.HasField("relative_speed"), holding.relative_speed) == (True, 0.94)


def test_inspect_lists_refused_pods_with_the_reason(edge: Edge) -> None:
    _filter(edge, pod=_pod(gpus=16))
    refusals = edge.inspect.ListRefusals(inspect_pb2.ListRefusalsRequest()).refusals
    assert [(r.pod_uid, r.gpus) for r in refusals] == [("u1", 16)]
    assert "needs 16 GPUs" in refusals[0].reason


def test_health_says_serving_for_the_whole_and_for_the_plugin(edge: Edge) -> None:
    stub = health_pb2_grpc.HealthStub(edge.channel)
    for service in ("", "pyscheduler.v1.SchedulerPlugin"):
        status = stub.Check(health_pb2.HealthCheckRequest(service=service)).status
        assert status == health_pb2.HealthCheckResponse.SERVING


def test_client_that_knows_only_reflection_can_call(edge: Edge) -> None:
    """What grpcurl does: ask for the services, fetch the descriptors, build the messages, call."""
    ask = reflection_pb2_grpc.ServerReflectionStub(edge.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="pyscheduler.v1.Inspect"),
    ]
    listed, described = ask.ServerReflectionInfo(iter(requests))
    assert {s.name for s in listed.list_services_response.service} >= {"pyscheduler.v1.SchedulerPlugin", "pyscheduler.v1.Inspect"}
    pool = descriptor_pool.DescriptorPool()
    for raw in described.file_descriptor_response.file_descriptor_proto:
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(raw))
    method = pool.FindMethodByName("pyscheduler.v1.Inspect.GetState")
    request, response = (message_factory.GetMessageClass(t) for t in (method.input_type, method.output_type))
    call = edge.channel.unary_unary(
        "/pyscheduler.v1.Inspect/GetState",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    assert getattr(call(request()), "gpus") == 16  # noqa: B009  the type is known at run time only


def test_socket_of_a_living_server_is_not_taken(edge: Edge, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="served by another process"):
        Edge(tmp_path / "s.sock")


def test_socket_file_left_by_a_dead_server_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s.sock"))
    edge = Edge(tmp_path / "s.sock")
    assert list(edge.stub.Nodes(scheduler_pb2.NodesRequest()).names) == ["n1", "n2"]
    edge.stop()


def test_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "s.sock").write_text("precious")
    with pytest.raises(ServeError, match="file of another kind"):
        Edge(tmp_path / "s.sock")
    assert (tmp_path / "s.sock").read_text() == "precious"


def _member(**labels: str) -> scheduler_pb2.Pod:
    labels = {"pyscheduler.io/group": "train", "pyscheduler.io/min-members": "1", **labels}
    pod = _pod(gpus=8)
    pod.membership.CopyFrom(scheduler_pb2.Membership(labels=labels))
    return pod


def _plan(edge: Edge, pod: scheduler_pb2.Pod) -> scheduler_pb2.PlanResponse:
    eligible = scheduler_pb2.NodeSet(epoch=1, bitmap=b"\x03", known=2)
    return edge.stub.Plan(scheduler_pb2.PlanRequest(attempt=_attempt(), pod=pod, eligible=eligible, room=b"\x01\x01"))


def test_member_of_a_group_is_given_its_place_and_its_rank(edge: Edge) -> None:
    planned = _plan(edge, _member())
    assert (planned.verdict.code, planned.HasField("node")) == (scheduler_pb2.Verdict.CODE_OK, True)
    assert (planned.member.group, planned.member.needed) == ("ns/train", 1)
    reserved = edge.stub.Reserve(scheduler_pb2.ReserveRequest(attempt=_attempt(), pod=_member(), epoch=1, node=planned.node))
    assert reserved.member == planned.member
    assert reserved.annotations["pyscheduler.io/rank"] == "0"


def test_answer_that_a_plan_is_made_for_tells_where_the_others_go(edge: Edge) -> None:
    pods = []
    for name in ("u1", "u2"):
        pods.append(_member(**{"pyscheduler.io/min-members": "2"}))
        pods[-1].uid = pods[-1].name = name
    waits = _plan(edge, pods[0])
    made = _plan(edge, pods[1])
    assert (waits.verdict.code, len(waits.seats)) == (scheduler_pb2.Verdict.CODE_UNSCHEDULABLE, 0)
    assert [(seat.pod_uid, seat.node) for seat in made.seats] == [("u1", 1 - made.node)]


def test_group_without_room_is_told_that_an_eviction_may_help_and_who_goes_for_it(edge: Edge) -> None:
    for name, kind in (("n1", "hgx-h100"), ("n2", "dgx-1v")):
        edge.planner.cluster.observe_pod(bound(f"on-{name}", name, 8, uuids(kind, name, *range(8))), 0.0)
    assert not _plan(edge, _member(**{"pyscheduler.io/group": "unimportant"})).preempt
    wanted = _member()
    wanted.priority = 5
    wanted.uid = wanted.name = "u2"
    refused = _plan(edge, wanted)
    assert (refused.verdict.code, refused.preempt) == (scheduler_pb2.Verdict.CODE_UNSCHEDULABLE, True)
    nodes = scheduler_pb2.NodeSet(epoch=1, bitmap=b"\x03", known=2)
    request = scheduler_pb2.PreemptRequest(attempt=_attempt(), pod=wanted, nodes=nodes, room=b"\x00\x01")
    answer = edge.stub.Preempt(request)
    assert (answer.verdict.code, list(answer.victim_uids), list(answer.gpus)) == (scheduler_pb2.Verdict.CODE_OK, ["on-n2"], [])
    assert not _plan(edge, wanted).preempt
    assert list(edge.stub.Preempt(request).victim_uids) == []


def test_plan_that_ends_gives_everything_back(edge: Edge) -> None:
    planned = _plan(edge, _member())
    outcome = scheduler_pb2.UnreserveRequest.OUTCOME_NOT_BOUND
    request = {"attempt": _attempt(), "pod_uid": "u1", "outcome": outcome, "ended_plan": planned.member.plan}
    edge.stub.Unreserve(scheduler_pb2.UnreserveRequest(**request))  # type: ignore[arg-type]
    assert [edge.planner.cluster.state(node).free for node in (0, 1)] == [8, 8]


def test_plan_for_a_pod_without_a_group_breaks_the_contract(edge: Edge) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _plan(edge, _pod())
    assert "membership" in str(caught.value.details())


def test_labels_that_name_two_groups_are_told_in_the_log(edge: Edge) -> None:
    _plan(edge, _member(**{"scheduling.x-k8s.io/pod-group": "other"}))
    assert any("names the group train" in str(call) for call in edge.log.calls)


def test_grpc_does_not_prepare_for_forks_which_may_wait_for_ever() -> None:
    asked = "import os, pyscheduler.edge.server; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_ENABLE_FORK_SUPPORT"}
    told = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "0"

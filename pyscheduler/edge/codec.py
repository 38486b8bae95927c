"""Messages to the words of the core and back. Total both ways: what cannot be read raises `BadRequest`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyscheduler.core import bitmap
from pyscheduler.core.gangs.membership import Membership
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import Attempt, Code, ContainerKind, ContainerRequest, Machine, PodRequest, PodUid, Verdict
from pyscheduler.core.node import NodeState
from pyscheduler.core.refusals import Eligible, Refusal
from pyscheduler.core.replies import Candidate, HeldByShim, PlanMember
from pyscheduler.edge.pb.v1 import inspect_pb2, scheduler_pb2
from pyscheduler.readers.gangs import Controller, membership_of

__all__ = [
    "BadRequest",
    "attempt",
    "candidates",
    "eligible",
    "held",
    "holding",
    "node",
    "plan_member",
    "pod",
    "refusal",
    "verdict",
]

_PREFIX = "pyscheduler.io/"

_KINDS = {
    scheduler_pb2.ContainerRequest.KIND_APP: ContainerKind.APP,
    scheduler_pb2.ContainerRequest.KIND_INIT: ContainerKind.INIT,
    scheduler_pb2.ContainerRequest.KIND_SIDECAR: ContainerKind.SIDECAR,
}

_CODES = {
    Code.OK: scheduler_pb2.Verdict.CODE_OK,
    Code.UNSCHEDULABLE: scheduler_pb2.Verdict.CODE_UNSCHEDULABLE,
    Code.UNRESOLVABLE: scheduler_pb2.Verdict.CODE_UNRESOLVABLE,
    Code.RETRY: scheduler_pb2.Verdict.CODE_RETRY,
}


class BadRequest(ValueError):
    """A message that breaks the contract of the .proto file; the text names the field."""


def attempt(message: scheduler_pb2.Attempt) -> Attempt:
    """Return the attempt; session and number must be set."""
    if message.session <= 0 or message.number == 0:
        raise BadRequest("attempt: session and number must be greater than 0")
    return Attempt(session=message.session, number=message.number, host=message.host)


def pod(message: scheduler_pb2.Pod) -> PodRequest:
    """Return the pod."""
    if not message.uid or not message.namespace or not message.name:
        raise BadRequest("pod: uid, namespace and name must be set")
    return PodRequest(
        uid=PodUid(message.uid),
        namespace=message.namespace,
        name=message.name,
        containers=tuple(_container(c) for c in message.containers),
        settings={k.removeprefix(_PREFIX): v for k, v in message.settings.items()},
        priority=message.priority,
        membership=_membership(message),
    )


def _membership(message: scheduler_pb2.Pod) -> Membership | None:
    if not message.HasField("membership"):
        return None
    said = message.membership
    owner = said.controller
    controller = Controller(owner.api_version, owner.kind, owner.name, owner.uid) if said.HasField("controller") else None
    return membership_of(message.namespace, dict(said.labels), dict(said.annotations), controller)


def plan_member(value: PlanMember | None) -> scheduler_pb2.PlanMember | None:
    """Return the message of a member's plan."""
    return None if value is None else scheduler_pb2.PlanMember(plan=value.plan, group=value.group, needed=value.needed)


def _container(message: scheduler_pb2.ContainerRequest) -> ContainerRequest:
    if message.kind not in _KINDS:
        raise BadRequest(f"pod.containers[{message.name}].kind: must be APP, INIT or SIDECAR")
    if message.gpus and not message.resource:
        raise BadRequest(f"pod.containers[{message.name}].resource: must be set where gpus is not 0")
    return ContainerRequest(message.name, _KINDS[message.kind], message.resource, message.gpus)


def verdict(value: Verdict) -> scheduler_pb2.Verdict:
    """Return the message of a verdict."""
    return scheduler_pb2.Verdict(code=_CODES[value.code], reason=value.reason)


def candidates(values: Iterable[Candidate]) -> list[scheduler_pb2.Candidate]:
    """Return the messages of ranked nodes."""
    return [scheduler_pb2.Candidate(node=c.node, score=c.score) for c in values]


def held(message: scheduler_pb2.Held) -> HeldByShim:
    """Return what the shim holds for one pod."""
    try:
        shares = json.loads(message.gpus)
        gpus = tuple(dict.fromkeys(str(handle) for share in shares.values() for handle in share))
    except (ValueError, AttributeError, TypeError) as cause:
        raise BadRequest(f"held[{message.pod.uid}].gpus: must be the annotation that Reserve gave") from cause
    said = message.member
    member = PlanMember(said.plan, said.group, said.needed) if said.plan else None
    return HeldByShim(
        pod(message.pod), message.attempt, message.node_name, gpus, message.doubtful, message.nominated, member, message.let_go
    )


def holding(value: Holding, node: str, relative_speed: float | None, now: float) -> inspect_pb2.Holding:
    """Return the view of one holding."""
    return inspect_pb2.Holding(
        pod_uid=value.uid,
        namespace=value.namespace,
        name=value.name,
        node=node,
        state=value.state.value,
        reason=value.reason,
        age_seconds=now - value.since,
        gpus=value.count,
        gpu_ids=value.gpus,
        attempt=value.attempt.number if value.attempt else 0,
        relative_speed=relative_speed,
    )


def refusal(value: Refusal, now: float) -> inspect_pb2.Refusal:
    """Return the view of one refusal."""
    return inspect_pb2.Refusal(
        pod_uid=value.uid,
        namespace=value.namespace,
        name=value.name,
        gpus=value.shape.gpus,
        reason=value.reason,
        generation=value.generation,
        age_seconds=now - value.since,
    )


def node(index: int, name: str, state: NodeState, holdings: Iterable[Holding]) -> inspect_pb2.Node:
    """Return the view of one node with each of its GPUs."""
    machine = state.facts.machine
    return inspect_pb2.Node(
        name=name,
        index=index,
        present=state.present,
        resource=state.facts.resource,
        allocatable=state.facts.allocatable,
        free=state.free,
        count_only=state.count_only and state.facts.allocatable > 0,
        class_hash=machine.table.class_hash if machine else "",
        gpus=_gpus(state, list(holdings)),
        findings=[finding.message for finding in state.facts.findings],
        path=[f"{level}={domain}" for level, domain in state.facts.place.path],
        assumed=machine.assumed if machine else False,
    )


def _gpus(state: NodeState, holdings: list[Holding]) -> list[inspect_pb2.Gpu]:
    machine = state.facts.machine
    if machine is None:
        return []
    # Of a GPU that is held for a nominated pod the one who has it until then is told.
    last = sorted(holdings, key=lambda held: held.state is not HoldingState.NOMINATED)
    owner = {handle: (h.state.value, h.uid) for h in last for handle in h.gpus}
    for uid, handles in (state.facts.in_use or {}).items():
        for handle in handles:
            owner.setdefault(handle, (HoldingState.FOREIGN.value, uid))
    return [
        inspect_pb2.Gpu(
            id=machine.ids[i],
            uuid=machine.uuids[i] or "",
            healthy=bool(machine.healthy >> i & 1),
            state=owner[handle][0] if handle in owner else _unheld(state, machine, i),
            pod_uid=owner[handle][1] if handle in owner else "",
        )
        for i in range(len(machine.ids))
        for handle in (machine.handle(i),)
    ]


def _unheld(state: NodeState, machine: Machine, gpu: int) -> str:
    """Return what is said of a GPU that nobody is known to hold."""
    if not machine.healthy >> gpu & 1:
        return "unhealthy"
    return "left-out" if state.left_out_mask >> gpu & 1 else "free"


def eligible(message: scheduler_pb2.NodeSet) -> Eligible:
    """Return the nodes that a pod may use."""
    return Eligible(bitmap.from_bytes(message.bitmap), message.known)

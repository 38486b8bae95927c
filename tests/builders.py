"""Builders of values for tests: real machines, pods and clusters in a few words."""

from __future__ import annotations

import functools
import json

from deploy.local import machines
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.gangs.membership import GangKey, Membership
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.model import (
    Attempt,
    ContainerKind,
    ContainerRequest,
    InUse,
    Machine,
    NodeFacts,
    PodFacts,
    PodRequest,
    PodUid,
)
from pyscheduler.core.planner import Planner
from pyscheduler.core.refusals import Eligible
from pyscheduler.readers import node_document

GPU = "nvidia.com/gpu"
OURS = "gpu-topology"
ALL = Eligible((1 << 4096) - 1, 4096)
SOME_GANG = Membership(GangKey("default", "some", "test"), min_members=1)


@functools.cache
def table(machine: str) -> DeviceTable:
    """Return the device table of a machine of `deploy.local.machines`."""
    document = node_document.parse(json.dumps(machines.document(machine, "any")))
    return DeviceTable.build(class_of(document))


def machine(kind: str, node: str, *, sick: tuple[int, ...] = ()) -> Machine:
    """Return the GPUs of a node; those of the indices in `sick` are unhealthy."""
    document = node_document.parse(json.dumps(machines.document(kind, node)))
    healthy = (1 << len(document.gpus)) - 1
    for index in sick:
        healthy &= ~(1 << index)
    return Machine(tuple(g.id for g in document.gpus), tuple(g.uuid for g in document.gpus), healthy, table(kind))


def node(
    name: str,
    kind: str | None = "hgx-h100",
    *,
    allocatable: int | None = None,
    in_use: InUse | None = None,
    resource: str = GPU,
    sick: tuple[int, ...] = (),
    path: tuple[str, ...] = (),
) -> NodeFacts:
    """Return a node of this kind of machine; kind None is a node whose links are not known. `path` is nearest first."""
    found = machine(kind, name, sick=sick) if kind else None
    if allocatable is None:
        allocatable = found.healthy.bit_count() if found else 8
    place = Place(tuple((f"tier-{i}", domain) for i, domain in enumerate(path)))
    return NodeFacts(name, place, resource, allocatable, found, in_use)


def containers(gpus: int, resource: str = GPU) -> tuple[ContainerRequest, ...]:
    """Return the request of a pod with one container."""
    return (ContainerRequest("main", ContainerKind.APP, resource, gpus),)


def pod(name: str, gpus: int = 1, resource: str = GPU, **fields: object) -> PodRequest:
    """Return a pod that waits; its UID is its name."""
    return PodRequest(PodUid(name), "default", name, containers(gpus, resource), **fields)  # type: ignore[arg-type]


def member(
    name: str, gpus: int = 1, *, group: str = "job", least: int | None = 4, priority: int = 0, **said: object
) -> PodRequest:
    """Return a member of a group that waits; it says how many are needed, and `said` of `Membership`."""
    membership = Membership(GangKey("default", group, "test"), min_members=least, **said)  # type: ignore[arg-type]
    asked = containers(gpus) if gpus else ()
    return PodRequest(PodUid(name), "default", name, asked, {}, priority, membership)


def shown(pod: PodRequest, on: str | None = None, **fields: object) -> PodFacts:
    """Return a pod of ours as the API shows it, on a node if it is bound."""
    facts: dict[str, object] = {"scheduler": OURS, "node": on, "membership": pod.membership, "priority": pod.priority, **fields}
    return PodFacts(uid=pod.uid, namespace=pod.namespace, name=pod.name, containers=pod.containers, **facts)  # type: ignore[arg-type]


def bound(
    name: str, on: str, gpus: int = 1, handles: tuple[str, ...] | None = None, *, gang: bool = False, **fields: object
) -> PodFacts:
    """Return a pod that the API shows bound, with its annotation if `handles` are given. `gang`: a member of some group."""
    if gang:
        fields["membership"] = SOME_GANG
    shares = None if handles is None else {"main": handles}
    facts: dict[str, object] = {"scheduler": OURS, "node": on, "gpus": shares, **fields}
    return PodFacts(uid=PodUid(name), namespace="default", name=name, containers=containers(gpus), **facts)  # type: ignore[arg-type]


def only(*nodes: int, known: int) -> Eligible:
    """Return the eligible nodes of these indices, among the first `known`."""
    return Eligible(sum(1 << node for node in nodes), known)


def attempt(number: int, session: int = 1) -> Attempt:
    """Return an attempt of the shim on host ``host``."""
    return Attempt(session, number, "host")


def planner(*nodes: NodeFacts, session: int = 1) -> Planner:
    """Return a planner that knows these nodes, and that a shim of this session has said that it holds nothing."""
    cluster = Cluster(epoch=1, scheduler_name=OURS)
    for facts in nodes:
        cluster.observe_node(facts, 0.0)
    plan = Planner(cluster, version="test")
    plan.resync(attempt(1, session), (), 0.0)
    return plan


def uuids(kind: str, on: str, *indices: int) -> tuple[str, ...]:
    """Return the UUIDs of these GPUs of a node."""
    return tuple(machine(kind, on).handle(i) for i in indices)

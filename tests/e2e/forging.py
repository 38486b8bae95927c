"""Pods whose annotations the scheduler did not write, on nodes without an agent, and what the books say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from deploy.local import machines, simulated_nodes
from deploy.local.api import Api, Object, in_parallel
from deploy.local.devices import GPUS
from deploy.local.scheduler_config import GPU_PROFILE
from deploy.local.simulated_nodes import IN_USE, MACHINE, NODES, SimulatedNode, manifest, now
from deploy.local.workspace import RUN_LABEL, Workspace, annotation
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc
from tests.e2e.known_nodes import until

KIND = "hgx-h100"
GPUS_OF_NODE = 8

Uid = str


@dataclass(frozen=True)
class Books:
    """What a service holds at one moment."""

    holdings: Mapping[Uid, inspect_pb2.Holding]
    nodes: Mapping[str, inspect_pb2.Node]

    @classmethod
    def of(cls, socket: Path) -> Books:
        """Ask a service for its books."""
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            inspect = inspect_pb2_grpc.InspectStub(channel)
            holdings = inspect.ListHoldings(inspect_pb2.ListHoldingsRequest(), timeout=10).holdings
            nodes = inspect.ListNodes(inspect_pb2.ListNodesRequest(), timeout=10).nodes
        return cls({holding.pod_uid: holding for holding in holdings}, {node.name: node for node in nodes})


def wait_held(socket: Path, uids: Sequence[Uid]) -> Books:
    """Wait until a service has seen these pods bound; return its books then."""
    seen: list[Books] = []

    def holds() -> bool:
        seen[:] = [Books.of(socket)]
        return seen[0].holdings.keys() >= set(uids)

    until(holds, f"holdings of {len(uids)} pods")
    return seen[0]


@contextmanager
def nodes_without_agent(workspace: Workspace, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Create nodes that the node simulator leaves alone: nobody hands out their devices or reports them.

    Yields
    ------
    dict
        Names of the Node objects by the given names.

    """
    full = {name: f"{workspace.name}-{name}" for name in names}
    in_parallel(lambda name: workspace.api.create(NODES, _without_agent(name, workspace.name)), full.values())
    try:
        workspace.api.wait_for_each(
            NODES, full.values(), lambda node: not node["spec"].get("taints"), labelSelector=f"{RUN_LABEL}={workspace.name}"
        )
        yield full
    finally:
        simulated_nodes.delete(workspace.api, full.values())


def _without_agent(name: str, run: str) -> Object:
    node = manifest(SimulatedNode(name=name, machine=KIND, labels={RUN_LABEL: run}))
    del node["metadata"]["annotations"][MACHINE]
    return node


def uuids(node: str, *indices: int) -> list[str]:
    """Return the UUIDs of GPUs of a node."""
    gpus = machines.document(KIND, node)["gpus"]
    return [gpus[index]["uuid"] for index in indices]


def named(handles: Sequence[str]) -> str:
    """Return the annotation that names these GPUs."""
    return json.dumps({"main": list(handles)})


def chosen(pod: Object) -> list[str]:
    """Return the GPUs that the annotation of a pod names."""
    return [handle for share in json.loads(annotation(pod, GPUS) or "{}").values() for handle in share]


def place(workspace: Workspace, name: str, node: str, gpus: int) -> Object:
    """Let the scheduler place a pod on a node; return it bound."""
    spec = workspace.pod_spec(gpus)
    spec["nodeSelector"]["kubernetes.io/hostname"] = node
    workspace.add_pod(name, spec)
    return workspace.wait_bound(name)


def forge(workspace: Workspace, name: str, node: str, gpus: int, value: str | None, scheduler: str = GPU_PROFILE) -> Object:
    """Create a pod that its maker has bound to a node, with an annotation of his own; return it."""
    spec = {**workspace.pod_spec(gpus, scheduler=scheduler), "nodeName": node}
    return workspace.add_pod(name, spec, {} if value is None else {GPUS: value})


def edit(workspace: Workspace, name: str, value: str | None) -> None:
    """Change the annotation of a pod; None removes it."""
    workspace.api.patch(f"{workspace.pods}/{name}", {"metadata": {"annotations": {GPUS: value}}})


def report(api: Api, node: str, in_use: Mapping[Uid, Sequence[str]]) -> None:
    """Say, as the agent of a node would, which GPUs pods have."""
    pods = {uid: {"main": list(handles)} for uid, handles in in_use.items()}
    value = json.dumps({"observed_at": now(), "pods": pods})
    api.patch(f"{NODES}/{node}", {"metadata": {"annotations": {IN_USE: value}}})


def set_bound_at(workspace: Workspace, name: str, time: str) -> None:
    """Change the time at which a pod says that it was bound (RFC 3339)."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
    workspace.api.patch_status(f"{workspace.pods}/{name}", {"conditions": [condition]})

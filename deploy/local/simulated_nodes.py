"""Simulated GPU nodes: Node objects with the capacity, labels and topology of real machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from deploy.local import machines
from deploy.local.api import Api, Object, in_parallel
from deploy.local.components import SIMULATED_LABEL

NODES: Final = "/api/v1/nodes"

TOPOLOGY: Final = "pyscheduler.io/topology"
IN_USE: Final = "pyscheduler.io/in-use"
SIMULATE: Final = "pyscheduler.io/simulate"
MACHINE: Final = "pyscheduler.io/machine"

_PRODUCT_LABELS: Final = {"nvidia.com/gpu": "nvidia.com/gpu.product", "amd.com/gpu": "amd.com/gpu.product-name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """A node to be simulated.

    Attributes
    ----------
    name
        Name of the node; its GPUs' UUIDs follow from it.
    machine
        One of `machines.NAMES`.
    fabric
        Domains that it is in, nearest first, such as leaf and spine: Topograph's tiers 0, 1, ...
    cpu, memory
        Capacity, as Kubernetes quantities.
    labels
        Labels besides those that follow from the above.

    """

    name: str
    machine: str
    fabric: tuple[str, ...] = ()
    cpu: str = "128"
    memory: str = "1Ti"
    labels: Mapping[str, str] = field(default_factory=dict)


def create(api: Api, nodes: Iterable[SimulatedNode]) -> None:
    """Create nodes, which are ready at once; they report GPUs in use when the node simulator has seen them."""
    in_parallel(lambda node: api.create(NODES, manifest(node)), nodes)


def delete(api: Api, names: Iterable[str]) -> None:
    """Delete nodes."""
    in_parallel(lambda name: api.delete(f"{NODES}/{name}"), names)


def simulate(api: Api, node: str, instructions: Mapping[str, object] | None) -> None:
    """Tell a node how to misbehave: see `Instructions`; None ends it."""
    value = None if instructions is None else json.dumps(instructions)
    api.patch(f"{NODES}/{node}", {"metadata": {"annotations": {SIMULATE: value}}})


def manifest(node: SimulatedNode) -> Object:
    """Return the Node object, as the kubelet and the agent of a healthy machine would have left it."""
    topology = machines.document(node.machine, node.name)
    resources = {
        "cpu": node.cpu,
        "memory": node.memory,
        "pods": "110",
        machines.resource(node.machine): str(len(topology["gpus"])),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": _labels(node),
            "annotations": {TOPOLOGY: encode_topology(topology), MACHINE: node.machine},
        },
        "status": {"capacity": resources, "allocatable": resources, "conditions": [_ready()]},
    }


def first_gpus(document: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a node document of a machine that has lost all but its first `count` GPUs."""
    gpus = document["gpus"][:count]
    ids = {gpu["id"] for gpu in gpus}
    return {
        **document,
        "gpus": gpus,
        "links": [link for link in document["links"] if {link["a"], link["b"]} <= ids],
        "nic_links": [link for link in document["nic_links"] if link["gpu"] in ids],
    }


def encode_topology(document: Mapping[str, Any]) -> str:
    """Return the value of the topology annotation for a node document, observed now."""
    return json.dumps({**document, "observed_at": now()}, separators=(",", ":"))


def now() -> str:
    """Return the time as RFC 3339 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _labels(node: SimulatedNode) -> dict[str, str]:
    tiers = {f"fabric.topograph.run/tier-{tier}": domain for tier, domain in enumerate(node.fabric)}
    return {
        "kubernetes.io/hostname": node.name,
        SIMULATED_LABEL: "true",
        _PRODUCT_LABELS[machines.resource(node.machine)]: machines.product(node.machine),
        **tiers,
        **node.labels,
    }


def _ready() -> Object:
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now()[:19] + "Z"}

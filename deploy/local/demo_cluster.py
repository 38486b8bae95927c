"""The two equal sides of the demo in one cluster: nodes, what is taken on them, and the pods that come.

Each side has a namespace and nodes of its own, and its pods are kept to its nodes by a node selector.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import grpc

from deploy.local import machines, namespaces, simulated_nodes
from deploy.local.api import Object
from deploy.local.control_plane import ControlPlane
from deploy.local.demo_scenario import NVIDIA, NodePlan, PodPlan
from deploy.local.devices import GPUS
from deploy.local.errors import LocalError, NeverHappenedError
from deploy.local.simulated_nodes import NODES, SimulatedNode
from deploy.local.workspace import RUN_LABEL, in_use
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc

_WAIT_S: Final = 120.0
# How long a wait goes on before it is asked whether the components still run.
_SLICE_S: Final = 5.0
_POLL_S: Final = 0.1
_CALL_S: Final = 10.0
_SPINE: Final = "spine-1"
_NOBODY: Final = "nobody"
_CPUS_PER_GPU: Final = 8
_MEMORY_PER_GPU_GI: Final = 64
_POD: Final = "app.kubernetes.io/name"
_JOB: Final = "batch.kubernetes.io/job-name"
_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_PRODUCT_LABELS: Final = {NVIDIA: "nvidia.com/gpu.product"}

Condition = Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a pod is; `gpus` are the UUIDs that its annotation names, empty if it has none."""

    uid: str
    node: str
    gpus: tuple[str, ...]


class Side:
    """One of the two sides.

    Parameters
    ----------
    plane
        The control plane.
    name
        Its namespace, and the value of its nodes' label.
    scheduler
        Profile that its pods name.
    suffix
        Ends its node names.

    """

    def __init__(self, plane: ControlPlane, name: str, scheduler: str, suffix: str = "") -> None:
        self.name = name
        self._plane = plane
        self._api = plane.api
        self._scheduler = scheduler
        self._suffix = suffix
        self._pods = f"/api/v1/namespaces/{name}/pods"

    def create_nodes(self, plans: Sequence[NodePlan]) -> None:
        """Create the nodes, and the pods of others that hold GPUs there; wait until they run."""
        namespaces.create(self._api, self.name)
        simulated_nodes.create(self._api, (self._node(plan) for plan in plans))
        taken = [plan for plan in plans if plan.taken]
        for plan in taken:
            self._api.create(self._pods, self._occupant(plan))
        for plan in taken:
            self._await(self._pods, _is_running, _occupant_name(plan))

    def create(self, plan: PodPlan) -> None:
        """Create a pod or a Job."""
        if not plan.completions:
            self._api.create(
                self._pods, {"metadata": {"name": plan.name, "labels": _labels(plan, 0)}, "spec": self._pod_spec(plan)}
            )
            return
        spec = {
            "completions": plan.completions,
            "parallelism": plan.completions,
            "completionMode": "Indexed",
            "template": {"spec": {**self._pod_spec(plan), "restartPolicy": "Never"}},
        }
        path = f"/apis/batch/v1/namespaces/{self.name}/jobs"
        self._api.create(path, {"metadata": {"name": plan.name}, "spec": spec})

    def await_running(self, plan: PodPlan) -> dict[str, Bound]:
        """Wait until the pods of a plan are Running; return them by what they are called here."""
        return {name: self._bound(pod) for name, pod in self._await_each(plan, _is_running)}

    def await_settled(self, plan: PodPlan) -> dict[str, Bound | None]:
        """Wait until each pod of a plan is bound or was refused; None are the refused ones."""
        return {
            name: self._bound(pod) if "nodeName" in pod["spec"] else None for name, pod in self._await_each(plan, _is_settled)
        }

    def await_refusal(self, plan: PodPlan) -> str:
        """Wait for the Event that says why a pod is not placed; return its message."""
        event = self._await(
            f"/api/v1/namespaces/{self.name}/events",
            lambda item: bool(item["involvedObject"]["name"] == plan.name and item.get("reason") == "FailedScheduling"),
        )
        return str(event["message"])

    def phase(self, plan: PodPlan) -> str:
        """Return the phase of a pod."""
        return str(self._api.get(f"{self._pods}/{plan.name}")["status"].get("phase"))

    def await_report(self, bound: Bound) -> tuple[str, ...]:
        """Wait until the node reports the GPUs that it gave a pod; return their UUIDs."""
        node = self._await(NODES, lambda item: bound.uid in in_use(item), bound.node + self._suffix)
        return tuple(uuid for uuids in in_use(node)[bound.uid].values() for uuid in uuids)

    def _bound(self, pod: Object) -> Bound:
        chosen = json.loads((pod["metadata"].get("annotations") or {}).get(GPUS, "{}"))
        gpus = tuple(gpu for gpus in chosen.values() for gpu in gpus)
        return Bound(pod["metadata"]["uid"], pod["spec"]["nodeName"].removesuffix(self._suffix), gpus)

    def _node(self, plan: NodePlan) -> SimulatedNode:
        return SimulatedNode(
            name=plan.name + self._suffix,
            machine=plan.machine,
            fabric=(plan.rack, _SPINE),
            labels={RUN_LABEL: self.name},
        )

    def _occupant(self, plan: NodePlan) -> Object:
        chosen = json.dumps({"main": [f"index:{gpu}" for gpu in plan.taken]})
        spec = {
            **self._pod_spec(PodPlan(name="", gpus=len(plan.taken), resource=machines.resource(plan.machine))),
            "schedulerName": _NOBODY,
            "nodeName": plan.name + self._suffix,
        }
        return {"metadata": {"name": _occupant_name(plan), "annotations": {GPUS: chosen}}, "spec": spec}

    def _pod_spec(self, plan: PodPlan) -> Object:
        selector = {RUN_LABEL: self.name}
        if plan.machine:
            selector[_PRODUCT_LABELS[plan.resource]] = machines.product(plan.machine)
        amounts = {
            plan.resource: str(plan.gpus),
            "cpu": str(plan.gpus * _CPUS_PER_GPU),
            "memory": f"{plan.gpus * _MEMORY_PER_GPU_GI}Gi",
        }
        return {
            "schedulerName": self._scheduler,
            "nodeSelector": selector,
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}],
        }

    def _await_each(self, plan: PodPlan, condition: Condition) -> Iterator[tuple[str, Object]]:
        for index, name in enumerate(plan.instances):
            yield name, self._await(self._pods, partial(_meets, _labels(plan, index), condition))

    def _await(self, path: str, condition: Condition, name: str | None = None) -> Object:
        """Wait until an object meets a condition; a component that has ended is named at once."""
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                return self._api.wait_for(path, condition, name=name, timeout_s=_SLICE_S)
            except NeverHappenedError:
                self._plane.check()
                if time.monotonic() > deadline:
                    raise


def await_known(plane: ControlPlane, plans: Sequence[NodePlan]) -> None:
    """Wait until the service knows the links of these nodes and what is free there.

    Raises
    ------
    NeverHappenedError
        If it does not in time.

    """
    wanted = {plan.name: len(machines.document(plan.machine, plan.name)["gpus"]) - len(plan.taken) for plan in plans}
    log = plane.layout.log("pyscheduler")
    deadline = time.monotonic() + _WAIT_S
    with grpc.insecure_channel(f"unix://{plane.layout.socket}") as channel:
        inspect = inspect_pb2_grpc.InspectStub(channel)
        # The service has no call that waits for a state of its own.
        while not wanted.items() <= _known(inspect).items():
            plane.check()
            if time.monotonic() > deadline:
                raise NeverHappenedError(
                    f"the service does not know the links of {', '.join(wanted)} after {_WAIT_S:g} s: see {log}"
                )
            time.sleep(_POLL_S)


def _known(inspect: inspect_pb2_grpc.InspectStub) -> dict[str, int]:
    """Return how many GPUs are free on each node whose links are known."""
    try:
        answer = inspect.ListNodes(inspect_pb2.ListNodesRequest(), timeout=_CALL_S)
    except grpc.RpcError as error:
        raise LocalError(f"the service does not list its nodes: {error}") from error
    return {node.name: node.free for node in answer.nodes if node.class_hash and not node.count_only}


def _occupant_name(plan: NodePlan) -> str:
    return f"others-on-{plan.name}"


def _labels(plan: PodPlan, index: int) -> dict[str, str]:
    """Return the labels by which a pod of a plan is known."""
    return {_JOB: plan.name, _JOB_INDEX: str(index)} if plan.completions else {_POD: plan.name}


def _meets(labels: Mapping[str, str], condition: Condition, pod: Object) -> bool:
    return labels.items() <= (pod["metadata"].get("labels") or {}).items() and condition(pod)


def _is_running(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _is_settled(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    refused = any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)
    return "nodeName" in pod["spec"] or refused

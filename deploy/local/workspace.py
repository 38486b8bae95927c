"""Nodes, pods and Jobs of one run on a control plane that others use too.

A workspace has a namespace and nodes of its own; its pods are kept to its nodes by a node selector. Names are fresh
in every run: kwok deletes by name and would also delete a successor.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from deploy.local import namespaces, simulated_nodes
from deploy.local.api import Api, Object
from deploy.local.devices import GPUS
from deploy.local.scheduler_config import GPU_PROFILE
from deploy.local.simulated_nodes import IN_USE, NODES, SimulatedNode

RUN_LABEL: Final = "pyscheduler.io/run"

_IMAGE: Final = "pause"
_NVIDIA: Final = "nvidia.com/gpu"
# A scheduler that nobody runs: such pods are bound by whoever makes them.
_NOBODY: Final = "nobody"


class Workspace:
    """What one run has created; as a context manager it deletes that at the end."""

    def __init__(self, api: Api, title: str = "run") -> None:
        self.api = api
        self.name = f"{title[:30].rstrip('-')}-{secrets.token_hex(3)}"
        self._nodes: list[str] = []
        namespaces.create(api, self.name)

    @property
    def pods(self) -> str:
        """Path of the collection of pods."""
        return f"/api/v1/namespaces/{self.name}/pods"

    @property
    def jobs(self) -> str:
        """Path of the collection of Jobs."""
        return f"/apis/batch/v1/namespaces/{self.name}/jobs"

    def add_nodes(
        self,
        machine: str,
        count: int = 1,
        fabric: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        cpu: str = "128",
    ) -> list[str]:
        """Create simulated nodes of one machine and return their names, which sort in the order of creation."""
        first = len(self._nodes)
        names = [f"{self.name}-{machine}-{first + number:04}" for number in range(count)]
        labels = {RUN_LABEL: self.name, **(labels or {})}
        nodes = [SimulatedNode(name=name, machine=machine, fabric=tuple(fabric), labels=labels, cpu=cpu) for name in names]
        simulated_nodes.create(self.api, nodes)
        self._nodes += names
        return names

    def add_pod(
        self, name: str, spec: Object, annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
    ) -> Object:
        """Create a pod from what `pod_spec` returns."""
        return self.api.create(self.pods, _pod(spec, annotations, name=name, labels=dict(labels or {})))

    def add_indexed_job(self, name: str, completions: int, spec: Object, annotations: Mapping[str, str] | None = None) -> Object:
        """Create an indexed Job all of whose pods run at once."""
        body = {
            "metadata": {"name": name},
            "spec": {
                "completions": completions,
                "parallelism": completions,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "template": _pod({**spec, "restartPolicy": "Never"}, annotations),
            },
        }
        return self.api.create(self.jobs, body)

    def pod_spec(self, gpus: int = 0, *, scheduler: str = GPU_PROFILE, resource: str = _NVIDIA, cpu: str = "100m") -> Object:
        """Return the spec of a pod with one container, kept to the nodes of this workspace."""
        amounts = {"cpu": cpu, **({resource: str(gpus)} if gpus else {})}
        container = {"name": "main", "image": _IMAGE, "resources": {"requests": amounts, "limits": amounts}}
        return {
            "schedulerName": scheduler,
            "nodeSelector": {RUN_LABEL: self.name},
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        }

    def occupy(self, node: str, gpus: Sequence[int], resource: str = _NVIDIA) -> str:
        """Let a pod that no scheduler of ours placed hold these GPUs of a node; return its name."""
        name = f"occupant-{secrets.token_hex(3)}"
        spec = {**self.pod_spec(len(gpus), scheduler=_NOBODY, resource=resource), "nodeName": node}
        chosen = ", ".join(f'"index:{index}"' for index in gpus)
        pod = self.add_pod(name, spec, annotations={GPUS: f'{{"main": [{chosen}]}}'})
        self.wait_in_use(node, lambda report: pod["metadata"]["uid"] in report)
        return name

    def pod(self, name: str) -> Object:
        """Read a pod."""
        return self.api.get(f"{self.pods}/{name}")

    def node(self, name: str) -> Object:
        """Read a node."""
        return self.api.get(f"{NODES}/{name}")

    def delete_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        self.api.delete(f"{self.pods}/{name}")
        self.api.wait_gone(self.pods, name)

    def wait_pod(self, name: str, condition: Callable[[Object], bool], timeout_s: float = 60.0) -> Object:
        """Wait until a pod meets a condition, and return it."""
        return self.api.wait_for(self.pods, condition, name=name, timeout_s=timeout_s)

    def wait_phase(self, name: str, phase: str, timeout_s: float = 60.0) -> Object:
        """Wait until a pod is in a phase, and return it."""
        return self.wait_pod(name, lambda pod: bool(pod["status"].get("phase") == phase), timeout_s)

    def wait_bound(self, name: str, timeout_s: float = 60.0) -> Object:
        """Wait until a pod has a node, and return it."""
        return self.wait_pod(name, lambda pod: "nodeName" in pod["spec"], timeout_s)

    def wait_job(self, name: str, condition: str, timeout_s: float = 60.0) -> Object:
        """Wait until a Job has a condition, such as Complete, and return it."""
        return self.api.wait_for(self.jobs, lambda job: has_condition(job, condition), name=name, timeout_s=timeout_s)

    def wait_node(self, name: str, condition: Callable[[Object], bool], timeout_s: float = 60.0) -> Object:
        """Wait until a node meets a condition, and return it."""
        return self.api.wait_for(NODES, condition, name=name, timeout_s=timeout_s)

    def wait_untainted(self, timeout_s: float = 120.0) -> None:
        """Wait until no node of this workspace has a taint: each new one has the taint not-ready for a moment."""
        query = {"labelSelector": f"{RUN_LABEL}={self.name}"}
        self.api.wait_for_each(NODES, self._nodes, lambda item: not item["spec"].get("taints"), timeout_s, **query)

    def wait_pods(self, names: Collection[str], condition: Callable[[Object], bool], timeout_s: float = 120.0) -> None:
        """Wait until each of these pods has met a condition at some time."""
        self.api.wait_for_each(self.pods, names, condition, timeout_s)

    def wait_pods_gone(self, names: Collection[str], timeout_s: float = 120.0) -> None:
        """Wait until none of these pods is there."""
        self.api.wait_each_gone(self.pods, names, timeout_s)

    def wait_in_use(
        self, node: str, condition: Callable[[Mapping[str, Mapping[str, list[str]]]], bool], timeout_s: float = 60.0
    ) -> Mapping[str, Mapping[str, list[str]]]:
        """Wait until the GPUs that a node reports in use, by pod UID and container, meet a condition; return them."""
        return in_use(self.wait_node(node, lambda item: condition(in_use(item)), timeout_s))

    def wait_event(self, pod: str, text: str, timeout_s: float = 60.0) -> Object:
        """Wait until a pod has an Event whose message holds a text, and return it."""
        return self.api.wait_for(
            f"/api/v1/namespaces/{self.name}/events",
            lambda event: event["involvedObject"]["name"] == pod and text in event.get("message", ""),
            timeout_s=timeout_s,
        )

    def events(self, pod: str) -> list[Object]:
        """Return the Events of a pod."""
        items, _ = self.api.read_all(f"/api/v1/namespaces/{self.name}/events", fieldSelector=f"involvedObject.name={pod}")
        return items

    def close(self) -> None:
        """Delete the namespace with all in it, and the nodes."""
        namespaces.delete(self.api, self.name)
        self.api.delete(self.pods)  # before their nodes, without which nobody would end them
        simulated_nodes.delete(self.api, self._nodes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def annotation(item: Object, key: str) -> str | None:
    """Return an annotation of an object; None if it has none."""
    value: str | None = (item["metadata"].get("annotations") or {}).get(key)
    return value


def in_use(node: Object) -> Mapping[str, Mapping[str, list[str]]]:
    """Return the GPUs that a node reports in use: by pod UID and container; empty if it does not report."""
    report: Mapping[str, Mapping[str, list[str]]] = json.loads(annotation(node, IN_USE) or '{"pods":{}}')["pods"]
    return report


def has_condition(item: Object, kind: str) -> bool:
    """Return whether a condition of an object is True."""
    conditions = item.get("status", {}).get("conditions") or []
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _pod(spec: Object, annotations: Mapping[str, str] | None, **metadata: object) -> Object:
    return {"metadata": {**metadata, "annotations": dict(annotations or {})}, "spec": spec}

"""Node and Pod objects of a large cluster, as bytes: what controllers, kubelets and agents leave in the API.

A pod is 4 to 8 kB, a node about 20 kB, most of it what the service does not look at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from deploy.local import machines, simulated_nodes
from deploy.local.simulated_nodes import SimulatedNode

__all__ = ["GPU", "NodeText", "PodText", "plain_pod", "training_pod", "uid_of"]

GPU: Final = "nvidia.com/gpu"
MACHINES: Final = ("hgx-h100", "hgx-a100", "dgx-1v", "rtx-4090x8")
OURS: Final = "gpu-topology"
_BEGUN: Final = "2026-11-30T08:00:00Z"
# Images that a kubelet tells, at most 50 (nodeStatusMaxImages).
_IMAGES: Final = 50


class PodText:
    """Pods that differ in little. To fill in what differs is much cheaper than to encode each anew."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._bound = _encoded(raw)
        spec = {key: value for key, value in raw["spec"].items() if key != "nodeName"}
        meta = {key: value for key, value in raw["metadata"].items() if key != "annotations"}
        self._waiting = _encoded({**raw, "metadata": meta, "spec": spec, "status": {"phase": "Pending", "qosClass": "Burstable"}})

    def bound(self, i: int, life: int, version: int, node: str, handles: tuple[str, ...] = ()) -> bytes:
        """Return pod i, in its so-manieth life, as it runs."""
        shares = json.dumps({"main": handles}, separators=(",", ":")).replace('"', '\\"')
        text = self._bound.replace(b"@node@", node.encode()).replace(b"@gpus@", shares.encode())
        return _named(text, i, life, version)

    def waiting(self, i: int, life: int, version: int) -> bytes:
        """Return it before it is bound."""
        return _named(self._waiting, i, life, version)


class NodeText:
    """One node. Its GPUs' UUIDs are in `handles`."""

    def __init__(self, i: int) -> None:
        self.name = f"gpu-{i:05}"
        machine = MACHINES[i % len(MACHINES)]
        node = SimulatedNode(name=self.name, machine=machine, fabric=(f"leaf-{i // 32}", f"spine-{i // 512}"))
        raw = simulated_nodes.manifest(node)
        raw["metadata"] |= {"uid": uid_of(10_000_000 + i, 0), "resourceVersion": "@version@", "creationTimestamp": _BEGUN}
        raw["metadata"]["managedFields"] = [_managed("kubelet", raw["status"]), _managed("agent", raw["metadata"]["annotations"])]
        raw["metadata"]["annotations"][simulated_nodes.IN_USE] = "@in-use@"
        raw["status"] |= _node_status(i)
        raw["spec"] = {"podCIDR": f"10.{i >> 8 & 255}.{i & 255}.0/24", "providerID": f"metal://{self.name}"}
        self._text = _encoded(raw)
        self.handles: tuple[str, ...] = tuple(gpu["uuid"] for gpu in machines.document(machine, self.name)["gpus"])

    def text(self, version: int, in_use: Mapping[str, tuple[str, ...]]) -> bytes:
        """Return the Node whose agent reports that these pods have these GPUs."""
        report = {"observed_at": _BEGUN, "pods": {uid: {"main": handles} for uid, handles in in_use.items()}}
        quoted = json.dumps(json.dumps(report, separators=(",", ":")))[1:-1]
        return self._text.replace(b"@in-use@", quoted.encode()).replace(b"@version@", str(version).encode())


def uid_of(i: int, life: int) -> str:
    """Return the UID of pod i in its so-manieth life."""
    return str(UUID(int=i * 0x9E3779B97F4A7C15 << 32 | life))


def plain_pod(size: int) -> PodText:
    """Return pods without GPUs, of a Deployment; `size` is how many containers they have."""
    containers = [_container(f"c{each}", {"cpu": "250m", "memory": "512Mi"}) for each in range(size)]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5d"}
    return PodText(_pod("web-7d4b9c6f5d-@name@", "default-scheduler", containers, owner, {}))


def training_pod(gpus: int, *, ours: bool) -> PodText:
    """Return pods of a Job that ask for GPUs, placed by us or by another scheduler."""
    containers = [_container("main", {"cpu": "8", "memory": "64Gi", GPU: str(gpus)})]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
    annotations = {"pyscheduler.io/gpus": "@gpus@", "pyscheduler.io/placement": '{"level":"node","advisory":false}'}
    return PodText(_pod("train-@name@", OURS if ours else "default-scheduler", containers, owner, annotations if ours else {}))


def _pod(
    name: str, scheduler: str, containers: list[dict[str, Any]], owner: dict[str, str], annotations: dict[str, str]
) -> dict[str, Any]:
    spec = {
        "volumes": [_token_volume(), {"name": "config", "configMap": {"name": "settings", "defaultMode": 420}}],
        "containers": containers,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "worker",
        "serviceAccount": "worker",
        "nodeName": "@node@",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "schedulerName": scheduler,
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    status = _pod_status(containers)
    return {
        "metadata": {
            "name": name,
            "generateName": name.removesuffix("@name@"),
            "namespace": "team-a",
            "uid": "@uid@",
            "resourceVersion": "@version@",
            "generation": 1,
            "creationTimestamp": _BEGUN,
            "labels": {
                "app.kubernetes.io/name": "work",
                "app.kubernetes.io/part-of": "platform",
                "pod-template-hash": "7d4b9c6f5d",
            },
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090", **annotations},
            "ownerReferences": [{**owner, "uid": uid_of(20_000_000, 0), "controller": True, "blockOwnerDeletion": True}],
            "managedFields": [_managed("kube-controller-manager", spec), _managed("kubelet", status)],
        },
        "spec": spec,
        "status": status,
    }


def _container(name: str, resources: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example.com/platform/{name}@sha256:{'4f' * 32}",
        "command": ["/bin/run", "--config=/etc/config/settings.yaml"],
        "env": [{"name": f"SETTING_{i}", "value": f"value-of-setting-{i}"} for i in range(4)]
        + [{"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
        "resources": {"limits": resources, "requests": resources},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/config"},
            {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "periodSeconds": 10,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _token_volume() -> dict[str, Any]:
    root = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    return {"name": "kube-api-access", "projected": {"sources": [token, root], "defaultMode": 420}}


def _pod_status(containers: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _BEGUN} for kind in kinds],
        "hostIP": "@ip@",
        "hostIPs": [{"ip": "@ip@"}],
        "podIP": "@ip@",
        "podIPs": [{"ip": "@ip@"}],
        "startTime": _BEGUN,
        "containerStatuses": [
            {
                "name": each["name"],
                "state": {"running": {"startedAt": _BEGUN}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": each["image"],
                "imageID": each["image"],
                "containerID": f"containerd://{'ab' * 32}",
                "started": True,
            }
            for each in containers
        ],
        "qosClass": "Burstable",
    }


def _node_status(i: int) -> dict[str, Any]:
    names = [f"registry.example.com/platform/image-{each}" for each in range(_IMAGES)]
    return {
        "addresses": [
            {"type": "InternalIP", "address": f"10.200.{i >> 8}.{i & 255}"},
            {"type": "Hostname", "address": f"gpu-{i:05}"},
        ],
        "nodeInfo": {
            "machineID": "5c" * 16,
            "bootID": uid_of(30_000_000 + i, 0),
            "kernelVersion": "6.8.0-50-generic",
            "osImage": "Ubuntu 24.04.1 LTS",
            "containerRuntimeVersion": "containerd://2.1.4",
            "kubeletVersion": "v1.37.2",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [{"names": [f"{name}@sha256:{'7e' * 32}", f"{name}:v1.2.3"], "sizeBytes": 1_234_567_890} for name in names],
    }


def _managed(manager: str, owned: Any) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _BEGUN,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(owned),
    }


def _fields(owned: Any) -> dict[str, Any]:
    """Return what FieldsV1 says of an object that one manager owns."""
    if isinstance(owned, list):
        keyed = [each for each in owned if isinstance(each, dict)]
        return {f'k:{{"name":"{each.get("name", each.get("type", ""))}"}}': {".": {}, **_fields(each)} for each in keyed}
    if isinstance(owned, dict):
        return {f"f:{key}": _fields(value) for key, value in owned.items()}
    return {}


def _named(text: bytes, i: int, life: int, version: int) -> bytes:
    text = text.replace(b"@name@", f"{i:06}".encode()).replace(b"@uid@", uid_of(i, life).encode())
    ip = f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}"
    return text.replace(b"@version@", str(version).encode()).replace(b"@ip@", ip.encode())


def _encoded(raw: Any) -> bytes:
    return json.dumps(raw, separators=(",", ":")).encode()

"""What the recorder of the chaos run reads in pods and nodes. Pure, and shares no code with what it judges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

GPUS: Final = "pyscheduler.io/gpus"
TOPOLOGY: Final = "pyscheduler.io/topology"
IN_USE: Final = "pyscheduler.io/in-use"

_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
_TERMINAL: Final = ("Succeeded", "Failed")
_INDEX: Final = "index:"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One state of a pod.

    Attributes
    ----------
    uid, name
        UID, and namespace/name.
    revision
        Where the state stands in the history of the cluster: the resourceVersion.
    scheduler
        Scheduler that it names.
    node
        Node that it is bound to; None while it waits.
    phase, reason, message
        Of its status; empty where there is none.
    ending
        Whether it is being deleted.
    selector
        Labels that its node must have.
    asked
        GPUs that each container asks for; containers that ask for none are left out.
    need
        Distinct GPUs that it needs.
    named
        GPUs that the annotation names for each container; None without one that can be read.

    """

    uid: str
    name: str
    revision: int
    scheduler: str
    node: str | None
    phase: str
    reason: str
    message: str
    ending: bool
    selector: Mapping[str, str]
    asked: Mapping[str, int]
    need: int
    named: Mapping[str, tuple[str, ...]] | None

    @property
    def is_over(self) -> bool:
        """Whether its containers have ended for good."""
        return self.phase in _TERMINAL

    @property
    def handles(self) -> tuple[str, ...]:
        """GPUs that it names, each once: init containers name those that others use after them."""
        return tuple(dict.fromkeys(gpu for gpus in (self.named or {}).values() for gpu in gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One state of a node.

    Attributes
    ----------
    name
        Its name.
    revision
        As of a pod.
    gpus
        UUIDs of the GPUs that its document shows, by index.
    allocatable
        How many GPUs the kubelet would hand out.
    in_use
        UID of the pod that has each GPU, as the node's agent reports it.
    usable
        Whether it is ready, and neither cordoned nor tainted.
    labels
        Its labels.

    """

    name: str
    revision: int
    gpus: Mapping[int, str]
    allocatable: int
    in_use: Mapping[str, str]
    usable: bool
    labels: Mapping[str, str]

    def uuid(self, handle: str) -> str:
        """Return the UUID of a GPU that is named by its UUID or as ``index:N``; the handle itself if there is no such index."""
        if not handle.startswith(_INDEX):
            return handle
        number = handle.removeprefix(_INDEX)
        return self.gpus.get(int(number), handle) if number.isdigit() else handle


def revision(item: Object) -> int:
    """Return the resourceVersion of an object; it grows over all objects of a cluster."""
    return int(item["metadata"]["resourceVersion"])


def pod(item: Object) -> Pod:
    """Read a Pod object."""
    metadata, spec, status = item["metadata"], item["spec"], item.get("status", {})
    first = spec.get("initContainers") or []
    return Pod(
        uid=metadata["uid"],
        name=f"{metadata['namespace']}/{metadata['name']}",
        revision=revision(item),
        scheduler=spec.get("schedulerName", ""),
        node=spec.get("nodeName") or None,
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        ending="deletionTimestamp" in metadata,
        selector=spec.get("nodeSelector") or {},
        asked={each["name"]: asked for each in [*first, *spec["containers"]] if (asked := _asked(each))},
        need=_need(first, spec["containers"]),
        named=_named((metadata.get("annotations") or {}).get(GPUS)),
    )


def node(item: Object) -> Node:
    """Read a Node object."""
    metadata, status = item["metadata"], item.get("status", {})
    annotations = metadata.get("annotations") or {}
    allocatable = status.get("allocatable") or {}
    return Node(
        name=metadata["name"],
        revision=revision(item),
        gpus={number: gpu["uuid"] for number, gpu in enumerate(_json(annotations.get(TOPOLOGY)).get("gpus", ()))},
        allocatable=sum(int(allocatable.get(resource, 0)) for resource in _RESOURCES),
        in_use={
            gpu: uid
            for uid, containers in _json(annotations.get(IN_USE)).get("pods", {}).items()
            for gpus in containers.values()
            for gpu in gpus
        },
        usable=_is_usable(item),
        labels=metadata.get("labels") or {},
    )


def _is_usable(item: Object) -> bool:
    spec = item.get("spec", {})
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in item["status"].get("conditions") or ())
    return ready and not spec.get("unschedulable") and not spec.get("taints")


def _asked(container: Object) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(limits.get(resource, 0)) for resource in _RESOURCES)


def _need(first: Iterable[Object], containers: Iterable[Object]) -> int:
    """Return the effective request: init containers run one after the other, beside the sidecars that were started before."""
    sidecars = most = 0
    for each in first:
        if each.get("restartPolicy") == "Always":
            sidecars += _asked(each)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + _asked(each))
    return max(most, sidecars + sum(map(_asked, containers)))


def _named(text: str | None) -> dict[str, tuple[str, ...]] | None:
    if text is None:
        return None
    document = _json(text)
    if not all(isinstance(gpus, list) for gpus in document.values()):
        return None
    return {name: tuple(map(str, gpus)) for name, gpus in document.items() if gpus}


def _json(text: str | None) -> dict[str, Any]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}

"""Kubernetes Node and Pod objects (raw JSON) to the words of the core.

Raw dictionaries and not the client's models: a cluster has many pods, and the
models cost thirty times the time of the look-ups below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyscheduler.core.model import ContainerKind, ContainerRequest, InUse, NodeFacts, PodFacts, PodUid

__all__ = ["GPUS", "IN_USE", "TOPOLOGY", "ObjectReader"]

TOPOLOGY = "pyscheduler.io/topology"
IN_USE = "pyscheduler.io/in-use"
GPUS = "pyscheduler.io/gpus"

# More GPUs than any node or pod has; a larger number, such as a typing error, counts as this many.
COUNT_MAX = 1_000_000
_DIGITS_MAX = 18

_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """Reads objects under one configuration.

    Attributes
    ----------
    resources
        Extended resources that are whole GPUs.
    levels
        Node label keys of the fabric levels, nearest first.
    """

    resources: tuple[str, ...]
    levels: tuple[str, ...] = ()

    def pod(self, raw: Mapping[str, Any]) -> PodFacts | None:
        """Return the pod, or None if it asks for no GPU."""
        spec, status, meta = raw["spec"], raw.get("status") or {}, raw["metadata"]
        containers = self._containers(spec)
        if not containers:
            return None
        return PodFacts(
            uid=PodUid(meta["uid"]),
            namespace=meta["namespace"],
            name=meta["name"],
            scheduler=spec.get("schedulerName", ""),
            containers=containers,
            node=spec.get("nodeName") or None,
            finished=status.get("phase") in _FINISHED,
            gpus=_shares((meta.get("annotations") or {}).get(GPUS)),
            bound_at=_bound_at(status.get("conditions") or ()),
            claimed=bool(status.get("extendedResourceClaimStatus")),
        )

    def node(self, raw: Mapping[str, Any]) -> tuple[NodeFacts, str | None]:
        """Return the node without its machine, and the text of its topology annotation (None if it has none)."""
        meta = raw["metadata"]
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        resource, allocatable = self._capacity((raw.get("status") or {}).get("allocatable") or {})
        in_use, finding = _in_use(annotations.get(IN_USE))
        facts = NodeFacts(
            name=meta["name"],
            path=tuple(value for key in self.levels if (value := labels.get(key))),
            resource=resource,
            allocatable=allocatable,
            in_use=in_use,
            in_use_unreadable=bool(finding),
            findings=(finding,) if finding else (),
        )
        return facts, annotations.get(TOPOLOGY)

    def _containers(self, spec: Mapping[str, Any]) -> tuple[ContainerRequest, ...]:
        found: list[ContainerRequest] = []
        for container in spec.get("initContainers") or ():
            sidecar = container.get("restartPolicy") == "Always"
            found += self._asks(container, ContainerKind.SIDECAR if sidecar else ContainerKind.INIT)
        for container in spec.get("containers") or ():
            found += self._asks(container, ContainerKind.APP)
        return tuple(found)

    def _asks(self, container: Mapping[str, Any], kind: ContainerKind) -> Iterable[ContainerRequest]:
        resources = container.get("resources") or {}
        # An extended resource's request always equals its limit; either may be the one that is written.
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for resource in self.resources:
            gpus = _count(asked.get(resource))
            if gpus:
                yield ContainerRequest(container["name"], kind, resource, gpus)

    def _capacity(self, allocatable: Mapping[str, Any]) -> tuple[str, int]:
        """Return the node's GPU resource and count: the first of the configured resources that it offers."""
        offered = [r for r in self.resources if r in allocatable]
        for resource in offered:
            if _count(allocatable[resource]):
                return resource, _count(allocatable[resource])
        return (offered[0], 0) if offered else ("", 0)


def _count(quantity: Any) -> int:
    """Return a whole quantity, at most `COUNT_MAX`; 0 if it is absent. The API admits only whole numbers for GPUs."""
    text = str(quantity or 0)
    for suffix, factor in (("", 1), ("k", 1000), ("Ki", 1024), ("M", 1000**2), ("Mi", 1024**2), ("G", 1000**3)):
        number = text.removesuffix(suffix)
        if text.endswith(suffix) and number.isdecimal() and len(number) <= _DIGITS_MAX:
            return min(int(number) * factor, COUNT_MAX)
    return COUNT_MAX if text[:1].isdecimal() else 0


def _shares(text: str | None) -> dict[str, tuple[str, ...]] | None:
    """Return the parsed ``pyscheduler.io/gpus``, None if it is absent or of another form."""
    try:
        raw = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return _named(raw)


def _named(raw: Any) -> dict[str, tuple[str, ...]] | None:
    """Return a mapping of names to lists of non-empty strings, None if it is anything else."""
    if not isinstance(raw, dict) or not all(isinstance(v, list) for v in raw.values()):
        return None
    if not all(isinstance(h, str) and h for v in raw.values() for h in v):
        return None
    return {str(k): tuple(v) for k, v in raw.items()}


def _in_use(text: str | None) -> tuple[InUse | None, str]:
    """Return the agent's report and what is wrong with it. None: no agent reports, or not readably."""
    if text is None:
        return None, ""
    try:
        pods = json.loads(text)["pods"]
        return {PodUid(uid): _handles(shares) for uid, shares in pods.items()}, ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, f'annotation {IN_USE} is not of the form {{"observed_at", "pods": {{uid: {{container: [UUID]}}}}}}: ignored'


def _handles(shares: Any) -> tuple[str, ...]:
    named = _named(shares)
    if named is None:
        raise TypeError("not container to list of UUIDs")
    return tuple(dict.fromkeys(h for share in named.values() for h in share))


def _bound_at(conditions: Sequence[Mapping[str, Any]]) -> float:
    for condition in conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True" and condition.get("lastTransitionTime"):
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return 0.0

"""Kubernetes Node and Pod objects (raw JSON) to the words of the core.

Raw dictionaries and not the client's models: a cluster has many pods, and the
models cost thirty times the time of the look-ups below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyscheduler.core import presets
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.model import ContainerKind, ContainerRequest, InUse, PodFacts, PodUid
from pyscheduler.core.record import NodeRecord
from pyscheduler.errors import DocumentError
from pyscheduler.readers import node_document
from pyscheduler.readers.cards.opinions import opinion_of
from pyscheduler.readers.cards.signals import BUILT_IN, Signals
from pyscheduler.readers.fabric.hypernodes import HyperNodes
from pyscheduler.readers.fabric.places import Placement, place_of
from pyscheduler.readers.fabric.rules import Rules
from pyscheduler.readers.gangs import Controller, membership_of

__all__ = ["GPUS", "IN_USE", "PRESET", "RANK", "TOPOLOGY", "ObjectReader"]

TOPOLOGY = "pyscheduler.io/topology"
PRESET = "pyscheduler.io/preset"
IN_USE = "pyscheduler.io/in-use"
GPUS = "pyscheduler.io/gpus"
RANK = "pyscheduler.io/rank"

_DOMAIN = "pyscheduler.io/"
# Annotations of pods that the Binding writes; what a user sets there is no input.
_OUTPUTS = frozenset((GPUS, f"{_DOMAIN}placement", RANK, f"{_DOMAIN}relative-speed"))

# More GPUs than any node or pod has; a larger number, such as a typing error, counts as this many.
COUNT_MAX = 1_000_000
_DIGITS_MAX = 18
# What a quantity that is too long to read counts as: more GPUs than `COUNT_MAX`, whatever the units.
_UNITS_MANY = 10**24

Findings = tuple[Finding, ...]

_FINISHED = ("Succeeded", "Failed")

# Labels that name the card: NVIDIA's GPU feature discovery, AMD's node labeller in both generations.
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
# How AMD's node labeller says that cards are partitioned; SPX is a whole card.
_PARTITION = "amd.com/compute-memory-partition"
# How Alibaba's ACK says that its own components schedule the GPUs of a node.
_ACK_SCHEDULE = "ack.node.gpu.schedule"
_REMEDY = "write the annotation anew: pyscheduler topology merge makes a document of what tools print"
_BY_NUMBER = "its GPUs are given out by number only"


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """Reads objects under one configuration.

    Attributes
    ----------
    resources
        Extended resources that are GPUs.
    rules
        How node labels say where a node is in the fabric.
    hypernodes
        Volcano's HyperNodes, where these say it instead.
    scheduler
        Name of the scheduler whose pods matter though they ask for no GPU, if they belong to a group; empty: no such pod does.
    units_per_gpu
        How many units of a resource are one whole GPU; 1 where nothing is said. All counts that are read are of whole GPUs.
    signals
        By what nodes say how good their cards are.
    """

    resources: tuple[str, ...]
    rules: Rules = field(default_factory=Rules)
    hypernodes: HyperNodes | None = None
    scheduler: str = ""
    units_per_gpu: Mapping[str, int] = field(default_factory=dict)
    signals: Signals = BUILT_IN

    def pod(self, raw: Mapping[str, Any]) -> PodFacts | None:
        """Return the pod, or None if it asks for no GPU and is not of a group that this scheduler places."""
        spec, status, meta = raw["spec"], raw.get("status") or {}, raw["metadata"]
        containers = self._containers(spec)
        # Most pods of a cluster end here.
        if not containers and (not self.scheduler or spec.get("schedulerName") != self.scheduler):
            return None
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        # A pod that takes part of a card is left alone: it is in no group, and nobody chose cards for it.
        partial = self._takes_part(spec)
        membership = None if partial else membership_of(meta["namespace"], labels, annotations, _controller(meta))
        if not containers and membership is None:
            return None
        return PodFacts(
            uid=PodUid(meta["uid"]),
            namespace=meta["namespace"],
            name=meta["name"],
            scheduler=spec.get("schedulerName", ""),
            containers=containers,
            node=spec.get("nodeName") or None,
            finished=status.get("phase") in _FINISHED,
            gpus=None if partial else _shares(annotations.get(GPUS)),
            bound_at=_bound_at(status.get("conditions") or ()),
            claimed=bool(status.get("extendedResourceClaimStatus")),
            priority=spec.get("priority") or 0,
            terminating=bool(meta.get("deletionTimestamp")),
            membership=membership,
            settings=_settings(labels, annotations) if membership else {},
            rank=_rank(annotations.get(RANK)) if membership else None,
            host=_host(meta["name"], spec) if membership else "",
            gated=bool(spec.get("schedulingGates")),
        )

    def node(self, raw: Mapping[str, Any]) -> NodeRecord:
        """Return what the Node object says."""
        meta, status = raw["metadata"], raw.get("status") or {}
        name, labels, annotations = meta["name"], meta.get("labels") or {}, meta.get("annotations") or {}
        resource, capacity, allocatable = self._capacity(status)
        document, preset, about_document = _document(annotations.get(TOPOLOGY), labels, capacity, split=_is_split(status, labels))
        in_use, about_use = _in_use(annotations.get(IN_USE))
        placement = self._place(name, labels)
        # A node without GPUs is never a candidate: where it is matters to nobody.
        about_place = placement.findings if capacity or document else ()
        opinion, about_cards = opinion_of(raw, self.signals, _all_uuids(document))
        found = (*about_document, *about_use, *about_place, *about_cards)
        return NodeRecord(
            name=name,
            place=placement.place,
            levels=placement.levels,
            resource=resource,
            capacity=capacity,
            allocatable=allocatable,
            document=document,
            preset=preset,
            gpu_schedule=labels.get(_ACK_SCHEDULE),
            boot_id=(status.get("nodeInfo") or {}).get("bootID") or None,
            in_use=in_use,
            in_use_unreadable=bool(about_use),
            opinion=opinion,
            addresses=_addresses(name, status.get("addresses")),
            findings=tuple([replace(finding, node=name) for finding in found]),
        )

    def _place(self, name: str, labels: Mapping[str, str]) -> Placement:
        return place_of(labels, name, self.rules) if self.hypernodes is None else self.hypernodes.place_of(name, labels)

    def _containers(self, spec: Mapping[str, Any]) -> tuple[ContainerRequest, ...]:
        found: list[ContainerRequest] = []
        for container in spec.get("initContainers") or ():
            sidecar = container.get("restartPolicy") == "Always"
            found += self._asks(container, ContainerKind.SIDECAR if sidecar else ContainerKind.INIT)
        for container in spec.get("containers") or ():
            found += self._asks(container, ContainerKind.APP)
        return tuple(found)

    def _asks(self, container: Mapping[str, Any], kind: ContainerKind) -> Iterable[ContainerRequest]:
        asked = _asked(container)
        for resource in self.resources:
            # Part of a card counts as a card: nobody can have the whole of it.
            gpus = min(-(-_units(asked.get(resource)) // self._per_gpu(resource)), COUNT_MAX)
            if gpus:
                yield ContainerRequest(container["name"], kind, resource, gpus)

    def _takes_part(self, spec: Mapping[str, Any]) -> bool:
        """Tell whether a container of the pod asks for a part of a GPU."""
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        return any(
            _units(_asked(container).get(resource)) % self._per_gpu(resource)
            for resource in self.resources
            if self._per_gpu(resource) > 1
            for container in containers
        )

    def _per_gpu(self, resource: str) -> int:
        return self.units_per_gpu.get(resource, 1)

    def _gpus(self, resource: str, quantity: Any) -> int:
        """Return how many whole GPUs a quantity of the resource is."""
        return min(_units(quantity) // self._per_gpu(resource), COUNT_MAX)

    def _capacity(self, status: Mapping[str, Any]) -> tuple[str, int, int]:
        """Return the node's GPU resource, and how many GPUs of it the kubelet has and offers.

        It is the first of the configured resources that it offers, else that it has, else that it names.
        """
        has, offers = status.get("capacity") or {}, status.get("allocatable") or {}
        named = [(r, self._gpus(r, has.get(r)), self._gpus(r, offers.get(r))) for r in self.resources if r in has or r in offers]
        resource, capacity, allocatable = max(named, key=lambda each: (each[2] > 0, each[1] > 0), default=("", 0, 0))
        return resource, max(capacity, allocatable), allocatable


def _all_uuids(document: NodeDocument | None) -> tuple[str, ...]:
    """Return the UUIDs of the node's cards, none if that of one is not known."""
    uuids = [gpu.uuid for gpu in document.gpus] if document else []
    known = tuple(uuid for uuid in uuids if uuid is not None)
    return known if len(known) == len(uuids) else ()


def _controller(meta: Mapping[str, Any]) -> Controller | None:
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return Controller(owner["apiVersion"], owner["kind"], owner["name"], owner["uid"])
    return None


def _settings(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the inputs among a pod's labels and annotations, without their domain; an annotation wins over a label."""
    said = {**labels, **annotations}
    return {key.removeprefix(_DOMAIN): said[key] for key in said if key.startswith(_DOMAIN) and key not in _OUTPUTS}


def _rank(text: str | None) -> int | None:
    """Return the rank that a Binding gave, None if there is none or it is no number."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None


def _host(name: str, spec: Mapping[str, Any]) -> str:
    """Return the name by which other pods of the namespace reach a pod: that in DNS where a Service gives it one."""
    host = spec.get("hostname") or name
    return f"{host}.{spec['subdomain']}" if spec.get("subdomain") else host


def _addresses(name: str, listed: Any) -> tuple[str, ...]:
    """Return the addresses of a node. A file may hold any: what is none is left out."""
    found = [each.get("address") for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    return tuple(dict.fromkeys(text for text in found if isinstance(text, str) and text not in ("", name)))


def _asked(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    # An extended resource's request always equals its limit; either may be the one that is written.
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _units(quantity: Any) -> int:
    """Return a whole quantity; 0 if it is absent. The API admits only whole numbers for extended resources."""
    text = str(quantity or 0)
    for suffix, factor in (("", 1), ("k", 1000), ("Ki", 1024), ("M", 1000**2), ("Mi", 1024**2), ("G", 1000**3)):
        number = text.removesuffix(suffix)
        if text.endswith(suffix) and number.isdecimal() and len(number) <= _DIGITS_MAX:
            return int(number) * factor
    return _UNITS_MANY if text[:1].isdecimal() else 0


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
    # Half of a surrogate pair is no text: no message could carry it.
    if not all(isinstance(h, str) and h and h.isprintable() for v in raw.values() for h in v):
        return None
    return {str(k): tuple(v) for k, v in raw.items()}


def _document(
    text: str | None, labels: Mapping[str, str], capacity: int, *, split: bool
) -> tuple[NodeDocument | None, str | None, Findings]:
    """Return the node's document, the name of the preset if it is one, and what is wrong with it."""
    if text is not None:
        try:
            document = node_document.parse(text)
        except DocumentError as cause:
            what = f"annotation {TOPOLOGY} {cause}; {_BY_NUMBER}"
            return None, None, (Finding("document-unusable", what, _REMEDY, severity=Severity.ERROR),)
        except Exception as cause:  # noqa: BLE001  a document that trips a bug must not keep the service from other nodes
            what = f"annotation {TOPOLOGY} cannot be used ({type(cause).__name__}: {cause}); {_BY_NUMBER}"
            return None, None, (Finding("document-unusable", what, "please report it", severity=Severity.ERROR),)
        return document, None, tuple([replace(f, message=f"annotation {TOPOLOGY}: {f.message}") for f in document.findings])
    return _preset(labels, capacity, split=split) if capacity else (None, None, ())


def _is_split(status: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether some cards of the node are partitioned: then the number of its whole GPUs does not say what machine it is."""
    slices = any(_units(number) for key, number in (status.get("capacity") or {}).items() if key.startswith("nvidia.com/mig-"))
    return slices or labels.get(_PARTITION, "SPX").upper()[:3] != "SPX"


def _preset(labels: Mapping[str, str], capacity: int, *, split: bool) -> tuple[NodeDocument | None, str | None, Findings]:
    """Return the preset that the operator names, else the one of the product that the node has."""
    named = labels.get(PRESET)
    product = next((labels[key] for key in _PRODUCT_LABELS if labels.get(key)), None)
    name = named or (presets.for_product(product, capacity) if product and not split else None)
    if name is None:
        return None, None, ()
    try:
        document = presets.document(name, product)
    except presets.UnknownPresetError as cause:
        what = f"label {PRESET}: {cause}; {_BY_NUMBER}"
        return (
            None,
            None,
            (Finding("preset-unknown", what, "name a preset that there is, or annotate the node", severity=Severity.ERROR),),
        )
    if len(document.gpus) != capacity:
        what = f"label {PRESET}: preset {name} has {len(document.gpus)} GPUs, the node {capacity}; {_BY_NUMBER}"
        return (
            None,
            None,
            (Finding("preset-differs", what, "name the right preset, or annotate the node", severity=Severity.ERROR),),
        )
    return document, name, ()


def _in_use(text: str | None) -> tuple[InUse | None, Findings]:
    """Return the agent's report and what is wrong with it. None: no agent reports, or not readably."""
    if text is None:
        return None, ()
    try:
        pods = json.loads(text)["pods"]
        return {PodUid(uid): _handles(shares) for uid, shares in pods.items()}, ()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        what = f'annotation {IN_USE} is not of the form {{"observed_at", "pods": {{uid: {{container: [UUID]}}}}}}: ignored'
        return None, (Finding("in-use-unusable", what, "let the agent write it anew", severity=Severity.ERROR),)


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

"""The node document: GPUs of one node and their links. One schema and one codec, in annotation, file and command alike.

Form (JSON, version 1): ``gpus`` [{id, uuid, pci, model, numa, cpu_affinity, healthy}], ``links`` [{a, b, type}] each
pair once, ``nics``, ``nic_links``, and of the whole node ``source``, ``observed_at``, ``boot_id``, ``class_hash``,
``topology_policy``, ``complete``, ``warnings``. GPU i of the list is bit i of every mask.

What cannot be used of one GPU or link degrades that GPU or link and becomes a
finding; only a document that is none at all is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from pyscheduler.core.device_table import DeviceClass
from pyscheduler.core.links import Link, UnknownLinkTypeError
from pyscheduler.errors import DocumentError

__all__ = ["Gpu", "NodeDocument", "device_class", "dump", "parse"]

VERSION = 1
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")

_HINT = "see the node document in the README, or remove the annotation"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; None where something is not known. An unhealthy one is never given out."""

    id: str
    uuid: str | None = None
    pci: str | None = None
    model: str | None = None
    numa: int | None = None
    cpu_affinity: str | None = None
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class NodeDocument:
    """`links` holds (id, id) in the order of `gpus` to a link type; a pair that is not there is unknown.

    `rest` keeps the fields that the scheduler does not look at (NICs and their distances).
    `findings` are sentences on what of it could not be used.
    """

    gpus: tuple[Gpu, ...]
    links: Mapping[tuple[str, str], str]
    source: str = "unknown"
    observed_at: str | None = None
    boot_id: str | None = None
    topology_policy: str | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    def link(self, a: int, b: int) -> str:
        """Return the link type between GPU a and GPU b (indices), ``?`` if unknown."""
        first, second = self.gpus[min(a, b)].id, self.gpus[max(a, b)].id
        return self.links.get((first, second), "?")


def parse(text: str) -> NodeDocument:
    """Return the document.

    Raises
    ------
    DocumentError
        If the text is no node document of this version.

    """
    raw = _load(text)
    findings: list[str] = []
    gpus = _gpus(raw["gpus"], findings)
    policy = raw.get("topology_policy")
    if policy is not None and policy not in POLICIES:
        findings.append(f"topology_policy {policy!r} is none of {', '.join(POLICIES)}: ignored")
        policy = None
    return NodeDocument(
        gpus=gpus,
        links=_links(raw.get("links"), gpus, findings),
        source=str(raw.get("source") or "unknown"),
        observed_at=raw.get("observed_at"),
        boot_id=raw.get("boot_id"),
        topology_policy=policy,
        rest={key: raw[key] for key in ("nics", "nic_links", "complete", "warnings", "format") if key in raw},
        findings=tuple(findings),
    )


def dump(document: NodeDocument) -> str:
    """Return the document as compact JSON, with sorted keys and without what is not known."""
    known = {
        **document.rest,
        "version": VERSION,
        "kind": "node",
        "gpus": [_known(gpu) for gpu in document.gpus],
        "links": [{"a": a, "b": b, "type": kind} for (a, b), kind in document.links.items()],
        "source": document.source,
        "observed_at": document.observed_at,
        "boot_id": document.boot_id,
        "topology_policy": document.topology_policy,
    }
    return json.dumps({k: v for k, v in known.items() if v is not None}, separators=(",", ":"), sort_keys=True)


def _known(gpu: Gpu) -> dict[str, Any]:
    return {k: v for k in Gpu.__slots__ if (v := getattr(gpu, k)) is not None}


def _load(text: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise DocumentError(f"is not JSON ({cause}): {_HINT}") from cause
    if not isinstance(raw, dict) or raw.get("kind") != "node":
        raise DocumentError(f'is no node document: "kind" must be "node"; {_HINT}')
    if raw.get("version") != VERSION:
        raise DocumentError(f"has version {raw.get('version')!r}, this release reads version {VERSION}: {_HINT}")
    if not isinstance(raw.get("gpus"), list) or not raw["gpus"]:
        raise DocumentError(f'lists no GPUs: "gpus" must be a list with one entry per GPU; {_HINT}')
    return raw


def _gpus(entries: Sequence[Any], findings: list[str]) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    for index, entry in enumerate(entries):
        gpu = _gpu(entry)
        if gpu is None or any(gpu.id == g.id or (gpu.uuid and gpu.uuid == g.uuid) for g in gpus):
            findings.append(f"gpus[{index}] is no GPU or repeats an id or UUID: it is not given out")
            gpu = Gpu(id=f"?{index}", healthy=False)
        gpus.append(gpu)
    return tuple(gpus)


def _gpu(entry: Any) -> Gpu | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not entry["id"]:
        return None
    texts = {k: v if isinstance(v := entry.get(k), str) and v else None for k in ("uuid", "pci", "model", "cpu_affinity")}
    numa = entry.get("numa")
    known = isinstance(numa, int) and not isinstance(numa, bool) and numa >= 0
    return Gpu(id=entry["id"], numa=numa if known else None, healthy=entry.get("healthy", True) is True, **texts)


def _links(entries: Any, gpus: tuple[Gpu, ...], findings: list[str]) -> dict[tuple[str, str], str]:
    order = {gpu.id: i for i, gpu in enumerate(gpus)}
    links: dict[tuple[str, str], str] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        a, b, kind = (entry.get(k) for k in ("a", "b", "type")) if isinstance(entry, dict) else (None, None, None)
        if not (isinstance(a, str) and isinstance(b, str) and isinstance(kind, str)) or a == b or not {a, b} <= order.keys():
            findings.append(f"links[{index}] names no two GPUs of the node: ignored, that link is unknown")
            continue
        pair = (a, b) if order[a] < order[b] else (b, a)
        if links.setdefault(pair, kind) != kind:
            findings.append(f"links[{index}] contradicts an earlier entry for {a} and {b}: that link is unknown")
            links[pair] = "?"
    return links


def device_class(document: NodeDocument) -> tuple[DeviceClass, tuple[str, ...]]:
    """Return the machine class of the document, and findings on links whose type is not known (taken as unknown)."""
    findings: list[str] = []
    links: dict[tuple[int, int], str] = {}
    for a, b in combinations(range(len(document.gpus)), 2):
        kind = document.link(a, b)
        try:
            Link.parse(kind)
        except UnknownLinkTypeError:
            findings.append(f"link {document.gpus[a].id}-{document.gpus[b].id} has the unknown type {kind!r}: taken as unknown")
            kind = "?"
        links[a, b] = kind
    models, numa = [g.model for g in document.gpus], [g.numa for g in document.gpus]
    return DeviceClass.of(models, numa, links, document.topology_policy), tuple(findings)

"""The node document: GPUs of one node and their links. One schema and one codec, in annotation, file and command alike.

Form (JSON, version 1; `node-v1.schema.json` says it to the field): ``gpus`` [{id, uuid, pci, model, numa, cpu_affinity,
healthy}], ``nics`` [{id, name, pci, gbps}], ``links`` [{a, b, type, cost}] each pair once, ``nic_links`` [{gpu, nic, type}],
``p2p`` [{a, b, status}], ``measured`` [{tool, gbps, ...}], and of the whole node ``source``, ``observed_at``, ``boot_id``,
``class_hash``, ``topology_policy``, ``complete``, ``warnings``. GPU i of the list is bit i of every mask.

Where ``class_hash`` names a class that is kept elsewhere (`class_document`), ``links``, ``nic_links``, models and NUMA
nodes may be left out.

What cannot be used of one GPU or link degrades that GPU or link and becomes a
finding; only a document that is none at all is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.document import Gpu, Measured, Nic, NodeDocument
from pyscheduler.errors import DocumentError
from pyscheduler.readers.document_entries import (
    costs_of,
    gpus_of,
    links_of,
    measured_of,
    nic_links_of,
    nics_of,
    p2p_of,
    policy_of,
    warnings_of,
)
from pyscheduler.readers.document_values import iso, shown, text_of, time_of

__all__ = ["VERSION", "dump", "of_json", "parse"]

VERSION: Final = 1

# What was found where a GPU or link of the document was left out.
_LOST: Final = frozenset({"gpu-unusable", "link-unusable", "link-unknown-type"})
_HINT: Final = "see the node document in the README, or remove the annotation"
# GPUs and NICs of a document: no machine has as many, and every two of them are looked at.
_MOST: Final = 256
_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def parse(text: str) -> NodeDocument:
    """Return the document.

    Raises
    ------
    DocumentError
        If the text is no node document of this version.

    """
    try:
        raw = json.loads(text)
        # Ids are sent on, and no message can hold half of a surrogate pair.
        halved = _ESCAPED.search(text) and _SURROGATE.search(json.dumps(raw, ensure_ascii=False))
    except (ValueError, RecursionError) as cause:
        raise DocumentError(f"is not JSON ({cause}): {_HINT}") from cause
    if halved:
        raise DocumentError(f"holds text that is no Unicode (half of a surrogate pair): {_HINT}")
    return of_json(raw)


def of_json(raw: Any) -> NodeDocument:
    """Return the document of JSON that is already loaded; raises as `parse`."""
    _refuse_others(raw)
    found: list[Finding] = []
    gpus = gpus_of(raw["gpus"], found)
    nics = nics_of(raw.get("nics"), found)
    gpu_ids, nic_ids = tuple([gpu.id for gpu in gpus]), tuple([nic.id for nic in nics])
    return NodeDocument(
        gpus=gpus,
        nics=nics,
        links=links_of(gpu_ids, raw.get("links"), found),
        nic_links=nic_links_of(gpu_ids, nic_ids, raw.get("nic_links"), found),
        costs=costs_of(gpu_ids, raw.get("links"), found),
        p2p=p2p_of(gpu_ids, raw.get("p2p"), found) if raw.get("p2p") else {},
        measured=measured_of(raw.get("measured"), found) if raw.get("measured") else (),
        source=text_of(raw, "source") or "unknown",
        observed_at=time_of(raw.get("observed_at"), "observed_at", found),
        boot_id=text_of(raw, "boot_id"),
        class_hash=text_of(raw, "class_hash"),
        topology_policy=policy_of(raw.get("topology_policy"), found),
        complete=raw.get("complete") is not False and not any(each.code in _LOST for each in found),
        warnings=warnings_of(raw.get("warnings")) if raw.get("warnings") else (),
        findings=tuple(found),
    )


def dump(document: NodeDocument, *, shared: bool = False) -> str:
    """Return the document as compact JSON, with sorted keys and without what is not known.

    With `shared`, without what the class of its ``class_hash`` holds.
    """
    gpus, nics = document.gpus, document.nics
    body: dict[str, Any] = {
        "version": VERSION,
        "kind": "node",
        "gpus": [_known(gpu, ("model", "numa") if shared else ()) for gpu in gpus],
        "nics": [_known(nic) for nic in nics],
        "links": [
            {"a": gpus[a].id, "b": gpus[b].id, "type": str(link)}
            | ({"cost": document.costs[a, b]} if (a, b) in document.costs else {})
            for (a, b), link in document.links.items()
        ],
        "nic_links": [{"gpu": gpus[a].id, "nic": nics[b].id, "type": str(k)} for (a, b), k in document.nic_links.items()],
        "p2p": [{"a": gpus[a].id, "b": gpus[b].id, "status": status} for (a, b), status in document.p2p.items()],
        "measured": [_known(result) for result in document.measured],
        "source": document.source,
        "observed_at": iso(document.observed_at),
        "boot_id": document.boot_id,
        "class_hash": document.class_hash,
        "topology_policy": document.topology_policy,
        "complete": document.complete,
        "warnings": [{"code": w.code, "message": w.message} for w in document.warnings],
    }
    if shared:
        for key in ("links", "nic_links", "topology_policy"):
            del body[key]
    known = {k: v for k, v in body.items() if v is not None and (v != [] or k == "links")}
    return json.dumps(known, separators=(",", ":"), sort_keys=True)


def _known(value: Gpu | Nic | Measured, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields that say something."""
    defaults = {"healthy": True, "nodes": 1, "gpus": ()}
    fields = {k: v for k in type(value).__slots__ if k not in without and (v := getattr(value, k)) is not None}
    known: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items() if v != defaults.get(k, ...)}
    if "observed_at" in known:
        known["observed_at"] = iso(known["observed_at"])
    return known


def _refuse_others(raw: Any) -> None:
    if not isinstance(raw, dict) or raw.get("kind") != "node":
        raise DocumentError(f'is no node document: "kind" must be "node"; {_HINT}')
    if raw.get("version") != VERSION:
        raise DocumentError(f"has version {shown(raw.get('version'))}, this release reads version {VERSION}: {_HINT}")
    if not isinstance(raw.get("gpus"), list) or not raw["gpus"]:
        raise DocumentError(f'lists no GPUs: "gpus" must be a list with one entry per GPU; {_HINT}')
    hosts = {gpu["host"] for gpu in raw["gpus"] if isinstance(gpu, dict) and "host" in gpu and isinstance(gpu["host"], str)}
    if len(hosts) > 1:
        named = ", ".join(shown(host) for host in sorted(hosts)[:3])
        raise DocumentError(f"describes {len(hosts)} machines ({named}): a node's document holds one")
    for key in ("gpus", "nics"):
        listed = raw.get(key)
        if isinstance(listed, list) and len(listed) > _MOST:
            raise DocumentError(f"lists {len(listed)} {key}, more than the {_MOST} that are read: {_HINT}")

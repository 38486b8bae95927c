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
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from pyscheduler.core.document import POLICIES, Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.links import UNKNOWN_LINK, Link, UnknownLinkTypeError
from pyscheduler.errors import DocumentError

__all__ = ["VERSION", "dump", "of_json", "parse"]

VERSION: Final = 1

_HINT: Final = "see the node document in the README, or remove the annotation"
_REMEDY: Final = "correct the node document, or let the agent write it anew"
_TOOLS: Final = ("nccl-tests", "p2p-bandwidth", "ib-write-bw")
# GPUs and NICs of a document: no machine has as many, and every two of them are looked at.
_MOST: Final = 256
# No tool prints more than three digits.
_COST_MAX: Final = 1_000_000
_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Pair = tuple[int, int]
Links = Mapping[Pair, Link]
# (one end, other end, link type) of each entry, None where an entry lacks it.
Entries = tuple[tuple[Any, Any, Any], ...]


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
    gpus = _gpus(raw["gpus"], found)
    nics = _nics(raw.get("nics"), found)
    gpu_ids, nic_ids = tuple([gpu.id for gpu in gpus]), tuple([nic.id for nic in nics])
    links = _cached(_links, gpu_ids, _entries(raw.get("links"), "links", ("a", "b", "type"), found))
    nic_links = _cached(_nic_links, gpu_ids, nic_ids, _entries(raw.get("nic_links"), "nic_links", ("gpu", "nic", "type"), found))
    found += links[1]
    found += nic_links[1]
    return NodeDocument(
        gpus=gpus,
        nics=nics,
        links=links[0],
        nic_links=nic_links[0],
        costs=_costs(gpu_ids, raw.get("links"), found),
        p2p=_p2p(gpu_ids, raw.get("p2p"), found) if raw.get("p2p") else {},
        measured=_measured(raw.get("measured"), found) if raw.get("measured") else (),
        source=_text(raw, "source") or "unknown",
        observed_at=_time(raw.get("observed_at"), "observed_at", found),
        boot_id=_text(raw, "boot_id"),
        class_hash=_text(raw, "class_hash"),
        topology_policy=_policy(raw.get("topology_policy"), found),
        complete=raw.get("complete") is not False,
        warnings=_warnings(raw.get("warnings")) if raw.get("warnings") else (),
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
        "observed_at": _iso(document.observed_at),
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
        known["observed_at"] = _iso(known["observed_at"])
    return known


def _refuse_others(raw: Any) -> None:
    if not isinstance(raw, dict) or raw.get("kind") != "node":
        raise DocumentError(f'is no node document: "kind" must be "node"; {_HINT}')
    if raw.get("version") != VERSION:
        raise DocumentError(f"has version {_shown(raw.get('version'))}, this release reads version {VERSION}: {_HINT}")
    if not isinstance(raw.get("gpus"), list) or not raw["gpus"]:
        raise DocumentError(f'lists no GPUs: "gpus" must be a list with one entry per GPU; {_HINT}')
    hosts = {gpu["host"] for gpu in raw["gpus"] if isinstance(gpu, dict) and "host" in gpu and isinstance(gpu["host"], str)}
    if len(hosts) > 1:
        named = ", ".join(_shown(host) for host in sorted(hosts)[:3])
        raise DocumentError(f"describes {len(hosts)} machines ({named}): a node's document holds one")
    for key in ("gpus", "nics"):
        listed = raw.get(key)
        if isinstance(listed, list) and len(listed) > _MOST:
            raise DocumentError(f"lists {len(listed)} {key}, more than the {_MOST} that are read: {_HINT}")


def _gpus(entries: Sequence[Any], found: list[Finding]) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    taken: set[str] = set()
    for index, entry in enumerate(entries):
        gpu = _gpu(entry)
        if gpu is None or gpu.id in taken or gpu.uuid in taken:
            found.append(
                _finding("gpu-unusable", f"gpus[{index}] is no GPU or repeats an id or UUID: it is not given out", Severity.ERROR)
            )
            gpu = Gpu(id=_unused(f"?{index}", taken), healthy=False)
        taken.add(gpu.id)
        if gpu.uuid:
            taken.add(gpu.uuid)
        gpus.append(gpu)
    return tuple(gpus)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "?"
    return name


def _gpu(entry: Any) -> Gpu | None:
    if not isinstance(entry, dict):
        return None
    get = entry.get
    name = get("id")
    if not isinstance(name, str) or not name:
        return None
    uuid, pci, model, affinity, numa = get("uuid"), get("pci"), get("model"), get("cpu_affinity"), get("numa")
    return Gpu(
        name,
        uuid if isinstance(uuid, str) and uuid else None,
        pci if isinstance(pci, str) and pci else None,
        model if isinstance(model, str) and model else None,
        numa if type(numa) is int and numa >= 0 else None,
        affinity if isinstance(affinity, str) and affinity else None,
        # A card that is split is not given out as a whole one.
        get("healthy", True) is True and get("whole", True) is not False,
    )


def _nics(entries: Any, found: list[Finding]) -> tuple[Nic, ...]:
    listed = entries if isinstance(entries, list) else ()
    fields = [
        (e.get("id"), e.get("name"), e.get("pci"), e.get("gbps")) if isinstance(e, dict) else (e, *(None,) * 3) for e in listed
    ]
    nics: tuple[Nic, ...]
    nics, told = _cached(_known_nics, tuple(fields))
    found += told
    return nics


# Equal machines have equal NICs, too.
@lru_cache(maxsize=1024)
def _known_nics(entries: tuple[tuple[Any, Any, Any, Any], ...]) -> tuple[tuple[Nic, ...], tuple[Finding, ...]]:
    nics: dict[str, Nic] = {}
    found: list[Finding] = []
    for index, (name, *texts, gbps) in enumerate(entries):
        if not isinstance(name, str) or not name or name in nics:
            found.append(_finding("nic-unusable", f"nics[{index}] is no NIC or repeats an id: ignored"))
        else:
            known = [text if isinstance(text, str) and text else None for text in texts]
            nics[name] = Nic(name, known[0], known[1], _positive(gbps))
    return tuple(nics.values()), tuple(found)


def _entries(raw: Any, field: str, keys: tuple[str, str, str], found: list[Finding]) -> Entries:
    """Return the wanted fields of each entry; one of another form has None in place of each."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        found.append(_finding("link-unusable", f"{field} is no list: all of these links are unknown"))
        return ()
    try:
        return tuple(map(itemgetter(*keys), raw))
    except (TypeError, KeyError):
        return tuple((e.get(keys[0]), e.get(keys[1]), e.get(keys[2])) if isinstance(e, dict) else (None,) * 3 for e in raw)


def _cached(function: Any, *args: Hashable) -> Any:
    """Call a cached function; with arguments that have no hash (a list where a name should be), past its cache."""
    try:
        return function(*args)
    except TypeError:
        return function.__wrapped__(*args)


# Equal machines have equal entries: they share one mapping, which is read once. Mappings are never changed.
@lru_cache(maxsize=1024)
def _links(gpus: tuple[str, ...], entries: Entries) -> tuple[Links, tuple[Finding, ...]]:
    order = {gpu: i for i, gpu in enumerate(gpus)}
    links: dict[Pair, Link] = {}
    found: list[Finding] = []
    for index, (a, b, kind) in enumerate(entries):
        if (
            not (isinstance(a, str) and isinstance(b, str) and isinstance(kind, str))
            or a == b
            or a not in order
            or b not in order
        ):
            found.append(
                _finding("link-unusable", f"links[{index}] names no two GPUs of the node: ignored, that link is unknown")
            )
            continue
        link = _link(kind, f"{a}-{b}", found)
        pair = (order[a], order[b]) if order[a] < order[b] else (order[b], order[a])
        known = links.setdefault(pair, link)
        if known != link:
            links[pair] = max(known, link, key=lambda each: each.distance)
            found.append(
                _finding("direction-mismatch", f"link {a}-{b} is {known} one way and {link} the other: the weaker counts")
            )
    return links, tuple(found)


@lru_cache(maxsize=1024)
def _nic_links(gpus: tuple[str, ...], nics: tuple[str, ...], entries: Entries) -> tuple[Links, tuple[Finding, ...]]:
    gpu_at, nic_at = {gpu: i for i, gpu in enumerate(gpus)}, {nic: i for i, nic in enumerate(nics)}
    links: dict[Pair, Link] = {}
    found: list[Finding] = []
    for index, (gpu, nic, kind) in enumerate(entries):
        if (
            not (isinstance(gpu, str) and isinstance(nic, str) and isinstance(kind, str))
            or gpu not in gpu_at
            or nic not in nic_at
        ):
            found.append(_finding("link-unusable", f"nic_links[{index}] names no GPU and NIC of the node: ignored"))
            continue
        link = _link(kind, f"{gpu}-{nic}", found)
        pair = gpu_at[gpu], nic_at[nic]
        links[pair] = max(links.get(pair, link), link, key=lambda each: each.distance)
    return links, tuple(found)


def _costs(gpus: tuple[str, ...], raw: Any, found: list[Finding]) -> dict[Pair, int]:
    """Return the cost of each pair that has one. Entries that name no two GPUs are told of with their links."""
    if not isinstance(raw, list) or not any(isinstance(entry, dict) and "cost" in entry for entry in raw):
        return {}
    order = {gpu: i for i, gpu in enumerate(gpus)}
    costs: dict[Pair, int] = {}
    for entry in raw:
        a, b, cost = (entry.get("a"), entry.get("b"), entry.get("cost")) if isinstance(entry, dict) else (None,) * 3
        if cost is None or not (isinstance(a, str) and isinstance(b, str)) or a == b or not {a, b} <= order.keys():
            continue
        if type(cost) is not int or not 0 < cost <= _COST_MAX:
            found.append(_finding("cost-unusable", f"link {a}-{b} has cost {_shown(cost)}, no number above 0: it is unknown"))
            continue
        pair = min(order[a], order[b]), max(order[a], order[b])
        known = costs.setdefault(pair, cost)
        if known != cost:
            costs[pair] = max(known, cost)
            found.append(
                _finding("direction-mismatch", f"link {a}-{b} costs {known} one way and {cost} the other: the larger counts")
            )
    return costs


def _link(kind: str, pair: str, found: list[Finding]) -> Link:
    try:
        return Link.parse(kind)
    except UnknownLinkTypeError:
        found.append(_finding("link-unknown-type", f"link {pair} has the unknown type {_shown(kind)}: taken as unknown"))
        return UNKNOWN_LINK


def _p2p(gpus: tuple[str, ...], raw: Any, found: list[Finding]) -> dict[Pair, str]:
    """Return the pairs that cannot reach each other directly. The worse of two entries of a pair counts."""
    order = {gpu: i for i, gpu in enumerate(gpus)}
    refused: dict[Pair, str] = {}
    for a, b, status in _entries(raw, "p2p", ("a", "b", "status"), found):
        if isinstance(a, str) and isinstance(b, str) and isinstance(status, str) and a != b and {a, b} <= order.keys():
            if status != "OK":
                refused[min(order[a], order[b]), max(order[a], order[b])] = status[:16]
        else:
            found.append(_finding("p2p-unusable", "an entry of p2p names no two GPUs and a status: ignored"))
    return refused


def _measured(raw: Any, found: list[Finding]) -> tuple[Measured, ...]:
    results = []
    for index, entry in enumerate(raw if isinstance(raw, list) else ()):
        gbps = _positive(entry.get("gbps")) if isinstance(entry, dict) else None
        if gbps is None or entry.get("tool") not in _TOOLS:
            what = f"measured[{index}] has no tool of {', '.join(_TOOLS)} with a bandwidth above 0: ignored"
            found.append(_finding("measurement-unusable", what))
            continue
        gpus, nodes = entry.get("gpus"), entry.get("nodes")
        results.append(
            Measured(
                tool=entry["tool"],
                gbps=gbps,
                gpus=tuple(g for g in gpus if isinstance(g, str)) if isinstance(gpus, list) else (),
                nic=_text(entry, "nic"),
                nodes=nodes if type(nodes) is int and nodes > 0 else 1,
                latency_us=_positive(entry.get("latency_us")),
                observed_at=_time(entry.get("observed_at"), f"measured[{index}].observed_at", found),
            )
        )
    return tuple(results)


def _warnings(raw: Any) -> tuple[Finding, ...]:
    """Return what the source of the document could not tell."""
    entries: Iterable[Any] = raw if isinstance(raw, list) else ()
    texts = [(_text(e, "code"), _text(e, "message")) for e in entries if isinstance(e, dict)]
    return tuple(Finding(code, message) for code, message in texts if code and message)


def _policy(raw: Any, found: list[Finding]) -> str | None:
    if raw is None or raw in POLICIES:
        return raw if isinstance(raw, str) else None
    found.append(_finding("policy-unknown", f"topology_policy {_shown(raw)} is none of {', '.join(POLICIES)}: ignored"))
    return None


def _text(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    return value if isinstance(value, str) and value else None


def _positive(raw: Any) -> float | None:
    return float(raw) if type(raw) in (int, float) and 0 < raw <= sys.float_info.max else None


def _time(raw: Any, field: str, found: list[Finding]) -> float | None:
    """Return the Unix time of an ISO 8601 time with its zone."""
    if raw is None:
        return None
    try:
        said = datetime.fromisoformat(raw)
        moment = said.astimezone(UTC) if said.tzinfo else None
    except (TypeError, ValueError, OverflowError):
        moment = None
    if moment is None:
        found.append(
            _finding("time-unusable", f"{field} {_shown(raw)} is no time such as 2026-01-31T12:00:00Z: its age is unknown")
        )
        return None
    return moment.timestamp()


def _iso(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _shown(raw: Any) -> str:
    """Return the beginning of a value, for a message; of what is no text or number, only what it is."""
    if isinstance(raw, str):
        return repr(raw[:40])
    if isinstance(raw, list | dict):
        return "(a list)" if isinstance(raw, list) else "(an object)"
    return repr(raw)[:40]


def _finding(code: str, message: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(code, message, _REMEDY, severity=severity)

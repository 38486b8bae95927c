"""The lists of a node document: GPUs, NICs, links, measurements. One entry that cannot be used costs that entry, and is told."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.document import POLICIES, Gpu, Measured, Nic
from pyscheduler.core.machine.links import UNKNOWN_LINK, Link, UnknownLinkTypeError
from pyscheduler.readers.document_values import finding, positive, shown, text_of, time_of

__all__ = [
    "costs_of",
    "gpus_of",
    "known_links",
    "known_nic_links",
    "links_of",
    "measured_of",
    "nic_links_of",
    "nics_of",
    "p2p_of",
    "policy_of",
    "warnings_of",
]

# Linux numbers at most 1,024 NUMA nodes (CONFIG_NODES_SHIFT).
_NUMA_MAX: Final = 1024
# No GPU has as many NVLinks.
_NVLINKS_MAX: Final = 100
_TOOLS: Final = ("nccl-tests", "p2p-bandwidth", "ib-write-bw")
# No tool prints more than three digits.
_COST_MAX: Final = 1_000_000

Pair = tuple[int, int]
Links = Mapping[Pair, Link]
# (one end, other end, link type) of each entry, None where an entry lacks it.
Entries = tuple[tuple[Any, Any, Any], ...]


def gpus_of(entries: Sequence[Any], found: list[Finding]) -> tuple[Gpu, ...]:
    """Return the GPUs; what is none keeps its place and is never given out."""
    gpus: list[Gpu] = []
    taken: set[str] = set()
    for index, entry in enumerate(entries):
        gpu = _gpu(entry)
        if gpu is None or gpu.id in taken or gpu.uuid in taken:
            found.append(
                finding("gpu-unusable", f"gpus[{index}] is no GPU or repeats an id or UUID: it is not given out", Severity.ERROR)
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
    active = get("nvlink_active")
    uuid, pci, model, affinity, numa = get("uuid"), get("pci"), get("model"), get("cpu_affinity"), get("numa")
    return Gpu(
        name,
        uuid if isinstance(uuid, str) and uuid else None,
        pci if isinstance(pci, str) and pci else None,
        model if isinstance(model, str) and model else None,
        numa if type(numa) is int and 0 <= numa < _NUMA_MAX else None,
        affinity if isinstance(affinity, str) and affinity else None,
        # A card that is split is not given out as a whole one.
        get("healthy", True) is True and get("whole", True) is True,
        active if type(active) is int and 0 <= active < _NVLINKS_MAX else None,
    )


def nics_of(entries: Any, found: list[Finding]) -> tuple[Nic, ...]:
    """Return the NICs. Equal machines share them."""
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
            found.append(finding("nic-unusable", f"nics[{index}] is no NIC or repeats an id: ignored"))
        else:
            known = [text if isinstance(text, str) and text else None for text in texts]
            nics[name] = Nic(name, known[0], known[1], positive(gbps))
    return tuple(nics.values()), tuple(found)


def _entries(raw: Any, field: str, keys: tuple[str, str, str], found: list[Finding]) -> Entries:
    """Return the wanted fields of each entry; one of another form has None in place of each."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        found.append(finding("link-unusable", f"{field} is no list: all of these links are unknown"))
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


def links_of(gpus: tuple[str, ...], raw: Any, found: list[Finding]) -> Links:
    """Return the link of each pair that is named. Equal machines share one mapping."""
    links: Links
    links, told = _cached(known_links, gpus, _entries(raw, "links", ("a", "b", "type"), found))
    found += told
    return links


def nic_links_of(gpus: tuple[str, ...], nics: tuple[str, ...], raw: Any, found: list[Finding]) -> Links:
    """Return the distance of each GPU from each NIC that is named. Equal machines share one mapping."""
    links: Links
    links, told = _cached(known_nic_links, gpus, nics, _entries(raw, "nic_links", ("gpu", "nic", "type"), found))
    found += told
    return links


# Equal machines have equal entries: they share one mapping, which is read once. Mappings are never changed.
@lru_cache(maxsize=1024)
def known_links(gpus: tuple[str, ...], entries: Entries) -> tuple[Links, tuple[Finding, ...]]:
    """Return the links of such entries; the arguments have a hash."""
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
            found.append(finding("link-unusable", f"links[{index}] names no two GPUs of the node: ignored, that link is unknown"))
            continue
        link = _link(kind, f"{a}-{b}", found)
        pair = (order[a], order[b]) if order[a] < order[b] else (order[b], order[a])
        known = links.setdefault(pair, link)
        if known != link:
            links[pair] = max(known, link, key=lambda each: each.distance)
            found.append(
                finding("direction-mismatch", f"link {a}-{b} is {known} one way and {link} the other: the weaker counts")
            )
    return links, tuple(found)


@lru_cache(maxsize=1024)
def known_nic_links(gpus: tuple[str, ...], nics: tuple[str, ...], entries: Entries) -> tuple[Links, tuple[Finding, ...]]:
    """Return the distances of such entries; the arguments have a hash."""
    gpu_at, nic_at = {gpu: i for i, gpu in enumerate(gpus)}, {nic: i for i, nic in enumerate(nics)}
    links: dict[Pair, Link] = {}
    found: list[Finding] = []
    for index, (gpu, nic, kind) in enumerate(entries):
        if (
            not (isinstance(gpu, str) and isinstance(nic, str) and isinstance(kind, str))
            or gpu not in gpu_at
            or nic not in nic_at
        ):
            found.append(finding("link-unusable", f"nic_links[{index}] names no GPU and NIC of the node: ignored"))
            continue
        link = _link(kind, f"{gpu}-{nic}", found)
        pair = gpu_at[gpu], nic_at[nic]
        links[pair] = max(links.get(pair, link), link, key=lambda each: each.distance)
    return links, tuple(found)


def costs_of(gpus: tuple[str, ...], raw: Any, found: list[Finding]) -> dict[Pair, int]:
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
            found.append(finding("cost-unusable", f"link {a}-{b} has cost {shown(cost)}, no number above 0: it is unknown"))
            continue
        pair = min(order[a], order[b]), max(order[a], order[b])
        known = costs.setdefault(pair, cost)
        if known != cost:
            costs[pair] = max(known, cost)
            found.append(
                finding("direction-mismatch", f"link {a}-{b} costs {known} one way and {cost} the other: the larger counts")
            )
    return costs


def _link(kind: str, pair: str, found: list[Finding]) -> Link:
    try:
        return Link.parse(kind)
    except UnknownLinkTypeError:
        found.append(finding("link-unknown-type", f"link {pair} has the unknown type {shown(kind)}: taken as unknown"))
        return UNKNOWN_LINK


def p2p_of(gpus: tuple[str, ...], raw: Any, found: list[Finding]) -> dict[Pair, str]:
    """Return the pairs that cannot reach each other directly. The worse of two entries of a pair counts."""
    order = {gpu: i for i, gpu in enumerate(gpus)}
    refused: dict[Pair, str] = {}
    for a, b, status in _entries(raw, "p2p", ("a", "b", "status"), found):
        if isinstance(a, str) and isinstance(b, str) and isinstance(status, str) and a != b and {a, b} <= order.keys():
            if status != "OK":
                refused[min(order[a], order[b]), max(order[a], order[b])] = status[:16]
        else:
            found.append(finding("p2p-unusable", "an entry of p2p names no two GPUs and a status: ignored"))
    return refused


def measured_of(raw: Any, found: list[Finding]) -> tuple[Measured, ...]:
    """Return the results of benchmarks."""
    results = []
    for index, entry in enumerate(raw if isinstance(raw, list) else ()):
        gbps = positive(entry.get("gbps")) if isinstance(entry, dict) else None
        if gbps is None or entry.get("tool") not in _TOOLS:
            what = f"measured[{index}] has no tool of {', '.join(_TOOLS)} with a bandwidth above 0: ignored"
            found.append(finding("measurement-unusable", what))
            continue
        gpus, nodes = entry.get("gpus"), entry.get("nodes")
        results.append(
            Measured(
                tool=entry["tool"],
                gbps=gbps,
                gpus=tuple(g for g in gpus if isinstance(g, str)) if isinstance(gpus, list) else (),
                nic=text_of(entry, "nic"),
                nodes=nodes if type(nodes) is int and nodes > 0 else 1,
                latency_us=positive(entry.get("latency_us")),
                observed_at=time_of(entry.get("observed_at"), f"measured[{index}].observed_at", found),
            )
        )
    return tuple(results)


def warnings_of(raw: Any) -> tuple[Finding, ...]:
    """Return what the source of the document could not tell."""
    entries: Iterable[Any] = raw if isinstance(raw, list) else ()
    texts = [(text_of(e, "code"), text_of(e, "message")) for e in entries if isinstance(e, dict)]
    return tuple(Finding(code, message) for code, message in texts if code and message)


def policy_of(raw: Any, found: list[Finding]) -> str | None:
    """Return the kubelet's topology policy."""
    if raw is None or raw in POLICIES:
        return raw if isinstance(raw, str) else None
    found.append(finding("policy-unknown", f"topology_policy {shown(raw)} is none of {', '.join(POLICIES)}: ignored"))
    return None

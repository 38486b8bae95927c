"""From a node document to the machine class that its GPUs are chosen by.

The class of the document says what the machine is; pairs without peer access,
the operator's figures and what was measured on this very node correct it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy, cost_shares, default_speeds
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link
from pyscheduler.core.machine.measurements import Fading, pair_speeds, ring_mbps
from pyscheduler.core.machine.weights import Profile, Weights
from pyscheduler.core.record import NodeRecord

__all__ = ["class_by_hash", "class_of", "classify", "completed", "filled"]

Pair = tuple[int, int]

_BY_NUMBER: Final = "its GPUs are given out by number only"


def class_of(document: NodeDocument) -> DeviceClass:
    """Return what the document says of the machine, as equal machines share it."""
    gpus, nics = range(len(document.gpus)), range(len(document.nics))
    links = document.nic_links
    return DeviceClass(
        models=tuple(gpu.model for gpu in document.gpus),
        numa=tuple(gpu.numa for gpu in document.gpus),
        links=tuple(_up(document, pair) for pair in combinations(gpus, 2)),
        policy=TopologyPolicy(document.topology_policy or "none"),
        nic_links=tuple(tuple(links.get((gpu, nic), UNKNOWN_LINK) for nic in nics) for gpu in gpus) if nics else (),
        costs=tuple(document.costs.get(pair) for pair in combinations(gpus, 2)) if document.costs else (),
        nics=tuple(nic.id for nic in document.nics),
        nic_names=tuple(nic.name for nic in document.nics),
    )


def _up(document: NodeDocument, pair: Pair) -> Link:
    """Return the link of a pair, with no more NVLinks than are up at both ends."""
    link = document.links.get(pair, UNKNOWN_LINK)
    active = [up for gpu in pair if (up := document.gpus[gpu].nvlink_active) is not None]
    if link.kind is not Kind.NVLINK or min(active, default=link.count) >= link.count:
        return link
    return Link(Kind.NVLINK, min(active)) if min(active) else UNKNOWN_LINK


def class_by_hash(document: NodeDocument, classes: Mapping[str, DeviceClass]) -> DeviceClass | Finding:
    """Return the class that the document names by its hash, or why there is none."""
    name = document.class_hash or ""
    shared = classes.get(name)
    if shared is None:
        return Finding(
            "class-unknown",
            f"the node document names the class {name[:64]!r}, which no ConfigMap holds: {_BY_NUMBER}",
            "`pyscheduler topology class DOCUMENT --namespace NS | kubectl apply -f -`, or write the whole document into the annotation",
            severity=Severity.ERROR,
        )
    if shared.gpus != len(document.gpus):
        return Finding(
            "class-differs",
            f"the node document has {len(document.gpus)} GPUs, its class {name} has {shared.gpus}: {_BY_NUMBER}",
            "write the node document anew with `pyscheduler topology merge`",
            severity=Severity.ERROR,
        )
    return shared


def completed(record: NodeRecord, classes: Mapping[str, DeviceClass], weights: Weights, now: float) -> NodeRecord:
    """Return the record with the shared part of its document filled in, and with what its measurements revealed."""
    document = record.document
    if document is None:
        return record
    shared = class_of(document) if document.whole else class_by_hash(document, classes)
    if isinstance(shared, Finding):
        return replace(record, document=None, findings=(*record.findings, replace(shared, node=record.name)))
    _, told = classify(document, shared, weights, now)
    findings = (*record.findings, *(replace(finding, node=record.name) for finding in told))
    return replace(record, document=document if document.whole else filled(document, shared), findings=findings)


def filled(document: NodeDocument, shared: DeviceClass) -> NodeDocument:
    """Return a document whose shared part stands elsewhere, with that part filled in."""
    gpus = zip(document.gpus, shared.models, shared.numa, strict=True)
    pairs = list(combinations(range(shared.gpus), 2))
    rows = enumerate(shared.nic_links)
    return replace(
        document,
        gpus=tuple(replace(gpu, model=model, numa=numa) for gpu, model, numa in gpus),
        links=dict(zip(pairs, shared.links, strict=True)),
        costs={pair: cost for pair, cost in zip(pairs, shared.costs, strict=False) if cost is not None},
        nic_links={(gpu, nic): link for gpu, row in rows for nic, link in enumerate(row) if nic < len(document.nics)},
        topology_policy=shared.policy.value,
    )


def classify(
    document: NodeDocument, shared: DeviceClass, weights: Weights, now: float
) -> tuple[DeviceClass, tuple[Finding, ...]]:
    """Return the class to choose GPUs by, and what the measurements revealed.

    Parameters
    ----------
    document
        The node's document.
    shared
        What it says of the machine: `class_of` it, or the class that its hash names.
    weights
        The figures in force.
    now
        Unix time in seconds: measurements fade with age.

    """
    if weights.standard and not document.p2p and not document.measured:
        return shared, ()
    reached = _without_peer_access(shared, document.p2p)
    if weights.profile is Profile.CLASSIC:
        # Measurements are in GB/s, its scale is not.
        document = replace(document, measured=())
    fading = Fading(weights.half_life_s, now)
    # The host path of a pair without peer access is never better than its link.
    expected = tuple(map(min, _expected(reached, weights), _expected(shared, weights)))
    speeds, told = pair_speeds(document, reached.links, expected, fading)
    ring, told_of_ring = ring_mbps(document, expected, fading)
    own = speeds if speeds != default_speeds(reached) else ()
    return replace(reached, speeds=own, ring_mbps=ring), (*told, *told_of_ring)


def _without_peer_access(shared: DeviceClass, p2p: Mapping[Pair, str]) -> DeviceClass:
    """Return the class with pairs that cannot reach each other on the path through the host, whatever their link says."""
    if not p2p:
        return shared
    pairs = list(combinations(range(shared.gpus), 2))
    links = zip(pairs, shared.links, strict=True)
    return replace(
        shared,
        links=tuple(_host_path(shared, pair, link) if pair in p2p else link for pair, link in links),
        # The cost of a link that is not used says nothing of the host path.
        costs=tuple(None if pair in p2p else cost for pair, cost in zip(pairs, shared.costs, strict=False)),
    )


def _host_path(shared: DeviceClass, pair: Pair, link: Link) -> Link:
    a, b = (shared.numa[gpu] for gpu in pair)
    through_host = Link(Kind.PHB if a is not None and a == b else Kind.SYS)
    return max(link, through_host, key=lambda each: each.distance)


def _expected(shared: DeviceClass, weights: Weights) -> tuple[int, ...]:
    if weights.standard:
        return default_speeds(shared)
    pairs = zip(combinations(range(shared.gpus), 2), shared.links, cost_shares(shared), strict=True)
    models = shared.models
    speeds = [1000 * share * min(weights.link_gbps(link, models[g]) for g in pair) for pair, link, share in pairs]
    # At least 1 where there is a speed: 0 is that of an unknown link.
    return tuple([max(1, round(speed)) if speed else 0 for speed in speeds])

"""Several views of one machine to one document: links of one tool, UUIDs of another.

Known beats unknown, and exact beats vague. Where two contradict each other the weaker link counts, and any other field
is unknown. Otherwise the earlier document is the better source.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TypeVar

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.document import Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link, words
from pyscheduler.core.machine.merge_match import MergeError
from pyscheduler.core.machine.merge_views import Notes, View, views_of

__all__ = ["MergeError", "merge"]

T = TypeVar("T", bound=Hashable)
Pair = tuple[int, int]


def merge(documents: Sequence[NodeDocument]) -> NodeDocument:
    """Return one document of the machine that all `documents` describe, the best source first.

    Findings name a document by its `source`. The result is as old as its oldest part.

    Raises
    ------
    MergeError
        If there is none, if they are not of one machine, or if nothing tells which of their GPUs are the same.

    """
    if not documents:
        raise MergeError("nothing to merge: give at least one document")
    notes = Notes()
    first = documents[0]
    views, nics = views_of(documents, notes)
    gpus = _gpus(views, notes)
    pairs = {(a, b): f"{gpus[a].id}-{gpus[b].id}" for a, b in combinations(range(len(gpus)), 2)}
    nic_pairs = {(a, b): f"{gpus[a].id}-{nics[b].id}" for a, b in product(range(len(gpus)), range(len(nics)))}
    links = _links([(view, _moved(view.document.links, view.gpus)) for view in views], pairs, notes)
    nic_links = _links([(view, _moved_nics(view)) for view in views], nic_pairs, notes)
    measured = _measured(views, gpus, nics, notes)
    boots = _settled([(view.document.boot_id, view.name) for view in views], "the node", "boot id", notes)
    policy = _settled([(view.document.topology_policy, view.name) for view in views], "the node", "topology policy", notes)
    hashes = {document.class_hash for document in documents}
    for view in views:
        if len(hashes) > 1 and view.document.class_hash and not view.document.links:
            notes.add("class-not-read", view.name, f"its links stand in class {view.document.class_hash} and are missing here")
    times = [document.observed_at for document in documents if document.observed_at is not None]
    return replace(
        first,
        gpus=gpus,
        nics=nics,
        links=links,
        nic_links=nic_links,
        costs=_costs([(view, _moved(view.document.costs, view.gpus)) for view in views], pairs, notes),
        p2p=_p2p(views),
        measured=measured,
        observed_at=min(times, default=None),
        boot_id=boots,
        # It is that of the content of all of them, or of none.
        class_hash=first.class_hash if len(hashes) == 1 else None,
        topology_policy=policy,
        complete=_complete(views, len(gpus), len(nics)),
        warnings=_joined([*(document.warnings for document in documents), notes.findings()]),
        findings=_joined(document.findings for document in documents),
    )


def _gpus(views: Sequence[View], notes: Notes) -> tuple[Gpu, ...]:
    said: dict[int, list[tuple[Gpu, str]]] = {}
    for view in views:
        for gpu, place in zip(view.document.gpus, view.gpus, strict=True):
            said.setdefault(place, []).append((gpu, view.name))
    merged = []
    for place in sorted(said):
        merged.append(_gpu(said[place], notes))
        if len(views) > 1 and len(said[place]) == 1:
            notes.add("gpu-in-one-source", merged[-1].id, f"only in {said[place][0][1]}")
    return tuple(merged)


def _gpu(said: Sequence[tuple[Gpu, str]], notes: Notes) -> Gpu:
    name = said[0][0].id
    return Gpu(
        id=name,
        uuid=_settled([(gpu.uuid, source) for gpu, source in said], name, "UUID", notes),
        pci=_settled([(gpu.pci, source) for gpu, source in said], name, "PCI address", notes),
        model=_settled(_exact_models([(gpu.model, source) for gpu, source in said]), name, "model", notes),
        numa=_settled([(gpu.numa, source) for gpu, source in said], name, "NUMA node", notes),
        cpu_affinity=_settled([(gpu.cpu_affinity, source) for gpu, source in said], name, "CPU affinity", notes),
        healthy=all(gpu.healthy for gpu, _ in said),
        nvlink_active=min((gpu.nvlink_active for gpu, _ in said if gpu.nvlink_active is not None), default=None),
    )


def _settled(said: Iterable[tuple[T | None, str]], subject: str, what: str, notes: Notes) -> T | None:
    """Return the one value that is said; None where there is none, or where there are several."""
    found: dict[T, str] = {}
    for value, source in said:
        if value is not None:
            found.setdefault(value, source)
    if len(found) > 1:
        notes.disagree(subject, what, list(found.items()), "unknown")
        return None
    return next(iter(found), None)


def _exact_models(said: Sequence[tuple[str | None, str]]) -> list[tuple[str | None, str]]:
    """Leave out names that say less than another one, or the same in other words: "A100" of "NVIDIA A100-SXM4-40GB"."""
    kept: list[tuple[str | None, str]] = []
    for model, source in said:
        mine = set(words(model))
        same = any(mine == set(words(other)) for other, _ in kept)
        if not same and not any(mine < set(words(other)) for other, _ in said):
            kept.append((model, source))
    return kept


def _moved(links: Mapping[Pair, T], at: Sequence[int]) -> dict[Pair, T]:
    """Return what is said of pairs of GPUs by their merged indices."""
    return {(min(at[a], at[b]), max(at[a], at[b])): value for (a, b), value in links.items()}


def _moved_nics(view: View) -> dict[Pair, Link]:
    places = ((view.gpus[gpu], view.nics[nic], link) for (gpu, nic), link in view.document.nic_links.items())
    return {(gpu, nic): link for gpu, nic, link in places if nic is not None}


def _costs(said: Sequence[tuple[View, Mapping[Pair, int]]], pairs: Mapping[Pair, str], notes: Notes) -> dict[Pair, int]:
    """Return the cost of each pair that has one; of several the larger."""
    costs: dict[Pair, int] = {}
    for pair, name in pairs.items():
        found: dict[int, str] = {}
        for view, known in said:
            if pair in known:
                found.setdefault(known[pair], view.name)
        if len(found) > 1:
            notes.disagree(name, "cost", list(found.items()), "the larger counts")
        if found:
            costs[pair] = max(found)
    return costs


def _links(said: Sequence[tuple[View, Mapping[Pair, Link]]], pairs: Mapping[Pair, str], notes: Notes) -> dict[Pair, Link]:
    return {
        pair: _link([(view, links[pair]) for view, links in said if pair in links], name, notes)
        for pair, name in pairs.items()
        if any(pair in links for _, links in said)
    }


def _link(said: Sequence[tuple[View, Link]], pair: str, notes: Notes) -> Link:
    sources: dict[Link, str] = {}
    for view, link in said:
        beaten = view.hides_nvlink and not link.fast and any(other.fast for _, other in said)
        if link != UNKNOWN_LINK and not beaten and not any(_vaguer(link, other) for _, other in said):
            sources.setdefault(link, view.name)
    if not sources:
        return UNKNOWN_LINK
    by_distance = sorted(sources, key=lambda link: link.distance)
    if len(sources) > 1:
        notes.disagree(pair, "link", [(link, sources[link]) for link in by_distance], "the weakest counts")
    return by_distance[-1]


def _vaguer(link: Link, other: Link) -> bool:
    """Tell whether `other` says exactly what `link` says vaguely."""
    if link.kind is Kind.PCIE:
        return not other.fast and other.kind not in {Kind.PCIE, Kind.UNKNOWN}
    return link == Link(Kind.XGMI) and other.kind is Kind.XGMI and other.count > 0


def _p2p(views: Sequence[View]) -> dict[Pair, str]:
    """Return the pairs that any source says cannot reach each other; the first known status counts."""
    merged: dict[Pair, str] = {}
    for view in views:
        for pair, status in _moved(view.document.p2p, view.gpus).items():
            if merged.get(pair, "?") == "?":
                merged[pair] = status
    return merged


def _measured(views: Sequence[View], gpus: Sequence[Gpu], nics: Sequence[Nic], notes: Notes) -> tuple[Measured, ...]:
    """Return the newest result of each kind, by the merged ids."""
    newest: dict[tuple[str, tuple[str, ...], str | None, int], Measured] = {}
    for view in views:
        names = {gpu.id: gpus[at].id for gpu, at in zip(view.document.gpus, view.gpus, strict=True)}
        nic_names = {nic.id: nics[at].id for nic, at in zip(view.document.nics, view.nics, strict=True) if at is not None}
        for result in view.document.measured:
            lost = [nic.id for nic in view.document.nics if nic.id not in nic_names]
            if unknown := [
                name for name in (*result.gpus, result.nic) if name in lost or (name != result.nic and name not in names)
            ]:
                notes.add("measurement-left-out", f"{result.tool} of {view.name}", f"names {unknown[0]}, which is not there")
                continue
            nic = nic_names.get(result.nic, result.nic) if result.nic else None
            moved = replace(result, gpus=tuple(names[gpu] for gpu in result.gpus), nic=nic)
            key = (moved.tool, moved.gpus, moved.nic, moved.nodes)
            if key not in newest or _time(moved) > _time(newest[key]):
                newest[key] = moved
    return tuple(newest.values())


def _time(result: Measured) -> float:
    return float("-inf") if result.observed_at is None else result.observed_at


def _complete(views: Sequence[View], gpus: int, nics: int) -> bool:
    """Tell whether nothing is missing: in no document, or in one that alone shows every link of all."""
    return all(view.document.complete for view in views) or any(
        view.document.complete
        and sum(link != UNKNOWN_LINK for link in view.document.links.values()) == gpus * (gpus - 1) // 2
        and sum(link != UNKNOWN_LINK for link in _moved_nics(view).values()) == gpus * nics
        for view in views
    )


def _joined(lists: Iterable[Iterable[Finding]]) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(finding for findings in lists for finding in findings))

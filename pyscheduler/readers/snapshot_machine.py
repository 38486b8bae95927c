"""The machine of one node of a snapshot: its GPUs, what links them, and which sets of them may be given out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.classify import classify
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import MAX_GPUS
from pyscheduler.core.machine.document import Gpu, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Link, UnknownLinkTypeError
from pyscheduler.core.machine.weights import Weights
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.snapshot_values import listed, mapped, name_at, names_at, shown, switch, whole

__all__ = ["MachineKind", "machine_kind", "masks"]

# More than any tool prints; what is divided by it stays a number.
_COST_MAX: Final = 1_000_000
_NUMA_MAX: Final = 1_000_000
_P2P_OK: Final = "OK"

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MachineKind:
    """What nodes with equal entries share.

    Attributes
    ----------
    ids
        Ids of the GPUs. GPU i is bit i of every mask.
    device_class
        What they are chosen by. Pairs without peer access have the path through the host as their link.
    p2p
        (a, b) to the status of peer access, for pairs where it is not OK.
    findings
        What is wrong with the entries, without the name of the node.
    """

    ids: tuple[str, ...]
    device_class: DeviceClass
    p2p: Mapping[Pair, str]
    findings: tuple[Finding, ...]


def masks(gpus: Sequence[Mapping[str, Any]], at: str) -> tuple[int, int]:
    """Return the masks of the healthy and of the allocated GPUs.

    Raises
    ------
    RefusedError
        If one of the states is neither true nor false.

    """
    healthy = allocated = 0
    for index, gpu in enumerate(gpus):
        here = f"{at}.gpus[{index}]"
        healthy |= switch(gpu.get("healthy", True), f"{here}.healthy") << index
        allocated |= switch(gpu.get("allocated", False), f"{here}.allocated") << index
    return healthy, allocated


def machine_kind(node: Mapping[str, Any], at: str, weights: Weights) -> MachineKind:
    """Return the machine of a node. `at` is where the node stands in the snapshot, `weights` how fast links count.

    Raises
    ------
    RefusedError
        If an entry has another type than it should, or names what is not there.

    """
    entries = listed(node, "gpus", at)
    if len(entries) > MAX_GPUS:
        raise RefusedError(f"{at}.gpus: lists {len(entries)} GPUs; a node has at most {MAX_GPUS}")
    gpus = [_gpu(entry, f"{at}.gpus[{index}]") for index, entry in enumerate(entries)]
    ids = names_at([gpu.id for gpu in gpus], f"{at}.gpus", "GPU")
    nics = names_at([name_at(nic, f"{at}.nics[{i}]") for i, nic in enumerate(listed(node, "nics", at))], f"{at}.nics", "NIC")
    found: list[Finding] = []
    p2p = _p2p(mapped(node, "p2p", at), ids, f"{at}.p2p")
    links, costs = _links(mapped(node, "links", at), ids, f"{at}.links", found)
    nic_links = _nic_links(mapped(node, "nic_links", at), ids, nics, f"{at}.nic_links")
    pairs = list(combinations(range(len(ids)), 2))
    # What a tool says of a link that is not used says nothing of the path through the host.
    known = tuple(None if pair in p2p else costs.get(pair) for pair in pairs)
    device_class = DeviceClass(
        models=tuple(gpu.model for gpu in gpus),
        numa=tuple(gpu.numa for gpu in gpus),
        links=tuple(links.get(pair, UNKNOWN_LINK) for pair in pairs),
        nic_links=tuple(tuple(nic_links.get((g, n), UNKNOWN_LINK) for n in range(len(nics))) for g in range(len(ids)))
        if nics
        else (),
        costs=known if any(cost is not None for cost in known) else (),
        partitions=_partitions(listed(node, "partitions", at), ids, f"{at}.partitions"),
        nics=nics,
    )
    device_class, _ = classify(NodeDocument(tuple(gpus), p2p=p2p), device_class, weights, 0.0)
    return MachineKind(ids, device_class, p2p, tuple(found))


def _gpu(entry: Any, at: str) -> Gpu:
    if not isinstance(entry, dict):
        raise RefusedError(f'{at}: {shown(entry)} must be an object such as {{"id": "GPU0"}}')
    numa = entry.get("numa")
    # What Linux says where it does not know.
    known = None if numa is None or numa == -1 else whole(numa, f"{at}.numa", 0, _NUMA_MAX)
    model = entry.get("model")
    return Gpu(
        name_at(entry.get("id"), f"{at}.id"), numa=known, model=None if model in (None, "") else name_at(model, f"{at}.model")
    )


def _links(raw: Mapping[str, Any], ids: Sequence[str], at: str, found: list[Finding]) -> tuple[dict[Pair, Link], dict[Pair, int]]:
    """Return type and cost by pair. Of two directions that differ the weaker counts, in each of the two."""
    links: dict[Pair, Link] = {}
    costs: dict[Pair, int] = {}
    for (a, b), key, value in _pairs(raw, ids, ids, at):
        if a == b:
            raise RefusedError(f"{at}: {shown(key)} names one GPU twice; a link has two")
        entry = value if isinstance(value, dict) else {"type": value}
        link, cost = _link(entry.get("type"), f"{at}[{shown(key)}]"), _cost(entry.get("cost"), key, f"{at}[{shown(key)}]", found)
        pair = min(a, b), max(a, b)
        if pair in links and (links[pair], costs.get(pair)) != (link, cost):
            words = [_words(links[pair], costs.get(pair)), _words(link, cost)]
            told = f"link {ids[pair[0]]}-{ids[pair[1]]} is {words[0]} one way and {words[1]} the other: the weaker counts"
            found.append(Finding("direction-mismatch", told, "see whether the link is up at both ends"))
        links[pair] = max(links.get(pair, link), link, key=lambda each: each.distance)
        if cost is not None:
            costs[pair] = max(costs.get(pair, cost), cost)
    return links, costs


def _link(value: Any, at: str) -> Link:
    if value is None:
        return UNKNOWN_LINK
    if not isinstance(value, str):
        raise RefusedError(f'{at}: {shown(value)} must be a link type, or {{"type": ..., "cost": ...}}')
    try:
        return Link.parse(value)
    except UnknownLinkTypeError as cause:
        raise RefusedError(f"{at}: {cause}") from None


def _cost(value: Any, key: str, at: str, found: list[Finding]) -> int | None:
    if value is None:
        return None
    if (cost := whole(value, f"{at}.cost", 0, _COST_MAX)) > 0:
        return cost
    # AMD's tools print 0 where a GPU meets itself, and where they do not know.
    found.append(Finding("cost-zero", f"link {key} has cost 0, which no link has: its cost is taken as unknown"))
    return None


def _words(link: Link, cost: int | None) -> str:
    return str(link) if cost is None else f"{link} (cost {cost})"


def _p2p(raw: Mapping[str, Any], ids: Sequence[str], at: str) -> dict[Pair, str]:
    """Return the pairs that cannot reach each other directly. The worse of two directions counts."""
    refused: dict[Pair, str] = {}
    for (a, b), key, status in _pairs(raw, ids, ids, at):
        if a == b:
            raise RefusedError(f"{at}: {shown(key)} names one GPU twice")
        if name_at(status, f"{at}[{shown(key)}]") != _P2P_OK:
            refused[min(a, b), max(a, b)] = status
    return refused


def _nic_links(raw: Mapping[str, Any], ids: Sequence[str], nics: Sequence[str], at: str) -> dict[Pair, Link]:
    return {pair: _link(value, f"{at}[{shown(key)}]") for pair, key, value in _pairs(raw, ids, nics, at)}


def _pairs(raw: Mapping[str, Any], left: Sequence[str], right: Sequence[str], at: str) -> Iterator[tuple[Pair, str, Any]]:
    """Yield each entry with the indices of the two that its key names. Ids may hold the dash that parts them."""
    first, second = ({name: index for index, name in enumerate(names)} for names in (left, right))
    longest = sum(max(map(len, names), default=0) for names in (left, right)) + 1
    for key, value in raw.items():
        dashes = [i for i, letter in enumerate(key) if letter == "-"] if len(key) <= longest else []
        found = [(first[key[:i]], second[key[i + 1 :]]) for i in dashes if key[:i] in first and key[i + 1 :] in second]
        if len(found) != 1:
            fault = (
                "can be read as several pairs: rename the ids"
                if found
                else f"names no pair of the node: {_expected(left, right)}"
            )
            raise RefusedError(f"{at}: {shown(key)} {fault}")
        yield found[0], key, value


def _expected(left: Sequence[str], right: Sequence[str]) -> str:
    names = ", ".join(shown(name) for name in right[:8]) + (", ..." if len(right) > 8 else "") or "it has none"
    form = '"A-B" with two of its GPUs' if left is right else '"GPU-NIC" with one of its GPUs and one of its NICs'
    return f"write {form} ({names})"


def _partitions(entries: Sequence[Any], ids: Sequence[str], at: str) -> tuple[int, ...]:
    index_of = {name: index for index, name in enumerate(ids)}
    partitions: list[int] = []
    for index, entry in enumerate(entries):
        here = f"{at}[{index}]"
        if not isinstance(entry, list) or not entry:
            raise RefusedError(f"{here}: {shown(entry)} must be a list of GPU ids")
        names = names_at([name_at(each, here) for each in entry], here, "GPU")
        for name in names:
            if name not in index_of:
                raise RefusedError(f"{here}: the node has no GPU {shown(name)}")
        partitions.append(sum(1 << index_of[name] for name in names))
    return tuple(dict.fromkeys(partitions))

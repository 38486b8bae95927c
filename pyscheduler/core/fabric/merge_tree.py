"""The merge tree of the fabric: Kruskal's merges of nodes into domains, whole weight classes at a time.

A weight class is one tier of the fabric: the NVLink domains that span nodes, then each level from the nearest to the
widest, then the whole cluster. All edges of a tier are taken at once, so the result does not depend on their order.
Where domains of one tier overlap without one holding the other (an NVLink domain that reaches into a second rack), they
become one vertex, as in Kruskal's algorithm; which domain each node is in is kept beside it (`own`).

The leaves of the tree are nodes, in an order in which every vertex is a range of positions: a depth-first walk, ties in
the order of (path from the outermost domain, name). The static part: counters over it are in `core.fabric.slots`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.fabric.place import Domain, Place

__all__ = ["NODE_LEVEL", "NVLINK_LEVEL", "MergeTree", "Part", "merge_tree", "tiers"]

Ints = npt.NDArray[np.int64]

# The level of a single node, and that of the NVLink domains that span nodes.
NODE_LEVEL: Final = "node"
NVLINK_LEVEL: Final = "nvlink-domain"


@dataclass(frozen=True, slots=True)
class Part:
    """A range of positions: a domain right below another one, or a node that hangs there itself (`vertex` is None)."""

    vertex: int | None
    low: int
    high: int


@dataclass(frozen=True, slots=True, eq=False)
class MergeTree:
    """Vertices are numbered from the nearest tier to the widest; the last is the whole cluster.

    Attributes
    ----------
    levels
        Level of each tier, nearest first; the last tier is that of the whole cluster, and its level is empty.
    order
        Node at each position, shape (nodes,).
    position
        Position of each node, shape (nodes,).
    low, high
        Range of positions of each vertex, shape (vertices,).
    parent
        Vertex that holds each vertex, -1 for the whole cluster, shape (vertices,).
    tier
        Tier of each vertex, shape (vertices,).
    nearest
        Nearest vertex that holds each node, shape (nodes,).
    holders
        The vertices that hold each vertex, itself first, then the nearest; -1 where there are no more, shape (vertices, most).
    below
        Vertices right below each vertex, in order.
    own
        Empty if every vertex is a domain; else by level the number of each node's own domain, -1 if unknown, shape (nodes,).
    """

    levels: tuple[str, ...]
    order: Ints
    position: Ints
    low: Ints
    high: Ints
    parent: Ints
    tier: Ints
    nearest: npt.NDArray[np.int32]
    holders: Ints
    below: tuple[Ints, ...]
    own: Mapping[str, Ints]
    _parts: dict[int, tuple[tuple[Part, ...], Ints]] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> int:
        """The whole cluster."""
        return len(self.low) - 1

    def of_tier(self, tier: int) -> Ints:
        """Return the vertices of a tier."""
        return np.arange(*np.searchsorted(self.tier, (tier, tier + 1)))

    def above(self, node: int) -> list[int]:
        """Return the vertices that hold a node, nearest first."""
        found: list[int] = self.holders[self.nearest[node]].tolist()
        return [vertex for vertex in found if vertex >= 0]

    def children(self, vertex: int) -> Ints:
        """Return the vertices right below, in order."""
        return self.below[vertex]

    def parts(self, vertex: int) -> tuple[tuple[Part, ...], Ints]:
        """Return what hangs right below the vertex, in order, and where each part begins; the vertex itself if that is nodes alone."""
        found = self._parts.get(vertex)
        if found is None:
            parts = tuple(self._parts_of(vertex))
            found = self._parts[vertex] = parts, np.array([part.low for part in parts], np.int64)
        return found

    def _parts_of(self, vertex: int) -> Iterator[Part]:
        children = self.children(vertex).tolist()
        low, high = int(self.low[vertex]), int(self.high[vertex])
        if not children:
            yield Part(vertex, low, high)
            return
        at = low
        for child in children:
            first, after = int(self.low[child]), int(self.high[child])
            yield from (Part(None, position, position + 1) for position in range(at, first))
            yield Part(child, first, after)
            at = after
        yield from (Part(None, position, position + 1) for position in range(at, high))

    def join(self, nodes: Iterable[int]) -> str | None:
        """Return the nearest level that holds all these nodes: ``node`` for one, None if only the whole cluster does."""
        distinct = set(nodes)
        if len(distinct) == 1:
            return NODE_LEVEL
        positions = self.position[list(distinct)]
        first, last = int(positions.min()), int(positions.max())
        vertex = int(self.nearest[self.order[first]])
        while self.high[vertex] <= last or not self._in_one(self.levels[int(self.tier[vertex])], distinct):
            vertex = int(self.parent[vertex])
        return self.levels[int(self.tier[vertex])] or None

    def _in_one(self, level: str, nodes: Collection[int]) -> bool:
        """Tell whether nodes of one vertex are in one domain of its level."""
        if level not in self.own:
            return True
        domains = set(self.own[level][list(nodes)].tolist())
        return len(domains) == 1 and -1 not in domains


def tiers(places: Iterable[Place]) -> tuple[str, ...]:
    """Return the levels of all paths in one order, nearest first, NVLink domains before all.

    Each path says which of its levels is nearer. Levels that no path compares keep the order in which they were seen,
    and so do levels that paths order against each other: lint tells of these.
    """
    followers: dict[str, set[str]] = {}
    has_nvlink = False
    for levels, nvlink in {(tuple(level for level, _ in place.path), place.nvlink_domain is not None): None for place in places}:
        has_nvlink |= nvlink
        for at, level in enumerate(levels):
            followers.setdefault(level, set()).update(levels[at + 1 :])
    found: list[str] = [NVLINK_LEVEL] if has_nvlink else []
    left = dict.fromkeys(level for level in followers if level not in found)
    while left:
        free = next((level for level in left if not any(level in followers[other] for other in left if other != level)), None)
        chosen = free if free is not None else next(iter(left))
        del left[chosen]
        found.append(chosen)
    return tuple(found)


def merge_tree(names: Sequence[str], places: Sequence[Place]) -> MergeTree:
    """Return the merge tree of a cluster.

    Parameters
    ----------
    names, places
        Of each node.

    """
    levels = tiers(places)
    count = len(names)
    by_order = sorted(range(count), key=lambda i: (places[i].path[::-1], names[i]))
    rank = np.empty(count, np.int64)
    rank[by_order] = np.arange(count)
    # What each node has merged into so far, tier by tier; and whether that was joined by a domain of the tier.
    component = np.arange(count)
    merged: list[tuple[Ints, npt.NDArray[np.bool_]]] = []
    own: dict[str, Ints] = {}
    mixed = False
    for level in levels:
        domain = own[level] = np.array(_domains(places, level), np.int64)
        component, joined = _merge(component, domain)
        merged.append((component, joined))
        known = domain >= 0
        mixed |= bool(joined.sum() > known.sum()) or len(np.unique(component[known])) < len(np.unique(domain[known]))
    merged.append((np.zeros(count, np.int64), np.ones(count, np.bool_)))
    order = _walk(rank, [component for component, _ in merged])
    return _assemble((*levels, ""), order, merged, own if mixed else {})


def _domains(places: Sequence[Place], level: str) -> list[int]:
    """Return a number for the domain of this level that each node is in, -1 where it is not known."""
    numbers: dict[Domain | str, int] = {}
    found = []
    for place in places:
        domain: Domain | str | None = place.domain(level)
        if level == NVLINK_LEVEL and place.nvlink_domain is not None:
            domain = place.nvlink_domain
        found.append(-1 if domain is None else numbers.setdefault(domain, len(numbers)))
    return found


def _merge(component: Ints, domain: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Merge what shares a domain: one weight class, all of its edges at once."""
    # Imported where it is needed: a process that places single pods alone does without (0.2 s, 30 MB).
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    known = domain >= 0
    if not known.any():
        return component, np.zeros(len(component), np.bool_)
    parts = int(component.max()) + 1
    size = parts + int(domain.max()) + 1
    edges = (np.ones(int(known.sum())), (component[known], parts + domain[known]))
    _, labels = connected_components(coo_array(edges, shape=(size, size)), directed=False)
    after = np.unique(labels[component], return_inverse=True)[1].astype(np.int64)
    touched = np.zeros(int(after.max()) + 1, np.bool_)
    touched[after[known]] = True
    return after, touched[after]


def _walk(rank: Ints, components: Sequence[Ints]) -> Ints:
    """Return the nodes in depth-first order; of siblings, that with the first node comes first."""
    keys = [rank]
    for component in components:
        first = np.full(int(component.max(initial=0)) + 1, len(rank), np.int64)
        np.minimum.at(first, component, rank)
        keys.append(first[component])
    return np.lexsort(keys).astype(np.int64)


def _assemble(
    levels: tuple[str, ...], order: Ints, merged: Sequence[tuple[Ints, npt.NDArray[np.bool_]]], own: Mapping[str, Ints]
) -> MergeTree:
    count = len(order)
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    low: list[int] = []
    high: list[int] = []
    tier: list[int] = []
    parent: list[int] = []
    nearest = np.full(count, -1, np.int32)
    # The vertex that holds each position so far.
    top = np.full(count, -1, np.int64)
    for at, (component, joined) in enumerate(merged):
        here = component[order]
        starts = np.flatnonzero(np.r_[True, here[1:] != here[:-1]]) if count else np.zeros(0, np.int64)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), count] if count else [], strict=True):
            if not joined[order[start]]:
                continue
            vertex = len(low)
            low.append(start)
            high.append(end)
            tier.append(at)
            parent.append(-1)
            for below in np.unique(top[start:end]).tolist():
                if below >= 0:
                    parent[below] = vertex
            inside = order[start:end]
            nearest[inside[nearest[inside] < 0]] = vertex
            top[start:end] = vertex
    if not low:
        low, high, tier, parent = [0], [0], [len(levels) - 1], [-1]
    # In the order of their ranges, grouped by parent; the first group is that of the whole cluster itself.
    grouped = np.lexsort((low, parent))
    ends = np.searchsorted(np.asarray(parent)[grouped], np.arange(len(low)))
    return MergeTree(
        levels=levels,
        order=order,
        position=position,
        low=np.array(low, np.int64),
        high=np.array(high, np.int64),
        parent=np.array(parent, np.int64),
        tier=np.array(tier, np.int64),
        nearest=nearest,
        holders=_holders(np.array(parent, np.int64)),
        below=tuple(np.split(grouped.astype(np.int64), ends)[1:]),
        own=own,
    )


def _holders(parent: Ints) -> Ints:
    columns = [np.arange(len(parent))]
    # The last entry stands for no vertex, and holds itself.
    above = np.append(parent, -1)
    while (columns[-1] >= 0).any():
        columns.append(above[columns[-1]])
    return np.column_stack(columns[:-1])

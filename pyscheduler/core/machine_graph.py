"""The inside of one kind of machine as a weighted graph: GPUs, PCIe switches, sockets, an NVSwitch, the node itself.

Between two GPUs, the smallest possible largest cost on a path through the graph
is that over all chains of their links: what Kruskal's merges see. PCIe paths are
drawn as the tree that they are: a switch, a socket and the node stand for all
pairs that meet there, so the graph has a few edges per GPU and not one per pair.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from pyscheduler.core.device_class import DeviceClass
from pyscheduler.core.links import UNKNOWN_LINK, Kind, Link, behind_switch
from pyscheduler.core.weights import Weights

__all__ = ["Edge", "MachineGraph", "Vertex", "machine_graph"]


class Vertex(enum.IntEnum):
    """What a vertex is; `DOMAIN` is one of a fabric level (leaf, spine, core ...)."""

    GPU = 0
    PCIE_SWITCH = 1
    SOCKET = 2
    NODE = 3
    NVLINK_DOMAIN = 4
    DOMAIN = 5


@dataclass(frozen=True, slots=True)
class Edge:
    """`link` is what the edge stands for; `cost` > 0 is that of `Weights.link_cost`."""

    a: int
    b: int
    link: Link
    cost: float


@dataclass(frozen=True, slots=True)
class MachineGraph:
    """Vertices are numbered: GPU i is vertex i, then come the others, the node last.

    `nvlink` is the vertex of the NVSwitch, None if there is none.
    """

    kinds: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    nvlink: int | None

    @property
    def node(self) -> int:
        """The vertex of the node itself."""
        return len(self.kinds) - 1

    def children(self, vertex: int) -> list[int]:
        """Return what hangs below a switch, a socket or the node, in order."""
        return sorted(edge.a for edge in self.edges if edge.b == vertex)


# Where PCIe paths meet, nearest first: the kinds of pair that meet there, and what is drawn for it.
_MEETINGS: Final = (
    ((Kind.PIX,), Vertex.PCIE_SWITCH),
    ((Kind.PXB,), Vertex.PCIE_SWITCH),
    ((Kind.PHB,), Vertex.SOCKET),
    ((Kind.NODE,), Vertex.SOCKET),
)


def machine_graph(device_class: DeviceClass, weights: Weights) -> MachineGraph:
    """Return the graph of a machine class."""
    return _Builder(device_class, weights).graph()


class _Builder:
    def __init__(self, device_class: DeviceClass, weights: Weights) -> None:
        self._class = device_class
        self._weights = weights
        self._matrix = device_class.matrix
        self._kinds = [Vertex.GPU] * device_class.gpus
        self._edges: list[Edge] = []
        # The uppermost vertex that each GPU has reached.
        self._top = list(range(device_class.gpus))

    def graph(self) -> MachineGraph:
        nvlink = self._fast()
        for kinds, vertex in _MEETINGS:
            self._meet(Link(kinds[0]), vertex)
        self._join_node()
        return MachineGraph(tuple(self._kinds), tuple(self._edges), nvlink)

    def _fast(self) -> int | None:
        """Draw NVLink and xGMI: pair by pair, or through the switch."""
        switched = [g for g, row in enumerate(self._matrix) if behind_switch(row, self._class.models[g])]
        for a, b in combinations(range(self._class.gpus), 2):
            if self._matrix[a][b].fast and not (a in switched and b in switched):
                self._add(a, b, self._matrix[a][b])
        if not switched:
            return None
        switch = self._new(Vertex.NVLINK_DOMAIN)
        for gpu in switched:
            self._add(gpu, switch, min((link for link in self._matrix[gpu] if link.fast), key=lambda link: link.distance))
        return switch

    def _meet(self, link: Link, vertex: Vertex) -> None:
        """Join the GPUs whose pairs meet here, by a new vertex for each group that is not yet one."""
        for group in self._groups(link.kind):
            below = sorted({self._top[gpu] for gpu in group})
            if len(below) > 1:
                joint = self._new(vertex)
                for each in below:
                    self._add(each, joint, link)
                for gpu, top in enumerate(self._top):
                    if top in below:
                        self._top[gpu] = joint

    def _groups(self, kind: Kind) -> Iterable[list[int]]:
        """Return the GPUs that chains of such pairs connect."""
        group = list(range(self._class.gpus))
        for a, b in combinations(range(self._class.gpus), 2):
            if self._meets_at(a, b) == kind and group[a] != group[b]:
                old = group[b]
                group = [group[a] if g == old else g for g in group]
        return [[gpu for gpu, g in enumerate(group) if g == each] for each in dict.fromkeys(group)]

    def _meets_at(self, a: int, b: int) -> Kind:
        """Return where the PCIe paths of two GPUs meet. A fast link hides it: then the socket is what their NUMA node says."""
        link, numa = self._matrix[a][b], self._class.numa
        if link.fast:
            return Kind.NODE if numa[a] is not None and numa[a] == numa[b] else Kind.SYS
        return link.kind

    def _join_node(self) -> None:
        tops = list(dict.fromkeys(self._top))
        node = self._new(Vertex.NODE)
        for top in tops:
            inside = [gpu for gpu, each in enumerate(self._top) if each == top]
            self._add(top, node, self._way_out(inside))

    def _way_out(self, inside: list[int]) -> Link:
        """Return the nearest link from these GPUs to others; unknown if no link to others is known."""
        outside = [gpu for gpu in range(self._class.gpus) if gpu not in inside]
        ways = [self._matrix[a][b] for a in inside for b in outside]
        slow = [link if not link.fast else Link(Kind.SYS) for link in ways if link.kind is not Kind.UNKNOWN]
        if not ways:
            return Link(Kind.SYS)
        return min(slow, key=lambda link: link.distance, default=UNKNOWN_LINK)

    def _new(self, kind: Vertex) -> int:
        self._kinds.append(kind)
        return len(self._kinds) - 1

    def _add(self, a: int, b: int, link: Link) -> None:
        models = self._class.models
        model = models[a] if a < len(models) else next((m for m in models if m), None)
        self._edges.append(Edge(a, b, link, self._weights.link_cost(link, model)))

"""The inside of one kind of machine as a weighted graph: GPUs, PCIe switches, sockets, NVSwitches, the node itself.

Between two GPUs, the smallest possible largest cost on a path through the graph
is that over all chains of their links: what Kruskal's merges see. PCIe paths are
drawn as the tree that they are: a switch, a socket and the node stand for all
pairs that meet there, so the graph has a few edges per GPU and not one per pair.
Pairs meet in the order of their costs, so this holds whatever the operator configures.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link, behind_switch
from pyscheduler.core.machine.weights import Weights

__all__ = ["Edge", "MachineGraph", "Vertex", "machine_graph"]

Pair = tuple[int, int]


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
    """`link` is what the edge stands for; `cost` > 0 is that of `Weights.link_cost`, of the slower GPU of a pair."""

    a: int
    b: int
    link: Link
    cost: float


@dataclass(frozen=True, slots=True)
class MachineGraph:
    """Vertices are numbered: GPU i is vertex i, then come the others, the node last.

    `nvlink` are the vertices of the NVSwitches: one, unless the machine has boards that NVLink does not join.
    """

    kinds: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    nvlink: tuple[int, ...]

    @property
    def node(self) -> int:
        """The vertex of the node itself."""
        return len(self.kinds) - 1

    @property
    def way_out(self) -> float:
        """The largest cost of a known path from a GPU to the node, 0 if none is known."""
        return max((edge.cost for edge in self.edges if edge.b == self.node and edge.link.kind is not Kind.UNKNOWN), default=0.0)

    def children(self, vertex: int) -> list[int]:
        """Return what hangs below a switch, a socket or the node, in order."""
        return sorted(edge.a for edge in self.edges if edge.b == vertex)


# What is drawn where pairs of a kind meet. Where those of the last two kinds all meet is the node; where only some do, as
# the others are unknown, it is what these share of the host.
_DRAWN: Final = {
    Kind.NVLINK: Vertex.NVLINK_DOMAIN,
    Kind.XGMI: Vertex.NVLINK_DOMAIN,
    Kind.PIX: Vertex.PCIE_SWITCH,
    Kind.PXB: Vertex.PCIE_SWITCH,
    Kind.PHB: Vertex.SOCKET,
    Kind.NODE: Vertex.SOCKET,
    Kind.PCIE: Vertex.SOCKET,
    Kind.SYS: Vertex.SOCKET,
}
_THROUGH_NODE: Final = frozenset({Kind.PCIE, Kind.SYS})


def machine_graph(device_class: DeviceClass, weights: Weights) -> MachineGraph:
    """Return the graph of a machine class."""
    return _Builder(device_class, weights).graph()


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Pairs that meet alike."""

    link: Link
    cost: float
    pairs: tuple[Pair, ...]


class _Builder:
    def __init__(self, device_class: DeviceClass, weights: Weights) -> None:
        self._class = device_class
        self._weights = weights
        self._pairs = dict(zip(combinations(range(device_class.gpus), 2), device_class.links, strict=True))
        self._kinds = [Vertex.GPU] * device_class.gpus
        self._edges: list[Edge] = []

    def graph(self) -> MachineGraph:
        switches = self._fast()
        node = self._slow()
        # The node comes last.
        order = [vertex for vertex in range(len(self._kinds)) if vertex != node] + [node]
        new = {old: at for at, old in enumerate(order)}
        return MachineGraph(
            kinds=tuple(self._kinds[vertex] for vertex in order),
            edges=tuple(Edge(new[edge.a], new[edge.b], edge.link, edge.cost) for edge in self._edges),
            nvlink=tuple(new[switch] for switch in switches),
        )

    def _fast(self) -> list[int]:
        """Draw NVLink and xGMI: pair by pair, or through switches. Return these."""
        switched = {g for g, row in enumerate(self._class.matrix) if behind_switch(row, self._class.models[g])}
        fast = {pair: link for pair, link in self._pairs.items() if link.fast}
        through = {pair: (link, self._cost(pair, link)) for pair, link in fast.items() if switched.issuperset(pair)}
        for (a, b), link in fast.items():
            if (a, b) not in through:
                self._edges.append(Edge(a, b, link, self._cost((a, b), link)))
        top, _ = self._merge(through)
        return sorted({vertex for vertex in top if vertex >= self._class.gpus})

    def _slow(self) -> int:
        """Draw the paths through the host, and the node. Return the node."""
        meetings = {pair: self._meeting(pair, link) for pair, link in self._pairs.items() if link.kind is not Kind.UNKNOWN}
        top, met = self._merge(meetings)
        parts = list(dict.fromkeys(top))
        # Of parts with nothing known in between, the largest hangs below the node as near as it may.
        main = max(parts, key=top.count, default=None)
        if main in met and met[main].link.kind in _THROUGH_NODE:
            node = main
            self._kinds[node] = Vertex.NODE
        else:
            node = self._new(Vertex.NODE)
        for part in parts:
            if part != node:
                known = part == main and (part in met or len(parts) == 1)
                self._hang(part, node, Link(Kind.SYS) if known else UNKNOWN_LINK, met[part].cost if part in met else 0.0)
        return node

    def _hang(self, part: int, node: int, link: Link, inside: float) -> None:
        """Hang a part of the machine below the node, never nearer than its own GPUs are to each other."""
        self._edges.append(Edge(part, node, link, max(inside, *(self._one(gpu, link) for gpu in range(self._class.gpus)))))

    def _meeting(self, pair: Pair, link: Link) -> tuple[Link, float]:
        """Return where the paths of two GPUs through the host meet, and at what cost.

        A fast link hides it: then their NUMA nodes say it, and it costs no less than that link.
        """
        if not link.fast:
            return link, self._cost(pair, link)
        a, b = (self._class.numa[gpu] for gpu in pair)
        host = Link(Kind.NODE if a is not None and a == b else Kind.SYS)
        return host, max(self._cost(pair, host), self._cost(pair, link))

    def _merge(self, pairs: dict[Pair, tuple[Link, float]]) -> tuple[list[int], dict[int, _Meeting]]:
        """Join the GPUs whose pairs meet, cheapest first, by a new vertex for each group that is not yet one.

        Return the uppermost vertex that each GPU has reached, and for each new vertex what met there.
        """
        top = list(range(self._class.gpus))
        met: dict[int, _Meeting] = {}
        for meeting in _by_cost(pairs):
            for below in _groups(meeting.pairs, top):
                joint = self._new(_DRAWN[meeting.link.kind])
                met[joint] = meeting
                self._edges += [Edge(each, joint, meeting.link, meeting.cost) for each in below]
                top = [joint if each in below else each for each in top]
        return top, met

    def _cost(self, pair: Pair, link: Link) -> float:
        return max(self._one(gpu, link) for gpu in pair)

    def _one(self, gpu: int, link: Link) -> float:
        return self._weights.link_cost(link, self._class.models[gpu])

    def _new(self, kind: Vertex) -> int:
        self._kinds.append(kind)
        return len(self._kinds) - 1


def _by_cost(pairs: dict[Pair, tuple[Link, float]]) -> Iterator[_Meeting]:
    """Yield the pairs that meet alike together, cheapest first, then nearest."""
    alike: dict[tuple[Link, float], list[Pair]] = {}
    for pair, how in pairs.items():
        alike.setdefault(how, []).append(pair)
    for link, cost in sorted(alike, key=lambda how: (how[1], how[0].distance)):
        yield _Meeting(link, cost, tuple(alike[link, cost]))


def _groups(pairs: Iterable[Pair], top: list[int]) -> list[list[int]]:
    """Return the uppermost vertices that chains of these pairs connect, in groups of more than one."""
    group = {each: each for each in top}
    for a, b in pairs:
        old, new = group[top[b]], group[top[a]]
        if old != new:
            group = {each: new if its == old else its for each, its in group.items()}
    members: dict[int, list[int]] = {}
    for each, its in group.items():
        members.setdefault(its, []).append(each)
    return [sorted(below) for below in members.values() if len(below) > 1]

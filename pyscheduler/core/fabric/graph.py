"""The whole cluster as one weighted graph, from GPU to spine, in arrays.

Built anew for each generation from the classes and places of its nodes: the
inside of a machine is drawn once per class and repeated by arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pyscheduler.core.fabric.place import Domain, Place
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.machine_graph import MachineGraph, Vertex, machine_graph
from pyscheduler.core.machine.weights import Weights

__all__ = ["TopologyGraph", "build"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TopologyGraph:
    """Vertices, edges and costs.

    Attributes
    ----------
    kinds
        `Vertex` of each vertex, shape (vertices,).
    edges, costs
        Ends and cost of each edge, shapes (edges, 2) and (edges,); costs are > 0, as `Weights.link_cost`.
    first
        First vertex of each node, shape (nodes + 1,): GPU i of node n is vertex ``first[n] + i``, and the node itself is
        vertex ``first[n + 1] - 1``.
    domains
        The vertex of each domain, by its full path; () is the whole cluster.
    nvlink_domains
        The vertex of each multi-node NVLink domain.
    """

    kinds: npt.NDArray[np.int8]
    edges: Ints
    costs: Floats
    first: Ints
    domains: dict[Domain, int]
    nvlink_domains: dict[str, int]

    def matrix(self) -> csr_array:
        """Return the graph for `scipy.sparse.csgraph`: each edge once, no explicit zeros."""
        size = len(self.kinds)
        return csr_array((self.costs, (self.edges[:, 0], self.edges[:, 1])), shape=(size, size))


def build(classes: Sequence[DeviceClass], class_of: Sequence[int], places: Sequence[Place], weights: Weights) -> TopologyGraph:
    """Return the graph of a cluster.

    Parameters
    ----------
    classes
        The kinds of machine.
    class_of
        For each node the index of its class.
    places
        For each node where it hangs in the fabric.
    weights
        The figures in force.

    """
    return _Builder(classes, np.asarray(class_of, np.int64), places, weights).graph()


class _Builder:
    def __init__(self, classes: Sequence[DeviceClass], class_of: Ints, places: Sequence[Place], weights: Weights) -> None:
        self._classes = classes
        self._class_of = class_of
        self._places = places
        self._weights = weights
        self._machines = [machine_graph(each, weights) for each in classes]
        sizes = np.array([len(machine.kinds) for machine in self._machines], np.int64)
        self._first = np.concatenate([[0], np.cumsum(sizes[class_of])]) if len(class_of) else np.zeros(1, np.int64)
        self._extra: list[Vertex] = []
        self._edges: list[Ints] = []
        self._costs: list[Floats] = []

    def graph(self) -> TopologyGraph:
        kinds = np.zeros(self._first[-1], np.int8)
        for index, machine in enumerate(self._machines):
            self._repeat(index, machine, kinds)
        domains = self._fabric()
        nvlink_domains = self._nvlink_domains()
        return TopologyGraph(
            kinds=np.concatenate([kinds, np.array(self._extra, np.int8)]),
            edges=np.concatenate([np.zeros((0, 2), np.int64), *self._edges]),
            costs=np.concatenate([np.zeros(0), *self._costs]),
            first=self._first,
            domains=domains,
            nvlink_domains=nvlink_domains,
        )

    def _repeat(self, index: int, machine: MachineGraph, kinds: npt.NDArray[np.int8]) -> None:
        """Draw the machine for each node of its class."""
        starts = self._first[:-1][self._class_of == index]
        kinds[starts[:, None] + np.arange(len(machine.kinds))] = np.array(machine.kinds, np.int8)
        ends = np.array([(edge.a, edge.b) for edge in machine.edges], np.int64).reshape(-1, 2)
        self._add(
            (starts[:, None, None] + ends).reshape(-1, 2), np.tile(np.array([edge.cost for edge in machine.edges]), len(starts))
        )

    def _fabric(self) -> dict[Domain, int]:
        """Draw the domains, each below the next wider one that is known, and all below the cluster.

        An edge costs what the slowest node below it would see there, and never less than the edges below it.
        """
        cluster: Domain = ()
        vertex: dict[Domain, int] = {cluster: self._new(Vertex.DOMAIN)}
        above: dict[Domain, float] = {}
        nearest, costs = [], []
        rises: dict[tuple[Domain, int], list[float]] = {}
        for place, kind in zip(self._places, self._class_of.tolist(), strict=True):
            key = (place.path, kind)
            rise = rises.get(key)
            if rise is None:
                rise = rises[key] = self._rise(place.path, kind)
                for depth in range(len(place.path)):
                    domain = place.path[depth:]
                    if domain not in vertex:
                        vertex[domain] = self._new(Vertex.DOMAIN)
                    above[domain] = max(above.get(domain, 0.0), rise[depth + 1])
            nearest.append(vertex[place.path])
            costs.append(rise[0])
        self._add(np.column_stack([self._first[1:] - 1, np.array(nearest, np.int64)]), np.array(costs))
        self._add(np.array([(vertex[d], vertex[d[1:]]) for d in above], np.int64).reshape(-1, 2), np.array(list(above.values())))
        return vertex

    def _rise(self, path: Domain, kind: int) -> list[float]:
        """Return the cost of each step from a node of this class to the cluster."""
        model = next((model for model in self._classes[kind].models if model), None)
        below = self._machines[kind].way_out
        costs: list[float] = []
        for hops, level in enumerate([*(level for level, _ in path), "cluster"]):
            below = self._weights.level_cost(level, hops, model, below=below)
            costs.append(below)
        return costs

    def _nvlink_domains(self) -> dict[str, int]:
        """Draw the NVLink domains that span nodes: their switches are one."""
        vertex: dict[str, int] = {}
        for node, (place, kind) in enumerate(zip(self._places, self._class_of.tolist(), strict=True)):
            if place.nvlink_domain is None:
                continue
            if place.nvlink_domain not in vertex:
                vertex[place.nvlink_domain] = self._new(Vertex.NVLINK_DOMAIN)
            self._join(node, self._machines[kind], vertex[place.nvlink_domain])
        return vertex

    def _join(self, node: int, machine: MachineGraph, domain: int) -> None:
        """Join the switches of a node to its NVLink domain, or where it has none each GPU at the cost of its worst NVLink."""
        costs: dict[int, float] = {}
        for edge in machine.edges:
            if edge.link.fast:
                for end in (edge.a, edge.b):
                    costs[end] = max(costs.get(end, 0.0), edge.cost)
        ends = machine.nvlink or sorted(costs)
        self._add(
            np.array([(self._first[node] + end, domain) for end in ends], np.int64).reshape(-1, 2),
            np.array([costs[end] for end in ends]),
        )

    def _new(self, kind: Vertex) -> int:
        self._extra.append(kind)
        return int(self._first[-1]) + len(self._extra) - 1

    def _add(self, ends: Ints, costs: Floats) -> None:
        self._edges.append(ends)
        self._costs.append(costs.astype(np.float64))

"""The graph of machines and of the cluster against slow builders that share no code with it.

Costs of pairs are those of `Weights`; what is made of them is worked out here with dictionaries.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from pyscheduler.core import presets
from pyscheduler.core.fabric import graph
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.machine_graph import MachineGraph, Vertex, machine_graph
from pyscheduler.core.machine.weights import Override, Profile, Weights

FAST = ["NV1", "NV2", "NV4", "NV9", "NV18", "XGMI", "XGMI1", "XGMI4"]
PATHS = ["PIX", "PXB", "PHB", "NODE", "PCIE", "SYS"]
MODELS = [None, "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"]
few = settings(max_examples=300, deadline=None)
Costs = dict[tuple[int, int], float]


@st.composite
def any_class(draw: st.DrawFn, most: int = 10) -> DeviceClass:
    """Any links at all between up to ten GPUs, mostly of a few types, of which some are on most machines."""
    n = draw(st.integers(1, most))
    kinds = draw(st.lists(st.sampled_from([*FAST, *PATHS, "?"]), min_size=1, max_size=4))
    pairs = list(combinations(range(n), 2))
    links = draw(st.lists(st.sampled_from(kinds), min_size=len(pairs), max_size=len(pairs)))
    numa = draw(st.lists(st.sampled_from([0, 1, None]), min_size=n, max_size=n))
    several = draw(st.booleans())
    model = draw(st.sampled_from(MODELS))
    models = draw(st.lists(st.sampled_from(MODELS), min_size=n, max_size=n)) if several else [model] * n
    return DeviceClass.of(models, numa, dict(zip(pairs, links, strict=True)))


@st.composite
def any_weights(draw: st.DrawFn) -> Weights:
    """The defaults, or figures that turn the usual order of link types upside down."""
    if draw(st.booleans()):
        return Weights(draw(st.sampled_from(list(Profile))))
    kinds = st.sampled_from(["NV", "XGMI", "NV2", *PATHS])
    overrides = st.builds(Override, kinds, st.sampled_from([1.0, 15.0, 30.0, 500.0]), st.sampled_from(["", "H100", "V100"]))
    return Weights(overrides=tuple(draw(st.lists(overrides, max_size=4))))


def minimax(size: int, edges: Costs) -> list[list[float]]:
    """Floyd and Warshall: the smallest possible largest cost on a path between any two vertices."""
    best = [[0.0 if a == b else float("inf") for b in range(size)] for a in range(size)]
    for (a, b), cost in edges.items():
        best[a][b] = best[b][a] = min(cost, best[a][b])
    for middle in range(size):
        for a in range(size):
            for b in range(size):
                best[a][b] = min(best[a][b], max(best[a][middle], best[middle][b]))
    return best


def pair_costs(kind: DeviceClass, weights: Weights) -> Costs:
    """A pair costs what it costs the slower of its two GPUs."""
    pairs = zip(combinations(range(kind.gpus), 2), kind.links, strict=True)
    return {(a, b): max(weights.link_cost(link, kind.models[g]) for g in (a, b)) for (a, b), link in pairs}


def edges_of(machine: MachineGraph) -> Costs:
    edges = {(edge.a, edge.b): edge.cost for edge in machine.edges}
    assert len(edges) == len(machine.edges), "an edge stands there twice: a sparse matrix would add it up"
    assert not any((b, a) in edges for a, b in edges)
    return edges


@settings(max_examples=600, deadline=None)
@given(any_class(), any_weights())
def test_two_gpus_of_a_machine_are_as_near_as_the_best_chain_of_links(kind: DeviceClass, weights: Weights) -> None:
    machine = machine_graph(kind, weights)
    edges = edges_of(machine)
    through_graph = minimax(len(machine.kinds), edges)
    by_pairs = minimax(kind.gpus, pair_costs(kind, weights))
    for a, b in combinations(range(kind.gpus), 2):
        assert through_graph[a][b] == by_pairs[a][b], (a, b)


@few
@given(any_class(), any_weights())
def test_a_machine_is_drawn_as_a_whole_with_its_gpus_first_and_the_node_last(kind: DeviceClass, weights: Weights) -> None:
    machine = machine_graph(kind, weights)
    assert machine.kinds[: kind.gpus] == (Vertex.GPU,) * kind.gpus
    assert [at for at, vertex in enumerate(machine.kinds) if vertex is Vertex.NODE] == [machine.node]
    assert Vertex.GPU not in machine.kinds[kind.gpus :]
    assert all(edge.cost > 0 for edge in machine.edges)
    assert all(row[machine.node] < float("inf") for row in minimax(len(machine.kinds), edges_of(machine)))
    assert [machine.kinds[switch] for switch in machine.nvlink] == [Vertex.NVLINK_DOMAIN] * len(machine.nvlink)
    for vertex in range(kind.gpus, len(machine.kinds)):
        below = machine.children(vertex)
        assert len(below) >= (1 if vertex == machine.node else 2)


@few
@given(any_class(), any_weights())
def test_a_machine_has_few_edges_beside_its_direct_fast_links(kind: DeviceClass, weights: Weights) -> None:
    machine = machine_graph(kind, weights)
    direct = sum(edge.b < kind.gpus for edge in machine.edges)
    assert direct <= sum(link.fast for link in kind.links)
    # Two trees over the GPUs: the paths through the host, and the switches.
    assert len(machine.edges) - direct <= 4 * kind.gpus


@few
@given(any_class(), any_weights(), st.randoms(use_true_random=False))
def test_a_machine_whose_gpus_are_numbered_otherwise_has_the_same_shape(kind: DeviceClass, weights: Weights, rng: Any) -> None:
    order = list(range(kind.gpus))
    rng.shuffle(order)
    links = dict(zip(combinations(range(kind.gpus), 2), kind.links, strict=True))
    other = DeviceClass(
        tuple(kind.models[old] for old in order),
        tuple(kind.numa[old] for old in order),
        tuple(links[min(order[a], order[b]), max(order[a], order[b])] for a, b in combinations(range(kind.gpus), 2)),
    )
    one, two = machine_graph(kind, weights), machine_graph(other, weights)
    assert Counter(one.kinds) == Counter(two.kinds)
    assert sorted(edge.cost for edge in one.edges) == sorted(edge.cost for edge in two.edges)


def switched(name: str) -> bool:
    """Whether every GPU has its whole NVLink port to every other one."""
    document = presets.document(name)
    return len(document.gpus) > 2 and name.startswith(("dgx", "hgx", "gb")) and not name.endswith(("-4", "1p", "1v"))


@pytest.mark.parametrize("name", presets.names())
def test_vertices_of_a_preset_are_those_of_the_machine(name: str) -> None:
    kind = class_of(presets.document(name))
    machine = machine_graph(kind, Weights())
    count = Counter(machine.kinds)
    assert count[Vertex.GPU] == kind.gpus
    assert count[Vertex.NODE] == 1
    assert count[Vertex.DOMAIN] == count[Vertex.PCIE_SWITCH] == 0
    assert count[Vertex.NVLINK_DOMAIN] == switched(name)
    groups: dict[int | None, list[int]] = {}
    for gpu, numa in enumerate(kind.numa):
        groups.setdefault(numa, []).append(gpu)
    groups.pop(None, None)
    sockets = [machine.children(v) for v, vertex in enumerate(machine.kinds) if vertex is Vertex.SOCKET]
    assert sorted(sockets) == sorted(gpus for gpus in groups.values() if len(gpus) > 1)
    for switch in machine.nvlink:
        assert machine.children(switch) == list(range(kind.gpus))


LEVELS = ["leaf", "spine", "core"]
# A few names, so that they meet: one leaf's name under two spines, and a domain that is named like a node.
DOMAINS = ["a", "b", "n0"]


@st.composite
def any_place(draw: st.DrawFn) -> Place:
    """Levels that are known of a node: all, some, or none."""
    path = [(level, draw(st.sampled_from(DOMAINS))) for level in LEVELS if draw(st.booleans()) or draw(st.booleans())]
    return Place(tuple(path), draw(st.sampled_from([None, None, "rack-1", "rack-2"])))


@dataclass(frozen=True)
class Case:
    classes: tuple[DeviceClass, ...]
    class_of: tuple[int, ...]
    places: tuple[Place, ...]
    weights: Weights


@st.composite
def any_cluster(draw: st.DrawFn, least: int = 0) -> Case:
    """Up to six nodes of up to three kinds."""
    classes = tuple(draw(st.lists(any_class(4), min_size=1, max_size=3)))
    n = draw(st.integers(least, 6))
    indices = draw(st.lists(st.integers(0, len(classes) - 1), min_size=n, max_size=n))
    places = draw(st.lists(any_place(), min_size=n, max_size=n))
    overrides = st.builds(
        Override, st.sampled_from(LEVELS), st.sampled_from([1.0, 20.0, 300.0]), st.just(""), st.just(value=True)
    )
    levels = tuple(draw(st.lists(overrides, max_size=2)))
    weights = draw(any_weights())
    return Case(classes, tuple(indices), tuple(places), Weights(weights.profile, (*weights.overrides, *levels)))


def naive_rise(case: Case, node: int) -> list[float]:
    """Cost of each step from a node to the cluster: never less than the one below, with a hop's latency between scales."""
    kind, path = case.classes[case.class_of[node]], case.places[node].path
    model = next((model for model in kind.models if model), None)
    machine = machine_graph(kind, case.weights)
    highest = max((edge.cost for edge in machine.edges if edge.b == machine.node and str(edge.link) != "?"), default=0.0)
    costs = []
    for hops, level in enumerate([*(level for level, _ in path), "cluster"]):
        own = case.weights.level_cost(level, hops, model)
        step = 0.0 if case.weights.profile is Profile.CLASSIC else 1 / 16
        highest = max(own, highest + step)
        costs.append(highest)
    return costs


def naive(case: Case) -> tuple[dict[Any, str], dict[frozenset[Any], float]]:
    """Vertices by name with their kind, and costs of edges by the names of their ends."""
    kinds: dict[Any, str] = {("cluster",): "DOMAIN"}
    edges: dict[frozenset[Any], float] = {}
    for node, (index, place) in enumerate(zip(case.class_of, case.places, strict=True)):
        machine = machine_graph(case.classes[index], case.weights)
        for at, kind in enumerate(machine.kinds):
            kinds[node, at] = kind.name
        for edge in machine.edges:
            edges[frozenset({(node, edge.a), (node, edge.b)})] = edge.cost
        below: Any = (node, machine.node)
        for depth, cost in enumerate(naive_rise(case, node)):
            above: Any = ("domain", *place.path[depth:]) if depth < len(place.path) else ("cluster",)
            kinds[above] = "DOMAIN"
            ends = frozenset({below, above})
            edges[ends] = max(cost, edges.get(ends, 0.0))
            below = above
        if place.nvlink_domain:
            rack = ("rack", place.nvlink_domain)
            kinds[rack] = "NVLINK_DOMAIN"
            fast = [edge for edge in machine.edges if edge.link.fast]
            ends_of_fast = {end for edge in fast for end in (edge.a, edge.b)}
            for end in machine.nvlink or ends_of_fast:
                edges[frozenset({(node, end), rack})] = max(edge.cost for edge in fast if end in (edge.a, edge.b))
    return kinds, edges


def built(case: Case) -> tuple[graph.TopologyGraph, dict[int, Any]]:
    """The graph, and the name of each vertex as the naive builder has it."""
    found = graph.build(case.classes, case.class_of, case.places, case.weights)
    names: dict[int, Any] = {}
    for node in range(len(case.class_of)):
        for vertex in range(found.first[node], found.first[node + 1]):
            names[vertex] = (node, vertex - int(found.first[node]))
    names |= {vertex: ("domain", *path) if path else ("cluster",) for path, vertex in found.domains.items()}
    names |= {vertex: ("rack", name) for name, vertex in found.nvlink_domains.items()}
    return found, names


@few
@given(any_cluster())
def test_vertices_edges_and_costs_of_a_cluster_are_those_of_a_naive_builder(case: Case) -> None:
    found, names = built(case)
    kinds, edges = naive(case)
    assert sorted(names) == list(range(len(found.kinds)))
    assert {names[at]: Vertex(kind).name for at, kind in enumerate(found.kinds.tolist())} == kinds
    listed = [
        (frozenset({names[a], names[b]}), cost) for (a, b), cost in zip(found.edges.tolist(), found.costs.tolist(), strict=True)
    ]
    assert len(listed) == len(edges)
    assert dict(listed) == edges


@few
@given(any_cluster())
def test_a_cluster_is_one_component_but_for_racks_that_nothing_joins(case: Case) -> None:
    found, _ = built(case)
    lonely = len(found.nvlink_domains) - len({vertex for vertex in found.nvlink_domains.values() if vertex in found.edges})
    components, _ = connected_components(found.matrix(), directed=False)
    assert components == 1 + lonely
    assert (found.costs > 0).all()
    assert found.matrix().nnz == len(found.edges)


def lowest_common(case: Case, a: int, b: int) -> float:
    """Cost of the nearest domain that holds both nodes: that of the dearer of the two last steps into it."""
    _, edges = naive(case)
    walks: list[list[Any]] = []
    for node in (a, b):
        path = case.places[node].path
        start = (node, machine_graph(case.classes[case.class_of[node]], case.weights).node)
        walks.append([start, *(("domain", *path[depth:]) for depth in range(len(path))), ("cluster",)])
    common = next(vertex for vertex in walks[0] if vertex in walks[1])
    return max(edges[frozenset({walk[walk.index(common) - 1], common})] for walk in walks)


@few
@given(any_cluster(least=2), st.data())
def test_gpus_of_two_nodes_are_as_near_as_their_lowest_common_domain(case: Case, data: st.DataObject) -> None:
    case = Case(case.classes, case.class_of, tuple(Place(place.path) for place in case.places), case.weights)
    found, _ = built(case)
    edges = {(a, b): cost for (a, b), cost in zip(found.edges.tolist(), found.costs.tolist(), strict=True)}
    a, b = data.draw(st.permutations(range(len(case.class_of))))[:2]
    ways = [ways_out(case, node) for node in (a, b)]
    near = minimax(len(found.kinds), edges)
    expected = lowest_common(case, a, b)
    for gpu, way in enumerate(ways[0]):
        for other, its in enumerate(ways[1]):
            assert near[int(found.first[a]) + gpu][int(found.first[b]) + other] == max(expected, way, its)


def ways_out(case: Case, node: int) -> list[float]:
    """What each GPU pays to get to its node: more than any domain only if nothing is known of its links."""
    kind = case.classes[case.class_of[node]]
    machine = machine_graph(kind, case.weights)
    near = minimax(len(machine.kinds), edges_of(machine))
    return [near[gpu][machine.node] for gpu in range(kind.gpus)]


@few
@given(any_cluster())
def test_same_cluster_gives_the_same_arrays(case: Case) -> None:
    one, two = (graph.build(case.classes, case.class_of, case.places, case.weights) for _ in range(2))
    assert all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("kinds", "edges", "costs", "first"))
    assert one.domains == two.domains
    assert one.nvlink_domains == two.nvlink_domains

"""The graph of machines and of the cluster: what is drawn, and that costs rise from the GPU to the core of the fabric."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from deploy.local import machines
from pyscheduler.core import presets
from pyscheduler.core.fabric.graph import TopologyGraph, build
from pyscheduler.core.fabric.place import Domain, Place
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.links import Link
from pyscheduler.core.machine.machine_graph import MachineGraph, Vertex, machine_graph
from pyscheduler.core.machine.weights import Override, Profile, Weights
from pyscheduler.readers import node_document

H100 = "NVIDIA H100 80GB HBM3"
V100 = "Tesla V100-SXM2-32GB"


def preset(name: str) -> DeviceClass:
    return class_of(presets.document(name))


def simulated(name: str) -> DeviceClass:
    return class_of(node_document.parse(json.dumps(machines.document(name, "n1"))))


def machine(
    links: dict[tuple[int, int], str], gpus: int = 4, model: str | None = None, numa: Sequence[int | None] = (), other: str = "?"
) -> DeviceClass:
    every = {pair: links.get(pair, other) for pair in combinations(range(gpus), 2)}
    return DeviceClass.of([model] * gpus, numa or [None] * gpus, every)


def below(graph: MachineGraph, kind: Vertex) -> list[list[int]]:
    """What hangs below the vertices of a kind."""
    return [graph.children(vertex) for vertex, its in enumerate(graph.kinds) if its is kind]


def minimax(size: int, edges: Iterable[tuple[int, int, float]], a: int, b: int) -> float:
    """The cost at which two vertices come together when edges are taken cheapest first."""
    group = list(range(size))
    for one, two, cost in sorted(edges, key=lambda edge: edge[2]):
        group = [group[one] if its == group[two] else its for its in group]
        if group[a] == group[b]:
            return cost
    raise AssertionError(f"{a} and {b} are not connected")


def inside(kind: DeviceClass, a: int, b: int, weights: Weights | None = None) -> float:
    graph = machine_graph(kind, weights or Weights())
    return minimax(len(graph.kinds), [(edge.a, edge.b, edge.cost) for edge in graph.edges], a, b)


def across(graph: TopologyGraph, one: tuple[int, int], two: tuple[int, int]) -> float:
    """The same for (node, GPU) in a cluster."""
    edges = [(a, b, cost) for (a, b), cost in zip(graph.edges.tolist(), graph.costs.tolist(), strict=True)]
    a, b = (int(graph.first[node]) + gpu for node, gpu in (one, two))
    return minimax(len(graph.kinds), edges, a, b)


def path(*names: str) -> Domain:
    return tuple(zip(("leaf", "spine", "core"), names, strict=False))


def test_gpus_at_one_pcie_switch_hang_below_one_vertex() -> None:
    graph = machine_graph(machine({(0, 1): "PIX", (2, 3): "PIX"}, other="SYS"), Weights())
    assert below(graph, Vertex.PCIE_SWITCH) == [[0, 1], [2, 3]]
    assert graph.children(graph.node) == [4, 5]
    assert Counter(graph.kinds) == {Vertex.GPU: 4, Vertex.PCIE_SWITCH: 2, Vertex.NODE: 1}


def test_switches_sockets_and_node_are_drawn_as_a_tree() -> None:
    links = {pair: "NODE" for side in (range(4), range(4, 8)) for pair in combinations(side, 2)}
    links |= {(a, a + 1): "PIX" for a in (0, 2, 4, 6)}
    graph = machine_graph(machine(links, 8, other="SYS"), Weights())
    assert below(graph, Vertex.PCIE_SWITCH) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert below(graph, Vertex.SOCKET) == [[8, 9], [10, 11]]
    assert below(graph, Vertex.NODE) == [[12, 13]]
    assert graph.kinds[-1] is Vertex.NODE
    assert graph.node == 14


def test_gpus_of_an_nvswitch_hang_below_it_and_no_pair_is_drawn() -> None:
    graph = machine_graph(preset("hgx-h100"), Weights())
    assert graph.nvlink == (8,)
    assert graph.children(8) == list(range(8))
    assert len(graph.edges) == 16


def test_nvlinks_without_a_switch_are_drawn_pair_by_pair() -> None:
    graph = machine_graph(preset("dgx-1v"), Weights())
    assert graph.nvlink == ()
    assert sum(edge.b < 8 for edge in graph.edges) == 16


def test_boards_that_nvlink_does_not_join_have_a_switch_each() -> None:
    boards = {pair: "NV12" for board in (range(4), range(4, 8)) for pair in combinations(board, 2)}
    kind = machine(boards, 8, "NVIDIA A100-SXM4-80GB", other="SYS")
    graph = machine_graph(kind, Weights())
    assert [graph.children(switch) for switch in graph.nvlink] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert inside(kind, 0, 4) == Weights().link_cost(Link.parse("SYS"), "A100")
    assert inside(kind, 0, 3) == Weights().link_cost(Link.parse("NV12"), "A100")


def test_fast_link_that_is_slower_than_pcie_is_not_bettered_by_it() -> None:
    """One NVLink of an H100 is slower than its PCIe; what the document says of the pair still counts."""
    kind = machine({(0, 1): "NV1"}, 2, H100, (0, 0))
    assert inside(kind, 0, 1) == Weights().link_cost(Link.parse("NV1"), H100) > Weights().link_cost(Link.parse("NODE"), H100)


def test_slower_card_decides_what_a_pair_costs() -> None:
    kind = DeviceClass.of([H100, V100, H100], [None] * 3, {(0, 1): "PIX", (1, 2): "PIX", (0, 2): "PIX"})
    assert inside(kind, 0, 1) == Weights().link_cost(Link.parse("PIX"), V100)
    assert inside(kind, 0, 2) == Weights().link_cost(Link.parse("PIX"), H100)


def test_paths_that_are_known_of_some_pairs_only_join_no_others() -> None:
    """Pairs 0-1 and 2-3 are known; nothing is known of the four together."""
    kind = machine({(0, 1): "PCIE", (2, 3): "PCIE"})
    assert inside(kind, 0, 1) == inside(kind, 2, 3) == Weights().link_cost(Link.parse("PCIE"), None)
    assert inside(kind, 0, 2) == Weights().link_cost(Link.parse("?"), None)


def test_two_pairs_within_reach_do_not_bring_the_four_within_reach() -> None:
    kind = machine({(0, 1): "PCIE", (2, 3): "PCIE"}, other="SYS")
    assert inside(kind, 0, 2) == Weights().link_cost(Link.parse("SYS"), None) > inside(kind, 0, 1)


def test_paths_of_which_no_more_is_known_than_that_they_are_pcie_meet_at_the_node() -> None:
    graph = machine_graph(machine({}, other="PCIE"), Weights())
    assert Counter(graph.kinds) == {Vertex.GPU: 4, Vertex.NODE: 1}
    assert {str(edge.link) for edge in graph.edges} == {"PCIE"}


def test_gpu_of_which_nothing_is_known_leaves_the_others_as_near_as_they_are() -> None:
    kind = machine({(0, 1): "SYS", (0, 2): "SYS", (1, 2): "SYS"})
    graph = machine_graph(kind, Weights())
    assert Counter(graph.kinds) == {Vertex.GPU: 4, Vertex.NODE: 1}
    assert {str(edge.link) for edge in graph.edges if edge.a < 3} == {"SYS"}
    assert {str(edge.link) for edge in graph.edges if edge.a == 3} == {"?"}


def test_configured_figures_that_reverse_link_types_reverse_what_meets_first() -> None:
    weights = Weights(overrides=(Override("PIX", 1.0), Override("NODE", 10.0)))
    kind = machine({(0, 1): "PIX"}, 3, other="NODE")
    assert inside(kind, 0, 1, weights) == weights.link_cost(Link.parse("NODE"), None)


def test_machine_of_one_gpu_is_that_gpu_and_the_node() -> None:
    graph = machine_graph(preset("single"), Weights())
    assert graph.kinds == (Vertex.GPU, Vertex.NODE)
    assert len(graph.edges) == 1


def test_cluster_without_nodes_is_one_vertex() -> None:
    graph = build([], [], [], Weights())
    assert graph.kinds.tolist() == [Vertex.DOMAIN]
    assert graph.domains == {(): 0}
    assert graph.matrix().shape == (1, 1)
    assert graph.matrix().nnz == 0


def test_nodes_stand_in_the_order_in_which_they_are_given() -> None:
    kinds = [preset("single"), simulated("hgx-h100")]
    graph = build(kinds, [1, 0, 1], [Place()] * 3, Weights())
    size = len(machine_graph(kinds[1], Weights()).kinds)
    assert graph.first.tolist() == [0, size, size + 2, 2 * size + 2]
    assert [graph.kinds[end - 1] for end in graph.first[1:]] == [Vertex.NODE] * 3
    assert [graph.kinds[start] for start in graph.first[:-1]] == [Vertex.GPU] * 3


def test_one_name_of_a_leaf_under_two_spines_is_two_domains() -> None:
    places = [Place(path("leaf-1", "spine-1")), Place(path("leaf-1", "spine-2")), Place(path("leaf-1", "spine-1"))]
    graph = build([preset("hgx-h100")], [0, 0, 0], places, Weights())
    assert len(graph.domains) == 5
    assert across(graph, (0, 0), (2, 0)) < across(graph, (0, 0), (1, 0))


def test_domains_of_one_name_on_two_levels_are_two_domains() -> None:
    graph = build([preset("single")], [0], [Place(path("x", "x"))], Weights())
    assert set(graph.domains) == {(), path("x", "x"), path("x", "x")[1:]}


def test_domain_that_is_named_like_a_nvlink_domain_is_not_that() -> None:
    graph = build([preset("gb200")], [0], [Place(path("rack-1"), "rack-1")], Weights())
    assert graph.domains[path("rack-1")] != graph.nvlink_domains["rack-1"]


def test_node_without_a_place_hangs_below_the_cluster() -> None:
    graph = build([preset("single")], [0, 0], [Place(path("a")), Place()], Weights())
    assert [graph.first[2] - 1, graph.domains[()]] in graph.edges.tolist()
    assert [graph.first[1] - 1, graph.domains[path("a")]] in graph.edges.tolist()


def test_level_that_is_not_known_of_a_node_is_left_out_and_shifts_no_other() -> None:
    whole, without_leaf = path("leaf-1", "spine-1"), (("spine", "spine-1"),)
    graph = build([preset("hgx-h100")], [0, 0, 0], [Place(whole), Place(without_leaf), Place()], Weights())
    assert [graph.first[2] - 1, graph.domains[without_leaf]] in graph.edges.tolist()
    assert across(graph, (0, 0), (1, 0)) < across(graph, (0, 0), (2, 0))


@pytest.mark.parametrize("name", presets.names())
def test_each_wider_level_costs_more_whatever_the_machine(name: str) -> None:
    """Between sockets PCIe may be slower than the network: then no level may fall together with the next."""
    names = [("l1", "s1", "c1"), ("l1", "s1", "c1"), ("l2", "s1", "c1"), ("l3", "s2", "c1"), ("l4", "s3", "c2")]
    graph = build([preset(name)], [0] * 5, [Place(path(*each)) for each in names], Weights())
    costs = [across(graph, (0, 0), (node, 0)) for node in range(1, 5)]
    if presets.document(name).gpus[1:]:
        costs.insert(0, across(graph, (0, 0), (0, 1)))
    assert all(near < wide for near, wide in pairwise(costs)), costs


def test_classic_scale_puts_all_levels_at_one_weight_beyond_the_machine() -> None:
    places = [Place(path("l1", "s1")), Place(path("l1", "s1")), Place(path("l9", "s9"))]
    graph = build([preset("pcie-8")], [0] * 3, places, Weights(Profile.CLASSIC))
    assert [across(graph, (0, 0), each) for each in ((0, 1), (1, 0), (2, 0))] == [15, 50, 50]


def test_level_that_is_configured_slow_is_never_cheaper_above() -> None:
    weights = Weights(overrides=(Override("leaf", 1.0, level=True),))
    places = [Place(path("l1", "s1")), Place(path("l1", "s1")), Place(path("l2", "s1")), Place(path("l3", "s2"))]
    graph = build([preset("hgx-h100")], [0] * 4, places, weights)
    costs = [across(graph, (0, 0), (node, 0)) for node in (1, 2, 3)]
    assert costs[0] > 1000
    assert costs == sorted(costs)


def test_slowest_node_below_decides_what_a_domain_costs() -> None:
    places = [Place(path("l1", "s1")), Place(path("l1", "s1")), Place(path("l2", "s1"))]
    only_fast = build([preset("hgx-h100"), preset("dgx-1v")], [0, 0, 0], places, Weights())
    mixed = build([preset("hgx-h100"), preset("dgx-1v")], [0, 1, 0], places, Weights())
    assert across(mixed, (0, 0), (2, 0)) > across(only_fast, (0, 0), (2, 0))


def test_trays_of_one_nvlink_domain_are_joined_at_the_cost_of_nvlink() -> None:
    places = [Place(path("l1"), "rack-1"), Place(path("l2"), "rack-1"), Place(path("l1"), "rack-2"), Place(path("l2"), "rack-2")]
    graph = build([preset("gb200")], [0] * 4, places, Weights())
    nvlink = Weights().link_cost(Link.parse("NV18"), "GB200")
    assert across(graph, (0, 0), (1, 3)) == across(graph, (2, 0), (3, 3)) == across(graph, (0, 0), (0, 1)) == nvlink
    # The racks reach each other through the leaves that they share.
    assert across(graph, (0, 0), (2, 0)) > nvlink
    assert set(graph.nvlink_domains) == {"rack-1", "rack-2"}


def test_tray_without_a_switch_of_its_own_joins_each_gpu_and_betters_no_pair() -> None:
    tray = machine({(0, 1): "NV2", (2, 3): "NV2", (0, 2): "NV1", (1, 3): "NV1"}, 4, H100, other="NV1")
    graph = build([tray], [0, 0], [Place((), "rack")] * 2, Weights())
    nv1, nv2 = (Weights().link_cost(Link.parse(link), H100) for link in ("NV1", "NV2"))
    assert across(graph, (0, 0), (0, 1)) == nv2
    assert across(graph, (0, 0), (0, 3)) == across(graph, (0, 0), (1, 0)) == nv1


def test_node_without_nvlink_in_a_nvlink_domain_is_not_joined_by_it() -> None:
    graph = build([preset("pcie-2"), preset("gb200")], [0, 1, 1], [Place((), "rack")] * 3, Weights())
    assert across(graph, (0, 0), (1, 0)) > across(graph, (1, 0), (2, 0))


def test_graph_is_one_component_and_holds_no_zero() -> None:
    kinds = [preset("hgx-h100"), preset("gb200"), preset("single"), simulated("dgx-1v")]
    places = [Place(path(f"l{i % 5}", f"s{i % 2}")[: i % 3], "rack" if i % 4 == 1 else None) for i in range(40)]
    graph = build(kinds, [i % 4 for i in range(40)], places, Weights())
    components, _ = connected_components(graph.matrix(), directed=False)
    assert components == 1
    assert graph.matrix().nnz == len(graph.edges) == len(graph.costs)
    assert (graph.costs > 0).all()
    assert minimum_spanning_tree(graph.matrix()).nnz == len(graph.kinds) - 1


def test_same_cluster_gives_the_same_arrays() -> None:
    places = [Place(path(f"l{i % 3}", f"s{i % 2}"), f"rack-{i % 2}") for i in range(12)]
    one, two = (build([preset("gb200"), preset("hgx-h100")], [i % 2 for i in range(12)], places, Weights()) for _ in range(2))
    for name in ("kinds", "edges", "costs", "first"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert list(one.domains.items()) == list(two.domains.items())

"""Snapshot files: what is read, what is told, and what is refused with its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pyscheduler.core.fabric.place import Place
from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.snapshot import Snapshot, of_json

NODE: dict[str, Any] = {
    "name": "box-7",
    "path": ["row-b", "hall-2"],
    "gpus": [
        {"id": "g0", "numa": 0, "healthy": True, "allocated": False, "model": "H200"},
        {"id": "g1", "numa": 0, "allocated": True},
        {"id": "g2", "numa": 1, "healthy": False},
    ],
    "links": {"g0-g1": "NV6", "g1-g2": "SYS"},
    "nics": ["ib0", "ib1"],
    "nic_links": {"g0-ib0": "PIX", "g2-ib1": "PXB"},
}
WHOLE: dict[str, Any] = {"version": 1, "levels": ["row", "hall"], "nodes": [NODE]}


def links_of(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(str(link) for link in snapshot.nodes[0].kind.device_class.links)


def with_node(**changes: Any) -> dict[str, Any]:
    """Return the snapshot with these fields of its node changed."""
    return {**WHOLE, "nodes": [{**NODE, **changes}]}


def with_gpu(**changes: Any) -> dict[str, Any]:
    changed = copy.deepcopy(WHOLE)
    changed["nodes"][0]["gpus"][1].update(changes)
    return changed


def two(links: Any = None, **changes: Any) -> Snapshot:
    """Return a snapshot of one node with the GPUs a, b and c."""
    node = {"name": "n", "gpus": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "links": links or {}, **changes}
    return of_json({"nodes": [node]})


def codes(snapshot: Snapshot) -> list[str]:
    return [finding.code for finding in snapshot.findings]


def test_every_field_of_a_snapshot_is_read():
    snapshot = of_json(WHOLE)
    node = snapshot.nodes[0]

    assert (snapshot.levels, snapshot.findings) == (("row", "hall"), ())
    assert (node.name, node.place, node.complete) == ("box-7", Place((("row", "row-b"), ("hall", "hall-2"))), True)
    assert (node.healthy, node.allocated, node.free) == (0b011, 0b010, 0b001)
    kind = node.kind
    assert kind.ids == ("g0", "g1", "g2")
    assert kind.device_class.models == ("H200", None, None)
    assert kind.device_class.numa == (0, 0, 1)
    # A pair that is not there is unknown.
    assert kind.device_class.links == (Link(Kind.NVLINK, 6), UNKNOWN_LINK, Link(Kind.SYS))
    assert kind.device_class.nics == ("ib0", "ib1")
    assert kind.device_class.nic_links == (
        (Link(Kind.PIX), UNKNOWN_LINK),
        (UNKNOWN_LINK, UNKNOWN_LINK),
        (UNKNOWN_LINK, Link(Kind.PXB)),
    )
    assert (kind.device_class.costs, kind.device_class.partitions, kind.p2p) == ((), (), {})


def test_what_is_left_out_is_unknown_healthy_and_free():
    snapshot = of_json({"nodes": [{"name": "n", "gpus": [{"id": "a"}, {"id": "b"}]}]})
    node = snapshot.nodes[0]

    assert (snapshot.levels, node.place, node.complete, node.free) == ((), Place(), True, 0b11)
    assert (node.kind.device_class.models, node.kind.device_class.numa) == ((None, None), (None, None))
    assert (links_of(snapshot), node.kind.device_class.nic_links) == (("?",), ())


def test_a_cluster_without_nodes_and_a_node_without_gpus_are_what_they_are():
    assert of_json({"version": 1, "levels": [], "nodes": []}).nodes == ()
    assert of_json({"nodes": [{"name": "n", "gpus": []}]}).nodes[0].kind.ids == ()


@pytest.mark.parametrize("unknown", [None, ""])
def test_a_level_that_is_not_known_is_left_out_and_shifts_no_other(unknown):
    raw = {"levels": ["row", "hall", "site"], "nodes": [{"name": "n", "path": [unknown, "hall-1", unknown, unknown], "gpus": []}]}

    assert of_json(raw).nodes[0].place == Place((("hall", "hall-1"),))


def test_an_nvlink_domain_is_read_as_in_a_fabric_document():
    assert of_json(with_node(nvlink_domain="c0ffee.7")).nodes[0].place.nvlink_domain == "c0ffee.7"


def test_a_level_of_nvlink_domains_is_one_wherever_it_is_written():
    raw: dict[str, Any] = {"levels": ["nvlink-domain", "hall"], "nodes": [{"name": "n", "path": ["c4", "hall-1"], "gpus": []}]}

    assert of_json(raw).nodes[0].place == Place((("hall", "hall-1"),), "c4/hall-1")
    raw["nodes"][0]["nvlink_domain"] = "c0ffee.4"
    assert of_json(raw).nodes[0].place == Place((("hall", "hall-1"),), "c0ffee.4")


def test_names_that_yaml_makes_numbers_are_names():
    snapshot = of_json(
        {"levels": ["row"], "nodes": [{"name": 12, "path": [3], "gpus": [{"id": 0}, {"id": 1}], "links": {"0-1": "PIX"}}]}
    )

    assert (snapshot.nodes[0].name, snapshot.nodes[0].place.path) == ("12", (("row", "3"),))
    assert links_of(snapshot) == ("PIX",)


@pytest.mark.parametrize(("numa", "known"), [(None, None), (-1, None), (0, 0), (7, 7)])
def test_minus_one_is_how_linux_says_that_the_numa_node_is_not_known(numa, known):
    assert of_json(with_gpu(numa=numa)).nodes[0].kind.device_class.numa[1] == known


def test_of_two_directions_the_weaker_counts_and_is_told_with_the_node():
    snapshot = two({"a-b": "NV2", "b-a": "PHB", "c-a": "PIX", "a-c": "PIX"})

    assert links_of(snapshot) == ("PHB", "PIX", "?")
    assert codes(snapshot) == ["direction-mismatch"]
    assert snapshot.findings[0].node == "n"
    assert "link a-b is NV2 one way and PHB the other" in snapshot.findings[0].message


def test_of_two_directions_the_higher_cost_counts():
    snapshot = two({"a-b": {"type": "XGMI", "cost": 11}, "b-a": {"type": "XGMI", "cost": 44}})

    assert snapshot.nodes[0].kind.device_class.costs == (44, None, None)
    assert codes(snapshot) == ["direction-mismatch"]


def test_costs_stand_beside_the_links_of_the_pairs_that_have_one():
    snapshot = two({"a-b": {"type": "XGMI", "cost": 13}, "a-c": {"type": "PCIE", "cost": 52}, "b-c": "XGMI"})

    assert links_of(snapshot) == ("XGMI", "PCIE", "XGMI")
    assert snapshot.nodes[0].kind.device_class.costs == (13, 52, None)


def test_a_cost_of_zero_is_not_the_nearest_but_unknown():
    snapshot = two({"a-b": {"type": "XGMI", "cost": 0}, "a-c": {"type": "XGMI", "cost": 13}})

    assert snapshot.nodes[0].kind.device_class.costs == (None, 13, None)
    assert codes(snapshot) == ["cost-zero"]


@pytest.mark.parametrize("value", [None, "?", {"type": None}, {"type": "?"}, {}])
def test_a_link_of_no_type_is_unknown(value):
    assert links_of(two({"a-b": value}))[0] == "?"


@pytest.mark.parametrize(("same_numa", "expected"), [(True, "PHB"), (False, "SYS")])
def test_a_pair_without_peer_access_is_on_the_path_through_the_host(same_numa, expected):
    gpus = [{"id": "a", "numa": 0}, {"id": "b", "numa": 0 if same_numa else 1}, {"id": "c"}]
    snapshot = two({"a-b": {"type": "XGMI2", "cost": 13}, "b-c": "NV4"}, gpus=gpus, p2p={"b-a": "CNS", "b-c": "OK"})
    kind = snapshot.nodes[0].kind

    assert links_of(snapshot) == (expected, "?", "NV4")
    assert kind.p2p == {(0, 1): "CNS"}
    # The cost was that of the link that is not used.
    assert kind.device_class.costs == ()


def test_partitions_are_masks_each_once():
    snapshot = two(partitions=[["c", "a"], ["b"], ["a", "c"]])

    assert snapshot.nodes[0].kind.device_class.partitions == (0b101, 0b010)


@pytest.mark.parametrize("partitions", [None, []])
def test_without_partitions_any_set_may_be_given_out(partitions):
    assert two(partitions=partitions).nodes[0].kind.device_class.partitions == ()


def test_ids_may_hold_the_dash_that_parts_a_key():
    gpus = [{"id": "GPU-1f-0"}, {"id": "GPU-1f"}, {"id": "0-x"}]
    snapshot = two({"GPU-1f-0-GPU-1f": "NV3"}, gpus=gpus, nics=["mlx-5"], nic_links={"GPU-1f-mlx-5": "PHB"})

    assert links_of(snapshot) == ("NV3", "?", "?")
    assert [str(row[0]) for row in snapshot.nodes[0].kind.device_class.nic_links] == ["?", "PHB", "?"]


def test_a_key_that_can_be_read_in_two_ways_is_refused():
    with pytest.raises(RefusedError, match=r"nodes\[0\].links: 'x-y-z' can be read as several pairs"):
        two({"x-y-z": "PIX"}, gpus=[{"id": "x"}, {"id": "y-z"}, {"id": "x-y"}, {"id": "z"}])


def test_nodes_with_equal_machines_share_them_whatever_is_free():
    busy = {**NODE, "name": "box-8", "gpus": [{**gpu, "allocated": True} for gpu in NODE["gpus"]]}
    snapshot = of_json({**WHOLE, "nodes": [NODE, busy]})

    assert snapshot.nodes[0].kind is snapshot.nodes[1].kind
    assert (snapshot.nodes[0].free, snapshot.nodes[1].free) == (0b001, 0)


def test_what_is_wrong_with_equal_machines_is_told_of_each_node():
    node = {"gpus": [{"id": "a"}, {"id": "b"}], "links": {"a-b": "NV2", "b-a": "NV1"}}
    snapshot = of_json({"nodes": [{**node, "name": "n1"}, {**node, "name": "n2"}]})

    assert [(finding.code, finding.node) for finding in snapshot.findings] == [
        ("direction-mismatch", "n1"),
        ("direction-mismatch", "n2"),
    ]


def test_a_field_that_is_not_read_is_told():
    snapshot = of_json({**with_node(link={"g0-g1": "NV2"}), "comment": "of Monday"})

    assert [(finding.code, finding.node) for finding in snapshot.findings] == [("field-unknown", ""), ("field-unknown", "box-7")]
    assert "'link'" in snapshot.findings[1].message


REFUSED: list[tuple[Any, str]] = [
    (None, "is no snapshot"),
    ([WHOLE], "is no snapshot"),
    ({"version": 1, "levels": []}, "is no snapshot"),
    ({**WHOLE, "version": 2}, r"version: 2 is not known, this release reads version 1"),
    ({**WHOLE, "version": True}, r"version: True"),
    ({**WHOLE, "levels": "row"}, r"levels: 'row' must be a list"),
    ({**WHOLE, "levels": ["row", ""]}, r"levels\[1\]: '' must be a text"),
    ({**WHOLE, "levels": ["row", "row"]}, r"levels: the level 'row' stands there twice"),
    ({**WHOLE, "levels": ["node", "row"]}, r"levels\[0\]: 'node' is the machine itself"),
    ({**WHOLE, "nodes": {}}, r"nodes: \{\} must be a list"),
    ({**WHOLE, "nodes": None}, r"nodes: None must be a list"),
    ({**WHOLE, "nodes": ["n1"]}, r"nodes\[0\]: 'n1' must be an object"),
    ({**WHOLE, "nodes": [NODE, NODE]}, r"nodes: the node 'box-7' stands there twice"),
    (with_node(name=None), r"nodes\[0\].name: None must be a text"),
    (with_node(name="a\nb"), r"nodes\[0\].name: 'a\\nb' must be a text without line breaks"),
    (with_node(path="row-b"), r"nodes\[0\].path: 'row-b' must be a list"),
    (with_node(path=["a", "b", "c"]), r"nodes\[0\].path: has 3 domains, but the snapshot has 2 levels"),
    (with_node(path=[["a"], "b"]), r"nodes\[0\].path\[0\]: \['a'\] must be a text"),
    (with_node(gpus=None), r"nodes\[0\].gpus: None must be a list; \[\] if node 'box-7' has no GPU"),
    (with_node(gpus=[7]), r"nodes\[0\].gpus\[0\]: 7 must be an object"),
    (with_node(gpus=[{"id": "g0"}, {"id": "g0"}]), r"nodes\[0\].gpus: the GPU 'g0' stands there twice"),
    (with_node(gpus=[{"id": f"g{i}"} for i in range(2000)]), r"nodes\[0\].gpus: lists 2000 GPUs"),
    (with_gpu(id=""), r"nodes\[0\].gpus\[1\].id: '' must be a text"),
    (with_gpu(numa=-2), r"nodes\[0\].gpus\[1\].numa: -2 must be a whole number from 0"),
    (with_gpu(numa="0-3"), r"nodes\[0\].gpus\[1\].numa: '0-3' must be a whole number"),
    (with_gpu(numa=True), r"nodes\[0\].gpus\[1\].numa: True must be a whole number"),
    (with_gpu(healthy="no"), r"nodes\[0\].gpus\[1\].healthy: 'no' must be true or false"),
    (with_gpu(allocated=1), r"nodes\[0\].gpus\[1\].allocated: 1 must be true or false"),
    (with_gpu(model=["H200"]), r"nodes\[0\].gpus\[1\].model: \['H200'\] must be a text"),
    (with_node(links=[{"a": "g0", "b": "g1"}]), r"nodes\[0\].links: .* must be an object"),
    (
        with_node(links={"g0-g9": "NV6"}),
        r"nodes\[0\].links: 'g0-g9' names no pair of the node: write \"A-B\" with two of its GPUs \('g0', 'g1', 'g2'\)",
    ),
    (with_node(links={"-" * 100_000: "NV6"}), r"nodes\[0\].links: '-+\.\.\. names no pair of the node"),
    (with_node(links={"g0": "NV6"}), r"nodes\[0\].links: 'g0' names no pair of the node"),
    (with_node(links={"g0-g0": "NV6"}), r"nodes\[0\].links: 'g0-g0' names one GPU twice"),
    (with_node(links={"g0-g1": "NVLINK"}), r"nodes\[0\].links\['g0-g1'\]: link type 'NVLINK' is not known; use NV<n>"),
    (with_node(links={"g0-g1": 6}), r"nodes\[0\].links\['g0-g1'\]: 6 must be a link type"),
    (
        with_node(links={"g0-g1": {"type": "XGMI", "cost": -15}}),
        r"nodes\[0\].links\['g0-g1'\].cost: -15 must be a whole number from 0",
    ),
    (with_node(links={"g0-g1": {"type": "XGMI", "cost": 1.5}}), r"cost: 1.5 must be a whole number"),
    (with_node(p2p={"g0-g1": 3.5}), r"nodes\[0\].p2p\['g0-g1'\]: 3.5 must be a text"),
    (with_node(p2p={"g0-g8": "OK"}), r"nodes\[0\].p2p: 'g0-g8' names no pair of the node"),
    (with_node(nics=["ib0", "ib0"]), r"nodes\[0\].nics: the NIC 'ib0' stands there twice"),
    (
        with_node(nic_links={"g0-ib7": "PIX"}),
        r"nodes\[0\].nic_links: 'g0-ib7' names no pair of the node: write \"GPU-NIC\" .*'ib0', 'ib1'",
    ),
    (with_node(nic_links={"g0-ib0": "near"}), r"nodes\[0\].nic_links\['g0-ib0'\]: link type 'near' is not known"),
    (with_node(partitions=["g0"]), r"nodes\[0\].partitions\[0\]: 'g0' must be a list of GPU ids"),
    (with_node(partitions=[["g0"], []]), r"nodes\[0\].partitions\[1\]: \[\] must be a list of GPU ids"),
    (with_node(partitions=[["g0", "g0"]]), r"nodes\[0\].partitions\[0\]: the GPU 'g0' stands there twice"),
    (with_node(partitions=[["g5"]]), r"nodes\[0\].partitions\[0\]: the node has no GPU 'g5'"),
    (with_node(complete="no"), r"nodes\[0\].complete: 'no' must be true or false"),
]


@pytest.mark.parametrize(("raw", "words"), REFUSED)
def test_what_has_no_meaning_is_refused_with_its_place_in_one_line(raw, words):
    with pytest.raises(RefusedError, match=words) as refused:
        of_json(raw)
    assert "\n" not in str(refused.value)

"""All objects of a cluster together: what cannot be read is told and keeps nothing else from being read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.local import machines
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import class_hash
from pyscheduler.core.machine.weights import Override, Weights
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers import class_document, node_document
from pyscheduler.readers.cluster_objects import ClusterObjects
from pyscheduler.readers.fabric.rules import FabricConfig
from pyscheduler.readers.objects import TOPOLOGY, ObjectReader

GPU = "nvidia.com/gpu"
LABELS = FabricConfig()
BOARD = node_document.parse(json.dumps(machines.document("hgx-h100", "any")))
SHARED = class_of(BOARD)


def node(name: Any = "n1", labels: Any = None, document: str | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "labels": labels or {}}
    if document:
        meta["annotations"] = {TOPOLOGY: document}
    return {"kind": "Node", "metadata": meta, "status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}}


def short_form() -> str:
    raw = json.loads(node_document.dump(BOARD, shared=True))
    return json.dumps({**raw, "class_hash": class_hash(SHARED)})


def read(objects: ClusterObjects, fabric: FabricConfig = LABELS) -> tuple[dict[str, NodeRecord], tuple[Finding, ...]]:
    records, findings = objects.records(ObjectReader((GPU,)), fabric, Weights(), 1_800_000_000.0)
    assert len({record.name for record in records}) == len(records)
    return {record.name: record for record in records}, findings


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def hypernode(name: str, tier: int, *members: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "HyperNode", "metadata": {"name": name}, "spec": {"tier": tier, "members": list(members)}}


def member(name: str, kind: str = "Node") -> dict[str, Any]:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(None, id="null"),
        pytest.param("n2", id="a text"),
        pytest.param([], id="a list"),
        pytest.param({}, id="without metadata"),
        pytest.param({"metadata": None}, id="metadata null"),
        pytest.param({"metadata": {"labels": {}}}, id="without a name"),
        pytest.param(node(name=5), id="name a number"),
        pytest.param(node(name=["n2"]), id="name a list"),
        pytest.param(node("n2", labels=["a"]), id="labels a list"),
        pytest.param(node("n2", labels={"fabric.topograph.run/tier-0": 7}), id="a label a number"),
        pytest.param({**node("n2"), "status": []}, id="status a list"),
        pytest.param({**node("n2"), "status": {"allocatable": 3}}, id="allocatable a number"),
    ],
)
def test_node_that_cannot_be_read_is_told_and_the_others_are_read(bad: Any) -> None:
    records, findings = read(ClusterObjects(nodes=[node("n1"), bad, node("n3")]))
    assert findings == ()
    assert records.keys() > {"n1", "n3"}
    assert records["n1"].capacity == records["n3"].capacity == 8
    (other,) = records.keys() - {"n1", "n3"}
    if bad and isinstance(bad, dict) and bad.get("status") == []:
        assert records[other].capacity == 0
    else:
        assert codes(records[other].findings) == ["node-unreadable"]
        assert records[other].findings[0].severity is Severity.ERROR


def test_nodes_without_a_name_are_told_by_their_place_in_the_list() -> None:
    records, _ = read(ClusterObjects(nodes=[{}, node("n1"), {}]))
    assert list(records) == ["node 0 of the list", "n1", "node 2 of the list"]


def test_unreadable_node_does_not_keep_hypernodes_from_being_matched() -> None:
    objects = ClusterObjects(
        nodes=[node("n1"), node("n2", labels=["a"]), None],  # type: ignore[list-item]
        fabric=[hypernode("leaf-1", 1, member("n1"), {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}})],
    )
    records, findings = read(objects, FabricConfig("hypernodes"))
    assert records["n1"].place.path == (("tier-1", "leaf-1"),)
    assert codes(findings) == ["hypernode-member-unmatched"]


def test_node_that_stands_twice_alike_is_one() -> None:
    records, findings = read(ClusterObjects(nodes=[node("n1"), node("n1")]))
    assert list(records) == ["n1"]
    assert records["n1"].findings == findings == ()


def test_node_that_stands_twice_and_not_alike_counts_as_first_written_and_is_told_once() -> None:
    first, second = node("n1", {"fabric.topograph.run/tier-0": "a"}), node("n1", {"fabric.topograph.run/tier-0": "b"})
    records, _ = read(ClusterObjects(nodes=[first, second, second, first]))
    assert records["n1"].place.path == (("tier-0", "a"),)
    assert codes(records["n1"].findings) == ["node-repeated"]


def test_class_in_a_config_map_completes_the_nodes_that_name_it() -> None:
    objects = ClusterObjects(
        nodes=[node("n1", document=short_form()), node("n2", document=short_form())],
        classes=[dict(class_document.config_map(SHARED, "here"))],
    )
    records, findings = read(objects)
    assert findings == ()
    for record in records.values():
        assert record.findings == ()
        assert record.document
        assert record.document.links == BOARD.links


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"metadata": {"name": "c1"}}, id="no data"),
        pytest.param({"metadata": {"name": "c1"}, "data": ["x"]}, id="data a list"),
        pytest.param({"metadata": None, "data": {class_document.KEY: "{"}}, id="cut, without a name"),
        pytest.param({"metadata": ["c1"], "data": {class_document.KEY: "7"}}, id="a number"),
        pytest.param({"metadata": {"name": "c1"}, "data": {class_document.KEY: "[" * 50_000}}, id="nested without end"),
    ],
)
def test_config_map_without_a_usable_class_is_told_and_the_others_are_read(bad: dict[str, Any]) -> None:
    objects = ClusterObjects(
        nodes=[node("n1", document=short_form())],
        classes=[bad, dict(class_document.config_map(SHARED, "here"))],
    )
    records, findings = read(objects)
    assert codes(findings) == ["class-unusable"]
    assert "ConfigMap" in findings[0].message
    assert records["n1"].document


def test_node_whose_class_is_nowhere_keeps_its_number_of_gpus() -> None:
    records, _ = read(ClusterObjects(nodes=[node("n1", document=short_form())]))
    assert records["n1"].document is None
    assert records["n1"].capacity == 8
    assert codes(records["n1"].findings) == ["class-unknown"]


def test_topology_of_kueue_says_the_levels() -> None:
    topology = {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": "row"}, {"nodeLabel": "rack"}]}}
    objects = ClusterObjects(nodes=[node("n1", {"row": "w", "rack": "7"})], fabric=[topology])
    records, findings = read(objects, FabricConfig("kueue", "racks"))
    assert findings == ()
    assert records["n1"].place.path == (("rack", "7"), ("row", "w"))


@pytest.mark.parametrize(
    "fabric",
    [[], [{"metadata": {"name": "other"}, "spec": {}}], [{"spec": {}}], [None], [{"metadata": "racks"}]],
)
def test_topology_of_kueue_that_is_not_there_is_told_and_nodes_are_read_without_places(fabric: list[Any]) -> None:
    objects = ClusterObjects(nodes=[node("n1", {"rack": "7"})], fabric=fabric)
    records, findings = read(objects, FabricConfig("kueue", "racks"))
    assert codes(findings) == ["kueue-topology"]
    assert findings[0].severity is Severity.ERROR
    assert "'racks'" in findings[0].message
    assert records["n1"].place.path == ()


def test_members_of_hypernodes_that_no_node_is_are_told() -> None:
    objects = ClusterObjects(nodes=[node("n1")], fabric=[hypernode("leaf-1", 1, member("n1"), member("n9"))])
    records, findings = read(objects, FabricConfig("hypernodes"))
    assert records["n1"].place.path == (("tier-1", "leaf-1"),)
    assert codes(findings) == ["hypernode-member-unmatched"]
    assert "n9" in findings[0].message
    assert "n1" not in findings[0].message.replace("leaf-1", "")


def test_no_objects_are_no_nodes_and_nothing_wrong() -> None:
    assert read(ClusterObjects()) == ({}, ())


def test_weight_of_a_level_that_no_node_is_in_is_told() -> None:
    weights = Weights(overrides=(Override("spine", 12.5, level=True), Override("tier-0", 25.0, level=True)))
    labelled = node(labels={"fabric.topograph.run/tier-0": "leaf-1"})
    _, findings = ClusterObjects(nodes=[labelled]).records(ObjectReader((GPU,)), LABELS, weights, 0.0)
    assert [(f.code, "'spine'" in f.message, "tier-0" in f.remedy) for f in findings] == [("weight-level-unknown", True, True)]

"""Labels of nodes, of every family, to a fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.readers.fabric import node_labels
from pyscheduler.readers.reading import RefusedError

NEW = "fabric.topograph.run/tier-"
OLD = "network.topology.nvidia.com/"
AWS = "topology.k8s.aws/network-node-layer-"
GCP = "cloud.google.com/gce-topology-"
OCI = "oci.oraclecloud.com/host."
CLIQUE = "nvidia.com/gpu.clique"


def objects(**labels: dict[str, Any] | None) -> str:
    items = [{"kind": "Node", "apiVersion": "v1", "metadata": {"name": n, "labels": its}} for n, its in labels.items()]
    return json.dumps({"kind": "List", "items": items})


def paths(text: str) -> dict[str, list[str | None]]:
    return {node["name"]: node["path"] for node in node_labels.read(text).body["nodes"]}


def domains(text: str) -> dict[str, str | None]:
    return {node["name"]: node["nvlink_domain"] for node in node_labels.read(text).body["nodes"]}


def messages(text: str) -> list[str]:
    return [f"{finding.code}: {finding.message}" for finding in node_labels.read(text).findings]


def test_tier_0_of_topograph_is_nearest():
    text = objects(a={f"{NEW}0": "l1", f"{NEW}1": "s1", f"{NEW}2": "c1"}, b={f"{NEW}0": "l2", f"{NEW}1": "s1"})

    assert node_labels.recognises(text)
    assert paths(text) == {"a": ["l1", "s1", "c1"], "b": ["l2", "s1"]}
    assert node_labels.read(text).body["levels"] == ["tier-0", "tier-1", "tier-2"]
    assert messages(text) == []  # trees of different depth are legal


def test_the_highest_layer_of_aws_is_nearest():
    text = objects(a={f"{AWS}1": "root", f"{AWS}2": "mid", f"{AWS}3": "near"})

    assert paths(text) == {"a": ["near", "mid", "root"]}
    assert node_labels.read(text).body["levels"] == ["layer-3", "layer-2", "layer-1"]


@pytest.mark.parametrize(
    ("labels", "path"),
    [
        ({f"{GCP}block": "B", f"{GCP}host": "H", f"{GCP}subblock": "S"}, ["H", "S", "B"]),
        ({f"{OLD}datacenter": "d", f"{OLD}spine": "s", f"{OLD}block": "b"}, ["b", "s", "d"]),
        ({"oci.oraclecloud.com/rdma.hpc_island_id": "i", "oci.oraclecloud.com/rdma.local_block_id": "l"}, ["l", None, "i"]),
        ({"backend.coreweave.cloud/fabric": "f", "backend.coreweave.cloud/leafgroup": "g"}, ["g", None, "f"]),
        ({"topology.nebius.com/tier-1": "l", "topology.nebius.com/gpu-cluster-id": "c"}, ["l", "c"]),
        ({"crusoe.ai/ib.partition.id": "p", "crusoe.ai/pod.id": "d"}, ["d", "p"]),
    ],
)
def test_families_of_clouds_are_ordered_nearest_first(labels: dict[str, str], path: list[str]):
    assert paths(objects(n=labels)) == {"n": path}


def test_a_missing_label_is_an_unknown_level_and_shifts_no_other():
    text = objects(a={f"{OCI}rack_id": "r0", f"{OCI}network_block_id": "b0"}, b={f"{OCI}network_block_id": "b0"})

    assert paths(text) == {"a": ["r0", "b0"], "b": [None, "b0"]}
    assert messages(text) == [f"level-missing: b: label {OCI}rack_id is missing: its rack is unknown"]


def test_an_empty_label_is_missing_even_if_no_node_has_a_value():
    text = objects(a={f"{OLD}leaf": "l1", f"{OLD}spine": "", f"{OLD}core": "c1"})

    assert paths(text) == {"a": ["l1", None, "c1"]}
    assert messages(text) == [f"level-missing: a: label {OLD}spine is empty: its spine is unknown"]


def test_a_gap_between_levels_stays_a_level():
    assert paths(objects(a={f"{NEW}0": "l1", f"{NEW}2": "c1"})) == {"a": ["l1", None, "c1"]}


def test_the_newer_generation_wins_whole_and_says_so():
    stale = {f"{OLD}leaf": "l1", f"{OLD}core": "c1", f"{OLD}accelerator": "nvl-old"}
    text = objects(a={**stale, f"{NEW}0": "l7", f"{NEW}1": "s3"}, b={f"{NEW}0": "l7"}, c=stale)

    assert paths(text) == {"a": ["l7", "s3"], "b": ["l7"], "c": ["l1", None, "c1"]}
    assert domains(text) == {"a": None, "b": None, "c": "nvl-old"}
    assert messages(text)[0].startswith("label-families-disagree: a: ")


def test_generations_that_agree_need_no_word():
    both = {f"{OLD}leaf": "l1", f"{NEW}0": "l1", f"{OLD}accelerator": "d", "accelerator.topograph.run/domain": "d"}

    assert messages(objects(a=both)) == []


def test_a_domain_of_topograph_stands_beside_the_path_of_a_cloud():
    text = objects(a={f"{AWS}1": "root", f"{AWS}2": "near", "accelerator.topograph.run/domain": "d1"})

    assert (paths(text), domains(text)) == ({"a": ["near", "root"]}, {"a": "d1"})


def test_the_whole_clique_is_the_domain():
    one, two = "aaaa-01.7", "bbbb-02.7"
    text = objects(a={CLIQUE: one}, b={CLIQUE: two}, c={CLIQUE: ".7"}, d={CLIQUE: "0000-00.7"}, e=None, f={CLIQUE: "aaaa-01"})

    assert domains(text) == {"a": one, "b": two, "c": None, "d": None, "e": None, "f": None}
    assert set(map(tuple, paths(text).values())) == {()}
    assert [m.split(":")[1].strip() for m in messages(text)] == ["c", "d", "f"]


def test_numbers_are_values_and_other_things_are_not():
    text = objects(a={f"{NEW}0": 7}, b={f"{NEW}0": True}, c={f"{NEW}0": 1.1})

    assert paths(text) == {"a": ["7"], "b": [], "c": []}
    assert f"label-not-text: b, c: label {NEW}0 is no text: its value is unknown" in messages(text)


def test_a_node_listed_twice_keeps_what_both_say():
    first, second = {f"{NEW}0": "l1", f"{NEW}1": "s1"}, {f"{NEW}0": "l2", f"{NEW}1": "s1"}
    text = json.dumps([{"kind": "Node", "metadata": {"name": "a", "labels": its}} for its in (first, second)])

    assert paths(text) == {"a": [None, "s1"]}
    assert messages(text) == ["node-repeated: a: listed twice with other labels; only what both say is kept"]


def test_levels_in_the_wrong_order_are_found_by_counting():
    reversed_tiers = {f"n{i}": {f"{NEW}0": "core", f"{NEW}1": f"leaf-{i}"} for i in range(3)}

    assert [m.split(":")[0] for m in messages(objects(**reversed_tiers))] == ["tier-inversion"]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"Nodes": [{"Name": "n1", "InstanceId": "i-1", "Topology": {f"{AWS}1": "r"}}]}),
        json.dumps({"n1": {"labels": {f"{AWS}1": "r"}}}),
        json.dumps({"n1": {f"{AWS}1": "r"}}),
        json.dumps([{"name": "n1", "labels": {f"{AWS}1": "r"}}]),
        json.dumps({"kubernetes.io/hostname": "n1", f"{AWS}1": "r"}),
        f"NAME  STATUS  LABELS\n\x1b[1mn1\x1b[0m    Ready   kubernetes.io/os=linux,{AWS}1=r\n",
    ],
)
def test_names_with_labels_are_read_in_every_form(text: str):
    assert node_labels.recognises(text)
    assert paths(text) == {"n1": ["r"]}


def test_a_table_keeps_nodes_without_a_place():
    text = f"a1 Ready kubernetes.io/os=linux,{GCP}block=B\nc1 Ready kubernetes.io/os=linux\n"

    assert paths(text) == {"a1": ["B"], "c1": []}
    assert messages(text)[-1].startswith("node-unplaced: c1")


def test_nodes_without_any_label_of_a_fabric_are_refused():
    text = objects(a={"nvidia.com/gpu.product": "H100", "topology.kubernetes.io/zone": "z1"}, b=None)

    assert node_labels.recognises(text)
    with pytest.raises(RefusedError, match="no label of 2 nodes"):
        node_labels.read(text)


def test_other_objects_are_not_claimed():
    for raw in (
        {"kind": "Pod", "metadata": {"name": "p", "labels": {CLIQUE: "a.1"}}},
        {"switches": {}, "blocks": [{"labels": {CLIQUE: "a.1"}}]},
    ):
        assert not node_labels.recognises(json.dumps(raw))

"""Topograph's models of both generations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.readers.fabric import topograph
from pyscheduler.readers.reading import RefusedError

DOMAIN = "accelerator.topology.test/domain"


def model(*blocks: dict[str, Any], **switches: Any) -> str:
    return json.dumps({"switches": {name: {"switches": below} for name, below in switches.items()}, "blocks": list(blocks)})


def nodes(text: str) -> dict[str, tuple[list[str | None], str | None]]:
    return {node["name"]: (node["path"], node["nvlink_domain"]) for node in topograph.read(text).body["nodes"]}


def codes(text: str) -> list[str]:
    return [finding.code for finding in topograph.read(text).findings]


def test_hosts_get_the_switches_above_their_block_and_its_nvlink_domain():
    text = model(
        {"switch": "l1", "nodes": ["h[09-10]"], "annotations": {DOMAIN: "nvl-a"}},
        {"switch": "l2", "nodes": ["h[11]", "h14"]},
        s1=["l1", "l2"],
        core=["s1"],
    )

    assert topograph.recognises(text)
    assert nodes(text) == {
        "h09": (["l1", "s1", "core"], "nvl-a"),
        "h10": (["l1", "s1", "core"], "nvl-a"),
        "h11": (["l2", "s1", "core"], None),
        "h14": (["l2", "s1", "core"], None),
    }
    assert topograph.read(text).body["levels"] == ["leaf", "spine", "core"]
    assert codes(text) == []


def test_a_domain_may_span_leaves_and_have_parts():
    marks = {DOMAIN: "big", "accelerator.topology.test/sub-domain": "rack1"}
    (node,) = topograph.read(model({"switch": "l1", "nodes": ["h1"], "annotations": marks}, s=["l1"])).body["nodes"]

    assert (node["nvlink_domain"], node["nvlink_sub_domain"]) == ("big", "rack1")


@pytest.mark.parametrize("labels", [{"network.topology.nvidia.com/accelerator": "d"}, {"nvidia.com/gpu.clique": "d"}])
def test_domains_in_labels_of_other_versions_are_read(labels: dict[str, str]):
    assert nodes(model({"switch": "l1", "nodes": ["h1"], "labels": labels}, s=["l1"]))["h1"][1] == "d"


def test_the_older_form_names_capacity_blocks_from_the_switch():
    text = json.dumps({
        "switches": [{"name": "core", "switches": ["l1"]}, {"name": "l1", "capacity_blocks": ["cb1"]}],
        "capacity_blocks": [{"name": "cb1", "type": "GB200", "nvlink": "nvl1", "nodes": ["n-1", "n-2"]}],
    })  # fmt: skip

    assert topograph.recognises(text)
    assert nodes(text) == {"n-1": (["l1", "core"], "nvl1"), "n-2": (["l1", "core"], "nvl1")}


def test_a_block_without_switch_has_hosts_without_place():
    text = model({"nodes": ["cpu[1-2]"]}, {"switch": "l1", "nodes": ["g1"]}, s=["l1"])

    assert nodes(text)["cpu1"] == ([], None)
    assert codes(text) == ["block-without-switch"]


def test_what_cannot_be_read_of_a_block_is_reported_and_the_rest_stays():
    text = model({"switch": "lost", "nodes": ["a1", "b[3-1]"]}, {"switch": "l1", "nodes": ["c1"]}, "odd", s=["l1"])  # type: ignore[arg-type]

    assert set(nodes(text)) == {"a1", "c1"}
    assert codes(text) == ["switch-undefined", "hostlist-unreadable", "block-unreadable"]


def test_a_host_in_two_domains_is_in_none():
    blocks = [{"switch": "l1", "nodes": ["h1"], "annotations": {DOMAIN: name}} for name in ("x", "y")]
    text = model(*blocks, s=["l1"])

    assert nodes(text)["h1"] == (["l1", "s"], None)
    assert codes(text) == ["several-domains"]


def test_a_request_that_only_names_its_model_is_refused():
    text = json.dumps({"provider": {"name": "test", "params": {"modelFileName": "big.yaml"}}, "engine": {"name": "slurm"}})

    assert topograph.recognises(text)
    with pytest.raises(RefusedError, match=r"request .* holds no topology"):
        topograph.read(text)


@pytest.mark.parametrize("text", ["[]", "{}", '{"switches": {}}', '{"blocks": [{"switch": "l1"}]}', "no json"])
def test_what_has_no_blocks_of_nodes_is_no_model(text: str):
    assert not topograph.recognises(text)
    with pytest.raises(RefusedError):
        topograph.read(text)

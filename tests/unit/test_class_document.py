"""The class document: it survives a round trip, and nothing but its own content is taken for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.local import machines
from pyscheduler.core import presets
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import DeviceClass, class_hash
from pyscheduler.errors import DocumentError
from pyscheduler.readers import class_document, node_document

SMALL = DeviceClass.of(["Some Card", None], [0, None], {(0, 1): "PXB"}, "restricted")


def changed(**fields: Any) -> str:
    """The small class with other fields, under the hash of the small class."""
    return json.dumps({**json.loads(class_document.dump(SMALL)), **fields})


@pytest.mark.parametrize("machine", machines.NAMES)
def test_class_survives_a_round_trip(machine: str) -> None:
    shared = class_of(node_document.parse(json.dumps(machines.document(machine, "n1"))))
    assert class_document.parse(class_document.dump(shared)) == (class_hash(shared), shared)


@pytest.mark.parametrize("name", presets.names())
def test_class_of_every_preset_survives_a_round_trip(name: str) -> None:
    shared = class_of(presets.document(name))
    assert class_document.parse(class_document.dump(shared)) == (class_hash(shared), shared)


def test_config_map_holds_the_class_under_its_hash() -> None:
    raw = class_document.config_map(SMALL, "some-namespace")
    assert class_document.of_config_map(raw) == (class_hash(SMALL), SMALL)
    assert raw["metadata"]["labels"][class_document.LABEL] == class_hash(SMALL)
    assert raw["metadata"]["name"].endswith(class_hash(SMALL))
    assert raw["metadata"]["namespace"] == "some-namespace"
    assert raw["immutable"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"links": ["PIX"]},
        {"models": ["Some Card", "Some Card"]},
        {"numa": [0, 1]},
        {"topology_policy": "single-numa-node"},
        {"nic_links": [["PIX"], ["SYS"]]},
        {"class_hash": "0123456789abcdef"},
        {"class_hash": None},
        {"class_hash": ["0123456789abcdef"]},
    ],
)
def test_content_under_another_hash_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match="names the hash"):
        class_document.parse(changed(**fields))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="a list"),
        pytest.param('"class"', id="a text"),
        pytest.param("[" * 100_000, id="nested without end"),
        pytest.param('{"a":' * 5_000 + "1" + "}" * 5_000, id="deep objects"),
        pytest.param(changed(kind="node"), id="another kind"),
        pytest.param(changed(version=2), id="another version"),
        pytest.param(changed(models=None), id="no models"),
        pytest.param(changed(models=[1, 2]), id="models that are no texts"),
        pytest.param(changed(numa=["0", "1"]), id="NUMA nodes that are no numbers"),
        pytest.param(changed(numa=[True, 1]), id="NUMA nodes that are truth values"),
        pytest.param(changed(links=["PXB", "PXB"]), id="too many links"),
        pytest.param(changed(links=["WARP9"]), id="a link that is none"),
        pytest.param(changed(links=[["PXB"]]), id="a link that is a list"),
        pytest.param(changed(nic_links=[["PIX"]]), id="too few rows of NICs"),
        pytest.param(changed(nic_links=7), id="NICs that are a number"),
        pytest.param(changed(topology_policy="strict"), id="a policy that is none"),
        pytest.param(changed(topology_policy=["none"]), id="a policy that is a list"),
        pytest.param(changed(models=["x" * 5_000, 3]), id="a very long text"),
        pytest.param(changed(links=["x" * 5_000]), id="a very long link type"),
        pytest.param(changed(class_hash="x" * 5_000), id="a very long hash"),
    ],
)
def test_what_is_no_class_document_is_refused_in_one_short_sentence(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        class_document.parse(text)
    said = str(caught.value)
    assert said.endswith("write it anew")
    assert "\n" not in said
    assert len(said) < 300


def test_deep_value_in_place_of_the_hash_is_refused() -> None:
    text = changed(class_hash="HERE").replace('"HERE"', "[" * 900 + "]" * 900)
    with pytest.raises(DocumentError):
        class_document.parse(text)


@pytest.mark.parametrize(
    "data", [None, {}, [], "text", {"other.json": "{}"}, {class_document.KEY: {}}, {class_document.KEY: None}]
)
def test_config_map_without_a_class_is_refused(data: Any) -> None:
    with pytest.raises(DocumentError, match="has no key"):
        class_document.of_config_map({"metadata": {"name": "x"}, "data": data})

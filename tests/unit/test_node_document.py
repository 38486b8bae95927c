"""The node document: what cannot be used degrades that part, and only a non-document is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.local import machines
from pyscheduler.errors import DocumentError
from pyscheduler.readers import node_document


def _document(**changes: Any) -> str:
    document = {
        "version": 1,
        "kind": "node",
        "gpus": [{"id": "GPU0", "uuid": "GPU-a", "numa": 0}, {"id": "GPU1", "uuid": "GPU-b", "numa": 1}],
        "links": [{"a": "GPU0", "b": "GPU1", "type": "NV2"}],
    }
    return json.dumps({**document, **changes})


@pytest.mark.parametrize("machine", machines.NAMES)
def test_every_machine_survives_a_round_trip(machine: str) -> None:
    first = node_document.parse(json.dumps(machines.document(machine, "n1")))
    again = node_document.parse(node_document.dump(first))
    assert first.findings == ()
    assert (again.gpus, again.links, again.source, again.rest) == (first.gpus, first.links, first.source, first.rest)
    assert node_document.device_class(again)[1] == ()


def test_link_is_the_same_from_both_ends() -> None:
    document = node_document.parse(_document(links=[{"a": "GPU1", "b": "GPU0", "type": "NV2"}]))
    assert document.link(0, 1) == document.link(1, 0) == "NV2"


def test_pair_that_is_not_there_is_unknown() -> None:
    assert node_document.parse(_document(links=[])).link(0, 1) == "?"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("{", "is not JSON", id="cut"),
        pytest.param("[" * 20_000, "is not JSON", id="nested without end"),
        pytest.param("[]", 'must be "node"', id="a list"),
        pytest.param(_document(kind="fabric"), 'must be "node"', id="another kind"),
        pytest.param(_document(version=2), "this release reads version 1", id="another version"),
        pytest.param(_document(gpus=[]), "lists no GPUs", id="no GPUs"),
        pytest.param(_document(gpus={}), "lists no GPUs", id="GPUs of another form"),
    ],
)
def test_what_is_no_document_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        node_document.parse(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "healthy"),
    [
        pytest.param({"id": "GPU1", "healthy": False}, (True, False), id="unhealthy"),
        pytest.param({"uuid": "GPU-b"}, (True, False), id="without an id"),
        pytest.param({"id": "GPU0"}, (True, False), id="a repeated id"),
        pytest.param({"id": "GPU1", "uuid": "GPU-a"}, (True, False), id="a repeated UUID"),
        pytest.param(7, (True, False), id="no object"),
    ],
)
def test_one_bad_gpu_is_not_given_out_and_the_others_are(entry: object, healthy: tuple[bool, ...]) -> None:
    document = node_document.parse(_document(gpus=[{"id": "GPU0", "uuid": "GPU-a"}, entry]))
    assert tuple(g.healthy for g in document.gpus) == healthy


@pytest.mark.parametrize(
    "entry",
    [
        {"a": "GPU0", "b": "GPU9", "type": "NV1"},
        {"a": "GPU0", "b": "GPU0", "type": "NV1"},
        {"a": "GPU0", "b": "GPU1"},
        {"a": ["GPU0"], "b": "GPU1", "type": "NV1"},
        "NV1",
    ],
)
def test_one_bad_link_is_unknown_and_told(entry: object) -> None:
    document = node_document.parse(_document(links=[entry]))
    assert document.link(0, 1) == "?"
    assert "links[0]" in document.findings[0]


def test_contradicting_entries_make_the_link_unknown() -> None:
    links = [{"a": "GPU0", "b": "GPU1", "type": "NV2"}, {"a": "GPU1", "b": "GPU0", "type": "SYS"}]
    document = node_document.parse(_document(links=links))
    assert document.link(0, 1) == "?"
    assert "contradicts" in document.findings[0]


def test_unknown_link_type_is_taken_as_unknown_and_told() -> None:
    document = node_document.parse(_document(links=[{"a": "GPU0", "b": "GPU1", "type": "WARP9"}]))
    kind, findings = node_document.device_class(document)
    assert str(kind.links[0]) == "?"
    assert "WARP9" in findings[0]


def test_unknown_policy_is_ignored_and_told() -> None:
    document = node_document.parse(_document(topology_policy="strict"))
    assert document.topology_policy is None
    assert "strict" in document.findings[0]


@pytest.mark.parametrize("numa", [None, -1, "0-3", [0, 1], True])
def test_numa_that_is_no_node_is_unknown(numa: object) -> None:
    document = node_document.parse(_document(gpus=[{"id": "GPU0", "numa": numa}]))
    assert document.gpus[0].numa is None

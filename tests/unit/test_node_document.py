"""The node document: what cannot be used degrades that part, and only a non-document is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import jsonschema
import pytest

from deploy.local import machines
from pyscheduler.cli.topology import node_schema
from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.classify import class_of, filled
from pyscheduler.core.machine.device_class import class_hash
from pyscheduler.core.machine.document import Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Link
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
    assert first.nic_links or not first.nics
    assert again == first


def test_everything_that_a_document_says_survives_a_round_trip() -> None:
    document = NodeDocument(
        gpus=(
            Gpu("GPU0", "GPU-a", "0000:1a:00.0", "H100", 0, "0-31"),
            Gpu("GPU1", "GPU-b", "0000:1b:00.0", "H100", 1, healthy=False),
        ),
        nics=(Nic("NIC0", "mlx5_0", "0000:18:00.0", 50.0),),
        links={(0, 1): Link.parse("NV18")},
        nic_links={(0, 0): Link.parse("PIX"), (1, 0): Link.parse("SYS")},
        p2p={(0, 1): "CNS"},
        measured=(Measured("p2p-bandwidth", 371.5, ("GPU0", "GPU1"), latency_us=2.1, observed_at=1_700_000_000.0),),
        source="agent",
        observed_at=1_700_000_001.0,
        boot_id="b-1",
        class_hash="0123456789abcdef",
        topology_policy="restricted",
        complete=False,
        warnings=(Finding("cell-cut", "line 3: cell GPU0-NIC1 is cut"),),
    )
    assert node_document.parse(node_document.dump(document)) == document


def test_shared_form_leaves_out_what_the_class_holds_and_is_filled_from_it() -> None:
    document = node_document.parse(json.dumps(machines.document("hgx-h100", "n1")))
    shared = class_of(document)
    short = node_document.parse(node_document.dump(replace(document, class_hash=class_hash(shared)), shared=True))
    assert not short.whole
    assert short.links == {}
    assert replace(filled(short, shared), class_hash=None, topology_policy=None) == document


def test_document_of_16_gpus_and_16_nics_fits_an_annotation() -> None:
    gpus = tuple(
        Gpu(
            f"GPU{i}",
            f"GPU-{i:08x}-0000-1111-2222-333344445555",
            f"0000:{i:02x}:00.0",
            "NVIDIA H100 80GB HBM3",
            i // 8,
            "0-47,96-143",
        )
        for i in range(16)
    )
    nics = tuple(Nic(f"NIC{i}", f"mlx5_{i}", f"0000:{i + 64:02x}:00.0", 50.0) for i in range(16))
    links = dict.fromkeys(combinations(range(16), 2), Link.parse("NV18"))
    nic_links = dict.fromkeys(product(range(16), range(16)), Link.parse("NODE"))
    document = NodeDocument(
        gpus, nics, links, nic_links, source="agent", observed_at=1.7e9, boot_id="b" * 36, class_hash="0" * 16
    )
    # All annotations of an object together: 256 KiB (Kubernetes, TotalAnnotationSizeLimitB).
    assert len(node_document.dump(document)) < 32 * 1024
    assert len(node_document.dump(document, shared=True)) < 4 * 1024


def test_shared_document_of_8_gpus_is_small() -> None:
    document = node_document.parse(json.dumps(machines.document("hgx-h100", "n1")))
    assert len(node_document.dump(replace(document, class_hash="0" * 16), shared=True)) <= 1536


def test_link_is_the_same_from_both_ends() -> None:
    document = node_document.parse(_document(links=[{"a": "GPU1", "b": "GPU0", "type": "NV2"}]))
    assert document.link(0, 1) == document.link(1, 0) == Link.parse("NV2")


def test_pair_that_is_not_there_is_unknown() -> None:
    assert node_document.parse(_document(links=[])).link(0, 1) == UNKNOWN_LINK


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
    assert document.link(0, 1) == UNKNOWN_LINK
    assert "links[0]" in document.findings[0].message


def test_of_two_directions_the_weaker_counts_and_it_is_told() -> None:
    links = [{"a": "GPU0", "b": "GPU1", "type": "NV2"}, {"a": "GPU1", "b": "GPU0", "type": "SYS"}]
    document = node_document.parse(_document(links=links))
    assert document.link(0, 1) == Link.parse("SYS")
    assert [f.code for f in document.findings] == ["direction-mismatch"]


def test_unknown_link_type_is_taken_as_unknown_and_told() -> None:
    document = node_document.parse(_document(links=[{"a": "GPU0", "b": "GPU1", "type": "WARP9"}]))
    assert document.link(0, 1) == UNKNOWN_LINK
    assert "WARP9" in document.findings[0].message


def test_unknown_policy_is_ignored_and_told() -> None:
    document = node_document.parse(_document(topology_policy="strict"))
    assert document.topology_policy is None
    assert "strict" in document.findings[0].message


@pytest.mark.parametrize("numa", [None, -1, "0-3", [0, 1], True])
def test_numa_that_is_no_node_is_unknown(numa: object) -> None:
    document = node_document.parse(_document(gpus=[{"id": "GPU0", "numa": numa}]))
    assert document.gpus[0].numa is None


def test_split_gpu_is_not_given_out_as_a_whole_one() -> None:
    document = node_document.parse(_document(gpus=[{"id": "GPU0"}, {"id": "GPU1", "whole": False}]))
    assert [g.healthy for g in document.gpus] == [True, False]


def test_two_machines_in_one_document_are_refused() -> None:
    with pytest.raises(DocumentError, match="describes 2 machines"):
        node_document.parse(_document(gpus=[{"id": "GPU0", "host": "a"}, {"id": "GPU0", "host": "b"}]))


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-31T12:00:00", 7, ["x"]])
def test_time_without_its_zone_is_unknown_and_told(moment: object) -> None:
    document = node_document.parse(_document(observed_at=moment))
    assert document.observed_at is None
    assert [f.code for f in document.findings] == ["time-unusable"]


@pytest.mark.parametrize("gbps", [0, -1, "12", None, float("inf")])
def test_measurement_without_a_bandwidth_is_ignored_and_told(gbps: object) -> None:
    document = node_document.parse(_document(measured=[{"tool": "nccl-tests", "gbps": gbps}]))
    assert document.measured == ()
    assert [f.code for f in document.findings] == ["measurement-unusable"]


def test_equal_machines_share_their_links() -> None:
    documents = [node_document.parse(json.dumps(machines.document("hgx-h100", name))) for name in ("n1", "n2")]
    assert documents[0].links is documents[1].links
    assert documents[0].nic_links is documents[1].nic_links


def test_schema_admits_what_is_written_and_refuses_what_is_not() -> None:
    schema = jsonschema.Draft202012Validator(json.loads(node_schema()))
    for machine in machines.NAMES:
        document = node_document.parse(json.dumps(machines.document(machine, "n1")))
        schema.validate(json.loads(node_document.dump(document)))
        schema.validate(json.loads(node_document.dump(replace(document, class_hash="0" * 16), shared=True)))
    for bad in (_document(version=2), _document(gpus=[]), _document(links=[{"a": "GPU0", "b": "GPU1", "type": "WARP9"}])):
        assert not schema.is_valid(json.loads(bad))

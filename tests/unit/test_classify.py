"""From a document to its class: pairs without peer access, the operator's figures, classes that are kept elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import pytest

from deploy.local import machines
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.classify import class_by_hash, class_of, classify, completed, filled
from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy, class_hash
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.document import Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Link
from pyscheduler.core.machine.weights import Override, Profile, Weights
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers import node_document

NOW = 1_800_000_000.0


def board(machine: str, name: str = "n1") -> NodeDocument:
    return node_document.parse(json.dumps(machines.document(machine, name)))


def two(link: str, numa: tuple[int | None, int | None] = (0, 0), status: str | None = "NS") -> NodeDocument:
    gpus = tuple(Gpu(f"GPU{i}", model="Tesla V100-PCIE-16GB", numa=node) for i, node in enumerate(numa))
    return NodeDocument(gpus, links={(0, 1): Link.parse(link)}, p2p={(0, 1): status} if status else {})


def reached(document: NodeDocument, weights: Weights | None = None) -> DeviceClass:
    return classify(document, class_of(document), weights or Weights(), NOW)[0]


def short_form(document: NodeDocument) -> NodeDocument:
    """The same node with its shared part elsewhere."""
    named = replace(document, class_hash=class_hash(class_of(document)))
    return node_document.parse(node_document.dump(named, shared=True))


def test_document_without_more_than_links_is_its_class() -> None:
    document = board("dgx-1v")
    shared = class_of(document)
    assert classify(document, shared, Weights(), NOW) == (shared, ())
    assert classify(document, shared, Weights(), NOW)[0] is shared


def test_pair_that_the_document_leaves_out_is_unknown() -> None:
    document = replace(board("dgx-1v"), links={(2, 5): Link.parse("SYS")})
    links = dict(zip(combinations(range(8), 2), class_of(document).links, strict=True))
    assert links.pop((2, 5)) == Link.parse("SYS")
    assert set(links.values()) == {UNKNOWN_LINK}


@pytest.mark.parametrize(
    ("link", "numa", "becomes"),
    [
        ("NV4", (0, 0), "PHB"),
        ("NV4", (0, 1), "SYS"),
        ("NV4", (None, None), "SYS"),
        ("NV4", (0, None), "SYS"),
        ("XGMI2", (3, 3), "PHB"),
        ("PIX", (1, 1), "PHB"),
        ("PXB", (0, 1), "SYS"),
        ("NODE", (0, 0), "NODE"),
        ("SYS", (0, 0), "SYS"),
        ("PCIE", (0, 0), "PCIE"),
        ("?", (0, 0), "?"),
    ],
)
def test_pair_without_peer_access_counts_as_the_path_through_the_host_and_never_better_than_its_link(
    link: str, numa: tuple[int | None, int | None], becomes: str
) -> None:
    document = two(link, numa)
    found = reached(document)
    choice = DeviceTable.build(found).choose(3, 2)
    direct = DeviceTable.build(class_of(document)).choose(3, 2)
    assert choice
    assert direct
    assert choice.bottleneck == becomes
    assert choice.ring_gbps <= direct.ring_gbps


def test_single_slow_nvlink_gains_nothing_when_peer_access_is_missing() -> None:
    """One NVLink of an H100 is slower than PCIe 5: the pair still counts no faster than that link."""
    gpus = tuple(Gpu(f"GPU{i}", model="NVIDIA H100 PCIe", numa=0) for i in range(2))
    document = NodeDocument(gpus, links={(0, 1): Link.parse("NV1")}, p2p={(0, 1): "GNS"})
    choice = DeviceTable.build(reached(document)).choose(3, 2)
    assert choice
    assert choice.bottleneck == "PHB"
    assert choice.ring_gbps == pytest.approx(20.6)


def test_pair_without_peer_access_is_avoided() -> None:
    document = board("dgx-1v")
    best = DeviceTable.build(class_of(document)).choose(0b1111, 2)
    assert best
    a, b = (gpu for gpu in range(4) if best.mask >> gpu & 1)
    other = DeviceTable.build(reached(replace(document, p2p={(a, b): "TNS"}))).choose(0b1111, 2)
    assert other
    assert other.mask != best.mask


def test_operators_figures_are_the_speeds_of_the_class() -> None:
    found = reached(two("PIX", status=None), Weights(overrides=(Override("PIX", 5.5, "V100"),)))
    assert found.speeds == (5500,)
    assert found.links == (Link.parse("PIX"),)


def test_operators_figure_that_is_the_default_makes_no_class_of_its_own() -> None:
    document = two("PIX", status=None)
    assert reached(document, Weights(overrides=(Override("PIX", 12.0),))) == class_of(document)


def test_slower_card_of_a_pair_decides_its_speed() -> None:
    gpus = (Gpu("GPU0", model="Tesla V100-PCIE-16GB"), Gpu("GPU1", model="NVIDIA H100 PCIe"))
    document = NodeDocument(gpus, links={(0, 1): Link.parse("PIX")})
    assert reached(document, Weights(overrides=(Override("PIX", 3.0, "H100"),))).speeds == (3000,)


def test_classic_scale_orders_pairs_by_the_classic_weights() -> None:
    classes = [reached(two(link, status=None), Weights(Profile.CLASSIC)) for link in ("NV1", "PIX", "PHB", "SYS")]
    speeds = [found.speeds[0] for found in classes]
    assert speeds == sorted(speeds, reverse=True)
    assert len(set(speeds)) == 4


def test_named_class_completes_the_document() -> None:
    document = board("hgx-h100")
    short = short_form(document)
    record = completed(NodeRecord("n1", document=short), {short.class_hash or "": class_of(document)}, Weights(), NOW)
    assert record.findings == ()
    assert record.document
    assert record.document.links == document.links
    assert record.document.nic_links == document.nic_links
    assert [gpu.model for gpu in record.document.gpus] == [gpu.model for gpu in document.gpus]
    assert [gpu.uuid for gpu in record.document.gpus] == [gpu.uuid for gpu in document.gpus]


def test_class_with_more_nics_than_the_node_fills_those_that_are_there() -> None:
    document = board("hgx-h100")
    without = replace(short_form(document), nics=document.nics[:2])
    assert {nic for _, nic in filled(without, class_of(document)).nic_links} == {0, 1}


def test_record_without_a_document_stays_as_it_is() -> None:
    record = NodeRecord("n1")
    assert completed(record, {}, Weights(), NOW) is record


def test_class_that_is_nowhere_leaves_the_node_without_links_and_is_told() -> None:
    record = completed(NodeRecord("n1", document=short_form(board("hgx-h100"))), {}, Weights(), NOW)
    assert record.document is None
    assert [(f.code, f.node, f.severity) for f in record.findings] == [("class-unknown", "n1", Severity.ERROR)]


def test_class_of_another_number_of_gpus_is_told_and_not_used() -> None:
    short = short_form(board("hgx-h100"))
    fewer = replace(short, gpus=short.gpus[:7])
    found = class_by_hash(fewer, {short.class_hash or "": class_of(board("hgx-h100"))})
    assert isinstance(found, Finding)
    assert found.code == "class-differs"
    assert "7 GPUs" in found.message
    assert completed(NodeRecord("n1", document=fewer), {}, Weights(), NOW).document is None


def test_whole_document_needs_no_class() -> None:
    document = replace(board("hgx-h100"), class_hash="0123456789abcdef")
    record = completed(NodeRecord("n1", document=document), {}, Weights(), NOW)
    assert record.document is document
    assert record.findings == ()


def test_what_measurements_reveal_is_told_of_the_node() -> None:
    document = replace(board("dgx-1v"), measured=(Measured("p2p-bandwidth", 3.0, ("GPU0", "GPU3"), observed_at=NOW),))
    record = completed(NodeRecord("n7", document=document), {}, Weights(), NOW)
    assert [(finding.code, finding.node) for finding in record.findings] == [("link-slow", "n7")]


def test_equal_machines_have_one_hash_in_every_process() -> None:
    program = (
        "import json, sys\n"
        "from deploy.local import machines\n"
        "from pyscheduler.core.machine.classify import class_of\n"
        "from pyscheduler.core.machine.device_class import class_hash\n"
        "from pyscheduler.readers import node_document\n"
        "for machine in machines.NAMES:\n"
        "    print(class_hash(class_of(node_document.parse(json.dumps(machines.document(machine, sys.argv[1]))))))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program, node],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for node, seed in (("n1", "1"), ("n2", "4242"))
    }
    assert len(printed) == 1
    hashes = printed.pop().split()
    assert len(set(hashes)) == len(hashes) == len(machines.NAMES)


@pytest.mark.parametrize("policy", [TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT])
def test_policy_that_restricts_nothing_is_not_in_the_hash(policy: TopologyPolicy) -> None:
    shared = class_of(board("dgx-1v"))
    assert class_hash(replace(shared, policy=policy)) == class_hash(shared)


@pytest.mark.parametrize("policy", [TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE])
def test_policy_that_restricts_is_in_the_hash(policy: TopologyPolicy) -> None:
    shared = class_of(board("dgx-1v"))
    assert class_hash(replace(shared, policy=policy)) != class_hash(shared)


def test_distances_of_nics_are_in_the_hash() -> None:
    document = two("PIX", status=None)
    hashes = {
        class_hash(
            class_of(replace(document, nics=(Nic("NIC0"),), nic_links={(0, 0): Link.parse(kind), (1, 0): Link.parse("SYS")}))
        )
        for kind in ("PIX", "PXB", "SYS")
    }
    assert len(hashes | {class_hash(class_of(document))}) == 4


def test_no_pair_counts_with_more_nvlinks_than_are_up() -> None:
    document = NodeDocument(
        tuple(Gpu(f"GPU{i}", nvlink_active=active) for i, active in enumerate((18, 9, 0, None))),
        links=dict.fromkeys(combinations(range(4), 2), Link.parse("NV18")),
    )
    assert [str(link) for link in class_of(document).links] == ["NV9", "?", "NV18", "?", "NV9", "?"]

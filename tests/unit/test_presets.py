"""Presets of common machines, and which one a product label names."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from itertools import combinations

import pytest

from pyscheduler.core import presets
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link, gbps

NAMES = presets.names()

# Links that a GPU has, as its datasheet says; A800 and H800 are limited by export rules.
PORTS = {
    "P100": 4,
    "V100": 6,
    "A100": 12,
    "A800": 8,
    "H100": 18,
    "H800": 8,
    "H20": 18,
    "H200": 18,
    "GH200": 18,
    "B200": 18,
    "B300": 18,
    "GB200": 18,
    "GB300": 18,
    "MI250X": 8,
    "MI300X": 7,
    "MI325X": 7,
    "MI350X": 7,
    "MI355X": 7,
}
# Machines in which the whole port of a GPU leads to an NVSwitch: each pair has all of it.
SWITCHED = {"dgx-2", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200", "gb300"} | {
    "hgx-a100",
    "hgx-a100-16",
    "hgx-a800",
    "hgx-h100",
    "hgx-h800",
    "hgx-h20",
    "hgx-h200",
    "hgx-b200",
    "hgx-b300",
}


def device_class(document: NodeDocument) -> DeviceClass:
    links = {pair: str(link) for pair, link in document.links.items()}
    return DeviceClass.of([gpu.model for gpu in document.gpus], [gpu.numa for gpu in document.gpus], links)


def linked(name: str, kind: str) -> set[tuple[int, int]]:
    return {pair for pair, link in presets.document(name).links.items() if str(link) == kind}


def ports(name: str) -> int | None:
    model = presets.document(name).gpus[0].model
    return next((PORTS[word] for word in (model or "").replace("-", " ").split() if word in PORTS), None)


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_a_preset_has_one_known_link(name: str) -> None:
    document = presets.document(name)
    assert set(document.links) == set(combinations(range(len(document.gpus)), 2))
    assert UNKNOWN_LINK not in document.links.values()


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_knows_only_what_is_the_same_everywhere(name: str) -> None:
    document = presets.document(name)
    assert document.source == f"preset:{name}"
    assert document.complete
    assert [gpu.id for gpu in document.gpus] == [f"GPU{at}" for at in range(len(document.gpus))]
    assert all((gpu.uuid, gpu.pci, gpu.cpu_affinity, gpu.healthy) == (None, None, None, True) for gpu in document.gpus)
    assert document.observed_at is None
    assert document.boot_id is None


@pytest.mark.parametrize("name", [name for name in NAMES if ports(name) is not None])
def test_no_gpu_has_more_links_than_its_port(name: str) -> None:
    document, port = presets.document(name), ports(name)
    assert port is not None
    for gpu in range(len(document.gpus)):
        counts = [document.link(gpu, peer).count for peer in range(len(document.gpus)) if peer != gpu]
        if name in SWITCHED:
            assert set(counts) == {port}
        else:
            assert sum(counts) <= port


def test_only_machines_of_any_card_have_no_known_port() -> None:
    assert {name for name in NAMES if ports(name) is None} == {n for n in NAMES if n == "single" or n.startswith("pcie-")}


@pytest.mark.parametrize(("name", "degree"), [("dgx-1p", 4), ("dgx-1v", 6)])
def test_the_cube_mesh_uses_every_link_of_every_gpu(name: str, degree: int) -> None:
    degrees: Counter[int] = Counter()
    for (a, b), link in presets.document(name).links.items():
        degrees.update({a: link.count, b: link.count})
    assert dict(degrees) == dict.fromkeys(range(8), degree)


def test_pairs_of_dgx_1v() -> None:
    assert linked("dgx-1v", "NV2") == {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
    assert linked("dgx-1v", "NV1") == {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}
    assert len(linked("dgx-1v", "SYS")) == 12


def test_pairs_of_dgx_1p() -> None:
    across = {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert {pair for pair in linked("dgx-1p", "NV1") if (pair[0] < 4) != (pair[1] < 4)} == across
    assert len(linked("dgx-1p", "NV1")) == 16


def test_dies_of_one_mi250x_are_linked_best() -> None:
    assert linked("mi250x", "XGMI4") == {(0, 1), (2, 3), (4, 5), (6, 7)}
    # How many links join dies of different packages is not known.
    assert linked("mi250x", "XGMI") == {(0, 2), (0, 6), (1, 3), (1, 5), (2, 4), (3, 7), (4, 6), (5, 7)}


@pytest.mark.parametrize(
    ("name", "numa"),
    [
        ("dgx-1v", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("dgx-2", [0] * 8 + [1] * 8),
        ("dgx-a100", [3, 3, 1, 1, 7, 7, 5, 5]),
        ("dgx-b200", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("polaris", [3, 2, 1, 0]),
        ("gh200-4", [0, 1, 2, 3]),
        ("gb200", [0, 0, 1, 1]),
        ("gb300", [0, 0, 1, 1]),
        ("mi250x", [3, 3, 1, 1, 0, 0, 2, 2]),
    ],
)
def test_numa_nodes_of_machines_that_are_built_in_one_way(name: str, numa: list[int]) -> None:
    assert [gpu.numa for gpu in presets.document(name).gpus] == numa


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("hgx-", "pcie-", "mi3"))])
def test_a_board_or_a_card_tells_neither_numa_nodes_nor_nics(name: str) -> None:
    document = presets.document(name)
    assert {gpu.numa for gpu in document.gpus} == {None}
    assert not document.nics
    assert not document.nic_links


@pytest.mark.parametrize(("name", "rate"), [("dgx-a100", 25.0), ("dgx-h100", 50.0), ("dgx-h200", 50.0), ("dgx-b200", 50.0)])
def test_every_gpu_of_a_dgx_is_nearest_to_one_nic_of_its_own(name: str, rate: float) -> None:
    document = presets.document(name)
    assert [nic.gbps for nic in document.nics] == [rate] * 8
    assert set(document.nic_links) == {(gpu, nic) for gpu in range(8) for nic in range(8)}
    near = {pair for pair, link in document.nic_links.items() if link.kind is Kind.PXB}
    assert {(gpu, gpu) for gpu in range(8)} <= near
    for (gpu, nic), link in document.nic_links.items():
        # NIC i hangs at the socket of GPU i.
        assert (link.kind is Kind.SYS) == (document.gpus[gpu].numa != document.gpus[nic].numa)


def test_pairs_of_gpus_share_two_nics_in_dgx_a100() -> None:
    near = {pair for pair, link in presets.document("dgx-a100").nic_links.items() if link.kind is Kind.PXB}
    assert near == {(gpu, nic) for gpu in range(8) for nic in range(8) if gpu // 2 == nic // 2}


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("pcie-")])
def test_cards_in_slots_promise_the_farthest_path_and_no_bridge(name: str) -> None:
    assert set(presets.document(name).links.values()) == {Link(Kind.SYS)}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "single"])
def test_no_preset_ranks_as_a_node_without_links(name: str) -> None:
    document = presets.document(name)
    assert min(gbps(link, document.gpus[0].model) for link in document.links.values()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_sets_of_every_preset_can_be_judged(name: str) -> None:
    document = presets.document(name)
    gpus = len(document.gpus)
    choice = DeviceTable.build(device_class(document)).choose((1 << gpus) - 1, gpus)
    assert choice is not None
    assert choice.mask == (1 << gpus) - 1


def test_whole_neighbours_are_left_where_all_links_are_equal() -> None:
    table = DeviceTable.build(device_class(presets.document("pcie-8")))
    # Of the free ones, 1 and 2 have lost their neighbours 0 and 3.
    choice = table.choose(0b11110110, 2)
    assert choice is not None
    assert choice.mask == 0b00000110


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_fits_into_an_annotation(name: str) -> None:
    document = presets.document(name)
    form = {
        "gpus": [dataclasses.asdict(gpu) for gpu in document.gpus],
        "nics": [dataclasses.asdict(nic) for nic in document.nics],
        "links": [{"a": f"GPU{a}", "b": f"GPU{b}", "type": str(link)} for (a, b), link in document.links.items()],
        "nic_links": [{"gpu": f"GPU{a}", "nic": f"NIC{b}", "type": str(link)} for (a, b), link in document.nic_links.items()],
    }
    assert len(json.dumps(form)) < 24 * 1024


def test_the_product_becomes_the_model() -> None:
    document = presets.document("pcie-4", "NVIDIA-L40S")
    assert {gpu.model for gpu in document.gpus} == {"NVIDIA-L40S"}
    assert document.source == "preset:pcie-4"
    assert {gpu.model for gpu in presets.document("pcie-4").gpus} == {None}
    assert {gpu.model for gpu in presets.document("hgx-a100").gpus} == {"NVIDIA A100-SXM4"}


def test_one_document_serves_all_nodes_of_a_kind() -> None:
    assert presets.document("hgx-h100", "NVIDIA-H100-80GB-HBM3") is presets.document("hgx-h100", "NVIDIA-H100-80GB-HBM3")


def test_names_are_unique_and_label_values() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(name.replace("-", "").isalnum() and name.islower() and len(name) < 64 for name in NAMES)


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        presets.UnknownPresetError, match=r"preset 'dgx-9' is not known; use one of dgx-1p, .*pcie-16$"
    ) as refused:
        presets.document("dgx-9")
    assert refused.value.name == "dgx-9"


@pytest.mark.parametrize(
    ("product", "gpus", "expected"),
    [
        ("Tesla-P100-SXM2-16GB", 8, "dgx-1p"),
        ("Tesla-V100-SXM2-16GB", 8, "dgx-1v"),
        ("Tesla-V100-SXM2-32GB", 8, "dgx-1v"),
        ("Tesla-V100-SXM3-32GB", 16, "dgx-2"),
        ("Tesla-V100-SXM3-32GB-H", 16, "dgx-2"),
        ("A100-SXM4-40GB", 8, "hgx-a100"),
        ("NVIDIA-A100-SXM4-40GB", 4, "hgx-a100-4"),
        ("NVIDIA-A100-SXM4-80GB", 8, "hgx-a100"),
        ("NVIDIA-A100-SXM4-40GB", 16, "hgx-a100-16"),
        ("NVIDIA-A800-SXM4-80GB", 8, "hgx-a800"),
        ("NVIDIA-H100-80GB-HBM3", 8, "hgx-h100"),
        ("NVIDIA H100 80GB HBM3", 8, "hgx-h100"),
        ("NVIDIA-H100-80GB-HBM3", 4, "hgx-h100-4"),
        ("NVIDIA-H100-64GB-HBM2e", 4, "hgx-h100-4"),
        ("NVIDIA-H800", 8, "hgx-h800"),
        ("NVIDIA-H20", 8, "hgx-h20"),
        ("NVIDIA-H20-3e", 8, "hgx-h20"),
        ("NVIDIA-H200", 8, "hgx-h200"),
        ("NVIDIA-B200", 8, "hgx-b200"),
        ("NVIDIA-B300-SXM6-AC", 8, "hgx-b300"),
        ("NVIDIA-GH200-120GB", 4, "gh200-4"),
        ("NVIDIA-GB200", 4, "gb200"),
        ("NVIDIA-GB300", 4, "gb300"),
        ("NVIDIA-A100-80GB-PCIe", 4, "pcie-4"),
        ("NVIDIA-A100-PCIE-40GB", 2, "pcie-2"),
        ("Tesla-V100-PCIE-16GB", 4, "pcie-4"),
        ("Tesla-T4", 4, "pcie-4"),
        ("NVIDIA-H100-PCIe", 8, "pcie-8"),
        ("NVIDIA-H100-NVL", 2, "pcie-2"),
        ("NVIDIA-H200-NVL", 8, "pcie-8"),
        ("NVIDIA-L40S", 8, "pcie-8"),
        ("NVIDIA-RTX-A6000", 8, "pcie-8"),
        ("NVIDIA-GeForce-RTX-4090", 6, "pcie-6"),
        ("Quadro-RTX-8000", 10, "pcie-10"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 8, "pcie-8"),
        ("AMD_Instinct_MI210", 4, "pcie-4"),
        ("AMD_Instinct_MI250X", 8, "mi250x"),
        ("AMD_INSTINCT_MI200_MCM_OAM_LC_MBA_HPE_C2", 8, "mi250x"),
        ("AMD_Instinct_MI300X_OAM", 8, "mi300x"),
        ("AMD_Instinct_MI300X_VF", 8, "mi300x"),
        ("AMD_Instinct_MI325_OAM", 8, "mi325x"),
        ("AMD_Instinct_MI325X", 8, "mi325x"),
        ("AMD_Instinct_MI350X", 8, "mi350x"),
        ("AMD_Instinct_MI355_OAM", 8, "mi355x"),
        # One GPU has no pair.
        ("NVIDIA-L4", 1, "single"),
        ("NVIDIA-GH200-480GB", 1, "single"),
        ("Something-New", 1, "single"),
    ],
)
def test_the_product_and_the_number_of_gpus_name_a_preset(product: str, gpus: int, expected: str) -> None:
    assert presets.for_product(product, gpus) == expected
    assert len(presets.document(expected, product).gpus) == gpus


@pytest.mark.parametrize(
    ("product", "gpus"),
    [
        # No whole GPUs: time slicing, MIG, vGPU.
        ("NVIDIA-A100-SXM4-80GB-SHARED", 8),
        ("NVIDIA-L4-SHARED", 1),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 8),
        ("NVIDIA-H100-80GB-HBM3-MIG-INVALID", 8),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", 16),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb", 8),
        ("NVIDIA-A40-8Q", 2),
        ("NVIDIA-A40-8Q", 1),
        # Numbers that no common machine has: one of eight is missing, or the rest is elsewhere.
        ("NVIDIA-H100-80GB-HBM3", 7),
        ("NVIDIA-A100-SXM4-80GB", 2),
        ("NVIDIA-B200", 4),
        ("NVIDIA-GB200", 8),
        ("NVIDIA-L40S", 5),
        ("AMD_Instinct_MI300X_OAM", 64),
        ("NVIDIA-L40S", 0),
        # Wired in more than one way.
        ("Tesla-V100-SXM2-16GB", 4),
        ("Tesla-P100-SXM2-16GB", 4),
        ("AMD_INSTINCT_MI250_MCM_OAM_AC_MBA", 8),
        ("AMD_Instinct_MI250X_MI250", 8),
        # Not known, or not a card.
        ("Something-New", 8),
        ("NVIDIA-H100X-80C", 4),
        ("NVIDIA", 8),
        ("", 1),
        ("-", 8),
    ],
)
def test_what_is_not_surely_a_known_machine_names_none(product: str, gpus: int) -> None:
    assert presets.for_product(product, gpus) is None

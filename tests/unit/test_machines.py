"""The simulated machines are whole, consistent node documents."""

from __future__ import annotations

import json
import re
from itertools import combinations

import pytest

from deploy.local import machines
from pyscheduler.core.machine.links import Kind, Link

every_machine = pytest.mark.parametrize("machine", machines.NAMES)


@every_machine
def test_names_every_pair_once_with_a_known_link(machine: str) -> None:
    document = machines.document(machine, "n1")
    ids = [gpu["id"] for gpu in document["gpus"]]
    assert [(link["a"], link["b"]) for link in document["links"]] == list(combinations(ids, 2))
    assert all(Link.parse(link["type"]).kind is not Kind.UNKNOWN for link in document["links"])


@every_machine
def test_tells_every_distance_between_gpu_and_nic_once(machine: str) -> None:
    document = machines.document(machine, "n1")
    expected = {(gpu["id"], nic["id"]) for gpu in document["gpus"] for nic in document["nics"]}
    told = [(link["gpu"], link["nic"]) for link in document["nic_links"]]
    assert len(told) == len(expected)
    assert set(told) == expected


@every_machine
def test_links_across_numa_nodes_are_never_pcie_within_a_socket(machine: str) -> None:
    document = machines.document(machine, "n1")
    numa = {gpu["id"]: gpu["numa"] for gpu in document["gpus"]}
    across = {link["type"] for link in document["links"] if numa[link["a"]] != numa[link["b"]]}
    assert not across & {"PIX", "PXB", "PHB", "NODE"}


@every_machine
def test_survives_json_and_is_the_same_every_time(machine: str) -> None:
    document = machines.document(machine, "n1")
    assert json.loads(json.dumps(document)) == document == machines.document(machine, "n1")


@every_machine
def test_describes_itself_to_kubernetes(machine: str) -> None:
    vendor = "amd.com/gpu" if "AMD" in machines.product(machine) else "nvidia.com/gpu"
    assert machines.resource(machine) == vendor
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", machines.product(machine))


def test_uuids_and_bus_ids_are_unique() -> None:
    documents = [machines.document(machine, f"{machine}-{i}") for machine in machines.NAMES for i in range(2)]
    uuids = [gpu["uuid"] for document in documents for gpu in document["gpus"]]
    assert len(set(uuids)) == len(uuids)
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) for uuid in uuids)
    for document in documents:
        buses = [gpu["pci"] for gpu in document["gpus"]]
        assert len(set(buses)) == len(buses)
        assert all(re.fullmatch(r"0000:[0-9a-f]{2}:00\.0", bus) for bus in buses)


@pytest.mark.parametrize(
    ("machine", "counts"),
    [
        # Two single and two double links to each GPU of the hybrid cube mesh, 24 links in all.
        ("dgx-1v", {"NV1": 8, "NV2": 8, "SYS": 12}),
        ("hgx-h100", {"NV18": 28}),
        ("a100-pcie-bridged", {"NV12": 2, "SYS": 4}),
        ("rtx-4090x8", {"PHB": 12, "SYS": 16}),
        ("mi250x", {"XGMI4": 4, "XGMI2": 2, "XGMI1": 6, "PXB": 6, "SYS": 10}),
    ],
)
def test_link_counts(machine: str, counts: dict[str, int]) -> None:
    types = [link["type"] for link in machines.document(machine, "n1")["links"]]
    assert {kind: types.count(kind) for kind in types} == counts


def test_unknown_machine_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'dgx-9' is not known; use one of dgx-1v, "):
        machines.document("dgx-9", "n1")

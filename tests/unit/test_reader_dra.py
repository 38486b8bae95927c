"""ResourceSlices of the GPU drivers: one card is one GPU, however many devices it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.readers.machine import dra
from pyscheduler.readers.reading import Reading, RefusedError


def device(name: str, kind: str = "gpu", **attributes: Any) -> dict[str, Any]:
    """`pci` stands for the qualified name of the address; numbers become {int}, texts {string}."""
    named = {key if key != "pci" else "resource.kubernetes.io/pciBusID": value for key, value in attributes.items()}
    values = {key: {"int" if isinstance(value, int) else "string": value} for key, value in {"type": kind, **named}.items()}
    return {"name": name, "attributes": values, "capacity": {"memory": {"value": "80Gi"}}}


def resource_slice(
    *devices: dict[str, Any], node: str | None = "n1", driver: str = "gpu.nvidia.com", generation: int = 1, count: int = 1
) -> dict[str, Any]:
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
        "devices": list(devices),
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


def read(*slices: Any) -> Reading:
    text = json.dumps(slices[0] if len(slices) == 1 else {"kind": "List", "items": list(slices)})
    assert dra.recognises(text)
    return dra.read(text)


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def test_a_gpu_has_what_its_attributes_say_and_no_links() -> None:
    reading = read(resource_slice(device("gpu-0", uuid="GPU-a", pci="0000:1A:00.0", productName="NVIDIA H100", numaNode=1)))
    assert reading.body["gpus"] == [
        {
            "id": "gpu-0",
            "numa": 1,
            "cpu_affinity": None,
            "uuid": "GPU-a",
            "pci": "0000:1a:00.0",
            "model": "NVIDIA H100",
            "host": "n1",
        }
    ]
    assert (reading.body["links"], reading.complete, reading.findings) == ([], True, ())


def test_whole_split_and_passthrough_entries_of_one_card_are_one_gpu() -> None:
    reading = read(
        resource_slice(
            device("gpu-0", uuid="GPU-a", pci="0000:1a:00.0"),
            device("gpu-0-mig-1g.10gb-0", "mig", uuid="MIG-1", parentUUID="GPU-a", profile="1g.10gb"),
            device("gpu-0", "vfio", uuid="GPU-a", numa=3),
        )
    )
    (gpu,) = reading.body["gpus"]
    assert (gpu["id"], gpu["uuid"], gpu["numa"], gpu["whole"]) == ("gpu-0", "GPU-a", 3, False)
    assert [(m["uuid"], m["profile"]) for m in gpu["mig"]] == [("MIG-1", "1g.10gb")]
    assert codes(reading) == ["mig-split", "vfio-duplicate", "name-repeated"]


def test_instances_without_their_card_still_name_it() -> None:
    instances = [
        device(f"gpu-3-mig-2g.20gb-{i}", "mig", uuid=f"MIG-{i}", parentUUID="GPU-d", profile="2g.20gb") for i in range(3)
    ]
    (gpu,) = read(resource_slice(*instances)).body["gpus"]
    assert (gpu["id"], gpu["uuid"], gpu["whole"], len(gpu["mig"])) == ("gpu-3", "GPU-d", False, 3)


def test_what_a_card_could_be_split_into_does_not_split_it() -> None:
    possible = {
        **device("gpu-0-mig-1g", "mig", profile="1g.10gb", parentUUID="GPU-a"),
        "consumesCounters": [{"counterSet": "gpu-0"}],
    }
    (gpu,) = read(resource_slice(device("gpu-0", uuid="GPU-a"), possible)).body["gpus"]
    assert "whole" not in gpu


def test_partitions_of_an_amd_card_are_joined_by_its_address() -> None:
    parts = [device(f"gpu-{i}-{128 + i}", "amdgpu-partition", pci="0000:19:00.0", partitionProfile="cpx_nps4") for i in range(8)]
    reading = read(resource_slice(*parts, device("gpu-9-137", "amdgpu", pciAddr="0003:00:02.0"), driver="gpu.amd.com"))
    split, whole = reading.body["gpus"]
    assert (split["pci"], split["whole"], len(split["mig"])) == ("0000:19:00.0", False, 8)
    assert (whole["id"], whole["pci"]) == ("gpu-9-137", "0003:00:02.0")
    assert any("gpu-9-137" in f.message for f in reading.findings if f.code == "uuid-missing")


def test_equal_names_on_two_nodes_are_told_apart_by_host() -> None:
    reading = read(*(resource_slice(device("gpu-0", uuid=f"GPU-{node}"), node=node) for node in ("n1", "n2")))
    assert [(gpu["host"], gpu["id"]) for gpu in reading.body["gpus"]] == [("n1", "gpu-0"), ("n2", "gpu-0")]
    assert codes(reading) == []


def test_equal_names_on_one_node_are_made_different() -> None:
    reading = read(resource_slice(device("gpu-0", uuid="GPU-a"), device("gpu-0", uuid="GPU-b")))
    assert [gpu["id"] for gpu in reading.body["gpus"]] == ["gpu-0", "gpu-0/GPU-b"]
    assert codes(reading) == ["name-repeated"]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    reading = read(
        resource_slice(device("gpu-0", uuid="GPU-old"), generation=1),
        resource_slice(device("gpu-0", uuid="GPU-new"), generation=2),
    )
    assert [gpu["uuid"] for gpu in reading.body["gpus"]] == ["GPU-new"]
    assert (codes(reading), reading.complete) == (["slice-outdated"], True)


def test_a_pool_with_fewer_slices_than_it_says_is_incomplete() -> None:
    reading = read(resource_slice(device("gpu-0", uuid="GPU-a"), count=2))
    assert (codes(reading), reading.complete) == (["slice-missing"], False)


def test_devices_that_are_no_gpus_are_left_out() -> None:
    nic = {"name": "eth1", "attributes": {"dra.net/ifName": {"string": "eth1"}}}
    channel = device("channel-0", "channel")
    reading = read(
        resource_slice(device("gpu-0", uuid="GPU-a")),
        resource_slice(nic, driver="dra.net"),
        resource_slice(channel, driver="compute-domain.nvidia.com"),
    )
    assert [gpu["id"] for gpu in reading.body["gpus"]] == ["gpu-0"]


def test_a_tainted_device_is_not_healthy() -> None:
    sick = {**device("gpu-0", uuid="GPU-a"), "taints": [{"key": "gpu.example.com/xid", "effect": "NoSchedule"}]}
    reading = read(resource_slice(sick))
    assert reading.body["gpus"][0]["healthy"] is False
    assert "gpu.example.com/xid" in reading.findings[0].message


def test_older_api_versions_nest_the_attributes() -> None:
    old = resource_slice({"name": "gpu-0", "basic": {"attributes": device("", uuid="GPU-a")["attributes"]}})
    assert read(old).body["gpus"][0]["uuid"] == "GPU-a"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"spec": {"devices": s["spec"]["devices"]}},
        lambda s: {"devices": s["spec"]["devices"]},
        lambda s: s["spec"]["devices"],
        lambda s: [s],
        lambda s: {"kind": "ResourceSliceList", "items": [s]},
        lambda s: {"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "n1"}}, s]},
    ],
)
def test_lists_and_parts_of_slices_are_read(wrap) -> None:
    assert [gpu["uuid"] for gpu in read(wrap(resource_slice(device("gpu-0", uuid="GPU-a")))).body["gpus"]] == ["GPU-a"]


@pytest.mark.parametrize(
    ("number", "text"), [(2220.0, "0000:37:00.0"), (3600.0 + 17 * 60 + 0.1, "0001:17:00.1"), (1285.4, "0000:21:25.4")]
)
def test_an_address_that_yaml_took_for_a_number_is_turned_back(number: float, text: str) -> None:
    gpu = device("gpu-0", uuid="GPU-a")
    gpu["attributes"]["resource.kubernetes.io/pciBusID"] = {"string": number}
    assert read(resource_slice(gpu)).body["gpus"][0]["pci"] == text


def test_an_address_that_is_none_is_said() -> None:
    reading = read(resource_slice(device("gpu-0", uuid="GPU-a", pci="unknown")))
    assert (reading.body["gpus"][0]["pci"], codes(reading)) == (None, ["pci-unreadable"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kind: ResourceSlice", "JSON"),
        ('{"kind": "ResourceSlice",\n "spec": }', "line 2"),
        (json.dumps(resource_slice()), "no GPU"),
        (json.dumps(resource_slice(device("channel-0", "channel"))), "no GPU"),
        (json.dumps({"kind": "Node", "spec": {"devices": [device("gpu-0", uuid="GPU-a")]}}), "no GPU"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_what_lists_no_gpu_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        dra.read(text)

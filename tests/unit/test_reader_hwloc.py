"""hwloc's XML of all versions, and the text of lstopo."""

from __future__ import annotations

import pytest

from pyscheduler.readers.machine import hwloc
from pyscheduler.readers.reading import Reading, RefusedError


def links(reading: Reading) -> dict[str, str]:
    return {f"{link['a']}-{link['b']}": link["type"] for link in reading.body["links"]}


def nic_links(reading: Reading) -> dict[str, str]:
    return {f"{link['gpu']}-{link['nic']}": link["type"] for link in reading.body["nic_links"]}


def gpu(index: int, bus: str, model: str = "NVIDIA A100-SXM4-40GB", library: str = "nvml") -> str:
    return (
        f'<object type="PCIDev" gp_index="{100 + index}" pci_busid="0000:{bus}:00.0" pci_type="0302 [10de:20b0] [10de:134f] a1 00">'
        f'<object type="OSDev" gp_index="{200 + index}" name="opencl0d{index}" osdev_type="5"/>'
        f'<object type="OSDev" gp_index="{300 + index}" name="{library}{index}" subtype="NVML" osdev_type="1">'
        f'<info name="GPUModel" value="{model}"/><info name="NVIDIAUUID" value="GPU-{index}"/></object></object>'
    )


def nic(bus: str) -> str:
    return (
        f'<object type="PCIDev" gp_index="1{bus}" pci_busid="0000:{bus}:00.0" pci_type="0207 [15b3:101b] [15b3:0007] 00 00">'
        f'<object type="OSDev" name="ib0" osdev_type="2"/><object type="OSDev" name="mlx5_0" osdev_type="3"/></object>'
    )


def nvswitch(index: int) -> str:
    return (
        f'<object type="PCIDev" gp_index="{500 + index}" pci_busid="0000:e{index}:00.0" pci_type="0680 [10de:1af1] [10de:0000] a1 00">'
        f'<object type="OSDev" gp_index="{600 + index}" name="nvswitch{index}" subtype="NVSwitch"/></object>'
    )


def host_bridge(*inner: str) -> str:
    return '<object type="Bridge" bridge_type="0-1">' + "".join(inner) + "</object>"


def bridge(*inner: str) -> str:
    return '<object type="Bridge" bridge_type="1-1">' + "".join(inner) + "</object>"


def package(node: int, *inner: str) -> str:
    return (
        f'<object type="Package" gp_index="{10 + node}" cpuset="0x{0xF << 4 * node:08x}" nodeset="0x{1 << node:08x}">'
        f'<object type="NUMANode" os_index="{node}"/>' + "".join(inner) + "</object>"
    )


def matrix(name: str, objects: str, values: str) -> str:
    return f'<distances2hetero name="{name}"><indexes length="1">{objects}</indexes><u64values length="1">{values}</u64values></distances2hetero>'


def xml(*inner: str, version: str = "2.0") -> str:
    packages = "".join(part for part in inner if not part.startswith("<distances"))
    rest = "".join(part for part in inner if part.startswith("<distances"))
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="{version}">\n'
        f'<object type="Machine" cpuset="0x000000ff" nodeset="0x00000003"><info name="HostName" value="n1"/>{packages}</object>\n{rest}</topology>\n'
    )


PAIR = (
    package(0, host_bridge(bridge(gpu(0, "1a"))), host_bridge(bridge(gpu(1, "2a")))),
    package(1, host_bridge(bridge(gpu(2, "9a")))),
)


def test_a_matrix_of_bandwidth_gives_the_number_of_nvlinks_and_the_tree_the_rest() -> None:
    values = "1000000 100000 0 0 100000 1000000 0 0 0 0 1000000 0 0 0 0 1000000"
    reading = hwloc.read(xml(*PAIR, matrix("NVLinkBandwidth", "OSDev:300 OSDev:301 OSDev:302 Package:10", values)))
    assert links(reading) == {"GPU0-GPU1": "NV4", "GPU0-GPU2": "SYS", "GPU1-GPU2": "SYS"}
    assert (reading.complete, reading.findings) == (True, ())


def test_each_pci_device_is_one_gpu_with_identity_and_place() -> None:
    entries = hwloc.read(xml(*PAIR)).body["gpus"]
    assert entries[2] == {
        "id": "GPU2", "numa": 1, "cpu_affinity": "4-7", "uuid": "GPU-2", "pci": "0000:9a:00.0", "model": "NVIDIA A100-SXM4-40GB", "host": "n1",
    }  # fmt: skip
    assert len(entries) == 3


@pytest.mark.parametrize(
    ("model", "rate", "kind"),
    [
        ("Tesla P100-SXM2-16GB", 40_000, "NV2"),
        ("Tesla P100-SXM2-16GB", 100_000, "NV5"),
        ("Tesla V100-SXM2-16GB", 50_000, "NV2"),
        ("NVIDIA B200", 900_000, "NV18"),
        ("NVIDIA GB200", 900_000, "NV18"),
    ],
)
def test_the_rate_of_one_nvlink_depends_on_the_generation(model: str, rate: int, kind: str) -> None:
    text = xml(
        package(0, gpu(0, "1a", model), gpu(1, "1b", model)),
        matrix("NVLinkBandwidth", "OSDev:300 OSDev:301", f"1 {rate} {rate} 1"),
    )
    assert links(hwloc.read(text)) == {"GPU0-GPU1": kind}


def test_a_bandwidth_of_no_known_rate_counts_as_one_link() -> None:
    reading = hwloc.read(xml(*PAIR, matrix("NVLinkBandwidth", "OSDev:300 OSDev:301", "1 33333 33333 1")))
    assert links(reading)["GPU0-GPU1"] == "NV1"
    assert reading.findings[0].code == "nvlink-count-unknown"


def test_the_lower_direction_counts() -> None:
    reading = hwloc.read(xml(*PAIR, matrix("NVLinkBandwidth", "OSDev:300 OSDev:301", "1 100000 50000 1")))
    assert links(reading)["GPU0-GPU1"] == "NV2"
    assert reading.findings[0].code == "direction-mismatch"


def test_gpus_at_nvswitches_are_linked_by_all_their_nvlinks() -> None:
    values = "1 0 150000 150000 0 1 150000 150000 150000 150000 1 0 150000 150000 0 1"
    text = xml(
        package(0, host_bridge(gpu(0, "1a")), host_bridge(gpu(1, "2a")), nvswitch(0), nvswitch(1)),
        matrix("NVLinkBandwidth", "OSDev:300 OSDev:301 OSDev:600 OSDev:601", values),
    )
    assert links(hwloc.read(text)) == {"GPU0-GPU1": "NV12"}


def test_xgmi_has_no_count() -> None:
    text = xml(*PAIR, matrix("XGMIBandwidth", "OSDev:300 OSDev:301", "1 100000 100000 1"))
    assert links(hwloc.read(text))["GPU0-GPU1"] == "XGMI"


@pytest.mark.parametrize("values", ["1 100000", "1 a b 1", ""])
def test_an_unreadable_matrix_leaves_links_unknown(values: str) -> None:
    reading = hwloc.read(xml(*PAIR, matrix("NVLinkBandwidth", "OSDev:300 OSDev:301", values)))
    assert set(links(reading).values()) == {"?"}
    assert not reading.complete


def test_distances_of_the_pcie_tree() -> None:
    one_switch = bridge(bridge(gpu(0, "1a")), bridge(gpu(1, "1b")), bridge(nic("1c")))
    reading = hwloc.read(
        xml(package(0, host_bridge(bridge(one_switch, bridge(bridge(gpu(2, "2a"))))), host_bridge(gpu(3, "3a"))))
    )
    assert links(reading) == {
        "GPU0-GPU1": "PIX", "GPU0-GPU2": "PXB", "GPU0-GPU3": "NODE", "GPU1-GPU2": "PXB", "GPU1-GPU3": "NODE", "GPU2-GPU3": "NODE",
    }  # fmt: skip
    assert nic_links(reading) == {"GPU0-NIC0": "PIX", "GPU1-NIC0": "PIX", "GPU2-NIC0": "PXB", "GPU3-NIC0": "NODE"}
    assert reading.body["nics"] == [{"id": "NIC0", "name": "mlx5_0", "pci": "0000:1c:00.0"}]


def test_without_a_library_that_knows_the_links_they_are_unknown() -> None:
    reading = hwloc.read(xml(package(0, gpu(0, "1a", library="cuda"), gpu(1, "1b", library="cuda"))))
    assert (links(reading), reading.complete) == ({"GPU0-GPU1": "?"}, False)
    assert reading.findings[0].code == "nvlink-hidden"


def test_a_device_of_the_whole_machine_has_no_numa_node() -> None:
    assert hwloc.read(xml(host_bridge(gpu(0, "1a")))).body["gpus"][0]["numa"] is None


def test_memory_of_a_gpu_is_not_its_numa_node() -> None:
    text = xml(package(0, gpu(0, "1a"), '<object type="NUMANode" os_index="9" subtype="GPUMemory"/>')).replace(
        '"0x00000001"', '"0x00000201"'
    )
    assert hwloc.read(text).body["gpus"][0]["numa"] == 0


def test_of_a_cut_file_links_are_unknown() -> None:
    text = xml(*PAIR, matrix("NVLinkBandwidth", "OSDev:300 OSDev:301", "1 50000 50000 1"))
    reading = hwloc.read(text[: text.index("<distances2hetero")])
    assert (set(links(reading).values()), reading.complete) == ({"?"}, False)


TEXT = """\
Machine (755GB total)
  Package L#0
    NUMANode L#0 (P#0 377GB)
    L3 L#0 (36MB)
      L2 L#0 (1024KB) + L1d L#0 (32KB) + Core L#0
        PU L#0 (P#0)
    HostBridge
      PCIBridge
        PCIBridge
          PCIBridge
            PCI 17:00.0 (3D)
              CoProc(CUDA) "cuda0"
              GPU(NVML) "nvml0"
          PCIBridge
            PCI 18:00.0 (InfiniBand)
              Net "ib0"
              OpenFabrics "mlx5_0"
      PCIBridge
        PCI 03:00.0 (VGA)
    HostBridge
      PCI 3d:00.0 (VGA)
        CoProc(CUDA) "cuda1"
  Package L#1
    NUMANode L#1 (P#4 377GB)
    HostBridge
      PCIBridge
        PCI 0001:af:00.0 (3D)
"""


def test_the_text_of_lstopo_gives_places_and_hides_links() -> None:
    reading = hwloc.read(TEXT)
    assert hwloc.recognises(TEXT)
    assert [(g["pci"], g["numa"]) for g in reading.body["gpus"]] == [
        ("0000:17:00.0", 0),
        ("0000:3d:00.0", 0),
        ("0001:af:00.0", 4),
    ]
    assert nic_links(reading) == {"GPU0-NIC0": "PIX", "GPU1-NIC0": "NODE", "GPU2-NIC0": "SYS"}
    assert set(links(reading).values()) == {"?"}
    assert (reading.complete, reading.findings[0].code) == (False, "nvlink-hidden")


def test_the_text_of_version_1_names_vendor_and_model_and_puts_the_node_around() -> None:
    text = """\
Machine (64GB)
  NUMANode L#0 (P#0 32GB) + Socket L#0
    HostBridge L#0
      PCIBridge
        PCI 10de:1021
          CoProc L#1 "cuda0"
  NUMANode L#1 (P#1 32GB) + Socket L#1
    HostBridge L#2
      PCIBridge
        PCI 10de:1021 (busid=0000:82:00.0 class=0302(3D))
          CoProc L#2 "cuda1"
"""
    assert [(g["pci"], g["numa"]) for g in hwloc.read(text).body["gpus"]] == [(None, 0), ("0000:82:00.0", 1)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (xml(package(0)), "no GPU"),
        ("Machine (8GB)\n  Package L#0\n", "no GPU"),
        ("", "no GPU"),
        ('<topology version="2.0"><!DOCTYPE x [<!ENTITY y "z">]><object type="Machine"/></topology>', "entity"),
    ],
)
def test_a_machine_without_gpu_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        hwloc.read(text)

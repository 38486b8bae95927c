"""Topologies as NCCL and RCCL write them, and as people cut them down."""

from __future__ import annotations

import pytest

from pyscheduler.readers.machine import nccl_xml
from pyscheduler.readers.reading import Reading, RefusedError

SWITCH = '<nvlink target="0000:f0:00.0" count="{}" tclass="0x068000"/>'


def gpu(dev: int, bus: str, links: str = "", *, kind: str = "0x030200") -> str:
    return f'<pci busid="0000:{bus}:00.0" class="{kind}" link_speed="" link_width="0"><gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{links}</gpu></pci>'


def nic(name: str, bus: str) -> str:
    return f'<pci busid="0000:{bus}:00.0" class="0x020700"><nic><net name="{name}" dev="0" port="1"/></nic></pci>'


def switch(*devices: str) -> str:
    return '<pci busid="ffff:ff:01.0" class="0x060400">' + "\n".join(devices) + "</pci>"


def cpu(*devices: str, numa: str = "0", host: str = "") -> str:
    named = f' host_hash="{host}"' if host else ""
    return f'<cpu{named} numaid="{numa}" affinity="00000000,0000000f,f000000f" arch="x86_64">\n' + "\n".join(devices) + "\n</cpu>"


def system(*cpus: str) -> str:
    return '<system version="1">\n' + "\n".join(cpus) + "\n</system>\n"


def nvlink(target: str, count: int, kind: str = "0x030200", tag: str = "nvlink") -> str:
    return f'<{tag} target="0000:{target}:00.0" count="{count}" tclass="{kind}"/>'


def links(reading: Reading) -> dict[str, str]:
    return {f"{link['a']}-{link['b']}": link["type"] for link in reading.body["links"]}


def nic_links(reading: Reading) -> dict[str, str]:
    return {f"{link['gpu']}-{link['nic']}": link["type"] for link in reading.body["nic_links"]}


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def test_gpus_at_one_nvswitch_are_linked_by_all_their_nvlinks() -> None:
    two = SWITCH.format(10) + SWITCH.replace("f0", "f1").format(8)
    reading = nccl_xml.read(system(cpu(gpu(0, "1a", two), gpu(1, "1b", two)), cpu(gpu(2, "9a", two), numa="1")))
    assert links(reading) == {"GPU0-GPU1": "NV18", "GPU0-GPU2": "NV18", "GPU1-GPU2": "NV18"}
    assert (reading.complete, reading.findings) == (True, ())


def test_a_gpu_with_fewer_nvlinks_weakens_its_pairs_and_is_named() -> None:
    reading = nccl_xml.read(
        system(cpu(gpu(0, "1a", SWITCH.format(18)), gpu(1, "1b", SWITCH.format(16)), gpu(2, "1c", SWITCH.format(18))))
    )
    assert links(reading) == {"GPU0-GPU1": "NV16", "GPU0-GPU2": "NV18", "GPU1-GPU2": "NV16"}
    assert [(f.code, "GPU1" in f.message) for f in reading.findings] == [("nvlink-degraded", True)]


def test_a_gpu_without_nvlink_among_others_goes_over_pcie_and_is_named() -> None:
    reading = nccl_xml.read(system(cpu(gpu(0, "1a", SWITCH.format(18)), gpu(1, "1b"), gpu(2, "1c", SWITCH.format(18)))))
    assert links(reading) == {"GPU0-GPU1": "NODE", "GPU0-GPU2": "NV18", "GPU1-GPU2": "NODE"}
    assert [(f.code, "GPU1" in f.message) for f in reading.findings] == [("nvlink-missing", True)]


def test_direct_links_count_only_as_far_as_both_ends_name_them() -> None:
    reading = nccl_xml.read(
        system(cpu(gpu(0, "1a", nvlink("1b", 4) + nvlink("1c", 2)), gpu(1, "1b", nvlink("1a", 3)), gpu(2, "1c")))
    )
    assert links(reading) == {"GPU0-GPU1": "NV3", "GPU0-GPU2": "NODE", "GPU1-GPU2": "NODE"}
    assert "direction-mismatch" in codes(reading)


def test_xgmi_keeps_its_count_and_pairs_without_it_go_over_pcie() -> None:
    amd = {"kind": "0x038000"}
    text = system(
        cpu(
            switch(
                gpu(0, "21", nvlink("24", 4, "0x038000", "xgmi"), **amd),
                gpu(1, "24", nvlink("21", 4, "0x038000", "xgmi"), **amd),
                gpu(2, "27", **amd),
            )
        )
    )
    assert links(nccl_xml.read(text)) == {"GPU0-GPU1": "XGMI4", "GPU0-GPU2": "PIX", "GPU1-GPU2": "PIX"}


def test_nvlink_that_points_at_the_gpu_itself_tells_nothing() -> None:
    reading = nccl_xml.read(system(cpu(gpu(0, "1a", nvlink("1a", 12)), gpu(1, "1b", nvlink("1b", 12)))))
    assert (links(reading), reading.complete, codes(reading)) == ({"GPU0-GPU1": "?"}, False, ["nvlink-to-itself"])


def test_gpus_known_by_their_class_alone_have_unknown_links_and_known_nics() -> None:
    bare = '<pci busid="0001:0{}:00.0" class="0x030200"/>'
    port = '<pci busid="0101:00:00.0" class="0x020000"/>'
    reading = nccl_xml.read(system(cpu(switch(bare.format(1), bare.format(2), port)), cpu(bare.format(3), numa="1")))
    assert set(links(reading).values()) == {"?"}
    assert nic_links(reading) == {"GPU0-NIC0": "PIX", "GPU1-NIC0": "PIX", "GPU2-NIC0": "SYS"}
    assert (reading.complete, codes(reading)) == (False, ["links-unknown"])


def test_distance_goes_from_one_switch_over_several_to_the_sockets() -> None:
    text = system(
        cpu(switch(switch(gpu(0, "1a"), nic("mlx5_0", "1f")), switch(gpu(1, "2a"))), switch(gpu(2, "3a"))),
        cpu(gpu(3, "9a"), '<nic><net name="eth0" dev="1"/></nic>', numa="1"),
    )
    reading = nccl_xml.read(text)
    assert nic_links(reading) == {
        "GPU0-NIC0": "PIX", "GPU1-NIC0": "PXB", "GPU2-NIC0": "NODE", "GPU3-NIC0": "SYS",
        "GPU0-NIC1": "SYS", "GPU1-NIC1": "SYS", "GPU2-NIC1": "SYS", "GPU3-NIC1": "NODE",
    }  # fmt: skip
    assert reading.body["nics"] == [
        {"id": "NIC0", "name": "mlx5_0", "pci": "0000:1f:00.0"},
        {"id": "NIC1", "name": "eth0", "pci": None},
    ]


def test_switches_that_repeat_an_address_are_still_different_switches() -> None:
    reading = nccl_xml.read(system(cpu(switch(gpu(0, "1a"), nic("mlx5_0", "1b")), switch(gpu(1, "2a"), nic("mlx5_1", "2b")))))
    assert nic_links(reading) == {"GPU0-NIC0": "PIX", "GPU0-NIC1": "NODE", "GPU1-NIC0": "NODE", "GPU1-NIC1": "PIX"}


def test_identity_numa_and_cpus_come_from_the_cpu_around() -> None:
    entry = nccl_xml.read(system(cpu(gpu(0, "1A"), numa="3"))).body["gpus"][0]
    assert (entry["id"], entry["pci"], entry["numa"], entry["cpu_affinity"]) == ("GPU0", "0000:1a:00.0", 3, "0-3,28-35")
    assert nccl_xml.read(system(cpu(gpu(0, "1a"), numa="-1"))).body["gpus"][0]["numa"] is None


def test_two_machines_in_one_domain_repeat_addresses_and_are_told_apart_by_host() -> None:
    fabric = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    text = system(
        cpu(gpu(0, "06", fabric), gpu(1, "07", fabric), host="0xa"), cpu(gpu(0, "06", fabric), gpu(1, "07"), host="0xb")
    )
    reading = nccl_xml.read(text)
    found = {(link["a_host"], link["a"], link["b_host"], link["b"]): link["type"] for link in reading.body["links"]}
    assert [(g["host"], g["id"]) for g in reading.body["gpus"]] == [
        ("0xa", "GPU0"),
        ("0xa", "GPU1"),
        ("0xb", "GPU0"),
        ("0xb", "GPU1"),
    ]
    assert found["0xa", "GPU0", "0xb", "GPU0"] == "NV18"
    assert found["0xa", "GPU0", "0xb", "GPU1"] == "?"
    assert found["0xb", "GPU0", "0xb", "GPU1"] == "NODE"


def test_switches_of_two_machines_are_not_one_though_their_address_is() -> None:
    text = system(cpu(gpu(0, "06", SWITCH.format(18)), host="0xa"), cpu(gpu(0, "06", SWITCH.format(18)), host="0xb"))
    assert [link["type"] for link in nccl_xml.read(text).body["links"]] == ["?"]


def test_a_nvlink_port_of_the_cpu_joins_no_gpus() -> None:
    port = nvlink("f0", 3, "0x068001")
    reading = nccl_xml.read(system(cpu(gpu(0, "1a", port), gpu(1, "1b", port))))
    assert (links(reading), reading.complete) == ({"GPU0-GPU1": "NODE"}, True)


def test_a_target_that_is_not_in_the_file_makes_it_incomplete() -> None:
    reading = nccl_xml.read(system(cpu(gpu(0, "1a", nvlink("7f", 12)), gpu(1, "1b"))))
    assert (links(reading), reading.complete) == ({"GPU0-GPU1": "NODE"}, False)
    assert "0000:7f:00.0" in reading.findings[0].message


def test_a_gpu_that_is_listed_twice_counts_once() -> None:
    reading = nccl_xml.read(system(cpu(gpu(0, "1a"), gpu(1, "1a"), gpu(2, "1b"))))
    assert [entry["pci"] for entry in reading.body["gpus"]] == ["0000:1a:00.0", "0000:1b:00.0"]
    assert "gpu-repeated" in codes(reading)


def test_of_a_cut_file_the_whole_gpus_are_read_and_the_cut_one_has_unknown_links() -> None:
    text = system(cpu(gpu(0, "1a", SWITCH.format(18)), gpu(1, "1b", SWITCH.format(18)), gpu(2, "1c", SWITCH.format(18))))
    reading = nccl_xml.read(text[: text.rindex("<nvlink") + 20])
    assert links(reading) == {"GPU0-GPU1": "NV18", "GPU0-GPU2": "?", "GPU1-GPU2": "?"}
    assert (reading.complete, codes(reading)) == (False, ["xml-cut"])


def test_comments_text_around_and_a_second_topology_do_not_disturb() -> None:
    text = (
        "$ cat topo.xml\n\ufeff<!-- a\nnote -->\n"
        + system(cpu(gpu(0, "1a"), gpu(1, "1b"))).replace("</cpu>", "<!-- end --></cpu>")
        + "$\n"
    )
    assert nccl_xml.recognises(text)
    assert nccl_xml.read(text).complete
    twice = nccl_xml.read(text + text)
    assert (len(twice.body["gpus"]), twice.complete, codes(twice)) == (2, False, ["second-element"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<graphs version="1"><graph id="0"/></graphs>', "line 1: <graphs> is a graph"),
        ('<system version="1"></system>', "no GPU"),
        (
            '<system version="1"><cpu numaid="0"><pci busid="0000:03:00.0" class="0x030000" vendor="0x1a03"/></cpu></system>',
            "no GPU",
        ),
        ('\n<system><!DOCTYPE a [<!ENTITY b "cc">]><cpu>&b;</cpu></system>', "line 2: a document type"),
        ("<system>" + "<pci>" * 1000 + "</pci>" * 1000 + "</system>", "nested"),
        ("nothing", "no <system>"),
        ("<system \ud800>", "characters"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        nccl_xml.read(text)


@pytest.mark.parametrize("closed", [False, True])
def test_a_cpu_inside_a_cpu_is_another_socket(closed: bool) -> None:
    first = cpu(gpu(0, "1a"), gpu(1, "1b")).replace("</cpu>", "")
    text = system(first + cpu(gpu(2, "9a"), numa="1") + "</cpu>" * closed)
    reading = nccl_xml.read(text)
    assert links(reading) == {"GPU0-GPU1": "NODE", "GPU0-GPU2": "SYS", "GPU1-GPU2": "SYS"}
    assert [entry["numa"] for entry in reading.body["gpus"]] == [0, 0, 1]
    assert not reading.complete
    assert "cpu-nested" in codes(reading)


def test_a_switch_around_a_cpu_is_not_shared() -> None:
    reading = nccl_xml.read(system(cpu(switch(gpu(0, "1a"), cpu(gpu(1, "9a"), numa="1")))))
    assert links(reading) == {"GPU0-GPU1": "SYS"}

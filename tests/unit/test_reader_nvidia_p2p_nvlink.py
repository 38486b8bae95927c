"""`nvidia-smi topo -p2p` and `nvidia-smi nvlink --status`."""

from __future__ import annotations

import pytest

from pyscheduler.readers.nvidia import nvlink as nvidia_smi_nvlink
from pyscheduler.readers.nvidia import p2p as nvidia_smi_p2p
from pyscheduler.readers.reading import Reading, RefusedError

P2P = " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tOK\tOK\t\n GPU1\tOK\tX\tOK\t\n GPU2\tOK\tOK\tX\t\n"
LEGEND = "\nLegend:\n\n  X    = Self\n  CNS  = Chipset not supported\n"


def card(index: int, *lines: str, model: str = "NVIDIA A100-SXM4-40GB") -> str:
    return "\n".join([f"GPU {index}: {model} (UUID: GPU-0000000{index}-aaaa)", *lines]) + "\n"


def up(*numbers: int, speed: str = "25 GB/s") -> list[str]:
    return [f"\t Link {number}: {speed}" for number in numbers]


def p2p(text: str) -> Reading:
    assert nvidia_smi_p2p.recognises(text)
    return nvidia_smi_p2p.read(text)


def nvlink(text: str) -> Reading:
    assert nvidia_smi_nvlink.recognises(text)
    return nvidia_smi_nvlink.read(text)


def statuses(reading: Reading) -> dict[str, str]:
    return {f"{entry['a']}-{entry['b']}": entry["status"] for entry in reading.body["p2p"]}


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def active(reading: Reading) -> dict[str, tuple[int | None, float | None]]:
    return {gpu["id"]: (gpu["nvlink_active"], gpu["nvlink_gbps"]) for gpu in reading.body["gpus"]}


def test_p2p_is_a_status_and_no_link():
    reading = p2p(P2P + LEGEND)

    assert reading.complete
    assert statuses(reading) == {"GPU0-GPU1": "OK", "GPU0-GPU2": "OK", "GPU1-GPU2": "OK"}
    assert reading.body["links"] == []
    assert codes(reading) == []


def test_pairs_that_are_not_ok_are_reported_and_the_worse_direction_counts():
    reading = p2p(P2P.replace("GPU1\tOK", "GPU1\tCNS"))

    assert statuses(reading)["GPU0-GPU1"] == "CNS"
    assert codes(reading) == ["p2p-mismatch", "p2p-not-ok"]


def test_of_two_p2p_matrices_the_worse_counts():
    assert set(statuses(p2p(P2P + P2P.replace("OK", "GNS"))).values()) == {"GNS"}


def test_a_lost_p2p_row_leaves_the_reading_incomplete():
    reading = p2p("\n".join(P2P.splitlines()[:3]))

    assert not reading.complete
    assert codes(reading)[0] == "row-missing"


def test_one_gpu_is_told_by_its_legend():
    assert nvidia_smi_p2p.recognises("\tGPU0\nGPU0\tX\n" + LEGEND)
    assert not nvidia_smi_p2p.recognises("\tGPU0\nGPU0\tX\n")


def test_a_matrix_of_links_is_no_p2p_matrix():
    with pytest.raises(RefusedError):
        nvidia_smi_p2p.read("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n")


def test_active_links_are_counted_and_lead_nowhere():
    reading = nvlink(card(0, *up(0, 1, 2)) + card(1, *up(0, 1, 2)))

    assert reading.complete
    assert active(reading) == {"GPU0": (3, 25.0), "GPU1": (3, 25.0)}
    assert [gpu["uuid"] for gpu in reading.body["gpus"]] == ["GPU-00000000-aaaa", "GPU-00000001-aaaa"]
    assert reading.body["links"] == []


def test_inactive_and_slow_links_are_seen():
    down = nvlink(card(0, *up(0, 1, 2)) + card(1, *up(0, 1), "\t Link 2: <inactive>") + card(2, *up(0, 1, 2)))
    assert active(down)["GPU1"] == (2, 25.0)
    assert codes(down) == ["nvlink-inactive", "nvlink-fewer"]

    slow = nvlink(card(0, *up(0), *up(1, speed="12.5 GB/s")))
    assert active(slow) == {"GPU0": (2, 12.5)}
    assert codes(slow) == ["nvlink-slow"]


def test_no_link_is_up():
    reading = nvlink(card(0, "NVML: Unable to retrieve NVLink information as all links are inActive"))

    assert reading.complete
    assert active(reading) == {"GPU0": (0, None)}


@pytest.mark.parametrize(
    "line",
    ["NVLink queries are not supported for devices in MIG mode", "NVML: Unable to retrieve NVLink information: Not Supported"],
)
def test_what_is_not_shown_is_unknown_and_not_zero(line):
    reading = nvlink(card(0, line))

    assert not reading.complete
    assert active(reading) == {"GPU0": (None, None)}
    assert line in reading.findings[0].message


def test_a_cut_line_leaves_the_count_unknown():
    reading = nvlink(card(0, *up(0, 1)) + card(1, *up(0), "\t Link 1: 25 G"))

    assert active(reading) == {"GPU0": (2, 25.0), "GPU1": (None, 25.0)}
    assert codes(reading) == ["nvlink-cut"]


@pytest.mark.parametrize("text", ["", card(0), "Link 0: 25 GB/s\n", card(0, "\t Link 0: Replay Errors: 0")])
def test_what_shows_no_state_of_links_is_not_recognised(text):
    assert not nvidia_smi_nvlink.recognises(text)


def test_without_a_gpu_nothing_is_read():
    with pytest.raises(RefusedError):
        nvidia_smi_nvlink.read("Link 0: 25 GB/s\n")

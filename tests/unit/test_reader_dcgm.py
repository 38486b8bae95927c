"""The text of DCGM's exporter."""

from __future__ import annotations

from typing import Any

import pytest

from pyscheduler.readers.cards import dcgm
from pyscheduler.readers.reading import RefusedError

CARD = 'gpu="0",UUID="GPU-1",pci_bus_id="00000000:0D:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'


def line(value: str, metric: str = "DCGM_FI_DEV_GPU_UTIL", labels: str = CARD) -> str:
    return f"{metric}{{{labels}}} {value}\n"


def series(text: str) -> list[dict[str, Any]]:
    return dcgm.read(text).body["series"]


def discarded(text: str) -> list[dict[str, Any]]:
    return dcgm.read(text).body["discarded"]


def codes(text: str) -> list[str]:
    return [finding.code for finding in dcgm.read(text).findings]


def test_a_sample_is_one_entry_of_its_card():
    text = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n" + line("91")

    assert dcgm.recognises(text)
    assert series(text) == [{"node": "n1", "uuid": "GPU-1", "mig": None, "metric": "DCGM_FI_DEV_GPU_UTIL", "value": 91}]
    assert codes(text) == []


def test_newer_exporters_write_hostname_small_and_gpu_uuid():
    assert series(line("0.5", labels='gpu_uuid="GPU-1", hostname="n1"'))[0] | {"metric": ""} == {
        "node": "n1", "uuid": "GPU-1", "mig": None, "metric": "", "value": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("9223372036854775794", "sentinel: not supported"),
        ("9223372036854775792", "sentinel: blank"),
        ("9.223372036854776e+18", "sentinel: blank"),
        ("140737488355330", "sentinel: not supported"),
        ("2147483633", "sentinel: not found"),
        ("NaN", "not a finite number"),
        ("+Inf", "not a finite number"),
        ("3.5e+0", "exponent is cut"),
        ("N/A", "value is no number"),
        ("1_000", "value is no number"),
    ],
)
def test_blanks_are_discarded_with_their_reason(value: str, reason: str):
    text = line(value) + line("3", "DCGM_FI_DEV_GPU_TEMP")

    assert [(d["value"], d["reason"]) for d in discarded(text)] == [(value, reason)]
    assert [s["value"] for s in series(text)] == [3]
    assert codes(text) == ["sample-discarded"]


@pytest.mark.parametrize(
    ("text", "value"), [("1e+09", 1e9), ("1e-07", 1e-7), ("0.000000", 0.0), ("-3", -3), ("9223372036854775791", 2**63 - 17)]
)
def test_other_numbers_are_kept_as_they_are(text: str, value: float):
    assert series(line(text))[0]["value"] == value


@pytest.mark.parametrize(
    "bad", ['DCGM_FI_DEV_FB_USED{gpu="0",...,x="y"} 1', 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU', "...", 'DCGM_FI_X{gpu="0"}']
)
def test_lines_that_are_no_samples_are_counted_and_shown(bad: str):
    text = line("1") + bad + "\n"

    assert [d["line"] for d in discarded(text)] == [2]
    assert codes(text) == ["line-unreadable"]
    assert len(series(text)) == 1


def test_braces_quotes_and_time_behind_the_value_are_read():
    labels = 'UUID="GPU-1",Hostname="n1",err_msg="a \\"}\\" {b}, c"'

    assert [s["value"] for s in series(line('5 1700000000000 # {trace_id="a}"} 1', labels=labels))] == [5]


def test_only_the_newest_of_several_times_counts():
    text = line("5 1700000000000") + line("7 1700000060000") + line("6 1700000030000")

    assert [s["value"] for s in series(text)] == [7]


def test_an_index_or_a_placeholder_is_no_identity():
    text = line("1", labels='gpu="0",Hostname="n1"') + line("2", labels='gpu="1",UUID="1",Hostname="N/A"')

    assert [(s["uuid"], s["node"], s["labels"]) for s in series(text)] == [(None, "n1", {"gpu": "0"}), (None, None, {"gpu": "1"})]
    assert "no-identity" in codes(text)


def test_mig_instances_are_apart_and_their_card_is_reported_as_split():
    text = "".join(line(str(i), labels=f'{CARD},GPU_I_PROFILE="1g.10gb",GPU_I_ID="{i}"') for i in (3, 5))

    assert [(s["mig"], s["value"]) for s in series(text)] == [("3", 3), ("5", 5)]
    assert codes(text) == ["mig-split"]


def test_links_of_one_card_are_told_apart_by_their_labels():
    text = "".join(line(str(i), "DCGM_FI_DEV_NVLINK_TX", f'{CARD},nvlink="{i}"') for i in (0, 1))

    assert [s["labels"] for s in series(text)] == [{"nvlink": "0"}, {"nvlink": "1"}]


def test_the_pod_is_the_user_unless_prometheus_renamed_it():
    direct = line("1", labels=f'{CARD},pod="train-0",namespace="ml"')
    scraped = line("1", labels=f'{CARD},pod="exporter-x",namespace="mon",exported_pod="train-0",exported_namespace="ml"')
    renamed_only_elsewhere = scraped + line("2", "DCGM_FI_DEV_GPU_TEMP", f'{CARD},pod="exporter-x",namespace="mon"')

    assert series(direct)[0]["pod"] == "ml/train-0"
    assert series(scraped)[0]["pod"] == "ml/train-0"
    assert "pod" not in series(renamed_only_elsewhere)[1]
    assert "pod" not in series(line("1", labels=f'{CARD},pod="",namespace=""'))[0]


def test_a_card_shared_by_two_pods_counts_once_and_has_no_one_user():
    text = line("9", labels=f'{CARD},pod="a",namespace="x"') + line("9", labels=f'{CARD},pod="b",namespace="x"')

    assert [("pod" in s, s["value"]) for s in series(text)] == [(False, 9)]
    assert codes(text) == ["sample-repeated", "several-pods"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (line("79", "DCGM_FI_DEV_XID_ERRORS"), "xid-error"),
        (line("1", "DCGM_EXP_XID_ERRORS_COUNT", f'{CARD},xid="48"'), "xid-error"),
        (line("1", "DCGM_FI_DEV_ROW_REMAP_FAILURE"), "row-remap-failure"),
        (line("20", "DCGM_EXP_GPU_HEALTH_STATUS", f'{CARD},health_watch="NVLINK"'), "gpu-unhealthy"),
        (line("1", labels='UUID="GPU-1",Hostname="n1",modelName="NVIDIA A100-10C"'), "vgpu-slice"),
        (line("1", labels='UUID="GPU-1"'), "no-hostname"),
        (line("1", labels='UUID="GPU-1",Hostname="dcgm-exporter-x7k"'), "hostname-is-pod"),
        (line("1") + line("1", labels='gpu="0",UUID="GPU-1",Hostname="n2"'), "uuid-on-several-nodes"),
        (line("1") + line("1", labels='gpu="0",UUID="GPU-2",Hostname="n1"'), "uuid-changed"),
        (line("1") + "process_open_fds 9\n", "no-gpu-sample"),
        (line("1") + line("40", "DCGM_FI_DEV_NVSWITCH_TEMP", 'nvswitch="nvswitch0",Hostname="n1"'), "no-gpu-sample"),
    ],
)
def test_what_a_reader_of_the_numbers_must_know_is_a_finding(text: str, code: str):
    assert codes(text) == [code]


@pytest.mark.parametrize(
    ("value", "metric"),
    [("0", "DCGM_FI_DEV_XID_ERRORS"), ("0", "DCGM_FI_DEV_ROW_REMAP_FAILURE"), ("10", "DCGM_EXP_GPU_HEALTH_STATUS")],
)
def test_cards_that_are_well_are_not_reported(value: str, metric: str):
    assert codes(line(value, metric)) == []


def test_text_without_a_readable_sample_is_refused_with_its_line():
    with pytest.raises(RefusedError, match=r"line 2: no sample of a GPU \(no value"):
        dcgm.read('# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu="0"}\n')
    with pytest.raises(RefusedError, match="only comments"):
        dcgm.read("# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n")
    assert not dcgm.recognises("We watch DCGM_FI_DEV_GPU_UTIL{} here\n")

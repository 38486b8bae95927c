"""AMD's exporter, and the JSON of rocm-smi."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.readers.cards import amd_metrics
from pyscheduler.readers.reading import RefusedError

LABELS = 'card_model="MI300X",gpu_id="{gpu}",gpu_partition_id="0",hostname="{host}",serial_number="{serial}"'


def line(metric: str, value: str, more: str = "", gpu: int = 0, host: str = "n1", serial: str = "692251001124") -> str:
    return f"{metric}{{{LABELS.format(gpu=gpu, host=host, serial=serial)}{more}}} {value}\n"


def card(**values: Any) -> dict[str, Any]:
    return {"PCI Bus": "0000:1A:00.0", "Serial Number": "N/A", "Unique ID": "0xabc1", **values}


def series(text: str) -> list[dict[str, Any]]:
    return amd_metrics.read(text).body["series"]


def codes(text: str) -> list[str]:
    return [finding.code for finding in amd_metrics.read(text).findings]


def test_the_serial_number_identifies_a_card_without_uuid():
    text = line("gpu_gfx_activity", "7")

    assert amd_metrics.recognises(text)
    assert series(text) == [
        {
            "node": "n1", "uuid": None, "serial": "692251001124", "mig": None, "metric": "gpu_gfx_activity", "value": 7,
            "labels": {"gpu_id": "0", "gpu_partition_id": "0"},
        }
    ]  # fmt: skip
    assert codes(text) == []


def test_two_dies_of_one_card_share_a_serial_number_and_stay_apart():
    text = line("gpu_gfx_activity", "7", gpu=0) + line("gpu_gfx_activity", "9", gpu=1)

    assert [s["value"] for s in series(text)] == [7, 9]
    assert codes(text) == []


def test_placeholders_identify_nothing_and_keep_the_values():
    text = line("gpu_xgmi_link_rx", "2.5e+09", ',link_index="3"', host="xxxx", serial="xxxx")

    (entry,) = series(text)
    assert (entry["node"], entry["uuid"], "serial" in entry) == (None, None, False)
    assert entry["labels"]["link_index"] == "3"
    assert set(codes(text)) == {"no-identity", "no-hostname"}


def test_a_number_whose_exponent_is_cut_never_reads_as_idle():
    text = line("gpu_xgmi_link_tx", "3.5e+09", ',link_index="1"') + line("gpu_xgmi_link_tx", "3.5e+0", ',link_index="2"')

    assert [s["value"] for s in series(text)] == [3.5e9]
    assert amd_metrics.read(text).body["discarded"][0]["labels"]["link_index"] == "2"


def test_a_prefix_of_the_names_is_the_source_s_own():
    text = line("amd_gpu_health", "0")

    assert amd_metrics.recognises(text)
    assert series(text)[0]["metric"] == "amd_gpu_health"
    assert codes(text) == ["gpu-unhealthy"]


def test_the_json_of_rocm_smi_gives_fixed_names():
    text = json.dumps({
        "card0": card(**{
            "GPU use (%)": "12",
            "GPU memory use (%)": "3",
            "Average Graphics Package Power (W)": "36.0",
            "Temperature (Sensor edge) (C)": "53.0",
            "VRAM Total Memory (B)": "34342961152",
            "VRAM Total Used Memory (B)": "6750208",
            "0": "16.0GT/s x16 *",
        }),
        "system": {"Driver version": "6.3.6"},
    })  # fmt: skip

    assert amd_metrics.recognises(text)
    assert {s["metric"]: s["value"] for s in series(text)} == {
        "util": 12, "mem_util": 3, "power_w": 36.0, "temp_edge_c": 53.0, "vram_total_b": 34342961152, "vram_used_b": 6750208,
    }  # fmt: skip
    assert {(s["uuid"], s["pci"], s["device"]) for s in series(text)} == {("0xabc1", "0000:1a:00.0", "card0")}


def test_keys_of_newer_versions_have_the_same_names():
    values = {"Current Socket Graphics Package Power (W)": "140.0", "GPU Memory Allocated (VRAM%)": "12", "gpu use (%)": "0"}

    assert {s["metric"] for s in series(json.dumps({"card3": card(**values)}))} == {"power_w", "vram_used_pct", "util"}


def test_a_unique_id_on_two_cards_identifies_none():
    text = json.dumps({f"card{i}": card(**{"GPU use (%)": "1"}) for i in range(2)})

    assert {s["uuid"] for s in series(text)} == {None}
    assert codes(text) == ["uuid-repeated"]


def test_a_card_without_a_number_is_unknown_and_not_idle():
    text = json.dumps({"card0": card(**{"GPU use (%)": "5"}), "card1": card(**{"GPU use (%)": "N/A", "Unique ID": "N/A"})})

    assert {s["device"] for s in series(text)} == {"card0"}
    assert codes(text) == ["no-sample"]


def test_warnings_around_the_json_are_skipped():
    text = (
        "WARNING: AMD GPU device(s) is/are in a low-power state.\n" + json.dumps({"card0": card(**{"GPU use (%)": "5"})}) + "\n"
    )

    assert amd_metrics.recognises(text)
    assert len(series(text)) == 1


def test_links_alone_are_no_metrics():
    table = {"card0": {"(Topology) Numa Node": "0"}, "system": {"(Topology) Weight between DRM devices 0 and 1": "40"}}

    assert not amd_metrics.recognises(json.dumps(table))
    with pytest.raises(RefusedError):
        amd_metrics.read(json.dumps(table))

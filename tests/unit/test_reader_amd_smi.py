"""What AMD SMI prints, as tables and as JSON of both schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.readers.amd import amd_smi
from pyscheduler.readers.reading import Reading, RefusedError

BUSES = ("0000:0a:00.0", "0000:3b:00.0", "0000:c1:00.0")
KINDS = (("SELF", "XGMI", "PCIE"), ("XGMI", "SELF", "PCIE"), ("PCIE", "PCIE", "SELF"))
WEIGHTS = (("0", "15", "40"), ("15", "0", "40"), ("40", "40", "0"))
RATES = (("N/A", "50000-50000", "0-0"), ("50000-50000", "N/A", "0-0"), ("0-0", "0-0", "N/A"))


def table(title: str, rows: tuple[tuple[str, ...], ...], names: tuple[str, ...] = BUSES) -> str:
    lines = [f"{title} TABLE:", " " * 13 + " ".join(f"{name:12}" for name in names)]
    lines += [f"{name:12} " + " ".join(f"{cell:12}" for cell in row) for name, row in zip(names, rows, strict=True)]
    return "\n".join(lines) + "\n\n"


TEXT = table("WEIGHT", WEIGHTS) + table("LINK TYPE", KINDS) + table("NUMA BW", RATES)


def links(reading: Reading) -> dict[str, tuple[str, int | None]]:
    return {f"{link['a']}-{link['b']}": (link["type"], link.get("cost")) for link in reading.body["links"]}


EXPECTED = {"GPU0-GPU1": ("XGMI", 15), "GPU0-GPU2": ("PCIE", 40), "GPU1-GPU2": ("PCIE", 40)}


def new_schema() -> list[dict[str, Any]]:
    return [
        {
            "gpu": i,
            "bdf": BUSES[i],
            "links": [
                {
                    "gpu": j,
                    "bdf": BUSES[j],
                    "weight": int(WEIGHTS[i][j]),
                    "link_status": "ENABLED",
                    "link_type": KINDS[i][j],
                    "num_hops": 1,
                    "bandwidth": RATES[i][j],
                }
                for j in range(3)
            ],
        }
        for i in range(3)
    ]


def old_schema() -> list[dict[str, Any]]:
    return [
        {
            "gpu": i,
            "link_accessibility": {f"gpu_{j}": "ENABLED" for j in range(3)},
            "weight": {f"gpu_{j}": int(WEIGHTS[i][j]) for j in range(3)},
            "link_type": {f"gpu_{j}": KINDS[i][j] for j in range(3)},
            "numa_bandwidth": {f"gpu_{j}": RATES[i][j] for j in range(3)},
        }
        for i in range(3)
    ]


def test_rows_named_by_address_are_gpus_by_position() -> None:
    reading = amd_smi.read(TEXT)
    assert [(gpu["id"], gpu["pci"]) for gpu in reading.body["gpus"]] == list(zip(("GPU0", "GPU1", "GPU2"), BUSES, strict=True))
    assert links(reading) == EXPECTED
    assert (reading.complete, reading.findings) == (True, ())


def test_rows_named_by_number_keep_their_names() -> None:
    names = ("GPU4", "GPU5", "GPU7")
    reading = amd_smi.read(table("LINK TYPE", KINDS, names))
    assert [(gpu["id"], gpu["pci"]) for gpu in reading.body["gpus"]] == [(name, None) for name in names]
    assert links(reading)["GPU4-GPU5"] == ("XGMI", None)


@pytest.mark.parametrize("schema", [new_schema, old_schema])
def test_json_of_both_schemas_gives_the_same_links(schema) -> None:
    text = json.dumps(schema(), indent=4)
    reading = amd_smi.read(text)
    assert amd_smi.recognises(text)
    assert links(reading) == EXPECTED
    assert (reading.complete, reading.findings) == (True, ())


def test_json_may_stand_behind_a_warning_of_the_tool_and_in_a_wrapper() -> None:
    text = "[WARNING] User is missing the following required groups: render\n" + json.dumps({"gpu_data": new_schema()}, indent=1)
    assert links(amd_smi.read(text)) == EXPECTED


def test_addresses_are_kept_from_json() -> None:
    assert [gpu["pci"] for gpu in amd_smi.read(json.dumps(new_schema())).body["gpus"]] == list(BUSES)


def test_a_pair_without_peer_access_is_named() -> None:
    entries = new_schema()
    entries[0]["links"][2]["link_status"] = "DISABLED"
    finding = amd_smi.read(json.dumps(entries)).findings[0]
    assert (finding.code, "GPU0-GPU2" in finding.message) == ("peer-access-disabled", True)


def test_a_gpu_that_only_others_speak_of_is_there_with_what_they_say() -> None:
    reading = amd_smi.read(json.dumps(new_schema()[:2]))
    assert links(reading) == EXPECTED
    assert not reading.complete


def test_an_unreadable_weight_gives_no_cost() -> None:
    entries = new_schema()
    for i, j in ((0, 1), (1, 0)):
        entries[i]["links"][j]["weight"] = "N/A"
    reading = amd_smi.read(json.dumps(entries))
    assert links(reading)["GPU0-GPU1"] == ("XGMI", None)
    assert not reading.complete


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[\n {"gpu": 0,\n  "links": [{"gpu": 1, "link_type": "XGMI",}]\n }\n]', "line 3: not valid JSON"),
        (json.dumps(new_schema(), indent=1)[:-40], "not valid JSON"),
        ('[{"gpu": 0, "usage": 3}, {"gpu": 1, "usage": 4}]', "no table of link types"),
        ('{"gpu_data": []}', "no entry"),
        ("ACCESS TABLE:\nnothing\n", "no table of link types"),
        ("", "neither"),
        ("[" * 100_000, "neither"),
    ],
)
def test_half_json_and_other_answers_are_refused(text: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        amd_smi.read(text)

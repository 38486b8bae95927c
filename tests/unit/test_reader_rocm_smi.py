"""What ROCm SMI prints, with the accidents of printing and pasting, against the document."""

from __future__ import annotations

import json

import pytest

from pyscheduler.readers.amd import rocm_smi
from pyscheduler.readers.reading import Reading, RefusedError


def links(reading: Reading) -> dict[str, str]:
    return {f"{link['a']}-{link['b']}": link["type"] for link in reading.body["links"]}


def costs(reading: Reading) -> dict[str, int | None]:
    return {f"{link['a']}-{link['b']}": link.get("cost") for link in reading.body["links"]}


def codes(reading: Reading) -> set[str]:
    return {finding.code for finding in reading.findings}


def table(title: str, *rows: str) -> str:
    return "\n".join([f"======== {title} ========", *rows, ""])


def numa(*pairs: tuple[int, int]) -> str:
    lines = ["==== Numa Nodes ===="]
    for gpu, (node, affinity) in enumerate(pairs):
        lines += [f"GPU[{gpu}]\t\t: (Topology) Numa Node: {node}", f"GPU[{gpu}]\t\t: (Topology) Numa Affinity: {affinity}"]
    return "\n".join(lines) + "\n"


TYPES = table(
    "Link Type between two GPUs",
    "       GPU0         GPU1         GPU2",
    "GPU0   0            XGMI         PCIE",
    "GPU1   XGMI         0            PCIE",
    "GPU2   PCIE         PCIE         0",
)
WEIGHTS = table(
    "Weight between two GPUs",
    "       GPU0         GPU1         GPU2",
    "GPU0   0            15           40",
    "GPU1   15           0            40",
    "GPU2   40           40           0",
)
HOPS = table("Hops between two GPUs", "GPU0 GPU1 GPU2", "GPU0 0 1 1", "GPU1 1 0 1", "GPU2 1 1 0")


def test_weights_are_costs_and_hops_are_not_looked_at() -> None:
    reading = rocm_smi.read(WEIGHTS + HOPS + TYPES + numa((0, 0), (1, 1), (3, 3)))
    assert links(reading) == {"GPU0-GPU1": "XGMI", "GPU0-GPU2": "PCIE", "GPU1-GPU2": "PCIE"}
    assert costs(reading) == {"GPU0-GPU1": 15, "GPU0-GPU2": 40, "GPU1-GPU2": 40}
    assert [gpu["numa"] for gpu in reading.body["gpus"]] == [0, 1, 3]
    assert (reading.complete, reading.findings) == (True, ())


def test_a_table_of_link_types_alone_is_complete_and_has_no_costs() -> None:
    reading = rocm_smi.read(TYPES)
    assert reading.complete
    assert set(costs(reading).values()) == {None}
    assert [gpu["numa"] for gpu in reading.body["gpus"]] == [None, None, None]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(lambda text: "\ufeff" + text, id="byte order mark"),
        pytest.param(lambda text: text.replace("XGMI", "\x1b[32mXGMI\x1b[0m"), id="colours"),
        pytest.param(lambda text: text.replace("            ", "\t"), id="tabs"),
        pytest.param(lambda text: "\n".join(" ".join(line.split()) for line in text.split("\n")), id="collapsed blanks"),
        pytest.param(lambda text: text.replace("\n", "\n\n"), id="blank lines between rows"),
        pytest.param(lambda text: "\n".join("> " + line for line in text.split("\n")), id="quoted mail"),
        pytest.param(lambda text: text.replace("         GPU2\nGPU0", "\nGPU2\nGPU0"), id="wrapped header"),
        pytest.param(lambda text: text.replace("XGMI         PCIE\n", "XGMI\nPCIE\n"), id="wrapped row"),
        pytest.param(lambda text: text.replace("XGMI         PCIE", "XGMIPCIE"), id="fused cells"),
        pytest.param(lambda text: text.replace("GPU1         GPU2", "GPU1GPU2"), id="fused header"),
        pytest.param(lambda text: text.lower(), id="lower case"),
        pytest.param(
            lambda text: text.replace("GPU1   XGMI", "ERROR: GPU[1] : Cannot read Link Weight: Not supported\nGPU1   XGMI"),
            id="error line",
        ),
        pytest.param(lambda text: text + text, id="pasted twice"),
    ],
)
def test_no_accident_of_pasting_changes_the_links(damage) -> None:
    reading = rocm_smi.read(damage(TYPES))
    assert links(reading) == links(rocm_smi.read(TYPES))
    assert rocm_smi.recognises(damage(TYPES))
    assert reading.complete


def test_link_types_under_the_title_of_weights_are_link_types() -> None:
    reading = rocm_smi.read(TYPES.replace("Link Type", "Weight"))
    assert links(reading)["GPU0-GPU1"] == "XGMI"
    assert set(costs(reading).values()) == {None}
    assert "table-mistitled" in codes(reading)


def test_a_link_type_that_the_tool_does_not_know_is_unknown() -> None:
    reading = rocm_smi.read(TYPES.replace("XGMI", "XXXX"))
    assert links(reading) == {"GPU0-GPU1": "?", "GPU0-GPU2": "PCIE", "GPU1-GPU2": "PCIE"}
    assert not reading.complete
    assert any("XXXX" in finding.message and "GPU0-GPU1" in finding.message for finding in reading.findings)


def test_unknown_in_one_direction_is_unknown() -> None:
    reading = rocm_smi.read(TYPES.replace("GPU1   XGMI", "GPU1   N/A "))
    assert links(reading)["GPU0-GPU1"] == "?"
    assert not reading.complete


def test_the_weaker_direction_counts() -> None:
    reading = rocm_smi.read(TYPES.replace("GPU1   XGMI", "GPU1   PCIE") + WEIGHTS.replace("GPU1   15", "GPU1   45"))
    assert links(reading)["GPU0-GPU1"] == "PCIE"
    assert costs(reading)["GPU0-GPU1"] == 45
    assert "direction-mismatch" in codes(reading)


@pytest.mark.parametrize("cut", ["GPU2   PCIE         PC", "GPU2   PCIE", "GPU2", "GPU2   PCIE         PCIE"])
def test_what_a_cut_row_lost_is_taken_from_the_other_direction(cut: str) -> None:
    reading = rocm_smi.read(TYPES[: TYPES.index("GPU2   PCIE")] + cut)
    assert links(reading) == links(rocm_smi.read(TYPES))
    assert not reading.complete


def test_a_row_that_lost_a_cell_in_the_middle_is_not_shifted() -> None:
    reading = rocm_smi.read(TYPES.replace("GPU1   XGMI         0            PCIE", "GPU1   XGMI                      PCIE"))
    assert links(reading) == links(rocm_smi.read(TYPES))
    assert "row-cut" in codes(reading)


def test_a_shifted_row_is_not_used() -> None:
    reading = rocm_smi.read(TYPES.replace("GPU1   XGMI         0            PCIE", "GPU1   0 PCIE XGMI"))
    assert links(reading)["GPU0-GPU1"] == "XGMI"
    assert "row-shifted" in codes(reading)


def test_two_rows_run_together_are_used_up_to_the_first_self_cell() -> None:
    rows = "GPU1   XGMI         0            PCIE\nGPU2   PCIE         PCIE         0"
    reading = rocm_smi.read(TYPES.replace(rows, "GPU1   XGMI         0            0"))
    assert links(reading) == {"GPU0-GPU1": "XGMI", "GPU0-GPU2": "PCIE", "GPU1-GPU2": "?"}
    assert "row-merged" in codes(reading)


def test_a_column_whose_name_was_cut_is_taken_from_the_other_direction() -> None:
    text = "\n".join(line[:35] for line in (WEIGHTS + TYPES).split("\n"))  # leaves GP, PC and 40
    reading = rocm_smi.read(text)
    assert rocm_smi.recognises(text)
    assert links(reading) == links(rocm_smi.read(TYPES))
    assert costs(reading) == costs(rocm_smi.read(WEIGHTS + TYPES))


def test_the_last_number_of_a_text_that_was_cut_gives_no_cost() -> None:
    reading = rocm_smi.read(TYPES + WEIGHTS[: WEIGHTS.index("GPU1   15") + len("GPU1   15           0            4")])
    assert costs(reading) == {"GPU0-GPU1": 15, "GPU0-GPU2": 40, "GPU1-GPU2": None}


def test_a_header_that_is_shorter_than_its_rows_is_completed_from_them() -> None:
    reading = rocm_smi.read(TYPES.replace("GPU1         GPU2\n", "GPU1\n"))
    assert links(reading) == links(rocm_smi.read(TYPES))
    assert "header-cut" in codes(reading)


def test_weights_alone_give_costs_and_no_link_types() -> None:
    reading = rocm_smi.read(WEIGHTS)
    assert set(links(reading).values()) == {"?"}
    assert costs(reading)["GPU0-GPU1"] == 15
    assert not reading.complete


def test_numa_affinity_counts_where_it_differs_and_minus_one_is_unknown() -> None:
    reading = rocm_smi.read(TYPES + numa((0, 2), (0, -1), (1, 1)))
    assert [gpu["numa"] for gpu in reading.body["gpus"]] == [2, None, 1]
    assert any("GPU0" in f.message for f in reading.findings if f.code == "numa-mismatch")


def test_gpus_that_cannot_reach_each_other_are_named() -> None:
    reading = rocm_smi.read(
        TYPES
        + table(
            "Link accessibility between two GPUs",
            "GPU0 GPU1 GPU2",
            "GPU0 True False True",
            "GPU1 False True True",
            "GPU2 True True True",
        )
    )
    assert [f.message for f in reading.findings if f.code == "peer-access-disabled"] == [
        "peer access is disabled, whatever link is listed: GPU0-GPU1"
    ]


def test_one_gpu_has_no_links() -> None:
    reading = rocm_smi.read(table("Link Type between two GPUs", "       GPU0", "GPU0   0"))
    assert ([gpu["id"] for gpu in reading.body["gpus"]], reading.body["links"], reading.complete) == (["GPU0"], [], True)


def test_ten_and_more_gpus_stand_in_the_order_of_their_numbers() -> None:
    names = [f"GPU{i}" for i in range(12)]
    rows = [f"{a} " + " ".join("0" if a == b else "XGMI" for b in names) for a in names]
    reading = rocm_smi.read(table("Link Type between two GPUs", " ".join(names), *reversed(rows)))
    assert [gpu["id"] for gpu in reading.body["gpus"]] == names
    assert (set(links(reading).values()), len(links(reading)), reading.complete) == ({"XGMI"}, 66, True)


def test_json_of_the_topology_alone_is_read() -> None:
    text = json.dumps(
        {
            "system": {
                "(Topology) Weight between DRM devices 0 and 1": "15",
                "(Topology) Hops between DRM devices 0 and 1": "1",
                "(Topology) Link type between DRM devices 0 and 1": "XGMI",
            },
            "card0": {"(Topology) Numa Node": "0", "(Topology) Numa Affinity": "0"},
            "card1": {"(Topology) Numa Node": "1", "(Topology) Numa Affinity": "1"},
        }
    )
    reading = rocm_smi.read(text)
    assert rocm_smi.recognises(text)
    assert (links(reading), costs(reading), reading.complete) == ({"GPU0-GPU1": "XGMI"}, {"GPU0-GPU1": 15}, True)


def test_json_with_metrics_is_left_to_the_reader_of_metrics() -> None:
    assert not rocm_smi.recognises('{"card0": {"(Topology) Numa Node": "0", "GPU use (%)": "3"}}')


@pytest.mark.parametrize(
    "text", ["", "no topology", "=== Weight between two GPUs ===\nNot supported on the given system\n", "{}", "[1]"]
)
def test_what_names_no_gpu_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="no GPU"):
        rocm_smi.read(text)

"""Matrices of `nvidia-smi topo -m` as people paste them."""

from __future__ import annotations

import pytest

from pyscheduler.readers.nvidia import topo as nvidia_smi_topo
from pyscheduler.readers.reading import Reading, RefusedError

HEADER = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
ROW0 = "GPU0\t X \tNV4\tPXB\t0-31\t0\t\tN/A\n"
ROW1 = "GPU1\tNV4\t X \tSYS\t32-63\t1\t\tN/A\n"
WHOLE = HEADER + ROW0 + ROW1


def read(text: str) -> Reading:
    assert nvidia_smi_topo.recognises(text)
    return nvidia_smi_topo.read(text)


def links(reading: Reading) -> dict[str, str]:
    gpus = {f"{link['a']}-{link['b']}": link["type"] for link in reading.body["links"]}
    return gpus | {f"{link['gpu']}-{link['nic']}": link["type"] for link in reading.body["nic_links"]}


def affinities(reading: Reading) -> dict[str, tuple[str | None, int | None]]:
    return {gpu["id"]: (gpu["cpu_affinity"], gpu["numa"]) for gpu in reading.body["gpus"]}


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


EXPECTED = {"GPU0-GPU1": "NV4", "GPU0-NIC0": "PXB", "GPU1-NIC0": "SYS"}
AFFINITIES = {"GPU0": ("0-31", 0), "GPU1": ("32-63", 1)}


def test_a_matrix_as_printed():
    reading = read(WHOLE + "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n")

    assert reading.complete
    assert codes(reading) == []
    assert links(reading) == EXPECTED
    assert affinities(reading) == AFFINITIES
    assert reading.body["nics"] == [{"id": "NIC0", "name": "mlx5_0"}]


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("\t", "\t\x1b[4m", 1).replace("ID\n", "ID\x1b[0m\n", 1),
        "[4m" + WHOLE.replace("ID\n", "ID[0m\n", 1),
        WHOLE.replace("\n", "\r\n"),
        WHOLE.expandtabs(8),
        WHOLE.lstrip("\t"),
        "    " + WHOLE.replace("\n", "\n    "),
        "".join(f"> {line}\n" for line in WHOLE.splitlines()),
        "".join(f"2026-05-01T10:00:00.123Z {line}\n" for line in WHOLE.splitlines()),
        "GPU0 is present\n" + WHOLE + "GPU1 was tested by hand.\n",
        HEADER + ROW1 + ROW0,
        HEADER + ROW0 + "Failed to query a counter of GPU1\n" + ROW1,
        HEADER.replace("GPU0\t", "GPU0\n", 1) + ROW0 + ROW1,
        HEADER.replace("NIC0\t", "NI\nC0 ", 1) + ROW0 + ROW1,
        HEADER.replace("NIC0\tCPU", "NIC0CPU") + ROW0 + ROW1,
        WHOLE.replace(" X ", "x"),
        WHOLE.lower(),
        WHOLE.lower().replace("gpu numa id", "GPU NUMA ID").expandtabs(8),
        WHOLE.replace("GPU", "Gpu"),
        WHOLE.replace("\nGPU1\t", "\nGPU1"),
        WHOLE.rstrip("\n"),
        "| |" + WHOLE.strip().replace("\t\t", "\t").replace("\t", "|").replace("\n", "|\n|") + "|\n",
    ],
    ids=[
        "ansi", "ansi without escape", "crlf", "blanks", "header flush left", "indented", "mail quote", "log stamps", "prose",
        "rows out of order", "error line", "wrapped header", "header wrapped in a name", "title fused", "lower-case x",
        "all lower case", "lower case of blanks", "mixed case", "label fused", "no newline at the end", "markdown",
    ],
)  # fmt: skip
def test_what_terminals_and_editors_do_to_it_changes_nothing(text):
    reading = read(text)

    assert reading.complete
    assert links(reading) == EXPECTED
    assert affinities(reading) == AFFINITIES


def test_rows_wrapped_inside_a_cell_are_joined():
    reading = read("     GPU0 GPU1 NIC0\nCPU Affinity NUMA Aff\ninity\nGPU0  X  NV1\n8 PXB 0-31 0\nGPU1 NV18 X PXB 32-6\n3 1\n")

    assert links(reading) == {"GPU0-GPU1": "NV18", "GPU0-NIC0": "PXB", "GPU1-NIC0": "PXB"}
    assert affinities(reading) == AFFINITIES


def test_the_old_name_of_a_path_between_sockets():
    assert links(read("\tGPU0\tGPU1\nGPU0\t X \tSOC\nGPU1\tSOC\t X\n")) == {"GPU0-GPU1": "SYS"}


def test_names_with_a_common_beginning_are_kept_apart():
    names = [f"GPU{i}" for i in range(12)]
    rows = [[a, *("X" if a == b else "NV6" if {a, b} != {"GPU1", "GPU10"} else "SYS" for b in names)] for a in names]

    found = links(read("\t" + "\t".join(names) + "\n" + "\n".join("\t".join(row) for row in rows)))

    assert [pair for pair, link in found.items() if link == "SYS"] == ["GPU1-GPU10"]


@pytest.mark.parametrize("row", ["GPU0\t X \tNV4PXB\t0-31\t0\t\tN/A\n", "GPU0\t X \tNV4\tPXB0-31\t0\t\tN/A\n"])
def test_fused_cells_with_one_reading_are_split_and_reported(row):
    reading = read(HEADER + row + ROW1)

    assert links(reading) == EXPECTED
    assert affinities(reading) == AFFINITIES
    assert codes(reading) == ["cells-fused"]


def test_a_count_fused_with_an_affinity_has_several_readings_and_is_unknown():
    reading = read("\tGPU0\tNIC0\tGPU1\tCPU Affinity\nGPU0\tX\tPIX\tNV120-31\n")

    assert not reading.complete
    assert links(reading)["GPU0-GPU1"] == "?"
    assert affinities(reading)["GPU0"] == (None, None)


def test_a_cut_cell_is_unknown_and_its_affinity_too():
    reading = read(HEADER + ROW0.replace("PXB\t0-31", "P0-31") + ROW1)

    assert not reading.complete
    assert links(reading)["GPU0-NIC0"] == "?"
    assert affinities(reading)["GPU0"] == (None, 0)
    assert codes(reading) == ["cell-cut"]


def test_the_other_direction_tells_what_a_cut_cell_was():
    reading = read(HEADER + ROW0.replace("PXB\t0-31", "P0-31") + ROW1 + "NIC0\tPXB\tSYS\t X \t\n")

    assert links(reading) == EXPECTED
    assert not reading.complete


@pytest.mark.parametrize(
    ("tail", "nic"),
    [("GPU1\tNV", "?"), ("GPU1\tNV1", "?"), ("GPU1", "?"), ("GPU1\tNV4\t X \tS", "?"), ("GPU1\tNV4\t X \tSYS\t32-6", "SYS")],
)
def test_where_the_paste_ends_inside_a_row_nothing_is_made_up(tail, nic):
    reading = read(HEADER + ROW0 + tail)

    assert not reading.complete
    assert links(reading) == {**EXPECTED, "GPU1-NIC0": nic}
    assert affinities(reading)["GPU1"] == (None, None)
    assert codes(reading)[0] in {"row-cut", "cell-cut"}


def test_a_row_without_a_cell_does_not_shift_the_others():
    header = "GPU0 GPU1 GPU2 NIC0 CPU Affinity\n"
    reading = read(header + "GPU0 X NV4 NV2 PIX 0-31\nGPU1 NV4 X PIX 0-31\nGPU2 NV2 NV1 X SYS 0-31\n")

    assert links(reading)["GPU1-GPU2"] == "NV1"
    assert links(reading)["GPU1-NIC0"] == "?"
    assert not reading.complete


@pytest.mark.parametrize("expand", [0, 8])
def test_an_empty_cell_is_seen_by_tabs_or_by_position(expand):
    text = HEADER + ROW0.replace("NV4", "") + ROW1.replace("NV4", "")
    reading = read(text.expandtabs(expand) if expand else text)

    assert links(reading) == {**EXPECTED, "GPU0-GPU1": "?"}
    assert codes(reading).count("cell-empty") == 2


def test_a_header_of_two_fused_names_and_rows_with_a_cell_less():
    header = "        GPU0    GPU1    NIC0    NIC1NIC2    NIC3    CPU Affinity\n"
    rows = "GPU0     X      NV4     PIX     SYS     NODE    0-31\nGPU1    NV4      X      SYS     SYS     NODE    0-31\n"
    reading = read(header + rows)

    assert not reading.complete
    assert links(reading)["GPU0-NIC0"] == "PIX"
    assert {links(reading)[f"GPU0-NIC{i}"] for i in (1, 2, 3)} == {"?"}


@pytest.mark.parametrize("expand", [0, 8])
def test_an_empty_affinity_is_not_the_numa_node(expand):
    text = HEADER + ROW0 + ROW1.replace("32-63", "")
    reading = read(text.expandtabs(expand) if expand else text)

    assert reading.complete
    assert affinities(reading)["GPU1"] == (None, 1)
    assert codes(reading) == ["affinity-empty"]


@pytest.mark.parametrize(
    ("cpus", "numa", "expected", "code"),
    [
        ("0,2,4,6,8,1", "0", ("0,2,4,6,8,1", 0), "affinity-cut"),
        ("0-63,128-", "0", (None, 0), "affinity-unreadable"),
        ("0", "0-1", ("0", None), "numa-not-one"),
        ("0-31", "0,2", ("0-31", None), "numa-not-one"),
    ],
)
def test_odd_affinities(cpus, numa, expected, code):
    reading = read(HEADER + ROW0.replace("0-31\t0", f"{cpus}\t{numa}") + ROW1)

    assert affinities(reading)["GPU0"] == expected
    assert codes(reading) == [code]


def test_of_two_directions_the_weaker_counts():
    reading = read(HEADER + ROW0 + ROW1.replace("NV4", "PHB"))

    assert links(reading)["GPU0-GPU1"] == "PHB"
    assert codes(reading) == ["direction-mismatch"]


def test_a_missing_row_and_a_row_that_the_header_does_not_name():
    lost = read(HEADER + ROW0)
    assert not lost.complete
    assert links(lost) == {**EXPECTED, "GPU1-NIC0": "?"}
    assert codes(lost) == ["row-missing"]

    unnamed = read("\tGPU0\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    assert links(unnamed) == {"GPU0-GPU1": "?"}
    assert "column-missing" in codes(unnamed)


def test_a_name_that_the_header_lost_shifts_nothing():
    cells = {"GPU0": "X NV2 SYS PIX", "GPU1": "NV2 X NV4 PHB", "GPU2": "SYS NV4 X SYS"}
    reading = read("GPU0 GPU1 NIC0\n" + "".join(f"{name} {row}\n" for name, row in cells.items()))

    assert not reading.complete
    assert links(reading)["GPU0-GPU1"] == "NV2"
    assert {links(reading)["GPU0-NIC0"], links(reading)["GPU1-NIC0"]} == {"?"}


def test_an_affinity_that_ends_the_input_before_the_last_row_may_be_cut():
    reading = read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-3")

    assert affinities(reading)["GPU0"] == (None, None)
    assert codes(reading) == ["row-cut", "row-missing"]


def test_without_its_header_a_matrix_is_known_by_its_crosses():
    reading = read(ROW0 + ROW1)

    assert not reading.complete
    assert links(reading) == {"GPU0-GPU1": "NV4"}
    assert affinities(reading) == {"GPU0": (None, None), "GPU1": (None, None)}
    assert codes(reading)[0] == "header-missing"


def fabric(gpus: int, lost: str) -> str:
    names = [f"GPU{i}" for i in range(gpus)]
    cells = ((a, [("X" if a == b else "NODE" if lost in {a, b} else "NV18") for b in names]) for a in names)
    return "\t" + "\t".join(names) + "\n" + "\n".join(a + "\t" + "\t".join(row) for a, row in cells)


def test_one_gpu_that_dropped_out_of_the_fabric_is_named():
    reading = read(fabric(5, lost="GPU2"))

    assert reading.complete
    assert [f.message.split()[0] for f in reading.findings if f.code == "nvlink-missing"] == ["GPU2"]
    assert codes(read(fabric(3, lost="GPU2"))) == []


def test_pcie_only_output_hides_nvlink():
    pcie = WHOLE.replace("NV4", "SYS")
    hidden = read("$ nvidia-smi topo -mp\n" + pcie)

    assert not hidden.complete
    assert codes(hidden) == ["nvlink-hidden"]
    assert read(pcie).complete
    assert not read(pcie + "Legend:\n  PIX  = Connection traversing at most a single PCIe bridge\n").complete


def test_of_both_forms_of_one_machine_the_one_with_nvlink_counts():
    reading = read("$ nvidia-smi topo -mp\n" + WHOLE.replace("NV4", "SYS") + "$ nvidia-smi topo -m\n" + WHOLE)

    assert reading.complete
    assert links(reading) == EXPECTED
    assert codes(reading) == ["matrix-repeated"]


def test_another_matrix_is_left_out_and_reported():
    reading = read(WHOLE + "\n" + WHOLE.replace("NV4", "NV2"))

    assert not reading.complete
    assert links(reading) == EXPECTED
    assert codes(reading) == ["second-matrix"]


def test_machines_with_a_name_above_them_are_told_apart():
    text = f"[root@n-1 ~]# nvidia-smi topo -m\n{WHOLE}\n[root@n-2 ~]# nvidia-smi topo -m\n{WHOLE.replace('NV4', 'NV2')}"
    body = read(text).body

    assert [(gpu["host"], gpu["id"]) for gpu in body["gpus"]] == [
        ("n-1", "GPU0"),
        ("n-1", "GPU1"),
        ("n-2", "GPU0"),
        ("n-2", "GPU1"),
    ]
    assert [(link["a_host"], link["b_host"], link["type"]) for link in body["links"]] == [
        ("n-1", "n-1", "NV4"),
        ("n-2", "n-2", "NV2"),
    ]


def labelled(label: str, text: str = WHOLE) -> list[str]:
    return [f"{label}{line}" for line in text.splitlines()]


def by_host(reading: Reading) -> dict[tuple[str, str, str], str]:
    assert all(link["a_host"] == link["b_host"] for link in reading.body["links"])
    return {(link["a_host"], link["a"], link["b"]): link["type"] for link in reading.body["links"]}


@pytest.mark.parametrize("label", ["gpu-r2n7: ", "gpu7: ", "n7.example.org: "])
def test_a_machine_that_each_line_names_is_its_host(label):
    reading = read("\n".join(labelled(label)) + "\n")

    assert reading.complete
    assert codes(reading) == []
    assert links(reading) == EXPECTED
    assert affinities(reading) == AFFINITIES
    assert {gpu["host"] for gpu in reading.body["gpus"]} == {label.removesuffix(": ")}


@pytest.mark.parametrize("label", ["[0] ", "0: ", "[1,3]<stdout>:", "[1,3]<stdout>: "])
def test_the_number_of_a_process_is_no_host(label):
    reading = read("\n".join(labelled(label)) + "\n")

    assert links(reading) == EXPECTED
    assert affinities(reading) == AFFINITIES
    assert not any("host" in gpu for gpu in reading.body["gpus"])


def test_machines_that_each_line_names_are_told_apart_also_where_their_lines_are_mixed():
    mixed = zip(labelled("n5: "), labelled("n6: ", WHOLE.replace("NV4", "NV2")), strict=True)
    reading = read("\n".join(line for both in mixed for line in both) + "\n")

    assert reading.complete
    assert by_host(reading) == {("n5", "GPU0", "GPU1"): "NV4", ("n6", "GPU0", "GPU1"): "NV2"}
    assert {nic["host"] for nic in reading.body["nics"]} == {"n5", "n6"}


def test_processes_may_be_of_one_machine_and_are_kept_apart():
    reading = read("\n".join([*labelled("[0] "), *labelled("[1] ")]) + "\n")

    assert {gpu["host"] for gpu in reading.body["gpus"]} == {"0", "1"}
    assert codes(reading) == ["process-labels"]


def test_what_is_cut_of_a_named_machine_is_told_with_its_line():
    cut = [line for line in labelled("n5: ") if "GPU1\t" not in line[4:9]]
    reading = read("\n".join([*cut, *labelled("n6: ")]) + "\n")

    assert not reading.complete
    assert [finding.message for finding in reading.findings] == ["n5: line 1: the matrix has no row GPU1"]


def test_a_machine_that_printed_no_matrix_is_reported():
    reading = read("\n".join([*labelled("n5: "), "n6: NVIDIA-SMI has failed", "n5: "]) + "\n")

    assert {gpu["host"] for gpu in reading.body["gpus"]} == {"n5"}
    assert codes(reading) == ["lines-left-out"]
    assert "n6" in reading.findings[0].message


def test_far_too_many_machines_are_refused():
    lines = [line for number in range(3000) for line in labelled(f"n{number}: ")]

    with pytest.raises(RefusedError, match="3000 machines"):
        nvidia_smi_topo.read("\n".join(lines))


def test_the_state_of_nvlinks_beside_a_matrix_goes_to_its_gpus():
    cards = "GPU {}: NVIDIA A100 (UUID: GPU-0a0b0c0d-111{})\n"
    text = (
        WHOLE + cards.format(0, 0) + "\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n" + cards.format(1, 1) + "\t Link 0: <inactive>\n"
    )
    reading = read(text)

    assert links(reading) == EXPECTED
    assert [(gpu["nvlink_active"], gpu["nvlink_gbps"]) for gpu in reading.body["gpus"]] == [(2, 25.0), (0, None)]
    assert codes(reading) == ["nvlink-inactive", "nvlink-fewer"]


def test_cards_that_are_only_listed_say_nothing_of_their_nvlinks():
    reading = read("GPU 0: NVIDIA A100\nGPU 1: NVIDIA A100\n" + WHOLE + "\nLegend:\n  NV#  = a bonded set of # NVLinks\n")

    assert reading.complete
    assert codes(reading) == []
    assert not any("nvlink_active" in gpu for gpu in reading.body["gpus"])


def test_a_cut_p2p_matrix_behind_it_leaves_the_reading_incomplete():
    reading = read(WHOLE + "\n \tGPU0\tGPU1\n GPU0\tX\tOK\n")

    assert not reading.complete
    assert links(reading) == EXPECTED
    assert "row-missing" in codes(reading)


def test_a_p2p_matrix_behind_it_is_no_link():
    reading = read(WHOLE + "\n \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n")

    assert links(reading) == EXPECTED
    assert reading.body["p2p"] == [{"a": "GPU0", "b": "GPU1", "status": "NS"}]
    assert codes(reading) == ["p2p-table", "p2p-not-ok"]


def test_cards_listed_above_give_identity_and_mig():
    listed = "GPU 0: NVIDIA A100 (UUID: GPU-0a0b0c0d-1111)\n  MIG 1g.5gb      Device  0: (UUID: MIG-5)\nGPU 1: NVIDIA A100\n"
    first, second = read(listed + WHOLE).body["gpus"]

    assert (first["uuid"], first["model"], first["whole"]) == ("GPU-0a0b0c0d-1111", "NVIDIA A100", False)
    assert first["mig"] == [{"uuid": "MIG-5", "profile": "1g.5gb"}]
    assert second["uuid"] is None
    assert "mig" not in second


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\nNVIDIA-SMI has failed because it could not talk to the driver.\n",
        "\tGPU0\tGPU1\n",
        "GPU0 X\n",
        "       GPU0         GPU1\nGPU0   0            15\nGPU1   15           0\n",
        "GPU0\n" * 5000,
    ],
)
def test_what_is_no_matrix_is_refused(text):
    assert not nvidia_smi_topo.recognises(text)
    with pytest.raises(RefusedError):
        nvidia_smi_topo.read(text)


@pytest.mark.parametrize(
    ("names", "row"),
    [
        ("\t\tGPU1\tGPU2\tCPU Affinity", "GPU2\tPHB\t\t X \t0-7"),
        ("\tGPU0\t\tGPU2\tCPU Affinity", "GPU0\t X \tPIX\t\t0-7"),
        ("\tGPU0\tGPU1\t\tCPU Affinity", "GPU0\t X \t\tPHB\t0-7"),
    ],
)
def test_an_empty_cell_under_a_header_with_an_empty_name_is_not_placed(names, row):
    reading = read(f"{names}\n{row}\n\n")

    assert {link["type"] for link in reading.body["links"]} == {"?"}
    assert not reading.complete
    assert "cell-empty" in codes(reading)


@pytest.mark.parametrize("first", ["host-a:", "alpha"])
def test_matrices_under_different_headings_are_not_one_machine(first):
    slow = WHOLE.replace("NV4", "SYS")
    reading = read(f"{first}\n{slow}\nhost-b:\n{WHOLE}")

    assert not reading.complete
    assert links(reading)["GPU0-GPU1"] == "SYS"
    assert codes(reading) == ["second-matrix"]
    assert codes(read(f"{first}\n{slow}\n{first}\n{WHOLE}")) == ["matrix-repeated"]

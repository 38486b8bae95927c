"""Whatever is pasted: a reading or a refusal, never another error, and soon. A damaged matrix never shows a better link."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.cli import input_text
from pyscheduler.core.machine.links import Link
from pyscheduler.readers import formats
from pyscheduler.readers.nvidia import nvlink as nvidia_smi_nvlink
from pyscheduler.readers.nvidia import p2p as nvidia_smi_p2p
from pyscheduler.readers.nvidia import smi_xml as nvidia_smi_xml
from pyscheduler.readers.nvidia import topo as nvidia_smi_topo
from pyscheduler.readers.reading import Reading, RefusedError

READERS = [nvidia_smi_topo, nvidia_smi_p2p, nvidia_smi_nvlink, nvidia_smi_xml]

NAMES = ["GPU0", "GPU1", "GPU2", "NIC0", "NIC1"]
CELLS = {
    "GPU0": ["X", "NV18", "SYS", "PIX", "NODE"],
    "GPU1": ["NV18", "X", "PHB", "NODE", "PIX"],
    "GPU2": ["SYS", "PHB", "X", "PXB", "SYS"],
    "NIC0": ["PIX", "NODE", "PXB", "X", "SYS"],
    "NIC1": ["NODE", "PIX", "SYS", "SYS", "X"],
}
TOPO = (
    "\t" + "\t".join(NAMES) + "\tCPU Affinity\tNUMA Affinity\n"
    + "".join(f"{name}\t" + "\t".join(cells) + ("\t0-31\t0\n" if name[0] == "G" else "\t\n") for name, cells in CELLS.items())
    + "\nLegend:\n  X = Self\n  NV# = NVLinks\n\nNIC Legend:\n  NIC0: mlx5_0\n"
)  # fmt: skip
P2P = "\tGPU0\tGPU1\nGPU0\tX\tNS\nGPU1\tOK\tX\n"
NVLINK = "GPU 0: NVIDIA A100 (UUID: GPU-00000000-1)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\nGPU 1: NVIDIA A100\n\t Link 0: 25 GB/s\n"
XML = (
    '<!DOCTYPE nvidia_smi_log SYSTEM "a.dtd">\n<nvidia_smi_log>\n<attached_gpus>1</attached_gpus>\n'
    "<gpu id='00000000:1A:00.0'><uuid>GPU-00000000-1</uuid><mig_devices><mig_device/></mig_devices></gpu>\n</nvidia_smi_log>\n"
)
PIECES = st.sampled_from(
    [
        "\x1b[4m",
        "\ufeff",
        "\r",
        "\t",
        "  ",
        "NV",
        "NV99999",
        "GPU0",
        "GPU7",
        "X",
        "0-3",
        "ERR!",
        "N/A",
        "\x00",
        "é",
        "\n",
        "<a>",
        "|",
    ]
)


def edited(draw: st.DrawFn, line: str) -> str:
    where = draw(st.integers(0, len(line)))
    return draw(st.sampled_from([line[:where], line[where:], line.swapcase(), line[:where] + draw(PIECES) + line[where:]]))


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Return `text` with lines dropped, repeated, joined, swapped and cut, and with foreign pieces."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        replacement = [
            [],
            [lines[at], lines[other]],
            [lines[at] + lines[other]],
            [lines[other]],
            [edited(draw, lines[at])],
        ][draw(st.integers(0, 4))]
        lines[at : at + 1] = replacement or ([""] if len(lines) == 1 else [])
    return "\n".join(lines)


def attempt(reader: formats.Reader, text: str) -> Reading | None:
    reader.recognises(text)
    try:
        return reader.read(text)
    except RefusedError:
        return None


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=400))
def test_bytes_are_read_or_refused(reader, content):
    attempt(reader, input_text.decode(content))


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=60, deadline=None)
@given(text=st.one_of(damaged(TOPO), damaged(P2P), damaged(NVLINK), damaged(XML), damaged(TOPO + P2P + NVLINK)))
def test_damaged_output_is_read_or_refused(reader, text):
    reading = attempt(reader, text)

    if reading is not None:
        document = reading.document()
        ids = [gpu["id"] for gpu in document["gpus"] if "host" not in gpu]
        assert len(ids) == len(set(ids))
        assert all(Link.parse(link["type"]) for link in document["links"])


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, len(TOPO)))
def test_a_matrix_that_ends_anywhere_shows_no_link_that_is_not_there(at):
    reading = attempt(nvidia_smi_topo, TOPO[:at])

    if reading is None:
        return
    for link in reading.body["links"]:
        if link["a"] in CELLS and link["b"] in NAMES:
            assert link["type"] in {"?", CELLS[link["a"]][NAMES.index(link["b"])]}
    for link in reading.body["nic_links"]:
        assert link["type"] in {"?", CELLS[link["gpu"]][NAMES.index(link["nic"])]}
    if at < TOPO.index("\nNIC0"):
        assert not reading.complete


@settings(max_examples=100, deadline=None)
@given(row=st.integers(0, 4), column=st.integers(0, 4))
def test_a_lost_cell_never_shifts_the_others(row, column):
    lines = TOPO.split("\n")
    words = lines[row + 1].split()
    del words[column + 1]
    lines[row + 1] = " ".join(words)
    reading = attempt(nvidia_smi_topo, "\n".join(lines))

    assert reading is not None
    for link in reading.body["links"]:
        assert link["type"] in {"?", CELLS[link["a"]][NAMES.index(link["b"])]}
    for link in reading.body["nic_links"]:
        assert link["type"] in {"?", CELLS[link["gpu"]][NAMES.index(link["nic"])]}


HOSTILE = {
    "headers": "GPU0 GPU1\n" * 20_000,
    "labels": "GPU0\n" * 40_000,
    "rows": "GPU0 GPU1\n" + "GPU0 X NV4\n" * 5_000,
    "one line": "GPU0 " * 40_000,
    "columns": " ".join(f"GPU{i}" for i in range(2_000)) + "\nGPU0 X\n",
    "escapes": "\x1b[" * 100_000 + "\x1b]" * 100_000,
    "cards": "GPU 0: " + "(UUID: " * 30_000,
    "elements": "<nvidia_smi_log>" + "<a>" * 60_000,
    "doctypes": "<!DOCTYPE " * 20_000 + "<nvidia_smi_log>",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_input_ends_soon(text):
    start = time.process_time()
    for reader in READERS:
        attempt(reader, text)
    assert time.process_time() - start < 4

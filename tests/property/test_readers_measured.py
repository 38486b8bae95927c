"""Whatever happens to the output of a benchmark on its way, its reader gives positive figures or refuses."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyscheduler.readers.measured.results import Results, read
from pyscheduler.readers.reading import RefusedError

SECONDS = 2.0
GPUS = 6

NCCL = (
    "$ mpirun -np 4 ./all_reduce_perf -b 8M -e 512M -f 8\n"
    "# nThread 1 nGpus 1 minBytes 8388608 maxBytes 536870912 step: 8(factor) warmup iters: 5 iters: 20 agg iters: 1\n"
    "#\n# Using devices\n"
    + "".join(f"#  Rank  {i} Group  0 Pid   90{i} on      blue3 device  {i} [0000:4{i}:00] NVIDIA L40S\n" for i in range(4))
    + "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    "     8388608       2097152     float     sum      -1    612.0   13.71   20.56      0    618.0   13.57   20.36      0\n"
    "    67108864      16777216     float     sum      -1   4641.0   14.46   21.69      0   4650.0   14.43   21.65      0\n"
    "   536870912     134217728     float     sum      -1    36799   14.59   21.88      0    36900   14.55   21.82      0\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 21.33\n#\n"
)


def _cells(corner: str, cell: Callable[[int, int], float]) -> str:
    head = corner + "".join(f"{j:6d} " for j in range(GPUS)) + "\n"
    return head + "".join(f"{i:6d} " + "".join(f"{cell(i, j):6.02f} " for j in range(GPUS)) + "\n" for i in range(GPUS))


def _figure(i: int, j: int) -> float:
    return 731.5 if i == j else 31.0 + 7 * i + j


P2P = (
    "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n"
    + _cells("   D\\D", lambda i, j: 11.25)
    + "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
    + _cells("   D\\D", _figure)
    + "P2P=Enabled Latency (P2P Writes) Matrix (us)\n"
    + _cells("   GPU", lambda i, j: 1.5)
    + "\n"
    + _cells("   CPU", lambda i, j: 3.5)
)
PERFTEST = (
    "                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : bnxt_re2\n"
    " Mtu             : 4096[B]\n Link type       : Ethernet\n"
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      5000             188.12             187.95               0.358486\n"
    " 131072     5000             189.90             189.71               0.180921\n"
)
SAMPLES = [NCCL, P2P, PERFTEST]

Edit = Callable[[str], str]


def attempt(text: str) -> Results | RefusedError:
    try:
        return read(text)
    except RefusedError as refusal:
        return refusal


def check(text: str) -> None:
    began = time.process_time()
    results = attempt(text)
    assert time.process_time() - began < SECONDS
    if isinstance(results, RefusedError):
        assert "\n" not in str(results)
        return
    assert results.measured
    assert all("\n" not in finding.message for finding in results.findings)
    for one in results.measured:
        assert one.tool == results.tool
        assert math.isfinite(one.gbps)
        assert one.gbps > 0
        assert one.latency_us is None or (math.isfinite(one.latency_us) and one.latency_us > 0)
        assert one.nodes >= 1
        assert len(set(one.gpus)) == len(one.gpus)
        assert one.gpus or one.nodes > 1


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    """One accident of copying, at a place from 0 to 1 of the text."""
    at, size = draw(st.floats(0, 1)), draw(st.integers(1, 30))
    junk = draw(
        st.sampled_from(
            [
                "\x00",
                "\x1b[31m",
                "nan",
                "0.00",
                "\t",
                "\r\n",
                "9" * 40,
                "1e99",
                "1e999",
                "-",
                "#",
                "[1,0]<stdout>:",
                "é",
                "\ud800",
                "٣",
            ]
        )
    )

    def place(text: str) -> int:
        return int(at * len(text))

    def lines(change: Callable[[list[str], int], list[str]]) -> Edit:
        def edit(text: str) -> str:
            whole = text.split("\n")
            return "\n".join(change(whole, min(int(at * len(whole)), len(whole) - 1)))

        return edit

    return draw(
        st.sampled_from(
            [
                lambda text: text[: place(text)],
                lambda text: text[place(text) :],
                lambda text: text[: place(text)] + text[place(text) + size :],
                lambda text: text[: place(text)] + junk + text[place(text) :],
                lambda text: text + "\n" + text,
                lambda text: text + NCCL,
                str.upper,
                lambda text: re.sub(r"[ \t]+", " ", text),
                lambda text: re.sub(r"\d+\.\d+", junk, text, count=size),
                lines(lambda whole, i: whole[:i] + whole[i + 1 :]),
                lines(lambda whole, i: [*whole[: i + 1], *whole[i:]]),
                lines(lambda whole, i: [*whole[:i], *reversed(whole[i:])]),
                lines(lambda whole, i: [line[: size + 20] if n >= i else line for n, line in enumerate(whole)]),
            ]
        )
    )


@pytest.mark.parametrize("text", SAMPLES, ids=["nccl", "p2p", "perftest"])
def test_the_samples_are_read_whole(text: str) -> None:
    assert {finding.code for finding in read(text).findings} <= {"p2p-uneven"}


@pytest.mark.parametrize("text", SAMPLES, ids=["nccl", "p2p", "perftest"])
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(edits(), min_size=1, max_size=4))
def test_damaged_output_is_read_or_refused(text: str, changes: list[Edit]) -> None:
    for change in changes:
        text = change(text)
    check(text)


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=400))
def test_bytes_are_read_or_refused(content: bytes) -> None:
    check(content.decode("utf-8", "replace"))


@settings(max_examples=200, deadline=None)
@given(end=st.floats(0, 1))
def test_no_end_that_is_lost_changes_the_figure_of_a_pair(end: float) -> None:
    results = attempt(P2P[: int(end * len(P2P))])
    if isinstance(results, Results):
        for one in results.measured:
            i, j = (int(name.removeprefix("GPU")) for name in one.gpus)
            assert one.gbps == min(_figure(i, j), _figure(j, i))


@settings(max_examples=200, deadline=None)
@given(row=st.integers(0, GPUS - 1), lost=st.sets(st.integers(0, GPUS - 1), max_size=GPUS), collapsed=st.booleans())
def test_no_cells_that_are_lost_change_the_figure_of_a_pair(row: int, lost: set[int], collapsed: bool) -> None:
    whole = f"{row:6d} " + "".join(f"{_figure(row, j):6.02f} " for j in range(GPUS))
    kept = f"{row:6d} " + "".join(f"{_figure(row, j):6.02f} " for j in range(GPUS) if j not in lost)
    text = P2P.replace(whole, kept)
    results = attempt(re.sub(r"[ \t]+", " ", text) if collapsed else text)
    known = {one.gpus: one.gbps for one in results.measured} if isinstance(results, Results) else {}
    expected = {
        (f"GPU{i}", f"GPU{j}"): min(_figure(i, j), _figure(j, i))
        for i in range(GPUS)
        for j in range(i + 1, GPUS)
        if not lost or row not in {i, j}
    }
    assert known == expected


@settings(max_examples=200, deadline=None)
@given(end=st.floats(0, 1), text=st.sampled_from([NCCL, PERFTEST]))
def test_no_end_that_is_lost_makes_up_a_figure(end: float, text: str) -> None:
    results = attempt(text[: int(end * len(text))])
    possible = {21.69, 21.88, 187.95 / 8, 189.71 / 8}
    assert isinstance(results, RefusedError) or {one.gbps for one in results.measured} <= possible


@pytest.mark.parametrize(
    "text",
    [
        "# Using devices\n" * 20_000,
        "size count busbw algbw\n" * 20_000,
        "#  Rank 0 Group 0 Pid 1 on a device 0 [0x1] X\n" * 20_000,
        NCCL * 200,
        NCCL.replace("# Out", "   536870912     134217728     float     sum      -1\n" * 20_000 + "# Out"),
        P2P * 15,
        "P2P=Enabled Latency Matrix (us)\n" * 20_000,
        "Unidirectional P2P=Enabled Bandwidth Matrix\n   D\\D " + " ".join(map(str, range(700))) + "\n" + "1\n" * 20_000,
        "Unidirectional P2P=Enabled Bandwidth Matrix\n   D\\D " + "0 1 2 3\n" + "     0 1.00 " + "\n1.00" * 20_000,
        "Unidirectional P2P=Enabled Bandwidth Matrix\n   D\\D 0 1\n     0 " + "1." * 2_000 + "\n1." * 20_000,
        "Unidirectional P2P=Enabled Bandwidth Matrix\n   D\\D 0 1\n" + "1\n" * 40_000,
        PERFTEST * 500,
        "RDMA_Write" + " " * 200_000 + "BW Test",
        "#bytes" + " BW average[MB/sec]" * 10_000,
        "[1,0]<stdout>:" * 20_000,
        "> " * 100_000,
        "\n" * 200_000,
        " " * 200_000,
        "9" * 200_000,
        "0: " * 1_000 + "\n" + "0: " * 1_000,
    ],
    ids=range(20),
)
def test_no_text_takes_more_than_its_length_is_worth(text: str) -> None:
    check(text)

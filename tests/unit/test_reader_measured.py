"""Output of nccl-tests, p2pBandwidthLatencyTest and ib_write_bw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from pyscheduler.core.findings import Severity
from pyscheduler.core.machine.document import Measured
from pyscheduler.readers.measured.results import Results, read
from pyscheduler.readers.reading import RefusedError

TABLE: Final = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
END: Final = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 99.5\n#\n"
SMALL: Final = (
    "     4194304       1048576     float     sum      -1    61.00   68.76  120.33      0    62.00   67.65  118.39      0\n"
)
LARGE: Final = (
    "   268435456      67108864     float     sum      -1   2010.0  133.55  233.71      0   2020.0  132.89  232.56      0\n"
)


def ranks(*devices: int, host: str = "rack7-a", first: int = 0) -> str:
    lines = (
        f"#  Rank {first + at:2} Group  0 Pid {4100 + at:6} on {host:>10} device {device:2} [0000:{0x11 + device:02x}:00] NVIDIA H200\n"
        for at, device in enumerate(devices)
    )
    return "".join(lines)


def nccl(rows: str = SMALL + LARGE, *, who: str = ranks(*range(8)), table: str = TABLE, end: str = END, gpus: int = 1) -> str:
    head = f"# nThread 1 nGpus {gpus} minBytes 4194304 maxBytes 268435456 step: 64(factor) warmup iters: 5 iters: 20\n#\n"
    return head + "# Using devices\n" + who + table + rows + end


def matrix(title: str, size: int, cell: Callable[[int, int], object], corner: str = "   D\\D") -> str:
    head = title + "\n" + corner + "".join(f"{j:6d} " for j in range(size)) + "\n"
    return head + "".join(
        f"{i:6d} "
        + "".join(f"{value:6.02f} " if isinstance(value := cell(i, j), float) else f"{value} " for j in range(size))
        + "\n"
        for i in range(size)
    )


WRITES: Final = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)"
DISABLED: Final = "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)"
LATENCY: Final = "P2P=Enabled Latency (P2P Writes) Matrix (us)"


def speed(i: int, j: int) -> object:
    return 1890.25 if i == j else 250.0 + 8 * min(i, j) + max(i, j) + (0.5 if i > j else 0.0)


def delay(i: int, j: int) -> object:
    return 1.9 if i == j else 2.0 + i / 10 + j / 100


def p2p(size: int = 3, cell: Callable[[int, int], object] = speed) -> str:
    return (
        "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
        "P2P Connectivity Matrix\n     D\\D     0     1     2\n     0\t     1     1     1\n     1\t     1     1     1\n"
        + matrix(DISABLED, size, lambda i, j: 17.5)
        + matrix(WRITES, size, cell)
        + matrix("Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)", size, lambda i, j: 24.0)
        + matrix("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", size, lambda i, j: 480.0)
        + matrix("P2P=Disabled Latency Matrix (us)", size, lambda i, j: 13.0, "   GPU")
        + matrix("", size, lambda i, j: 6.0, "   CPU")
        + matrix(LATENCY, size, delay, "   GPU")
        + matrix("", size, lambda i, j: 5.0, "   CPU")
    )


def perftest(
    rows: str = " 65536      5000             23650.00            23418.40              0.374694\n",
    *,
    title: str = "RDMA_Write BW Test",
    unit: str = "MB/sec",
    device: str = "mlx5_4",
    dual: str = "OFF",
) -> str:
    line = "-" * 87 + "\n"
    return (
        f"{line}                    {title}\n Dual-port       : {dual}\t\tDevice         : {device}\n"
        f" Number of qps   : 1\t\tTransport type : IB\n Mtu             : 4096[B]\n Link type       : IB\n{line}"
        f" local address: LID 0x21 QPN 0x0091 PSN 0x6d058e RKey 0x1fffb9 VAddr 0x007f58a406e000\n{line}"
        f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n{rows}{line}"
    )


def codes(results: Results) -> list[str]:
    return [finding.code for finding in results.findings]


def only(text: str) -> Measured:
    (one,) = read(text).measured
    return one


def refusal(text: str) -> str:
    with pytest.raises(RefusedError) as refused:
        read(text)
    return str(refused.value)


# nccl-tests


def test_the_better_bus_bandwidth_of_the_largest_message_counts():
    assert read(nccl()) == Results(
        "nccl-tests", (Measured("nccl-tests", 233.71, gpus=tuple(f"GPU{i}" for i in range(8)), nodes=1),), ()
    )
    assert only(nccl(LARGE.replace("232.56", "240.01"))).gbps == 240.01


def test_a_smaller_message_may_be_faster_and_does_not_count():
    assert only(nccl(SMALL.replace("120.33", "999.00") + LARGE)).gbps == 233.71


def test_the_gpus_are_those_of_the_ranks():
    assert only(nccl(who=ranks(5, 1, 4), rows=LARGE)).gpus == ("GPU1", "GPU4", "GPU5")


def test_on_several_hosts_the_nodes_are_counted_and_no_gpu_is_named():
    one = only(nccl(who=ranks(0, 1, 2, 3) + ranks(0, 1, 2, 3, host="rack7-b", first=4)))

    assert (one.nodes, one.gpus) == (2, ())


def test_the_old_list_of_ranks_is_read():
    old = ranks(0, 1).replace("[0000:11:00]", "[0x11]").replace(" Group  0", "").replace("[0000:12:00]", "[0x12]")

    assert only(nccl(who=old, rows=LARGE.replace("233.71", "133.55"))).gpus == ("GPU0", "GPU1")


def test_an_old_table_without_root_and_with_errors_is_read():
    table = TABLE.replace("    root", "").replace("#wrong", " error")
    row = "   268435456      67108864     float     sum   2010.0  133.55  233.71  4e-07   2020.0  132.89  232.56  4e-07\n"

    assert only(nccl(row, table=table)).gbps == 233.71
    assert "not told which" in refusal(nccl(row, table=table, end=END.replace("0 OK", "2 FAILED")))


def test_a_blank_operation_does_not_shift_the_columns():
    row = LARGE.replace("     sum", "        ")

    assert only("./all_gather_perf -b 256M\n" + nccl(row)).gbps == 233.71


def test_columns_of_each_iteration_and_a_date_do_not_shift_the_others():
    table = TABLE.replace("#wrong     time", "#wrong i_min i_max i_p99 i_cv%  time").replace(
        "busbw #wrong\n", "busbw #wrong i_min i_max i_p99 i_cv% timestamp\n"
    )
    row = (
        "268435456 67108864 float sum -1 2010 133.55 233.71 0 2000 2020 2015 0.30"
        " 2020 132.89 232.56 0 2000 2020 2015 0.31 2031-01-01 00:00:00\n"
    )

    assert only(nccl(row, table=table)) == only(nccl())


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: "".join(f"[1,0]<stdout>:{line}\n" for line in text.split("\n")),
        lambda text: "".join(f"[prterun-rack7-a-77@1,0]<stdout>: {line}\n" for line in text.split("\n")),
        lambda text: "".join(f"Tue Mar  4 09:08:07 2031<stdout>:{line}\n" for line in text.split("\n")),
        lambda text: "".join(f"2031-03-04T09:08:07.123456Z {line}\n" for line in text.split("\n")),
        lambda text: "".join(f"0: {line}\n" for line in text.split("\n")),
        lambda text: text.replace("#  Rank", "\x1b[32m#  Rank\x1b[0m"),
        lambda text: text.replace(LARGE, "rack7-a:41:55 [3] NCCL INFO comm 0x55 rank 3 nranks 8 - Init COMPLETE\n" + LARGE),
        lambda text: text.replace(LARGE, "rack7-a:41:55 [3] misc/shm.cc:9 NCCL WARN Cuda failure 'out of memory'\n" + LARGE),
        lambda text: text.replace("#", ""),
        lambda text: text.replace("     0\n", "   N/A\n"),
    ],
    ids=["bom-crlf", "mpirun-4", "mpirun-5", "mpirun-stamp", "stamp", "srun", "ansi", "info", "warn", "no-hash", "unchecked"],
)
def test_what_a_launcher_or_log_adds_does_not_matter(damage):
    assert read(damage(nccl())).measured == read(nccl()).measured


def test_a_cut_last_row_is_not_used_and_told():
    results = read(nccl(LARGE + LARGE.replace("268435456", "536870912")[:60], end=""))

    assert [one.gbps for one in results.measured] == [233.71]
    assert codes(results) == ["row-unreadable", "output-cut"]


def test_a_row_that_a_log_line_broke_is_told():
    results = read(nccl(LARGE + "   536870912     134217728     float     sum      -1rack7-a:4:4 [0] NCCL INFO ring\n"))

    assert codes(results) == ["row-unreadable"]


def test_rows_with_wrong_values_are_not_used():
    wrong = LARGE.replace("268435456", "536870912").replace("0\n", "3\n").replace("233.71", "301.00")
    results = read(nccl(LARGE + wrong))

    assert [one.gbps for one in results.measured] == [233.71]
    assert codes(results) == ["values-wrong"]
    assert "wrong values" in refusal(nccl(wrong))


def test_an_asterisk_marks_wrong_values_of_rccl():
    assert "wrong values" in refusal(nccl(LARGE.replace("0\n", "2e+00*\n")))


def test_small_messages_tell_latency_and_give_no_result():
    assert "latency" in refusal(nccl(SMALL))


def test_a_collective_that_is_another_is_told():
    results = read("mpirun -np 8 /opt/bin/reduce_scatter_perf -b 4M\n" + nccl())

    assert codes(results) == ["other-collective"]
    assert "reduce_scatter" in results.findings[0].message
    assert results.findings[0].severity is Severity.NOTE


def test_a_collective_is_told_by_the_header_or_the_end_of_its_run():
    assert codes(read("# Collective test starting: alltoall_perf\n" + nccl())) == ["other-collective"]
    assert codes(read(nccl(end=END + "# Collective test concluded: alltoall_perf\n"))) == ["other-collective"]
    assert codes(read(nccl(end=END + "# Collective test concluded: alltoall_perf\n") + nccl())) == ["other-collective"]


@pytest.mark.parametrize("row", [LARGE.replace("sum ", "none"), LARGE.replace("233.71", "116.86").replace("232.56", "116.28")])
def test_a_collective_that_is_not_known_is_told(row):
    assert codes(read(nccl(row))) == ["collective-unknown"]


def test_every_run_of_a_text_gives_a_result():
    both = read(
        nccl() + "$ ./all_gather_perf -b 256M -e 256M\n" + nccl(LARGE.replace("233.71", "201.10").replace("232.56", "200.00"))
    )

    assert [one.gbps for one in both.measured] == [233.71, 201.10]
    assert codes(both) == ["other-collective"]


def test_runs_on_different_machines_are_told():
    both = read(nccl() + nccl(who=ranks(*range(8), host="rack7-b")))

    assert len(both.measured) == 2
    assert codes(both) == ["several-hosts"]


@pytest.mark.parametrize(
    "line",
    [
        "rack7-a: Test CUDA failure common.cu:891 'out of memory'\n",
        "rack7-a: Test NCCL failure common.cu:1204 'unhandled cuda error' / '\n",
        "mpirun noticed that process rank 3 with PID 0 on node rack7-a exited on signal 9 (Killed).\n",
    ],
)
def test_a_run_that_failed_gives_no_result_and_the_others_do(line):
    failed = nccl(LARGE, end=line)
    results = read(failed + nccl())

    assert len(results.measured) == 1
    assert codes(results) == ["run-failed"]
    assert "failed" in refusal(failed)


def test_a_failure_after_the_end_of_a_run_does_not_matter():
    assert codes(read(nccl(end=END + "rack7-a: Test CUDA failure common.cu:1 'out of memory'\n"))) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (nccl(who=ranks(0), rows=LARGE.replace("233.71", "  0.00").replace("232.56", "  0.00")), "one rank"),
        (nccl(who=""), "no line names the ranks"),
        (nccl(who=ranks(0, 1) + ranks(3, first=3)), "of ranks 0 to 3 only 3"),
        (nccl(who=ranks(0, 1, 2), gpus=4), "each process has 4"),
        (nccl(who=ranks(0, 1) + "#  Rank  2 Group  0 Pid   41...\n"), "list of ranks is cut"),
        (nccl(who=ranks(0, 0, 0, 0)), "same device"),
        (nccl(who=ranks(0, 1) + ranks(2, 3, first=2).replace("Group  0", "Group  1")), "in groups"),
        (nccl(who=ranks(0, 1) + ranks(0, 1, host="rack7-b")), "rank is listed twice"),
        (nccl(table=TABLE + TABLE), "several processes"),
        (nccl(end=END + END), "several processes"),
        (nccl(table=""), "no table"),
        (nccl(table=TABLE.replace(" #wrong\n", "\n")), "header is cut"),
        (nccl(rows=""), "no row"),
    ],
)
def test_where_it_is_not_sure_what_took_part_nothing_is_read(text, reason):
    assert reason in refusal(text)


# p2pBandwidthLatencyTest


def test_a_pair_has_its_weaker_direction():
    results = read(p2p())

    assert results.tool == "p2p-bandwidth"
    assert results.findings == ()
    assert results.measured == (
        Measured("p2p-bandwidth", 251.0, gpus=("GPU0", "GPU1"), latency_us=2.1),
        Measured("p2p-bandwidth", 252.0, gpus=("GPU0", "GPU2"), latency_us=2.2),
        Measured("p2p-bandwidth", 260.0, gpus=("GPU1", "GPU2"), latency_us=2.21),
    )


def test_titles_of_old_versions_are_read():
    old = p2p().replace(" (P2P Writes)", "").replace("   GPU", "   D\\D")

    assert read(old).measured == read(p2p()).measured


def test_directions_that_differ_are_told():
    results = read(p2p(cell=lambda i, j: 100.0 if (i, j) == (2, 0) else 124.0 if (i, j) == (0, 1) else 126.0))

    assert [one.gbps for one in results.measured] == [124.0, 100.0, 126.0]
    assert codes(results) == ["p2p-uneven"]
    assert "GPU0-GPU2 (126 and 100 GB/s)" in results.findings[0].message


def test_without_peer_access_the_figure_is_told_to_be_of_the_hosts_memory():
    results = read(p2p().replace("P2P Conn", "Device=2 CANNOT Access Peer Device=0\nDevice=0 CAN Access Peer Device=1\nP2P Conn"))

    assert len(results.measured) == 3
    assert codes(results) == ["p2p-no-access"]
    assert "GPU0-GPU2:" in results.findings[0].message


@pytest.mark.parametrize("cell", ["   nan", "  0.00", "  -nan", "   inf", "12.34.5", "26", "259.0"])
def test_a_pair_without_a_usable_cell_is_unknown(cell):
    results = read(p2p(cell=lambda i, j: cell if (i, j) == (1, 0) else speed(i, j)))

    assert [one.gpus for one in results.measured] == [("GPU0", "GPU2"), ("GPU1", "GPU2")]
    assert codes(results) == ["p2p-unknown"]
    assert "GPU0-GPU1" in results.findings[0].message


def test_a_lost_cell_does_not_shift_the_others():
    results = read(p2p().replace("     1 251.50 1890.25 260.00", "     1 1890.25 260.00"))

    assert [one.gpus for one in results.measured] == [("GPU0", "GPU2")]


def test_cut_output_tells_the_pairs_before_the_cut():
    text = p2p()
    cut = text[: text.index("260.50") + 4]

    assert [one.gpus for one in read(cut).measured] == [("GPU0", "GPU1"), ("GPU0", "GPU2")]
    assert all(one.latency_us is None for one in read(cut).measured)


def test_latency_of_the_cpu_is_not_that_of_the_gpu():
    text = p2p()
    no_gpu = text.replace(text[text.index(LATENCY) : text.rindex("   CPU")], LATENCY + "\n")

    assert all(one.latency_us is None for one in read(no_gpu).measured)


def test_a_latency_that_is_unknown_is_told():
    results = read(p2p().replace("  2.12", "   nan"))

    assert [one.latency_us for one in results.measured] == [2.1, 2.2, None]
    assert codes(results) == ["latency-unknown"]


@pytest.mark.parametrize("width", range(64, 132))
def test_rows_that_a_terminal_wrapped_are_put_together(width):
    text = p2p(16)
    wrapped = "\n".join(line[at : at + width].rstrip() for line in text.split("\n") for at in range(0, max(1, len(line)), width))

    assert read(wrapped).measured == read(text).measured
    assert len(read(text).measured) == 120


def test_rows_that_were_cut_at_a_width_are_not_glued_to_the_next():
    whole = {one.gpus: one.gbps for one in read(p2p(16)).measured}
    for width in range(64, 120):
        cut = read("\n".join(line[:width] for line in p2p(16).split("\n")))
        assert all(whole[one.gpus] == one.gbps for one in cut.measured)


def test_the_matrix_with_p2p_disabled_alone_tells_nothing():
    assert "P2P enabled" in refusal(matrix(DISABLED, 4, lambda i, j: 17.5))
    assert "P2P enabled" in refusal(matrix(WRITES.replace("Writes", "Reads"), 4, speed))


@pytest.mark.parametrize("text", [matrix(WRITES, 1, speed), WRITES, WRITES + "\n" + matrix("", 4, speed).split("\n", 2)[2]])
def test_without_a_header_of_two_gpus_there_are_no_pairs(text):
    assert "no pairs" in refusal(text)


def test_two_runs_are_both_read_and_told():
    both = read(p2p() + p2p(2))

    assert len(both.measured) == 4
    assert codes(both) == ["several-runs"]


def test_lines_between_rows_do_not_matter():
    text = p2p().replace("     1 251.50", "NVRM: Xid (PCI:0000:11:00): 13, pid=41\n\n     1 251.50")

    assert read(text).measured == read(p2p()).measured


# ib_write_bw


def test_megabytes_of_perftest_are_powers_of_two():
    one = only(perftest())

    assert one.gbps == pytest.approx(23418.40 * 1048576 / 1e9)
    assert one == Measured("ib-write-bw", one.gbps, nic="mlx5_4", nodes=2)
    assert only(perftest(unit="MiB/sec")).gbps == only(perftest()).gbps


def test_gigabits_are_powers_of_ten():
    row = " 65536      20000            0.00               392.24\t\t   0.748138\n"

    assert only(perftest(row, unit="Gb/sec")).gbps == pytest.approx(49.03)


def test_the_average_of_the_largest_message_counts():
    rows = " 2          5000           0.042350            0.042185            2.636533\n" + "".join(
        f" {size}      5000             {mean + 1}             {mean}               0.1\n"
        for size, mean in [(65536, 900), (8388608, 800)]
    )

    assert only(perftest(rows, unit="Gb/sec")).gbps == 100.0


def test_a_warning_on_the_cpu_frequency_does_not_matter():
    warning = "Conflicting CPU frequency values detected: 1500.000000 != 3412.812000. CPU Frequency is not max.\n"

    assert read(perftest().replace(" 65536  ", warning + " 65536  ")) == read(perftest())


def test_columns_before_and_behind_the_average_do_not_shift_it():
    text = perftest(
        " 65536    3           5000           98.00            96.00                  0.183105     4.20\n", unit="Gb/sec"
    )

    assert only(text.replace("#bytes  ", "#bytes    #sl  ").replace("[Mpps]", "[Mpps]    CPU_Util[%]")).gbps == 12.0


def test_other_verbs_are_told():
    results = read(perftest(title="RDMA_Read BW Test"))

    assert results.measured == read(perftest()).measured
    assert codes(results) == ["other-verb"]


def test_every_test_of_a_text_gives_a_result():
    assert [one.nic for one in read(perftest() + perftest(device="mlx5_7")).measured] == ["mlx5_4", "mlx5_7"]


def test_a_cut_row_is_not_used_and_told():
    rows = " 65536      5000      91.00      90.00      0.17\n 131072     5000      95.00      94.0"
    text = perftest(rows, unit="Gb/sec")
    results = read(text[: text.index("94.0") + 4])

    assert [one.gbps for one in results.measured] == [11.25]
    assert codes(results) == ["row-unreadable"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (perftest(title="RDMA_Write Bidirectional BW Test"), "both directions"),
        (perftest(dual="ON"), "two ports"),
        (perftest(title=""), "title"),
        (perftest(device=""), "device"),
        (perftest(" 4096      5000             2365.00            2341.84              0.37\n"), "message rate"),
        (perftest(" 65536      5000             0.00               -3.50              0.37\n"), "no positive average"),
        (perftest(" 65536      5000             nan               nan              nan\n"), "no positive average"),
        (perftest(""), "no row"),
        (perftest(title="Atomic FETCH_AND_ADD BW Test"), "tells no bandwidth"),
        (
            perftest(title="RDMA_Write Latency Test").replace("BW average[MB/sec]", "t_avg[usec]"),
            "a latency test tells no bandwidth",
        ),
    ],
)
def test_what_tells_nothing_of_one_direction_of_a_nic_is_refused(text, reason):
    assert reason in refusal(text)


# any


@pytest.mark.parametrize("text", ["", "\n\n", "GPU0 GPU1\nGPU0 X NV4\n", "busbw\n", "Device: 0, NVIDIA H200, pciBusID: 11\n"])
def test_text_of_no_benchmark_is_refused(text):
    assert "no output of a benchmark is recognised" in refusal(text)


def test_a_refusal_names_the_line():
    with pytest.raises(RefusedError) as refused:
        read("\n\n\n" + perftest(dual="ON"))
    assert refused.value.line == 5


def test_output_of_a_second_benchmark_is_told():
    results = read(nccl() + p2p())

    assert {one.tool for one in results.measured} == {"nccl-tests"}
    assert codes(results) == ["other-benchmark"]

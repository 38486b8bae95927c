"""What a poll of the metrics of 10,000 cards costs, and what it does to Filter: `make bench-polls`.

All parts are real but the cards and the API server: exporters of a simulated fleet, a Prometheus that scrapes them every 30 s, and
`pyscheduler serve`, which polls every 30 s. Meanwhile Filter is called at a steady rate over the service's socket. A call counts as
one during a poll while the process that polls and judges uses CPU, or waits for Prometheus in between.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import grpc
import numpy as np
import urllib3
from numpy.typing import NDArray

from pyscheduler.edge.pb.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.bench.large_objects import GPU
from tests.bench.served import await_, children, http_port, large_api_server, service, status
from tests.bench.throughput import machine
from tests.integration.prometheus_server import Prometheus

GPUS_OF_A_NODE: Final = 8
INTERVAL_S: Final = 30.0
# For so long the process may wait for Prometheus within a poll.
WAITS_S: Final = 5.0
# What the issue asks for.
CPU_GOAL_S: Final = 1.0
MEMORY_GOAL_MB: Final = 300
RATIO_GOAL: Final = 1.5

_POOL: Final = urllib3.PoolManager(retries=False)


class Calls(NamedTuple):
    """Calls of Filter in the order of time: when they began and what they took in seconds, and the CPU of each process by then."""

    begun: NDArray[np.float64]
    taken: NDArray[np.float64]
    cpu: dict[int, NDArray[np.float64]]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--polls", type=int, default=12)
    parser.add_argument("--all", action="store_true", help="all metrics of the lists in deploy/prometheus, not only twelve")
    parser.add_argument("--rate", type=float, default=100.0, help="calls of Filter a second")
    asked = parser.parse_args()
    gpu_pods = 2 * asked.nodes
    with (
        TemporaryDirectory(prefix="pyscheduler-bench-") as name,
        _exporters(asked.nodes, all_metrics=asked.all) as address,
        large_api_server(asked.nodes, gpu_pods + 100, gpu_pods) as api,
    ):
        folder = Path(name)
        with _prometheus(folder, address, asked.nodes) as prometheus:
            metrics = {"url": prometheus.url, "collectionInterval": f"{INTERVAL_S:.0f}s"}
            with service(folder, api, metrics=metrics) as process:
                url = f"http://127.0.0.1:{http_port(process, folder / 'log')}"
                await_(lambda: status(f"{url}/readyz") == 200, process)
                cards = GPUS_OF_A_NODE * asked.nodes
                await_(lambda: sum(_values(url, "pyscheduler_cards{")) == cards, process)
                _wait_for_polls(process, url, 2)
                calls = _filter(folder / "s.sock", process.pid, asked.polls * INTERVAL_S, asked.rate)
                _tell(calls, cards, url, process)


def _tell(calls: Calls, cards: int, url: str, process: subprocess.Popen[bytes]) -> None:
    judge = max(calls.cpu, key=lambda pid: calls.cpu[pid][-1] - calls.cpu[pid][0])
    polls = _busy(calls.begun, calls.cpu[judge])
    within = np.zeros(len(calls.begun), bool)
    for first, last in polls:
        within |= (calls.begun + calls.taken >= first) & (calls.begun <= last)
    spent = calls.cpu[judge][-1] - calls.cpu[judge][0]
    series = int(sum(_values(url, "pyscheduler_metric_series ")))
    print(f"{cards} cards, {series} series, {len(polls)} polls; {machine()}")
    print(
        f"a poll: {spent / len(polls):.2f} s of CPU (goal {CPU_GOAL_S:g}), {np.mean([b - a for a, b in polls]):.1f} s long"
        f" with what Prometheus, on the same cores, took (longest query of the last {sum(_values(url, 'pyscheduler_metric_query_seconds ')):.2f} s)"
    )
    print(
        f"memory of the process that polls at most {_most_mb(judge):.0f} MB (goal {MEMORY_GOAL_MB}), of the service {_most_mb(process.pid):.0f} MB"
    )
    p99 = {}
    for name, those in (("between polls", calls.taken[~within]), ("during polls", calls.taken[within])):
        p50, p99[name] = np.percentile(those, (50, 99)) * 1e3
        print(
            f"Filter {name}: {len(those)} calls, median {p50:.2f} ms, p99 {p99[name]:.2f} ms, at most {those.max() * 1e3:.1f} ms"
        )
    print(f"p99 during polls is {p99['during polls'] / p99['between polls']:.2f} times that between them (goal {RATIO_GOAL})")


def _busy(at: NDArray[np.float64], cpu: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Return from when to when the process used CPU; pauses up to `WAITS_S` are within."""
    active = np.flatnonzero(np.diff(cpu) > 0)
    if not len(active):
        raise SystemExit("no poll was seen")
    breaks = np.flatnonzero(at[active[1:]] - at[active[:-1] + 1] > WAITS_S)
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(active) - 1)
    return [(at[active[a]], at[active[b] + 1]) for a, b in zip(firsts, lasts, strict=True)]


def _filter(socket: Path, pid: int, seconds: float, rate: float) -> Calls:
    """Call Filter at a steady rate, for pods of 1, 2, 4 and 8 GPUs."""
    processes = children(pid)
    begun, taken = [], []
    cpu: dict[int, list[float]] = {child: [] for child in processes}
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        stub = scheduler_pb2_grpc.SchedulerPluginStub(channel)
        requests = _requests(stub)
        first = time.perf_counter()
        for number in range(int(seconds * rate)):
            time.sleep(max(first + number / rate - time.perf_counter(), 0))
            for child in processes:
                cpu[child].append(_cpu_s(child))
            begun.append(time.perf_counter())
            answer = stub.Filter(next(requests), timeout=30)
            taken.append(time.perf_counter() - begun[-1])
            if answer.verdict.code not in (scheduler_pb2.Verdict.CODE_OK, scheduler_pb2.Verdict.CODE_UNSCHEDULABLE):
                raise SystemExit(f"Filter answered {answer.verdict}")
    return Calls(np.array(begun), np.array(taken), {child: np.array(spent) for child, spent in cpu.items()})


def _requests(stub: scheduler_pb2_grpc.SchedulerPluginStub) -> Iterator[scheduler_pb2.FilterRequest]:
    """Yield requests of pods that are new each time and may go to all nodes."""
    nodes = stub.Nodes(scheduler_pb2.NodesRequest())
    session = nodes.newest_session + 1
    stub.Resync(scheduler_pb2.ResyncRequest(attempt=scheduler_pb2.Attempt(session=session, number=1, host="bench")))
    known = len(nodes.names)
    bits = np.packbits(np.ones(known, np.uint8), bitorder="little").tobytes()
    eligible = scheduler_pb2.NodeSet(epoch=nodes.epoch, bitmap=bits, known=known)
    number = 1
    while True:
        number += 1
        container = scheduler_pb2.ContainerRequest(
            name="main", kind=scheduler_pb2.ContainerRequest.KIND_APP, resource=GPU, gpus=(1, 2, 4, 8)[number % 4]
        )
        name = f"pod-{number}"
        yield scheduler_pb2.FilterRequest(
            attempt=scheduler_pb2.Attempt(session=session, number=number, host="bench"),
            pod=scheduler_pb2.Pod(uid=name, namespace="bench", name=name, containers=[container]),
            eligible=eligible,
        )


def _wait_for_polls(process: subprocess.Popen[bytes], url: str, number: int) -> None:
    """Wait for polls of now: the past is read at the start."""
    until = sum(_values(url, "pyscheduler_metric_polls_total{")) + number
    await_(lambda: sum(_values(url, "pyscheduler_metric_polls_total{")) >= until, process)


def _values(url: str, prefix: str) -> list[float]:
    lines = _POOL.request("GET", f"{url}/metrics", timeout=10).data.decode().splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefix)]


def _cpu_s(pid: int) -> float:
    """Return the CPU that a process has used, also in threads that have ended, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _most_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


@contextlib.contextmanager
def _exporters(nodes: int, *, all_metrics: bool) -> Iterator[str]:
    options = [f"--nodes={nodes}", f"--interval={INTERVAL_S}", *(["--all"] if all_metrics else [])]
    with subprocess.Popen([sys.executable, "-m", "tests.bench.many_exporters", *options], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextlib.contextmanager
def _prometheus(folder: Path, address: str, nodes: int) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes all exporters."""
    names = [f"gpu-{number:05}" for number in range(nodes)]
    targets = [{"targets": [address], "labels": {"node": name, "__metrics_path__": f"/node/{name}/metrics"}} for name in names]
    interval = {"scrape_interval": f"{INTERVAL_S:.0f}s", "scrape_timeout": "10s"}
    # In earnest it has a machine of its own; here it shall not take all cores of this one.
    prometheus = Prometheus(folder, [{"job_name": "dcgm", "static_configs": targets, **interval}], env={"GOMAXPROCS": "1"})
    prometheus.start()
    try:
        yield prometheus
    finally:
        prometheus.kill()


if __name__ == "__main__":
    main()

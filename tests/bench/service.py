"""Seconds to ready, CPU and memory of the service in a large cluster: `make bench-service`.

The service is `pyscheduler serve`; the API server is `tests.bench.large_cluster`, a process of its own. Memory is that of the
service with its worker processes: RSS of each, and the sum of their PSS, in which what they share counts once. The process of
lint, which runs for seconds after changes of the topology, is told apart.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import subprocess
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import grpc
import urllib3

from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc
from tests.bench.served import SAMPLE_S, WAIT_MAX_S, await_, children, http_port, large_api_server, service, status

# What the issue asks for.
READY_GOAL_S: Final = 30
MEMORY_GOAL_MB: Final = 300
SERVICE: Final = "service"
WORKER: Final = "worker"
LINT: Final = "lint"

_POOL: Final = urllib3.PoolManager(retries=False)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--gpu-pods", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=200.0, help="Pod events a second after it is ready.")
    parser.add_argument("--seconds", type=float, default=60.0, help="How long they last.")
    asked = parser.parse_args()
    machine = f"Python {platform.python_version()}, {os.cpu_count()} CPUs"
    print(f"{machine}; {asked.nodes} nodes of 8 GPUs, {asked.pods} pods, {asked.gpu_pods} with GPUs", flush=True)
    sizes = (asked.nodes, asked.pods, asked.gpu_pods)
    with TemporaryDirectory(prefix="pyscheduler-bench-") as folder, large_api_server(*sizes) as api:
        _run(Path(folder), api, asked)


def _run(folder: Path, api: str, asked: argparse.Namespace) -> None:
    with service(folder, api) as process, _Memory(process.pid) as memory:
        begun = time.monotonic()
        port = http_port(process, folder / "log")
        await_(lambda: status(f"http://127.0.0.1:{port}/readyz") == 200, process)
        ready_s, cpu = time.monotonic() - begun, _cpu_s(process.pid)
        _check(folder, api)
        print(f"ready after {ready_s:.1f} s (goal {READY_GOAL_S}); CPU: {_told(cpu, ' s', 1)}")
        print(f"most until then: {memory.told()}")
        if asked.rate and asked.seconds:
            _churn(folder, api, process, memory, asked)
        print(f"at the end: {_told(memory.sample(), ' MB RSS', 0)}; most: {memory.told()}")
        most = f"{memory.most_sum:.0f} MB RSS, {memory.most_pss:.0f} MB PSS"
        print(f"sum of all but lint at most {most} (goal {MEMORY_GOAL_MB})")


def _churn(folder: Path, api: str, process: subprocess.Popen[bytes], memory: _Memory, asked: argparse.Namespace) -> None:
    before, cpu = memory.sample(), _cpu_s(process.pid)[SERVICE]
    _post(f"{api}/bench/churn?rate={asked.rate}")
    with grpc.insecure_channel(f"unix:{folder / 's.sock'}") as channel:
        latencies = _latencies(channel, asked.seconds)
    _post(f"{api}/bench/churn?rate=0")
    spent = _cpu_s(process.pid)[SERVICE] - cpu
    after = memory.sample()
    _check(folder, api)
    events = _state(api)["events"]
    print(f"{events} pod events in {asked.seconds:.0f} s: {1000 * spent / events:.2f} ms CPU each")
    print(f"a call of Inspect meanwhile takes {latencies}")
    print(f"RSS of the service {before[SERVICE]:.0f} MB before, {after[SERVICE]:.0f} MB after")


def _latencies(channel: grpc.Channel, seconds: float) -> str:
    """Call Inspect.GetState for so long, ten times a second; return what the calls took."""
    stub, taken, ends = inspect_pb2_grpc.InspectStub(channel), [], time.monotonic() + seconds
    while time.monotonic() < ends:
        begun = time.perf_counter()
        stub.GetState(inspect_pb2.GetStateRequest())
        taken.append(1000 * (time.perf_counter() - begun))
        time.sleep(0.1)
    quantiles = statistics.quantiles(taken, n=100)
    return f"{statistics.median(taken):.1f} ms, p99 {quantiles[98]:.1f}, at most {max(taken):.1f}"


def _check(folder: Path, api: str) -> None:
    """Wait until the service knows what is so: a number for a state that is wrong is worth nothing."""
    wanted = _state(api)
    with grpc.insecure_channel(f"unix:{folder / 's.sock'}") as channel:
        stub, ends = inspect_pb2_grpc.InspectStub(channel), time.monotonic() + WAIT_MAX_S
        while True:
            state = stub.GetState(inspect_pb2.GetStateRequest())
            if (state.gpus_held, state.gpus_free) == (wanted["gpus_held"], wanted["gpus_free"]):
                return
            if time.monotonic() > ends:
                raise SystemExit(f"the service has {state.gpus_held} GPUs held and {state.gpus_free} free, not {wanted}")
            time.sleep(SAMPLE_S)


class _Memory:
    """Samples the memory of a process and of its children, in MB, in a thread of its own."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most: dict[str, float] = {}
        self.most_sum = self.most_pss = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def sample(self) -> dict[str, float]:
        """Return the RSS of each process."""
        found: dict[str, float] = {}
        shared = 0.0
        for name, pid in _processes(self._pid).items():
            with contextlib.suppress(OSError, IndexError):  # it has just ended
                lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
                found[name] = int(lines["Rss"].split()[0]) * 1024 / 1e6
                shared += int(lines["Pss"].split()[0]) * 1024 / 1e6 if name != LINT else 0
        for name, size in found.items():
            self._most[name] = max(self._most.get(name, 0.0), size)
        self.most_sum = max(self.most_sum, sum(size for name, size in found.items() if name != LINT))
        self.most_pss = max(self.most_pss, shared)
        return found

    def told(self) -> str:
        """Return the most of each process so far."""
        return _told(self._most, " MB RSS", 0)

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self.sample()


def _processes(pid: int) -> dict[str, int]:
    """Return the service and its children by what they do. Of those that Python spawned the first is the worker."""
    found, spawned = {SERVICE: pid}, []
    with contextlib.suppress(OSError):
        for child in children(pid):
            command = Path(f"/proc/{child}/cmdline").read_text()
            if "resource_tracker" in command:
                found["resource tracker"] = child
            else:
                spawned.append(child)
    return found | dict(zip((WORKER, LINT), spawned, strict=False))


def _cpu_s(pid: int) -> dict[str, float]:
    spent = {}
    for name, each in _processes(pid).items():
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        spent[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def _told(numbers: dict[str, float], unit: str, digits: int) -> str:
    return ", ".join(f"{name} {number:.{digits}f}{unit}" for name, number in numbers.items())


def _state(api: str) -> dict[str, int]:
    return dict(_POOL.request("GET", f"{api}/bench/state", timeout=60).json())


def _post(url: str) -> None:
    _POOL.request("POST", url, timeout=60)


if __name__ == "__main__":
    main()

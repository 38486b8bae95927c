"""`pyscheduler serve` beside an API server with a large cluster (`tests.bench.large_cluster`), for benchmarks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import urllib3

__all__ = ["await_", "children", "http_port", "large_api_server", "service", "status"]

SAMPLE_S: Final = 0.1
WAIT_MAX_S: Final = 300.0

_POOL: Final = urllib3.PoolManager(retries=False)


@contextlib.contextmanager
def large_api_server(nodes: int, pods: int, gpu_pods: int) -> Iterator[str]:
    """Serve a cluster of that size from a process of its own, and yield the address."""
    sizes = [f"--nodes={nodes}", f"--pods={pods}", f"--gpu-pods={gpu_pods}"]
    with subprocess.Popen([sys.executable, "-m", "tests.bench.large_cluster", *sizes], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextlib.contextmanager
def service(folder: Path, api: str, **config: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the service with its socket at `folder`/s.sock and its log in `folder`/log; `config` is added to its configuration."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    config |= {
        "socket": str(folder / "s.sock"),
        "kubeconfig": str(folder / "kubeconfig"),
        "http_host": "127.0.0.1",
        "http_port": 0,
    }
    (folder / "config").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyscheduler", "serve", "--config", str(folder / "config")]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def http_port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return the port of the service's HTTP server as soon as its log tells it."""
    found: list[int] = []

    def told() -> bool:
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        found.extend(line["http_port"] for line in lines if "http_port" in line)
        return bool(found)

    await_(told, process)
    return found[0]


def await_(done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until it is done, or end the benchmark when the service has ended or it takes too long."""
    ends = time.monotonic() + WAIT_MAX_S
    while not done():
        if process.poll() is not None or time.monotonic() > ends:
            raise SystemExit(f"the service ended with {process.returncode}, or took more than {WAIT_MAX_S:.0f} s")
        time.sleep(SAMPLE_S)


def status(url: str) -> int:
    """Return the HTTP status of a page."""
    return _POOL.request("GET", url, timeout=10).status


def children(pid: int) -> list[int]:
    """Return the processes that a process has begun, the oldest first."""
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sorted(int(each) for task in tasks for each in (task / "children").read_text().split())
    return []

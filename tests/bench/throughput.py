"""Pods per second of the profile gpu-topology and of the default one: `make bench-throughput`.

One control plane, one scheduler binary with both profiles, the same client limits. The profiles take turns; each turn
begins with an empty cluster and all its pods waiting (they are created while the scheduler is stopped), and counts
from the first binding to the last, as the scheduler's own metric tells them. Nodes and pods are kwok's; devices are not
simulated, for on a cluster that work is the kubelets'. The last line is ``ratio X.XX``: ours / default, medians.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import urllib3

from deploy.local import components
from deploy.local.api import in_parallel
from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.scheduler_config import DEFAULT_PROFILE, GPU_PROFILE
from deploy.local.workspace import Workspace

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Turn:
    """Pods per second, and CPU milliseconds per pod of each process."""

    rate: float
    cpu_ms: dict[str, float]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=4)
    asked = parser.parse_args()
    print(f"{machine()}; {asked.nodes} nodes of 8 GPUs, {asked.pods} pods of 1 GPU, {asked.rounds} rounds", flush=True)
    with TemporaryDirectory(prefix="pyscheduler-bench-") as folder:
        options = Options(root=Path(folder) / "plane", mode=Mode.REPLACE, simulator=False, service={"log_level": "warning"})
        with ControlPlane.start(options) as plane, Workspace(plane.api, "bench") as workspace:
            turns = _run(plane, workspace, asked)
    _report(turns)


def _run(plane: ControlPlane, workspace: Workspace, asked: argparse.Namespace) -> dict[str, list[Turn]]:
    workspace.add_nodes("hgx-h100", asked.nodes)
    workspace.wait_untainted()
    turns: dict[str, list[Turn]] = {DEFAULT_PROFILE: [], GPU_PROFILE: []}
    _turn(plane, workspace, DEFAULT_PROFILE, asked.pods // 4, "warm-up")
    _turn(plane, workspace, GPU_PROFILE, asked.pods // 4, "warm-up")
    for number in range(asked.rounds):
        order = (DEFAULT_PROFILE, GPU_PROFILE) if number % 2 == 0 else (GPU_PROFILE, DEFAULT_PROFILE)
        for profile in order:
            turn = _turn(plane, workspace, profile, asked.pods, f"{number}")
            turns[profile].append(turn)
            spent = ", ".join(f"{name} {ms:.2f}" for name, ms in turn.cpu_ms.items())
            print(f"round {number + 1}: {profile:17} {turn.rate:6.1f} pods/s; CPU ms/pod: {spent}", flush=True)
    return turns


def _turn(plane: ControlPlane, workspace: Workspace, profile: str, pods: int, title: str) -> Turn:
    spec = workspace.pod_spec(1, scheduler=profile, cpu="10m")
    names = [f"{profile}-{title}-{i}" for i in range(pods)]
    bound = _Bound(plane, profile)
    before = first = last = bound.read()
    with plane.frozen_component(components.SCHEDULER):
        in_parallel(lambda name: workspace.add_pod(name, spec), names)
        cpu = _cpu_s(plane)
    begun = ended = time.monotonic()
    while last - before < pods:
        time.sleep(POLL_S)
        last, ended = bound.read(), time.monotonic()
        if first == before:
            first, begun = last, ended
    spent = {name: 1000 * (after - cpu[name]) / pods for name, after in _cpu_s(plane).items()}
    workspace.api.delete(workspace.pods, gracePeriodSeconds="0")
    workspace.wait_pods_gone(names)
    return Turn((last - first) / (ended - begun), spent)


class _Bound:
    """Reads from the scheduler's metrics how many pods of a profile were bound."""

    def __init__(self, plane: ControlPlane, profile: str) -> None:
        self._pool = urllib3.PoolManager(cert_reqs="CERT_NONE")
        urllib3.disable_warnings()
        arguments = Path(f"/proc/{plane.process(components.SCHEDULER).pid}/cmdline").read_text().split("\0")
        port = next(a.split("=")[1] for a in arguments if a.startswith("--secure-port="))
        self._url = f"https://127.0.0.1:{port}/metrics"
        self._headers = {key: value or "" for key, value in plane.api._headers.items()}
        self._wanted = (f'profile="{profile}"', 'result="scheduled"')

    def read(self) -> int:
        text = self._pool.request("GET", self._url, headers=self._headers, timeout=30).data.decode()
        for line in text.splitlines():
            if line.startswith("scheduler_schedule_attempts_total{") and all(w in line for w in self._wanted):
                return int(float(line.rsplit(" ", 1)[1]))
        return 0


def _cpu_s(plane: ControlPlane) -> dict[str, float]:
    """Return the seconds of CPU that each process has used, its worker processes included where they were waited for."""
    used = {}
    for name in (components.SCHEDULER, components.SERVICE, components.API_SERVER, components.ETCD):
        fields = Path(f"/proc/{plane.process(name).pid}/stat").read_text().rsplit(")", 1)[1].split()
        used[name] = (int(fields[11]) + int(fields[12])) / 100
    return used


def _report(turns: dict[str, list[Turn]]) -> None:
    medians = {}
    for profile, taken in turns.items():
        rates = [turn.rate for turn in taken]
        medians[profile] = statistics.median(rates)
        print(f"{profile:17} median {medians[profile]:.1f} pods/s, range {min(rates):.1f} to {max(rates):.1f}")
    print(f"ratio {medians[GPU_PROFILE] / medians[DEFAULT_PROFILE]:.2f}")


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{sum(line.startswith('processor') for line in lines)} cores ({model})"


if __name__ == "__main__":
    main()

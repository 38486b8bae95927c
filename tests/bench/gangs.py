"""A group of 512 pods of 8 GPUs on 600 nodes: `make bench-gangs`.

The same control plane places as many plain pods by the default profile first. Times are counted by a watch of the pods: from the last
pod created to the last one bound, and from the first to the last binding. Then the cluster is filled up to 72 free GPUs, and a
group of 80 is refused, twice. Nodes and pods are kwok's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.local import components
from deploy.local.api import Api, in_parallel
from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.errors import LocalError
from deploy.local.scheduler_config import DEFAULT_PROFILE, GPU_PROFILE
from deploy.local.workspace import Workspace
from tests.bench.throughput import machine

BOX, LEAF = "hgx-h100", 20
WAIT_S = 300.0


class Bindings:
    """When each pod was seen bound, by a watch in a process of its own: one that falls behind costs the API server a list."""

    def __init__(self, kubeconfig: Path, pods: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._seen, there = context.Pipe(duplex=False)
        context.Process(target=_watch, args=(kubeconfig, pods, there), daemon=True).start()
        self._at: dict[str, float] = {}

    def of(self, names: Sequence[str]) -> list[float]:
        """Wait until all of these are bound. Return when they were, in order."""
        end = time.monotonic() + WAIT_S
        while not all(name in self._at for name in names):
            if not self._seen.poll(max(0.0, end - time.monotonic())):
                raise SystemExit(f"{sum(name not in self._at for name in names)} pods are not bound after {WAIT_S:.0f} s")
            name, at = self._seen.recv()
            self._at.setdefault(name, at)
        return sorted(self._at[name] for name in names)


def _watch(kubeconfig: Path, pods: str, there: Connection) -> None:
    """Tell the name of each pod that is bound, and when that was seen; the clock is that of the machine."""
    api = Api(kubeconfig)
    # The API server stops at the end, and nobody listens any more.
    with suppress(LocalError, BrokenPipeError):
        while True:
            items, version = api.read_all(pods)
            for pod in chain(items, (pod for _, pod in api.watch(pods, version, 3600.0))):
                if pod.get("spec", {}).get("nodeName"):
                    there.send((pod["metadata"]["name"], time.monotonic()))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=600)
    parser.add_argument("--pods", type=int, default=512)
    asked = parser.parse_args()
    print(f"{machine()}; {asked.nodes} nodes of 8 GPUs, {asked.pods} pods of 8 GPUs", flush=True)
    with TemporaryDirectory(prefix="pyscheduler-bench-") as folder:
        options = Options(root=Path(folder) / "plane", mode=Mode.REPLACE, simulator=False)
        with ControlPlane.start(options) as plane, Workspace(plane.api, "bench") as workspace:
            _run(plane, workspace, asked.nodes, asked.pods)


def _run(plane: ControlPlane, workspace: Workspace, nodes: int, pods: int) -> None:
    for leaf in range(nodes // LEAF):
        workspace.add_nodes(BOX, LEAF, fabric=(f"leaf-{leaf}", f"spine-{leaf // 6}"))
    workspace.wait_untainted()
    bindings = Bindings(plane.kubeconfig, workspace.pods)
    for turn in range(2):
        plain = [f"plain-{turn}-{i}" for i in range(pods)]
        _place(workspace, bindings, "default profile, plain pods", plain, DEFAULT_PROFILE, {})
        _clear(workspace, plain)
        members = [f"gang-{turn}-{i}" for i in range(pods)]
        _place(workspace, bindings, "one group", members, GPU_PROFILE, _group(f"gang-{turn}", pods))
        if turn == 0:
            _clear(workspace, members)
    rest = nodes - pods - 9
    filling = [f"rest-{i}" for i in range(rest)]
    _place(workspace, bindings, f"one more group, of {rest}", filling, GPU_PROFILE, _group("rest", rest))
    for turn in range(2):
        _refuse(plane, workspace, f"much-{turn}")


def _group(name: str, members: int) -> dict[str, str]:
    return {"pyscheduler.io/group": name, "pyscheduler.io/min-members": str(members)}


def _place(
    workspace: Workspace, bindings: Bindings, title: str, names: Sequence[str], profile: str, annotations: Mapping[str, str]
) -> None:
    spec = workspace.pod_spec(8, scheduler=profile, cpu="10m")
    begun = time.monotonic()
    in_parallel(lambda name: workspace.add_pod(name, spec, annotations), names)
    created = time.monotonic()
    bound = bindings.of(names)
    print(
        f"{title:28} all created after {created - begun:5.2f} s; last created to last bound {bound[-1] - created:6.2f} s, "
        f"first to last bound {bound[-1] - bound[0]:6.2f} s",
        flush=True,
    )


def _clear(workspace: Workspace, names: Sequence[str]) -> None:
    workspace.api.delete(workspace.pods, gracePeriodSeconds="0")
    workspace.wait_pods_gone(names)


def _refuse(plane: ControlPlane, workspace: Workspace, name: str) -> None:
    """Ask for 10 pods of 8 GPUs, and print what the refusals cost: the call, and the time until the last pod is told."""
    names = [f"{name}-{i}" for i in range(10)]
    spec = workspace.pod_spec(8, cpu="10m")
    for each in names:
        workspace.add_pod(each, spec, _group(name, 10))
    created = time.monotonic()
    workspace.wait_pod(names[-1], lambda pod: "needs 10 pods" in json.dumps(pod["status"].get("conditions", [])))
    told = time.monotonic() - created
    calls = [
        json.loads(line) for line in plane.layout.log(components.SERVICE).read_text().splitlines() if '"rpc": "Plan"' in line
    ]
    spent = [
        call["duration_ms"]
        for call in calls
        if call.get("group", "").endswith(f"/{name}") and "needs 10 pods" in call.get("reason", "")
    ]
    print(
        f"80 GPUs of 72: refused in {max(spent):.1f} ms by the service; told on the last pod {1000 * told:.0f} ms after it was created"
    )
    _clear_some(workspace, names)


def _clear_some(workspace: Workspace, names: Sequence[str]) -> None:
    for each in names:
        workspace.delete_pod(each)


if __name__ == "__main__":
    main()

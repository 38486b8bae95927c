"""Time of decisions of the selector in clusters of 256 to 102,400 GPUs with churn: `make bench-selector`.

A decision is `select`; a commit takes the GPUs in the books and derives the touched nodes anew. CPU time is that of the
thread. The naive loop is measured in the same run, on the same states.
"""

from __future__ import annotations

import argparse
import gc
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from pyscheduler.core.baselines import BASELINES
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import Job, Selection
from pyscheduler.core.machine.device_table import DeviceClass, DeviceTable
from pyscheduler.core.model import Attempt, Machine, NodeFacts, PodUid
from pyscheduler.core.selector import select

GPUS_PER_NODE = 8
NODES_PER_LEAF, LEAVES_PER_SPINE, SPINES_PER_CORE = 16, 20, 10
# (share of the jobs, pods, GPUs of each).
MIX = (
    (0.40, 1, 1),
    (0.13, 1, 2),
    (0.12, 1, 4),
    (0.17, 1, 8),
    (0.08, 2, 8),
    (0.05, 4, 8),
    (0.03, 8, 8),
    (0.014, 16, 8),
    (0.004, 32, 8),
    (0.002, 64, 8),
)
# Share of the GPUs that are held while it is measured.
LOAD = 0.85


class Bench:
    """A cluster, and the jobs that run on it, the oldest first."""

    def __init__(self, nodes: int) -> None:
        self.cluster = _cluster(nodes)
        self.gpus = nodes * GPUS_PER_NODE
        self.held = 0
        self._running: deque[tuple[int, list[Holding]]] = deque()
        self._number = 0

    def commit(self, job: Job, chosen: Selection) -> float:
        """Take the GPUs; return the microseconds of CPU per node."""
        self._number += 1
        holdings = []
        for rank, pod in enumerate(chosen.pods):
            state = self.cluster.state(pod.node)
            assert state.facts.machine is not None
            handles = state.facts.machine.handles(pod.mask)
            uid = PodUid(f"job-{self._number}-{rank}")
            holdings.append(
                Holding(
                    uid, "bench", uid, pod.node, HoldingState.RESERVED, job.gpus, handles, 0.0, "bench", Attempt(1, self._number)
                )
            )
        touched: set[int] = set()
        for holding in holdings:
            touched |= self.cluster.ledger.reserve(holding)
        begun = time.thread_time()
        self.cluster.refresh(touched)
        spent = (time.thread_time() - begun) * 1e6
        self._running.append((job.pods * job.gpus, holdings))
        self.held += job.pods * job.gpus
        return spent

    def release(self, at: int) -> None:
        """End a running job."""
        self._running.rotate(-at)
        gpus, holdings = self._running.popleft()
        self._running.rotate(at)
        touched: set[int] = set()
        for holding in holdings:
            touched |= self.cluster.ledger.drop(holding)
        self.cluster.refresh(touched)
        self.held -= gpus

    @property
    def running(self) -> int:
        """Number of jobs."""
        return len(self._running)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="*", default=[256, 10_240, 102_400])
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--naive", type=int, default=5, help="decisions of the naive loop to measure in each cluster")
    asked = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    for gpus in asked.gpus:
        _one_size(gpus, asked.decisions, asked.naive)
    _wide_node()


def _one_size(gpus: int, decisions: int, naive: int) -> None:
    begun = time.thread_time()
    bench = Bench(gpus // GPUS_PER_NODE)
    draw = np.random.Generator(np.random.PCG64(1))
    jobs = _jobs(draw, gpus)
    _fill(bench, jobs)
    print(
        f"\n{gpus} GPUs on {gpus // GPUS_PER_NODE} nodes, {LOAD:.0%} held; built and filled in {time.thread_time() - begun:.1f} s"
    )
    gc.collect()
    gc.freeze()
    cpu, wall, commits, per_node, placed = [], [], [], [], 0
    for _ in range(decisions):
        while bench.held > LOAD * gpus:
            bench.release(int(draw.integers(bench.running)))
        job = next(jobs)
        at, on_wall = time.thread_time(), time.perf_counter()
        chosen = select(bench.cluster, job)
        cpu.append((time.thread_time() - at) * 1e6)
        wall.append((time.perf_counter() - on_wall) * 1e6)
        if isinstance(chosen, Selection):
            placed += 1
            spent = bench.commit(job, chosen)
            commits.append(spent)
            per_node.append(spent / len({pod.node for pod in chosen.pods}))
        elif bench.running:
            bench.release(int(draw.integers(bench.running)))
    gc.unfreeze()
    _row("decision, CPU", cpu)
    _row("decision, wall", wall)
    _row("commit of a job", commits)
    _row("commit per node", per_node)
    print(
        f"  placed {placed / decisions:.1%}; {1e6 / float(np.mean(cpu)):,.0f} decisions/s; solver arrays {_array_bytes(bench.cluster) / 1e6:.2f} MB"
    )
    _against_naive(bench, jobs, naive, float(np.median(cpu)))


def _against_naive(bench: Bench, jobs: Iterator[Job], naive: int, median: float) -> None:
    spent = []
    for _ in range(naive):
        at = time.thread_time()
        BASELINES["kruskal-naive"](bench.cluster, next(jobs))
        spent.append((time.thread_time() - at) * 1e6)
    if spent:
        print(
            f"  the naive loop on all edges: median {np.median(spent) / 1000:.1f} ms, {np.median(spent) / median:,.0f} times as long"
        )


def _wide_node() -> None:
    """Time the choice on one machine of 16 GPUs, linked as two meshes of eight, for free sets not seen before."""
    fast = {(a, b): "NV2" for a, b in combinations(range(16), 2) if a // 8 == b // 8}
    links = {pair: fast.get(pair, "SYS") for pair in combinations(range(16), 2)}
    table = DeviceTable.build(DeviceClass.of([None] * 16, [gpu // 8 for gpu in range(16)], links))
    draw = np.random.Generator(np.random.PCG64(2))
    masks = draw.choice(1 << 16, 4000, replace=False).tolist()
    asked = [(mask, int(draw.integers(1, mask.bit_count() + 1))) for mask in masks if mask]
    for mask, k in asked[:500]:
        table.choose(mask, k)
    spent = [_timed(lambda: table.choose(mask, k)) for mask, k in asked[500:]]  # noqa: B023
    print("\n16 GPUs on one node, each free set for the first time")
    _row("choice, CPU", spent)


def _timed(call: Callable[[], object]) -> float:
    at = time.thread_time()
    call()
    return (time.thread_time() - at) * 1e6


def _row(title: str, spent: list[float]) -> None:
    p50, p99, p999 = np.percentile(spent, [50, 99, 99.9]) if spent else (0.0, 0.0, 0.0)
    print(f"  {title:16} p50 {p50:7.0f} us   p99 {p99:7.0f} us   p99.9 {p999:7.0f} us   max {max(spent, default=0.0):8.0f} us")


def _jobs(draw: np.random.Generator, gpus: int) -> Iterator[Job]:
    mix = [each for each in MIX if each[1] * each[2] * 4 <= gpus]
    shares = np.array([share for share, *_ in mix])
    while True:
        for at in draw.choice(len(mix), 1024, p=shares / shares.sum()).tolist():
            yield Job(mix[at][1], mix[at][2])


def _fill(bench: Bench, jobs: Iterator[Job]) -> None:
    while bench.held < LOAD * bench.gpus:
        job = next(jobs)
        chosen = select(bench.cluster, job)
        if isinstance(chosen, Selection):
            bench.commit(job, chosen)


def _cluster(nodes: int) -> Cluster:
    links = dict.fromkeys(combinations(range(GPUS_PER_NODE), 2), "NV18")
    numa = [gpu // 4 for gpu in range(GPUS_PER_NODE)]
    table = DeviceTable.build(DeviceClass.of(["NVIDIA H100 80GB HBM3"] * GPUS_PER_NODE, numa, links))
    cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
    ids = tuple(f"GPU{gpu}" for gpu in range(GPUS_PER_NODE))
    for node in range(nodes):
        leaf = node // NODES_PER_LEAF
        spine = leaf // LEAVES_PER_SPINE
        path = (("leaf", f"l{leaf:04}"), ("spine", f"s{spine:03}"), ("core", f"c{spine // SPINES_PER_CORE}"))
        uuids = tuple(f"GPU-{node:05}-{gpu}" for gpu in range(GPUS_PER_NODE))
        machine = Machine(ids, uuids, (1 << GPUS_PER_NODE) - 1, table)
        cluster.observe_node(NodeFacts(f"n{node:05}", Place(path), "nvidia.com/gpu", GPUS_PER_NODE, machine), 0.0)
    return cluster


def _array_bytes(cluster: Cluster) -> int:
    """Return the bytes of the arrays that one shape of job is decided with: tree, slots, free GPUs, kinds."""
    fleet = cluster.fleet
    tree, slots = fleet.tree(), fleet.slots(next(iter(fleet._indexes)))
    of_tree = [tree.order, tree.position, tree.low, tree.high, tree.parent, tree.tier, *tree.below]
    narrow = [tree.nearest, slots.of_node, slots.histogram, fleet.kinds(), fleet.free()]
    return sum(each.nbytes for each in of_tree) + sum(each.nbytes for each in narrow)


if __name__ == "__main__":
    main()

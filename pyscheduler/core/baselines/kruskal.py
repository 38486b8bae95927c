"""The textbook loop: edges by cost, union-find, both ends of every edge that joins two trees, until enough GPUs are chosen.

It is kept as it is told, with its faults: it may end with one GPU too many, mixes pieces that have nothing to do with
each other, and finds nothing for a GPU without a free neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from operator import itemgetter

from pyscheduler.core.baselines.common import Room, answer, lowest, no_answer, rooms
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.job import Job, Refusal, Selection
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import ACROSS_NODES_WEIGHT, weight

__all__ = ["kruskal_naive"]

# (place of the node in the total order, index there)
_Gpu = tuple[int, int]
_Edge = tuple[int, _Gpu, _Gpu]


def kruskal_naive(cluster: Cluster, job: Job, eligible: int | None = None) -> Selection | Refusal:
    """Choose GPUs by the textbook loop, on the classic costs of links; a Refusal where they are no placement of the job."""
    there = rooms(cluster, job, eligible)
    asked = job.pods * job.gpus
    chosen = _loop(_edges(cluster, there), asked)
    if len(chosen) != asked:
        return no_answer(
            f"picks {plural(len(chosen))} where {asked} {'is' if asked == 1 else 'are'} asked", len(chosen) // job.gpus
        )
    by_node: dict[int, int] = {}
    for node, gpu in chosen:
        by_node[node] = by_node.get(node, 0) | 1 << gpu
    parts = ", ".join(f"{mask.bit_count()} on {cluster.table.names[there[node].node]}" for node, mask in by_node.items())
    if any(mask.bit_count() % job.gpus for mask in by_node.values()):
        return no_answer(f"picks GPUs that make no {job.pods} pods of {job.gpus}: {parts}")
    if job.one_pod_per_node and len(by_node) < job.pods:
        return no_answer(f"puts several pods on one node: {parts}")
    return answer(cluster, job, [(there[node].node, mask) for node, left in by_node.items() for mask in _parted(left, job.gpus)])


def _loop(edges: Iterable[_Edge], asked: int) -> list[_Gpu]:
    parent: dict[_Gpu, _Gpu] = {}
    chosen: dict[_Gpu, None] = {}
    for _, one, other in edges:
        if len(chosen) >= asked:
            break
        top, other_top = _top(parent, one), _top(parent, other)
        if top != other_top:
            parent[top] = other_top
            chosen[one] = chosen[other] = None
    return list(chosen)


def _top(parent: dict[_Gpu, _Gpu], gpu: _Gpu) -> _Gpu:
    while parent.setdefault(gpu, gpu) != gpu:
        parent[gpu] = parent[parent[gpu]]
        gpu = parent[gpu]
    return gpu


def _edges(cluster: Cluster, there: list[Room]) -> Iterator[_Edge]:
    """Yield the edges between free GPUs, the cheapest first. Those across nodes, all alike and many, are made as they are needed."""
    inside: list[_Edge] = []
    costs: dict[DeviceTable, list[tuple[int, int, int]]] = {}
    for at, room in enumerate(there):
        machine = cluster.state(room.node).facts.machine
        if machine is None or not room.mask:
            continue
        if machine.table not in costs:
            costs[machine.table] = _costs(machine.table)
        inside += [(cost, (at, a), (at, b)) for cost, a, b in costs[machine.table] if room.mask >> a & room.mask >> b & 1]
    yield from sorted(inside, key=itemgetter(0))
    gpus = [(at, gpu) for at, room in enumerate(there) for gpu in range(room.mask.bit_length()) if room.mask >> gpu & 1]
    yield from ((ACROSS_NODES_WEIGHT, one, other) for one, other in combinations(gpus, 2) if one[0] != other[0])


def _costs(table: DeviceTable) -> list[tuple[int, int, int]]:
    matrix = table.device_class.matrix
    return [(weight(matrix[a][b]), a, b) for a, b in combinations(range(table.device_class.gpus), 2)]


def _parted(mask: int, gpus: int) -> Iterator[int]:
    while mask:
        pod = lowest(mask, gpus)
        mask &= ~pod
        yield pod

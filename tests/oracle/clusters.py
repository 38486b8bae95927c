"""The hosts of the oracle as a cluster of the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.job import Job, Selection
from pyscheduler.core.machine.device_table import DeviceClass, DeviceTable
from pyscheduler.core.model import Machine, NodeFacts, PodUid
from tests.oracle.boards import Board, Gpus
from tests.oracle.fabric import Host
from tests.oracle.placement import Wanted

__all__ = ["cluster_of", "facts_of", "job_of", "mask_of", "members", "pods_of", "table_of"]

GPU = "nvidia.com/gpu"


@lru_cache(maxsize=1 << 10)
def table_of(board: Board) -> DeviceTable:
    pairs = combinations(board.gpus, 2)
    return DeviceTable.build(DeviceClass.of(board.models, board.numa, dict(zip(pairs, board.links, strict=True))))


def facts_of(host: Host) -> NodeFacts:
    """Return the node; what is not free is in use by some pod."""
    count = len(host.board.numa)
    handles = tuple(f"{host.name}-{gpu}" for gpu in range(count))
    machine = Machine(tuple(f"GPU{gpu}" for gpu in range(count)), handles, (1 << count) - 1, table_of(host.board))
    busy = tuple(handles[gpu] for gpu in range(count) if gpu not in host.free)
    return NodeFacts(
        host.name, Place(host.path, host.nvlink), GPU, count, machine, {PodUid(f"user-{host.name}"): busy} if busy else {}
    )


def cluster_of(hosts: Sequence[Host]) -> Cluster:
    cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
    for host in hosts:
        cluster.observe_node(facts_of(host), 0.0)
    return cluster


def job_of(wanted: Wanted, **more: object) -> Job:
    fields: Mapping[str, object] = {
        "one_pod_per_node": wanted.one_pod_per_node,
        "required_level": wanted.required,
        "same_model": wanted.same_model,
        **more,
    }
    return Job(wanted.pods, wanted.gpus, **fields)  # type: ignore[arg-type]


def members(mask: int) -> Gpus:
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)


def mask_of(gpus: Gpus) -> int:
    return sum(1 << gpu for gpu in gpus)


def pods_of(selection: Selection) -> list[tuple[int, Gpus]]:
    return [(pod.node, members(pod.mask)) for pod in selection.pods]

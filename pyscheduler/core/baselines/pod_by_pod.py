"""Whole pods, one after the other, each to the node that comes first by a score: as schedulers do that know no links."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numpy.random import PCG64, Generator

from pyscheduler.core.baselines.common import Room, answer, lowest, no_answer, rooms
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.job import Job, Refusal, Selection

__all__ = ["at_random", "first_fit", "least_allocated", "most_allocated"]

# Which of these nodes, all with room for the pod, gets it.
_Pick = Callable[[Sequence[Room]], Room]
_Devices = Callable[[int, int], int]


def first_fit(cluster: Cluster, job: Job, eligible: int | None = None) -> Selection | Refusal:
    """Place each pod on the first node with room, on its lowest free GPUs."""
    return _each(cluster, job, eligible, lambda fitting: fitting[0])


def least_allocated(cluster: Cluster, job: Job, eligible: int | None = None) -> Selection | Refusal:
    """Place each pod as kube-scheduler's NodeResourcesFit does with LeastAllocated, for the GPU resource alone."""
    return _each(cluster, job, eligible, lambda fitting: max(fitting, key=lambda room: _share(room.free - job.gpus, room)))


def most_allocated(cluster: Cluster, job: Job, eligible: int | None = None) -> Selection | Refusal:
    """Place each pod as kube-scheduler's NodeResourcesFit does with MostAllocated, for the GPU resource alone."""
    return _each(
        cluster,
        job,
        eligible,
        lambda fitting: max(fitting, key=lambda room: _share(room.allocatable - room.free + job.gpus, room)),
    )


def at_random(cluster: Cluster, job: Job, eligible: int | None = None, *, seed: int = 0) -> Selection | Refusal:
    """Place each pod on any node with room, on any of its free GPUs. The same state and seed give the same answer."""
    draw = Generator(PCG64([seed, cluster.generation]))

    def any_gpus(mask: int, gpus: int) -> int:
        free = [at for at in range(mask.bit_length()) if mask >> at & 1]
        return sum(1 << free[at] for at in draw.permutation(len(free))[:gpus].tolist())

    return _each(cluster, job, eligible, lambda fitting: fitting[int(draw.integers(len(fitting)))], any_gpus)


def _share(gpus: int, room: Room) -> int:
    """Return which share of the node's GPUs these are, of 100, rounded as kube-scheduler does: down."""
    return gpus * 100 // room.allocatable


def _each(cluster: Cluster, job: Job, eligible: int | None, pick: _Pick, devices: _Devices = lowest) -> Selection | Refusal:
    there = rooms(cluster, job, eligible)
    pods: list[tuple[int, int]] = []
    for _ in range(job.pods):
        fitting = [room for room in there if room.free >= job.gpus]
        if not fitting:
            return no_answer(f"finds a node with {plural(job.gpus)} free for {len(pods)} of {job.pods} pods", len(pods))
        room = pick(fitting)
        mask = devices(room.mask, job.gpus)
        room.take(mask, job.gpus)
        pods.append((room.node, mask))
        if job.one_pod_per_node:
            there.remove(room)
    return answer(cluster, job, pods)

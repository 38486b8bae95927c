"""Why a job cannot be placed: what there is, which constraint binds, and the smallest change that would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from pyscheduler.core import bitmap, freeing, left_out, repair, search_limits
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.fleet import Fleet
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.fabric.slots import Slots
from pyscheduler.core.job import Capacity, Job, Refusal
from pyscheduler.core.request import Shape

__all__ = ["refusal"]

_NAMES = {
    "max-link": "no limit on links",
    "near-nic": "no wish for a NIC",
    "same-numa": "any NUMA nodes",
    "same-model": "GPUs of several models",
    "one-pod-per-node": "several pods per node",
    "capacity": left_out.REMEDY,
}


def refusal(cluster: Cluster, job: Job, eligible: int | None, shapes: Sequence[Shape], fits: Callable[[Job], bool]) -> Refusal:
    """Return why the job does not fit.

    Parameters
    ----------
    cluster, job, eligible
        As `selector.select`.
    shapes
        The shapes that the pods could have, one for each model that they must all be of.
    fits
        Tells whether another job would fit.

    """
    name = next((constraint for constraint, other in _relaxed(job) if fits(other)), "gpus")
    among = cluster.present if eligible is None else eligible & cluster.present
    parted = search_limits.parted(cluster, job, among, shapes) if name == "gpus" else []
    freed = freeing.advice(cluster, job, eligible, shapes) if name == "gpus" else None
    mended = repair.fewest(cluster, job, eligible, shapes) if freed and not freed.enough else None
    spared = _once_freed(cluster, job, eligible, shapes) if freed and not freed.enough and not mended else ""
    there, count = _there(cluster, job, eligible, shapes)
    reason = f"needs {_asked(job)}; {there}"
    if job.pods == 1:
        reason += _sick(cluster, job, among, list(mended.masks) if mended else cluster.unhealthy())
    if parted:
        name = "partitions"
        sizes = _listed(search_limits.sizes(parted[:1]), "and")
        reason += f"; {parted[0].facts.name}: this machine gives out sets of {sizes}"
    if search_limits.unproven(cluster, job, among, shapes):
        reason += " (not proven: machines of more than 16 GPUs are searched, not judged)"
    if name == "capacity" or spared:
        reason += f"; {left_out.text(cluster, job.resource, among)}"
        return Refusal(reason, count, _level(job), "capacity", spared or f"{left_out.REMEDY} takes them")
    if mended:
        return Refusal(reason, count, _level(job), "health", repair.text(cluster, job, mended))
    change = freed.text if freed else _without(cluster, job, name, fits)
    return Refusal(reason, count, _level(job), name, _other_size(job, search_limits.sizes(parted), fits) or change)


def _relaxed(job: Job) -> Iterator[tuple[str, Job]]:
    """Yield the job without one of its constraints, each by its name: what it would take to fit as things are."""
    limits = job.limits
    if not limits.takes_all:
        yield "capacity", job.with_capacity(Capacity.IGNORE)
    if limits.max_link is not None:
        yield "max-link", replace(job, limits=replace(limits, max_link=None))
    if limits.near_nic is not None:
        yield "near-nic", replace(job, limits=replace(limits, near_nic=None))
    if limits.same_numa:
        yield "same-numa", replace(job, limits=replace(limits, same_numa=False))
    if job.same_model or limits.model is not None:
        yield "same-model", replace(job, same_model=False, limits=replace(limits, model=None))
    if job.one_pod_per_node:
        yield "one-pod-per-node", replace(job, one_pod_per_node=False)
    if job.required_level:
        yield "level", replace(job, required_level=None)


def _once_freed(cluster: Cluster, job: Job, eligible: int | None, shapes: Sequence[Shape]) -> str:
    """Return what would have to be freed if no card were left out for its capacity; empty if even that is not enough."""
    among = cluster.present if eligible is None else eligible
    if job.limits.takes_all or not any(True for _ in cluster.left_out(among)):
        return ""
    freed = freeing.advice(cluster, job.with_capacity(Capacity.IGNORE), eligible, [left_out.any_card(shape) for shape in shapes])
    return f"with {left_out.REMEDY} {freed.text}" if freed.enough else ""


def _other_size(job: Job, sizes: Sequence[int], fits: Callable[[Job], bool]) -> str | None:
    """Return which of the sizes that partitions have would fit, None if there is nothing to tell."""
    able = [] if job.gpus in sizes else [size for size in sizes if fits(replace(job, gpus=size))]
    if not able:
        return None
    per_pod = " per pod" if job.pods > 1 else ""
    return (
        f"it would fit with {_listed(able, 'or')} {'GPU' if able == [1] else 'GPUs'}{per_pod}: ask for a size that is given out"
    )


def _listed(numbers: Sequence[int], last: str) -> str:
    *others, final = map(str, numbers)
    return f"{', '.join(others)} {last} {final}" if others else final


def _level(job: Job) -> str | None:
    return job.required_level or (NODE_LEVEL if job.pods == 1 else None)


def _asked(job: Job) -> str:
    gpus = plural(job.gpus)
    limits = job.limits
    words = [f"{job.pods} pods of {gpus}" if job.pods > 1 else f"{gpus} on one node"]
    words += [f"no link worse than {limits.max_link}"] if limits.max_link else []
    words += [f"near NIC {limits.near_nic}"] if limits.near_nic else []
    words += ["on one NUMA node"] if limits.same_numa else []
    words += ["of one model"] if job.same_model else []
    words += ["one pod per node"] if job.one_pod_per_node else []
    words += [f"within one {job.required_level}"] if job.required_level and job.required_level != NODE_LEVEL else []
    words += ["all on one node"] if job.required_level == NODE_LEVEL and job.pods > 1 else []
    return ", ".join(words)


def _there(cluster: Cluster, job: Job, eligible: int | None, shapes: Sequence[Shape]) -> tuple[str, int]:
    """Return what there is, and how many pods, or GPUs of the one pod, would fit."""
    among = cluster.present if eligible is None else eligible & cluster.present
    _, freest, free = cluster.holes(job.resource, among, job.limits)
    if job.pods == 1:
        hole = f"the largest free hole is {freest.gpus} ({freest.node})" if freest.node else "no node has such GPUs"
        fits = min(freest.gpus, job.gpus)
        while fits > 0 and not _fits_some(cluster, _of_size(job, shapes, fits), among):
            fits -= 1
        satisfy = "satisfy the limits" if job.same_model or not job.limits.admit_any_set else "are given out together"
        limited = f", of which {fits} {satisfy}" if fits < min(freest.gpus, job.gpus) else ""
        return f"{hole}{limited}, {plural(free)} {'is' if free == 1 else 'are'} free in all", fits
    if job.required_level not in {None, NODE_LEVEL, *cluster.fleet.tree().levels}:
        return f"no domain of that level is known, {plural(free)} are free in all", 0
    most = max(_most(cluster.fleet, job, cluster.fleet.slots(shape, eligible)) for shape in shapes)
    if not most:
        return f"no node has room for one of them, {plural(free)} are free in all", 0
    if job.required_level == NODE_LEVEL:
        return f"the best node has room for {most}, {plural(free)} are free in all", most
    where = (
        f"the best {job.required_level} has room for {most}"
        if job.required_level
        else f"{most} of them {'fits' if most == 1 else 'fit'}"
    )
    return f"{where}, {plural(free)} are free in all; the largest free hole is {freest.gpus} ({freest.node})", most


def _most(fleet: Fleet, job: Job, slots: Slots) -> int:
    """Return how many of the pods have room, at most, in one domain of the required level."""
    if not slots.grades:
        return 0
    room = np.minimum(slots.of_node[-1], 1) if job.one_pod_per_node else slots.of_node[-1]
    numbers = freeing.domains(fleet.tree(), np.arange(len(room)), job.required_level)
    return int(np.bincount(numbers, room).max(initial=0))


def _of_size(job: Job, shapes: Sequence[Shape], gpus: int) -> list[Shape]:
    """Return the shapes of one pod with so many GPUs. One GPU is of one model whatever it is."""
    return [Shape(job.resource, 1, job.limits)] if gpus == 1 else [replace(shape, gpus=gpus) for shape in shapes]


def _fits_some(cluster: Cluster, shapes: Sequence[Shape], among: int) -> bool:
    fleet = cluster.fleet
    kinds = np.unique(fleet.kinds()[fleet.tree().position[bitmap.indices(among)]])
    return any(fleet.example(kind).supply(shape) for kind in kinds.tolist() for shape in shapes)


def _sick(cluster: Cluster, job: Job, among: int, nodes: Sequence[int]) -> str:
    """Return which GPUs are unhealthy on the first of the nodes where these would make the difference."""
    for node in nodes:
        facts = cluster.state(node).facts
        machine = facts.machine
        if machine is None or not among >> node & 1 or facts.resource != job.resource:
            continue
        if not machine.healthy.bit_count() < job.gpus <= len(machine.ids):
            continue
        sick = [machine.ids[gpu] for gpu in range(len(machine.ids)) if not machine.healthy >> gpu & 1]
        return f"; on {facts.name} {' and '.join(sick[:3])} {'is' if len(sick) == 1 else 'are'} unhealthy"
    return ""


def _without(cluster: Cluster, job: Job, binds: str, fits: Callable[[Job], bool]) -> str:
    """Return what to do about the one constraint without which the job fits."""
    if binds != "level":
        return f"it would fit with {_NAMES[binds]}"
    tree = cluster.fleet.tree()
    names = (NODE_LEVEL, *(level for level in tree.levels if level))
    if job.required_level not in names:
        return f"no node is known to be in a domain of level {job.required_level}; known levels: {', '.join(names)}"
    wider = names[names.index(job.required_level) + 1 :]
    enough = next((level for level in wider if fits(replace(job, required_level=level))), None)
    return f"it would fit within one {enough}" if enough else "it would fit without a required level"

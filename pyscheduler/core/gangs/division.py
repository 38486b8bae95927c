"""Where a job goes whose pods are divided: subgroups that stay within one domain each, blocks that go apart.

It is decided here how many pods each domain gets; which nodes and GPUs they get there decides `core.selector`, domain by
domain. In this order: the nearest level that holds the whole job, or the preferred one first; the links of the worst pod's
set; fewest domains, the tightest of them, the first. Where the job is to be spread the most even counts come before links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pyscheduler.core.answer import selection
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.merge_tree import MergeTree
from pyscheduler.core.gangs.levels import at_positions, level_names, numbers
from pyscheduler.core.gangs.packing import pack, spread
from pyscheduler.core.job import Capacity, Job, Refusal, Selection
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import Ints, fits, select

__all__ = ["Among", "Division", "can_place", "outer_levels", "place"]

Longs = npt.NDArray[np.int64]
# Orders what was found; smaller is better.
Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """How a job is divided.

    Attributes
    ----------
    sizes
        Pods of each block, in the order of their ranks.
    within
        The level one domain of which holds each block; None: the whole cluster.
    alone
        No two blocks in one such domain.
    over
        The level over whose domains the blocks are spread evenly; None: they are kept together.
    """

    sizes: tuple[int, ...]
    within: str | None
    alone: bool = False
    over: str | None = None

    def first(self, blocks: int) -> Division:
        """Return that of so many blocks, the first ones."""
        return replace(self, sizes=self.sizes[:blocks])


@dataclass(frozen=True, slots=True, eq=False)
class Among:
    """Where a job may go: `eligible` and `room` as in `core.selector.select`."""

    eligible: int
    room: Ints | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """The domains that hold blocks, in the order of the tree; `outer` and `over`: the wider ones that each is in, shape (parts,)."""

    of_position: Longs
    outer: Longs
    over: Longs


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A place of the job: the part of each block; without parts all blocks are in one domain of the job's required level."""

    key: Key
    job: Job
    parts: _Parts | None = None
    blocks: tuple[int, ...] = ()


def place(cluster: Cluster, job: Job, division: Division, among: Among) -> Selection | Refusal:
    """Return where the job goes, its pods in the order of the blocks; or why it cannot be placed now."""
    names = level_names(cluster.fleet.tree())
    for level in (job.required_level, division.within, division.over):
        if level not in names:
            # It says which levels are known.
            return select(cluster, replace(job, required_level=level), among.eligible, among.room)
    if job.limits.capacity is Capacity.PREFER:
        # Without the cards that are left out, where that is possible.
        strict = job.with_capacity(Capacity.REQUIRE)
        job = strict if _search(cluster, strict, division, among) else job.with_capacity(Capacity.IGNORE)
    found = _search(cluster, job, division, among)
    if found is not None:
        return _filled(cluster, division, found, among)
    whole = select(cluster, job, among.eligible, among.room)
    return whole if isinstance(whole, Refusal) else _refusal(cluster, job, division, among)


def can_place(cluster: Cluster, job: Job, division: Division, among: Among) -> bool:
    """Tell whether the job could be placed now."""
    names = level_names(cluster.fleet.tree())
    known = all(level in names for level in (job.required_level, division.within, division.over))
    return known and _search(cluster, job, division, among) is not None


def outer_levels(names: list[str | None], job: Job, division: Division | None) -> list[int]:
    """Return the levels in which the whole job is looked for, in order."""
    last = names.index(job.required_level)
    first = names.index(job.preferred_level) if job.preferred_level in names and job.preferred_level else 0
    if division is not None and division.over is not None:
        return list(dict.fromkeys((min(first or last, last), last)))
    return [*range(first, last + 1), *range(min(first, last + 1) - 1, -1, -1)]


# -- the search ---------------------------------------------------------------------------------------------------------


def _search(cluster: Cluster, job: Job, division: Division, among: Among) -> _Found | None:
    shapes = list(_shapes(cluster, job))
    found = [each for shape in shapes if (each := _of_shape(cluster, job, shape, division, among))]
    if not found and not job.same_model and len(shapes) > 1:
        mixed = Shape(job.resource, job.gpus, job.limits)
        found = [each for each in [_of_shape(cluster, job, mixed, division, among)] if each]
    return min(found, key=lambda each: each.key, default=None)


def _shapes(cluster: Cluster, job: Job) -> Iterator[Shape]:
    """Yield the shape for each model that all of the job's GPUs could be of."""
    models = cluster.models(job.resource)
    if job.limits.model is not None or len(models) <= 1:
        yield Shape(job.resource, job.gpus, job.limits)
    else:
        yield from (Shape(job.resource, job.gpus, replace(job.limits, model=model)) for model in models)


def _of_shape(cluster: Cluster, job: Job, shape: Shape, division: Division, among: Among) -> _Found | None:
    """Return the best place on GPUs of the shape's model."""
    job = replace(job, limits=shape.limits)
    names = level_names(cluster.fleet.tree())
    inner, widest = names.index(division.within), names.index(job.required_level)
    found, in_one = None, False
    for order, outer in enumerate(outer_levels(names, job, division)):
        if outer > inner or division.over is not None:
            found = _divided(cluster, job, shape, division, names[outer], among)
        elif not in_one and not division.alone:
            # All blocks in one domain: there the whole job goes as it likes.
            in_one = True
            found = _undivided(cluster, replace(job, required_level=names[min(inner, widest)]), among)
        if found is not None:
            return replace(found, key=(order, *found.key))
    return None


def _undivided(cluster: Cluster, job: Job, among: Among) -> _Found | None:
    if not fits(cluster, job, among.eligible, among.room):
        return None
    found = select(cluster, job, among.eligible, among.room)
    return _Found((-round(1000 * found.ring_gbps),), job) if isinstance(found, Selection) else None


def _divided(cluster: Cluster, job: Job, shape: Shape, division: Division, outer: str | None, among: Among) -> _Found | None:
    """Return the best place within one domain of the outer level."""
    slots = cluster.fleet.slots(shape, among.eligible, among.room)
    parts = _parts(cluster.fleet.tree(), division, outer)
    counts = [_counts(parts, of_grade, job) for of_grade in slots.of_node]
    loosest = _best(parts, job, division, counts[-1], counts[-1]) if counts else None
    if loosest is None:
        return None
    # Better links at the price of less even counts are not what was asked for.
    even = loosest.key[: len(loosest.key) - 2] if division.over is not None else ()
    for grade, of_grade in zip(slots.grades, counts, strict=True):
        found = _best(parts, job, division, of_grade, counts[-1])
        if found is not None and found.key[: len(even)] == even:
            return replace(found, key=(*even, -grade, *found.key[len(even) :]))
    return None


def _best(parts: _Parts, job: Job, division: Division, counts: Longs, slots: Longs) -> _Found | None:
    """Return the best outer domain, with the part of each block. `counts`: pods by part; `slots`: those on sets of any quality."""
    found = []
    for domain in np.flatnonzero(np.bincount(parts.outer, counts) >= job.pods).tolist():
        inside = np.flatnonzero((parts.outer == domain) & (counts >= min(division.sizes)))
        blocks = _dealt(parts, division, counts[inside], inside)
        if blocks is not None:
            used = list(set(blocks))
            key = (*_evenness(parts, division, blocks), int(slots[used].sum()), min(used))
            found.append(_Found(key, job, parts, tuple(blocks)))
    return min(found, key=lambda each: each.key, default=None)


def _dealt(parts: _Parts, division: Division, room: Longs, inside: Longs) -> list[int] | None:
    """Return the part of each block among those inside, None if they do not fit."""
    if division.over is None:
        found = pack(division.sizes, room, alone=division.alone)
    else:
        over = np.unique(parts.over[inside], return_inverse=True)[1].astype(np.int64)
        found = spread(division.sizes, room, over, alone=division.alone)
    return None if found is None else inside[found].tolist()


def _evenness(parts: _Parts, division: Division, blocks: list[int]) -> Key:
    """Return how many parts are used; of blocks that are spread, how many the fullest domain has, then their number negated."""
    if division.over is None:
        return (len(set(blocks)),)
    counts = Counter(parts.over[blocks].tolist())
    return max(counts.values()), -len(counts)


def _filled(cluster: Cluster, division: Division, found: _Found, among: Among) -> Selection | Refusal:
    """Return the pods in the order of the blocks, those of each part placed as one job."""
    if found.parts is None:
        return select(cluster, found.job, among.eligible, among.room)
    pods = Counter[int]()
    for part, size in zip(found.blocks, division.sizes, strict=True):
        pods[part] += size
    given = {}
    for part, count in pods.items():
        inside = among.eligible & at_positions(cluster.fleet.tree(), found.parts.of_position == part)
        job = replace(found.job, pods=count, required_level=None, preferred_level=None)
        here = select(cluster, job, inside, among.room)
        if isinstance(here, Refusal):
            return here
        given[part] = iter(here.pods)
    sets = [next(given[part]) for part, size in zip(found.blocks, division.sizes, strict=True) for _ in range(size)]
    return selection(cluster, found.job, sets)


# -- why not ------------------------------------------------------------------------------------------------------------


def _refusal(cluster: Cluster, job: Job, division: Division, among: Among) -> Refusal:
    """Return why a job that would fit as a whole does not fit divided."""
    total, largest = len(division.sizes), max(division.sizes)
    of = f"{largest} pods" if largest == min(division.sizes) else f"up to {largest} pods"
    each = f"each within one {division.within}{' of its own' if division.alone else ''}"
    where = f" in one {job.required_level}" if job.required_level else ""
    most = _most(cluster, job, division, among)
    text = f"needs {plural(total, 'subgroup')} of {of} of {plural(job.gpus)}, {each}; at most {most} of {total} fit{where}"
    return Refusal(text, 0, division.within, "subgroups", _change(cluster, job, division, among))


def _most(cluster: Cluster, job: Job, division: Division, among: Among) -> int:
    """Return how many blocks fit, each counted as the largest."""
    parts = _parts(cluster.fleet.tree(), division, job.required_level)
    slots = cluster.fleet.slots(Shape(job.resource, job.gpus, job.limits), among.eligible, among.room)
    blocks = _counts(parts, slots.of_node[-1], job) // max(division.sizes)
    return int(np.bincount(parts.outer, np.minimum(blocks, 1) if division.alone else blocks).max(initial=0))


def _change(cluster: Cluster, job: Job, division: Division, among: Among) -> str:
    """Return the nearest level of subgroups that would do."""
    names = level_names(cluster.fleet.tree())
    for wider in names[names.index(division.within) + 1 : names.index(job.required_level) + 1]:
        if _search(cluster, job, replace(division, within=wider), among) is not None:
            return f"it would fit with each within one {wider}" if wider else "it would fit if they were not kept together"
    return "it would fit if they were smaller, or if GPUs were freed that are nearer to each other"


# -- domains and what they hold -----------------------------------------------------------------------------------------


def _parts(tree: MergeTree, division: Division, outer: str | None) -> _Parts:
    """Return the domains of the inner level, cut where one reaches into two outer ones."""
    levels = np.stack([numbers(tree, level) for level in (outer, division.over, division.within)])
    labels, first, back = np.unique(levels, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return _Parts(number[back.reshape(-1)], labels[0][order], labels[1][order])


def _counts(parts: _Parts, of_node: npt.NDArray[np.int32], job: Job) -> Longs:
    """Return how many pods fit in each part."""
    each = np.minimum(of_node, 1) if job.one_pod_per_node else of_node
    return np.bincount(parts.of_position, each, len(parts.outer)).astype(np.int64)

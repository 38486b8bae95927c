"""Where the members of a group go: all of them at once, or late ones near the others.

Members with equal requests are placed together, as one job; of several kinds of members those with the most GPUs first, then
the others in the nearest domain round them that has room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pyscheduler.core import bitmap
from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.job import Job, PodSet, Refusal, Selection
from pyscheduler.core.model import Verdict
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import Ints, fits, select
from pyscheduler.core.settings import shape_of_pod

__all__ = ["Kind", "Offer", "Seating", "by_kind"]

# How a level is named by its number: "#1" is the nearest one that is wider than a node.
_NUMBERED: Final = "#"
# What the framework says of a node that has room for so many pods or more.
_ANY_NUMBER: Final = 255


@dataclass(frozen=True, slots=True)
class Kind:
    """Members with equal requests, in the order of their ranks."""

    shape: Shape
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What the framework says of nodes: `eligible` is a bitmap; `room` is for pods of this shape alone, by node, see `select`."""

    eligible: int
    shape: Shape | None = None
    room: Ints | None = None

    @classmethod
    def of(cls, eligible: Eligible, allowed: int, shape: Shape, room: bytes) -> Offer:
        """Return the offer for pods of this shape, on allowed nodes alone; `room` has one byte by eligible node, or is empty."""
        if not room:
            return cls(eligible.nodes & allowed)
        nodes = bitmap.indices(eligible.nodes)[: len(room)]
        by_node = np.zeros(max(eligible.known, eligible.nodes.bit_length()), np.int32)
        counts = np.frombuffer(room, np.uint8)[: len(nodes)].astype(np.int32)
        by_node[nodes] = np.where(counts == _ANY_NUMBER, np.iinfo(np.int32).max, counts)
        return cls(eligible.nodes & allowed, shape, by_node)

    def room_for(self, shape: Shape) -> Ints | None:
        """Return the room for pods of a shape, None if nothing is known of it."""
        return self.room if shape == self.shape else None


def by_kind(members: Sequence[Member]) -> list[Kind] | Verdict:
    """Return the kinds of these members, the one with the most GPUs first; or why one can never be placed, and with it the group."""
    kinds: dict[Shape, list[Member]] = {}
    for member in members:
        shape = shape_of_pod(member.pod)
        if isinstance(shape, Verdict):
            return Verdict(shape.code, f"member {member.pod.name} of its group cannot be placed: {shape.reason}")
        kinds.setdefault(shape, []).append(member)
    found = [Kind(shape, tuple(some)) for shape, some in kinds.items()]
    return sorted(found, key=lambda kind: (-kind.shape.gpus * len(kind.members), kind.shape.resource, kind.shape.gpus))


class Seating:
    """Chooses nodes and GPUs. It holds nothing but while it tries several kinds of members."""

    def __init__(self, cluster: Cluster, chooser: Chooser, levels: Mapping[str, str]) -> None:
        self._cluster = cluster
        # Names of levels by node label.
        self._levels = levels
        self._chooser = chooser

    def job(self, kind: Kind, pods: int, *, insists: bool) -> Job:
        """Return the job of so many members. `insists`: nowhere but within the preferred level."""
        membership = kind.members[0].membership
        preferred = self._level(membership.preferred_level)
        required = self._level(membership.required_level)
        return Job(
            pods,
            kind.shape.gpus,
            kind.shape.resource,
            kind.shape.limits,
            same_model=membership.same_model,
            one_pod_per_node=membership.one_pod_per_node,
            required_level=preferred if insists and preferred else required,
            preferred_level=preferred,
        )

    def whole(self, job: Job, least: int, offer: Offer, kind: Kind) -> Selection | Refusal:
        """Place as many of the job's pods as fit, at least so many. The refusal is that of the least."""
        room = offer.room_for(kind.shape)
        eligible = with_room(offer.eligible, room)
        if least < job.pods and not fits(self._cluster, job, eligible, room):
            job = replace(job, pods=self._most(job, least, eligible, room))
        return select(self._cluster, job, eligible, room)

    def near(self, job: Job, offer: Offer, kind: Kind, anchors: Sequence[int]) -> Selection | Refusal:
        """Place pods in the nearest domain round these nodes that has room."""
        room = offer.room_for(kind.shape)
        eligible = with_room(offer.eligible, room)
        tree = self._cluster.fleet.tree()
        # Where the level is required, no wider domain will do.
        widest = tree.levels.index(job.required_level) if job.required_level in tree.levels else len(tree.levels)
        near = replace(job, required_level=None, preferred_level=None)
        tried = 0
        for domain, tier in self._round(anchors):
            if tier > widest or (job.required_level == NODE_LEVEL and tier >= 0):
                break
            among = eligible & domain
            if among != tried and among and fits(self._cluster, near, among, room):
                return select(self._cluster, near, among, room)
            tried = among
        return select(self._cluster, job, eligible, room)

    def seated(self, sets: Sequence[PodSet], gpus: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield node and GPUs of each set; what is yielded has to be held before the next is asked for."""
        for each in sets:
            yield each.node, self._chooser.handles(each.node, each.mask, gpus)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _level(self, name: str | None) -> str | None:
        if name is None or not name.startswith(_NUMBERED):
            return self._levels.get(name, name) if name is not None else None
        names = (NODE_LEVEL, *self._cluster.fleet.tree().levels)
        number = int(name[1:])
        # Beyond the widest level there is no limit.
        return (names[number] or None) if number < len(names) else None

    def _most(self, job: Job, least: int, eligible: int, room: Ints | None) -> int:
        """Return how many pods fit at most, but not less than the least."""
        low, high = least, job.pods
        while low + 1 < high:
            middle = (low + high) // 2
            if fits(self._cluster, replace(job, pods=middle), eligible, room):
                low = middle
            else:
                high = middle
        return low

    def _round(self, anchors: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the domains round these nodes, nearest first, as bitmaps with their tiers; the nodes themselves have tier -1."""
        tree = self._cluster.fleet.tree()
        yield sum({1 << node for node in anchors}), -1
        for anchor in anchors[:1]:
            for vertex in tree.above(anchor):
                flags = np.zeros(len(tree.order), np.bool_)
                flags[tree.order[tree.low[vertex] : tree.high[vertex]]] = True
                yield bitmap.from_bytes(np.packbits(flags, bitorder="little").tobytes()), int(tree.tier[vertex])


def with_room(eligible: int, room: Ints | None) -> int:
    """Return the eligible nodes that have room for one pod at least."""
    if room is None:
        return eligible
    return eligible & bitmap.from_bytes(np.packbits(room > 0, bitorder="little").tobytes())

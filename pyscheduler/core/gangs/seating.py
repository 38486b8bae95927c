"""Where the members of a group go: all of them at once, or late ones near the others.

Members with equal requests are placed together, as one job; how several kinds of members are, is in `core.gangs.mixed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, chain
from operator import and_
from typing import Final

import numpy as np

from pyscheduler.core import bitmap
from pyscheduler.core.chooser import Chooser
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.division import Among, Division, can_place, place
from pyscheduler.core.gangs.levels import emptiest, level_names, nodes_within
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.gangs.subgroups import asked, blocks
from pyscheduler.core.job import Job, PodSet, Refusal, Selection
from pyscheduler.core.model import Code, PodUid, Verdict
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import Ints, fits, select
from pyscheduler.core.settings import shape_of_pod

__all__ = ["Kind", "Offer", "Seating", "blocks_of", "by_kind", "merged", "with_room"]

# How a level is named by its number: "#1" is the nearest one that is wider than a node.
_NUMBERED: Final = "#"
_ONE_KIND: Final = (
    "has subgroups among members with different requests for GPUs: let all members of subgroups ask for the same, "
    "more GPUs in all than the others"
)
# What the framework says of a node that has room for so many pods or more.
_ANY_NUMBER: Final = 255


@dataclass(frozen=True, slots=True)
class Kind:
    """Members with equal requests, in the order of their ranks.

    `eligible`: the nodes that the framework admits for them, a bitmap; None: the same for all members of the group.
    """

    shape: Shape
    members: tuple[Member, ...]
    eligible: int | None = None

    def grouped(self, ranks: Mapping[PodUid, int]) -> tuple[Kind, tuple[int, ...]]:
        """Return it with the members of each subgroup next to each other, and how many each has."""
        found = blocks(self.members, ranks)
        return replace(self, members=tuple(chain.from_iterable(found))), tuple(len(block) for block in found)


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What the framework says of nodes.

    Attributes
    ----------
    eligible
        Those that the member that asks may have, as a bitmap.
    shape, room
        How many pods of this shape alone they have room for, by node, see `select`.
    allowed
        Those that any member may have, if the framework admits it there; a bitmap without end.
    """

    eligible: int
    shape: Shape | None = None
    room: Ints | None = None
    allowed: int = -1

    @classmethod
    def of(cls, eligible: Eligible, allowed: int, shape: Shape, room: bytes) -> Offer:
        """Return the offer for pods of this shape, on allowed nodes alone; `room` has one byte by eligible node, or is empty."""
        if not room:
            return cls(eligible.nodes & allowed, allowed=allowed)
        nodes = bitmap.indices(eligible.nodes)[: len(room)]
        by_node = np.zeros(max(eligible.known, eligible.nodes.bit_length()), np.int32)
        counts = np.frombuffer(room, np.uint8)[: len(nodes)].astype(np.int32)
        by_node[nodes] = np.where(counts == _ANY_NUMBER, np.iinfo(np.int32).max, counts)
        return cls(eligible.nodes & allowed, shape, by_node, allowed)

    def changed(self, *, opened: int = 0, closed: int = 0) -> Offer:
        """Return it with other nodes opened to the group, or closed to it."""
        return replace(self, eligible=(self.eligible | opened) & ~closed, allowed=(self.allowed | opened) & ~closed)

    def of_kind(self, kind: Kind) -> Offer:
        """Return the offer for members of this kind. The room is known on the asker's nodes alone."""
        if kind.eligible is None:
            return self
        mine = kind.eligible & self.allowed
        return replace(self, eligible=mine) if not mine & ~self.eligible else Offer(mine, allowed=self.allowed)

    def room_for(self, shape: Shape) -> Ints | None:
        """Return the room for pods of a shape, None if nothing is known of it."""
        return self.room if shape == self.shape else None


def by_kind(members: Sequence[Member], reach: Mapping[PodUid, int] | None = None) -> list[Kind] | Verdict:
    """Return the kinds of these members, the one with the most GPUs first; or why one can never be placed, and with it the group.

    `reach`: by member, the nodes that the framework admits, as a bitmap.
    """
    nodes = dict(reach) if reach is not None and len(set(reach.values())) > 1 else {}
    if nodes and asked(members) is not None:
        # Subgroups are placed together with what is in none: where all may go.
        nodes = dict.fromkeys(nodes, reduce(and_, nodes.values()))
    kinds: dict[tuple[Shape, int | None], list[Member]] = {}
    for member in members:
        shape = shape_of_pod(member.pod)
        if isinstance(shape, Verdict):
            return Verdict(shape.code, f"member {member.pod.name} of its group cannot be placed: {shape.reason}")
        kinds.setdefault((shape, nodes.get(member.pod.uid)), []).append(member)
    found = [Kind(shape, tuple(some), eligible) for (shape, eligible), some in kinds.items()]
    found.sort(key=lambda kind: (-kind.shape.gpus * len(kind.members), kind.shape.resource, kind.shape.gpus))
    if any(asked(kind.members) for kind in found[1:]):
        return Verdict(Code.UNRESOLVABLE, f"its group {members[0].membership.gang} {_ONE_KIND}")
    return found


def merged(kinds: Sequence[Kind]) -> list[Kind] | None:
    """Return the kinds with those of one shape as one, on the nodes that all of these may use; None if no two have one shape.

    What the scheduler said of members differs also where it asked about them at different moments.
    """
    alike: dict[Shape, list[Kind]] = {}
    for kind in kinds:
        alike.setdefault(kind.shape, []).append(kind)
    if len(alike) == len(kinds):
        return None
    found = []
    for shape, some in alike.items():
        members = sorted((member for kind in some for member in kind.members), key=lambda member: member.rank_key)
        sets = [kind.eligible for kind in some if kind.eligible is not None]
        found.append(Kind(shape, tuple(members), reduce(and_, sets) if sets else None))
    return found


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

    def division(self, kind: Kind, sizes: Sequence[int]) -> Division | None:
        """Return how these members are divided, None if they are not. `sizes`: of their subgroups, in order."""
        names = level_names(self._cluster.fleet.tree())
        subgroup, spread = asked(kind.members), kind.members[0].membership.spread_level
        within, over = self._level(subgroup.level) if subgroup else None, self._level(spread)
        if subgroup is None or within is None:
            return Division((1,) * len(kind.members), over, over=over) if over is not None else None
        if over in names and within in names and names.index(over) < names.index(within):
            # No domain of the spread's level would hold a subgroup.
            over = within
        return Division(tuple(sizes), within, subgroup.alone, over)

    def placed(
        self, job: Job, least: int, offer: Offer, kind: Kind, division: Division | None, nodes: Sequence[int] = ()
    ) -> Selection | Refusal:
        """Place members of one kind as they are divided, else round these nodes, of those that are placed already."""
        if division is not None:
            return self.divided(job, least, offer, kind, division)
        return self.near(job, offer, kind, nodes) if nodes else self.whole(job, least, offer, kind)

    def has_room(self, job: Job, offer: Offer, kind: Kind, division: Division | None) -> bool:
        """Tell whether all pods of the job have room."""
        if division is not None:
            return self.can_divide(job, job.pods, offer, kind, division)
        room = offer.room_for(kind.shape)
        return fits(self._cluster, job, with_room(offer.eligible, room), room)

    def divided(self, job: Job, least: int, offer: Offer, kind: Kind, division: Division) -> Selection | Refusal:
        """Place as many whole blocks as fit, the first ones, with at least so many pods. The refusal is that of the least."""
        low, high = blocks_of(division, least), len(division.sizes)
        if low < high and not self.can_divide(job, job.pods, offer, kind, division):
            while low + 1 < high:
                middle = (low + high) // 2
                if self.can_divide(job, sum(division.sizes[:middle]), offer, kind, division):
                    low = middle
                else:
                    high = middle
        else:
            low = high
        part = division.first(low)
        return place(self._cluster, replace(job, pods=sum(part.sizes)), part, self._among(offer, kind))

    def can_divide(self, job: Job, least: int, offer: Offer, kind: Kind, division: Division) -> bool:
        """Tell whether as many whole blocks fit as have so many pods."""
        part = division.first(blocks_of(division, least))
        return can_place(self._cluster, replace(job, pods=sum(part.sizes)), part, self._among(offer, kind))

    def whole(self, job: Job, least: int, offer: Offer, kind: Kind) -> Selection | Refusal:
        """Place as many of the job's pods as fit, at least so many. The refusal is that of the least."""
        room = offer.room_for(kind.shape)
        eligible = with_room(offer.eligible, room)
        if least < job.pods and not fits(self._cluster, job, eligible, room):
            job = replace(job, pods=self._most(job, least, eligible, room))
        return select(self._cluster, job, eligible, room)

    def near(self, job: Job, offer: Offer, kind: Kind, anchors: Sequence[int], within: str | None = None) -> Selection | Refusal:
        """Place pods in the nearest domain round these nodes that has room. `within`: all in one domain of this level."""
        room = offer.room_for(kind.shape)
        eligible = with_room(offer.eligible, room)
        if anchors and job.required_level is not None:
            eligible &= nodes_within(self._cluster.fleet.tree(), anchors[:1], job.required_level)
        near = replace(job, required_level=within, preferred_level=None)
        tried = 0
        for domain in self._round(anchors):
            among = eligible & domain
            if among != tried and among and fits(self._cluster, near, among, room):
                return select(self._cluster, near, among, room)
            tried = among
        return select(self._cluster, replace(job, required_level=within or job.required_level), eligible, room)

    def rejoining(
        self, job: Job, offer: Offer, kind: Kind, mates: Sequence[int], others: Sequence[int], waiting: int
    ) -> Selection | Refusal:
        """Place a late member in the domain of its subgroup.

        Parameters
        ----------
        job, offer, kind
            Of the member alone.
        mates, others
            Nodes of the members of its subgroup, and of all others of the group, the nearest ranks first.
        waiting
            How many others of its subgroup have no node.

        """
        subgroup = asked(kind.members)
        level = self._level(subgroup.level) if subgroup is not None else None
        if not mates:
            # The others of it come later, to where this one is.
            how = self.apart if kind.members[0].membership.spread_level is not None else self.near
            found = how(replace(job, pods=1 + waiting), offer, kind, others, level)
            return replace(found, pods=found.pods[:1]) if isinstance(found, Selection) else found
        inside = replace(offer, eligible=offer.eligible & nodes_within(self._cluster.fleet.tree(), mates[:1], level))
        found = self.near(job, inside, kind, mates)
        if isinstance(found, Refusal) and level is not None:
            return replace(found, reason=f"{found.reason}, in the {level} of the others of its subgroup")
        return found

    def apart(self, job: Job, offer: Offer, kind: Kind, others: Sequence[int], within: str | None = None) -> Selection | Refusal:
        """Place late pods in a domain that has the fewest others. `others`: the node of each; `within`: as in `near`."""
        room = offer.room_for(kind.shape)
        eligible = with_room(offer.eligible, room)
        if others and job.required_level is not None:
            eligible &= nodes_within(self._cluster.fleet.tree(), others[:1], job.required_level)
        apart = replace(job, required_level=within, preferred_level=None)
        level = self._level(kind.members[0].membership.spread_level)
        for nodes in emptiest(self._cluster.fleet.tree(), others, level):
            if fits(self._cluster, apart, eligible & nodes, room):
                return select(self._cluster, apart, eligible & nodes, room)
        return select(self._cluster, replace(job, required_level=within or job.required_level), eligible, room)

    def seated(self, sets: Sequence[PodSet], shape: Shape) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield node and GPUs of each set; what is yielded has to be held before the next is asked for."""
        for each in sets:
            yield each.node, self._chooser.handles(each.node, each.mask, shape)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _among(self, offer: Offer, kind: Kind) -> Among:
        room = offer.room_for(kind.shape)
        return Among(with_room(offer.eligible, room), room)

    def _level(self, name: str | None) -> str | None:
        if name is None or not name.startswith(_NUMBERED):
            return self._levels.get(name, name) if name is not None else None
        names = level_names(self._cluster.fleet.tree())
        number = int(name[1:])
        # Beyond the widest level there is no limit.
        return names[number] if number < len(names) else None

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

    def _round(self, anchors: Sequence[int]) -> Iterator[int]:
        """Yield the domains round these nodes, nearest first, as bitmaps; the nodes themselves come before all."""
        tree = self._cluster.fleet.tree()
        yield sum({1 << node for node in anchors})
        for anchor in anchors[:1]:
            for vertex in tree.above(anchor):
                flags = np.zeros(len(tree.order), np.bool_)
                flags[tree.order[tree.low[vertex] : tree.high[vertex]]] = True
                yield bitmap.from_bytes(np.packbits(flags, bitorder="little").tobytes())


def blocks_of(division: Division, pods: int) -> int:
    """Return how many blocks, the first ones, have so many pods."""
    return 1 + next(at for at, total in enumerate(accumulate(division.sizes)) if total >= pods)


def with_room(eligible: int, room: Ints | None) -> int:
    """Return the eligible nodes that have room for one pod at least."""
    if room is None:
        return eligible
    return eligible & bitmap.from_bytes(np.packbits(room > 0, bitorder="little").tobytes())

"""Where members of several kinds go: into one domain that holds them all, one kind after the other.

Levels come in the order that they do for members of one kind. Of the domains of a level those come first where the first
kind has the best links, then the tightest; the first domain in which all kinds find room is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.slots import Slots
from pyscheduler.core.gangs.division import Division, outer_levels
from pyscheduler.core.gangs.levels import at_positions, level_names, numbers
from pyscheduler.core.gangs.seating import Kind, Offer, Seating, blocks_of, with_room
from pyscheduler.core.job import Job, Refusal, Selection
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape

__all__ = ["Mixed", "Part"]

# Of one level, how many domains are tried that hold enough for each kind by itself and free GPUs for all.
_TRIED_MAX: Final = 64

Placed = list[tuple[Kind, Selection]]


@dataclass(frozen=True, slots=True)
class Part:
    """Members of one kind: their job, how many of its pods suffice, where they may go, and how they are divided."""

    kind: Kind
    job: Job
    fewest: int
    offer: Offer
    division: Division | None = None

    def changed(self, **fields: object) -> Part:
        """Return it with other values in its job."""
        return replace(self, job=replace(self.job, **fields))  # type: ignore[arg-type]

    def of(self, pods: int) -> Part:
        """Return it with so many pods; whole blocks of them where it is divided."""
        if self.division is None:
            return self.changed(pods=pods)
        division = self.division.first(blocks_of(self.division, pods))
        return replace(self.changed(pods=sum(division.sizes)), division=division)

    def of_model(self, model: str) -> Part:
        """Return it on GPUs of this model alone."""
        return self.changed(limits=replace(self.job.limits, model=model))

    def within(self, nodes: int) -> Part:
        """Return it on these nodes alone, a bitmap."""
        return replace(self, offer=replace(self.offer, eligible=self.offer.eligible & nodes))


class Mixed:
    """Places several kinds of members. It holds nothing but while it tries."""

    def __init__(self, cluster: Cluster, seating: Seating) -> None:
        self._cluster = cluster
        self._seating = seating

    def place(self, parts: Sequence[Part]) -> Placed | None:
        """Place all parts, of the first one as many pods as fit, at least as many as suffice; None if they do not fit."""
        low, high = parts[0].fewest, parts[0].job.pods
        found = self._all(parts)
        if found is not None or low == high:
            return found
        found = self._all([parts[0].of(low), *parts[1:]])
        while found is not None and low + 1 < high:
            middle = (low + high) // 2
            more = self._all([parts[0].of(middle), *parts[1:]])
            found, low, high = (found, low, middle) if more is None else (more, middle, high)
        return found

    def refusal(self, parts: Sequence[Part]) -> tuple[Job, Refusal, Kind]:
        """Return why they do not fit, and what does not: one kind by itself, else all of them together."""
        least = [each.of(each.fewest) for each in parts]
        pods = " and ".join(map(self._asked, least))
        for each in parts:
            alone = self._seating.placed(each.job, each.fewest, each.offer, each.kind, each.division)
            if isinstance(alone, Refusal):
                text = f"needs {pods}, and there is no room for {alone.reason.removeprefix('needs ')}"
                return replace(each.job, pods=each.fewest), replace(alone, reason=text), each.kind
        job = least[0].job
        wishes = ["of one model"] if job.same_model else []
        wishes += ["one pod per node"] if job.one_pod_per_node else []
        wishes += [f"within one {job.required_level}"] if job.required_level else []
        nodes = reduce(or_, (each.offer.eligible for each in least))
        free = self._cluster.holes(job.resource, nodes, job.limits)[2]
        what = ", ".join([pods, *wishes])
        text = f"needs {what}; there is room for each kind of them alone, not for all, {plural(free)} are free in all"
        return job, Refusal(text, 0, job.required_level, "kinds", self._change(least)), least[0].kind

    # -- inside -------------------------------------------------------------------------------------------------------

    def _asked(self, part: Part) -> str:
        """Return how many pods of how many GPUs, and how many nodes they may have, if others may have other ones."""
        nodes = (part.offer.eligible & self._cluster.present).bit_count()
        where = f" ({plural(nodes, 'eligible node')})" if part.kind.eligible is not None else ""
        return f"{plural(part.job.pods, 'pod')} of {plural(part.job.gpus)}{where}"

    def _all(self, parts: Sequence[Part]) -> Placed | None:
        """Place exactly the pods of the jobs, on GPUs of one model if that is possible."""
        models = sorted({model for part in parts for model in self._cluster.models(part.job.resource)})
        tried = [self._nearest([part.of_model(model) for part in parts]) for model in models if len(models) > 1]
        if not any(tried) and (len(models) < 2 or not parts[0].job.same_model):
            tried = [self._nearest(parts)]
        return min((each for each in tried if each), key=lambda each: each[0], default=(0, None))[1]

    def _nearest(self, parts: Sequence[Part]) -> tuple[tuple[int, float], Placed] | None:
        """Place them in the first domain that holds all; the key orders what was found for different models."""
        names = level_names(self._cluster.fleet.tree())
        first = parts[0]
        if first.job.required_level not in names:
            return None
        for order, level in enumerate(outer_levels(names, first.job, first.division)):
            for domain in islice(self._domains(parts, names[level]), _TRIED_MAX):
                found = self._inside([part.within(domain) for part in parts])
                if found is not None:
                    return (order, -min(each.ring_gbps for _, each in found)), found
        return None

    def _domains(self, parts: Sequence[Part], level: str | None) -> Iterator[int]:
        """Yield the domains of a level, as bitmaps, that have room for each part by itself and GPUs for all, in order."""
        fleet = self._cluster.fleet
        of = numbers(fleet.tree(), level)
        slots = [self._slots(part) for part in parts]
        if not len(of) or not all(each.grades for each in slots):
            return
        enough = np.ones(int(of.max()) + 1, np.bool_)
        for part, each in zip(parts, slots, strict=True):
            enough &= _pods(of, each.of_node[-1], part.job) >= part.job.pods
        if not any(part.job.limits.takes_all for part in parts):
            enough &= np.bincount(of, fleet.free()) >= sum(part.job.pods * part.job.gpus for part in parts)
        by_grade = np.array([_pods(of, of_grade, parts[0].job) for of_grade in slots[0].of_node])
        grade = (by_grade >= parts[0].job.pods).argmax(axis=0)
        order = np.lexsort((by_grade[-1], grade))
        yield from (at_positions(fleet.tree(), of == number) for number in order[enough[order]].tolist())

    def _slots(self, part: Part) -> Slots:
        job, room = part.job, part.offer.room_for(part.kind.shape)
        return self._cluster.fleet.slots(Shape(job.resource, job.gpus, job.limits), with_room(part.offer.eligible, room), room)

    def _inside(self, parts: Sequence[Part]) -> Placed | None:
        """Place all parts on the nodes of one domain."""
        found = self._in_order(parts)
        # Others may have taken the few nodes that one may have, or the only ones that are large enough.
        hardest = sorted(parts, key=lambda part: (part.offer.eligible.bit_count(), -part.job.gpus))
        return found if found is not None or hardest == list(parts) else self._in_order(hardest)

    def _in_order(self, parts: Sequence[Part]) -> Placed | None:
        """Place one part after the other, each round the nodes of those before it."""
        placed: Placed = []
        nodes: dict[int, None] = {}
        with ExitStack() as supposed:
            for part in parts:
                left = part.within(~sum(1 << node for node in nodes)) if part.job.one_pod_per_node else part
                found = self._one(left, list(nodes))
                if found is None:
                    return None
                placed.append((part.kind, found))
                nodes |= dict.fromkeys(each.node for each in found.pods)
                supposed.enter_context(self._cluster.supposing(_taken(self._cluster, found, part.job.gpus)))
        return placed

    def _one(self, part: Part, nodes: Sequence[int]) -> Selection | None:
        """Place all pods of one part. A refusal is long in the making, and nobody reads it here."""
        job, offer, kind, division = part.job, part.offer, part.kind, part.division
        if not self._seating.has_room(job, offer, kind, division):
            return None
        found = self._seating.placed(job, job.pods, offer, kind, division, nodes)
        return found if isinstance(found, Selection) else None

    def _change(self, parts: Sequence[Part]) -> str:
        """Return without which of its wishes the group would fit."""
        job, names = parts[0].job, level_names(self._cluster.fleet.tree())
        for wider in names[names.index(job.required_level) + 1 :]:
            if self._all([part.changed(required_level=wider) for part in parts]) is not None:
                return f"it would fit within one {wider}" if wider else "it would fit without a required level"
        if job.same_model and self._all([part.changed(same_model=False) for part in parts]) is not None:
            return "it would fit with GPUs of several models"
        if job.one_pod_per_node and self._all([part.changed(one_pod_per_node=False) for part in parts]) is not None:
            return "it would fit with several pods per node"
        return "it would fit if GPUs were freed, or nodes added"


def _taken(cluster: Cluster, found: Selection, gpus: int) -> dict[int, NodeState]:
    """Return the nodes as they are when pods have these sets."""
    states: dict[int, NodeState] = {}
    for each in found.pods:
        states[each.node] = states.get(each.node, cluster.state(each.node)).taking(each.mask, gpus)
    return states


def _pods(of: npt.NDArray[np.int64], of_node: npt.NDArray[np.int32], job: Job) -> npt.NDArray[np.int64]:
    """Return how many pods have room in each domain."""
    each = np.minimum(of_node, 1) if job.one_pod_per_node else of_node
    return np.bincount(of, each).astype(np.int64)

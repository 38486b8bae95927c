"""Nodes that are kept for groups: for the one that has waited longest, so that it does not starve, and for those that pods go for.

Smaller jobs may pass a group that does not fit, for `PATIENCE_S`. After that the nodes where it needs the fewest GPUs to be
freed take no new pods but its own and those of higher priority, until it is placed. One group at a time.
Where pods of lower priority are evicted for a group, the nodes where it will be are kept in the same way, for `KEPT_S` at most.
None are kept for a group that could not start if it had them, because it lacks members.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from pyscheduler.core import freeing
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.gangs.seating import Offer
from pyscheduler.core.job import Job
from pyscheduler.core.model import PodUid
from pyscheduler.core.request import Shape

__all__ = ["KEPT_S", "PATIENCE_S", "Keeping", "MadeRoom", "Waiter"]

# Seconds for which others may pass a group that waits for room.
PATIENCE_S: Final = 600.0
# Seconds for which nodes are kept that pods were evicted from: longer than pods take to end, which is 30 s unless they ask for more.
KEPT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Waiter:
    """A group that waits for room: what it needs, its priority, and since when it waits (seconds)."""

    gang: GangKey
    job: Job
    offer: Offer
    priority: int
    since: float


@dataclass(frozen=True, slots=True)
class MadeRoom:
    """Nodes (a bitmap) where a group will be when the victims are gone; `since` when, and when they were named last; seconds."""

    gang: GangKey
    nodes: int
    priority: int
    victims: tuple[PodUid, ...]
    since: float
    named_at: float


class Keeping:
    """Keeps nodes for the group that has waited longest, and for those that pods were evicted for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiter: Waiter | None = None
        self._nodes = 0
        self._looked = -1
        self._made: dict[GangKey, MadeRoom] = {}

    @property
    def nodes(self) -> int:
        """The nodes that are kept, as a bitmap."""
        return reduce(or_, (made.nodes for made in self._made.values()), self._longest())

    def closed_to(self, priority: int, gang: GangKey | None = None) -> int:
        """Return the nodes that a pod of this priority may not have, as a bitmap."""
        nodes = self._for_others(priority, gang)
        return nodes | (self._longest() if self._waits_before(priority, gang) else 0)

    def why(self, priority: int, gang: GangKey | None = None) -> str:
        """Return what to say to those who would have fitted on nodes that are closed to them."""
        texts = [
            f"{_kept(made.nodes)} for the group {made.gang}, for which pods of lower priority give way"
            for made in self._made.values()
            if made.gang != gang and priority <= made.priority
        ]
        if self._waiter is not None and self._waits_before(priority, gang):
            texts.append(f"{_kept(self._longest())} for the group {self._waiter.gang}, which has waited longest")
        return "; ".join(texts)

    def keep(self, made: MadeRoom) -> None:
        """Keep nodes for a group that pods were evicted for."""
        self._made[made.gang] = made

    def made_for(self, gang: GangKey) -> MadeRoom | None:
        """Return the room that was made for the group, None if none was or it is not kept any more."""
        return self._made.get(gang)

    def release(self, gang: GangKey) -> None:
        """Keep no room that was made for the group: it is placed or gone, or others have it."""
        self._made.pop(gang, None)

    def update(self, waiters: list[Waiter], now: float) -> None:
        """Keep nodes for the first of those that have waited too long: of the highest priority, then the longest."""
        for made in [made for made in self._made.values() if now - made.since > KEPT_S]:
            self.release(made.gang)
        starving = [waiter for waiter in waiters if now - waiter.since >= PATIENCE_S]
        first = min(starving, key=lambda waiter: (-waiter.priority, waiter.since, waiter.gang), default=None)
        if first != self._waiter:
            self._waiter, self._nodes, self._looked = first, 0, -1

    # -- inside -------------------------------------------------------------------------------------------------------

    def _for_others(self, priority: int, gang: GangKey | None) -> int:
        """Return the nodes that are kept for other groups that pods were evicted for."""
        nodes = 0
        for made in self._made.values():
            if made.gang != gang and priority <= made.priority:
                nodes |= made.nodes
        return nodes

    def _waits_before(self, priority: int, gang: GangKey | None) -> bool:
        """Tell whether the group that has waited longest comes before a pod of this priority."""
        return self._waiter is not None and self._waiter.gang != gang and priority <= self._waiter.priority

    def _longest(self) -> int:
        """Return the nodes that are kept for the group that has waited longest."""
        waiter = self._waiter
        if waiter is not None and self._looked != self._cluster.generation:
            # Those that are kept take no new pods: they only become cheaper, and are left for such as are free by now.
            self._looked = self._cluster.generation
            self._nodes = self._where(waiter.job, waiter.offer.eligible & ~self._for_others(waiter.priority, waiter.gang))
        return self._nodes

    def _where(self, job: Job, eligible: int) -> int:
        """Return the nodes on which the job needs the fewest GPUs to be freed; none if it would fit nowhere."""
        fleet = self._cluster.fleet
        tree, shape = fleet.tree(), Shape(job.resource, job.gpus, job.limits)
        if job.required_level not in {None, "node", *tree.levels}:
            return 0
        positions = freeing.positions_of(self._cluster, eligible)
        could = freeing.holds_each(fleet, job, shape, positions)
        domain = freeing.domains(tree, positions, job.required_level)
        # GPUs to be freed for each pod, on average: the cheapest nodes of a domain come first.
        price = (could * job.gpus - np.minimum(fleet.free()[positions], could * job.gpus)) / np.maximum(could, 1)
        best: tuple[float, list[int]] | None = None
        for number in np.flatnonzero(np.bincount(domain, could) >= job.pods).tolist():
            inside = np.flatnonzero((domain == number) & (could > 0))
            inside = inside[np.argsort(price[inside], kind="stable")]
            taken = inside[: int(np.searchsorted(np.cumsum(could[inside]), job.pods)) + 1]
            cost = float((price[taken] * could[taken]).sum())
            if best is None or cost < best[0]:
                best = cost, tree.order[positions[taken]].tolist()
        return sum(1 << node for node in best[1]) if best else 0


def _kept(nodes: int) -> str:
    count = nodes.bit_count()
    return f"{count} {'node is' if count == 1 else 'nodes are'} kept"

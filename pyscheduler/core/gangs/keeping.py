"""Nodes that are kept for the group that has waited longest, so that it does not starve.

Smaller jobs may pass a group that does not fit, for `PATIENCE_S`. After that the nodes where it needs the fewest GPUs to be
freed take no new pods but its own and those of higher priority, until it is placed. One group at a time.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pyscheduler.core import freeing
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.gangs.seating import Offer
from pyscheduler.core.job import Job
from pyscheduler.core.request import Shape

__all__ = ["PATIENCE_S", "Keeping", "Waiter"]

# Seconds for which others may pass a group that waits for room.
PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Waiter:
    """A group that waits for room: what it needs, its priority, and since when it waits (seconds)."""

    gang: GangKey
    job: Job
    offer: Offer
    priority: int
    since: float


class Keeping:
    """Keeps nodes for one group at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiter: Waiter | None = None
        self._nodes = 0
        self._looked = -1

    @property
    def nodes(self) -> int:
        """The nodes that are kept, as a bitmap."""
        if self._waiter is not None and self._looked != self._cluster.generation:
            # Those that are kept take no new pods: they only become cheaper, and are left for such as are free by now.
            self._looked = self._cluster.generation
            self._nodes = self._where(self._waiter.job, self._waiter.offer.eligible)
        return self._nodes

    def closed_to(self, priority: int, gang: GangKey | None = None) -> int:
        """Return the nodes that a pod of this priority may not have, as a bitmap."""
        if self._waiter is None or self._waiter.gang == gang or priority > self._waiter.priority:
            return 0
        return self.nodes

    def why(self) -> str:
        """Return what to say to those who would have fitted on the nodes that are kept."""
        count = self.nodes.bit_count()
        waiter = self._waiter.gang if self._waiter else ""
        return f"{count} {'node is' if count == 1 else 'nodes are'} kept for the group {waiter}, which has waited longest"

    def update(self, waiters: list[Waiter], now: float) -> None:
        """Keep nodes for the first of those that have waited too long: of the highest priority, then the longest."""
        starving = [waiter for waiter in waiters if now - waiter.since >= PATIENCE_S]
        first = min(starving, key=lambda waiter: (-waiter.priority, waiter.since, waiter.gang), default=None)
        if first != self._waiter:
            self._waiter, self._nodes, self._looked = first, 0, -1

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

"""What goes together when pods are evicted: a single pod, or a whole group, for a group that loses one has lost all.

Concurrency contract: one caller at a time, under the cluster's lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.evictions.cost import LOWEST, Cost
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import PodUid

__all__ = ["Unit", "Units", "in_order", "is_leaving", "stays"]

_RUNNING: Final = (HoldingState.BOUND, HoldingState.FOREIGN)


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods that go together, wherever they are.

    Attributes
    ----------
    name
        Orders units that are alike in all else.
    pods
        All of them: also those that have no GPUs.
    priority
        The highest of theirs.
    total
        The sum of their priorities, each counted from the lowest that there is.
    start
        When the first of those of the highest priority was bound, negative: what started last is smaller.
    gang
        The group that they are; None for a single pod.
    """

    name: str
    pods: tuple[PodUid, ...]
    priority: int
    total: int
    start: float
    gang: GangKey | None = None

    def cost(self, protected: Collection[PodUid]) -> Cost:
        """Return what it costs that they go. `protected`: pods whose eviction would break a PodDisruptionBudget."""
        kept = sum(uid in protected for uid in self.pods) if protected else 0
        return kept, self.priority, self.total, len(self.pods), self.start


class Units:
    """The units of a cluster. That of a group is kept until one of its members comes, goes or changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[GangKey, tuple[int, Unit | None]] = {}
        # Those of which a Binding is under way, as of a generation of the cluster.
        self._busy: tuple[int, frozenset[GangKey | None]] = (-1, frozenset())

    def of(self, held: Holding) -> Unit | None:
        """Return what has to go with the pod; None if it may not be evicted now."""
        if not stays(held):
            return None
        if not held.gang:
            return Unit(held.uid, (held.uid,), held.priority, held.priority - LOWEST, -held.bound_at)
        gang = self._cluster.roster.gang_of(held.uid)
        return self.group(gang) if gang is not None else None

    def group(self, gang: GangKey) -> Unit | None:
        """Return the members of a group that are bound and not on their way out; None while a Binding of one is under way.

        It is the same object as long as it is the same unit.
        """
        roster, generation = self._cluster.roster, self._cluster.generation
        if self._busy[0] != generation:
            self._busy = generation, frozenset(roster.gang_of(held.uid) for held in self._cluster.ledger.unbound())
        if gang in self._busy[1]:
            return None
        version = roster.version(gang)
        known = self._groups.get(gang)
        if known is None or known[0] != version:
            for gone in [each for each in self._groups if roster.is_empty(each)]:
                del self._groups[gone]
            known = self._groups[gang] = version, self._of_members(gang)
        return known[1]

    def stands(self, uid: PodUid) -> bool:
        """Tell whether a pod is bound, and nobody has told it to go."""
        held, member = self._cluster.ledger.get(uid), self._cluster.roster.get(uid)
        return stays(held) if held is not None else member is not None and member.bound and member.ready

    def is_broken(self, uid: PodUid) -> bool:
        """Tell whether others of the pod's group are on their way out."""
        gang = self._cluster.roster.gang_of(uid)
        return gang is not None and any(member.bound and not member.ready for member in self._cluster.roster.unsorted(gang))

    def _of_members(self, gang: GangKey) -> Unit | None:
        members = [member for member in self._cluster.roster.unsorted(gang) if member.bound and member.ready]
        if not members:
            return None
        highest = max(member.pod.priority for member in members)
        start = max(-member.bound_at for member in members if member.pod.priority == highest)
        total = sum(member.pod.priority - LOWEST for member in members)
        return Unit(str(gang), tuple(sorted(member.pod.uid for member in members)), highest, total, start, gang)


def stays(held: Holding) -> bool:
    """Tell whether the pod runs, or is about to, and nobody has told it to go."""
    return held.state in _RUNNING and not held.terminating


def is_leaving(held: Holding) -> bool:
    """Tell whether the pod is gone or being deleted, so that its GPUs are on their way."""
    return held.state is HoldingState.RELEASING or held.terminating


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Return them in the order in which they would go: the lowest priority first, of equal ones the newest."""
    return sorted(units, key=lambda unit: (unit.priority, unit.start, unit.name))

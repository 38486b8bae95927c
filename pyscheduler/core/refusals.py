"""Which refused pods are worth another try.

A refused pod sits in the scheduler's pool of unschedulable pods until somebody
wakes it. Waking every pod for each freed GPU melts the queue; waking one pod
per change loses pods whose wake-up came to nothing. So the question is asked
of the state, not of the events: which refused pods would fit now? They are
named in the order in which they were refused, no more of each shape than
could be placed, and each again only after `RENAME_AFTER_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyscheduler.core.model import PodUid
from pyscheduler.core.request import Shape

__all__ = ["RENAME_AFTER_S", "Eligible", "Refusal", "Refusals"]

# Seconds until a pod that was woken, and was heard of no more, is named again. Longer than a scheduling cycle takes,
# shorter than a person waits.
RENAME_AFTER_S = 5.0

# Shape, eligible nodes -> how many pods of that kind could be placed on those nodes now.
Room = Callable[[Shape, int], int]


@dataclass(frozen=True, slots=True)
class Eligible:
    """The nodes that a pod may use, as a bitmap, among the first `known` nodes of the table: the rest was not judged."""

    nodes: int
    known: int

    def with_newcomers(self, table_size: int) -> int:
        """Return the nodes that the pod may use or that were not judged, of a table of this size."""
        return self.nodes | (((1 << max(table_size, self.known)) - 1) >> self.known << self.known)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that no node could take."""

    uid: PodUid
    namespace: str
    name: str
    shape: Shape
    eligible: Eligible
    generation: int
    reason: str
    since: float


class Refusals:
    """The refused pods, in the order of their first refusal. Concurrency contract: one writer under the caller's lock."""

    def __init__(self) -> None:
        self._refused: dict[PodUid, Refusal] = {}
        self._named_at: dict[PodUid, float] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def all(self) -> Collection[Refusal]:
        """Return the refusals, longest waiting first."""
        return self._refused.values()

    def record(self, refusal: Refusal) -> None:
        """Note a refusal; a repeated one keeps its place in the order, and may be named at once."""
        self._refused[refusal.uid] = refusal
        self._named_at.pop(refusal.uid, None)

    def clear(self, uid: PodUid) -> None:
        """Forget the pod: it fits now, is bound or gone."""
        self._refused.pop(uid, None)
        self._named_at.pop(uid, None)

    def due(self, room: Room, table_size: int, now: float) -> list[PodUid]:
        """Return the pods to wake now, and remember that they were named."""
        left: dict[tuple[Shape, int], int] = {}
        due: list[PodUid] = []
        for refusal in self._refused.values():
            kind = (refusal.shape, refusal.eligible.with_newcomers(table_size))
            if kind not in left:
                left[kind] = room(*kind)
            if left[kind] <= 0:
                continue
            left[kind] -= 1
            if now - self._named_at.get(refusal.uid, -RENAME_AFTER_S) >= RENAME_AFTER_S:
                self._named_at[refusal.uid] = now
                due.append(refusal.uid)
        return due

"""Which refused pods are worth another try.

A refused pod sits in the scheduler's pool of unschedulable pods until somebody
wakes it. Waking every pod for each freed GPU melts the queue; waking one pod
per change loses pods whose wake-up came to nothing. So the question is asked
of the state, not of the events: which refused pods would fit now? No more of a
kind are named than could be placed: the higher priority first, then who has
waited longest. A pod that was named and is heard of no more holds its place for
`RENAME_AFTER_S`, and then stands behind the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from pyscheduler.core.model import PodUid
from pyscheduler.core.request import Shape

__all__ = ["RENAME_AFTER_S", "Eligible", "Refusal", "Refusals"]

# Seconds until a pod that was woken, and was heard of no more, is named again. Longer than a scheduling cycle takes,
# shorter than a person waits.
RENAME_AFTER_S = 5.0
# Seconds after which a refusal is forgotten that was not repeated: the scheduler tries every pod again within six minutes.
FORGOTTEN_S = 1800.0

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
    """A pod that these eligible nodes could not take. `since` is the time of its first refusal, `at` that of its latest; in seconds.

    A member of a group is not woken for room of its own: `core.gangs` knows what the group waits for.
    """

    uid: PodUid
    namespace: str
    name: str
    priority: int
    shape: Shape
    eligible: Eligible
    generation: int
    reason: str
    since: float
    at: float = 0.0
    member: bool = False


Kind = tuple[Shape, Eligible]


class Refusals:
    """The refused pods, by kind. Concurrency contract: one writer under the caller's lock."""

    def __init__(self) -> None:
        # Pods of one kind fit on the same nodes: a kind without room costs one question, however many pods it has.
        self._kinds: dict[Kind, dict[PodUid, Refusal]] = {}
        self._refused: dict[PodUid, Refusal] = {}
        self._named_at: dict[PodUid, float] = {}
        # Those that are members of groups.
        self._members: dict[PodUid, None] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def all(self) -> list[Refusal]:
        """Return the refusals, longest waiting first."""
        return sorted(self._refused.values(), key=lambda refusal: refusal.since)

    def members(self) -> list[PodUid]:
        """Return the refused pods that are members of groups."""
        return list(self._members)

    def first_refused(self, uid: PodUid, now: float) -> float:
        """Return when the pod was first refused, `now` if it was not."""
        known = self._refused.get(uid)
        return known.since if known else now

    def record(self, refusal: Refusal) -> None:
        """Note a refusal. The pod may be named at once, even if it was named just before."""
        self.clear(refusal.uid)
        self._refused[refusal.uid] = refusal
        if refusal.member:
            self._members[refusal.uid] = None
        else:
            self._kinds.setdefault((refusal.shape, refusal.eligible), {})[refusal.uid] = refusal

    def clear(self, uid: PodUid) -> None:
        """Forget the pod: it fits now, is bound or gone."""
        refusal = self._refused.pop(uid, None)
        self._named_at.pop(uid, None)
        self._members.pop(uid, None)
        if refusal is None or refusal.member:
            return
        kind = (refusal.shape, refusal.eligible)
        del self._kinds[kind][uid]
        if not self._kinds[kind]:
            del self._kinds[kind]

    def expire(self, now: float) -> None:
        """Forget the pods that are heard of no more."""
        while self._refused and now - next(iter(self._refused.values())).at > FORGOTTEN_S:
            self.clear(next(iter(self._refused)))

    def due(self, room: Room, table_size: int, now: float) -> list[PodUid]:
        """Return the pods to wake now, and remember that they were named."""
        due: list[PodUid] = []
        for (shape, eligible), pods in self._kinds.items():
            places = room(shape, eligible.with_newcomers(table_size))
            if places > 0:
                due += self._next(pods.values(), places, now)
        self._named_at.update(dict.fromkeys(due, now))
        return due

    def name(self, uids: Iterable[PodUid], now: float) -> list[PodUid]:
        """Return those of these pods that are refused and were not just named, and remember that they were named."""
        due = [uid for uid in uids if uid in self._refused and now - self._named_at.get(uid, -RENAME_AFTER_S) >= RENAME_AFTER_S]
        self._named_at.update(dict.fromkeys(due, now))
        return due

    def _next(self, pods: Iterable[Refusal], places: int, now: float) -> list[PodUid]:
        """Return the pods of one kind to name, for that many places."""
        fresh, stale, expected = [], [], 0
        for refusal in pods:
            named_at = self._named_at.get(refusal.uid)
            if named_at is None:
                fresh.append(refusal)
            elif now - named_at >= RENAME_AFTER_S:
                stale.append(refusal)
            else:
                expected += 1
        fresh.sort(key=lambda refusal: (-refusal.priority, refusal.since))
        stale.sort(key=lambda refusal: self._named_at[refusal.uid])
        return [refusal.uid for refusal in islice([*fresh, *stale], max(0, places - expected))]

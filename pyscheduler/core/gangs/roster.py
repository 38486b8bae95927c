"""Who belongs to which group: the live pods that the watch shows, and those that the scheduler asked about before.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pyscheduler.core.gangs.membership import GangKey, Membership
from pyscheduler.core.model import PodFacts, PodRequest, PodUid

__all__ = ["Member", "Roster"]

# Seconds for which a pod is remembered that the scheduler asked about and no watch has shown: it asks again within six minutes.
_UNSEEN_S = 600.0


@dataclass(frozen=True, slots=True)
class Member:
    """A live pod of a group.

    Attributes
    ----------
    bound
        It has a node.
    ready
        It may be scheduled: no gate holds it back, and it is not being deleted.
    rank
        What its Binding gave it; None if it is not bound, or by others.
    host
        The name by which other pods reach it.
    bound_at
        When it was bound, Unix time in seconds; 0 if that is not known.
    met_at
        When the scheduler asked about it last, if no watch has shown it; None if one has.
    """

    pod: PodRequest
    membership: Membership
    bound: bool = False
    ready: bool = True
    rank: int | None = None
    host: str = ""
    bound_at: float = 0.0
    met_at: float | None = None

    @property
    def rank_key(self) -> tuple[object, ...]:
        """The sort key of the members of a group; pods without an index go by name."""
        return *self.membership.place, self.pod.name, self.pod.uid


class Roster:
    """Members by group."""

    def __init__(self) -> None:
        self._gangs: dict[GangKey, dict[PodUid, Member]] = {}
        self._gang_of: dict[PodUid, GangKey] = {}
        self._unseen: dict[PodUid, None] = {}
        self._changed: dict[GangKey, None] = {}
        # By group: a number that no other state of it has had.
        self._versions: dict[GangKey, int] = {}
        self._version = 0

    def gangs(self) -> list[GangKey]:
        """Return the groups that have a live member."""
        return list(self._gangs)

    def take_changed(self) -> list[GangKey]:
        """Return the groups that have a new or changed member since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the pod's group, None if it is in none."""
        return self._gang_of.get(uid)

    def is_empty(self, gang: GangKey) -> bool:
        """Tell whether the group has no live member."""
        return gang not in self._gangs

    def version(self, gang: GangKey) -> int:
        """Return a number that changes whenever a live member of the group comes, goes or changes; 0 while there is none."""
        return self._versions.get(gang, 0)

    def get(self, uid: PodUid) -> Member | None:
        """Return the member of this UID."""
        gang = self._gang_of.get(uid)
        return self._gangs[gang][uid] if gang is not None else None

    def unsorted(self, gang: GangKey) -> Collection[Member]:
        """Return the live members in any order."""
        return self._gangs.get(gang, {}).values()

    def members(self, gang: GangKey) -> list[Member]:
        """Return the live members in the order of their ranks."""
        return sorted(self._gangs.get(gang, {}).values(), key=lambda member: member.rank_key)

    def see(self, pod: PodFacts) -> None:
        """Note a live member as the watch shows it."""
        if pod.membership is None:
            return
        request = PodRequest(pod.uid, pod.namespace, pod.name, pod.containers, pod.settings, pod.priority, pod.membership)
        ready = not pod.gated and not pod.terminating
        bound = pod.node is not None
        host, rank = pod.host or pod.name, pod.rank if bound else None
        self._put(Member(request, pod.membership, bound=bound, ready=ready, rank=rank, host=host, bound_at=pod.bound_at))

    def meet(self, pod: PodRequest, now: float) -> None:
        """Note a member that the scheduler asks about, which the watch may show only later."""
        known = self.get(pod.uid)
        if pod.membership is None or (known is not None and known.met_at is None):
            return
        self._put(Member(pod, pod.membership, met_at=now))

    def forget(self, uid: PodUid) -> None:
        """Note that the pod is finished or gone."""
        self._unseen.pop(uid, None)
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            del self._gangs[gang][uid]
            self._renumber(gang)
            if not self._gangs[gang]:
                del self._gangs[gang], self._versions[gang]
                self._changed.pop(gang, None)

    def bind(self, uid: PodUid) -> None:
        """Note that the pod is bound, by a live read."""
        member = self.get(uid)
        if member is not None:
            self._put(replace(member, bound=True))

    def expire(self, now: float) -> None:
        """Forget pods that no watch has shown and that are heard of no more."""
        for uid in list(self._unseen):
            member = self.get(uid)
            if member is not None and member.met_at is not None and now - member.met_at > _UNSEEN_S:
                self.forget(uid)

    def _put(self, member: Member) -> None:
        uid, gang = member.pod.uid, member.membership.gang
        if self._gang_of.get(uid, gang) != gang:
            # Its labels were changed.
            self.forget(uid)
        if self.get(uid) != member:
            self._changed[gang] = None
            self._renumber(gang)
        self._gang_of[uid] = gang
        self._gangs.setdefault(gang, {})[uid] = member
        if member.met_at is None:
            self._unseen.pop(uid, None)
        else:
            self._unseen[uid] = None

    def _renumber(self, gang: GangKey) -> None:
        self._version += 1
        self._versions[gang] = self._version

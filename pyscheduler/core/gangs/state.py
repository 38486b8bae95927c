"""What is remembered of one group beside its plan: what it waits for, and which nodes it does without.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.core.gangs.keeping import Waiter
from pyscheduler.core.gangs.making import Wanted
from pyscheduler.core.gangs.membership import GroupSpec, Membership
from pyscheduler.core.gangs.reach import Reach
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.model import PodRequest, PodUid
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.replies import PlanAnswer

__all__ = ["GangState"]

# For how many seconds a group does without a node that other plugins refused for a member: the first time, and at most,
# twice as long each time. At first it is short, for pods that are on their way out may have been in the way.
_LEFT_OUT_S: Final = 2.0
_LEFT_OUT_MAX_S: Final = 300.0
# For how many seconds a group is not placed whose members did not all come to where they were placed: the first time, and
# at most, twice as long each time. Others have its GPUs meanwhile: they hear of them within a fifth of a second.
_REST_S: Final = 1.0
_REST_MAX_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Exclusion:
    """Until when, and for how long in all."""

    until: float
    lasts: float


@dataclass(slots=True)
class GangState:
    """Of one group.

    Attributes
    ----------
    spec
        What its object said when a member was looked at last; None: it had not been read.
    eligible
        The nodes that the framework admitted for a member last, as a bitmap.
    parked
        What would have to fit for it to be placed, and since when; None if it waits for something else.
    wanted
        The members that did not fit; None where nobody is evicted for them.
    looked
        The generation of the cluster at which it did not, and the nodes that were kept for others.
    unhelped, unhelped_at
        The generation at which no eviction would have helped, and the time.
    asked_at
        When it was last looked at whether one would.
    again_at
        When a node that was left out may be had again.
    refusal
        The answer when it did not fit, and the question: its members ask one after the other.
    insists_since
        Since when it has waited for its preferred level.
    uninformed
        Members that were last told that others are missing, or what is wrong with the group's object.
    reach
        The nodes that the framework admitted for each member last.
    nowhere
        Members without GPUs that had room on no node when they were asked about last.
    """

    spec: GroupSpec | None = None
    eligible: int = 0
    parked: Waiter | None = None
    wanted: Wanted | None = None
    looked: tuple[int, int] = 0, 0
    unhelped: int = 0
    unhelped_at: float = -math.inf
    asked_at: float = -math.inf
    again_at: float = math.inf
    refusal: tuple[object, PlanAnswer] | None = None
    insists_since: float | None = None
    uninformed: set[PodUid] = field(default_factory=set)
    reach: Reach = field(default_factory=Reach)
    nowhere: set[PodUid] = field(default_factory=set)
    _excluded: dict[int, _Exclusion] = field(default_factory=dict)
    _rest: _Exclusion | None = None

    def note_room(self, pod: PodRequest, eligible: Eligible, room: bytes, table_size: int) -> None:
        """Note whether a member without GPUs has room on some node; parameters as of `Gangs.plan`. Nodes that were not judged may have it."""
        nodes = eligible.with_newcomers(table_size)
        if pod.containers or nodes != eligible.nodes or (nodes and (not room or any(room))):
            self.nowhere.discard(pod.uid)
        else:
            self.nowhere.add(pod.uid)

    def able(self, members: Iterable[Member]) -> list[Member]:
        """Return these members without those that have room on no node."""
        return [member for member in members if member.bound or member.pod.uid not in self.nowhere]

    def leave_out(self, nodes: Iterable[int], now: float) -> None:
        """Do without nodes that other plugins refused for a member."""
        for node in nodes:
            known = self._excluded.get(node)
            if known is None or now >= known.until:
                lasts = min(2 * known.lasts, _LEFT_OUT_MAX_S) if known is not None else _LEFT_OUT_S
                self._excluded[node] = _Exclusion(now + lasts, lasts)
        for node in [node for node, known in self._excluded.items() if now - known.until > _LEFT_OUT_MAX_S]:
            del self._excluded[node]

    def left_out(self, now: float) -> list[int]:
        """Return the nodes that the group does without now."""
        return [node for node, known in self._excluded.items() if now < known.until]

    def readmits_at(self, now: float) -> float:
        """Return when the first of the nodes that are left out may be had again; infinity if there is none."""
        return min((self._excluded[node].until for node in self.left_out(now)), default=math.inf)

    def rest(self, now: float) -> None:
        """Do without a place for a while: members did not come to theirs."""
        lasts = min(2 * self._rest.lasts, _REST_MAX_S) if self._rest is not None else _REST_S
        self._rest = _Exclusion(now + lasts, lasts)

    def rests(self, now: float) -> bool:
        """Tell whether that while is not over."""
        return self._rest is not None and now < self._rest.until

    def insists(self, membership: Membership, now: float) -> bool:
        """Tell whether the group goes on waiting for its preferred level."""
        if membership.wait_s is None or membership.preferred_level is None:
            return False
        if self.insists_since is None:
            self.insists_since = now
        return now - self.insists_since < membership.wait_s

    def refusal_of(self, question: object) -> PlanAnswer | None:
        """Return what was answered to the same question before, if its answer does not depend on the time."""
        if self.refusal is None or self.refusal[0] != question or self.insists_since is not None:
            return None
        return self.refusal[1]

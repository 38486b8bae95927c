"""What the objects of groups say of them, and which of these objects are to be read.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

import math
from typing import Final

from pyscheduler.core.gangs.membership import GangKey, GroupSpec, Membership, ObjectRef
from pyscheduler.core.gangs.roster import Roster

__all__ = ["Specs"]

# After how many seconds an object is read again, and one that has not said yet how large its group is.
_AGAIN_S: Final = 30.0
_NO_SIZE_S: Final = 2.0

_SAYS_NOTHING: Final = GroupSpec()


class Specs:
    """What is known, by group; it is forgotten with the group."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._read: dict[GangKey, tuple[GroupSpec, float]] = {}
        self._unread: dict[GangKey, ObjectRef] = {}

    def of(self, membership: Membership, now: float) -> GroupSpec | None:
        """Return what the object of the pod's group says, None if it has not been read yet. It is read anew from time to time."""
        if membership.spec_from is None:
            return _SAYS_NOTHING
        spec, read_at = self._read.get(membership.gang, (None, -math.inf))
        has_size = spec is not None and membership.size(spec) is not None
        if now - read_at > (_AGAIN_S if has_size else _NO_SIZE_S):
            self._unread[membership.gang] = membership.spec_from
        return spec

    def unread(self) -> dict[GangKey, ObjectRef]:
        """Return the objects that are to be read."""
        return dict(self._unread)

    def note(self, gang: GangKey, spec: GroupSpec | None, now: float) -> None:
        """Note what the object of a group says. None: it could not be read; then what was known goes on to count."""
        self._unread.pop(gang, None)
        if not self._roster.is_empty(gang):
            known, _ = self._read.get(gang, (_SAYS_NOTHING, now))
            self._read[gang] = known if spec is None else spec, now

    def forget(self, gang: GangKey) -> None:
        """Note that the group is gone."""
        self._read.pop(gang, None)
        self._unread.pop(gang, None)

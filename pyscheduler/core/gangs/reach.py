"""Which nodes each member of a group may use, by what the scheduler said when it asked about the member last.

The framework judges nodes by what a pod wishes (selectors, affinity, tolerations), so members with one set are alike. They
ask one after the other: when the set of one changes, that of all who had the same changes with it.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Collection

from pyscheduler.core.model import PodUid
from pyscheduler.core.refusals import Eligible

__all__ = ["Reach"]


class Reach:
    """Of the members of one group."""

    def __init__(self) -> None:
        self._said: dict[PodUid, Eligible] = {}
        # How often what a member said before has changed.
        self.changes = 0

    def note(self, uid: PodUid, eligible: Eligible) -> None:
        """Note what the scheduler says of a member."""
        before = self._said.get(uid)
        self._said[uid] = eligible
        if before is None or before == eligible:
            return
        self.changes += 1
        for other in [other for other, said in self._said.items() if said == before]:
            self._said[other] = eligible

    def keep(self, uids: Collection[PodUid]) -> None:
        """Forget all other members."""
        if len(self._said) > len(uids):
            self._said = {uid: self._said[uid] for uid in uids if uid in self._said}

    def excludes(self, uid: PodUid, node: int) -> bool:
        """Tell whether a member is known not to be admitted on a node."""
        said = self._said.get(uid)
        return said is not None and node < said.known and not said.nodes >> node & 1

    def of(self, uids: Collection[PodUid], asker: PodUid, table_size: int) -> dict[PodUid, int]:
        """Return the nodes of each member, as bitmaps. Who was not asked about yet counts like the asker; new nodes count for the others."""
        mine = self._said[asker]
        known = {uid: self._said.get(uid, mine) for uid in uids}
        return {uid: mine.nodes if said == mine else said.with_newcomers(table_size) for uid, said in known.items()}

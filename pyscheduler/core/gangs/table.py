"""The table of a group: which rank is which pod, where it runs and on which GPUs. Training containers read it.

A table is given out when as many members are reserved as the group needs: before any of them is bound. It is given out
again when a member joins or takes the place of another. A member that ends changes nothing: whoever reads the table then
goes on with what he knows.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyscheduler.core.answer import worth_of
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.gangs.membership import GangKey, OwnerRef
from pyscheduler.core.gangs.plan import Plans, rank_of
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.machine.device_table import DeviceTable

__all__ = ["GangTable", "Row", "Tables"]

_TAKEN = (HoldingState.RESERVED, HoldingState.DOUBTFUL, HoldingState.BOUND)


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one rank.

    Attributes
    ----------
    pod, host
        The pod, and the name by which others of its namespace reach it.
    gpus
        Handles in ring order.
    bottleneck
        The weakest link between two of them, None for one GPU and where it is not known.
    relative_speed
        Speed of the slowest of them by that of its peers, 1.0 is as fast; None where it is not known. As of when the table was made.
    """

    rank: int
    pod: str
    host: str
    node: str
    gpus: tuple[str, ...]
    bottleneck: str | None
    relative_speed: float | None = None


@dataclass(frozen=True, slots=True)
class GangTable:
    """The members with GPUs by rank.

    Attributes
    ----------
    owner
        The object that controls all of these pods, or the pod of the lowest rank.
    level
        The nearest level of the fabric that holds them all, None if only the whole cluster does.
    """

    gang: GangKey
    owner: OwnerRef
    level: str | None
    rows: tuple[Row, ...]


class _Seat(NamedTuple):
    """A member that has its GPUs. Two that are equal make equal rows."""

    rank: int
    member: Member
    held: Holding

    @property
    def said(self) -> tuple[object, ...]:
        return self.rank, self.member.pod.uid, self.member.host, self.held.node, self.held.gpus


class _Links(NamedTuple):
    """The ring order of a set of GPUs, and the weakest link in it."""

    ring: tuple[int, ...]
    bottleneck: str | None


class Tables:
    """Tells which tables are to be written."""

    def __init__(self, cluster: Cluster, plans: Plans) -> None:
        self._cluster = cluster
        self._plans = plans
        self._touched: dict[GangKey, None] = {}
        self._given: dict[GangKey, frozenset[tuple[object, ...]]] = {}

    def touch(self, gang: GangKey) -> None:
        """Note that a member is being reserved. What the watch shows of members is noted by itself."""
        self._touched[gang] = None

    def renew(self) -> None:
        """Give out the tables of all groups again: others may have written them meanwhile."""
        self._given.clear()
        self._touched |= dict.fromkeys(self._cluster.roster.gangs())

    def take(self) -> list[GangTable]:
        """Return the tables that say something which those given out before do not."""
        touched = self._touched | dict.fromkeys(self._cluster.roster.take_changed())
        self._touched = {}
        for gang in [gang for gang in self._given if self._cluster.roster.is_empty(gang)]:
            del self._given[gang]
        return [table for gang in touched if (table := self._changed(gang)) is not None]

    def is_live(self, gang: GangKey) -> bool:
        """Tell whether the group has a live member."""
        return not self._cluster.roster.is_empty(gang)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _changed(self, gang: GangKey) -> GangTable | None:
        seats = self._seats(gang)
        said = frozenset(seat.said for seat in seats)
        if said <= self._given.get(gang, frozenset()):
            return None
        self._given[gang] = said
        return self._table(gang, seats)

    def _seats(self, gang: GangKey) -> list[_Seat]:
        """Return the members that have their GPUs, by rank; none while that is not known of each, or more are needed."""
        members, plan = self._cluster.roster.unsorted(gang), self._plans.of(gang)
        without_gpus = len([member for member in members if not member.pod.containers])
        if plan is not None and not self._plans.may_be_let_go(plan, without_gpus):
            return []
        seats: dict[int, _Seat] = {}
        for member in members:
            if not member.ready or not member.pod.containers:
                continue
            held = self._cluster.ledger.get(member.pod.uid)
            # One that only waits is left out; of one without a plan nobody knows that: it may be bound.
            if not member.bound and plan is not None and (held is None or held.is_promised):
                continue
            rank = rank_of(plan, member)
            if held is None or held.state not in _TAKEN or member.met_at is not None or rank is None or rank in seats:
                return []
            seats[rank] = _Seat(rank, member, held)
        return [seats[rank] for rank in sorted(seats)]

    def _table(self, gang: GangKey, seats: Sequence[_Seat]) -> GangTable:
        level = self._cluster.fleet.tree().join(seat.held.node for seat in seats)
        links: dict[tuple[DeviceTable, int], _Links] = {}
        return GangTable(gang, _owner(seats), level, tuple([self._row(*seat, links) for seat in seats]))

    def _row(self, rank: int, member: Member, held: Holding, links: dict[tuple[DeviceTable, int], _Links]) -> Row:
        machine, gpus, bottleneck = self._cluster.state(held.node).facts.machine, held.gpus, None
        mask = machine.mask_of(gpus) if machine is not None else 0
        if machine is not None and mask.bit_count() == len(gpus):
            # Most members have the same GPUs of equal machines.
            found = links.get((machine.table, mask))
            if found is None:
                order, worth = machine.table.ring_order(mask), worth_of(machine.table, mask)
                found = links[machine.table, mask] = _Links(tuple(order), worth.bottleneck)
            gpus, bottleneck = tuple(machine.handle(index) for index in found.ring), found.bottleneck
        speed = self._cluster.relative_speed(held.node, gpus)
        return Row(rank, member.pod.name, member.host, self._cluster.table.names[held.node], gpus, bottleneck, speed)


def _owner(seats: Sequence[_Seat]) -> OwnerRef:
    owners = {seat.member.membership.owner for seat in seats}
    common = owners.pop() if len(owners) == 1 else None
    first = seats[0].member.pod
    return common or OwnerRef("v1", "Pod", first.name, first.uid)

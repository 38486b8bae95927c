"""Which members of a group belong to one subgroup."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from pyscheduler.core.gangs.membership import Subgroup
from pyscheduler.core.gangs.roster import Member
from pyscheduler.core.model import PodUid

__all__ = ["asked", "blocks", "mates"]


def asked(members: Sequence[Member]) -> Subgroup | None:
    """Return what is asked of the subgroups: all members that are in one say the same of them."""
    return next((found for member in members if (found := member.membership.subgroup) is not None), None)


def blocks(members: Sequence[Member], ranks: Mapping[PodUid, int]) -> list[list[Member]]:
    """Return the subgroups in the order of their lowest ranks, the members of each in the order of theirs."""
    found: dict[Hashable, list[Member]] = {}
    for member in sorted(members, key=lambda member: ranks[member.pod.uid]):
        found.setdefault(_key(member, ranks), []).append(member)
    return list(found.values())


def mates(others: Sequence[Member], late: Member, ranks: Mapping[PodUid, int]) -> list[Member]:
    """Return the other members of a late one's subgroup."""
    mine = _key(late, ranks)
    return [other for other in others if other.pod.uid in ranks and other.pod.uid != late.pod.uid and _key(other, ranks) == mine]


def _key(member: Member, ranks: Mapping[PodUid, int]) -> Hashable:
    """Return what the members of a subgroup have in common; who is in none is alone."""
    subgroup, membership = member.membership.subgroup, member.membership
    if subgroup is None:
        return member.pod.uid
    if subgroup.size is None:
        return subgroup.name
    if subgroup.by_role and membership.index is not None:
        return membership.role, membership.index // subgroup.size
    return ranks[member.pod.uid] // subgroup.size

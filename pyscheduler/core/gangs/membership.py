"""Which group a pod belongs to, and its place there. Values only; `readers.gangs` makes them from labels and annotations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = ["GangKey", "GroupSpec", "Membership", "ObjectRef", "OwnerRef", "Size", "Subgroup"]


@dataclass(frozen=True, slots=True, order=True)
class GangKey:
    """A group of pods of one namespace. `vocabulary` is whose words name it: groups of different ones may share a name."""

    namespace: str
    name: str
    vocabulary: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object of the API that says how large a group is, and where it is to be."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """One certain object of the API, in the namespace of what it owns."""

    api_version: str
    kind: str
    name: str
    uid: str


class Size(NamedTuple):
    """How many members a group must have to start, and may have; `most` is None if nothing limits it."""

    least: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Subgroup:
    """What a pod says of its subgroup: members that one domain of a level must hold.

    Attributes
    ----------
    level
        As `Membership.required_level`.
    size
        So many consecutive members are one; the last may be smaller. None: those of one name are.
    name
        The name, where `size` is None.
    by_role
        Members are counted by their index in their role, not by their rank.
    alone
        No two subgroups of the group in one domain.
    """

    level: str
    size: int | None = None
    name: str = ""
    by_role: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """What the object of a group says of it; the attributes are as in `Membership`. Without any it says nothing."""

    size: Size | None = None
    required_level: str | None = None
    preferred_level: str | None = None
    problems: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a pod says of its group.

    Attributes
    ----------
    gang
        The group.
    min_members, max_members
        How many members must run at one time for it to start, and how many may; None where the pod does not say. Members
        without GPUs count.
    owner
        The object that controls the pod; None if there is none.
    spec_from
        The object to read for what the pod does not say: numbers of members, levels; None: there is none.
    role, index
        The pod's place: members are ranked by role (``""``, then in the order that the vocabulary gives), then index, None where the pod has none.
    required_level, preferred_level
        Names of levels of the fabric, as in `Job`; ``#N`` is the N-th level from the node. None if the pod does not ask. A
        name need not be one of the cluster's.
    subgroup
        What it says of its subgroup; None: it is in none.
    spread_level
        The level over whose domains the members go evenly, or the subgroups; named as the others. None: they are kept together.
    wait_s
        Seconds to wait for the preferred level before a wider one is taken; None: not at all.
    one_pod_per_node, same_model
        As in `Job`.
    problems
        What of the labels is contradictory or cannot be read, one sentence each, for people. What is left out of use is said.
    refusal
        Why the pod cannot be placed: a hard wish of it cannot be read. Empty if nothing stands against it.
    """

    gang: GangKey
    min_members: int | None = None
    max_members: int | None = None
    spec_from: ObjectRef | None = None
    role: tuple[int, str] = (0, "")
    index: int | None = None
    required_level: str | None = None
    preferred_level: str | None = None
    subgroup: Subgroup | None = None
    spread_level: str | None = None
    wait_s: float | None = None
    one_pod_per_node: bool = False
    same_model: bool = False
    problems: tuple[str, ...] = ()
    refusal: str = ""
    owner: OwnerRef | None = None

    @property
    def place(self) -> tuple[tuple[int, str], int]:
        """The sort key of members: who has no index comes last of its role."""
        return self.role, self.index if self.index is not None else 1 << 31

    def size(self, spec: GroupSpec) -> Size | None:
        """Return how large the group is: what the pod says, else what the object of the group says."""
        return spec.size if self.min_members is None else Size(self.min_members, self.max_members)

    def completed(self, spec: GroupSpec) -> Membership:
        """Return it with the levels of the group's object, where the pod says none."""
        required, preferred = self.required_level or spec.required_level, self.preferred_level or spec.preferred_level
        return replace(self, required_level=required, preferred_level=preferred)

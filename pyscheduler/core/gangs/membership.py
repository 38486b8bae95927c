"""Which group a pod belongs to, and its place there. Values only; `readers.gangs` makes them from labels and annotations."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GangKey", "Membership", "ObjectRef", "OwnerRef"]


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
    """An object of the API that says how large a group is."""

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
    size_from
        The object to read where `min_members` is None; None: there is none, or the pod says it.
    role, index
        The pod's place: members are ranked by role (``""``, then in the order that the vocabulary gives), then index, None where the pod has none.
    required_level, preferred_level
        Names of levels of the fabric, as in `Job`; ``#N`` is the N-th level from the node. None if the pod does not ask. A
        name need not be one of the cluster's.
    wait_s
        Seconds to wait for the preferred level before a wider one is taken; None: not at all.
    one_pod_per_node, same_model
        As in `Job`.
    problems
        What of the labels is contradictory or cannot be read, one sentence each, for the log. What is left out of use is said.
    refusal
        Why the pod cannot be placed: a hard wish of it cannot be read. Empty if nothing stands against it.
    """

    gang: GangKey
    min_members: int | None = None
    max_members: int | None = None
    size_from: ObjectRef | None = None
    role: tuple[int, str] = (0, "")
    index: int | None = None
    required_level: str | None = None
    preferred_level: str | None = None
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

"""The words of the project: pods, attempts, verdicts, and what is known of nodes.

Values only, frozen. Adapters make them from the outside world, the planner
answers with them, the edge turns them into messages.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType

from pyscheduler.core.cards import NO_CARDS, Cards
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.findings import Finding
from pyscheduler.core.gangs.membership import Membership

if TYPE_CHECKING:
    from pyscheduler.core.machine.device_table import DeviceTable

__all__ = [
    "Attempt",
    "Code",
    "ContainerKind",
    "ContainerRequest",
    "InUse",
    "Machine",
    "NodeFacts",
    "PodFacts",
    "PodRequest",
    "PodUid",
    "Verdict",
    "binding_order",
]

PodUid = NewType("PodUid", str)


class ContainerKind(enum.Enum):
    """How a container shares devices with the others of its pod."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One scheduling cycle of one pod: comparable, the larger is the newer.

    `session` is the start time of the shim in Unix nanoseconds, `number` counts
    its cycles. `host` names the shim's pod and takes no part in the order.
    """

    session: int
    number: int
    host: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What one container asks for: `gpus` whole devices of an extended resource."""

    name: str
    kind: ContainerKind
    resource: str
    gpus: int


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A pod that waits for GPUs, as the shim describes it."""

    uid: PodUid
    namespace: str
    name: str
    containers: tuple[ContainerRequest, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    membership: Membership | None = None


class Code(enum.Enum):
    """What kind of answer a verdict is."""

    OK = "ok"
    # Freed GPUs or an eviction could help.
    UNSCHEDULABLE = "unschedulable"
    # No eviction helps.
    UNRESOLVABLE = "unresolvable"
    # Cannot be judged now.
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An expected outcome. `reason` is one sentence for a person, empty if the code is OK."""

    code: Code
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs of one node and how they are linked.

    GPU i is bit i of every mask. `ids` and `uuids` have one entry per GPU;
    `uuids[i]` is None where it is not known. `healthy` is a mask. `assumed`
    is true where nobody looked at this node: its links are those of a preset.
    """

    ids: tuple[str, ...]
    uuids: tuple[str | None, ...]
    healthy: int
    table: DeviceTable
    assumed: bool = False
    _index_of: Mapping[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        by_index = {f"index:{i}": i for i in range(len(self.ids))}
        object.__setattr__(self, "_index_of", {**by_index, **{self.handle(i): i for i in range(len(self.ids))}})

    def handle(self, index: int) -> str:
        """Return what names the GPU to the outside: its UUID, else ``index:N``."""
        return self.uuids[index] or f"index:{index}"

    def handles(self, mask: int) -> tuple[str, ...]:
        """Return the handles of the GPUs in the mask, in index order."""
        return tuple(self.handle(i) for i in range(len(self.ids)) if mask >> i & 1)

    def mask_of(self, handles: Iterable[str]) -> int:
        """Return the mask of those of these GPUs that are on this node. A GPU that has a UUID goes by ``index:N``, too."""
        mask = 0
        for handle in handles:
            index = self._index_of.get(handle)
            if index is not None:
                mask |= 1 << index
        return mask


# Pod UID to the handles of all GPUs that the node's kubelet has given it.
InUse = Mapping[PodUid, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the API says of one node.

    `place` says where it is in the fabric. `resource` is empty and
    `allocatable` 0 on a node without GPUs. `machine` is None where the links
    are not known; `in_use` is None where no agent reports, or, with
    `in_use_unreadable`, where its report cannot be read. `findings` say
    what is wrong with the node's labels and documents. `cards` is what monitoring
    says of its GPUs: the cluster adds it.
    """

    name: str
    place: Place = NOWHERE
    resource: str = ""
    allocatable: int = 0
    machine: Machine | None = None
    in_use: InUse | None = None
    in_use_unreadable: bool = False
    findings: tuple[Finding, ...] = ()
    cards: Cards = NO_CARDS


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the API says of one pod that asks for GPUs.

    `node` is None while the pod is not bound. `gpus` is the parsed annotation
    ``pyscheduler.io/gpus`` (container to handles), None if absent or unreadable.
    `bound_at` is the Unix time in seconds of its binding, 0 if not known.
    `claimed` is true where the devices come from a resource claim. `membership` is that of a member of a group of pods;
    `settings` are its inputs, without the domain. `terminating` is true for a pod that is being deleted, `gated` for one
    that must not be scheduled yet. Of a member, `rank` is what its Binding gave it, None if there is none, and `host` the
    name by which others of its namespace reach it.
    """

    uid: PodUid
    namespace: str
    name: str
    scheduler: str
    containers: tuple[ContainerRequest, ...]
    node: str | None = None
    finished: bool = False
    gpus: Mapping[str, tuple[str, ...]] | None = None
    bound_at: float = 0.0
    claimed: bool = False
    priority: int = 0
    terminating: bool = False
    gated: bool = False
    membership: Membership | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    host: str = ""

    @property
    def gang(self) -> bool:
        """Whether it is a member of a group of pods."""
        return self.membership is not None


def binding_order(pod: PodFacts) -> tuple[float, PodUid]:
    """Return the sort key by which pods are told: of two that name one GPU, the earlier bound keeps it.

    A Binding always dates a pod. One without a date was given its node by its maker: it comes last.
    """
    return pod.bound_at or math.inf, pod.uid

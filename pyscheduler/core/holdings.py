"""One pod's hold on GPUs of one node, as a value."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pyscheduler.core.model import Attempt, PodUid

__all__ = ["Holding", "HoldingState"]


class HoldingState(enum.Enum):
    """Why GPUs are not free."""

    # Chosen at Reserve; the Binding has not been seen yet.
    RESERVED = "reserved"
    # The answer to the Binding was lost: bound or not, nobody knows yet.
    DOUBTFUL = "doubtful"
    # Seen bound, with GPUs that we chose or that the agent reports.
    BOUND = "bound"
    # Preemption makes room for the pod: when those who have these GPUs are gone, they are for it.
    NOMINATED = "nominated"
    # The plan of the pod's group gives it these GPUs: it has them when it is reserved.
    PLANNED = "planned"
    # The pod is finished or gone; the node still holds its devices.
    RELEASING = "releasing"
    # Bound by others, or with an annotation that cannot be trusted: known by number only.
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Holding:
    """`gpus` are handles (see `Machine.handle`), empty where only their `count` is known.

    `node` is the index in the node table. `since` is in seconds, on the clock
    of the caller. `annotations` are what Reserve answered, for a repeated call.
    `priority`, `gang` and `terminating` are those of the pod. `listed`: the node's agent
    has reported its devices. `victims` are the pods that are
    evicted for a nominated one; `nominated_at` is since when GPUs are held for
    it, None if it is none, and stays while it is reserved. `rival` is the pod
    that was bound earlier and keeps a GPU that this one names, too. `plan` names the plan of the pod's group,
    if it was placed by one.
    """

    uid: PodUid
    namespace: str
    name: str
    node: int
    state: HoldingState
    count: int
    gpus: tuple[str, ...]
    since: float
    reason: str
    attempt: Attempt | None = None
    annotations: tuple[tuple[str, str], ...] = ()
    bound_at: float = 0.0
    priority: int = 0
    gang: bool = False
    terminating: bool = False
    listed: bool = False
    victims: tuple[PodUid, ...] = ()
    nominated_at: float | None = None
    rival: PodUid | None = None
    plan: str = ""

    @property
    def is_unbound(self) -> bool:
        """Whether it is a reservation whose Binding was not seen yet."""
        return self.state in (HoldingState.RESERVED, HoldingState.DOUBTFUL)

    @property
    def is_promised(self) -> bool:
        """Whether it is held for a pod that is not reserved: no Binding of its can land."""
        return self.state in (HoldingState.NOMINATED, HoldingState.PLANNED)

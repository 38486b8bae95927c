"""What is free on one node: derived from the API's facts and from who holds what.

Invariant: a `NodeState` is a function of (`NodeFacts`, holdings on the node).
It is computed anew when either changes and never edited.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyscheduler.core.device_table import Choice
from pyscheduler.core.holdings import Holding
from pyscheduler.core.model import InUse, Machine, NodeFacts
from pyscheduler.core.request import Shape

__all__ = ["ABSENT", "NodeState", "derive"]

Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodeState:
    """Capacity of one node at one moment.

    Attributes
    ----------
    present
        False once the Node object is gone.
    free
        GPUs that could be given out now.
    free_mask
        Which ones (bit i is GPU i of `facts.machine`). With `count_only`, those that nobody is known to hold.
    count_only
        It is not known which GPUs are free, only how many.
    held_mask
        GPUs that some pod is known to hold, by our books or by the agent's report.
    """

    facts: NodeFacts
    present: bool
    free: int
    free_mask: int
    count_only: bool
    held_mask: int

    def fits(self, shape: Shape) -> bool:
        """Return whether an empty node of this kind could take the shape: if not, no eviction helps."""
        return self.present and self.facts.resource == shape.resource and 0 < shape.gpus <= self.facts.allocatable

    def choose(self, gpus: int) -> Choice | None:
        """Return the best set of that many free GPUs, None if there is none or if it is not known which are free."""
        if self.count_only or self.facts.machine is None or gpus > self.free:
            return None
        return self.facts.machine.table.choose(self.free_mask, gpus)

    def key(self, shape: Shape) -> Key | None:
        """Return the rank of this node for the shape (smaller is better), None if it is not feasible.

        The order of the objective for one pod: nodes whose links are known
        first, then links, then the tightest node.
        """
        if not self.fits(shape) or shape.gpus > self.free:
            return None
        if self.count_only or self.facts.machine is None:
            return (1.0, float(self.free))
        choice = self.choose(shape.gpus)
        return (0.0, *choice.key, float(self.free)) if choice else None


ABSENT = NodeState(NodeFacts(name=""), present=False, free=0, free_mask=0, count_only=False, held_mask=0)


def derive(facts: NodeFacts, holdings: Collection[Holding]) -> NodeState:
    """Return what is free on a present node.

    Free by count is ``max(0, allocatable - held)``. Which GPUs are free is
    known unless a pod holds GPUs that cannot be located, or the kubelet offers
    fewer GPUs than the node's document shows as healthy.
    """
    if facts.machine is None:
        free = max(0, facts.allocatable - _held_by_count(facts, holdings))
        return NodeState(facts, present=True, free=free, free_mask=0, count_only=True, held_mask=0)
    held_mask, unlocated = _held_by_name(facts.machine, facts.in_use or {}, holdings)
    free_mask = facts.machine.healthy & ~held_mask
    by_count = max(0, facts.allocatable - unlocated - held_mask.bit_count())
    return NodeState(
        facts,
        present=True,
        free=min(free_mask.bit_count(), by_count),
        free_mask=free_mask,
        count_only=unlocated > 0 or facts.allocatable < facts.machine.healthy.bit_count(),
        held_mask=held_mask,
    )


def _held_by_name(machine: Machine, reported: InUse, holdings: Collection[Holding]) -> tuple[int, int]:
    """Return the mask of the GPUs that somebody is known to hold, and how many more are held that cannot be located."""
    held = {h.uid: h for h in holdings}
    mask = unlocated = 0
    for uid in held.keys() | reported.keys():
        handles = reported.get(uid, ())
        count, mine = (held[uid].count, held[uid].gpus) if uid in held else (len(handles), ())
        located = machine.mask_of(handles) | machine.mask_of(mine)
        mask |= located
        unlocated += max(0, count - located.bit_count())
    return mask, unlocated


def _held_by_count(facts: NodeFacts, holdings: Collection[Holding]) -> int:
    """Return how many GPUs are held on a node whose GPUs are not known by name."""
    counts = {uid: len(handles) for uid, handles in (facts.in_use or {}).items()}
    counts.update({h.uid: h.count for h in holdings})
    return sum(counts.values())

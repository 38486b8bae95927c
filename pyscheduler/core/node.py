"""What is free on one node: derived from the API's facts and from who holds what.

Invariant: a `NodeState` is a function of (`NodeFacts`, holdings on the node).
It is computed anew when either changes and never edited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from pyscheduler.core.fabric.slots import COUNT_ONLY, Supply
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import NO_LIMITS, UNKNOWN_MODEL
from pyscheduler.core.machine.choice import Choice, Offer
from pyscheduler.core.model import InUse, Machine, NodeFacts
from pyscheduler.core.request import Shape

__all__ = ["ABSENT", "NodeState", "derive", "model_names"]

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
        facts, limits = self.facts, shape.limits
        if not self.present or facts.resource != shape.resource or not 0 < shape.gpus <= facts.allocatable:
            return False
        if limits == NO_LIMITS:
            return True
        machine = facts.machine
        return machine is not None and machine.table.choose(machine.healthy, shape.gpus, limits, machine.healthy) is not None

    @property
    def kind(self) -> tuple[object, ...]:
        """What decides which pods fit here and how well: nodes of one kind offer the same."""
        machine = self.facts.machine
        what = (machine.table, machine.healthy) if machine else ()
        return self.present, self.facts.resource, self.facts.allocatable, self.free, self.free_mask, self.count_only, what

    def choose(self, shape: Shape) -> Choice | None:
        """Return the best set of free GPUs for the shape, None if there is none or if it is not known which are free.

        All of one model, where that is possible: the slowest sets the pace.
        """
        if self.count_only or self.facts.machine is None or shape.gpus > self.free:
            return None
        table, healthy = self.facts.machine.table, self.facts.machine.healthy
        if shape.limits == NO_LIMITS and (shape.gpus == 1 or not table.device_class.mixed):
            return table.choose(self.free_mask, shape.gpus)
        if table.device_class.mixed and shape.limits.model is None and shape.gpus > 1:
            models = model_names(table.device_class.known_models)
            alike = [table.choose(self.free_mask, shape.gpus, replace(shape.limits, model=each), healthy) for each in models]
            if known := [choice for choice in alike if choice is not None]:
                return min(known, key=lambda choice: choice.key)
        return table.choose(self.free_mask, shape.gpus, shape.limits, healthy)

    def supply(self, shape: Shape) -> Supply:
        """Return how many pods of the shape fit at one time, by the ring bandwidth that all of them have."""
        if not self.fits(shape):
            return ()
        if self.count_only or self.facts.machine is None:
            slots = self.free // shape.gpus if shape.limits == NO_LIMITS else 0
            return ((COUNT_ONLY, slots),) if slots else ()
        return _capped(self.offer(self.facts.machine, self.free_mask, shape).at, self.free // shape.gpus)

    @staticmethod
    def offer(machine: Machine, free_mask: int, shape: Shape) -> Offer:
        """Return how many pods of the shape fit into these GPUs of a machine, and which sets they get."""
        return machine.table.offer(free_mask, shape.gpus, shape.limits, machine.healthy if shape.limits.near_nic else None)

    def key(self, shape: Shape) -> Key | None:
        """Return the rank of this node for the shape (smaller is better), None if it is not feasible.

        The order of the objective for one pod: nodes whose links are known
        first, then links, then the tightest node.
        """
        if not self.fits(shape) or shape.gpus > self.free:
            return None
        if self.count_only or self.facts.machine is None:
            return (1.0, float(self.free)) if shape.limits == NO_LIMITS else None
        choice = self.choose(shape)
        return (0.0, *choice.key, float(self.free)) if choice else None


def _capped(supply: Supply, most: int) -> Supply:
    """Return the supply of a node that may give out fewer GPUs than are free there, one of them being sick and in use."""
    if not supply or supply[-1][1] <= most:
        return supply
    whole = [(ring, count) for ring, count in supply if count < most]
    ring = next(ring for ring, count in supply if count >= most)
    return (*whole, (ring, most)) if most else ()


def model_names(models: Iterable[str | None]) -> list[str]:
    """Return the distinct models, in order; those that are not known are one, `UNKNOWN_MODEL`."""
    return list(dict.fromkeys(model or UNKNOWN_MODEL for model in models))


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
    mask = unlocated = claims = 0
    holders = set()
    for held in holdings:
        holders.add(held.uid)
        located = machine.mask_of(held.gpus)
        if held.uid in reported:
            located |= machine.mask_of(reported[held.uid])
        mask |= located
        unlocated += max(0, held.count - located.bit_count())
        # What is held for a nominated pod may be what its victims still have.
        claims += located.bit_count() if held.state is not HoldingState.NOMINATED else 0
    for uid, handles in reported.items():
        if uid not in holders:
            located = machine.mask_of(handles)
            mask |= located
            unlocated += max(0, len(handles) - located.bit_count())
            claims += located.bit_count()
    # Of pods that are said to have one GPU, all but one have or get another, nobody knows which.
    return mask, unlocated + max(0, claims - mask.bit_count())


def _held_by_count(facts: NodeFacts, holdings: Collection[Holding]) -> int:
    """Return how many GPUs are held on a node whose GPUs are not known by name."""
    counts = {uid: len(handles) for uid, handles in (facts.in_use or {}).items()}
    counts.update({h.uid: h.count for h in holdings})
    return sum(counts.values())

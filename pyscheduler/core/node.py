"""What is free on one node: derived from the API's facts and from who holds what.

Invariant: a `NodeState` is a function of (`NodeFacts`, holdings on the node).
It is computed anew when either changes and never edited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from pyscheduler.core.cards import NO_CARDS
from pyscheduler.core.fabric.slots import COUNT_ONLY, Supply
from pyscheduler.core.fast_sets import fastest
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import UNKNOWN_MODEL, Capacity, Limits
from pyscheduler.core.machine.choice import Choice, Offer
from pyscheduler.core.model import InUse, Machine, NodeFacts
from pyscheduler.core.request import Shape

__all__ = ["ABSENT", "NodeState", "derive", "located", "model_names"]

Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodeState:
    """Capacity of one node at one moment.

    Attributes
    ----------
    present
        False once the Node object is gone.
    free
        GPUs that could be given out now, without those that are left out for their capacity.
    free_mask
        Which ones (bit i is GPU i of `facts.machine`). With `count_only`, those that nobody is known to hold.
    count_only
        It is not known which GPUs are free, only how many.
    held_mask
        GPUs that some pod is known to hold, by our books or by the agent's report.
    left_out
        How many more are free for pods that take cards which are left out for their capacity.
    left_out_mask
        Which cards that nobody is known to hold are left out.
    """

    facts: NodeFacts
    present: bool
    free: int
    free_mask: int
    count_only: bool
    held_mask: int
    left_out: int = 0
    left_out_mask: int = 0

    def fits(self, shape: Shape) -> bool:
        """Return whether an empty node of this kind could take the shape: if not, no eviction helps."""
        facts, limits = self.facts, shape.limits
        if not self.present or facts.resource != shape.resource:
            return False
        if not 0 < shape.gpus <= facts.allocatable - self._excluded(limits):
            return False
        if limits.admit_any_set:
            return True
        machine, healthy = facts.machine, self.healthy(limits)
        return machine is not None and machine.table.choose(healthy, shape.gpus, limits, healthy) is not None

    @property
    def kind(self) -> tuple[object, ...]:
        """What decides which pods fit here and how well: nodes of one kind offer the same."""
        facts = self.facts
        machine = facts.machine
        what = (machine.table, machine.healthy) if machine else ()
        base = self.present, facts.resource, facts.allocatable, self.free, self.free_mask, self.count_only, what
        if facts.cards is NO_CARDS:
            return base
        excluded = facts.cards.excluded & machine.healthy if machine else len(facts.cards.unlocated)
        paces = facts.cards.paces_of(self.free_mask | self.left_out_mask)
        return (*base, excluded, self.left_out, self.left_out_mask, paces) if excluded or paces else base

    def open_to(self, limits: Limits) -> tuple[int, int]:
        """Return how many GPUs are free for a pod with these limits, and which."""
        free, mask = self.free, self.free_mask
        if limits.takes_all:
            free, mask = free + self.left_out, mask | self.left_out_mask
        if limits.pace is not None and self.facts.machine is not None:
            mask &= self.facts.cards.within(limits.pace)
            free = min(free, mask.bit_count())
        return free, mask

    def healthy(self, limits: Limits) -> int:
        """Return which GPUs are there for a pod with these limits: those that are healthy, and not left out."""
        machine = self.facts.machine
        if machine is None:
            return 0
        return machine.healthy if limits.takes_all else machine.healthy & ~self.facts.cards.excluded

    def taking(self, mask: int, gpus: int) -> NodeState:
        """Return the node as it is when so many more GPUs are held, those of the mask if it is known which."""
        free = max(0, self.free - (gpus - (mask & self.left_out_mask).bit_count()))
        return replace(
            self,
            free=free,
            free_mask=self.free_mask & ~mask,
            held_mask=self.held_mask | mask,
            left_out=max(0, self.free + self.left_out - gpus - free),
            left_out_mask=self.left_out_mask & ~mask,
        )

    def choose(self, shape: Shape) -> Choice | None:
        """Return the best set of free GPUs for the shape, None if there is none or if it is not known which are free.

        All of one model, where that is possible: the slowest sets the pace. Of sets with equal links the fastest cards.
        """
        if shape.limits.capacity is Capacity.PREFER:
            strict, any_card = _strict_and_any(shape)
            return self.choose(strict) or self.choose(any_card)
        free, mask = self.open_to(shape.limits)
        if self.count_only or self.facts.machine is None or shape.gpus > free:
            return None
        table, cards, healthy = self.facts.machine.table, self.facts.cards, self.healthy(shape.limits)
        if table.device_class.mixed and shape.limits.model is None and shape.gpus > 1:
            models = model_names(table.device_class.known_models)
            limits = (replace(shape.limits, model=each) for each in models)
            alike = [fastest(table, cards, mask, shape.gpus, each, healthy) for each in limits]
            if known := [choice for choice in alike if choice is not None]:
                return min(known, key=lambda choice: (choice.key, cards.pace(choice.mask)))
        return fastest(table, cards, mask, shape.gpus, shape.limits, healthy)

    def supply(self, shape: Shape) -> Supply:
        """Return how many pods of the shape fit at one time, by the ring bandwidth that all of them have."""
        if not self.fits(shape):
            return ()
        free, mask = self.open_to(shape.limits)
        if self.count_only or self.facts.machine is None:
            slots = free // shape.gpus if shape.limits.admit_any_set else 0
            return ((COUNT_ONLY, slots),) if slots else ()
        return _capped(self.offer(self.facts.machine, mask, shape).at, free // shape.gpus)

    def offer(self, machine: Machine, free_mask: int, shape: Shape) -> Offer:
        """Return how many pods of the shape fit into these GPUs of the node's machine, and which sets they get."""
        healthy = self.healthy(shape.limits) if shape.limits.near_nic else None
        return machine.table.offer(free_mask, shape.gpus, shape.limits, healthy)

    def key(self, shape: Shape) -> Key | None:
        """Return the rank of this node for the shape (smaller is better), None if it is not feasible.

        The order of the objective for one pod: nodes whose links are known
        first, then links, then the faster cards, then the tightest node. For a pod that
        would rather have no card that is left out, nodes without one come before all.
        """
        if shape.limits.capacity is Capacity.PREFER:
            strict, any_card = map(self.key, _strict_and_any(shape))
            return (0.0, *strict) if strict else (1.0, *any_card) if any_card else None
        free, _ = self.open_to(shape.limits)
        if not self.fits(shape) or shape.gpus > free:
            return None
        if self.count_only or self.facts.machine is None:
            return (1.0, float(free)) if shape.limits.admit_any_set else None
        choice = self.choose(shape)
        return (0.0, *choice.key, float(self.facts.cards.pace(choice.mask)), float(free)) if choice else None

    def _excluded(self, limits: Limits) -> int:
        """Return how many of the GPUs that the kubelet offers are left out for a pod with these limits."""
        cards, machine = self.facts.cards, self.facts.machine
        if cards is NO_CARDS or limits.takes_all:
            return 0
        return (cards.excluded & machine.healthy).bit_count() if machine else len(cards.unlocated)


def _strict_and_any(shape: Shape) -> tuple[Shape, Shape]:
    """Return the shapes of a pod that takes no card which is left out, and of one that takes any."""
    strict, any_card = (replace(shape.limits, capacity=each) for each in (Capacity.REQUIRE, Capacity.IGNORE))
    return replace(shape, limits=strict), replace(shape, limits=any_card)


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
        unheld = max(0, facts.allocatable - _held_by_count(facts, holdings))
        free = max(0, unheld - _left_out_by_count(facts, holdings))
        return NodeState(facts, present=True, free=free, free_mask=0, count_only=True, held_mask=0, left_out=unheld - free)
    return located(facts, *_held_by_name(facts.machine, facts.in_use or {}, holdings))


def located(facts: NodeFacts, held_mask: int, unlocated: int = 0) -> NodeState:
    """Return what is free on a node with a machine when these GPUs are held, and so many more that cannot be located.

    Of those that cannot be located it is taken that they are none which is left out.
    """
    assert facts.machine is not None
    healthy = facts.machine.healthy
    unheld = healthy & ~held_mask
    left_out_mask = unheld & facts.cards.excluded
    free_mask = unheld & ~left_out_mask
    by_count = max(0, facts.allocatable - unlocated - held_mask.bit_count())
    free = min(free_mask.bit_count(), max(0, by_count - left_out_mask.bit_count()))
    return NodeState(
        facts,
        present=True,
        free=free,
        free_mask=free_mask,
        count_only=unlocated > 0 or facts.allocatable < healthy.bit_count(),
        held_mask=held_mask,
        left_out=min(unheld.bit_count(), by_count) - free,
        left_out_mask=left_out_mask,
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


def _left_out_by_count(facts: NodeFacts, holdings: Collection[Holding]) -> int:
    """Return how many cards that nobody is known to hold are left out on a node whose GPUs are not known."""
    unlocated = facts.cards.unlocated
    if not unlocated:
        return 0
    held = {gpu for held in holdings for gpu in held.gpus} | {gpu for gpus in (facts.in_use or {}).values() for gpu in gpus}
    return len(unlocated - held)

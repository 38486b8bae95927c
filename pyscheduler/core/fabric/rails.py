"""Which GPUs of nodes that are chosen: the best of each, on the same local indices on all nodes where that costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyscheduler.core.answer import worth_of
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape

__all__ = ["rails"]


def rails(states: Sequence[NodeState], pods: Sequence[int], shape: Shape, floor: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of each node, a mask for each pod; 0 where it is not known which GPUs are free.

    Parameters
    ----------
    states, pods
        The nodes, and how many pods each gets.
    shape
        What a pod asks for.
    floor
        MB/s that the ring of each set has at least.

    """
    common = ~0
    for state in states:
        common &= state.open_to(shape.limits)[1]
    # Nodes of a gang are often alike.
    picked: dict[tuple[object, ...], tuple[int, ...]] = {}
    for state, count in zip(states, pods, strict=True):
        machine = state.facts.machine
        free_mask = state.open_to(shape.limits)[1]
        alike = machine and (machine.table, machine.healthy), free_mask, state.facts.cards, state.count_only, count
        if alike not in picked:
            picked[alike] = _picked(state, count, shape, floor, common if len(states) > 1 else free_mask)
        yield picked[alike]


def _picked(state: NodeState, pods: int, shape: Shape, floor: int, preferred: int) -> tuple[int, ...]:
    machine = state.facts.machine
    if machine is None or state.count_only:
        return (0,) * pods
    if pods == 1 and floor == 0:
        choice = state.choose(shape)
        return (choice.mask,) if choice else (0,)
    free_mask = state.open_to(shape.limits)[1]
    best = state.offer(machine, free_mask, shape).pick(pods, floor)

    def as_good(mask: int) -> tuple[int, ...]:
        """Return sets of these GPUs alone that are worth as much as the best, none if there are none."""
        offer = state.offer(machine, mask, shape)
        if _room(offer.at, floor) < pods:
            return ()
        found = offer.pick(pods, floor)
        return found if worth_of(machine.table, sum(found)).key == worth_of(machine.table, sum(best)).key else ()

    # Those of the fastest cards, and of these those that the other nodes have, too.
    fast = next(filter(as_good, [free_mask & within for _, within in state.facts.cards.paces]), free_mask)
    best = as_good(fast) if fast != free_mask else best
    return as_good(preferred & fast) or best if preferred & fast != free_mask else best


def _room(at: Sequence[tuple[int, int]], floor: int) -> int:
    return max((count for ring, count in at if ring >= floor), default=0)

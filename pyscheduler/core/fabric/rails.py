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
        common &= state.free_mask
    # Nodes of a gang are often alike.
    picked: dict[tuple[object, ...], tuple[int, ...]] = {}
    for state, count in zip(states, pods, strict=True):
        machine = state.facts.machine
        alike = machine and (machine.table, machine.healthy), state.free_mask, state.count_only, count
        if alike not in picked:
            picked[alike] = _picked(state, count, shape, floor, common if len(states) > 1 else state.free_mask)
        yield picked[alike]


def _picked(state: NodeState, pods: int, shape: Shape, floor: int, preferred: int) -> tuple[int, ...]:
    machine = state.facts.machine
    if machine is None or state.count_only:
        return (0,) * pods
    if pods == 1 and floor == 0:
        choice = state.choose(shape)
        return (choice.mask,) if choice else (0,)
    best = state.offer(machine, state.free_mask, shape).pick(pods, floor)
    aligned = state.offer(machine, preferred, shape)
    if preferred != state.free_mask and _room(aligned.at, floor) >= pods:
        same = aligned.pick(pods, floor)
        if worth_of(machine.table, sum(same)).key == worth_of(machine.table, sum(best)).key:
            return same
    return best


def _room(at: Sequence[tuple[int, int]], floor: int) -> int:
    return max((count for ring, count in at if ring >= floor), default=0)

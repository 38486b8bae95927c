"""What an eviction costs: a tuple that orders evictions, smaller is better.

In this order: pods that a PodDisruptionBudget protects, the highest priority among the victims, the sum of their
priorities, their number, then how long they run (those that started last lose least). Kubernetes orders candidates alike
(framework/preemption, pickOneNodeForPreemption).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

__all__ = ["LOWEST", "NO_COST", "Cost", "plus", "total"]

Cost = tuple[int, int, int, int, float]

# Priorities are 32-bit; counted from the lowest, so that each pod more makes a sum larger.
LOWEST: Final = -(1 << 31)
# Nobody goes: no priority is as low.
NO_COST: Final[Cost] = (0, LOWEST - 1, 0, 0, 0.0)


def plus(some: Cost, other: Cost) -> Cost:
    """Return what both evictions cost together."""
    first = other if some[1] < other[1] else some
    start = max(some[4], other[4]) if some[1] == other[1] else first[4]
    return some[0] + other[0], first[1], some[2] + other[2], some[3] + other[3], start


def total(costs: Iterable[Cost]) -> Cost:
    """Return what all of them cost together."""
    return reduce(plus, costs, NO_COST)

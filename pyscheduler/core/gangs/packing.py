"""Which domain takes which blocks of pods: into few domains, or evenly over many. Numbers only.

A block is a subgroup, or a single pod; it is never split. For blocks of one size, and one smaller one, a place is found
exactly when there is one. Of others the largest are packed first, which may miss a tight fit.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["pack", "spread"]

Ints = npt.NDArray[np.int64]


def pack(sizes: Sequence[int], room: Ints, *, alone: bool = False) -> list[int] | None:
    """Return the domain of each block, in as few domains as possible, the tightest of them; None if there is no room.

    Parameters
    ----------
    sizes
        Pods of each block, in the order of their ranks.
    room
        Pods that each domain has room for, in the order of the merge tree, shape (domains,).
    alone
        No two blocks in one domain.

    """
    left, taken = Counter(sizes), dict[int, Counter[int]]()
    free: dict[int, deque[int]] = defaultdict(deque)
    for domain in np.flatnonzero(room >= min(sizes)).tolist():
        free[int(room[domain])].append(domain)
    while left:
        loads = {pods: _load(left, pods, alone=alone) for pods in free}
        # What takes the most takes all that is left, if anything does.
        best = min(loads, key=lambda pods: (-_pods(loads[pods]), pods), default=None)
        if best is None or not loads[best]:
            return None
        taken[free[best].popleft()] = loads[best]
        left -= loads[best]
        if not free[best]:
            del free[best]
    return _in_order(sizes, taken)


def spread(sizes: Sequence[int], room: Ints, over: Ints, *, alone: bool = False) -> list[int] | None:
    """Return the domain of each block, the blocks evenly over the wider domains that hold these; None if there is no room.

    Parameters
    ----------
    sizes, room, alone
        As for `pack`.
    over
        Number of the wider domain that each domain is in, from 0, shape (domains,).

    """
    room, taken = room.copy(), defaultdict[int, Counter[int]](Counter)
    totals = np.bincount(over, room)
    counts = np.zeros(len(totals), np.int64)
    for size in sorted(sizes, reverse=True):
        able = np.flatnonzero(room >= size)
        if not len(able):
            return None
        wider = over[able]
        at = int(able[np.lexsort((able, room[able], wider, totals[wider], counts[wider]))[0]])
        taken[at][size] += 1
        counts[over[at]] += 1
        room[at] = 0 if alone else room[at] - size
    return _in_order(sizes, taken)


def _load(left: Counter[int], room: int, *, alone: bool) -> Counter[int]:
    """Return how many blocks of each size go into a domain, the largest first."""
    load = Counter[int]()
    for size in sorted(left, reverse=True):
        if count := min(left[size], room // size):
            load[size] = 1 if alone else count
            room -= size * count
            if alone:
                break
    return load


def _pods(load: Counter[int]) -> int:
    return sum(size * count for size, count in load.items())


def _in_order(sizes: Sequence[int], taken: dict[int, Counter[int]]) -> list[int]:
    """Return the domain of each block: of equal ones the first ranks go to the first domains."""
    places: dict[int, deque[int]] = defaultdict(deque)
    for domain in sorted(taken):
        for size, count in taken[domain].items():
            places[size] += [domain] * count
    return [places[size].popleft() for size in sizes]

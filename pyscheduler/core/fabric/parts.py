"""Over which parts of a domain a job is spread: the fewest, then those on whose nodes least is left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.fabric.merge_tree import MergeTree

__all__ = ["cheapest_nodes", "fewest_parts", "largest_parts"]

Ints = npt.NDArray[np.int64]

# Sets of parts that are compared before the search falls back to more of the largest ones.
_SETS_MAX: Final = 2000
# A domain costs more than all that its nodes do, and one of the next tier more than so many of this one.
_DOMAIN: Final = 1 << 24
_BITS: Final = 8


def fewest_parts(covers: Ints, needs: Ints, most: int) -> list[list[int]]:
    """Return sets of the fewest parts that carry everything together, at most so many, those of the largest parts first.

    Parameters
    ----------
    covers
        By part and test, how many of its nodes carry one of the test's counts, shape (parts, tests); see `core.fabric.carrying`.
    needs
        By test, how many must.
    most
        How many sets to return.

    """
    keys = tuple(-column for column in covers.T)
    largest = np.lexsort((np.arange(len(covers)), *keys))
    reach = np.cumsum(-np.sort(-covers, axis=0), axis=0)
    least = int((reach < needs).sum(axis=0).max()) + 1
    for size in range(least, len(covers)):
        sets = largest[np.array(list(islice(combinations(range(len(covers)), size), _SETS_MAX)))]
        fitting = sets[(covers[sets].sum(axis=1) >= needs).all(axis=1)]
        if len(fitting):
            found: list[list[int]] = fitting[:most].tolist()
            return found
    return [largest.tolist()]


def largest_parts(rooms: Ints, nodes: int) -> list[tuple[int, int]]:
    """Return the fewest parts that have so many nodes, as (part, nodes there): the largest, and the smallest that suffices.

    Parameters
    ----------
    rooms
        Nodes of each part.
    nodes
        At least 1, and no more than all parts have.

    """
    largest = np.argsort(-rooms, kind="stable")
    count = int(np.searchsorted(np.cumsum(rooms[largest]), nodes)) + 1
    left = nodes - int(rooms[largest[: count - 1]].sum())
    fitting = [at for at in largest[count - 1 :].tolist() if rooms[at] >= left]
    last = min(fitting, key=lambda at: (int(rooms[at]), at))
    return [*((at, int(rooms[at])) for at in largest[: count - 1].tolist()), (last, left)]


def cheapest_nodes(tree: MergeTree, vertex: int, costs: Mapping[int, int], nodes: int) -> tuple[int, ...]:
    """Return so many positions below the vertex: over the fewest domains of each tier, the widest first, at the least cost.

    A dynamic programme from the nodes up; its time grows with the square of the number of positions.

    Parameters
    ----------
    tree, vertex
        The domain.
    costs
        Cost of each position that may be taken.
    nodes
        At most as many as there are costs.

    """
    return _cheapest(tree, vertex, costs, nodes)[nodes][1]


def _cheapest(tree: MergeTree, vertex: int, costs: Mapping[int, int], most: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return for each number of nodes the least cost, and the positions. Each domain used costs more than all below it."""
    tier = int(tree.tier[vertex])
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for part in tree.parts(vertex)[0]:
        if part.vertex is None or part.vertex == vertex:
            for at in (position for position in range(part.low, part.high) if position in costs):
                best = _joined(best, [(0, ()), (costs[at] + _dues(0, tier), (at,))], most)
            continue
        dues = _dues(int(tree.tier[part.vertex]), tier)
        below = _cheapest(tree, part.vertex, costs, most)
        best = _joined(best, [below[0], *((cost + dues, chosen) for cost, chosen in below[1:])], most)
    return best


def _dues(low: int, high: int) -> int:
    """Return what it costs to use one domain of each tier from `low` to before `high`."""
    return sum(_DOMAIN << _BITS * tier for tier in range(low, high))


def _joined(
    some: Sequence[tuple[int, tuple[int, ...]]], more: Sequence[tuple[int, tuple[int, ...]]], most: int
) -> list[tuple[int, tuple[int, ...]]]:
    found: list[tuple[int, tuple[int, ...]]] = list(some)
    for extra, (cost, chosen) in enumerate(more[1:], 1):
        for count, (before, taken) in enumerate(some[: most + 1 - extra]):
            total = before + cost, (*taken, *chosen)
            if count + extra == len(found):
                found.append(total)
            elif total[0] < found[count + extra][0]:
                found[count + extra] = total
    return found

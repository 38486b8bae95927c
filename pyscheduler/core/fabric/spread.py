"""Which nodes of a domain a job takes, and how many of its pods each gets.

In this order: fewest nodes; balanced counts; the links of the worst node's set; fewest inner domains; least left over on
the nodes; the order of the tree. Where the inner domains are NVLink domains they get equal segments.

The counts are fixed first: the fewest nodes are the largest, and the most balanced counts on these are the best that any
such choice can have. What is chosen then is which nodes carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyscheduler.core.fabric.carrying import KINDS_MAX, Demand
from pyscheduler.core.fabric.filling import Filling, Share
from pyscheduler.core.fabric.merge_tree import NVLINK_LEVEL, MergeTree

__all__ = ["Share", "Spread", "Spreader", "balanced", "nodes_needed"]

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the pods of a job go within a domain.

    Attributes
    ----------
    shares
        In the order of the tree.
    key
        Orders spreads over as many nodes, smaller is better: balance, links of the worst node, inner domains, GPUs left over.
    """

    shares: tuple[Share, ...]
    key: tuple[int, ...]


def nodes_needed(histogram: Ints, pods: int) -> Ints:
    """Return how many nodes hold the pods, the largest first, by row of the histogram; a row that cannot gets more than it has.

    Parameters
    ----------
    histogram
        How many nodes have each number of slots, shape (rows, most + 1).
    pods
        At least 1.

    """
    left = np.full(len(histogram), pods, np.int64)
    nodes = np.zeros(len(histogram), np.int64)
    for slots in range(histogram.shape[1] - 1, 0, -1):
        taken = np.minimum(histogram[:, slots], -(-left // slots))
        nodes += taken
        left = np.maximum(left - taken * slots, 0)
    return nodes + left


def balanced(slots: Sequence[int], pods: int) -> list[int]:
    """Return the most balanced counts on nodes of these slots (falling), falling."""
    counts = []
    for at in range(len(slots) - 1, -1, -1):
        count = min(slots[at], pods // (at + 1))
        counts.append(count)
        pods -= count
    return sorted(counts, reverse=True)


class Spreader:
    """Spreads a job over one domain.

    Parameters
    ----------
    tree
        The merge tree.
    slots
        Slots of each position at the grade that the job gets, shape (nodes,).
    free
        Free GPUs of each position, shape (nodes,).
    gpus
        GPUs of each pod.
    kind
        A number for the state of each position: nodes of one kind offer the same, shape (nodes,).
    worth
        (kind, pods) to the ring bandwidth of all GPUs that so many pods get there together.

    """

    def __init__(
        self, tree: MergeTree, slots: Ints32, free: Ints32, gpus: int, kind: Ints32, worth: Callable[[int, int], int]
    ) -> None:
        self._tree = tree
        self._slots = slots
        self._free = free
        self._gpus = gpus
        self._kind = kind
        self._worth = worth

    def over(self, vertex: int, pods: int) -> Spread:
        """Return the best spread. The vertex has room for the pods."""
        low, high = int(self._tree.low[vertex]), int(self._tree.high[vertex])
        largest = np.sort(self._slots[low:high])[::-1]
        nodes = int(np.searchsorted(np.cumsum(largest), pods)) + 1
        demand, signatures = self._able(low, high, balanced(largest[:nodes].tolist(), pods))
        best = self._spread(vertex, Filling(self._tree, self._free, demand, signatures, low).below(vertex, demand.times))
        segments = self._segments(vertex, pods)
        if segments is not None and len(segments) == nodes:
            # Equal segments are worth more than what is left over, and less than all before it.
            equal = self._spread(vertex, segments)
            return equal if equal.key[:-1] <= best.key[:-1] else best
        return best

    def _spread(self, vertex: int, given: Iterable[Share]) -> Spread:
        shares = tuple(sorted(given, key=lambda share: share.position))
        positions = np.array([share.position for share in shares])
        pods = [share.pods for share in shares]
        # Nodes of a gang are often alike.
        alike = set(zip(self._kind[positions].tolist(), pods, strict=True))
        worst = min(self._worth(kind, count) for kind, count in alike)
        left = int(self._free[positions].sum()) - sum(pods) * self._gpus
        return Spread(shares, (*(-count for count in sorted(pods)), -worst, self._inner(vertex, positions), left))

    def _segments(self, vertex: int, pods: int) -> list[Share] | None:
        """Return equal segments over the fewest NVLink domains; None where these are not what lies below, or do not suffice."""
        children = self._tree.children(vertex)
        if not len(children) or self._tree.levels[int(self._tree.tier[children[0]])] != NVLINK_LEVEL:
            return None
        room = np.array([int(self._slots[self._tree.low[child] : self._tree.high[child]].sum()) for child in children])
        largest = np.argsort(-room, kind="stable")
        needed = int(np.searchsorted(np.cumsum(room[largest]), pods)) + 1
        if needed > len(children):
            return None
        chosen = largest[:needed]
        parts = balanced(room[chosen].tolist(), pods)
        return [share for at, part in zip(chosen, parts, strict=True) for share in self.over(int(children[at]), part).shares]

    def _able(self, low: int, high: int, counts: Sequence[int]) -> tuple[Demand, Ints]:
        """Return which positions can carry which counts with the best links of the worst node that are possible."""
        nested = Demand(counts, nested=True)
        plain = [self._slots[low:high] >= count for count in nested.kinds]
        worth = [self._worths(low, high, able, count) for able, count in zip(plain, nested.kinds, strict=True)]
        steps = np.unique(np.concatenate([each[able] for each, able in zip(worth, plain, strict=True)]))
        if len(steps) == 1 or len(plain) > KINDS_MAX:
            return nested, _signed(plain)
        demand = Demand(counts, nested=False)
        first, last = 0, len(steps) - 1
        while first < last:
            middle = (first + last + 1) // 2
            if demand.fits(demand.covers(_above(plain, worth, int(steps[middle])))):
                first = middle
            else:
                last = middle - 1
        return demand, _above(plain, worth, int(steps[first]))

    def _worths(self, low: int, high: int, able: Flags, count: int) -> Ints:
        found = np.full(high - low, -2, np.int64)
        kinds = self._kind[low:high][able]
        if len(kinds) and (kinds == kinds[0]).all():
            found[able] = self._worth(int(kinds[0]), count)
        elif len(kinds):
            distinct, back = np.unique(kinds, return_inverse=True)
            found[able] = np.array([self._worth(kind, count) for kind in distinct.tolist()], np.int64)[back]
        return found

    def _inner(self, vertex: int, positions: Ints) -> int:
        """Return how many parts of the vertex, domains right below it or nodes, have some of these positions."""
        parts, starts = self._tree.parts(vertex)
        if parts[0].vertex == vertex:
            return len(positions)
        return len(set(np.searchsorted(starts, positions, side="right").tolist()))


def _signed(able: Sequence[Flags]) -> Ints:
    """Return the signature of each position."""
    found = np.zeros(len(able[0]), np.int64)
    for kind, flags in enumerate(able):
        found |= flags.astype(np.int64) << kind
    return found


def _above(plain: Sequence[Flags], worth: Sequence[Ints], step: int) -> Ints:
    return _signed([able & (each >= step) for able, each in zip(plain, worth, strict=True)])

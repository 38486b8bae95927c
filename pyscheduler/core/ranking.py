"""The nodes in order of preference for one request shape, kept up to date.

Nodes with equal keys share a bucket (a bitmap), so a decision walks a few
buckets and not all nodes, and one changed node touches two of them.

Invariant: every node with a key is in exactly the bucket of that key, and
`feasible` is the union of all buckets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core import bitmap
from pyscheduler.core.kinds import Kinds
from pyscheduler.core.node import Key
from pyscheduler.core.request import Shape

__all__ = ["Rank", "Ranking"]

Rank = Callable[[NDArray[np.intp]], NDArray[np.int64]]

# Whether an empty node could take the shape, and the key, None if it does not fit now.
_Worth = tuple[bool, Key | None]

# What a node is taken for before it is told of: no bit of it is set.
_UNKNOWN: Final[_Worth] = (True, None)


class Ranking:
    """Concurrency contract: one writer; readers hold the same lock."""

    def __init__(self, shape: Shape, kinds: Kinds) -> None:
        self.shape = shape
        self.feasible = 0
        # Nodes that could not take the shape even if they were empty.
        self.unresolvable = 0
        self._kinds = kinds
        # By kind: whether an empty node could take the shape, and the key.
        self._worth: dict[int, _Worth] = {}
        self._of_node: list[_Worth] = []
        self._buckets: dict[Key, int] = {}
        self._order: list[Key] = []

    def update(self, node: int, kind: int) -> None:
        """Give the node the place that its kind deserves."""
        new = self._worth.get(kind)
        if new is None:
            state = self._kinds.example(kind)
            new = self._worth[kind] = state.fits(self.shape), state.key(self.shape)
        while node >= len(self._of_node):
            self._of_node.append(_UNKNOWN)
        old = self._of_node[node]
        if old == new:
            return
        self._of_node[node] = new
        bit = 1 << node
        # `old` says which bits are set.
        if old[0] != new[0]:
            self.unresolvable ^= bit
        if old[1] != new[1]:
            self._move(bit, old[1], new[1])

    def best(self, among: int, limit: int, rank: Rank) -> list[int]:
        """Return at most `limit` feasible nodes of the set, best first.

        Parameters
        ----------
        among
            The set of nodes to choose from.
        limit
            How many to return.
        rank
            Breaks ties: a number for each of some nodes, smaller first, no two alike.

        """
        chosen: list[int] = []
        for members in self._walk(among):
            nodes = bitmap.indices(members)
            room = limit - len(chosen)
            ranks = rank(nodes)
            if len(nodes) > room:
                nearest = np.argpartition(ranks, room - 1)[:room]
                nodes, ranks = nodes[nearest], ranks[nearest]
            chosen.extend(nodes[np.argsort(ranks)].tolist())
            if len(chosen) == limit:
                break
        return chosen

    def _walk(self, among: int) -> Iterator[int]:
        for key in self._order:
            members = self._buckets[key] & among
            if members:
                yield members

    def _move(self, bit: int, old: Key | None, new: Key | None) -> None:
        if old is not None:
            self._buckets[old] ^= bit
            if not self._buckets[old]:
                del self._buckets[old]
                del self._order[bisect_left(self._order, old)]
        if new is not None:
            if new not in self._buckets:
                insort(self._order, new)
                self._buckets[new] = 0
            self._buckets[new] |= bit
        if (old is None) != (new is None):
            self.feasible ^= bit

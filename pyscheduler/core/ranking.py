"""The nodes in order of preference for one request shape, kept up to date.

Nodes with equal keys share a bucket (a bitmap), so a decision walks a few
buckets and not all nodes, and one changed node touches two of them.

Invariant: every node with a key is in exactly the bucket of that key, and
`feasible` is the union of all buckets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core import bitmap
from pyscheduler.core.node import Key, NodeState
from pyscheduler.core.request import Shape

__all__ = ["Rank", "Ranking"]

Rank = Callable[[NDArray[np.intp]], NDArray[np.int64]]


class Ranking:
    """Concurrency contract: one writer; readers hold the same lock."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.feasible = 0
        # Nodes that could not take the shape even if they were empty.
        self.unresolvable = 0
        self._buckets: dict[Key, int] = {}
        self._order: list[Key] = []
        self._keys: dict[int, Key] = {}

    def update(self, node: int, state: NodeState) -> None:
        """Give the node the place that its state deserves."""
        bit = 1 << node
        self.unresolvable = self.unresolvable & ~bit if state.fits(self.shape) else self.unresolvable | bit
        old, new = self._keys.get(node), state.key(self.shape)
        if old == new:
            return
        if old is not None:
            self._remove(node, old)
        if new is not None:
            self._insert(node, new)

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

    def _insert(self, node: int, key: Key) -> None:
        if key not in self._buckets:
            insort(self._order, key)
            self._buckets[key] = 0
        self._buckets[key] |= 1 << node
        self._keys[node] = key
        self.feasible |= 1 << node

    def _remove(self, node: int, key: Key) -> None:
        self._buckets[key] &= ~(1 << node)
        if not self._buckets[key]:
            del self._buckets[key]
            del self._order[bisect_left(self._order, key)]
        del self._keys[node]
        self.feasible &= ~(1 << node)

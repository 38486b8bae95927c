"""How full the domains round a node are: of equal nodes, that in the fullest domain comes first, so that others stay whole.

One number per node orders them all: free GPUs of its nearest domain, then of the
next wider one, then its place in the total order. Changed nodes move the numbers
of the nodes of their domains when these are next asked for, by one addition for
each domain.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.fabric.place import Domain

__all__ = ["Tightness"]

Ints = npt.NDArray[np.int64]

# Places of the parts of the number: the order takes the lowest 22 bits, the next wider domain 21, the nearest one 20.
_SECOND: Final = 22
_FIRST: Final = 43
# What counts for nodes that are in no such domain: they come last.
_NO_DOMAIN: Final = (1 << 20) - 1
# Free GPUs of one node count up to here, so that the parts keep to their places: no node has more, and a domain of
# 16,000 such nodes is still in bounds.
_NODE_MAX: Final = 64


class Tightness:
    """Free GPUs of every domain, as an order of all nodes."""

    def __init__(self) -> None:
        self._paths: list[Domain] = []
        self._free: list[int] = []
        self._rank = np.zeros(0, np.int64)
        # By node its nearest and its next wider domain; by domain the nodes whose number it is part of.
        self._domains: list[tuple[int, int]] = []
        self._members: list[Ints] = []
        # By domain: what its free GPUs add to the number of a node, where that is not done yet.
        self._pending: dict[int, int] = {}
        self._order: npt.NDArray[np.intp] | None = None

    def move(self, node: int, path: Domain) -> None:
        """Note where the node is."""
        while node >= len(self._paths):
            self._paths.append(())
            self._free.append(0)
            self._order = None
        if self._paths[node] != path:
            self._paths[node] = path
            self._order = None

    def change(self, node: int, free: int) -> None:
        """Note how many GPUs of the node are free."""
        counted = min(free, _NODE_MAX)
        more = counted - self._free[node]
        if more:
            self._free[node] = counted
            if self._order is not None:
                first, second = self._domains[node]
                self._pending[first] = self._pending.get(first, 0) + (more << _FIRST)
                self._pending[second] = self._pending.get(second, 0) + (more << _SECOND)

    def ranks(self, nodes: npt.NDArray[np.intp], order: npt.NDArray[np.intp]) -> Ints:
        """Return a number for each of these nodes, the smallest for the one that comes first.

        Parameters
        ----------
        nodes
            Indices of nodes, shape (n,).
        order
            Position of every node in the total order, shape (all nodes,).

        """
        if self._order is not order:
            self._lay_out(order)
        for domain, more in self._pending.items():
            self._rank[self._members[domain]] += more
        self._pending.clear()
        return self._rank[nodes]

    def _lay_out(self, order: npt.NDArray[np.intp]) -> None:
        """Make the numbers anew: a node came or moved."""
        free = np.array(self._free, np.int64)
        rank = order.astype(np.int64)
        self._members, numbers = [], []
        for depth, place in ((0, _FIRST), (1, _SECOND)):
            domains = [path[depth:] for path in self._paths]
            members: dict[Domain, list[int]] = {}
            for node, domain in enumerate(domains):
                members.setdefault(domain, []).append(node)
            number_of = {domain: len(self._members) + at for at, domain in enumerate(members)}
            for domain, inside in members.items():
                nodes = np.array(inside, np.int64)
                rank[nodes] += (int(free[nodes].sum()) if domain else _NO_DOMAIN) << place
                # Being in no domain stays the same.
                self._members.append(nodes if domain else nodes[:0])
            numbers.append([number_of[domain] for domain in domains])
        self._domains = list(zip(*numbers, strict=True))
        self._pending.clear()
        self._rank, self._order = rank, order

"""How full the domains round a node are: of equal nodes, that in the fullest domain comes first, so that others stay whole.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyscheduler.core.place import Domain

__all__ = ["Tightness"]

Ints = npt.NDArray[np.int64]

# Bits for the order, and for the free GPUs of the second nearest domain: together with those of the nearest one they
# make one number. Enough for 4 million nodes, and as many GPUs in a domain; more count as this many.
_ORDER_BITS = 22
_SECOND_BITS = 21
_MOST = (1 << 20) - 1


class Tightness:
    """Free GPUs of every domain, and the two nearest domains of every node."""

    def __init__(self) -> None:
        # The whole cluster is domain 0.
        self._numbers: dict[Domain, int] = {(): 0}
        self._free = np.zeros(64, np.int64)
        self._nearest = np.zeros((64, 2), np.int64)
        self._paths: dict[int, Domain] = {}
        self._chains: dict[Domain, list[int]] = {(): [0]}
        self._of_node = np.zeros(64, np.int64)

    def move(self, node: int, path: Domain) -> None:
        """Note where the node is."""
        if self._paths.get(node) == path:
            return
        free = self._remembered(node)
        self.change(node, 0)
        self._paths[node] = path
        chain = self._chain(path)
        while node >= len(self._nearest):
            self._nearest = np.pad(self._nearest, ((0, len(self._nearest)), (0, 0)))
        self._nearest[node] = chain[0], chain[min(1, len(chain) - 1)]
        self.change(node, free)

    def change(self, node: int, free: int) -> None:
        """Note how many GPUs of the node are free."""
        before = self._remembered(node)
        if free != before:
            self._free[self._chain(self._paths.get(node, ()))] += free - before
            self._of_node[node] = free

    def ranks(self, nodes: npt.NDArray[np.intp], order: npt.NDArray[np.intp]) -> Ints:
        """Return a number for each of these nodes, the smallest for the one that comes first.

        Parameters
        ----------
        nodes
            Indices of nodes, shape (n,).
        order
            Position of every node in the total order, shape (all nodes,).

        """
        near = np.minimum(self._free[self._nearest[nodes]], _MOST)
        ranks: Ints = near[:, 0] << (_ORDER_BITS + _SECOND_BITS) | near[:, 1] << _ORDER_BITS | order[nodes]
        return ranks

    def _remembered(self, node: int) -> int:
        while node >= len(self._of_node):
            self._of_node = np.pad(self._of_node, (0, len(self._of_node)))
        return int(self._of_node[node])

    def _chain(self, path: Domain) -> list[int]:
        """Return the numbers of the domains of a path, nearest first, the whole cluster last."""
        chain = self._chains.get(path)
        if chain is None:
            chain = [self._number(path[depth:]) for depth in range(len(path) + 1)]
            self._chains[path] = chain
        return chain

    def _number(self, domain: Domain) -> int:
        number = self._numbers.setdefault(domain, len(self._numbers))
        if number >= len(self._free):
            self._free = np.pad(self._free, (0, len(self._free)))
        return number

"""The node table: name to index, append-only within an epoch.

Invariant: an index never changes its name and is never reused. A node that
comes back under its old name gets its old index.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.fabric.place import Domain

__all__ = ["NodeTable"]


class NodeTable:
    """Concurrency contract: one writer; readers hold the same lock."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.names: list[str] = []
        self._index: dict[str, int] = {}
        self._paths: list[Domain] = []
        self._order: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def index_of(self, name: str) -> int | None:
        """Return the node's index, None if it was never seen."""
        return self._index.get(name)

    def place(self, name: str, path: Domain) -> int:
        """Return the node's index, new at the first sight, and note its path in the fabric."""
        index = self._index.setdefault(name, len(self.names))
        if index == len(self.names):
            self.names.append(name)
            self._paths.append(path)
            self._order = None
        elif self._paths[index] != path:
            self._paths[index] = path
            self._order = None
        return index

    def order(self) -> NDArray[np.intp]:
        """Return the position of each node in the total order (path from the outermost domain, name), shape (len(self),)."""
        if self._order is None:
            by_rank = sorted(range(len(self.names)), key=lambda i: (self._paths[i][::-1], self.names[i]))
            self._order = np.empty(len(by_rank), dtype=np.intp)
            self._order[by_rank] = np.arange(len(by_rank))
        return self._order

"""The nodes as the selector sees them: kinds by position of the merge tree, and live slots for each shape of pod.

Derived from what `touch` tells of each node; the tree is made anew when a node
comes, goes or moves, which is seldom.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from pyscheduler.core import bitmap
from pyscheduler.core.fabric.merge_tree import MergeTree, merge_tree
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.fabric.slots import SlotIndex, Slots, Supply
from pyscheduler.core.kinds import Kinds
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape

__all__ = ["INDEXES_MAX", "Fleet"]

Ints = npt.NDArray[np.int32]

# Shapes whose slots are kept up to date.
INDEXES_MAX = 32


class Fleet:
    """Views are by position of `tree()`; nodes that are not present have no slots."""

    def __init__(self, kinds: Kinds) -> None:
        self._numbers = kinds
        self._tree: MergeTree | None = None
        self._indexes: dict[Shape, SlotIndex] = {}
        # By node.
        self._names: list[str] = []
        self._places: list[Place] = []
        self._kind: list[int] = []
        self._free: list[int] = []
        # By position of the tree; the nodes that changed since are told apart.
        self._kinds = np.zeros(0, np.int32)
        self._frees = np.zeros(0, np.int32)
        self._dirty: set[int] = set()

    def place(self, node: int, name: str, place: Place) -> None:
        """Note where a node is; new nodes come in the order of their indices, and are told of by `touch`, too."""
        while len(self._names) <= node:
            self._names.append("")
            self._places.append(NOWHERE)
            self._kind.append(0)
            self._free.append(0)
        if self._names[node] != name or self._places[node] != place:
            self._names[node], self._places[node] = name, place
            self._tree = None
            self._indexes.clear()

    def touch(self, node: int, kind: int, free: int) -> None:
        """Note of which kind a node is now, and how many of its GPUs are free."""
        self._kind[node] = kind
        self._free[node] = free
        self._dirty.add(node)

    def renumber(self, kinds: Kinds) -> None:
        """Forget the numbers of kinds: every node is told of anew."""
        self._numbers = kinds
        self._indexes.clear()

    def tree(self) -> MergeTree:
        """Return the merge tree of the nodes."""
        if self._tree is None:
            self._tree = merge_tree(self._names, self._places)
            self._kinds = np.array(self._kind, np.int32)[self._tree.order]
            self._frees = np.array(self._free, np.int32)[self._tree.order]
            self._dirty.clear()
        return self._tree

    def slots(self, shape: Shape, eligible: int | None = None, room: Ints | None = None) -> Slots:
        """Return the slots for a shape, on all nodes or on the eligible ones (a bitmap) alone.

        `room`: by node, how many such pods it has room for besides their GPUs, shape (nodes,); None: any number.
        """
        kinds = self.kinds()
        index = self._indexes.pop(shape, None) or SlotIndex(self.tree(), partial(self._supply, shape), kinds)
        self._indexes[shape] = index
        if len(self._indexes) > INDEXES_MAX:
            del self._indexes[next(iter(self._indexes))]
        if eligible is None and room is None:
            return index.catch_up(kinds)
        most = np.zeros(len(self._names), np.int32)
        nodes = np.arange(len(most)) if eligible is None else bitmap.indices(eligible)
        nodes = nodes[nodes < len(most)]
        most[self.tree().position[nodes]] = np.iinfo(np.int32).max if room is None else room[nodes]
        return index.restricted(kinds, most)

    def kinds(self) -> Ints:
        """Return the kind of each position, a number: nodes of one kind offer the same."""
        self._catch_up()
        return self._kinds

    def free(self) -> Ints:
        """Return the free GPUs of each position."""
        self._catch_up()
        return self._frees

    def example(self, kind: int) -> NodeState:
        """Return a state of this kind."""
        return self._numbers.example(kind)

    def _catch_up(self) -> None:
        tree = self.tree()
        if self._dirty:
            nodes = list(self._dirty)
            positions = tree.position[nodes]
            self._kinds[positions] = [self._kind[node] for node in nodes]
            self._frees[positions] = [self._free[node] for node in nodes]
            self._dirty.clear()

    def _supply(self, shape: Shape, kind: int) -> Supply:
        return self._numbers.example(kind).supply(shape)

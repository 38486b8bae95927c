"""The nodes as the selector sees them: states by position of the merge tree, and live slots for each shape of pod.

Derived from `NodeState`s alone and kept up to date by `touch`; the tree is made
anew when a node comes, goes or moves, which is seldom.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pyscheduler.core import bitmap
from pyscheduler.core.fabric.merge_tree import MergeTree, merge_tree
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.fabric.slots import SlotIndex, Slots, Supply
from pyscheduler.core.node import NodeState
from pyscheduler.core.request import Shape

__all__ = ["INDEXES_MAX", "Fleet"]

Ints = npt.NDArray[np.int32]

# Shapes whose slots are kept up to date.
INDEXES_MAX = 32
# Kinds of node state that are told apart before they are counted anew.
_KINDS_MAX = 1 << 17


class Fleet:
    """Views are by position of `tree()`; nodes that are not present have no slots."""

    def __init__(self, state: Callable[[int], NodeState]) -> None:
        self._state = state
        self._names: list[str] = []
        self._places: list[Place] = []
        self._tree: MergeTree | None = None
        self._indexes: dict[Shape, SlotIndex] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._examples: list[NodeState] = []
        self._kind: list[int] = []
        # By position of the tree; made anew with it.
        self._kinds = np.zeros(0, np.int32)
        self._free = np.zeros(0, np.int32)
        self._supplies: dict[Shape, dict[int, Supply]] = {}
        self._dirty: set[int] = set()

    def place(self, node: int, name: str, place: Place) -> None:
        """Note where a node is; new nodes come in the order of their indices."""
        while len(self._names) <= node:
            self._names.append("")
            self._places.append(NOWHERE)
        if self._names[node] != name or self._places[node] != place:
            self._names[node], self._places[node] = name, place
            self._tree = None
            self._indexes.clear()

    def touch(self, node: int) -> None:
        """Note that the state of a node changed."""
        self._dirty.add(node)
        for index in self._indexes.values():
            index.touch(node)

    def tree(self) -> MergeTree:
        """Return the merge tree of the nodes."""
        if self._tree is None:
            self._tree = merge_tree(self._names, self._places)
            self._kinds = np.zeros(len(self._names), np.int32)
            self._free = np.zeros(len(self._names), np.int32)
            self._dirty.update(range(len(self._names)))
        return self._tree

    def slots(self, shape: Shape, eligible: int | None = None) -> Slots:
        """Return the slots for a shape, on all nodes or on the eligible ones (a bitmap) alone."""
        index = self._indexes.pop(shape, None)
        if index is None:
            self._catch_up()
            index = SlotIndex(self.tree(), self._supplier(shape))
        self._indexes[shape] = index
        if len(self._indexes) > INDEXES_MAX:
            oldest = next(iter(self._indexes))
            del self._indexes[oldest], self._supplies[oldest]
        self._catch_up()
        if eligible is None:
            return index.catch_up()
        allowed = np.zeros(len(self._names), np.bool_)
        nodes = bitmap.indices(eligible)
        allowed[self.tree().position[nodes[nodes < len(allowed)]]] = True
        return index.restricted(allowed)

    def kinds(self) -> Ints:
        """Return a number for the state of each position: nodes of one kind offer the same."""
        self._catch_up()
        return self._kinds

    def free(self) -> Ints:
        """Return the free GPUs of each position."""
        self._catch_up()
        return self._free

    def example(self, kind: int) -> NodeState:
        """Return a state of this kind."""
        return self._examples[kind]

    def _catch_up(self) -> None:
        position = self.tree().position
        self._kind += [0] * (len(self._names) - len(self._kind))
        if len(self._numbers) > _KINDS_MAX:
            self._numbers.clear()
            self._examples.clear()
            for known in self._supplies.values():
                known.clear()
            self._dirty.update(range(len(self._names)))
        for node in self._dirty:
            state = self._state(node)
            number = self._numbers.setdefault(state.kind, len(self._examples))
            if number == len(self._examples):
                self._examples.append(state)
            self._kind[node] = number
            self._kinds[position[node]] = number
            self._free[position[node]] = state.free
        self._dirty.clear()

    def _supplier(self, shape: Shape) -> Callable[[int], Supply]:
        """Return what tells the supply of a node for the shape."""
        known = self._supplies.setdefault(shape, {})

        def supply(node: int) -> Supply:
            kind = self._kind[node]
            found = known.get(kind)
            if found is None:
                found = known[kind] = self._examples[kind].supply(shape)
            return found

        return supply

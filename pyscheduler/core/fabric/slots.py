"""How many pods of one shape fit, live, on every node and in every domain of the merge tree.

A slot is a set of GPUs that one pod can have. Slots are counted by grade: the
ring bandwidth that the sets have at least. A changed node touches its own
column and the counters of the domains above it, nothing else.

Invariant: after `catch_up`, every array equals that of an index built anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.fabric.merge_tree import MergeTree

__all__ = ["COUNT_ONLY", "SlotIndex", "Slots", "Supply"]

Ints = npt.NDArray[np.int64]

# The grade of nodes of which only the number of free GPUs is known: behind all others.
COUNT_ONLY: Final = -1

# (ring MB/s, number of disjoint sets that all have it), falling ring, growing number.
Supply = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """A view of one shape's slots.

    Attributes
    ----------
    grades
        Ring bandwidths in MB/s, falling; the last is that of any set.
    of_node
        Slots of at least a grade by grade and position, shape (grades, nodes).
    histogram
        By vertex, grade and number: how many nodes below have that many slots, shape (vertices, grades, most + 1).
    """

    grades: tuple[int, ...]
    of_node: npt.NDArray[np.int32]
    histogram: npt.NDArray[np.int32]

    def totals(self, vertices: Ints, *, one_per_node: bool) -> Ints:
        """Return the slots of each vertex by grade, shape (vertices, grades)."""
        counts = self.histogram[vertices]
        worth = np.arange(counts.shape[2], dtype=np.int64)
        return np.asarray(counts @ (np.minimum(worth, 1) if one_per_node else worth), np.int64)


class SlotIndex:
    """Concurrency contract: one writer at a time; the caller holds one lock round every method."""

    def __init__(self, tree: MergeTree, supply: Callable[[int], Supply]) -> None:
        self._tree = tree
        self._supply = supply
        self._dirty: set[int] = set()
        self._supplies: list[Supply] = []
        self._grades: list[int] = []
        self._known: set[int] = set()
        self._above: dict[int, list[int]] = {}
        self._of_node = np.zeros((0, 0), np.int32)
        self._histogram = np.zeros((0, 0, 0), np.int32)
        self._build()

    def touch(self, node: int) -> None:
        """Note that the node changed."""
        self._dirty.add(node)

    def catch_up(self) -> Slots:
        """Take the nodes that changed into account, and return the slots as they are now."""
        changes = self._changes()
        if changes is None:
            self._lay_out()
        elif changes:
            cells, steps = np.array(changes, np.int64).T
            np.add.at(self._histogram.reshape(-1), cells, steps.astype(np.int32))
        self._dirty.clear()
        return Slots(tuple(self._grades), self._of_node, self._histogram)

    def restricted(self, allowed: npt.NDArray[np.bool_]) -> Slots:
        """Return the slots on the allowed positions alone, shape (nodes,). Costs a walk over all nodes."""
        whole = self.catch_up()
        of_node = np.where(allowed, whole.of_node, 0).astype(np.int32)
        return Slots(whole.grades, of_node, _histogram(self._tree, of_node, whole.histogram.shape[2]))

    def _build(self) -> None:
        self._supplies = [self._supply(node) for node in range(len(self._tree.order))]
        self._lay_out()

    def _lay_out(self) -> None:
        """Make the arrays anew: a ring bandwidth or a number of slots was seen for the first time."""
        for node in self._dirty:
            self._supplies[node] = self._supply(node)
        distinct = list(dict.fromkeys(self._supplies))
        self._grades = sorted({ring for supply in distinct for ring, _ in supply} | set(self._grades), reverse=True)
        most = max((count for supply in distinct for _, count in supply), default=0)
        most = max(most, self._histogram.shape[2] - 1, 1)
        columns = np.array([_column(supply, self._grades) for supply in distinct], np.int32).reshape(
            len(distinct), len(self._grades)
        )
        which = {supply: i for i, supply in enumerate(distinct)}
        chosen = np.array([which[self._supplies[node]] for node in self._tree.order.tolist()], np.int64)
        self._of_node = np.ascontiguousarray(columns[chosen].T) if len(chosen) else np.zeros((len(self._grades), 0), np.int32)
        self._histogram = _histogram(self._tree, self._of_node, most + 1)
        self._known = set(self._grades)

    def _changes(self) -> list[tuple[int, int]] | None:
        """Change the columns of the nodes that changed. Return (cell, step) of the counters above, None if the arrays lack room."""
        _, grades, width = self._histogram.shape
        changes: list[tuple[int, int]] = []
        for node in self._dirty:
            supply = self._supply(node)
            if supply == self._supplies[node]:
                continue
            self._supplies[node] = supply
            if any(ring not in self._known or count >= width for ring, count in supply):
                return None
            position, above = int(self._tree.position[node]), self._ancestors(node)
            for grade, count in enumerate(_column(supply, self._grades)):
                before = int(self._of_node[grade, position])
                if before != count:
                    self._of_node[grade, position] = count
                    cells = [(vertex * grades + grade) * width for vertex in above]
                    changes += [(cell + before, -1) for cell in cells]
                    changes += [(cell + count, 1) for cell in cells]
        return changes

    def _ancestors(self, node: int) -> list[int]:
        nearest = int(self._tree.nearest[node])
        if nearest not in self._above:
            self._above[nearest] = self._tree.above(node)
        return self._above[nearest]


def _column(supply: Supply, grades: Sequence[int]) -> list[int]:
    """Return the slots of at least each grade."""
    counts, at, last = [], 0, 0
    for grade in grades:
        while at < len(supply) and supply[at][0] >= grade:
            last = supply[at][1]
            at += 1
        counts.append(last)
    return counts


def _histogram(tree: MergeTree, of_node: npt.NDArray[np.int32], width: int) -> npt.NDArray[np.int32]:
    """Return how many nodes below each vertex have each number of slots."""
    grades, nodes = of_node.shape
    found = np.zeros((len(tree.low), grades, width), np.int32)
    for grade in range(grades):
        for count in np.unique(of_node[grade]).tolist():
            below = np.zeros(nodes + 1, np.int64)
            np.cumsum(of_node[grade] == count, out=below[1:])
            found[:, grade, count] = below[tree.high] - below[tree.low]
    return found

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
Ints32 = npt.NDArray[np.int32]

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
    sums
        Slots below each vertex by grade, shape (vertices, grades).
    """

    grades: tuple[int, ...]
    of_node: Ints32
    histogram: Ints32
    sums: Ints32

    def totals(self, vertices: Ints, *, one_per_node: bool) -> Ints32:
        """Return the slots of each vertex by grade, shape (vertices, grades)."""
        if one_per_node:
            return np.asarray(self.histogram[vertices, :, 1:].sum(axis=2), np.int32)
        return self.sums[vertices]

    def change(self, tree: MergeTree, positions: Ints, after: Ints32) -> None:
        """Give these positions other slots, shape (grades, positions), and the domains above them their counts, in place."""
        before = self.of_node[:, positions]
        grade, at = np.nonzero(before != after)
        old, new = before[grade, at], after[grade, at]
        self.of_node[:, positions] = after
        # One row per change, one column per domain that holds the node; -1 where there are no more.
        above = tree.holders[tree.nearest[tree.order[positions[at]]]]
        cells = above * len(self.grades) + grade[:, None]
        held = above >= 0
        np.add.at(self.sums.reshape(-1), cells[held], np.broadcast_to((new - old)[:, None], cells.shape)[held])
        counts = self.histogram.reshape(-1)
        cells *= self.histogram.shape[2]
        np.subtract.at(counts, (cells + old[:, None])[held], 1)
        np.add.at(counts, (cells + new[:, None])[held], 1)


class SlotIndex:
    """Keeps the slots of one shape.

    Concurrency contract: one writer at a time; the caller holds one lock round every method.

    Parameters
    ----------
    tree
        The merge tree.
    supply
        What nodes of each kind supply; kinds are small numbers, and a kind's supply never changes.
    kinds
        Kind of each position, shape (nodes,).

    """

    def __init__(self, tree: MergeTree, supply: Callable[[int], Supply], kinds: Ints32) -> None:
        self._tree = tree
        self._supply = supply
        # The kind that the slots of each position were counted for.
        self._kinds = kinds
        # By kind: what it supplies at each grade, if that is known yet.
        self._columns = np.zeros((0, 0), np.int32)
        self._known = np.zeros(0, np.bool_)
        self._slots = Slots((), np.zeros((0, 0), np.int32), np.zeros((0, 0, 0), np.int32), np.zeros((0, 0), np.int32))
        self._lay_out(kinds)

    def catch_up(self, kinds: Ints32) -> Slots:
        """Return the slots, given the kind of each position as it is now."""
        changed = np.flatnonzero(kinds != self._kinds)
        if len(changed):
            now = kinds[changed]
            if self._learn(now):
                self._slots.change(self._tree, changed, self._columns[now].T)
                self._kinds[changed] = now
            else:
                self._lay_out(kinds)
        return self._slots

    def restricted(self, kinds: Ints32, most: Ints32) -> Slots:
        """Return the slots, no more of each position than this, shape (nodes,). Costs a walk over those that have more."""
        whole = self.catch_up(kinds)
        others = np.flatnonzero(whole.of_node.max(axis=0, initial=0) > most)
        if not len(others):
            return whole
        found = Slots(whole.grades, whole.of_node.copy(), whole.histogram.copy(), whole.sums.copy())
        found.change(self._tree, others, np.minimum(whole.of_node[:, others], most[others]))
        return found

    def _learn(self, kinds: Ints32) -> bool:
        """Take up the supply of kinds that are new. Return false if the arrays lack room for a grade or a number."""
        most = int(kinds.max()) + 1
        if most > len(self._known):
            more = max(most, 2 * len(self._known)) - len(self._known)
            self._known = np.pad(self._known, (0, more))
            self._columns = np.pad(self._columns, ((0, more), (0, 0)))
        if not self._known[kinds].all():
            grades, width = self._slots.grades, self._slots.histogram.shape[2]
            for kind in np.unique(kinds[~self._known[kinds]]).tolist():
                supply = self._supply(kind)
                if any(ring not in grades or count >= width for ring, count in supply):
                    return False
                self._columns[kind] = _column(supply, grades)
                self._known[kind] = True
        return True

    def _lay_out(self, kinds: Ints32) -> None:
        """Make the arrays anew: this is the first time, or a ring bandwidth or a number of slots was not seen before."""
        present, back = np.unique(kinds, return_inverse=True)
        supplies = [self._supply(kind) for kind in present.tolist()]
        before = self._slots
        grades = sorted({ring for supply in supplies for ring, _ in supply} | set(before.grades), reverse=True)
        most = max((count for supply in supplies for _, count in supply), default=0)
        width = max(most + 1, before.histogram.shape[2], 2)
        tree = self._tree
        sizes = (tree.high - tree.low).astype(np.int32)
        histogram = np.zeros((len(sizes), len(grades), width), np.int32)
        histogram[:, :, 0] = sizes[:, None]
        of_node = np.zeros((len(grades), len(kinds)), np.int32)
        self._slots = Slots(tuple(grades), of_node, histogram, np.zeros((len(sizes), len(grades)), np.int32))
        columns = np.array([_column(supply, grades) for supply in supplies], np.int32).reshape(len(supplies), len(grades))
        self._slots.change(tree, np.arange(len(kinds)), columns[back].T)
        self._kinds = kinds.copy()
        self._known = np.zeros(int(kinds.max(initial=-1)) + 1, np.bool_)
        self._columns = np.zeros((len(self._known), len(grades)), np.int32)
        self._known[present], self._columns[present] = True, columns


def _column(supply: Supply, grades: Sequence[int]) -> list[int]:
    """Return the slots of at least each grade."""
    counts, at, last = [], 0, 0
    for grade in grades:
        while at < len(supply) and supply[at][0] >= grade:
            last = supply[at][1]
            at += 1
        counts.append(last)
    return counts

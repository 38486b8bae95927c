"""Which nodes of a domain carry counts that are fixed: over the fewest inner domains, then with the least left over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.fabric.carrying import Demand
from pyscheduler.core.fabric.merge_tree import MergeTree, Part
from pyscheduler.core.fabric.parts import cheapest_nodes, fewest_parts, largest_parts

__all__ = ["Filling", "Share"]

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

# Domains of up to so many nodes are looked at closely: this many sets of inner domains are compared by what is left over.
_COMPARED_MAX: Final = 64
_SETS_COMPARED: Final = 16
# Where all counts are equal, nodes that are tried in all combinations.
_EXACT_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Share:
    """`pods` of the job go to the node at this position of the tree."""

    position: int
    pods: int


@dataclass(frozen=True, slots=True)
class Filling:
    """Gives counts to nodes of one domain.

    Attributes
    ----------
    tree, free
        The merge tree; free GPUs of each of its positions, shape (nodes,).
    demand
        The counts.
    signatures
        Which counts each position from `base` on can carry, see `core.fabric.carrying`.
    base
        First position of the domain.
    """

    tree: MergeTree
    free: Ints32
    demand: Demand
    signatures: Ints
    base: int

    def below(self, vertex: int, times: Ints) -> Iterator[Share]:
        """Yield the shares below a vertex: over the fewest inner domains, then with the least left over."""
        parts, starts = self.tree.parts(vertex)
        if parts[0].vertex == vertex:
            yield from self._on_nodes(parts[0], times)
            return
        if len(times) == 1:
            carrying = self.signatures[parts[0].low - self.base : parts[-1].high - self.base] != 0
            if int(np.count_nonzero(carrying)) <= _EXACT_MAX:
                able = np.flatnonzero(carrying) + parts[0].low
                costs = dict(zip(able.tolist(), self.free[able].tolist(), strict=True))
                chosen = cheapest_nodes(self.tree, vertex, costs, int(times[0]))
                yield from (Share(position, self.demand.kinds[0]) for position in chosen)
                return
            rooms = np.add.reduceat(carrying, starts - parts[0].low, dtype=np.int64)
            given = iter([(at, np.array([nodes], np.int64)) for at, nodes in largest_parts(rooms, int(times[0]))])
        else:
            given = self._kinds(parts, times)
        for at, mine in given:
            part = parts[at]
            yield from self._on_nodes(part, mine) if part.vertex is None else self.below(part.vertex, mine)

    def _kinds(self, parts: Sequence[Part], times: Ints) -> Iterator[tuple[int, Ints]]:
        """Yield (part, what it carries of each kind of count)."""
        covers = np.array([self.demand.covers(self._signatures(part)) for part in parts])
        small = parts[-1].high - parts[0].low <= _COMPARED_MAX
        sets = fewest_parts(covers, self.demand.needs(times), _SETS_COMPARED if small else 1)
        if small:
            yield from min((self._least_left(parts, some, times) for some in sets), key=lambda each: each[0])[1]
            return
        left, chosen = times, sets[0]
        for number, at in enumerate(chosen, 1):
            mine = self.demand.most(left, covers[at], covers[chosen[number:]].sum(axis=0)) if number < len(chosen) else left
            left = left - mine
            if mine.any():
                yield at, mine

    def _least_left(self, parts: Sequence[Part], some: Sequence[int], times: Ints) -> tuple[int, list[tuple[int, Ints]]]:
        """Return the free GPUs of the nodes taken on these parts together, and what each part carries."""
        sizes = [parts[at].high - parts[at].low for at in some]
        owner = np.repeat(np.arange(len(some)), sizes)
        free = np.concatenate([self._free(parts[at]) for at in some])
        pairs = self.demand.assign(np.concatenate([self._signatures(parts[at]) for at in some]), free, times)
        mine = np.zeros((len(some), len(times)), np.int64)
        for at, count in pairs:
            mine[owner[at], self.demand.kinds.index(count)] += 1
        return sum(int(free[at]) for at, _ in pairs), [(at, each) for at, each in zip(some, mine, strict=True) if each.any()]

    def _on_nodes(self, part: Part, times: Ints) -> Iterator[Share]:
        for at, count in self.demand.assign(self._signatures(part), self._free(part), times):
            yield Share(part.low + at, count)

    def _signatures(self, part: Part) -> Ints:
        return self.signatures[part.low - self.base : part.high - self.base]

    def _free(self, part: Part) -> Ints32:
        return self.free[part.low : part.high]

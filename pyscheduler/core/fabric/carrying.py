"""Which nodes can carry which counts of pods, each node one count: Hall's condition, kept small.

Distinct counts are *kinds*, falling; a node's *signature* has bit i set where it can carry kind i. A node that carries
a count may be unfit for a smaller one: the links of fewer GPUs can be worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["KINDS_MAX", "Demand"]

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

# Kinds of which all combinations are looked at: 2**6.
KINDS_MAX: Final = 6


class Demand:
    """How many nodes must carry each kind, and what is tested to tell whether some nodes can.

    Parameters
    ----------
    counts
        The counts to be carried, in any order.
    nested
        Every node that carries a count carries every smaller one, too: far fewer tests are needed. Otherwise at most
        `KINDS_MAX` kinds.
    """

    def __init__(self, counts: Sequence[int], *, nested: bool) -> None:
        self.kinds = tuple(sorted(set(counts), reverse=True))
        self.nested = nested
        self._tests, self._unions = _tests(len(self.kinds), nested)
        of_kind = np.array(self.kinds, np.int64)
        self.times: Ints = (np.asarray(counts, np.int64)[:, None] == of_kind).sum(axis=0)

    def covers(self, signatures: Ints) -> Ints:
        """Return by test how many of the nodes carry one of its kinds; covers of disjoint sets of nodes add up."""
        present = np.bincount(signatures, minlength=1)
        values = np.flatnonzero(present)
        found: Ints = (values[:, None] & self._tests != 0).T @ present[values]
        return found

    def needs(self, times: Ints) -> Ints:
        """Return by test how many nodes must carry one of its kinds."""
        found: Ints = _members(self._tests, len(self.kinds)) @ times
        return found

    def fits(self, covers: Ints) -> bool:
        """Tell whether nodes of these covers carry everything."""
        return bool((covers >= self.needs(self.times)).all())

    def most(self, times: Ints, here: Ints, elsewhere: Ints) -> Ints:
        """Return as much of `times`, the largest kinds first, as nodes can carry here if others carry the rest.

        `here` and `elsewhere` are covers; together they carry `times`.
        """
        taken = np.zeros_like(times)
        for kind in range(len(times)):
            low, high = 0, int(times[kind])
            while low < high:
                taken[kind] = middle = (low + high + 1) // 2
                both = self.needs(taken)[:, None] + self.needs(times - taken)
                if (here[self._unions] + elsewhere >= both).all():
                    low = middle
                else:
                    high = middle - 1
            taken[kind] = low
        return taken

    def assign(self, signatures: Ints, costs: Ints | Ints32, times: Ints) -> list[tuple[int, int]]:
        """Return (node, count) at the least sum of costs: nodes by their place in `signatures`, which carry `times`."""
        if len(self.kinds) == 1:
            able = np.flatnonzero(signatures)
            cheapest = able[np.lexsort((able, costs[able]))[: int(times[0])]]
            return [(at, self.kinds[0]) for at in cheapest.tolist()]
        tests = self._tests.tolist()
        # How many more nodes that carry none of a test's kinds there is work for. Sets of nodes for which there is work
        # are a matroid, so taking the cheapest first is right.
        room = (int(times.sum()) - self.needs(times)).tolist()
        chosen: list[tuple[int, int]] = []
        for at in np.lexsort((np.arange(len(costs)), costs)).tolist():
            sign = int(signatures[at])
            outside = [i for i, test in enumerate(tests) if not sign & test]
            if sign and all(room[i] > 0 for i in outside):
                chosen.append((at, sign))
                for i in outside:
                    room[i] -= 1
        return list(self._matched(chosen, times.tolist()))

    def _matched(self, chosen: Sequence[tuple[int, int]], times: list[int]) -> list[tuple[int, int]]:
        """Return a count for each chosen node: the largest that leaves work for all others."""
        tests = self._tests.tolist()
        waiting = [sum(1 for _, sign in chosen if not sign & test) for test in tests]
        open_ = [sum(times) - sum(t for kind, t in enumerate(times) if test >> kind & 1) for test in tests]
        found = []
        for at, sign in chosen:
            for i, test in enumerate(tests):
                waiting[i] -= not sign & test
            for kind, left in enumerate(times):
                spent = [not test >> kind & 1 for test in tests]
                if left and sign >> kind & 1 and all(w <= o - s for w, o, s in zip(waiting, open_, spent, strict=True)):
                    times[kind] -= 1
                    open_ = [o - s for o, s in zip(open_, spent, strict=True)]
                    found.append((at, self.kinds[kind]))
                    break
        return found


@cache
def _tests(kinds: int, nested: bool) -> tuple[Ints, npt.NDArray[np.intp]]:  # noqa: FBT001
    """Return the sets of kinds to test, and the place of the union of each two of them."""
    tests = [(1 << size) - 1 for size in range(kinds + 1)] if nested else list(range(1 << kinds))
    place = {test: at for at, test in enumerate(tests)}
    return np.array(tests, np.int64), np.array([[place[a | b] for b in tests] for a in tests], np.intp)


def _members(tests: Ints, kinds: int) -> Ints:
    found: Ints = tests[:, None] >> np.arange(kinds) & 1
    return found

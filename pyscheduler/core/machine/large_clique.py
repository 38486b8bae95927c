"""Whether any set of GPUs obeys hard limits, on machines where not all sets can be judged.

The GPUs are vertices, and two that may be in one set are neighbours: a set is a
clique. Branch and bound with greedy colouring, as in San Segundo et al., "An
exact bit-parallel algorithm for the maximum clique problem" (2011): a graph of
c colours has no clique of more than c vertices. Sets are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from pyscheduler.core.machine.admission import Rules, numa_nodes_needed
from pyscheduler.core.machine.device_class import DeviceClass

__all__ = ["limited_set", "numa_groups"]

_GROUPS_MAX: Final = 32
# Vertices tried: some tenths of a second.
_STEPS_MAX: Final = 20_000


def numa_groups(device_class: DeviceClass, free: int, k: int) -> tuple[list[int], bool]:
    """Return the parts of `free` to look for sets of `k` in, freest first, and whether these are all.

    They are unions of NUMA nodes by the kubelet's policy.
    """
    needed = numa_nodes_needed(device_class, k)
    if needed is None:
        return [free], True
    parts = dict.fromkeys(device_class.numa, 0)
    for gpu, node in enumerate(device_class.numa):
        parts[node] |= free & 1 << gpu
    unions = sorted((sum(group) for group in combinations(parts.values(), needed)), key=lambda union: -union.bit_count())
    return unions[:_GROUPS_MAX], len(unions) <= _GROUPS_MAX


def limited_set(device_class: DeviceClass, free: int, k: int, rules: Rules | None) -> tuple[int, bool]:
    """Return some set of `k` of the free GPUs that the kubelet's policy and the limits admit, and whether the answer is proven.

    0 if none was found. It is not proven where the search ended early. Of partitions nothing is asked.
    """
    n = device_class.gpus
    usable, near, apart = (free, 0, (0,) * n) if rules is None else (free & rules.gpus, rules.near, rules.apart)
    search = _Search([~(apart[gpu] | 1 << gpu) for gpu in range(n)], _STEPS_MAX)
    groups, complete = numa_groups(device_class, usable, k)
    for group in groups:
        if found := search.through(group, k, near) if near else search.clique(group, k):
            return found, True
    return 0, complete and search.steps > 0


@dataclass(slots=True)
class _Search:
    """`steps` are those that are left: at 0 the search gives up."""

    neighbours: Sequence[int]
    steps: int

    def through(self, among: int, k: int, near: int) -> int:
        """Return a clique of `k` that holds one of `near`, 0 if none was found."""
        for gpu in _bits(among & near):
            if k == 1:
                return 1 << gpu
            if rest := self.clique(among & self.neighbours[gpu], k - 1):
                return rest | 1 << gpu
            # No clique holds this one.
            among &= ~(1 << gpu)
        return 0

    def clique(self, among: int, k: int) -> int:
        """Return a clique of `k`, 0 if none was found."""
        among = self._core(among, k)
        return self._grow(among, k) if among.bit_count() >= k else 0

    def _core(self, among: int, k: int) -> int:
        """Leave out, again and again, what has fewer than `k - 1` neighbours."""
        while lonely := [gpu for gpu in _bits(among) if (among & self.neighbours[gpu]).bit_count() < k - 1]:
            among &= ~sum(1 << gpu for gpu in lonely)
        return among

    def _grow(self, among: int, k: int) -> int:
        if k == 1:
            return among & -among
        for gpu in self._beyond(among, k):
            if self.steps == 0:
                return 0
            self.steps -= 1
            if rest := self._grow(among & self.neighbours[gpu], k - 1):
                return rest | 1 << gpu
            among &= ~(1 << gpu)
        return 0

    def _beyond(self, among: int, k: int) -> list[int]:
        """Return the vertices, last coloured first, without those of the first `k - 1` colours: these alone hold no clique of `k`."""
        beyond: list[int] = []
        colour = 0
        while among:
            colour += 1
            left = among
            while left:
                lowest = left & -left
                gpu = lowest.bit_length() - 1
                left &= ~(lowest | self.neighbours[gpu])
                among ^= lowest
                if colour >= k:
                    beyond.append(gpu)
        return beyond[::-1]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1

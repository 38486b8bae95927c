"""The search on machines of more than 16 GPUs: partitioned cards, and boxes of many cards. Not proven best.

Candidates are grown from every free GPU within the components of the widest
links, improved by swaps, and judged by the same order as small machines are.
What is left behind is judged by its links to what is taken: the fewer are cut, the more stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.machine.admission import Rules, admits
from pyscheduler.core.machine.choice import Choice, Offer
from pyscheduler.core.machine.device_class import DeviceClass, default_speeds
from pyscheduler.core.machine.large_clique import limited_set, numa_groups
from pyscheduler.core.machine.large_growth import grown, swapped
from pyscheduler.core.machine.large_ring import ring_floor, wide_ring
from pyscheduler.core.machine.links import behind_switch

__all__ = ["LargeSearch"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_CACHE_MAX: Final = 1 << 14
# Grown sets whose rings are looked at, largest pair sums first.
_JUDGED_MAX: Final = 12
_RULES_MAX: Final = 32
# More than 3 for each of 128 pairs: what only decides between equal bandwidths stays below one MB/s.
_UNIT: Final = 1 << 9


@dataclass(frozen=True, slots=True, eq=False)
class LargeSearch:
    """Chooses sets of GPUs of a class heuristically. Make one with `of`."""

    device_class: DeviceClass
    pairs: Ints
    fast: Ints
    places: Ints
    ladder: tuple[str, ...]
    ports: Ints
    affinity: Ints
    ranks: Ints
    scale: tuple[int, int] = (1, 1)
    _aparts: dict[Rules | None, Flags] = field(default_factory=dict)
    _worths: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, device_class: DeviceClass) -> LargeSearch:
        """Prepare a class."""
        n = device_class.gpus
        matrix = device_class.matrix
        ladder = sorted(set(device_class.links), key=lambda link: link.distance)
        at = np.triu_indices(n, 1)
        pairs = np.zeros((n, n), np.int64)
        pairs[at] = device_class.speeds or default_speeds(device_class)
        pairs += pairs.T
        fast = np.where([[link.fast for link in row] for row in matrix], pairs, 0)
        switched = [behind_switch(row, device_class.models[gpu]) for gpu, row in enumerate(matrix)]
        ports = np.where(switched, fast.max(axis=1), np.iinfo(np.int64).max)
        place = {link: at for at, link in enumerate(ladder)}
        places = np.array([[place.get(link, 0) for link in row] for row in matrix], np.int64)
        numa = np.array([-1 if node is None else node for node in device_class.numa])
        neighbours = np.arange(n) // 2
        beside = (numa[:, None] == numa) * (1 + 2 * (neighbours[:, None] == neighbours))
        affinity = pairs * _UNIT + beside
        np.fill_diagonal(affinity, 0)
        ranks = np.unique(affinity, return_inverse=True)[1].reshape(n, n)
        search = cls(device_class, pairs, fast, places, tuple(map(str, ladder)), ports, affinity, ranks)
        whole = search.worth((1 << n) - 1)[0]
        if device_class.ring_mbps is None or not whole:
            return search
        # What a collective of all GPUs was measured at corrects every set alike: the order within the machine stays.
        return replace(search, scale=(device_class.ring_mbps, whole), _worths={})

    def choose(self, free: int, k: int, rules: Rules | None) -> Choice | None:
        """Return the best set of `k` of the free GPUs that was found, None if none was."""
        best = min(self._candidates(free, k, rules), key=lambda mask: self._key(mask, free), default=None)
        return None if best is None else self.describe(best, free)

    def describe(self, mask: int, free: int = 0) -> Choice:
        """Return what a set is worth; of a single GPU, by its best link to another one of `free`."""
        gpus = _members(mask)
        if len(gpus) == 1:
            best_link = int(self.pairs[gpus[0], _members(free | mask)].max())
            return Choice(mask, 0.0, 0.0, 1, None, "single", key=(best_link, 0, 1))
        ring, pair_sum, numa_nodes = self.worth(mask)
        weakest = int(self.places[np.ix_(gpus, gpus)][np.triu_indices(len(gpus), 1)].max())
        key = (-ring, -pair_sum, numa_nodes)
        return Choice(mask, ring / 1000, pair_sum / 1000, numa_nodes, self.ladder[weakest], "heuristic", key)

    def offer(self, free: int, k: int, rules: Rules | None) -> Offer:
        """Return how many disjoint sets of `k` were found, the best ones first taken."""
        sets = tuple(self.disjoint(free, k, rules))
        worst = accumulate((self.worth(mask)[0] for mask in sets), min)
        # Of equal rings the last count stands.
        at = {ring: count for count, ring in enumerate(worst, 1)}
        return Offer(len(sets), tuple(at.items()), _Picker(self, free, k, rules, sets))

    def ring_order(self, mask: int) -> tuple[int, ...]:
        """Return the GPUs of a set in the order of a good ring."""
        gpus = _members(mask)
        return tuple(int(gpus[at]) for at in wide_ring(self.pairs[np.ix_(gpus, gpus)]))

    def disjoint(self, free: int, k: int, rules: Rules | None) -> Iterator[int]:
        """Yield disjoint sets: of each round of candidates those with the best ring, as long as they do not overlap."""
        while candidates := self._candidates(free, k, rules):
            candidates.sort(key=lambda mask: self._key(mask, free))
            best = self.worth(candidates[0])[0]
            for mask in candidates:
                if mask & ~free == 0 and self.worth(mask)[0] == best:
                    free ^= mask
                    yield mask

    def _candidates(self, free: int, k: int, rules: Rules | None) -> list[int]:
        """Return sets of `k` within `free` that may be given out."""
        if rules is not None:
            free &= rules.gpus
        if self.device_class.partitions:
            fitting = [each for each in self.device_class.partitions if each.bit_count() == k and each & ~free == 0]
            return [each for each in fitting if admits(self.device_class, each, rules)]
        if k == 1:
            singles = [1 << int(gpu) for gpu in _members(free)]
            return [each for each in singles if admits(self.device_class, each, rules)]
        found: set[int] = set()
        for group in numa_groups(self.device_class, free, k)[0]:
            found.update(self._of_group(group, k, rules))
        admitted = sorted(mask for mask in found if admits(self.device_class, mask, rules))
        return admitted or self._hidden(free, k, rules)

    def _hidden(self, free: int, k: int, rules: Rules | None) -> list[int]:
        """Return sets that obey limits where growth led nowhere: it never takes back what it took."""
        if rules is None or not (found := limited_set(self.device_class, free, k, rules)[0]):
            return []
        gpus = _members(free)
        of_group = np.ix_(gpus, gpus)
        at = np.searchsorted(gpus, _members(found))
        better = _mask(gpus[swapped(self.affinity[of_group], self._apart(rules)[of_group], at)])
        return [mask for mask in sorted({found, better}) if admits(self.device_class, mask, rules)]

    def _of_group(self, group: int, k: int, rules: Rules | None) -> Iterator[int]:
        gpus = _members(group)
        if len(gpus) <= k:
            yield from (group,) if len(gpus) == k else ()
            return
        near = rules.near if rules is not None else 0
        seeds = np.array([at for at, gpu in enumerate(gpus) if not near or near >> int(gpu) & 1], np.int64)
        of_group = np.ix_(gpus, gpus)
        affinity, apart = self.affinity[of_group], self._apart(rules)[of_group]
        for sets in grown(affinity, self.ranks[of_group], apart, seeds, k):
            sets.sort(key=lambda at: -affinity[np.ix_(at, at)].sum())
            for at in sets[:_JUDGED_MAX]:
                yield _mask(gpus[at])
                yield _mask(gpus[swapped(affinity, apart, at)])

    def _apart(self, rules: Rules | None) -> Flags:
        """Return which pairs may not be in one set, shape (n, n)."""
        found = self._aparts.get(rules)
        if found is None:
            n = self.device_class.gpus
            rows = (0,) * n if rules is None else rules.apart
            if len(self._aparts) >= _RULES_MAX:
                self._aparts.clear()
            found = self._aparts[rules] = np.array([[row >> gpu & 1 for gpu in range(n)] for row in rows], np.bool_)
        return found

    def _key(self, mask: int, free: int) -> tuple[object, ...]:
        """Order sets of one size, smaller is better."""
        gpus, left = _members(mask), _members(free & ~mask)
        cut = int(self.affinity[np.ix_(gpus, left)].sum())
        if len(gpus) == 1:
            return int(self.pairs[gpus[0], _members(free)].max()), cut, tuple(gpus.tolist())
        ring, pair_sum, numa_nodes = self.worth(mask)
        return -ring, -pair_sum, numa_nodes, cut, tuple(gpus.tolist())

    def worth(self, mask: int) -> tuple[int, int, int]:
        """Return ring, pair sum and number of NUMA nodes of a set."""
        worth = self._worths.get(mask)
        if worth is None:
            if len(self._worths) >= _CACHE_MAX:
                self._worths.clear()
            gpus = _members(mask)
            pair_sum = int(self.pairs[np.ix_(gpus, gpus)].sum()) // 2
            numa_nodes = len({self.device_class.numa[gpu] for gpu in gpus})
            times, over = self.scale
            worth = self._worths[mask] = self._ring(gpus) * times // over, pair_sum, numa_nodes
        return worth

    def _ring(self, gpus: Ints) -> int:
        pairs, fast = (each[np.ix_(gpus, gpus)] for each in (self.pairs, self.fast))
        if len(gpus) < 3:
            return int(pairs[0, -1])
        on_fast = min(2 * ring_floor(fast), int(self.ports[gpus].min()))
        return max(on_fast, ring_floor(pairs))


@dataclass(frozen=True, slots=True, eq=False)
class _Picker:
    """Finds disjoint sets of `k` within `free`; `sets` are those that the offer counts."""

    search: LargeSearch
    free: int
    k: int
    rules: Rules | None
    sets: tuple[int, ...]

    def pick(self, count: int, floor: int) -> tuple[int, ...]:
        """Return what `Offer.pick` promises, as well as it is found: all GPUs together first, else what the offer counts."""
        if count > len(self.sets):
            return ()
        for sets in (self._together(count), self.sets):
            found = [mask for mask in sets if self.search.worth(mask)[0] >= floor]
            if len(found) >= count:
                return tuple(sorted(found[:count], key=lambda mask: mask & -mask))
        return ()

    def _together(self, count: int) -> tuple[int, ...]:
        """Return `count` sets within the GPUs that are best together; fewer if those cannot be parted so."""
        usable = self.free if self.rules is None else self.free & self.rules.gpus
        union = self.search.choose(usable, count * self.k, None) if count > 1 else None
        return () if union is None else tuple(self.search.disjoint(union.mask, self.k, self.rules))


def _members(mask: int) -> Ints:
    """Return the indices of the GPUs of a mask."""
    return np.array([at for at in range(mask.bit_length()) if mask >> at & 1], np.int64)


def _mask(gpus: Iterable[int]) -> int:
    return sum(1 << int(gpu) for gpu in gpus)

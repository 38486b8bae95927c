"""The exact search on machines of up to 16 GPUs: every set is judged beforehand, a choice is a look through a sorted list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.machine.admission import Rules, allowed
from pyscheduler.core.machine.choice import Choice, Offer
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.disjoint import part, worst_rings
from pyscheduler.core.machine.leftovers import ALIGNED_PAIRS
from pyscheduler.core.machine.rings import ring_order
from pyscheduler.core.machine.set_worth import SetWorth, judge

__all__ = ["EXACT_GPUS", "ExactSearch"]

EXACT_GPUS: Final = 16
_RULES_MAX: Final = 32

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Admitted:
    """The sets that may be given out under some rules, by size. What is not there yet is computed when it is asked for.

    A race between threads writes the same value twice.
    """

    worth: SetWorth
    flags: npt.NDArray[np.bool_]
    _sets: dict[int, Ints] = field(default_factory=dict)
    _worst: dict[int, tuple[Ints, ...]] = field(default_factory=dict)
    _equal: dict[int, bool] = field(default_factory=dict)

    def sets(self, k: int) -> Ints:
        """Return the sets of `k`, best first."""
        if k not in self._sets:
            every = self.worth.sets[k]
            self._sets[k] = every[self.flags[every]]
        return self._sets[k]

    def rings(self) -> Ints:
        """Return the ring of every set, -1 for those that may not be given out."""
        return np.where(self.flags, self.worth.rings, -1)

    def worst_rings(self, k: int) -> tuple[Ints, ...]:
        """Return what `disjoint.worst_rings` says of sets of `k`."""
        if k not in self._worst:
            self._worst[k] = worst_rings(self.rings(), k)
        return self._worst[k]

    def all_equal(self, k: int) -> bool:
        """Whether all sets of `k` GPUs may be given out and have one ring: then any disjoint ones do."""
        if k not in self._equal:
            every = self.worth.sets[k]
            rings = self.worth.rings[every]
            self._equal[k] = bool(every.size and self.flags[every].all() and (rings == rings[0]).all())
        return self._equal[k]


@dataclass(frozen=True, slots=True, eq=False)
class ExactSearch:
    """Chooses among all sets of a class. Make one with `of`."""

    worth: SetWorth
    _rules: dict[Rules | None, _Admitted] = field(default_factory=dict)

    @classmethod
    def of(cls, device_class: DeviceClass) -> ExactSearch:
        """Judge all sets of a class of at most `EXACT_GPUS` GPUs: up to about a second."""
        return cls(judge(device_class))

    def choose(self, free: int, k: int, rules: Rules | None) -> Choice | None:
        """Return the best `k` of the free GPUs that the rules (None: those of the machine alone) admit."""
        found = self._admitted(rules)
        if k == 1:
            mask = self.one(free, found)
            return None if mask is None else self.describe(mask, free)
        mask = self.worth.best_of(found.sets(k), free)
        return None if mask is None else self.describe(mask)

    def one(self, free: int, found: _Admitted) -> int | None:
        """Choose the GPU whose best link to another free GPU is weakest: a larger job misses it least."""
        gpus = members(free)
        singles = gpus[found.flags[1 << gpus]]
        if not singles.size:
            return None
        best_links = self.worth.pairs[np.ix_(singles, gpus)].max(axis=1)
        return self.worth.leaving_most(free, 1 << singles[best_links == best_links.min()])

    def describe(self, mask: int, free: int = 0) -> Choice:
        """Return what a set is worth; of a single GPU, by its best link to another one of `free`."""
        worth = self.worth
        if mask.bit_count() == 1:
            best_link = int(worth.pairs[mask.bit_length() - 1, members(free | mask)].max())
            return Choice(mask, 0.0, 0.0, 1, None, "single", key=(best_link, 0, 1))
        ring, pair_sum, numa_nodes = (int(a[mask]) for a in (worth.rings, worth.pair_sums, worth.numa_nodes))
        return Choice(
            mask=mask,
            ring_gbps=ring / 1000,
            pair_sum_gbps=pair_sum / 1000,
            numa_nodes=numa_nodes,
            bottleneck=worth.ladder[worth.weakest[mask]],
            model="ring-packing" if worth.packed[mask] else "bottleneck-ring",
            key=(-ring, -pair_sum, numa_nodes),
        )

    def offer(self, free: int, k: int, rules: Rules | None) -> Offer:
        """Return how many sets of `k` the free GPUs hold at once."""
        found = self._admitted(rules)
        picker = _Picker(self, found, free, k)
        most = free.bit_count() // k
        if not most:
            worst = []
        elif k == 1:
            worst = [0] * int(found.flags[1 << members(free)].sum())
        elif found.all_equal(k):
            worst = [int(self.worth.rings[self.worth.sets[k][0]])] * most
        else:
            worst = [ring for each in found.worst_rings(k)[:most] if (ring := int(each[free])) >= 0]
        # Of equal rings the last count stands.
        at = {ring: count for count, ring in enumerate(worst, 1)}
        return Offer(len(worst), tuple(at.items()), picker)

    def ring_order(self, mask: int) -> tuple[int, ...]:
        """Return the GPUs of a set in the order of its best ring."""
        gpus = members(mask)
        return tuple(int(gpus[at]) for at in ring_order(self.worth.pairs[np.ix_(gpus, gpus)], self.worth.widest[mask]))

    def _admitted(self, rules: Rules | None) -> _Admitted:
        found = self._rules.get(rules)
        if found is None:
            flags = self.worth.admitted if rules is None else self.worth.admitted & allowed(rules)
            if len(self._rules) >= _RULES_MAX:
                self._rules.clear()
            found = self._rules[rules] = _Admitted(self.worth, flags)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Picker:
    """Finds disjoint sets of `k` within `free`."""

    search: ExactSearch
    found: _Admitted
    free: int
    k: int

    def pick(self, count: int, floor: int) -> tuple[int, ...]:
        """Return what `Offer.pick` promises: first all GPUs together, then how they are parted."""
        worth, found, k = self.search.worth, self.found, self.k
        if count * k > self.free.bit_count():
            return ()
        if count == k == 1:
            one = self.search.one(self.free, found)
            return () if one is None or floor > 0 else (one,)
        worst = self._worst(count)
        unions = worth.sets[count * k]
        union = worth.best_of(unions[worst[unions] >= max(floor, 0)], self.free)
        if union is None:
            return ()
        if k == 1:
            return tuple(1 << int(gpu) for gpu in members(union))
        # The sets that are best together as such, and no worse than they must be.
        rings = np.where(found.flags & (worth.rings >= worst[union]), worth.rings, -1)
        rest = (worth.remainders & ALIGNED_PAIRS) - worth.numa_nodes * (ALIGNED_PAIRS + 1)
        return part(union, k, rings, worth.pair_sums, rest)

    def _worst(self, count: int) -> Ints:
        """Return for each mask of ``count * k`` GPUs the highest worst ring of its partings, -1 where there is none."""
        worth, found, k = self.search.worth, self.found, self.k
        if k > 1 and found.all_equal(k):
            return np.full(len(worth.rings), worth.rings[worth.sets[k][0]])
        if k > 1:
            return found.worst_rings(k)[count - 1]
        singles = 1 << members(len(worth.rings) - 1)
        usable = int(singles[found.flags[singles]].sum())
        return np.where(np.arange(len(worth.rings)) & ~usable == 0, 0, -1)


def members(mask: int) -> Ints:
    """Return the indices of the GPUs of a mask."""
    return np.flatnonzero(mask >> np.arange(mask.bit_length()) & 1)

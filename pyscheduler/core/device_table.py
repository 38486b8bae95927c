"""The best set of k free GPUs on one kind of machine, exactly.

All sets of a machine are judged once, when its table is built; a choice is
then a search through a sorted list. Sets are bit masks: GPU i is bit i.

What a set is worth, in this order (higher first, except the last):

1. ring: bandwidth of the rings that a collective of exactly these GPUs can run
   on. A busy GPU is never a relay, so only links inside the set count.
2. pair sum: bandwidth over all pairs of the set.
3. NUMA nodes that the set touches.

Of sets that are equal in this, the one comes first that leaves most behind: the
free GPUs left are carved into disjoint sets of 8, in the best way, then of 4,
then of 2 (requests are mostly powers of two, and the largest are the hardest to
place); more ring bandwidth over all sets is better, then fewer NUMA nodes. Then
fewer aligned pairs 2i, 2i + 1 torn apart: neighbours on the PCI bus share a
switch on the common machines. Last come the lowest indices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pyscheduler.core.device_class import DeviceClass, TopologyPolicy, class_hash
from pyscheduler.core.set_worth import SetWorth, judge

__all__ = ["MAX_GPUS", "Choice", "DeviceClass", "DeviceTable", "TooManyGpusError", "TopologyPolicy", "class_hash"]

MAX_GPUS: Final = 16
_CACHE_MAX: Final = 1 << 16


class TooManyGpusError(ValueError):
    """A machine with more GPUs than the exact search can judge."""

    def __init__(self, gpus: int) -> None:
        super().__init__(f"machine has {gpus} GPUs; sets are judged up to {MAX_GPUS}: place by count on this node")
        self.gpus = gpus


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of GPUs on one machine, and what it is worth.

    Attributes
    ----------
    mask
        The GPUs.
    ring_gbps
        Bandwidth of the set's rings together, GB/s as all-reduce bus bandwidth; 0 for one GPU or unknown links.
    pair_sum_gbps
        Sum over all pairs, GB/s in one direction.
    numa_nodes
        NUMA nodes that the set touches; unknown ones count as one node.
    bottleneck
        Link type of the weakest pair in the set; None for one GPU.
    model
        What `ring_gbps` rests on: ``"ring-packing"`` (all rings on NVLink or xGMI, by linear programming),
        ``"bottleneck-ring"`` (the best single ring) or ``"single"`` (one GPU).
    key
        Orders choices of equal size on all machines, smaller is better. MB/s, so that equal sets compare equal.

    """

    mask: int
    ring_gbps: float
    pair_sum_gbps: float
    numa_nodes: int
    bottleneck: str | None
    model: str
    key: tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTable:
    """The worth of every set of GPUs of a class: immutable, pickles, and is safe to share between threads.

    Make one with `build`.
    """

    device_class: DeviceClass
    class_hash: str
    _worth: SetWorth
    # A choice is a pure function of the query, so a race between threads writes the same value twice.
    _cache: dict[int, Choice | None] = field(default_factory=dict)

    @classmethod
    def build(cls, device_class: DeviceClass) -> DeviceTable:
        """Judge all sets of `device_class`: up to about a second, so run it in a worker process.

        Raises
        ------
        TooManyGpusError
            If the class has more than `MAX_GPUS` GPUs.

        """
        if device_class.gpus > MAX_GPUS:
            raise TooManyGpusError(device_class.gpus)
        return cls(device_class, class_hash(device_class), judge(device_class))

    def choose(self, free_mask: int, k: int) -> Choice | None:
        """Return the best `k` of the free GPUs, or None if no set of them is free and admitted by the kubelet.

        Parameters
        ----------
        free_mask
            Free GPUs; bits beyond the machine's GPUs are ignored.
        k
            At least 1.

        """
        if k < 1:
            raise ValueError(f"cannot choose {k} GPUs: ask for at least 1")
        free = free_mask & ((1 << self.device_class.gpus) - 1)
        if k > free.bit_count():
            return None
        query = free << 5 | k
        try:
            return self._cache[query]
        except KeyError:
            if len(self._cache) >= _CACHE_MAX:
                self._cache.clear()
            choice = self._cache[query] = self._choose_one(free) if k == 1 else self._choose_set(free, k)
            return choice

    def _choose_one(self, free: int) -> Choice:
        """Choose the GPU whose best link to another free GPU is weakest: a larger job misses it least."""
        gpus = np.flatnonzero(free >> np.arange(self.device_class.gpus) & 1)
        best_links = self._worth.pairs[np.ix_(gpus, gpus)].max(axis=1)
        weakest = gpus[best_links == best_links.min()]
        mask = self._worth.leaving_most(free, 1 << weakest)
        return Choice(mask, 0.0, 0.0, 1, None, "single", key=(int(best_links.min()), 0, 1))

    def _choose_set(self, free: int, k: int) -> Choice | None:
        worth = self._worth
        mask = worth.best(free, k)
        if mask is None:
            return None
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

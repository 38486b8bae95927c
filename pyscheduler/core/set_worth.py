"""What every set of GPUs of a machine is worth, computed for all sets at once.

Sets are bit masks. Unless it says otherwise, an array has shape (2**n,) and is
indexed by mask; bandwidths are whole MB/s, so that equal sets compare equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.device_class import DeviceClass, TopologyPolicy, default_speeds
from pyscheduler.core.links import Link, behind_switch
from pyscheduler.core.rings import bottlenecks, packing

__all__ = ["Ints", "SetWorth", "judge"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# The low bits of a remainder's order: its whole aligned pairs.
_ALIGNED_PAIRS: Final = 0xF
_MAX_GPUS_PACKED: Final = 8
_UNLIMITED: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class SetWorth:
    """The worth of every set of GPUs of one class.

    Attributes
    ----------
    pairs
        Bandwidth of each pair, shape (n, n).
    rings, pair_sums, numa_nodes
        What a set is worth.
    weakest
        Link type of the weakest pair within, as a place in `ladder`.
    ladder
        Link types of the class, nearest first.
    packed
        Whether the ring is a packing of all rings, not the best single one.
    remainders
        Orders sets of one size by what they are worth when they are left over.
    sets
        By size k: the sets that the kubelet admits, best first, then lowest indices first.
    grades
        Equal for sets of equal worth.

    """

    pairs: Ints
    rings: Ints
    pair_sums: Ints
    numa_nodes: Ints
    weakest: Ints
    ladder: tuple[str, ...]
    packed: Flags
    remainders: Ints
    sets: tuple[Ints, ...]
    grades: Ints

    def best(self, free: int, k: int) -> int | None:
        """Return the best admitted set of `k` >= 2 within `free` that leaves most behind, None if there is none."""
        sets = self.sets[k]
        fitting = sets[sets & ~free == 0]
        if not fitting.size:
            return None
        grades = self.grades[fitting]
        return self.leaving_most(free, fitting[grades == grades[0]])

    def leaving_most(self, free: int, masks: Ints) -> int:
        """Return the first of `masks` that leaves most of `free` behind, then tears fewest aligned pairs apart."""
        order = self.remainders[free ^ masks] + (self.remainders[masks] & _ALIGNED_PAIRS)
        return int(masks[np.argmax(order)])


def judge(device_class: DeviceClass) -> SetWorth:
    """Return what every set of `device_class` is worth."""
    pairs = _pair_mbps(device_class)
    rings, packed = _ring_mbps(device_class, pairs)
    pair_sums = _over_pairs(pairs, np.add)
    numa_nodes = _numa_nodes(device_class.numa)
    admitted = _admitted(device_class, numa_nodes)
    ladder = sorted(set(device_class.links), key=lambda link: link.distance)
    # Ring before pair sum before fewest NUMA nodes: 27 + 31 + 5 bits.
    grades = rings << 36 | pair_sums << 5 | (31 - numa_nodes)
    return SetWorth(
        pairs=pairs,
        rings=rings,
        pair_sums=pair_sums,
        numa_nodes=numa_nodes,
        weakest=_over_pairs(_places(device_class, ladder), np.maximum),
        ladder=tuple(str(link) for link in ladder),
        packed=packed,
        remainders=_remainders(device_class, rings, numa_nodes, admitted),
        sets=tuple(_best_first(k, grades, admitted) for k in range(device_class.gpus + 1)),
        grades=grades,
    )


def _pair_mbps(device_class: DeviceClass) -> Ints:
    """Return the bandwidth of each pair in MB/s, shape (n, n)."""
    n = device_class.gpus
    mbps = np.zeros((n, n), np.int64)
    for (a, b), speed in zip(combinations(range(n), 2), device_class.speeds or default_speeds(device_class), strict=True):
        mbps[a, b] = mbps[b, a] = speed
    return mbps


def _ring_mbps(device_class: DeviceClass, pairs: Ints) -> tuple[Ints, Flags]:
    """Return each set's ring bandwidth, and whether it comes from a packing.

    NVLink and xGMI links carry their rate in both directions at once; PCIe paths
    share bridges and memory controllers, so one ring in one direction counts.
    """
    fast = np.where([[link.fast for link in row] for row in device_class.matrix], pairs, 0)
    single = bottlenecks(fast)
    small = device_class.gpus <= _MAX_GPUS_PACKED
    total = _packings(fast, single) if small else np.where(_sizes(len(pairs)) > 2, 2 * single, single)
    on_fast = np.minimum(total, _ports(device_class, fast))
    rings = np.maximum(on_fast, bottlenecks(pairs))
    if device_class.ring_mbps and rings[-1]:
        # What a collective of all GPUs was measured at corrects every set alike: the order within the machine stays.
        rings = rings * device_class.ring_mbps // rings[-1]
    return rings, (on_fast > 0) & small


def _packings(fast: Ints, single: Ints) -> Ints:
    """Return the packing of each set that has a ring on fast links; equal submatrices are solved once."""
    total = single.copy()
    solved: dict[bytes, int] = {}
    for mask in np.flatnonzero((single > 0) & (_sizes(len(fast)) > 2)):
        members = np.flatnonzero(mask >> np.arange(len(fast)) & 1)
        capacity = fast[np.ix_(members, members)]
        content = capacity.tobytes()
        if content not in solved:
            solved[content] = round(packing(capacity))
        total[mask] = solved[content]
    return total


def _ports(device_class: DeviceClass, fast: Ints) -> Ints:
    """Return for each set the bandwidth of its narrowest port to an NVSwitch, unlimited if none of it has one."""
    ports = np.full(1 << len(fast), _UNLIMITED)
    for gpu, row in enumerate(device_class.matrix):
        if behind_switch(row, device_class.models[gpu]):
            with_gpu = np.arange(1 << len(fast)) >> gpu & 1 == 1
            ports[with_gpu] = np.minimum(ports[with_gpu], fast[gpu].max())
    return ports


def _over_pairs(values: Ints, combine: Callable[[Ints, np.int64 | Ints], Ints]) -> Ints:
    """Return for each set the combination of `values` over its pairs, 0 for sets without one."""
    result = np.zeros(1, np.int64)
    for i, row in enumerate(values):
        to_new = np.zeros(1, np.int64)
        for j in range(i):
            to_new = np.concatenate([to_new, combine(to_new, row[j])])
        result = np.concatenate([result, combine(result, to_new)])
    return result


def _places(device_class: DeviceClass, ladder: Sequence[Link]) -> Ints:
    """Return for each pair its link's place on the ladder, shape (n, n)."""
    place = {link: at for at, link in enumerate(ladder)}
    return np.array([[place.get(link, 0) for link in row] for row in device_class.matrix], np.int64)


def _numa_nodes(numa: Sequence[int | None]) -> Ints:
    """Return for each set how many NUMA nodes it touches; unknown ones count as one node."""
    bit = {node: 1 << at for at, node in enumerate(dict.fromkeys(numa))}
    touched = np.zeros(1, np.int64)
    for node in numa:
        touched = np.concatenate([touched, touched | bit[node]])
    return np.bitwise_count(touched).astype(np.int64)


def _admitted(device_class: DeviceClass, numa_nodes: Ints) -> Flags:
    """Tell for each set whether the kubelet's topology policy admits it; an unknown NUMA node admits all.

    ``restricted`` admits what touches no more NUMA nodes than a pod of that size must on the empty machine.
    """
    admitted = np.ones(len(numa_nodes), np.bool_)
    if not device_class.policy.restricts or None in device_class.numa:
        return admitted
    if device_class.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return numa_nodes <= 1
    for k in range(1, device_class.gpus + 1):
        of_size = _sizes(device_class.gpus) == k
        admitted[of_size] = numa_nodes[of_size] == numa_nodes[of_size].min()
    return admitted


def _sizes(n: int) -> Ints:
    return np.bitwise_count(np.arange(1 << n)).astype(np.int64)


def _best_first(k: int, grades: Ints, admitted: Flags) -> Ints:
    """Return the admitted sets of `k`, best grade first, then in the order of their GPU indices."""
    n = len(grades).bit_length() - 1
    masks = np.flatnonzero((_sizes(n) == k) & admitted)
    # Of two sets of one size, that with the lower indices has the larger mirror image.
    mirrored = np.zeros_like(masks)
    for gpu in range(n):
        mirrored |= (masks >> gpu & 1) << (n - 1 - gpu)
    return masks[np.lexsort((-mirrored, -grades[masks]))]


def _remainders(device_class: DeviceClass, rings: Ints, numa_nodes: Ints, admitted: Flags) -> Ints:
    """Return a number for each set that orders sets of one size by what they are worth when they are left over."""
    n = device_class.gpus
    # Up to 8 disjoint sets: their (16 - NUMA nodes) add up to less than 128.
    worth = rings << 7 | (16 - numa_nodes)
    order = np.zeros(1 << n, np.int64)
    for k in (8, 4, 2):
        carved = _carved(np.where(admitted & (_sizes(n) == k), worth, 0))
        order = order << 16 | np.unique(carved, return_inverse=True)[1]
    return order << 4 | _aligned_pairs(device_class.numa)


def _carved(worth: Ints) -> Ints:
    """Return for each set the largest sum of `worth` over disjoint sets within it.

    Only sets of worth > 0 are used. Of the sets with highest GPU h, all are known once those below are:
    h stays unused, or one set takes it and the rest lies below.
    """
    total = np.zeros(1, np.int64)
    while len(total) < len(worth):
        with_top = total.copy()
        for below in np.flatnonzero(worth[len(total) : 2 * len(total)]):
            rest = _disjoint(int(below), len(total))
            with_top[rest | below] = np.maximum(with_top[rest | below], total[rest] + worth[len(total) + below])
        total = np.concatenate([total, with_top])
    return total


def _disjoint(mask: int, end: int) -> Ints:
    """Return all masks below `end`, a power of two, that share no GPU with `mask`."""
    result = np.zeros(1, np.int64)
    for gpu in range(end.bit_length() - 1):
        if not mask >> gpu & 1:
            result = np.concatenate([result, result | 1 << gpu])
    return result


def _aligned_pairs(numa: Sequence[int | None]) -> Ints:
    """Return for each set how many pairs 2i, 2i + 1 of one NUMA node lie whole within it."""
    masks = np.arange(1 << len(numa))
    count = np.zeros_like(masks)
    for first in range(0, len(numa) - 1, 2):
        if numa[first] == numa[first + 1]:
            count += masks >> first & 3 == 3
    return count

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

from pyscheduler.core.machine.admission import admitted
from pyscheduler.core.machine.device_class import DeviceClass, default_speeds
from pyscheduler.core.machine.leftovers import ALIGNED_PAIRS, leftovers
from pyscheduler.core.machine.links import Link, behind_switch
from pyscheduler.core.machine.rings import bottlenecks, packing

__all__ = ["Ints", "SetWorth", "judge"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

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
    widest
        The weakest pair of the set's best single ring.
    weakest
        Link type of the weakest pair within, as a place in `ladder`.
    ladder
        Link types of the class, nearest first.
    packed
        Whether the ring is a packing of all rings, not the best single one.
    remainders
        Orders sets of one size by what they are worth when they are left over.
    admitted
        Whether a set may be given out to one pod: by the kubelet's policy, and by the partitions.
    sets
        By size k: all sets, best first, then lowest indices first.
    grades
        Equal for sets of equal worth.

    """

    pairs: Ints
    rings: Ints
    widest: Ints
    pair_sums: Ints
    numa_nodes: Ints
    weakest: Ints
    ladder: tuple[str, ...]
    packed: Flags
    remainders: Ints
    admitted: Flags
    sets: tuple[Ints, ...]
    grades: Ints

    def best_of(self, sets: Ints, free: int) -> int | None:
        """Return the best of `sets` within `free` that leaves most behind, None if none lies within.

        `sets` is a part of ``self.sets[k]``, in its order.
        """
        fitting = sets[sets & ~free == 0]
        if not fitting.size:
            return None
        grades = self.grades[fitting]
        return self.leaving_most(free, fitting[grades == grades[0]])

    def leaving_most(self, free: int, masks: Ints) -> int:
        """Return the first of `masks` that leaves most of `free` behind, then tears fewest aligned pairs apart."""
        order = self.remainders[free ^ masks] + (self.remainders[masks] & ALIGNED_PAIRS)
        return int(masks[np.argmax(order)])


def judge(device_class: DeviceClass) -> SetWorth:
    """Return what every set of `device_class` is worth."""
    pairs = _pair_mbps(device_class)
    widest = bottlenecks(pairs)
    rings, packed = _ring_mbps(device_class, pairs, widest)
    pair_sums = _over_pairs(pairs, np.add)
    numa_nodes = _numa_nodes(device_class.numa)
    may = admitted(device_class, numa_nodes)
    ladder = sorted(set(device_class.links), key=lambda link: link.distance)
    # Ring before pair sum before fewest NUMA nodes: 27 + 31 + 5 bits.
    grades = rings << 36 | pair_sums << 5 | (31 - numa_nodes)
    return SetWorth(
        pairs=pairs,
        rings=rings,
        widest=widest,
        pair_sums=pair_sums,
        numa_nodes=numa_nodes,
        weakest=_over_pairs(_places(device_class, ladder), np.maximum),
        ladder=tuple(str(link) for link in ladder),
        packed=packed,
        remainders=leftovers(device_class.numa, rings, numa_nodes, may),
        admitted=may,
        sets=tuple(_best_first(k, grades) for k in range(device_class.gpus + 1)),
        grades=grades,
    )


def _pair_mbps(device_class: DeviceClass) -> Ints:
    """Return the bandwidth of each pair in MB/s, shape (n, n)."""
    n = device_class.gpus
    mbps = np.zeros((n, n), np.int64)
    for (a, b), speed in zip(combinations(range(n), 2), device_class.speeds or default_speeds(device_class), strict=True):
        mbps[a, b] = mbps[b, a] = speed
    return mbps


def _ring_mbps(device_class: DeviceClass, pairs: Ints, widest: Ints) -> tuple[Ints, Flags]:
    """Return each set's ring bandwidth, and whether it comes from a packing.

    NVLink and xGMI links carry their rate in both directions at once; PCIe paths
    share bridges and memory controllers, so one ring in one direction counts.
    """
    fast = np.where([[link.fast for link in row] for row in device_class.matrix], pairs, 0)
    single = bottlenecks(fast)
    small = device_class.gpus <= _MAX_GPUS_PACKED
    total = _packings(fast, single) if small else np.where(_sizes(len(pairs)) > 2, 2 * single, single)
    on_fast = np.minimum(total, _ports(device_class, fast))
    rings = np.maximum(on_fast, widest)
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


def _sizes(n: int) -> Ints:
    return np.bitwise_count(np.arange(1 << n)).astype(np.int64)


def _best_first(k: int, grades: Ints) -> Ints:
    """Return the sets of `k`, best grade first, then in the order of their GPU indices."""
    n = len(grades).bit_length() - 1
    masks = np.flatnonzero(_sizes(n) == k)
    # Of two sets of one size, that with the lower indices has the larger mirror image.
    mirrored = np.zeros_like(masks)
    for gpu in range(n):
        mirrored |= (masks >> gpu & 1) << (n - 1 - gpu)
    return masks[np.lexsort((-mirrored, -grades[masks]))]

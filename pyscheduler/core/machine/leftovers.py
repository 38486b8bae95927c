"""What a set of GPUs is worth when it is left over, computed for all sets at once.

The set is carved into disjoint sets of 8, in the best way, then of 4, then of 2:
requests are mostly powers of two, and the largest are the hardest to place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["ALIGNED_PAIRS", "leftovers"]

Ints = npt.NDArray[np.int64]

# The low bits of the order: whole aligned pairs.
ALIGNED_PAIRS: Final = 0xF


def leftovers(numa: Sequence[int | None], rings: Ints, numa_nodes: Ints, admitted: npt.NDArray[np.bool_]) -> Ints:
    """Return a number for each set that orders sets of one size by what they are worth when they are left over.

    Parameters
    ----------
    numa
        NUMA node of each GPU, None where it is not known.
    rings, numa_nodes, admitted
        By mask: ring in MB/s, number of NUMA nodes, and whether the set may be given out. Shape (2**n,).

    """
    sizes = np.bitwise_count(np.arange(len(rings)))
    # Up to 8 disjoint sets: their (16 - NUMA nodes) add up to less than 128.
    worth = rings << 7 | (16 - numa_nodes)
    order = np.zeros(len(rings), np.int64)
    for k in (8, 4, 2):
        carved = _carved(np.where(admitted & (sizes == k), worth, 0))
        order = order << 16 | np.unique(carved, return_inverse=True)[1]
    return order << 4 | _aligned_pairs(numa)


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

"""Several disjoint sets of equal size, exactly: how good the worst of them can be, and how GPUs are parted into them.

Dynamic programmes over masks. A mask of c x k GPUs is parted into the set that
holds its lowest GPU and a mask of (c - 1) x k; each parting is looked at once.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["part", "worst_rings"]

Ints = npt.NDArray[np.int64]

# Numbers that are looked at together: few enough for the cache of a core.
_BLOCK: Final = 1 << 15


def worst_rings(rings: Ints, k: int) -> tuple[Ints, ...]:
    """Return, for c = 1, 2, ..., the highest worst ring of c disjoint sets of `k` GPUs within each mask.

    Parameters
    ----------
    rings
        Ring of each set in MB/s, -1 for one that may not be given out. Shape (2**n,), as the answers.
    k
        At least 1.

    Returns
    -------
    tuple of numpy.ndarray
        Entry c - 1 is for c sets; -1 where there are not so many. It has n // k entries.

    """
    n = len(rings).bit_length() - 1
    sizes = np.bitwise_count(np.arange(len(rings)))
    found: list[Ints] = []
    for count in range(1, n // k + 1):
        worst = np.full(len(rings), -1, np.int64)
        masks = np.flatnonzero(sizes == count * k)
        worst[masks] = rings[masks] if count == 1 else _worst_of(masks, k, rings, found[-1])
        found.append(_within(worst))
    return tuple(found)


def _worst_of(masks: Ints, k: int, rings: Ints, worst_of_rest: Ints) -> Ints:
    """Return for masks of one size the best of the worst rings of their partings."""
    best = np.full(len(masks), -1, np.int64)
    bits, choices = _bits(masks), _choices(int(masks[0]).bit_count(), k)
    step = max(1, _BLOCK // len(masks))
    for begin in range(0, len(choices), step):
        sets = _with_lowest(bits, choices[begin : begin + step])
        np.maximum(best, np.minimum(rings[sets], worst_of_rest[masks ^ sets]).max(axis=0), out=best)
    return best


def _within(values: Ints) -> Ints:
    """Return for each mask the largest value of all masks within it."""
    result = values.copy()
    for gpu in range(len(values).bit_length() - 1):
        halves = result.reshape(-1, 2, 1 << gpu)
        np.maximum(halves[:, 0], halves[:, 1], out=halves[:, 1])
    return result


def _bits(masks: Ints) -> Ints:
    """Return the GPUs of masks of one size as bits, lowest first, shape (size, masks)."""
    size, gpus = int(masks[0]).bit_count(), int(masks[-1]).bit_length()
    bits: Ints = 1 << np.nonzero(masks[:, None] >> np.arange(gpus) & 1)[1].reshape(len(masks), size).T.copy()
    return bits


def _choices(size: int, k: int) -> Ints:
    """Return the ways to take `k` - 1 of the places after the first, lowest first, shape (ways, k - 1)."""
    return np.array(list(combinations(range(1, size), k - 1)), np.int64)


def _with_lowest(bits: Ints, choices: Ints) -> Ints:
    """Return the sets of the lowest GPU and those at the chosen places, shape (choices, masks)."""
    sets = np.repeat(bits[:1], len(choices), axis=0)
    for place in choices.T:
        sets |= bits[place]
    return sets


def part(mask: int, k: int, rings: Ints, pair_sums: Ints, rest: Ints) -> tuple[int, ...]:
    """Return the best parting of `mask` into sets of `k`: largest sum of rings, then of pair sums, then of `rest`.

    Parameters
    ----------
    mask
        GPUs, a multiple of `k`.
    k
        At least 1.
    rings, pair_sums, rest
        By mask. Sets with a ring below 0 are not used. `rest` decides between equals; its sums stay below 2**62.

    Returns
    -------
    tuple of int
        Lowest GPU first; empty if there is no such parting.

    """
    members = _scattered(mask)
    rings, pair_sums, rest = rings[members], pair_sums[members], rest[members]
    # 8 sets x 27 bits before what is at most the pair sum of all, 31 bits: as `set_worth` grades them.
    worth = np.where(rings >= 0, rings << 31 | pair_sums, -1)
    total, total_rest = np.full(len(members), -1, np.int64), np.zeros(len(members), np.int64)
    total[0] = 0
    first = np.zeros(len(members), np.int64)
    for masks, with_lowest, left in reversed(_steps(len(members) - 1, k, worth >= 0)):
        sums = np.where((worth[with_lowest] >= 0) & (total[left] >= 0), worth[with_lowest] + total[left], -1)
        best = sums.max(axis=0)
        rests = np.where(sums == best, rest[with_lowest] + total_rest[left], np.iinfo(np.int64).min)
        at = rests.argmax(axis=0)[None]
        total[masks], total_rest[masks] = best, np.take_along_axis(rests, at, axis=0)[0]
        first[masks] = np.take_along_axis(with_lowest, at, axis=0)[0]
    sets, left_over = [], len(members) - 1
    if total[left_over] < 0:
        return ()
    while left_over:
        sets.append(int(members[first[left_over]]))
        left_over ^= int(first[left_over])
    return tuple(sets)


def _steps(everyone: int, k: int, usable: npt.NDArray[np.bool_]) -> list[tuple[Ints, Ints, Ints]]:
    """Return, from all GPUs down to the last `k`, the masks that are met when usable sets are taken off, and their partings."""
    steps = []
    masks = np.array([everyone])
    while masks.size and masks[0]:
        with_lowest = _with_lowest(_bits(masks), _choices(int(masks[0]).bit_count(), k))
        left = masks ^ with_lowest
        steps.append((masks, with_lowest, left))
        met = np.zeros(everyone + 1, np.bool_)
        met[left[usable[with_lowest]]] = True
        masks = np.flatnonzero(met)
    return steps


def _scattered(mask: int) -> Ints:
    """Return all masks within `mask`; entry i holds its j-th lowest GPU where bit j of i is set."""
    result = np.zeros(1, np.int64)
    for gpu in range(mask.bit_length()):
        if mask >> gpu & 1:
            result = np.concatenate([result, result | 1 << gpu])
    return result

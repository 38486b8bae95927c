"""Candidate sets on machines with too many GPUs to judge all sets: grown from every GPU at once, then improved by swaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["grown", "swapped"]

Matrix = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Classes of components that are tried.
_LEVELS_MAX: Final = 3
# Where sets begin if they may not begin everywhere: below `_FEW` steps of growth in all, they may.
_SEEDS_MAX: Final = 32
_FEW: Final = 1 << 10
# 128 edges of up to 4 TB/s in MB/s, times the unit of `large_search`.
_SUM_BITS: Final = 40


def grown(affinity: Matrix, ranks: Matrix, apart: Flags, seeds: Matrix, k: int) -> tuple[list[Matrix], list[Matrix]]:
    """Return sets of `k` vertices, each grown from one of `seeds` by the vertex that is nearest to all taken so far.

    Kruskal's way: edges of at least some width part the vertices into components. The widest such classes of which some
    component has `k` vertices are tried, all of their components alike, and sets grow within one component.

    Parameters
    ----------
    affinity
        Of each pair, shape (n, n): larger is nearer.
    ranks
        Numbers in the order of `affinity`, small enough to stand before a sum of it.
    apart
        Pairs that may not be in one set.
    seeds
        Where sets may begin.
    k
        At least 2.

    Returns
    -------
    tuple of two lists of numpy.ndarray
        Vertices of each set in rising order, no set twice. Of the first list those where nearest is by the sum of edges,
        of the second by the weakest edge first.

    """
    by_sum: dict[bytes, Matrix] = {}
    by_weakest: dict[bytes, Matrix] = {}
    for component in _components(np.where(apart, 0, affinity), k):
        sizes = np.bincount(component)
        able = seeds[sizes[component[seeds]] >= k]
        # Spread over the components, so that each has its chance.
        able = able[np.argsort(component[able], kind="stable")]
        if len(able) > _SEEDS_MAX and len(able) * k > _FEW:
            able = able[np.linspace(0, len(able) - 1, _SEEDS_MAX).astype(np.int64)]
        outside = apart | (component[:, None] != component)
        for order, found in ((np.zeros_like(ranks), by_sum), (ranks, by_weakest)):
            found.update((each.tobytes(), each) for each in _grow(affinity, order, outside, able, k))
    return list(by_sum.values()), [each for name, each in by_weakest.items() if name not in by_sum]


def _components(affinity: Matrix, k: int) -> Iterator[Matrix]:
    """Yield the component of each vertex, for the widest floors that leave a component of `k`."""
    # Only machines of this size pay for this import.
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    parts: list[int] = []
    for floor in np.unique(affinity)[::-1]:
        _, component = connected_components(affinity >= floor, directed=False)
        sizes = np.bincount(component)
        if sizes.max() >= k and len(sizes) not in parts:
            yield component.astype(np.int64)
            parts.append(len(sizes))
        if len(parts) == _LEVELS_MAX or len(sizes) == 1:
            return


def _grow(affinity: Matrix, ranks: Matrix, apart: Flags, seeds: Matrix, k: int) -> Iterator[Matrix]:
    rows = np.arange(len(seeds))
    taken = np.zeros((len(seeds), len(affinity)), np.bool_)
    taken[rows, seeds] = True
    blocked = taken | apart[seeds]
    total, weakest = affinity[seeds], ranks[seeds]
    stuck = np.zeros(len(seeds), np.bool_)
    for _ in range(k - 1):
        following = np.where(blocked, -1, weakest << _SUM_BITS | total).argmax(axis=1)
        stuck |= blocked[rows, following]
        taken[rows, following] = True
        blocked |= taken | apart[following]
        total += affinity[following]
        np.minimum(weakest, ranks[following], out=weakest)
    for row in np.flatnonzero(~stuck):
        yield np.flatnonzero(taken[row])


def swapped(affinity: Matrix, apart: Flags, members: Matrix) -> Matrix:
    """Return the set after the best swaps of one vertex within for one without, as long as they bring it nearer together."""
    inside = np.zeros(len(affinity), np.bool_)
    inside[members] = True
    for _ in range(len(members)):
        within, without = np.flatnonzero(inside), np.flatnonzero(~inside)
        if not without.size:
            break
        near = affinity[:, within].sum(axis=1)
        gain = near[without] - near[within][:, None] - affinity[np.ix_(within, without)]
        # What comes in may be apart from none that stays.
        hindered = apart[np.ix_(within, without)]
        gain[hindered.sum(axis=0) - hindered > 0] = 0
        out, into = np.unravel_index(gain.argmax(), gain.shape)
        if gain[out, into] <= 0:
            break
        inside[within[out]], inside[without[into]] = False, True
    return np.flatnonzero(inside)

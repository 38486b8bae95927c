"""A good ring through many vertices: by search, not proven best."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["ring_floor", "wide_ring"]

Matrix = npt.NDArray[np.int64]


def ring_floor(capacity: Matrix) -> int:
    """Return the weakest edge of a ring through all k >= 3 vertices that is as wide as the search finds; 0 if none is found.

    `capacity` is symmetric, with 0 for no edge and on its diagonal.
    """
    for floor in _floors(capacity):
        if _surely_has_ring(capacity >= floor) or _ring(capacity, floor):
            return int(floor)
    return 0


def wide_ring(capacity: Matrix) -> tuple[int, ...]:
    """Return the vertices in the order of such a ring, from vertex 0 towards its lower neighbour; by index if none is found."""
    for floor in _floors(capacity) if len(capacity) > 3 else ():
        if order := _ring(capacity, floor):
            return order if order[1] < order[-1] else (order[0], *order[:0:-1])
    return tuple(range(len(capacity)))


def _floors(capacity: Matrix) -> Matrix:
    """Return the weakest edges that a ring may have, highest first: every vertex needs two edges as wide."""
    highest = np.partition(capacity, -2, axis=1)[:, -2].min()
    floors: Matrix = np.unique(capacity)
    possible: Matrix = floors[(floors > 0) & (floors <= highest)]
    return possible[::-1]


def _surely_has_ring(linked: npt.NDArray[np.bool_]) -> bool:
    """Dirac's theorem: a graph of k >= 3 vertices has a ring if each has at least k / 2 neighbours."""
    return len(linked) > 2 and bool((linked.sum(axis=1) * 2 >= len(linked)).all())


def _ring(capacity: Matrix, floor: int) -> tuple[int, ...]:
    """Return a ring on edges of at least `floor`, empty if none is found.

    A path grows along its widest edge. Where it cannot grow, or close, its end is turned round (Posa's rotation): the
    part behind a neighbour of the end is reversed, which makes another vertex the end; one from which it goes on, if any.
    """
    k = len(capacity)
    linked = capacity >= floor
    path = [0]
    tried: set[int] = set()
    while True:
        end = path[-1]
        if len(path) == k and linked[end, 0]:
            return tuple(path)
        onward = np.where(linked[end], capacity[end], 0)
        onward[path] = 0
        if onward.any():
            path.append(int(onward.argmax()))
            tried = set()
            continue
        tried.add(end)
        turns = [at for at in range(len(path) - 2) if linked[end, path[at]] and path[at + 1] not in tried]
        if not turns:
            return ()
        wanted = [vertex for vertex in range(k) if vertex not in path] or [0]
        turn = next((at for at in turns if linked[path[at + 1], wanted].any()), turns[0])
        path[turn + 1 :] = path[:turn:-1]

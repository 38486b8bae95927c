"""Rings through sets of vertices: which sets have one, and how much traffic theirs carry together.

A collective among k GPUs runs around rings, Hamiltonian cycles of the set, on
links of the set alone. Sets are bit masks; of two vertices, the ring is their edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["bottlenecks", "packing", "ring_order"]

Matrix = npt.NDArray[np.int64]

# So far below any sum of 16 edges that it stays below 0 with them.
_NO_EDGE = -(1 << 40)


def bottlenecks(capacity: Matrix) -> Matrix:
    """Return, for every set of vertices, the weakest edge of the ring whose weakest edge is strongest.

    Parameters
    ----------
    capacity
        Shape (n, n), symmetric, not negative; 0 is no edge.

    Returns
    -------
    numpy.ndarray
        Shape (2**n,), indexed by mask; 0 for sets without a ring.

    """
    n = len(capacity)
    best = np.zeros(1 << n, np.int64)
    for floor in np.unique(capacity[capacity > 0]):
        neighbours = [sum(1 << j for j in range(n) if j != i and capacity[i, j] >= floor) for i in range(n)]
        best[_has_ring(neighbours)] = floor
    return best


def _has_ring(neighbours: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Tell for every mask whether its vertices lie on one cycle.

    Held and Karp's dynamic programme over sets: ``ends[mask]`` holds the last vertices of all paths that visit
    exactly `mask` and begin at its lowest vertex.
    """
    n = len(neighbours)
    ends = np.zeros(1 << n, np.int32)
    ends[1 << np.arange(n)] = 1 << np.arange(n)
    for vertex, shorter, longer in _path_steps(n):
        ends[longer] |= np.where(ends[shorter] & neighbours[vertex], 1 << vertex, 0).astype(np.int32)
    masks = np.arange(1 << n)
    lowest = np.bitwise_count((masks & -masks) - 1)
    closing = np.array([*neighbours, 0], np.int32)[np.where(masks > 0, lowest, n)]
    closed: npt.NDArray[np.bool_] = (ends & closing) != 0
    return closed


@cache
def _path_steps(n: int) -> tuple[tuple[int, Matrix, Matrix], ...]:
    """Return (vertex, masks without it, masks with it) in an order in which paths grow by one vertex a step."""
    masks = np.arange(1 << n)
    sizes = np.bitwise_count(masks)
    lowest = masks & -masks
    steps = []
    for size in range(1, n):
        layer = masks[sizes == size]
        for vertex in range(1, n):
            shorter = layer[((layer >> vertex) & 1 == 0) & (lowest[layer] < 1 << vertex)]
            steps.append((vertex, shorter, shorter | 1 << vertex))
    return tuple(steps)


def packing(capacity: Matrix) -> float:
    """Return how much traffic all rings through all k >= 3 vertices carry together, in the unit of `capacity`.

    Every edge carries its capacity in each direction, and every ring runs in
    both: twice the fractional packing of undirected Hamiltonian cycles, found by
    linear programming. 0 if there is no ring.
    """
    # A worker that builds tables pays for this import (0.3 s), the process that only reads them does not.
    from scipy.optimize import linprog  # noqa: PLC0415

    cycles = list(_hamiltonian_cycles(capacity))
    if not cycles:
        return 0.0
    k = len(capacity)
    uses = np.zeros((k * k, len(cycles)))
    for column, cycle in enumerate(cycles):
        for a, b in pairwise((*cycle, cycle[0])):
            uses[min(a, b) * k + max(a, b), column] = 1
    solution = linprog(-np.ones(len(cycles)), A_ub=uses, b_ub=capacity.reshape(-1), method="highs")
    if solution.fun is None:
        raise ArithmeticError(f"no packing of {len(cycles)} rings through {k} GPUs: {solution.message}")
    return -2 * solution.fun


def _hamiltonian_cycles(capacity: Matrix) -> Iterator[tuple[int, ...]]:
    """Yield every undirected Hamiltonian cycle once, from vertex 0 towards the lower of its two neighbours."""
    k = len(capacity)
    paths: list[tuple[int, ...]] = [(0,)]
    while paths:
        path = paths.pop()
        if len(path) == k:
            if path[1] < path[-1] and capacity[path[-1], 0]:
                yield path
            continue
        paths.extend((*path, v) for v in range(1, k) if v not in path and capacity[path[-1], v])


def ring_order(capacity: Matrix, floor: int) -> tuple[int, ...]:
    """Return all vertices in the order of the ring with the largest sum, on edges of at least `floor`.

    Of equal rings the one whose order is lowest; it begins at vertex 0 and goes towards the lower of its neighbours.
    Exact (Held and Karp), for up to 16 vertices.

    Parameters
    ----------
    capacity
        As of `bottlenecks`.
    floor
        The weakest edge of the best ring, as `bottlenecks` says; 0 if there is none: then the order is by index.

    """
    k = len(capacity)
    if not floor or k < 4 or (capacity[np.triu_indices(k, 1)] == capacity[0, 1]).all():
        return tuple(range(k))
    edges = np.where(capacity >= floor, capacity, _NO_EDGE)
    return _lowest_ring(edges, _longest_paths(edges))


def _longest_paths(edges: Matrix) -> Matrix:
    """Return the largest sum of a path from vertex 0 through exactly a set of the others to one of them.

    Shape (2**(k - 1), k - 1), by mask of the others and last of them; below 0 where there is no path.
    """
    others = len(edges) - 1
    masks = np.arange(1 << others)
    sizes = np.bitwise_count(masks)
    best = np.full((1 << others, others), _NO_EDGE, np.int64)
    best[1 << np.arange(others), np.arange(others)] = edges[0, 1:]
    for size in range(2, others + 1):
        layer = masks[sizes == size]
        for last in range(others):
            longer = layer[layer >> last & 1 == 1]
            best[longer, last] = np.maximum((best[longer ^ 1 << last] + edges[last + 1, 1:]).max(axis=1), _NO_EDGE)
    return best


def _lowest_ring(edges: Matrix, paths: Matrix) -> tuple[int, ...]:
    """Return the lowest order of all rings of the largest sum."""
    left, at = len(paths) - 1, 0
    wanted = (paths[left] + edges[0, 1:]).max()
    order = [0]
    while left:
        # A path from vertex 0 to the next one, read backwards, is how the ring goes on from there.
        through = paths[left] + edges[at, 1:]
        following = int(np.argmax((through == wanted) & (left >> np.arange(len(edges) - 1) & 1 == 1)))
        wanted = paths[left, following]
        left ^= 1 << following
        at = following + 1
        order.append(at)
    return tuple(order)

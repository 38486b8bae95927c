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

__all__ = ["bottlenecks", "packing"]

Matrix = npt.NDArray[np.int64]


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

"""Arrays with one row per card: they grow and shrink together."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["append", "keep", "put", "quotient"]

_Rows = TypeVar("_Rows")


def append(rows: _Rows, more: _Rows) -> None:
    """Put the rows of another object of the same class behind those of the first: each array among its attributes."""
    for name, array in vars(rows).items():
        if isinstance(array, np.ndarray):
            setattr(rows, name, np.concatenate((array, getattr(more, name))))


def keep(rows: object, kept: NDArray[np.int64]) -> None:
    """Drop all rows but these."""
    for name, array in vars(rows).items():
        if isinstance(array, np.ndarray):
            setattr(rows, name, array[kept])


def put(rows: _Rows, places: NDArray[np.int64], others: _Rows) -> None:
    """Put the rows of another object of the same class in the place of these."""
    for name, array in vars(rows).items():
        if isinstance(array, np.ndarray):
            array[places] = getattr(others, name)


def quotient(total: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the one divided by the other; NaN where there is no weight."""
    result = np.full(len(total), np.nan)
    np.divide(total, weight, out=result, where=weight > 0)
    return result

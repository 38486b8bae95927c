"""Levels of the fabric and the nodes of their domains, as groups name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pyscheduler.core import bitmap
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, MergeTree
from pyscheduler.core.freeing import domains

__all__ = ["at_positions", "emptiest", "level_names", "nodes_within", "numbers"]

Ints = npt.NDArray[np.int64]


def level_names(tree: MergeTree) -> list[str | None]:
    """Return the names of all levels, nearest first; None is the whole cluster."""
    return [NODE_LEVEL, *tree.levels[:-1], None]


def numbers(tree: MergeTree, level: str | None) -> Ints:
    """Return a number for the domain of this level that each position is in, shape (nodes,)."""
    return domains(tree, np.arange(len(tree.order)), level)


def nodes_within(tree: MergeTree, nodes: Sequence[int], level: str | None) -> int:
    """Return the nodes of the domains of a level that these nodes are in, as a bitmap; of a level that is not known, these alone."""
    found = numbers(tree, level if level in level_names(tree) else NODE_LEVEL)
    return at_positions(tree, np.isin(found, found[tree.position[list(nodes)]]))


def emptiest(tree: MergeTree, nodes: Sequence[int], level: str | None) -> Iterator[int]:
    """Yield the nodes of the domains of a level by how many of these nodes are there, the fewest first; a node may be named twice."""
    if level not in level_names(tree):
        return
    found = numbers(tree, level)
    counts = np.bincount(found[tree.position[list(nodes)]], minlength=len(found))[found]
    for count in np.unique(counts).tolist():
        yield at_positions(tree, counts == count)


def at_positions(tree: MergeTree, flags: npt.NDArray[np.bool_]) -> int:
    """Return the nodes at the positions whose flags are set, as a bitmap."""
    by_node = np.zeros_like(flags)
    by_node[tree.order] = flags
    return bitmap.from_bytes(np.packbits(by_node, bitorder="little").tobytes())

"""Which cards nodes have, by their documents: a card is known before it has a series, and one that has left is missed no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.readings import Bools

__all__ = ["Inventory"]

# The UUIDs of a node's cards, None or an index for one whose UUID is not known; empty where nothing is known of its cards.
Uuids = Sequence[str | None]


class Inventory:
    """The nodes that there are, and their cards. Nothing follows from it before it was taken once.

    Parameters
    ----------
    nodes
        The cards of each node that there is, None if that is not known.
    """

    def __init__(self, nodes: Mapping[str, Uuids] | None = None) -> None:
        known = (nodes or {}).items()
        self.cards = frozenset(CardKey(name, uuid) for name, uuids in known for uuid in uuids if uuid is not None)
        self._complete = nodes is not None
        # Nodes of which more cards may be there than are listed.
        self._open = frozenset(name for name, uuids in known if not uuids or not all(map(_is_named, uuids)))

    def missing(self, rows: Mapping[CardKey, int]) -> Iterator[CardKey]:
        """Yield the cards that have no row, in order."""
        return iter(sorted(self.cards - rows.keys()))

    def listed(self, keys: Iterable[CardKey]) -> Bools:
        """Tell which of these cards are where they are said to be; a slice is where its card is."""
        return np.array([CardKey(node, uuid) in self.cards for node, uuid, _ in keys], dtype=np.bool_)

    def absent(self, keys: Iterable[CardKey]) -> Bools:
        """Tell which of these cards are certainly not there: their node is gone, or all its cards are known and are others."""
        there = (self._is_there(node, uuid) for node, uuid, _ in keys)
        return np.array([self._complete and not each for each in there], dtype=np.bool_)

    def _is_there(self, node: str, uuid: str) -> bool:
        return node in self._open or CardKey(node, uuid) in self.cards


def _is_named(uuid: str | None) -> bool:
    return uuid is not None and not uuid.startswith("index:")

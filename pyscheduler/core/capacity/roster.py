"""Which card has which row, and what is known of it beside its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.readings import Bools

__all__ = ["Roster"]


class Roster:
    """The cards in the order of their rows.

    Attributes
    ----------
    rows
        The row of each card.
    models
        The number of each card's model, -1 if nobody says it.
    limits
        The power limit that the facts give, NaN if none.
    nodes
        The number of each card's node.
    polled
        Whether it has been in a poll.
    """

    def __init__(self) -> None:
        self.rows: dict[CardKey, int] = {}
        self.models: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.limits: Floats = np.zeros(0)
        self.nodes: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.polled: Bools = np.zeros(0, dtype=np.bool_)
        self._model_numbers: dict[str, int] = {}
        self._node_numbers: dict[str, int] = {}
        self._pods: list[str | None] = []
        # The row of each UUID where it was polled last.
        self._newest: dict[str, int] = {}

    def add(self, cards: Sequence[CardKey]) -> list[tuple[int, CardKey]]:
        """Add the cards that are not there; return them with their rows."""
        new = [key for key in dict.fromkeys(cards) if key not in self.rows]
        if not new:
            return []
        first = len(self.rows)
        added = [(first + place, key) for place, key in enumerate(new)]
        self.rows |= {key: row for row, key in added}
        self._newest |= {key.identity: row for row, key in added}
        self._pods += [None] * len(new)
        nodes = [self._node_numbers.setdefault(key.node, len(self._node_numbers)) for key in new]
        self.nodes = np.concatenate((self.nodes, np.array(nodes, dtype=np.int64)))
        self.models = np.concatenate((self.models, np.full(len(new), -1)))
        self.limits = np.concatenate((self.limits, np.full(len(new), np.nan)))
        self.polled = np.concatenate((self.polled, np.zeros(len(new), dtype=np.bool_)))
        return added

    def update(self, cards: Sequence[CardKey], facts: Sequence[CardFacts]) -> NDArray[np.int64]:
        """Take the facts; return the row of each card. A fact that is missing now stays as it was."""
        rows = np.array([self.rows[key] for key in cards], dtype=np.int64)
        self.polled[rows] = True
        if len(self._newest) < len(self.rows):
            self._newest |= {key.identity: self.rows[key] for key in cards}
        for row, fact in zip(rows.tolist(), facts, strict=False):
            if fact.model:
                self.models[row] = self._model_numbers.setdefault(fact.model, len(self._model_numbers))
            if fact.power_limit_w is not None:
                self.limits[row] = fact.power_limit_w
        return rows

    def model_names(self) -> list[str]:
        """Return the model of each card, "" if nobody says it."""
        names = ["", *self._model_numbers]
        return [names[number + 1] for number in self.models.tolist()]

    def pods_moved(self, pods: Mapping[CardKey, str] | None) -> Bools:
        """Tell which cards another pod has than before; none if it is not known who has them."""
        if pods is None:
            return np.zeros(len(self.rows), dtype=np.bool_)
        now = [pods.get(key) for key in self.rows]
        moved = np.array([pod != before for pod, before in zip(now, self._pods, strict=True)], dtype=np.bool_)
        self._pods = now
        return moved

    def held(self) -> Bools:
        """Tell which cards a pod has, as far as was said last."""
        return np.array([pod is not None for pod in self._pods], dtype=np.bool_)

    def identities(self) -> dict[str, int]:
        """Return the row of each UUID: where it was polled last, if it has moved."""
        return dict(self._newest)

    def is_newest(self) -> Bools:
        """Tell which rows are where their card was polled last."""
        if len(self._newest) == len(self.rows):
            return np.ones(len(self.rows), dtype=np.bool_)
        return np.array([self._newest[key.identity] == row for key, row in self.rows.items()], dtype=np.bool_)

    def keep(self, kept: NDArray[np.int64]) -> NDArray[np.int64]:
        """Drop all rows but these; number the nodes anew that have one, and return what their numbers were."""
        keys = list(self.rows)
        left = [keys[row] for row in kept.tolist()]
        self._pods = [self._pods[row] for row in kept.tolist()]
        newest = {key.identity for key in left if self._newest[key.identity] == self.rows[key]}
        self.models, self.limits, self.polled = self.models[kept], self.limits[kept], self.polled[kept]
        numbers, self.nodes = np.unique(self.nodes[kept], return_inverse=True)
        names = list(self._node_numbers)
        self._node_numbers = {names[number]: new for new, number in enumerate(numbers.tolist())}
        self.rows = {key: row for row, key in enumerate(left)}
        self._newest = {key.identity: row for row, key in enumerate(left) if key.identity in newest}
        return numbers

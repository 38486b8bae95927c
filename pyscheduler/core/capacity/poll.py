"""One reading of the whole fleet, as the collector hands it over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.quantities import Quantity

__all__ = ["Column", "Floats", "Poll"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Column:
    """The samples of one quantity.

    Attributes
    ----------
    cards
        For each sample the index of its card in the poll's list.
    values
        As measured, in the quantity's unit.
    times
        When each was really measured, in Unix seconds.
    """

    cards: Sequence[int] | NDArray[np.int64]
    values: Floats
    times: Floats

    def __post_init__(self) -> None:
        """Refuse columns of unequal length."""
        if not len(self.cards) == len(self.values) == len(self.times):
            lengths = f"{len(self.cards)}, {len(self.values)} and {len(self.times)}"
            raise ValueError(f"cards, values and times have {lengths} entries: give one of each per sample")


@dataclass(frozen=True, slots=True)
class Poll:
    """What was there at one moment.

    Attributes
    ----------
    at
        When it was asked for, in Unix seconds.
    complete
        Whether all was answered. If not, nothing follows from what is absent.
    cards, facts
        The cards, and what is known of each; `facts` may be empty.
    """

    at: float
    complete: bool
    cards: Sequence[CardKey]
    samples: Mapping[Quantity, Column]
    facts: Sequence[CardFacts] = field(default=())

    def __post_init__(self) -> None:
        """Refuse facts of other cards."""
        if self.facts and len(self.facts) != len(self.cards):
            raise ValueError(f"there are facts of {len(self.facts)} cards and {len(self.cards)} cards: give one of each per card")

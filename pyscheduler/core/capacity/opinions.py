"""What others say of cards: health checks of the cluster, its operators and its provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pyscheduler.core.capacity.cards import CardKey

__all__ = ["ALL_CARDS", "SAYS_NOTHING", "NodeOpinion", "Opinion", "Signal", "Where", "opinions_of", "repairs_of", "worse"]

# Stands for all cards of a node.
ALL_CARDS: Final = "*"


@dataclass(frozen=True, slots=True)
class Opinion:
    """What somebody else says of a card: 0 bad to 1 good, and a sentence that says who and why."""

    value: float
    reason: str


@dataclass(frozen=True, slots=True)
class NodeOpinion:
    """What is said of a node.

    Attributes
    ----------
    every
        Of all its cards; None if nothing is.
    cards
        Of single cards, by UUID.
    repaired
        When cards were repaired, in Unix seconds, by UUID or `ALL_CARDS`.
    """

    every: Opinion | None = None
    cards: Mapping[str, Opinion] = field(default_factory=dict)
    repaired: Mapping[str, float] = field(default_factory=dict)

    def of(self, uuid: str) -> Opinion | None:
        """Return the worst that is said of a card, None if nothing is."""
        return worse(self.every, self.cards.get(uuid))

    def repaired_at(self, uuid: str) -> float | None:
        """Return when a card was repaired last, None if nobody says so."""
        times = [self.repaired[name] for name in (ALL_CARDS, uuid) if name in self.repaired]
        return max(times, default=None)

    def joined(self, other: NodeOpinion) -> NodeOpinion:
        """Return what both say."""
        cards = dict(self.cards)
        for uuid, opinion in other.cards.items():
            cards[uuid] = worse(cards.get(uuid), opinion) or opinion
        repaired = dict(self.repaired)
        for uuid, time in other.repaired.items():
            repaired[uuid] = max(repaired.get(uuid, time), time)
        return NodeOpinion(worse(self.every, other.every), cards, repaired)


SAYS_NOTHING: Final = NodeOpinion()


def worse(first: Opinion | None, second: Opinion | None) -> Opinion | None:
    """Return the opinion with the lower value, the first of equal ones."""
    if first is None or second is None:
        return first or second
    return second if second.value < first.value else first


def opinions_of(said: Mapping[str, NodeOpinion], cards: Iterable[CardKey]) -> dict[CardKey, Opinion]:
    """Return what is said of cards, given what is said of nodes by name. Slices of a card are as the card is."""
    found = ((key, said.get(key.node, SAYS_NOTHING).of(key.uuid)) for key in cards)
    return {key: opinion for key, opinion in found if opinion is not None}


def repairs_of(said: Mapping[str, NodeOpinion], cards: Iterable[CardKey]) -> dict[CardKey, float]:
    """Return when cards were repaired, as `opinions_of`."""
    found = ((key, said.get(key.node, SAYS_NOTHING).repaired_at(key.uuid)) for key in cards)
    return {key: time for key, time in found if time is not None}


class Where(Enum):
    """Where on a Node something is said; the values are the words of the configuration."""

    # A label or an annotation; the annotation wins.
    LABEL = "label"
    CONDITION = "condition"
    TAINT = "taint"


@dataclass(frozen=True, slots=True)
class Signal:
    """A way in which somebody says how good the cards of a node are.

    Attributes
    ----------
    where, key
        What is looked at: a label, a condition's type, a taint's key.
    values
        What each value means, in lower case: that of a label, the status of a condition, the effect of a taint. Without
        any the value is a number from 0 to 1 itself.
    who
        Whose it is.
    """

    where: Where
    key: str
    values: Mapping[str, float]
    who: str = ""

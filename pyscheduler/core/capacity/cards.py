"""Which card, and what is known of it beside its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["CardFacts", "CardKey"]


class CardKey(NamedTuple):
    """A card where it is: the node, its UUID, and the MIG instance ("" for a whole card)."""

    node: str
    uuid: str
    mig: str = ""

    @property
    def by_index(self) -> bool:
        """Whether its UUID is not known: it goes by its index."""
        return self.uuid.startswith("index:")

    @property
    def identity(self) -> str:
        """What stays when the card moves to another node; an index is of its node alone."""
        name = f"{self.node}/{self.uuid}" if self.by_index else self.uuid
        return f"{name}/{self.mig}" if self.mig else name


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What makes cards peers. The model is "" where nobody says it: such a card has no peers."""

    model: str = ""
    power_limit_w: float | None = None

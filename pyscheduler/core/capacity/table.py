"""What is known of all cards at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.evidence import Evidence
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.readings import Bools
from pyscheduler.core.capacity.states import State

__all__ = ["CapacityTable", "CardCapacity"]


@dataclass(frozen=True, slots=True)
class CardCapacity:
    """One card.

    Attributes
    ----------
    card, model
        Which. The model is "" where nobody says it.
    health, speed, available
        H, I and A, 0 bad to 1 good. A is None where nothing is known.
    score
        What it is ranked by, 0 bad to 1 good: H, times its speed by that of a good card (`Speed.ranking`), times what A
        counts (`Availability.for_ranking`). In classic mode that of its node.
    relative_speed
        Its speed by the median of its peers; None where it is not known.
    excluded
        Whether it is not handed out.
    state, since
        Where it stands, and from when on; None where it has never been seen.
    evidence
        Why, in one sentence.
    age_s
        Of its newest sample; None without any.
    confidence
        How much is known of its speed, 0 to 1.
    timer_s, timer_end_s
        For how long it has been on its way to the next state, and how long it must be (`States.timers`); None where it is
        not. In classic mode for how long its node has been below the threshold.
    unlocated
        Whether it should be out, and is handed out for nobody knows which GPU of its node it is.
    """

    card: CardKey
    model: str
    health: float
    speed: float
    available: float | None
    score: float
    relative_speed: float | None
    excluded: bool
    state: State
    since: float | None
    evidence: str
    age_s: float | None
    confidence: float
    timer_s: float | None = None
    timer_end_s: float | None = None
    unlocated: bool = False

    def handed_out(self, why: str) -> CardCapacity:
        """Return the card as one that should be out, and cannot be."""
        return replace(self, excluded=False, unlocated=True, evidence=f"{self.evidence}; {why}")


@dataclass(frozen=True, slots=True)
class CapacityTable:
    """All cards: an entry of each array for each card.

    Attributes
    ----------
    rows
        The place of each card in the arrays.
    models, health, speed, available, score, excluded, state, since, age_s, confidence, timer_s, timer_end_s
        As in `CardCapacity`; NaN stands for None.
    reasons
        What the sentences are made of.
    frozen
        Whether so many cards are silent that states do not change.
    spared
        How many slow cards are handed out because too many of their model look slow.
    """

    rows: Mapping[CardKey, int]
    models: Sequence[str]
    health: Floats
    speed: Floats
    available: Floats
    score: Floats
    excluded: Bools
    state: NDArray[np.int64]
    since: Floats
    age_s: Floats
    confidence: Floats
    timer_s: Floats
    timer_end_s: Floats
    reasons: Evidence
    frozen: bool
    spared: int

    def card(self, key: CardKey) -> CardCapacity | None:
        """Return one card, None if it has never been seen."""
        row = self.rows.get(key)
        return None if row is None else self._card(key, row)

    def __iter__(self) -> Iterator[CardCapacity]:
        """Return all cards."""
        return (self._card(key, row) for key, row in self.rows.items())

    def __len__(self) -> int:
        return len(self.rows)

    def _card(self, key: CardKey, row: int) -> CardCapacity:
        return CardCapacity(
            card=key,
            model=self.models[row],
            health=float(self.health[row]),
            speed=float(self.speed[row]),
            available=_known(self.available[row]),
            score=float(self.score[row]),
            relative_speed=_known(self.reasons.rows.against_peers[row]),
            excluded=bool(self.excluded[row]),
            state=State(int(self.state[row])),
            since=_known(self.since[row]),
            evidence=self.reasons.sentence(row),
            age_s=_known(self.age_s[row]),
            confidence=float(self.confidence[row]),
            timer_s=_known(self.timer_s[row]),
            timer_end_s=_known(self.timer_end_s[row]),
        )


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

"""Polls of a few cards, for tests of capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.poll import Column, Poll
from pyscheduler.core.capacity.quantities import Quantity

START = 1_800_000_000.0
STEP = 30.0

Values = float | Sequence[float | None]

IDLE = {Quantity.SM_CLOCK_HZ: 3.45e8, Quantity.ENGINE_ACTIVE: 0.0, Quantity.POWER_W: 70.0}


def work(clock: Values = 1.7e9, **others: Values) -> dict[Quantity, Values]:
    """Return what cards show that work."""
    shown: dict[Quantity, Values] = {Quantity.SM_CLOCK_HZ: clock, Quantity.ENGINE_ACTIVE: 0.95, Quantity.POWER_W: 600.0}
    shown |= {Quantity.TENSOR_ACTIVE: 0.5, Quantity.DRAM_ACTIVE: 0.3}
    return shown | {Quantity[name]: value for name, value in others.items()}


def cards_of(count: int, per_node: int = 8) -> list[CardKey]:
    return [CardKey(f"n{index // per_node}", f"GPU-{index}") for index in range(count)]


def poll_of(
    cards: Sequence[CardKey],
    at: float,
    values: Mapping[Quantity, Values],
    *,
    complete: bool = True,
    model: str = "H100",
    sampled_at: float | None = None,
) -> Poll:
    """Return a poll: one value for all cards, or one for each, None where it has none."""
    samples = {}
    for quantity, value in values.items():
        listed = list(value) if isinstance(value, Sequence) else [value] * len(cards)
        rows = [row for row, each in enumerate(listed) if each is not None]
        numbers = np.array([listed[row] for row in rows], dtype=np.float64)
        samples[quantity] = Column(rows, numbers, np.full(len(rows), at if sampled_at is None else sampled_at))
    return Poll(at, complete, cards, samples, [CardFacts(model, 700.0)] * len(cards))

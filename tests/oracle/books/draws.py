"""Where the rules of the books' machine get their choices from: dice, a script that repeats them, or Hypothesis.

Number 0 is the plainest choice everywhere, so that shrinking leads to plain traces.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

__all__ = ["Dice", "Draw", "Script", "chance", "pick", "shuffled"]

T = TypeVar("T")


class Draw(Protocol):
    """A source of choices."""

    def below(self, count: int) -> int:
        """Return a number from 0 to count - 1."""


class Dice:
    """Seeded choices, which are noted in `rolled`; `event` is for whoever rolls for one."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self.rolled: list[int] = []
        self.event = 0

    def below(self, count: int) -> int:
        number = int(self._random() * count)
        self.rolled.append(number)
        return number


class Script:
    """Choices that were noted; 0 when they are used up."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = iter(numbers)

    def below(self, count: int) -> int:
        return next(self._numbers, 0) % count


def pick(draw: Draw, items: Sequence[T]) -> T:
    return items[draw.below(len(items))]


def chance(draw: Draw, percent: int) -> bool:
    return draw.below(100) >= 100 - percent


def shuffled(draw: Draw, items: Sequence[T]) -> list[T]:
    rest = list(items)
    return [rest.pop(draw.below(len(rest))) for _ in range(len(rest))]

"""What monitoring says of the cards of one node, as the placing side needs it: what is not handed out, and what ranks behind.

A `Cards` is a part of `NodeFacts`: the same for the same facts, and `NO_CARDS` where nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyscheduler.core.model import Machine

__all__ = ["NO_CARDS", "Cards", "NodeCards", "cards_of", "slowest"]

# A card whose score is this much lower than another's is one step behind, at a weight of 1: less is within the noise of measuring.
_STEP: Final = 0.05
# Digits to which a score is taken: 0.9 is two steps behind 1.0, whatever floats say.
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class NodeCards:
    """What is known of a node's cards, each by its handle (see `Machine.handle`).

    Attributes
    ----------
    excluded
        Cards that are not handed out, and why, in a word or two, such as ``slow`` or ``faulty``.
    scores
        What cards are ranked by, 0 bad to 1 good; a card that is not named is good.
    speeds
        Speed by that of its peers, 1.0 is as fast, for those who divide work by it; a card that is not named counts as that.
    """

    excluded: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    speeds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cards:
    """The same by GPU of the machine.

    Attributes
    ----------
    excluded
        Mask of the GPUs that are not handed out.
    unlocated
        Handles of those of a node whose GPUs are not known.
    paces
        (steps behind a good card, mask of the GPUs that are no further behind), the best first; empty if none is behind.
    """

    excluded: int = 0
    unlocated: frozenset[str] = frozenset()
    paces: tuple[tuple[int, int], ...] = ()

    def pace(self, mask: int) -> int:
        """Return how many steps the worst of these GPUs is behind a good one."""
        return next((steps for steps, within in self.paces if not mask & ~within), 0)

    def within(self, steps: int) -> int:
        """Return the mask of the GPUs that are at most so many steps behind; all bits if none is behind."""
        return next((within for behind, within in reversed(self.paces) if behind <= steps), 0) if self.paces else -1

    def paces_of(self, mask: int) -> tuple[tuple[int, int], ...]:
        """Return the paces of these GPUs alone."""
        found: list[tuple[int, int]] = []
        for steps, within in self.paces:
            if within & mask != (found[-1][1] if found else 0):
                found.append((steps, within & mask))
        return () if [steps for steps, _ in found] == [0] else tuple(found)


NO_CARDS: Final = Cards()


def cards_of(machine: Machine | None, known: NodeCards, weight: float) -> Cards:
    """Return what is known of a node's cards by GPU; handles that it does not have are passed over.

    `weight`: how finely scores count, in steps of 0.05 at 1, of 0.1 at 0.5; 0: not at all.
    """
    if machine is None:
        return _of(Cards(unlocated=frozenset(known.excluded)))
    steps = {machine.mask_of([handle]): _steps(score, weight) for handle, score in known.scores.items()}
    steps.pop(0, None)
    return _of(Cards(machine.mask_of(known.excluded), paces=_paces(steps, (1 << len(machine.ids)) - 1)))


def slowest(speeds: Mapping[str, float], gpus: Collection[str]) -> float | None:
    """Return the speed of the slowest of these GPUs, to three digits; None where none is known."""
    if not any(gpu in speeds for gpu in gpus):
        return None
    # Of one that is not known it is taken that it is as fast as its peers.
    return round(min(speeds.get(gpu, 1.0) for gpu in gpus), 3)


def _of(cards: Cards) -> Cards:
    return NO_CARDS if cards == NO_CARDS else cards


def _steps(score: float, weight: float) -> int:
    """Return how many whole steps a card is behind a good one."""
    return int(max(0.0, round((1.0 - score) * weight / _STEP, _DIGITS)))


def _paces(steps: Mapping[int, int], everyone: int) -> tuple[tuple[int, int], ...]:
    """Return the paces, given how many steps GPUs are behind, by the mask of each; of others it is taken that they are not."""
    by_steps = {0: everyone & ~sum(steps)}
    for mask, behind in steps.items():
        by_steps[behind] = by_steps.get(behind, 0) | mask
    found, within = [], 0
    for behind in sorted(by_steps):
        if by_steps[behind]:
            within |= by_steps[behind]
            found.append((behind, within))
    return () if [behind for behind, _ in found] == [0] else tuple(found)

"""What pods and objects say of their groups and cannot be used: told once for each group, not for each of its members.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.model import PodRequest

__all__ = ["Problem", "Problems"]

# Problems of one group that are told: where each member has one of its own the others are of the same kind.
_TOLD_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence on a group, and the pod on which it was found."""

    gang: GangKey
    pod: PodRequest
    text: str


class Problems:
    """Gathers what is to be told."""

    def __init__(self) -> None:
        self._told: dict[GangKey, set[str]] = {}
        self._new: list[Problem] = []

    def note(self, gang: GangKey, pod: PodRequest, texts: Iterable[str]) -> None:
        """Note what is wrong with a group, as one of its pods has it."""
        for text in texts:
            told = self._told.setdefault(gang, set())
            if text not in told and len(told) < _TOLD_MAX:
                told.add(text)
                self._new.append(Problem(gang, pod, text))

    def take(self) -> list[Problem]:
        """Return what is to be told and has not been returned before."""
        new, self._new = self._new, []
        return new

    def forget(self, gang: GangKey) -> None:
        """Note that the group is gone."""
        self._told.pop(gang, None)

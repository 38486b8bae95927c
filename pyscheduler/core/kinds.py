"""Numbers for the states of nodes: nodes of one kind offer the same to every pod.

What a kind offers is worked out once, however many nodes are of it.
"""

from __future__ import annotations

from typing import Final

from pyscheduler.core.node import ABSENT, NodeState

__all__ = ["Kinds"]

# A cluster of one class of eight GPUs has some hundreds; more than so many are told apart only over a long time.
_MOST: Final = 1 << 16


class Kinds:
    """Number 0 is a node that is not present.

    Concurrency contract: one writer; readers hold the same lock.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {ABSENT.kind: 0}
        self._examples: list[NodeState] = [ABSENT]

    @property
    def full(self) -> bool:
        """Whether it is time to begin anew, with other numbers."""
        return len(self._examples) >= _MOST

    def number(self, state: NodeState) -> int:
        """Return the number of the kind of this state."""
        number = self._numbers.setdefault(state.kind, len(self._examples))
        if number == len(self._examples):
            self._examples.append(state)
        return number

    def example(self, number: int) -> NodeState:
        """Return a state of this kind."""
        return self._examples[number]

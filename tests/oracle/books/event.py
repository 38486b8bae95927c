"""What an event of the machine is."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass

from tests.oracle.books.draws import Draw
from tests.oracle.books.world import World

__all__ = ["Event", "any_of"]


def _always(world: World) -> bool:
    return True


def any_of(find: Callable[[World], Sized]) -> Callable[[World], bool]:
    """Return whether there is any of what an event is about."""
    return lambda world: len(find(world)) > 0


@dataclass(frozen=True)
class Event:
    """Something that may happen.

    Attributes
    ----------
    run
        Makes it happen; what is left open is drawn. Its name, in words, is the event's.
    weight
        How often it happens, relative to the others.
    ready
        Whether it can happen now.
    """

    run: Callable[[World, Draw], None]
    weight: int
    ready: Callable[[World], bool] = _always

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")

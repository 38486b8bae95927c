"""What the service still remembers of pods, found by looking through all that it consists of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

__all__ = ["most_remembered"]


def most_remembered(root: object, uids: AbstractSet[str]) -> tuple[int, str]:
    """Return how many of these UIDs the collection names that names the most, and where it is."""
    most, seen, left = (0, ""), set[int](), [(root, type(root).__name__)]
    while left:
        each, where = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Collection) and not isinstance(each, str | bytes):
            most = max(most, (sum(isinstance(item, str) and item in uids for item in each), where))
        left += _parts(each, where)
    return most


def _parts(thing: object, where: str) -> Iterable[tuple[object, str]]:
    if isinstance(thing, Mapping):
        return [(part, where) for pair in thing.items() for part in pair]
    if isinstance(thing, list | tuple | AbstractSet):
        return [(part, where) for part in thing]
    if not type(thing).__module__.startswith("pyscheduler."):
        return []
    names = [*getattr(thing, "__dict__", {}), *(name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))]
    return [(getattr(thing, name, None), f"{where}.{name}") for name in names]

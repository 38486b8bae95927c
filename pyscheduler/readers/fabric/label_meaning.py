"""What the labels of a node mean, by their keys alone. Nodes of one kind have the same keys and share it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache

from pyscheduler.readers.fabric.label_families import FAMILIES, FAMILY_OF, Family, Level

__all__ = ["Meaning", "Rival", "lacking", "meaning", "missing"]


@dataclass(frozen=True, slots=True)
class Rival:
    """An older family on a node that follows a newer one of the same generation.

    Attributes
    ----------
    newer, older
        Names of the families.
    pairs
        Keys of both that stand for the same thing.
    stale
        The keys of the older one that the node has.
    """

    newer: str
    older: str
    pairs: tuple[tuple[str, str], ...]
    stale: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What certain keys mean.

    Attributes
    ----------
    families
        The families that the node follows; the first places it.
    levels
        The levels of the first for which the node has a label, and those between, nearest first.
    steps
        Level name and label key of each of them that has a value.
    lacking
        Those that should have a value and have none.
    doubles
        Keys with a value that stand for the same level.
    domain
        Key of the NVLink domain, None if there is none.
    rivals
        Older families that disagree if their values do.
    """

    families: tuple[Family, ...]
    levels: tuple[Level, ...]
    steps: tuple[tuple[str, str], ...]
    lacking: tuple[Level, ...]
    doubles: tuple[tuple[str, ...], ...]
    domain: str | None
    rivals: tuple[Rival, ...]


@lru_cache(maxsize=1024)  # the nodes of a cluster are of a few kinds
def meaning(present: frozenset[str], filled: frozenset[str]) -> Meaning:
    """Return what the keys of the fabric on one node mean; those of `filled` have a value."""
    families = _followed(present, filled)
    levels = families[0].levels_of([present]) if families else ()
    keys = [(level.name, [key for key in level.keys if key in filled]) for level in levels]
    return Meaning(
        families,
        levels,
        tuple((name, its[0]) for name, its in keys if its),
        lacking(families[0], levels, present, filled) if families else (),
        tuple(tuple(its) for _, its in keys if len(its) > 1),
        next((key for family in families for key in family.domain if key in filled), None),
        tuple(_rivals(families[0], present, filled)) if families else (),
    )


def lacking(family: Family, levels: Sequence[Level], present: AbstractSet[str], filled: AbstractSet[str]) -> tuple[Level, ...]:
    """Return those of `levels` that a node should have a value for and has none."""
    known = [not filled.isdisjoint(level.keys) for level in levels]
    depth = max((i + 1 for i, here in enumerate(known) if here), default=0)
    # Trees of numbered tiers differ in depth.
    fixed = not family.tiers
    within = [i < depth or fixed or not present.isdisjoint(level.keys) for i, level in enumerate(levels)]
    return tuple(level for level, here, needed in zip(levels, known, within, strict=True) if needed and not here)


def missing(level: Level, present: Collection[str]) -> str:
    """Say that none of the keys of a level has a value."""
    there = [key for key in level.keys if key in present]
    fault = f"label {there[0]} is empty" if there else f"label {level.keys[0]} is missing"
    return f"{fault}: its {level.name} is unknown"


def _followed(present: AbstractSet[str], filled: AbstractSet[str]) -> tuple[Family, ...]:
    """Return the families that a node follows, one of a generation; first the one that places it, if any does."""
    named = {FAMILY_OF[key].name for key in filled if key in FAMILY_OF}
    first: dict[object, Family] = {}
    for family in FAMILIES:
        if family.name in named:
            first.setdefault(family.generation or family.name, family)
    return tuple(sorted(first.values(), key=lambda family: not any(_claims(family, present, filled)[1:])))


def _rivals(family: Family, present: frozenset[str], filled: frozenset[str]) -> list[Rival]:
    rivals = [other for other in FAMILIES if family.generation and other.generation == family.generation]
    found = []
    for older in rivals[rivals.index(family) + 1 :] if rivals else ():
        pairs = zip(_claims(family, present, filled), _claims(older, present, filled), strict=False)
        both = tuple((new, old) for new, old in pairs if new and old)
        stale = tuple(sorted(key for key in present if FAMILY_OF.get(key) is older))
        found += [Rival(family.name, older.name, both, stale)] if both else []
    return found


def _claims(family: Family, present: Collection[str], filled: Collection[str]) -> list[str | None]:
    """Return the keys of one family for domain and path, None for one without a value."""
    levels = family.levels_of([present])
    return [next((key for key in keys if key in filled), None) for keys in (family.domain, *(level.keys for level in levels))]

"""In which levels of the fabric a group is to be, in the words of those who make groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.readers.snapshot_values import shown
from pyscheduler.readers.text.json_text import json_or_none

__all__ = ["KOORDINATOR", "NO_LEVELS", "LevelWords", "Levels", "by_keys", "by_tiers", "is_level", "no_level"]

_SPEC: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
# Layers that Koordinator always has (apis/scheduling/v1alpha1, ClusterNetworkTopology); None asks for nothing.
_LAYERS: Final[Mapping[str, str | None]] = {"NodeTopologyLayer": NODE_LEVEL, "ClusterTopologyLayer": None}
# More levels than any fabric has.
_TIER_DIGITS: Final = 2


class Levels(NamedTuple):
    """Levels as they are written. `problem` says which wish is left out of use, `refusal` which hard one cannot be read."""

    required: str | None = None
    preferred: str | None = None
    problem: str = ""
    refusal: str = ""


NO_LEVELS: Final = Levels()


class LevelWords(NamedTuple):
    """The keys under which levels stand, and what reads them."""

    keys: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Levels]


def by_keys(required: str, preferred: str) -> LevelWords:
    """Return the words of those who give each level a key of its own."""

    def read(said: Mapping[str, str]) -> Levels:
        wants = (said.get(required), said.get(preferred))
        problem = "" if is_level(wants[1]) else f"{no_level(preferred, wants[1])}; it is left out of use"
        refusal = "" if is_level(wants[0]) else no_level(required, wants[0])
        return Levels(None if refusal else wants[0], None if problem else wants[1], problem, refusal)

    return LevelWords((required, preferred), read)


def _koordinator(said: Mapping[str, str]) -> Levels:
    """Read Koordinator's JSON: ``{"gatherStrategy": [{"layer": NAME, "strategy": "MustGather" | "PreferGather"}]}``."""
    text = said.get(_SPEC, "")
    if not text.strip():
        return NO_LEVELS
    rules = _rules(json_or_none(text))
    if rules is None:
        form = '{"gatherStrategy": [{"layer": "NAME", "strategy": "MustGather"}]}, or PreferGather'
        return Levels(refusal=f"{_SPEC} is {shown(text)}: write {form}")
    must = [layer for layer, strategy in rules if strategy == "MustGather"]
    prefer = [layer for layer, strategy in rules if strategy == "PreferGather"]
    if len(must) > 1:
        return Levels(refusal=f"{_SPEC} asks for MustGather in {' and '.join(must)}: name the nearest layer alone")
    problem = f"{_SPEC} prefers {' and '.join(prefer)}: only the first is used" if len(prefer) > 1 else ""
    return Levels(must[0] if must else None, prefer[0] if prefer else None, problem)


def by_tiers(mode: str, tier: str, name: str = "") -> LevelWords:
    """Return the words of Volcano: a mode, and the highest tier: tier N is the N-th level from the node, told as ``#N``.

    Under `name` stands the tier's name in place of its number.
    """

    def read(said: Mapping[str, str]) -> Levels:
        how, key = said.get(mode, "hard").strip().lower(), tier if said.get(tier, "").strip() else name
        if how not in ("hard", "soft"):
            return Levels(refusal=f"{mode} is {shown(how)}: write hard or soft")
        text = said.get(key, "").strip()
        if not text:
            return NO_LEVELS
        level, fault = _of_tier(key, text) if key == tier else (text, "" if is_level(text) else no_level(key, text))
        if fault:
            return Levels(refusal=fault) if how == "hard" else Levels(problem=f"{fault}; it is left out of use")
        return Levels(required=level) if how == "hard" else Levels(preferred=level)

    return LevelWords((mode, tier, name) if name else (mode, tier), read)


KOORDINATOR: Final = LevelWords((_SPEC,), _koordinator)


def _rules(raw: Any) -> list[tuple[str, str]] | None:
    """Return layers and strategies, None if they cannot be read."""
    listed = raw.get("gatherStrategy", []) if isinstance(raw, dict) else None
    if not isinstance(listed, list):
        return None
    rules = []
    for rule in listed:
        layer, strategy = (rule.get("layer"), rule.get("strategy")) if isinstance(rule, dict) else (None, None)
        if not isinstance(layer, str) or not is_level(layer) or strategy not in ("MustGather", "PreferGather"):
            return None
        if (level := _LAYERS.get(layer, layer)) is not None:
            rules.append((level, strategy))
    return rules


def is_level(text: str | None) -> bool:
    """Tell whether this may name a level: by its name, by a label key (at most 253 + 1 + 63 characters), or by its number."""
    if text is None:
        return True
    name = text.strip()
    if name.startswith("#"):
        return _tier(name[1:]) is not None
    return bool(name) and name.isprintable() and len(name) <= 317


def _of_tier(key: str, text: str) -> tuple[str, str]:
    """Return the level of a tier, and what is wrong with its number."""
    number = _tier(text)
    fault = "" if number is not None else f"{key} is {shown(text)}: write a whole number from 1 to {10**_TIER_DIGITS - 1}"
    return f"#{number}", fault


def _tier(text: str) -> int | None:
    """Return the number of a level, None if there is no such level in any fabric."""
    return int(text) or None if text.isascii() and text.isdigit() and len(text) <= _TIER_DIGITS else None


def no_level(key: str, text: str | None) -> str:
    """Return what is wrong with a value that cannot name a level."""
    return f"{key} is {shown(text)}: write the name of a level, such as rack or {NODE_LEVEL}, or the node label that says it"

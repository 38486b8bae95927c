"""In which levels of the fabric a group is to be, in the words of those who make groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.readers.snapshot_values import shown
from pyscheduler.readers.text.json_text import json_or_none

__all__ = ["KOORDINATOR", "NO_LEVELS", "VOLCANO", "LevelWords", "Levels", "by_keys"]

_SPEC: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
# Layers that Koordinator always has (apis/scheduling/v1alpha1, ClusterNetworkTopology); None asks for nothing.
_LAYERS: Final[Mapping[str, str | None]] = {"NodeTopologyLayer": NODE_LEVEL, "ClusterTopologyLayer": None}
_MODE: Final = "volcano.sh/network-topology-mode"
_TIER: Final = "volcano.sh/network-topology-highest-tier"
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
        problem = "" if _is_level(wants[1]) else f"{_no_level(preferred, wants[1])}; it is left out of use"
        refusal = "" if _is_level(wants[0]) else _no_level(required, wants[0])
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


def _volcano(said: Mapping[str, str]) -> Levels:
    """Read Volcano's mode and highest tier: tier N is the N-th level from the node, told as ``#N``."""
    mode, tier = said.get(_MODE, "hard").strip().lower(), said.get(_TIER, "").strip()
    if mode not in ("hard", "soft"):
        return Levels(refusal=f"{_MODE} is {shown(mode)}: write hard or soft")
    if not tier:
        return NO_LEVELS
    number = _tier(tier)
    if number is None:
        fault = f"{_TIER} is {shown(tier)}: write a whole number from 1 to {10**_TIER_DIGITS - 1}"
        return Levels(refusal=fault) if mode == "hard" else Levels(problem=f"{fault}; it is left out of use")
    level = f"#{number}"
    return Levels(required=level) if mode == "hard" else Levels(preferred=level)


KOORDINATOR: Final = LevelWords((_SPEC,), _koordinator)
VOLCANO: Final = LevelWords((_MODE, _TIER), _volcano)


def _rules(raw: Any) -> list[tuple[str, str]] | None:
    """Return layers and strategies, None if they cannot be read."""
    listed = raw.get("gatherStrategy", []) if isinstance(raw, dict) else None
    if not isinstance(listed, list):
        return None
    rules = []
    for rule in listed:
        layer, strategy = (rule.get("layer"), rule.get("strategy")) if isinstance(rule, dict) else (None, None)
        if not isinstance(layer, str) or not _is_level(layer) or strategy not in ("MustGather", "PreferGather"):
            return None
        if (level := _LAYERS.get(layer, layer)) is not None:
            rules.append((level, strategy))
    return rules


def _is_level(text: str | None) -> bool:
    """Tell whether this may name a level: by its name, by a label key (at most 253 + 1 + 63 characters), or by its number."""
    if text is None:
        return True
    name = text.strip()
    if name.startswith("#"):
        return _tier(name[1:]) is not None
    return bool(name) and name.isprintable() and len(name) <= 317


def _tier(text: str) -> int | None:
    """Return the number of a level, None if there is no such level in any fabric."""
    return int(text) or None if text.isascii() and text.isdigit() and len(text) <= _TIER_DIGITS else None


def _no_level(key: str, text: str | None) -> str:
    return f"{key} is {shown(text)}: write the name of a level, such as rack or {NODE_LEVEL}, or the node label that says it"

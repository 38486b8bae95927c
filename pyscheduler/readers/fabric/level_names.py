"""What levels of the fabric are called, for those who name a level by the node label that says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, NVLINK_LEVEL
from pyscheduler.readers.fabric.label_families import CLIQUE, FAMILIES
from pyscheduler.readers.fabric.rules import FabricConfig

__all__ = ["WELL_KNOWN", "level_names"]

_NODE: Final = {"kubernetes.io/hostname": NODE_LEVEL}
_DOMAINS: Final = {CLIQUE: NVLINK_LEVEL} | {key: NVLINK_LEVEL for family in FAMILIES for key in family.domain}
_FAMILY_LEVELS: Final = {
    key: level.name for family in FAMILIES for level in family.levels_of([family.all_keys()]) for key in level.keys
}
# By label key, the name of its level where the configuration says nothing of the fabric.
WELL_KNOWN: Final[Mapping[str, str]] = {**_FAMILY_LEVELS, **_DOMAINS, **_NODE}


def level_names(fabric: FabricConfig) -> Mapping[str, str]:
    """Return the names of levels by label key. A level that is named by its label is left out: it stands for itself."""
    if fabric.source != "labels":
        return _NODE
    if not fabric.pools:
        return WELL_KNOWN
    # Of pools that call one label differently the first counts.
    levels = {key: level.name for pool in reversed(fabric.pools) for level in pool.levels for key in level.keys}
    domains = {pool.nvlink_domain: NVLINK_LEVEL for pool in fabric.pools if pool.nvlink_domain}
    return {**_DOMAINS, **domains, **levels, **_NODE}

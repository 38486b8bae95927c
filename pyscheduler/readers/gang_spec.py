"""What the object of a group says of it: how many members it has, and in which levels of the fabric they are to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyscheduler.core.gangs.membership import GroupSpec, ObjectRef
from pyscheduler.readers.gang_levels import KOORDINATOR, NO_LEVELS, LevelWords, by_keys, by_tiers
from pyscheduler.readers.gang_size import POD_GROUP, size_of
from pyscheduler.readers.gang_words import LEFT_OUT

__all__ = ["spec_of"]

# By API group of PodGroups, the fields and annotations that say levels: Volcano (volcano-sh/apis,
# pkg/apis/scheduling/v1beta1/types.go, NetworkTopologySpec), KAI (kai-scheduler/KAI-Scheduler,
# pkg/apis/scheduling/v2alpha2/podgroup_types.go, TopologyConstraint), Koordinator (an annotation of its PodGroups:
# koordinator.sh, "Network Topology Aware Scheduling").
_LEVELS: Final[Mapping[str, LevelWords]] = {
    "scheduling.volcano.sh": by_tiers(
        "spec.networkTopology.mode", "spec.networkTopology.highestTierAllowed", "spec.networkTopology.highestTierName"
    ),
    "scheduling.run.ai": by_keys(
        "spec.topologyConstraint.requiredTopologyLevel", "spec.topologyConstraint.preferredTopologyLevel"
    ),
    "scheduling.sigs.k8s.io": KOORDINATOR,
}
# What PodGroups of Volcano and KAI say of parts of a group.
_SUBGROUPS: Final = ("spec.subGroupPolicy", "spec.subGroups")


def spec_of(ref: ObjectRef, raw: Any) -> GroupSpec:
    """Return what an object says, which may be anything. What is wrong with it is told by the object's name and the field."""
    raw = raw if isinstance(raw, dict) else {}
    size = size_of(ref.kind, raw)
    words = _LEVELS.get(ref.api_version.partition("/")[0]) if ref.kind == POD_GROUP else None
    if words is None:
        return GroupSpec(size)
    said = {key: text for key in words.keys if (text := _text(_at(raw, key)))}
    levels = words.read(said) if said else NO_LEVELS
    problems = [levels.problem] if levels.problem else []
    problems += [f"{key} is not supported: it is left out of use" for key in (*_SUBGROUPS, *LEFT_OUT) if _at(raw, key)]
    name = f"{ref.kind} {ref.namespace}/{ref.name}: "
    return GroupSpec(
        size,
        _stripped(levels.required),
        _stripped(levels.preferred),
        tuple([name + problem for problem in problems]),
        name + levels.refusal if levels.refusal else "",
    )


def _at(raw: Mapping[str, Any], key: str) -> Any:
    """Return the field at ``spec.a.b``, or the annotation of this key; None if there is none."""
    path = key.split(".") if key.startswith("spec.") else ("metadata", "annotations", key)
    found: Any = raw
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text(value: Any) -> str:
    """Return a text or a number as it would stand in an annotation; for anything else a text that is neither."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return "{...}" if isinstance(value, dict) else "[...]"
    return "" if value is None else str(value)


def _stripped(level: str | None) -> str | None:
    return None if level is None else level.strip()

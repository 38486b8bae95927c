"""The snapshot file of a cluster: levels, and of each node its place, its GPUs, which of them are free, and their links.

Form (JSON, version 1): ``levels`` nearest first; ``nodes`` [{name, path, gpus [{id, numa, healthy, allocated, model}],
links {"A-B": type or {type, cost}}, p2p {"A-B": status}, nics, nic_links {"GPU-NIC": type}, partitions, complete,
nvlink_domain}]. What is left out is not known, healthy, not allocated, any set.

People write and cut these files, so what has no meaning is refused with its
place: a limit that is misspelt must never be no limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, NVLINK_LEVEL
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.weights import Weights
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.snapshot_machine import MachineKind, machine_kind, masks
from pyscheduler.readers.snapshot_values import listed, name_at, names_at, shown, switch

__all__ = ["VERSION", "Snapshot", "SnapshotNode", "of_json"]

VERSION: Final = 1

_UNKNOWN: Final = (None, "")
_HINT: Final = 'a snapshot is {"version": 1, "levels": [...], "nodes": [...]}'
_TOP: Final = frozenset({"version", "kind", "levels", "nodes", "warnings"})
_GPU: Final = frozenset({"id", "numa", "healthy", "allocated", "model"})
_NODE: Final = frozenset(
    {"name", "path", "gpus", "links", "p2p", "nics", "nic_links", "partitions", "complete", "nvlink_domain", "warnings"}
)


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """One node.

    Attributes
    ----------
    name, place
        Its name, and where it hangs in the fabric.
    kind
        Its GPUs and links; equal nodes share it.
    healthy, allocated
        Masks of its GPUs.
    complete
        False where its links are known to be only a part.
    """

    name: str
    place: Place
    kind: MachineKind
    healthy: int
    allocated: int
    complete: bool = True

    @property
    def free(self) -> int:
        """Mask of the GPUs that could be given out."""
        return self.healthy & ~self.allocated


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One cluster at one moment. `levels` are nearest first; `findings` name their node."""

    levels: tuple[str, ...]
    nodes: tuple[SnapshotNode, ...]
    findings: tuple[Finding, ...] = ()


def of_json(raw: Any, weights: Weights | None = None) -> Snapshot:
    """Return the snapshot of JSON that is already loaded.

    Parameters
    ----------
    raw
        The JSON.
    weights
        How fast links count; None: as they do without a configuration.

    Raises
    ------
    RefusedError
        If it cannot be used; the message names the element.

    """
    if not isinstance(raw, dict) or "nodes" not in raw:
        raise RefusedError(f"is no snapshot: {_HINT}")
    if not isinstance(raw["nodes"], list):
        raise RefusedError(f"nodes: {shown(raw['nodes'])} must be a list; {_HINT}")
    version = raw.get("version", VERSION)
    if type(version) is not int or version != VERSION:
        raise RefusedError(f"version: {shown(version)} is not known, this release reads version {VERSION}")
    levels = _levels(listed(raw, "levels", ""))
    found: list[Finding] = _unknown_fields(raw.keys() - _TOP, "of the snapshot")
    kinds: dict[str, MachineKind] = {}
    machine = partial(_kind, kinds, weights or Weights())
    nodes = [_node(entry, f"nodes[{index}]", levels, machine, found) for index, entry in enumerate(raw["nodes"])]
    names_at([node.name for node in nodes], "nodes", "node")
    return Snapshot(levels, tuple(nodes), tuple(found))


def _levels(entries: Sequence[Any]) -> tuple[str, ...]:
    levels = names_at([name_at(entry, f"levels[{index}]") for index, entry in enumerate(entries)], "levels", "level")
    if NODE_LEVEL in levels:
        raise RefusedError(f"levels[{levels.index(NODE_LEVEL)}]: {NODE_LEVEL!r} is the machine itself; list the levels above it")
    return levels


def _node(
    entry: Any, at: str, levels: Sequence[str], machine: Callable[[Mapping[str, Any], str], MachineKind], found: list[Finding]
) -> SnapshotNode:
    if not isinstance(entry, dict):
        raise RefusedError(f"{at}: {shown(entry)} must be an object with the name and the GPUs of a node")
    name = name_at(entry.get("name"), f"{at}.name")
    if not isinstance(entry.get("gpus"), list):
        raise RefusedError(f"{at}.gpus: {shown(entry.get('gpus'))} must be a list; [] if node {shown(name)} has no GPU")
    kind = machine(entry, at)
    of_gpus = {field for gpu in entry["gpus"] for field in gpu.keys() - _GPU}
    told = (*kind.findings, *_unknown_fields(entry.keys() - _NODE, "of a node"), *_unknown_fields(of_gpus, "of a GPU"))
    found += [replace(finding, node=name) for finding in told]
    healthy, allocated = masks(entry["gpus"], at)
    return SnapshotNode(
        name, _place(entry, at, levels), kind, healthy, allocated, switch(entry.get("complete", True), f"{at}.complete")
    )


def _kind(kinds: dict[str, MachineKind], weights: Weights, entry: Mapping[str, Any], at: str) -> MachineKind:
    """Return the machine of a node; that of an equal one if there was one: most nodes of a cluster are alike."""
    if not all(isinstance(gpu, dict) for gpu in entry["gpus"]):
        return machine_kind(entry, at, weights)
    shared = [entry.get(key) for key in ("links", "p2p", "nics", "nic_links", "partitions")]
    key = json.dumps([[[gpu.get(field) for field in ("id", "numa", "model")] for gpu in entry["gpus"]], shared])
    if key not in kinds:
        kinds[key] = machine_kind(entry, at, weights)
    return kinds[key]


def _place(entry: Mapping[str, Any], at: str, levels: Sequence[str]) -> Place:
    """Return the domains that are known: one that is not shifts no other."""
    path = listed(entry, "path", at)
    while path and path[-1] in _UNKNOWN:
        path = path[:-1]
    if len(path) > len(levels):
        raise RefusedError(f"{at}.path: has {len(path)} domains, but the snapshot has {len(levels)} levels")
    named = enumerate(zip(levels, path, strict=False))
    known = [(level, name_at(name, f"{at}.path[{index}]")) for index, (level, name) in named if name not in _UNKNOWN]
    domain = entry.get("nvlink_domain")
    nvlink = None if domain in _UNKNOWN else name_at(domain, f"{at}.nvlink_domain")
    for index, (level, name) in enumerate(known):
        if level == NVLINK_LEVEL:
            # The level of this name is that of NVLink domains, which a place knows by their whole key.
            nvlink = nvlink or "/".join([name, *(wider for _, wider in known[index + 1 :])])
    return Place(tuple(step for step in known if step[0] != NVLINK_LEVEL), nvlink)


def _unknown_fields(names: Iterable[str], whose: str) -> list[Finding]:
    """Tell of fields that are not read. They may be misspelt."""
    told = ", ".join(shown(name) for name in sorted(names))
    return [Finding("field-unknown", f"not read: {told} is no field {whose}", "correct or remove it")] if told else []

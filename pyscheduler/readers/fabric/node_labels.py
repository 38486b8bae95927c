"""Labels of nodes, of every writer known to `label_families`, to a fabric.

Of labels of both Topograph generations the newer ones count, whole; a level that a node has no value for is unknown
and shifts no other. The NVLink domain comes from the same writer, else from ``nvidia.com/gpu.clique``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from pyscheduler.readers.fabric.label_families import CLIQUE, FAMILIES, Family, Level, is_known
from pyscheduler.readers.fabric.node_list import Entry, entries
from pyscheduler.readers.fabric.tree import Path, agreed
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.parts import some

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "labels"

_HINTS: Final = ('"Node"', '"node"', "kubernetes.io/", "nvidia.com/", *(f.domain[0] for f in FAMILIES if f.domain))
_PREFIXES: Final = tuple(dict.fromkeys(k for f in FAMILIES for k in (f.tiers, *(k for v in f.levels for k in v.keys)) if k))


def recognises(text: str) -> bool:
    """Tell whether the text lists Node objects, or names of nodes with labels."""
    if not any(hint in text for hint in (*_HINTS, *_PREFIXES)):
        return False
    return any(entry.is_object or entry.is_labels or any(map(is_known, entry.labels)) for entry in entries(text))


def read(text: str) -> Reading:
    """Return the fabric.

    Raises
    ------
    RefusedError
        If no node carries a label of the fabric.

    """
    listed = entries(text)
    named = [_of_fabric(entry) for entry in listed if entry.name]
    if not any(any(entry.labels.values()) for entry in named):
        known = ", ".join(family.name for family in FAMILIES)
        raise RefusedError(f"no label of {len(listed)} nodes says where in a fabric they are (known: {known}, {CLIQUE})")
    fabric = _Fabric(named)
    body = {"levels": fabric.level_names(), "nodes": fabric.nodes()}
    nameless = len(listed) - len(named)
    left_out = [Finding("node-without-name", f"nodes without a name, left out: {nameless}")] if nameless else []
    return Reading("fabric", FORMAT, body, findings=(*left_out, *fabric.findings()))


def _of_fabric(entry: Entry) -> Entry:
    """Return the entry with the few of its labels that say where in a fabric it is."""
    labels = {key: value for key, value in entry.labels.items() if is_known(key)}
    return replace(entry, labels=labels, odd=tuple(key for key in entry.odd if is_known(key)))


@dataclass(slots=True)
class _Notes:
    """Findings of the same kind, with the nodes they are on."""

    nodes: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)

    def add(self, code: str, node: str, what: str) -> None:
        self.nodes.setdefault((code, what), {})[node] = None

    def findings(self) -> list[Finding]:
        return [Finding(code, f"{some(nodes)}: {what}") for (code, what), nodes in self.nodes.items()]


class _Fabric:
    def __init__(self, listed: Sequence[Entry]) -> None:
        self._notes = _Notes()
        self._levels: dict[str, tuple[Level, ...]] = {}
        followed = [(entry, _families(entry.labels)) for entry in listed]
        for family in FAMILIES:
            members = [entry.labels for entry, its in followed if its[:1] == [family]]
            if levels := family.levels_of(members):
                self._levels[family.name] = levels
        self._nodes: dict[str, dict[str, Any]] = {}
        for entry, families in followed:
            self._add(entry, families)
        self._note_unplaced()

    def level_names(self) -> list[str]:
        """Return the names of the preferred family, and for levels beyond these those of the next."""
        names: list[str] = []
        for levels in self._levels.values():
            names += [level.name for level in levels[len(names) :]]
        return [name if name not in names[:i] else f"{name}-{i}" for i, name in enumerate(names)]

    def nodes(self) -> list[dict[str, Any]]:
        return list(self._nodes.values())

    def findings(self) -> list[Finding]:
        return [*self._notes.findings(), *_inversions(self.level_names(), self.nodes())]

    def _add(self, entry: Entry, families: Sequence[Family]) -> None:
        name = entry.name or ""
        for key in entry.odd:
            self._notes.add("label-not-text", name, f"label {key} is no text: its value is unknown")
        domain, sub_domain = _domains(entry.labels, families)
        clique = self._clique(name, entry.labels)
        node: dict[str, Any] = {"name": name, "path": [], "nvlink_domain": domain or clique}
        if families:
            self._compare_generations(name, entry.labels, families[0])
            node["path"] = self._path(name, entry.labels, families[0])
        if sub_domain:
            node["nvlink_sub_domain"] = sub_domain
        self._keep(name, node)

    def _keep(self, name: str, node: dict[str, Any]) -> None:
        known = self._nodes.setdefault(name, node)
        if known != node:
            self._notes.add("node-repeated", name, "listed twice with other labels; only what both say is kept")
            same = known["nvlink_domain"] == node["nvlink_domain"]
            domain = node["nvlink_domain"] if same else None
            self._nodes[name] = {"name": name, "path": agreed([known["path"], node["path"]]), "nvlink_domain": domain}

    def _path(self, name: str, labels: Mapping[str, str], family: Family) -> Path:
        levels = self._levels.get(family.name, ())
        path: Path = [_value(labels, level.keys) for level in levels]
        depth = max((i + 1 for i, value in enumerate(path) if value), default=0)
        for i, level in enumerate(levels):
            self._note_level(name, labels, level, may_lack=i >= depth and bool(family.tiers))
        return path[:depth]

    def _note_level(self, name: str, labels: Mapping[str, str], level: Level, *, may_lack: bool) -> None:
        there = [key for key in level.keys if key in labels]
        values = {labels[key] for key in there if labels[key]}
        if not values and (there or not may_lack):
            what = f"label {there[0]} is empty" if there else f"label {level.keys[0]} is missing"
            self._notes.add("level-missing", name, f"{what}: its {level.name} is unknown")
        if len(values) > 1:
            self._notes.add("label-conflict", name, f"labels {' and '.join(there)} disagree: the first is used")

    def _compare_generations(self, name: str, labels: Mapping[str, str], family: Family) -> None:
        rivals = [other for other in FAMILIES if family.generation and other.generation == family.generation]
        for older in rivals[rivals.index(family) + 1 :] if rivals else ():
            pairs = zip(_claims(labels, family), _claims(labels, older), strict=False)
            if any(new and old and new != old for new, old in pairs):
                what = f"label families {family.name} and {older.name} disagree: {family.name} is newer and used alone"
                self._notes.add("label-families-disagree", name, what)

    def _clique(self, name: str, labels: Mapping[str, str]) -> str | None:
        value = labels.get(CLIQUE)
        if value is None:
            return None
        cluster, _, clique = value.rpartition(".")
        fault = "an all-zero cluster UUID" if cluster else "an empty cluster UUID"
        if cluster.strip("0-."):
            fault = "" if clique.isascii() and clique.isdigit() else "no clique id"
        if fault:
            self._notes.add("clique-unusable", name, f"label {CLIQUE}={value!r} has {fault}: in no NVLink domain")
        return None if fault else value

    def _note_unplaced(self) -> None:
        for name, node in self._nodes.items():
            if self._levels and not node["path"]:
                self._notes.add("node-unplaced", name, "no label says where in the fabric it is, though others have one")


def _families(labels: Mapping[str, str]) -> list[Family]:
    """Return the families that a node follows, one of a generation; first the one that places it, if any does."""
    followed: dict[object, Family] = {}
    for family in FAMILIES:
        if any(value and family.claims(key) for key, value in labels.items()):
            followed.setdefault(family.generation or family.name, family)
    return sorted(followed.values(), key=lambda family: not any(_claims(labels, family)[1:]))


def _value(labels: Mapping[str, str], keys: Sequence[str]) -> str | None:
    return next((labels[key] for key in keys if labels.get(key)), None)


def _domains(labels: Mapping[str, str], families: Sequence[Family]) -> tuple[str | None, str | None]:
    """Return NVLink domain and sub-domain, of the first of the node's families that names one."""
    for family in families:
        if domain := _value(labels, family.domain):
            return domain, labels.get(family.sub_domain) or None
    return None, None


def _claims(labels: Mapping[str, str], family: Family) -> list[str | None]:
    """Return domain and path that the labels of one family give, a level without value as None."""
    return [_value(labels, family.domain), *(_value(labels, level.keys) for level in family.levels_of([labels]))]


def _inversions(levels: Sequence[str], nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Check the direction by counting: a wider level with more values than the nearer one holds it, not the reverse."""
    found = []
    for i, (near, wide) in enumerate(pairwise(levels)):
        pairs = {(path[i], path[i + 1]) for node in nodes if len(path := node["path"]) > i + 1 and path[i] and path[i + 1]}
        nears, wides = len({a for a, _ in pairs}), len({b for _, b in pairs})
        if nears < wides == len(pairs):
            what = f"{wide} has {wides} values and the nearer {near} only {nears}: the order of the levels may be reversed"
            found.append(Finding("tier-inversion", what))
    return found

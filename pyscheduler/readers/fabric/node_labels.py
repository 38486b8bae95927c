"""Labels of nodes, of every writer known to `label_families`, to a fabric. What they say of one node is told by `places`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyscheduler.core.fabric.fabric_checks import inversions
from pyscheduler.core.fabric.place import Place
from pyscheduler.readers.fabric.label_families import CLIQUE, FAMILIES, Family, Level, is_known
from pyscheduler.readers.fabric.label_meaning import lacking, missing
from pyscheduler.readers.fabric.node_list import Entry, entries
from pyscheduler.readers.fabric.places import meaning_of, place_of
from pyscheduler.readers.fabric.rules import Rules
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
        followed = [(entry, meaning_of(entry.labels).families) for entry in listed]
        for family in FAMILIES:
            members = [entry.labels for entry, its in followed if its[:1] == (family,)]
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
        levels = self.level_names()
        steps = [zip(levels, node["path"], strict=False) for node in self.nodes()]
        places = [Place(tuple((level, domain) for level, domain in path if domain)) for path in steps]
        return [*self._notes.findings(), *inversions(places, levels)]

    def _add(self, entry: Entry, families: Sequence[Family]) -> None:
        name = entry.name or ""
        for key in entry.odd:
            self._notes.add("label-not-text", name, f"label {key} is no text: its value is unknown")
        placement = place_of(entry.labels, name, Rules())
        for finding in placement.findings:
            self._notes.add(finding.code, name, finding.message)
        place = placement.place
        path = self._path(name, entry.labels, families[0], dict(place.path)) if families else []
        node: dict[str, Any] = {"name": name, "path": path, "nvlink_domain": place.nvlink_domain}
        if sub_domain := _sub_domain(entry.labels, families):
            node["nvlink_sub_domain"] = sub_domain
        self._keep(name, node)

    def _keep(self, name: str, node: dict[str, Any]) -> None:
        known = self._nodes.setdefault(name, node)
        if known != node:
            self._notes.add("node-repeated", name, "listed twice with other labels; only what both say is kept")
            same = known["nvlink_domain"] == node["nvlink_domain"]
            domain = node["nvlink_domain"] if same else None
            self._nodes[name] = {"name": name, "path": agreed([known["path"], node["path"]]), "nvlink_domain": domain}

    def _path(self, name: str, labels: Mapping[str, str], family: Family, domains: Mapping[str, str]) -> Path:
        """Return the domains on all levels that nodes of this family have, up to the widest that is known."""
        levels = self._levels.get(family.name, ())
        for level in lacking(family, levels, labels.keys(), {key for key, value in labels.items() if value}):
            self._notes.add("level-missing", name, missing(level, labels))
        path: Path = [domains.get(level.name) for level in levels]
        while path and path[-1] is None:
            path.pop()
        return path

    def _note_unplaced(self) -> None:
        for name, node in self._nodes.items():
            if self._levels and not node["path"]:
                self._notes.add("node-unplaced", name, "no label says where in the fabric it is, though others have one")


def _sub_domain(labels: Mapping[str, str], families: Sequence[Family]) -> str | None:
    """Return the NVLink sub-domain, of the family that names the domain."""
    named = (family for family in families if any(labels.get(key) for key in family.domain))
    return next((labels.get(family.sub_domain) or None for family in named), None)

"""The objects that describe a cluster's machines and fabric, taken together: what lint looks at, live or from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.classify import completed
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.record import NodeRecord
from pyscheduler.errors import DocumentError
from pyscheduler.readers import class_document
from pyscheduler.readers.fabric.hypernodes import HyperNodes
from pyscheduler.readers.fabric.kueue import pool_of
from pyscheduler.readers.fabric.rules import FabricConfig, Rules
from pyscheduler.readers.objects import ObjectReader

__all__ = ["ClusterObjects", "reader_for"]

Raw = Mapping[str, Any]

_REMEDY: Final = "mend the object, or pass what `kubectl get nodes -o json` prints"


def reader_for(base: ObjectReader, fabric: FabricConfig, objects: Iterable[Raw] = ()) -> tuple[ObjectReader, tuple[Finding, ...]]:
    """Return the reader under a configuration.

    Parameters
    ----------
    base
        A reader that knows nothing of the fabric.
    fabric
        By what it is known where nodes are.
    objects
        HyperNodes or Topologies of Kueue, where these say it.

    """
    if fabric.source == "hypernodes":
        hypernodes = HyperNodes.build(objects)
        return replace(base, hypernodes=hypernodes), hypernodes.findings
    if fabric.source == "kueue":
        named = [raw for raw in objects if _name(raw) == fabric.topology]
        if not named:
            what = f"there is no Topology named {fabric.topology!r}: nothing is known of the fabric"
            missing = Finding("kueue-topology", what, "create it, or name another with fabric.topology", severity=Severity.ERROR)
            return base, (missing,)
        pool, findings = pool_of(named[0])
        return replace(base, rules=Rules((pool,))), findings
    return replace(base, rules=fabric.rules), ()


@dataclass(slots=True)
class ClusterObjects:
    """Objects as the API gives them."""

    nodes: list[Raw] = field(default_factory=list)
    classes: list[Raw] = field(default_factory=list)
    fabric: list[Raw] = field(default_factory=list)

    def records(
        self, base: ObjectReader, fabric: FabricConfig, weights: Weights, now: float
    ) -> tuple[list[NodeRecord], tuple[Finding, ...]]:
        """Return the nodes, and what is wrong beside them. An object that cannot be read becomes a finding.

        `base` and `fabric` are those of `reader_for`.
        """
        reader, about_fabric = reader_for(base, fabric, self.fabric)
        classes, about_classes = self._classes()
        records = [
            self._record(index, raw, lambda raw: completed(reader.node(raw), classes, weights, now))
            for index, raw in enumerate(self.nodes)
        ]
        unknown = _unknown_levels(weights, records)
        unmatched = reader.hypernodes.unmatched(self._labels()) if reader.hypernodes else []
        return _each_once(records), (*about_fabric, *about_classes, *unknown, *unmatched)

    def _classes(self) -> tuple[dict[str, DeviceClass], list[Finding]]:
        classes: dict[str, DeviceClass] = {}
        findings = []
        for raw in self.classes:
            try:
                name, found = class_document.of_config_map(raw)
                classes[name] = found
            except DocumentError as cause:
                what = f"ConfigMap {_name(raw) or '(without a name)'} {cause}"
                findings.append(Finding("class-unusable", what, "delete it, and write it anew with `pyscheduler topology class`"))
        return classes, findings

    def _record(self, index: int, raw: Raw, read: Callable[[Raw], NodeRecord]) -> NodeRecord:
        try:
            _refuse_nameless(raw)
            return read(raw)
        except Exception as cause:  # noqa: BLE001  one object must not keep all others from being checked
            name = _name(raw) or f"node {index} of the list"
            what = f"this object is no usable Node ({type(cause).__name__}: {cause}): it is left out"
            return NodeRecord(name, findings=(Finding("node-unreadable", what, _REMEDY, name, Severity.ERROR),))

    def _labels(self) -> list[tuple[str, Mapping[str, str]]]:
        return [(name, labels) for raw in self.nodes if (name := _name(raw)) and (labels := _labels(raw)) is not None]


def _unknown_levels(weights: Weights, records: Iterable[NodeRecord]) -> list[Finding]:
    """Return the levels that the weights name and no node is in."""
    levels = dict.fromkeys(level for record in records for level in (*record.levels, *(name for name, _ in record.place.path)))
    named = dict.fromkeys(override.kind for override in weights.overrides if override.level)
    known = ", ".join(levels) or "none"
    return [
        Finding("weight-level-unknown", f"weights.gbps names the level {name!r}, in which no node is", f"known levels: {known}")
        for name in named
        if name not in levels
    ]


def _each_once(records: Iterable[NodeRecord]) -> list[NodeRecord]:
    """Return one record per name. A node that stands there twice, and not alike, is told."""
    kept: dict[str, NodeRecord] = {}
    for record in records:
        known = kept.setdefault(record.name, record)
        if known != record:
            what = "stands there more than once and not alike: the first entry counts"
            again = Finding("node-repeated", what, "pass each node once", record.name)
            kept[record.name] = replace(known, findings=tuple(dict.fromkeys((*known.findings, again))))
    return list(kept.values())


def _refuse_nameless(raw: Any) -> None:
    """Refuse what the API would not take as a Node; a file may hold it."""
    if not _name(raw):
        raise ValueError("it has no metadata.name")
    if _labels(raw) is None:
        raise ValueError("its labels are no mapping of texts to texts; put numbers in quotes")


def _labels(raw: Raw) -> dict[str, str] | None:
    """Return the labels of an object that has metadata, None if they are none."""
    labels = raw["metadata"].get("labels") or {}
    good = isinstance(labels, dict) and all(isinstance(text, str) for item in labels.items() for text in item)
    return labels if good else None


def _name(raw: Any) -> str:
    meta = raw.get("metadata") if isinstance(raw, Mapping) else None
    name = meta.get("name") if isinstance(meta, Mapping) else None
    return name if isinstance(name, str) else ""

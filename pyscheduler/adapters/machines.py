"""Node records to node facts: the document becomes a machine, whose sets of GPUs a shared table has judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pyscheduler.adapters.tables import Tables
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.classify import class_by_hash, class_of, classify
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.model import Machine, NodeFacts
from pyscheduler.core.record import NodeRecord

__all__ = ["Attached", "Machines"]

# Distinct contents of documents that are remembered: more than a cluster has kinds of machine.
_CLASSES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Attached:
    """Facts of a node; None while nothing can be said of it yet. `settled`: it waits for no table and no class."""

    facts: NodeFacts | None
    settled: bool


class Machines:
    """Gives nodes their machine. One caller at a time.

    While the table of a class is being built, a new node waits, and a node
    that changed goes on with the links that it had, or takes no pod if it has
    another number of GPUs now.
    """

    def __init__(self, tables: Tables, weights: Weights, wall_clock: Callable[[], float]) -> None:
        self._tables = tables
        self._weights = weights
        self._wall_clock = wall_clock
        self._shared: Mapping[str, DeviceClass] = {}
        self._last: dict[str, Machine] = {}
        self._classes: dict[tuple[object, ...], tuple[NodeDocument, DeviceClass]] = {}

    def share(self, classes: Mapping[str, DeviceClass]) -> None:
        """Take the classes that documents name by hash."""
        self._shared = dict(classes)

    def attach(self, record: NodeRecord) -> Attached:
        """Return the node's facts, with its machine if its document can be used."""
        try:
            return self._attach(record)
        except Exception as cause:  # noqa: BLE001  a document that trips a bug must not keep the service from other nodes
            why = f"its document cannot be judged ({type(cause).__name__}: {cause}); please report it"
            return self._by_number(record, (_not_judged(why),))

    def forget(self, name: str) -> None:
        """Drop what is remembered of a node that is gone."""
        self._last.pop(name, None)

    def forget_others(self, listed: Collection[str]) -> None:
        """Drop what is remembered of all nodes but these."""
        for name in self._last.keys() - set(listed):
            del self._last[name]

    def _attach(self, record: NodeRecord) -> Attached:
        if record.document is None:
            return self._by_number(record)
        shared, missing = self._shared_class(record.document)
        if shared is None:
            # Its ConfigMap may come yet.
            return self._by_number(record, missing, settled=False)
        kind, findings = classify(record.document, shared, self._weights, self._wall_clock())
        table = self._tables.find(kind)
        if isinstance(table, str):
            return self._by_number(record, (*findings, _not_judged(table)))
        return self._with_table(record, table, findings)

    def _by_number(self, record: NodeRecord, findings: tuple[Finding, ...] = (), *, settled: bool = True) -> Attached:
        """Return a node whose links are not known."""
        self._last.pop(record.name, None)
        return Attached(_facts(record, None, findings), settled)

    def _with_table(self, record: NodeRecord, table: DeviceTable | None, findings: tuple[Finding, ...]) -> Attached:
        before = self._last.get(record.name)
        usable = table
        if usable is None and before is not None and record.document and len(before.ids) == len(record.document.gpus):
            usable = before.table
        if usable is None or record.document is None:
            known = self._last.pop(record.name, None)
            # A node whose GPUs are others now takes no pod until they are judged: neither the old ones are right nor any number.
            return Attached(replace(_facts(record, None), allocatable=0) if known else None, settled=False)
        machine = self._last[record.name] = _machine(record.document, usable, assumed=record.preset is not None)
        return Attached(_facts(record, machine, findings), settled=table is not None)

    def _shared_class(self, document: NodeDocument) -> tuple[DeviceClass | None, tuple[Finding, ...]]:
        """Return what equal machines share: what the document says, or what its hash names."""
        if document.whole:
            return self._own_class(document), ()
        named = class_by_hash(document, self._shared)
        return (None, (named,)) if isinstance(named, Finding) else (named, ())

    def _own_class(self, document: NodeDocument) -> DeviceClass:
        """Return the class of the document. Equal machines share their mappings of links (`readers.node_document`)."""
        models, numa = tuple([gpu.model for gpu in document.gpus]), tuple([gpu.numa for gpu in document.gpus])
        key = (id(document.links), id(document.nic_links), len(document.nics), models, numa, document.topology_policy)
        known = self._classes.get(key)
        if known is None:
            if len(self._classes) >= _CLASSES_MAX:
                self._classes.clear()
            # The document is kept with it: while it lives, no other mapping can have the identities in the key.
            known = self._classes[key] = (document, class_of(document))
        return known[1]


def _machine(document: NodeDocument, table: DeviceTable, *, assumed: bool) -> Machine:
    return Machine(
        ids=tuple([gpu.id for gpu in document.gpus]),
        uuids=tuple([gpu.uuid for gpu in document.gpus]),
        healthy=sum([1 << i for i, gpu in enumerate(document.gpus) if gpu.healthy]),
        table=table,
        assumed=assumed,
    )


def _facts(record: NodeRecord, machine: Machine | None, findings: tuple[Finding, ...] = ()) -> NodeFacts:
    return NodeFacts(
        name=record.name,
        place=record.place,
        resource=record.resource,
        allocatable=record.allocatable,
        machine=machine,
        in_use=record.in_use,
        in_use_unreadable=record.in_use_unreadable,
        findings=(*record.findings, *findings),
    )


def _not_judged(why: str) -> Finding:
    return Finding("links-not-judged", f"{why}; its GPUs are given out by number only", severity=Severity.ERROR)

"""Topology annotations to machines: equal machines share one device table, which a worker process builds."""

from __future__ import annotations

from dataclasses import replace

from pyscheduler.adapters.worker import Worker
from pyscheduler.core.device_table import DeviceTable, TooManyGpusError, class_hash
from pyscheduler.core.model import Machine, NodeFacts
from pyscheduler.errors import DocumentError
from pyscheduler.readers import node_document
from pyscheduler.readers.node_document import NodeDocument
from pyscheduler.readers.objects import TOPOLOGY

__all__ = ["Machines"]

Known = tuple[Machine | None, tuple[str, ...]]


class Machines:
    """Gives node facts their machine. Used by one thread."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tables: dict[str, DeviceTable] = {}
        # Node name to the annotation's text and what came of it: most node updates leave it as it was.
        self._last: dict[str, tuple[str, Known]] = {}

    def attach(self, facts: NodeFacts, text: str | None) -> NodeFacts:
        """Return the facts with the machine that the annotation describes and with what is wrong with it."""
        if text is None:
            return facts
        last = self._last.get(facts.name)
        if last is None or last[0] != text:
            last = self._last[facts.name] = (text, self._read(text))
        machine, findings = last[1]
        return replace(facts, machine=machine, findings=facts.findings + findings)

    def forget(self, name: str) -> None:
        """Drop what is remembered of a node that is gone."""
        self._last.pop(name, None)

    def _read(self, text: str) -> Known:
        try:
            document = node_document.parse(text)
            return self._machine(document)
        except (DocumentError, TooManyGpusError) as cause:
            return None, (f"annotation {TOPOLOGY} {cause}; its GPUs are given out by number only",)
        except Exception as cause:  # noqa: BLE001  a document that trips a bug must not keep the service from other nodes
            why = f"cannot be used ({type(cause).__name__}: {cause}): please report it"
            return None, (f"annotation {TOPOLOGY} {why}; its GPUs are given out by number only",)

    def _machine(self, document: NodeDocument) -> Known:
        kind, findings = node_document.device_class(document)
        key = class_hash(kind)
        if key not in self._tables:
            self._tables[key] = self._worker.run(DeviceTable.build, kind)
        machine = Machine(
            ids=tuple(gpu.id for gpu in document.gpus),
            uuids=tuple(gpu.uuid for gpu in document.gpus),
            healthy=sum(1 << i for i, gpu in enumerate(document.gpus) if gpu.healthy),
            table=self._tables[key],
        )
        return machine, tuple(f"annotation {TOPOLOGY}: {finding}" for finding in document.findings + findings)

"""Objects beside nodes that say what nodes are: classes of machines (ConfigMaps), and the fabric (HyperNodes, Topologies)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.errors import DocumentError
from pyscheduler.readers import class_document
from pyscheduler.readers.objects import ObjectReader

__all__ = ["ClassSink", "FabricSink"]

Raw = Mapping[str, Any]


class FabricSink:
    """Keeps the objects that describe the fabric, and makes the reader of nodes from them.

    The reader is made when it is next asked for: of many objects that change at once, not after each.

    Attributes
    ----------
    version
        Grows with every change of what the objects say.
    """

    def __init__(self, make: Callable[[Iterable[Raw]], ObjectReader], logger: FilteringBoundLogger) -> None:
        self._make = make
        self._logger = logger
        # Called after each change.
        self.told: Callable[[], None] = lambda: None
        self._objects: dict[str, Raw] = {}
        self._reader: ObjectReader | None = None
        self._lock = threading.Lock()
        self.version = 0

    def reader(self) -> ObjectReader:
        """Return how nodes are to be read now. Safe to call from several threads."""
        with self._lock:
            if self._reader is None:
                try:
                    self._reader = self._make(self._objects.values())
                except Exception:  # without the fabric nodes can still be served
                    self._logger.exception("fabric not read")
                    self._reader = self._make(())
            return self._reader

    def replace(self, items: list[Raw]) -> None:
        """Take a full list."""
        self._set({raw["metadata"]["name"]: _said(raw) for raw in items})

    def changed(self, raw: Raw) -> None:
        """Take one object."""
        self._set({**self._objects, raw["metadata"]["name"]: _said(raw)})

    def gone(self, raw: Raw) -> None:
        """Take a deleted object."""
        name = raw["metadata"]["name"]
        self._set({key: known for key, known in self._objects.items() if key != name})

    def _set(self, objects: dict[str, Raw]) -> None:
        if objects == self._objects:
            return
        with self._lock:
            self._objects, self._reader = objects, None
            self.version += 1
        self.told()


def _said(raw: Raw) -> Raw:
    """Return what an object says. Its status changes with every node that comes or goes, and says nothing to us."""
    return {"metadata": {"name": raw["metadata"]["name"]}, "spec": raw.get("spec")}


class ClassSink:
    """Classes of machines, by their hash.

    One that was seen stays: it is its content, which does not become wrong when its ConfigMap is deleted.

    Attributes
    ----------
    version
        Grows with every ConfigMap that comes, changes or goes.
    """

    def __init__(self, share: Callable[[Mapping[str, DeviceClass]], None], logger: FilteringBoundLogger) -> None:
        self._share = share
        self._logger = logger
        self._classes: dict[str, DeviceClass] = {}
        self.version = 0

    def replace(self, items: list[Mapping[str, Any]]) -> None:
        """Take a full list."""
        for raw in items:
            self._read(raw)
        self.version += 1
        self._share(self._classes)

    def changed(self, raw: Mapping[str, Any]) -> None:
        """Take one ConfigMap."""
        self._read(raw)
        self.version += 1
        self._share(self._classes)

    def gone(self, raw: Mapping[str, Any]) -> None:
        """Take a deleted ConfigMap."""
        self.version += 1

    def _read(self, raw: Mapping[str, Any]) -> None:
        try:
            name, found = class_document.of_config_map(raw)
        except DocumentError as cause:
            self._logger.warning("class not read", config_map=raw["metadata"].get("name"), error=str(cause))
        else:
            self._classes[name] = found

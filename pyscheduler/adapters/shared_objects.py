"""Objects beside nodes that say what nodes are: classes of machines (ConfigMaps), and the fabric (HyperNodes, Topologies)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from pyscheduler.core.device_class import DeviceClass
from pyscheduler.errors import DocumentError
from pyscheduler.readers import class_document

__all__ = ["ClassSink", "ObjectSink"]

Objects = Mapping[str, Mapping[str, Any]]


class ObjectSink:
    """Keeps the objects of one kind by name, and tells all of them after each change."""

    def __init__(self, tell: Callable[[Objects], None]) -> None:
        self._tell = tell
        self._objects: dict[str, Mapping[str, Any]] = {}

    def replace(self, items: list[Mapping[str, Any]]) -> None:
        """Take a full list."""
        objects = {raw["metadata"]["name"]: raw for raw in items}
        if objects != self._objects:
            self._objects = objects
            self._tell(objects)

    def changed(self, raw: Mapping[str, Any]) -> None:
        """Take one object."""
        self._objects[raw["metadata"]["name"]] = raw
        self._tell(self._objects)

    def gone(self, raw: Mapping[str, Any]) -> None:
        """Take a deleted object."""
        self._objects.pop(raw["metadata"]["name"], None)
        self._tell(self._objects)


class ClassSink:
    """Classes of machines, by their hash.

    One that was seen stays: it is its content, which does not become wrong when its ConfigMap is deleted.
    """

    def __init__(self, share: Callable[[Mapping[str, DeviceClass]], None], logger: FilteringBoundLogger) -> None:
        self._share = share
        self._logger = logger
        self._classes: dict[str, DeviceClass] = {}

    def replace(self, items: list[Mapping[str, Any]]) -> None:
        """Take a full list."""
        for raw in items:
            self._read(raw)
        self._share(self._classes)

    def changed(self, raw: Mapping[str, Any]) -> None:
        """Take one ConfigMap."""
        self._read(raw)
        self._share(self._classes)

    def gone(self, raw: Mapping[str, Any]) -> None:
        """Take a deleted ConfigMap."""

    def _read(self, raw: Mapping[str, Any]) -> None:
        try:
            name, found = class_document.of_config_map(raw)
        except DocumentError as cause:
            self._logger.warning("class not read", config_map=raw["metadata"].get("name"), error=str(cause))
        else:
            self._classes[name] = found

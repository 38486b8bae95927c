"""Reads how large groups are from the objects that say so: PodGroups, Jobs, JobSets and their like."""

from __future__ import annotations

import threading
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.core.gangs.gangs import Gangs, Size
from pyscheduler.core.gangs.membership import GangKey, ObjectRef
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.gang_size import path_of, size_of

__all__ = ["GangSizes"]

# Seconds between two looks for what is to be read, if nobody asks for one before.
_LOOK_S = 2.0


class GangSizes:
    """One thread that reads what groups wait for. Kinds that the cluster does not have are read in vain, and told once."""

    def __init__(
        self, api: ApiServer, gangs: Gangs, lock: threading.Lock, clock: Callable[[], float], logger: FilteringBoundLogger
    ) -> None:
        self._api = api
        self._gangs = gangs
        self._lock = lock
        self._clock = clock
        self._logger = logger
        self._asked = threading.Event()
        self._stopped = threading.Event()
        self._told: set[ObjectRef] = set()
        self._thread = threading.Thread(target=self._run, name="gang-sizes", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present read."""
        self._stopped.set()
        self._asked.set()

    def ask(self) -> None:
        """Look soon for what is to be read; returns at once."""
        self._asked.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._asked.wait(_LOOK_S)
            self._asked.clear()
            with self._lock:
                unread = self._gangs.unread()
            for gang, ref in unread.items():
                if self._stopped.is_set():
                    return
                try:
                    self._read(gang, ref)
                except Exception:  # one object that trips a bug must not keep the others from being read
                    self._logger.exception("size of a group not read", group=str(gang), kind=ref.kind, name=ref.name)

    def _read(self, gang: GangKey, ref: ObjectRef) -> None:
        try:
            # A list and not a get: that there is no such object is an answer, not an error.
            path, _, name = path_of(ref).rpartition("/")
            items = self._api.get(path, {"fieldSelector": f"metadata.name={name}"})["items"]
            found = size_of(ref.kind, items[0]) if items else None
        except KubernetesError as cause:
            found = None
            if ref not in self._told:
                self._told.add(ref)
                self._logger.warning("size of a group not read", group=str(gang), kind=ref.kind, name=ref.name, error=str(cause))
        with self._lock:
            self._gangs.note_size(gang, Size(*found) if found else None, self._clock())

"""Reads the objects that say how large groups are and where they are to be: PodGroups, Jobs, JobSets and their like."""

from __future__ import annotations

import threading
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.core.gangs.gangs import Gangs
from pyscheduler.core.gangs.membership import GangKey, GroupSpec, ObjectRef
from pyscheduler.core.gangs.problems import Problem
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.gang_size import path_of
from pyscheduler.readers.gang_spec import spec_of

__all__ = ["GangSpecs"]

# Seconds between two looks for what is to be read, if nobody asks for one before.
_LOOK_S = 2.0


class GangSpecs:
    """One thread that reads what groups wait for, and tells what is wrong with groups.

    Kinds that the cluster does not have are read in vain, and told once in the log. An object that cannot be read says nothing: its
    group waits for one attempt, not for the API server.

    Parameters
    ----------
    tell
        Takes each problem once.

    """

    def __init__(
        self,
        api: ApiServer,
        gangs: Gangs,
        lock: threading.Lock,
        clock: Callable[[], float],
        tell: Callable[[Problem], None],
        logger: FilteringBoundLogger,
    ) -> None:
        self._api = api
        self._gangs = gangs
        self._lock = lock
        self._clock = clock
        self._tell = tell
        self._logger = logger
        self._asked = threading.Event()
        self._stopped = threading.Event()
        # API versions and kinds that could not be read the last time.
        self._failed: set[tuple[str, str]] = set()
        self._thread = threading.Thread(target=self._run, name="gang-specs", daemon=True)

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

    def look(self) -> None:
        """Read what is to be read now, and tell what is new."""
        with self._lock:
            unread, problems = self._gangs.specs.unread(), self._gangs.problems.take()
        for problem in problems:
            self._tell(problem)
        for gang, ref in unread.items():
            if self._stopped.is_set():
                return
            spec = self._read(gang, ref)
            with self._lock:
                self._gangs.specs.note(gang, spec, self._clock())

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._asked.wait(_LOOK_S)
            self._asked.clear()
            self.look()

    def _read(self, gang: GangKey, ref: ObjectRef) -> GroupSpec | None:
        """Return what the object says, which is nothing where there is none; None if it cannot be read."""
        kind, named = (ref.api_version, ref.kind), {"group": str(gang), "kind": ref.kind, "name": ref.name}
        try:
            # A list and not a get: that there is no such object is an answer, not an error.
            path, _, name = path_of(ref).rpartition("/")
            items = self._api.get(path, {"fieldSelector": f"metadata.name={name}"}).get("items")
            self._failed.discard(kind)
            return spec_of(ref, items[0]) if isinstance(items, list) and items else GroupSpec()
        except KubernetesError as cause:
            if kind not in self._failed:
                self._failed.add(kind)
                self._logger.warning("object of a group not read", **named, error=str(cause))
        except Exception:  # one object that trips a bug must not keep the others from being read
            self._logger.exception("object of a group not read", **named)
        return None

"""Writes the tables of groups as ConfigMaps, by the service that leads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.gang_config_map import adds, config_map, is_ours
from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.gangs.table import GangTable, Tables
from pyscheduler.errors import KubernetesError

__all__ = ["GangTables"]

# Seconds between two looks for tables that have changed: a container that mounts its table waits as long.
_LOOK_S: Final = 0.2
# The fewest seconds between two writes for one group: of members that join one after the other many are told at once.
_APART_S: Final = 1.0
# Seconds after a failed write: the first doubles with each, up to the second.
_RETRY_S: Final = 1.0
_RETRY_MAX_S: Final = 30.0


@dataclass(slots=True)
class _Entry:
    """A group that was written, or is to be: not before `due`. `table` is None if all is written."""

    table: GangTable | None
    due: float
    failures: int = 0


class GangTables:
    """One thread that writes the tables that change. The API server's garbage collector deletes them with their owners.

    A standby looks for nothing. Who takes over looks at the tables of all live groups, and writes those that say something
    new: of what the leader before has written nothing is lost, and nothing is written twice.
    """

    def __init__(
        self, api: ApiServer, tables: Tables, lock: threading.Lock, clock: Callable[[], float], logger: FilteringBoundLogger
    ) -> None:
        self._api = api
        self._tables = tables
        self._lock = lock
        self._clock = clock
        self._logger = logger
        self._entries: dict[GangKey, _Entry] = {}
        self._leads = threading.Event()
        self._took_over = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gang-tables", daemon=True)

    def start(self) -> None:
        """Begin to write, once `lead` has said so."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present table."""
        self._stopped.set()

    def lead(self, leads: bool) -> None:  # noqa: FBT001
        """Write from now on, or do not any more."""
        if leads:
            self._took_over.set()
            self._leads.set()
        else:
            self._leads.clear()

    def look(self) -> None:
        """Write what is to be written now."""
        if not self._leads.is_set():
            return
        now = self._clock()
        with self._lock:
            if self._took_over.is_set():
                self._took_over.clear()
                self._tables.renew()
            changed = self._tables.take()
            live = {gang for gang in self._entries if self._tables.is_live(gang)}
        self._entries = {gang: entry for gang, entry in self._entries.items() if gang in live}
        for table in changed:
            entry = self._entries.setdefault(table.gang, _Entry(None, now))
            entry.table = table
        for entry in self._entries.values():
            if entry.table is not None and entry.due <= now and self._leads.is_set() and not self._stopped.is_set():
                self._try(entry, entry.table, now)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self.look()

    def _try(self, entry: _Entry, table: GangTable, now: float) -> None:
        try:
            self._write(table)
        except KubernetesError as cause:
            if not entry.failures:
                self._logger.warning("table of a group not written", group=str(table.gang), error=str(cause))
            entry.due = now + min(_RETRY_MAX_S, _RETRY_S * 2.0**entry.failures)
            entry.failures = min(entry.failures + 1, 10)
            return
        except Exception:  # one table that trips a bug must not keep the others from being written
            self._logger.exception("table of a group not written", group=str(table.gang))
        entry.table, entry.due, entry.failures = None, now + _APART_S, 0

    def _write(self, table: GangTable) -> None:
        wanted = config_map(table)
        if wanted is None:
            self._logger.warning(
                "table of a group not written", group=str(table.gang), error="it is larger than a ConfigMap may be"
            )
            return
        meta = wanted["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/configmaps"
        try:
            self._api.post(path, wanted)
        except KubernetesError as cause:
            if cause.status != HTTPStatus.CONFLICT:  # it is there already
                raise
            self._replace(path, wanted, table)

    def _replace(self, path: str, wanted: dict[str, Any], table: GangTable) -> None:
        """Write in place of the ConfigMap that is there, if it is ours, and says less."""
        name = wanted["metadata"]["name"]
        # If it was deleted just now that fails, and is tried again.
        there = self._api.get(f"{path}/{name}")
        if not is_ours(there):
            remedy = "there is a ConfigMap of this name that somebody else made: rename it, or the group"
            self._logger.warning("table of a group not written", group=str(table.gang), error=f"{name}: {remedy}")
        elif adds(wanted, there):
            # With the version that was read: if somebody wrote it since, it is read again.
            version = there["metadata"]["resourceVersion"]
            self._api.put(f"{path}/{name}", {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}})

"""What is known of cards over restarts of the service: read at its start, written by the service that leads.

It goes in and out as shards, packed (`readers.cards.memory_shards`): who has the cards packs and unpacks them, in a worker
process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.card_config_maps import CardConfigMaps
from pyscheduler.adapters.card_file import CardFile
from pyscheduler.adapters.lease import Leadership
from pyscheduler.adapters.survey import namespace
from pyscheduler.config import Config
from pyscheduler.errors import CardMemoryError, KubernetesError
from pyscheduler.readers.cards.memory_shards import Shards

__all__ = ["CardMemory"]

# Seconds between the tries to read at the start.
_PAUSES_S: Final = (1.0, 3.0)


class _Store(Protocol):
    def read(self) -> dict[str, bytes]: ...
    def write(self, shards: Shards) -> None: ...


class CardMemory:
    """Reads and writes all shards. One caller at a time, for which a call may take long: never a thread that answers others.

    Nothing is written before what is there was read: it may be worth more than what a service knows that began without.
    """

    def __init__(
        self,
        api: ApiServer,
        leadership: Leadership,
        config: Config,
        logger: FilteringBoundLogger,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        path = config.metrics.memory_file
        self._store: _Store = CardFile(Path(path)) if path else CardConfigMaps(api, namespace(config))
        self._leadership = leadership
        self._logger = logger
        self._pause = pause
        # Why what is there was not read; empty if it was.
        self._unread = "it was not read yet"
        self._told = ""

    def load(self) -> dict[str, bytes]:
        """Return what was saved last; nothing if it cannot be had, which is told. Then `late` may have it later."""
        self._unread = "it was not read yet"
        for pause in _PAUSES_S:
            try:
                return self._read()
            except KubernetesError:
                self._pause(pause)
            except CardMemoryError:
                break
        try:
            return self._read()
        except (KubernetesError, CardMemoryError) as cause:
            self._unread = str(cause)
            self._logger.warning(
                "what was known of cards is not read",
                error=str(cause),
                remedy="it is tried again with each poll; until then nothing is saved",
            )
            return {}

    def late(self) -> dict[str, bytes] | None:
        """Return what `load` could not have, as soon as it can be had; None before, and ever after."""
        if not self._unread:
            return None
        try:
            found = self._read()
        except (KubernetesError, CardMemoryError) as cause:
            self._unread = str(cause)
            return None
        self._logger.info("what was known of cards is read now")
        return found

    def save(self, shards: Shards) -> None:
        """Keep this in place of what was saved before, if this service leads. If it cannot be kept, that is told once."""
        if not self._leadership.leads:
            return
        if self._unread:
            self._tell(f"what was saved before cannot be read: {self._unread}")
            return
        try:
            self._store.write(shards)
        except (KubernetesError, CardMemoryError) as cause:
            self._tell(str(cause))
        else:
            self._tell("")

    def _read(self) -> dict[str, bytes]:
        found = self._store.read()
        self._unread = ""
        return found

    def _tell(self, problem: str) -> None:
        if problem and not self._told:
            self._logger.warning("what is known of cards is not saved", error=problem, remedy="it is tried again with the next")
        if self._told and not problem:
            self._logger.info("what is known of cards is saved again")
        self._told = problem

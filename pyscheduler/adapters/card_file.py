"""The memory of cards in one file, where the service has a volume. zcat shows it."""

from __future__ import annotations

import os
from pathlib import Path

from pyscheduler.errors import CardMemoryError
from pyscheduler.readers.cards.memory_shards import Shards

__all__ = ["CardFile"]


class CardFile:
    """One file, which is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, bytes]:
        """Return the file as one shard under its path, nothing if there is none.

        Raises
        ------
        CardMemoryError
            If it cannot be read.

        """
        try:
            return {str(self._path): self._path.read_bytes()}
        except FileNotFoundError:
            return {}
        except OSError as cause:
            raise self._unusable("read", cause) from cause

    def write(self, shards: Shards) -> None:
        """Write all shards in place of what is there.

        Raises
        ------
        CardMemoryError
            If they cannot be written. What was there before still is.

        """
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            with new.open("wb") as file:
                file.writelines(shards.values())
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as cause:
            raise self._unusable("written", cause) from cause

    def _unusable(self, what: str, cause: OSError) -> CardMemoryError:
        return CardMemoryError(
            f"metrics.memoryFile {self._path} cannot be {what} ({cause.strerror}): let the service read and write it, and its folder"
        )

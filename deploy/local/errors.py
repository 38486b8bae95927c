"""Failures of the embedded control plane.

LocalError
├── UnusableFolderError      the folder cannot hold the state
├── AlreadyRunningError      a control plane runs there
├── NotRunningError          none runs there
├── BinaryMissingError       a program has not been built
├── ComponentFailedError     a process ended or did not become ready
├── NeverHappenedError       what was waited for did not come
└── ApiError                 the API server refused a request
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LAST_LINES: Final = 15
_LAST_BYTES: Final = 16_384
_PORT_TAKEN: Final = "address already in use"


class LocalError(Exception):
    """Something outside this tool failed; the message says what, where, and the remedy."""


class UnusableFolderError(LocalError):
    """The folder cannot hold the state of a control plane."""


class AlreadyRunningError(LocalError):
    """A control plane runs in the folder."""


class NotRunningError(LocalError):
    """No control plane runs in the folder."""


class BinaryMissingError(LocalError):
    """A program of the control plane has not been built."""


class ComponentFailedError(LocalError):
    """A component ended or did not become ready.

    Attributes
    ----------
    component
        Name of the component, such as ``kube-apiserver``.
    tail
        Last lines of its log.

    """

    def __init__(self, component: str, what: str, log: Path) -> None:
        self.component = component
        self.tail = last_lines(log)
        super().__init__(f"{component} {what}; its log {log} ends with:\n{self.tail}")

    @property
    def port_taken(self) -> bool:
        """Whether another process had taken a port of the component."""
        return _PORT_TAKEN in self.tail


class NeverHappenedError(LocalError):
    """What was waited for did not come in time."""


class ApiError(LocalError):
    """The API server answered a request with an error.

    Attributes
    ----------
    status
        HTTP status code.
    reason
        The server's word for the kind of error, such as ``Forbidden``.

    """

    def __init__(self, request: str, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"{request}: {status} {reason}: {message}")


def last_lines(log: Path) -> str:
    """Return the end of a log file, at most 15 lines; a sentence if there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LAST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
    except FileNotFoundError:
        return "(no log was written)"
    return "\n".join(lines) or "(the log is empty)"

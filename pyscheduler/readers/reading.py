"""What every reader of foreign text gives: a document of one kind, with warnings; or a refusal that says where and why.

A reader is a module with two functions: ``recognises(text) -> bool``, cheap and strict, and ``read(text) -> Reading``.
The form of the documents is fixed: versioned JSON of kind ``node``, ``fabric`` or ``metrics``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pyscheduler.core.findings import Finding
from pyscheduler.errors import PyschedulerError

__all__ = ["Finding", "Kind", "Reading", "RefusedError"]

Kind = Literal["node", "fabric", "metrics"]


class RefusedError(PyschedulerError):
    """The text holds no topology, or none that can be used. `line` counts from 1; None where there is no line to name."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.line = line


@dataclass(frozen=True, slots=True)
class Reading:
    """One document.

    Attributes
    ----------
    kind
        What the document is of.
    format
        Name of the reader.
    body
        The fields of the document besides version, kind, format, complete and warnings; plain JSON values.
    complete
        False where something that this kind of input shows is missing, cut, unreadable or known to be hidden.
        Fabric and metrics documents leave it True.
    findings
        Warnings, in the order of the input.
    """

    kind: Kind
    format: str
    body: dict[str, Any]
    complete: bool = True
    findings: tuple[Finding, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """Return the versioned JSON document."""
        head: dict[str, Any] = {"version": 1, "kind": self.kind, "format": self.format}
        if self.kind == "node":
            head["complete"] = self.complete
        warnings = [{"code": f.code, "message": f.message} for f in self.findings]
        return {**head, **self.body, "warnings": warnings}

"""What is wrong or not known, and what to do about it: told once, never per decision."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Finding", "Severity"]


class Severity(enum.StrEnum):
    """How much a finding matters."""

    # Something is not used, or decisions rest on what is wrong.
    ERROR = "error"
    # Decisions may be worse than they could be.
    WARNING = "warning"
    # Worth knowing; nothing need be done.
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One finding.

    Attributes
    ----------
    code
        Stable kebab-case name of its kind.
    message
        One sentence that names the GPU, node, line or label.
    remedy
        What to do, one sentence; empty where the message says it.
    node
        The node that it is on; empty where it is of the whole cluster, or of a text.
    severity
        How much it matters.
    """

    code: str
    message: str
    remedy: str = ""
    node: str = ""
    severity: Severity = Severity.WARNING

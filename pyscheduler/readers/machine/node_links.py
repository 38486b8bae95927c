"""What several rows say of one pair, to one link: the weaker counts, and what is unknown stays unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyscheduler.core.machine.links import Link
from pyscheduler.readers.reading import Finding

__all__ = ["agreed", "mismatches"]

_UNKNOWN: Final = "?"


def agreed(reports: Iterable[str]) -> str:
    """Return the weakest of the known `reports`; "?" if none is known."""
    known = [report for report in reports if report != _UNKNOWN]
    return max(known, key=lambda text: Link.parse(text).distance) if known else _UNKNOWN


def mismatches(reports: Mapping[tuple[str, str], Iterable[str]]) -> list[Finding]:
    """Return a finding for each pair whose directions disagree."""
    found: list[Finding] = []
    for (a, b), texts in reports.items():
        known = sorted({text for text in texts if text != _UNKNOWN}, key=lambda text: Link.parse(text).distance)
        if len(known) > 1:
            said = f"{known[0]} one way and {known[-1]} the other"
            found.append(Finding("direction-mismatch", f"{a}-{b} is {said}: the weaker, {known[-1]}, counts"))
    return found

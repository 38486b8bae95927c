"""One document of several machines: their GPUs, NICs and links are told apart by `host`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pyscheduler.readers.nvidia.line_labels import Labelled
from pyscheduler.readers.reading import Finding, Reading
from pyscheduler.readers.text.parts import some

__all__ = ["by_label", "together"]

_OF_ONE: Final = ("gpus", "nics", "nic_links")
_OF_TWO: Final = ("links", "p2p")


def by_label(found: Sequence[tuple[Labelled, Reading]], others: Sequence[str]) -> Reading:
    """Return what lines of each label describe. `others` are labels without a matrix.

    One label that is the number of a process names no machine.
    """
    labels = [one.label for one, _ in found]
    reading = found[0][1]
    notes = []
    if len(found) > 1 or found[0][0].is_name:
        reading = together([(one.label, each) for one, each in found])
    if len(found) > 1 and not all(one.is_name for one, _ in found):
        text = f"lines are told apart by {some(labels)}, which may be processes of one machine"
        notes.append(Finding("process-labels", text))
    if others:
        text = f"lines that begin with {some(others)} hold no matrix: left out"
        notes.append(Finding("lines-left-out", text))
    return replace(reading, findings=(*reading.findings, *notes))


def together(machines: Sequence[tuple[str, Reading]]) -> Reading:
    """Return one document of machines, each with its name."""
    body: dict[str, Any] = {"gpus": [], "nics": [], "links": [], "nic_links": []}
    findings: list[Finding] = []
    for host, one in machines:
        for key in _OF_ONE:
            body[key] += [{**item, "host": host} for item in one.body[key]]
        for key in _OF_TWO:
            pairs = [{**pair, "a_host": host, "b_host": host} for pair in one.body.get(key, ())]
            body[key] = body.get(key, []) + pairs if pairs else body.get(key, [])
        findings += [replace(finding, message=f"{host}: {finding.message}") for finding in one.findings]
    whole = all(one.complete for _, one in machines)
    return Reading("node", machines[0][1].format, body, complete=whole, findings=tuple(findings))

"""All checks of `pyscheduler doctor`, in the order in which their remedies are to be applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyscheduler.cli.doctor_cards import card_findings
from pyscheduler.cli.doctor_facts import Answers, Fleet
from pyscheduler.cli.doctor_labels import label_findings
from pyscheduler.cli.doctor_metrics import age_findings, metric_findings, profiler_findings
from pyscheduler.cli.doctor_series import duplicate_findings, exporter_findings, interval_findings, nothing_findings
from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.findings import Finding, Severity

__all__ = ["check"]

# Findings of the poll that are of what many exporters do.
_HARMLESS = frozenset(("sample-discarded",))
# Findings of the poll that a check of its own says better.
_SAID_BETTER = frozenset(("metrics-without-node",))


def check(answers: Answers, fleet: Fleet, capacity: CapacityConfig) -> list[Finding]:
    """Return what is found."""
    return list(_all(answers, fleet, capacity))


def _all(answers: Answers, fleet: Fleet, capacity: CapacityConfig) -> Iterator[Finding]:
    yield Finding("prometheus", f"{answers.config.url} answers", severity=Severity.NOTE)
    for problem in answers.problems:
        yield Finding("question-failed", problem)
    if not answers.names:
        yield from nothing_findings(answers)
        return
    yield from exporter_findings(answers)
    if not fleet.gpu_nodes:
        remedy = "do their device plugins run, and does `resources` of the configuration name what they offer?"
        yield Finding("no-gpu-nodes", "no node of the cluster has GPUs", remedy)
    yield from label_findings(answers, fleet)
    yield from card_findings(answers, fleet)
    yield from _of_the_poll(answers)
    yield from metric_findings(answers)
    yield from age_findings(answers, capacity)
    yield from interval_findings(answers)
    yield from profiler_findings(answers, capacity)
    yield from duplicate_findings(answers)


def _of_the_poll(answers: Answers) -> Iterator[Finding]:
    """Yield what the service itself would tell of this poll."""
    if answers.collected is None:
        return
    for problem in answers.collected.problems:
        yield Finding("poll-incomplete", problem)
    for finding in answers.collected.findings:
        if finding.code in _HARMLESS:
            yield replace(finding, severity=Severity.NOTE)
        elif finding.code not in _SAID_BETTER:
            yield finding

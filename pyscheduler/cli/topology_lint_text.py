"""Findings of `topology lint`, for people: what is the same on many nodes is told once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.console import Console

from pyscheduler.cli.terminal import plain
from pyscheduler.core.findings import Finding, Severity

__all__ = ["show"]

_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
# Lines of one code, and nodes of one line.
_LINES: Final = 5
_NODES: Final = 4


def show(findings: Sequence[Finding], *, nodes: int, gpus: int, console: Console | None = None) -> None:
    """Print `findings`, which are in order, and how many there are on so many nodes and GPUs."""
    to = console or Console(highlight=False)
    for (severity, code), alike in groupby(findings, key=lambda finding: (finding.severity, finding.code)):
        _show_code(severity, code, list(alike), to)
    counts = [_count(sum(f.severity is severity for f in findings), severity.value) for severity in _COLOURS]
    told = ", ".join(count for count in counts if not count.startswith("0 ")) or "no findings"
    to.print(f"{told} on {_count(nodes, 'node')}, {_count(gpus, 'GPU')}", soft_wrap=True)


def _show_code(severity: Severity, code: str, findings: Sequence[Finding], console: Console) -> None:
    nodes_of: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        nodes_of.setdefault((finding.remedy, finding.message), []).append(finding.node)
    console.print(f"[bold {_COLOURS[severity]}]{severity.value}[/] [bold]{plain(code)}[/]", soft_wrap=True)
    shown = list(nodes_of.items())[:_LINES]
    for remedy, lines in groupby(shown, key=lambda item: item[0][0]):
        for (_, message), nodes in lines:
            console.print(f"  {plain(_where(nodes) + message)}", soft_wrap=True)
        if remedy:
            console.print(f"    [green]->[/] {plain(remedy)}", soft_wrap=True)
    rest = len(findings) - sum(len(nodes) for _, nodes in shown)
    if rest:
        console.print(f"  [dim]and {rest:,} more; -o json has them all[/]", soft_wrap=True)


def _where(nodes: Sequence[str]) -> str:
    named = [node for node in nodes if node]
    if not named:
        return ""
    rest = len(named) - _NODES
    return ", ".join(named[:_NODES]) + (f" and {_count(rest, 'more node')}" if rest > 0 else "") + ": "


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

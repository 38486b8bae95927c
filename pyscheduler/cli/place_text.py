"""Answers of `pyscheduler place`, drawn for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

__all__ = ["Beside", "show"]

# Nodes that are drawn of one answer.
_NODES: Final = 100
# Columns of what is no terminal.
_UNLIMITED: Final = 4096

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Beside:
    """What a choice is measured by.

    Attributes
    ----------
    best_gbps, worst_gbps
        Predicted all-reduce bandwidth of the best conceivable placement and of the worst, GB/s.
    runner_up, runner_up_gbps, why
        The next best placement in words, its predicted bandwidth, and why it lost; of another policy's choice, that of
        the selector, and no reason.
    """

    best_gbps: float | None = None
    worst_gbps: float | None = None
    runner_up: str | None = None
    runner_up_gbps: float | None = None
    why: str = ""


def show(answers: Sequence[Answer], beside: Sequence[Beside], console: Console | None = None) -> None:
    """Print the answers, each with what it is measured by; the warnings of each last."""
    to = console or Console(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)
    for number, (answer, measure) in enumerate(zip(answers, beside, strict=True), start=1):
        if len(answers) > 1:
            to.print(f"[bold]request {number}[/]")
        if answer["feasible"]:
            _show_choice(answer, measure, to)
        else:
            _show_refusal(answer, to)
        for warning in answer["warnings"]:
            to.print(f"[yellow]{escape(warning['code'])}[/]: {_plain(warning['message'])}", soft_wrap=True)


def _show_choice(answer: Answer, beside: Beside, console: Console) -> None:
    pods = answer["pods"]
    by_node: dict[str, list[tuple[int, Answer]]] = {}
    for rank, pod in enumerate(pods):
        by_node.setdefault(pod["node"], []).append((rank, pod))
    where = {None: "across the cluster, no level holds it", "node": "on one node"}.get(
        answer["level"], f"within one {answer['level']}"
    )
    tree = Tree(f"[bold green]placed[/]: {_plain(where)}, weakest link {answer['bottleneck'] or 'none (one GPU per pod)'}")
    for name, held in list(by_node.items())[:_NODES]:
        branch = tree.add(f"[bold]{_plain(name)}[/]")
        for rank, pod in held:
            gpus = (
                f"pod {rank}: {_plain(' '.join(pod['gpus'])) or 'any GPUs'}" if len(pods) > 1 else _plain(" ".join(pod["gpus"]))
            )
            branch.add(gpus + (f"  [dim]ring {_plain(' > '.join(pod['ring']))}[/]" if len(pod["ring"]) > 2 else ""))
    if len(by_node) > _NODES:
        tree.add(f"[dim]and {len(by_node) - _NODES} more nodes; -o json has them all[/]")
    console.print(tree)
    console.print(_bandwidths(answer, beside))
    if beside.why:
        console.print(f"runner-up lost: {_plain(beside.why)}", soft_wrap=True)


def _bandwidths(answer: Answer, beside: Beside) -> Table:
    table = Table("predicted all-reduce", "GB/s", show_edge=False, pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("this choice", _gbps(answer["predicted_allreduce_gbps"]))
    if beside.runner_up:
        what = "runner-up" if beside.why else "the selector's choice"
        table.add_row(f"{what}: {_plain(beside.runner_up)}", _gbps(beside.runner_up_gbps))
    table.add_row("best conceivable, if every healthy GPU were free", _gbps(beside.best_gbps))
    table.add_row("worst possible now", _gbps(beside.worst_gbps))
    return table


def _show_refusal(answer: Answer, console: Console) -> None:
    console.print(f"[bold red]not feasible[/]: {_plain(answer['reason'])}", soft_wrap=True)
    console.print(f"fits: {answer['fits']}; binds: {_plain(answer['binds'])}", soft_wrap=True)
    if answer["change"]:
        console.print(f"[green]->[/] {_plain(answer['change'])}", soft_wrap=True)


def _gbps(value: float | None) -> str:
    return "?" if value is None else f"{value:,g}"


def _plain(text: str) -> str:
    """Return `text` without what would steer a terminal or a markup."""
    return escape("".join(character if character.isprintable() else "?" for character in text))

"""Answers of `pyscheduler place`, drawn for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from pyscheduler.core.explain import plural
from pyscheduler.core.job import Job

__all__ = ["show"]

# Nodes that are drawn of one answer, and named of a runner-up.
_NODES: Final = 100
_NAMED: Final = 3
# What binds, in words.
_BINDS: Final = {
    "gpus": "the number of GPUs",
    "max-link": "the limit on links",
    "near-nic": "the wish for a NIC",
    "same-numa": "the single NUMA node",
    "same-model": "the single model",
    "partitions": "the list of partitions",
    "level": "the required level",
    "one-pod-per-node": "the limit of one pod per node",
    "health": "the health of GPUs",
}
# Columns of what is no terminal.
_UNLIMITED: Final = 4096

Answer = Mapping[str, Any]


def show(jobs: Sequence[Job], answers: Sequence[Answer], console: Console | None = None) -> None:
    """Print the answers, each with what it is measured by; the warnings of each last."""
    to = console or Console(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)
    for number, (job, answer) in enumerate(zip(jobs, answers, strict=True), start=1):
        if len(answers) > 1:
            to.print(f"[bold]request {number}[/]")
        if answer["feasible"]:
            _show_choice(answer, to)
        else:
            _show_refusal(job, answer, to)
        for warning in answer["warnings"]:
            to.print(f"[yellow]{escape(warning['code'])}[/]: {_plain(warning['message'])}", soft_wrap=True)


def _show_choice(answer: Answer, console: Console) -> None:
    pods = answer["pods"]
    by_node: dict[str, list[tuple[int, Answer]]] = {}
    for rank, pod in enumerate(pods):
        by_node.setdefault(pod["node"], []).append((rank, pod))
    where = {None: "across the cluster, no level holds it", "node": "on one node"}.get(
        answer["level"], f"within one {answer['level']}"
    )
    weakest = f"weakest link {'inside a pod ' if len(pods) > 1 else ''}{answer['bottleneck'] or 'none (one GPU per pod)'}"
    tree = Tree(f"[bold green]placed[/]: {_plain(where)}, {weakest}")
    for name, held in list(by_node.items())[:_NODES]:
        branch = tree.add(f"[bold]{_plain(name)}[/]")
        for rank, pod in held:
            gpus = (
                f"pod {rank}: {_plain(' '.join(pod['gpus'])) or 'any GPUs'}" if len(pods) > 1 else _plain(" ".join(pod["gpus"]))
            )
            branch.add(gpus + (f"  [dim]ring {_plain(' > '.join(pod['ring']))}[/]" if len(pod["ring"]) > 2 else ""))
    if len(by_node) > _NODES:
        tree.add(f"[dim]and {plural(len(by_node) - _NODES, 'more node')}; -o json has them all[/]")
    console.print(tree)
    console.print(_bandwidths(answer))
    if answer["runner_up_reason"]:
        console.print(f"runner-up lost: {_plain(answer['runner_up_reason'])}", soft_wrap=True)


def _bandwidths(answer: Answer) -> Table:
    table = Table("predicted all-reduce", "GB/s", show_edge=False, pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("this choice", _gbps(answer["predicted_allreduce_gbps"]))
    if other := answer["runner_up"]:
        what = "runner-up" if answer["runner_up_reason"] else "the selector's choice"
        table.add_row(f"{what}: {_plain(_words(other['pods']))}", _gbps(other["predicted_allreduce_gbps"]))
    table.add_row("best conceivable, if every healthy GPU were free", _gbps(answer["best_gbps"]))
    table.add_row("worst possible now", _gbps(answer["worst_gbps"]))
    return table


def _words(pods: Sequence[Answer]) -> str:
    """Return the nodes of pods; of one pod its GPUs, too."""
    names = list(dict.fromkeys(pod["node"] for pod in pods))
    rest = len(names) - _NAMED
    listed = ", ".join(names[:_NAMED]) + (f" and {plural(rest, 'more node')}" if rest > 0 else "")
    return listed if len(pods) > 1 or not pods[0]["gpus"] else f"{listed}: {' '.join(pods[0]['gpus'])}"


def _show_refusal(job: Job, answer: Answer, console: Console) -> None:
    console.print(f"[bold red]not feasible[/]: {_plain(answer['reason'])}", soft_wrap=True)
    asked = plural(job.pods, "pod") if job.pods > 1 else plural(job.gpus)
    fit = "fits" if answer["fits"] == 1 else "fit"
    console.print(f"{answer['fits']} of {asked} {fit}; {_BINDS.get(answer['binds'], answer['binds'])} binds", soft_wrap=True)
    if answer["change"]:
        console.print(f"[green]->[/] {_plain(answer['change'])}", soft_wrap=True)


def _gbps(value: float | None) -> str:
    return "?" if value is None else f"{value:,g}"


def _plain(text: str) -> str:
    """Return `text` without what would steer a terminal or a markup."""
    return escape("".join(character if character.isprintable() else "?" for character in text))

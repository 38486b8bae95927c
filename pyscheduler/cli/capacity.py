"""`pyscheduler capacity`: what the running service knows of the capacity of each card."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["capacity"]


def capacity(
    node: Annotated[str, typer.Option(metavar="NAME", help="Only cards of this node.")] = "",
    bad: Annotated[bool, typer.Option("--bad", help="Only cards kept out, suspect, on probation, or with H below 1.")] = False,  # noqa: FBT002
    config: Annotated[Path | None, typer.Option(help="Configuration of the service: where its socket is.")] = None,
    socket: Annotated[str | None, typer.Option(help="Unix socket of the service, where it is another one.")] = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="text prints a table.")] = "text",
) -> None:
    """Show the score of every card with its layers: H (faults), I (speed), A (what is free), and why it is so.

    TIMER is how far a card is on its way to the next state, and where that ends: below the threshold, above the bar of
    recovery, or at work on probation.

    Exit code 0: cards are known. 1: none is. 2: the service does not answer.
    """
    # Imported here: other commands need no gRPC.
    from pyscheduler.cli.capacity_text import lines
    from pyscheduler.config import Config
    from pyscheduler.edge.inspect_client import capacity as asked

    answer = asked(Config.load(config, socket=socket).socket, node=node, only_bad=bad)
    if output == "json":
        typer.echo(json.dumps({"version": 1, "kind": "capacity", **answer}, ensure_ascii=True))
    else:
        typer.echo("\n".join(lines(answer, time.time())))
    if not answer["status"] or not answer["status"]["counts"]:
        raise typer.Exit(1)

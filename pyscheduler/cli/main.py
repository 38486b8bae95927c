"""The command line. A failure of the world becomes one line on stderr, never a traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pyscheduler import __version__
from pyscheduler.cli import topology
from pyscheduler.cli.place import OneLineCommand, place
from pyscheduler.errors import PyschedulerError

__all__ = ["main"]

# The exit code for input that cannot be used.
UNUSABLE = 2

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(topology.app, name="topology")
app.command(cls=OneLineCommand)(place)


@app.callback()
def root() -> None:
    """Places pods on the best-connected GPUs of a Kubernetes cluster."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def serve(
    config: Annotated[Path | None, typer.Option(help="YAML file; without it the defaults count.")] = None,
    socket: Annotated[str | None, typer.Option(help="Unix socket that the scheduler dials.")] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="Without it: the service account of the pod.")] = None,
) -> None:
    """Run the service that decides for the kube-scheduler plugin."""
    # Imported here: the other commands need neither gRPC nor the Kubernetes client.
    from pyscheduler.adapters import logs
    from pyscheduler.app import serve as run
    from pyscheduler.config import Config

    loaded = Config.load(config, socket=socket, kubeconfig=kubeconfig)
    run(loaded, logs.set_up(loaded.log_format, loaded.log_level))


def main() -> None:
    """Run the command line."""
    try:
        app()
    except PyschedulerError as failure:
        sys.stderr.write(f"pyscheduler: {failure}\n")
        raise SystemExit(UNUSABLE) from None

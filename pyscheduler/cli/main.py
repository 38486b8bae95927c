"""The command line. A failure of the world becomes one line on stderr, never a traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pyscheduler import __version__
from pyscheduler.cli import topology
from pyscheduler.cli.capacity import capacity
from pyscheduler.cli.doctor import doctor
from pyscheduler.cli.place import place
from pyscheduler.cli.terminal import printable
from pyscheduler.cli.usage import OneLineCommand, OneLineGroup
from pyscheduler.errors import ConfigError, PyschedulerError

__all__ = ["main"]

# The exit code for input that cannot be used.
UNUSABLE = 2
# What stands between the problems of a configuration.
_NEXT_PROBLEM = "\n  "

app = typer.Typer(cls=OneLineGroup, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(topology.app, name="topology")
app.command(cls=OneLineCommand)(place)
app.command(cls=OneLineCommand)(capacity)
app.command(cls=OneLineCommand)(doctor)


@app.callback()
def root() -> None:
    """Places pods on the best-connected GPUs of a Kubernetes cluster."""


@app.command(cls=OneLineCommand)
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command(cls=OneLineCommand)
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
        app(prog_name="pyscheduler")
    except PyschedulerError as failure:
        sys.stderr.write(f"pyscheduler: {_told(failure)}\n")
        raise SystemExit(UNUSABLE) from None


def _told(failure: PyschedulerError) -> str:
    """Return the text of `failure` for a terminal. A list of the problems of a configuration keeps its lines."""
    lines = str(failure).split(_NEXT_PROBLEM) if isinstance(failure, ConfigError) else [str(failure)]
    return _NEXT_PROBLEM.join(map(printable, lines))

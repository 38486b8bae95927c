"""`pyscheduler topology`: read what tools and clusters say of their links."""

from __future__ import annotations

import importlib.resources
import json
from enum import StrEnum
from typing import Annotated, Final

import typer

from pyscheduler.cli import topology_lint, topology_merge
from pyscheduler.cli.input_text import InputError, decode, read_bytes
from pyscheduler.cli.read_input import reading
from pyscheduler.cli.usage import OneLineCommand, OneLineGroup
from pyscheduler.readers import formats
from pyscheduler.readers.reading import Reading, RefusedError

__all__ = ["app"]

_BENCHMARK: Final = "holds results of a benchmark: give it to `topology merge` with a file that lists the GPUs"

app = typer.Typer(cls=OneLineGroup, help="Read and check topologies.")
app.command(cls=OneLineCommand)(topology_lint.lint)
app.command(cls=OneLineCommand)(topology_merge.merge)
app.command("class", cls=OneLineCommand)(topology_merge.class_map)


class Output(StrEnum):
    """How a document is printed."""

    TEXT = "text"
    JSON = "json"


@app.callback()
def root() -> None:
    """Read and check topologies."""


@app.command(cls=OneLineCommand)
def parse(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Output of a tool, or a file; - is standard input.")],
    format_: Annotated[str, typer.Option("--format", metavar="F", help="auto, or the name of a format.")] = "auto",
    output: Annotated[Output, typer.Option("--output", "-o", help="text draws tree and matrix.")] = Output.TEXT,
) -> None:
    """Read FILE into one document: GPUs and links of a node, levels of a fabric, or metrics of cards."""
    document = _read(file, format_).document()
    if output is Output.JSON:
        typer.echo(json.dumps(document, ensure_ascii=True))
        return
    from pyscheduler.cli.topology_picture import draw

    draw(document)


@app.command(cls=OneLineCommand)
def schema() -> None:
    """Print the JSON schema of the node document."""
    typer.echo(node_schema(), nl=False)


def node_schema() -> str:
    """Return the JSON schema of the node document."""
    return importlib.resources.files("pyscheduler.readers").joinpath("node-v1.schema.json").read_text(encoding="utf-8")


def _read(file: str, format_: str) -> Reading:
    text = decode(read_bytes(file))
    try:
        return reading(text, format_)
    except formats.UnknownFormatError as failure:
        found = _BENCHMARK if format_ == "auto" and _is_benchmark(text) else str(failure)
        raise InputError(f"{file}: {found}") from None
    except (RefusedError, RecursionError) as failure:
        reason = failure if isinstance(failure, RefusedError) else "nested too deeply to be a topology"
        raise InputError(f"{file}: {reason}") from None


def _is_benchmark(text: str) -> bool:
    from pyscheduler.readers.measured import results

    try:
        results.read(text)
    except RefusedError:
        return False
    return True

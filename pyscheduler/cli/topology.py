"""`pyscheduler topology`: read what tools and clusters say of their links."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from pyscheduler.cli.input_text import InputError, as_json, decode, read_bytes
from pyscheduler.readers import formats
from pyscheduler.readers.reading import Reading, RefusedError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Read and check topologies.")


class Output(StrEnum):
    """How a document is printed."""

    TEXT = "text"
    JSON = "json"


@app.callback()
def root() -> None:
    """Read and check topologies."""


@app.command()
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


def _read(file: str, format_: str) -> Reading:
    try:
        return _reading(decode(read_bytes(file)), format_)
    except (RefusedError, RecursionError) as failure:
        reason = failure if isinstance(failure, RefusedError) else "nested too deeply to be a topology"
        raise InputError(f"{file}: {reason}") from None


def _reading(text: str, format_: str) -> Reading:
    """Read `text` as it is; where no reader takes it so, as the JSON of its YAML."""
    if format_ == "auto":
        try:
            return formats.choose(text).read(text)
        except formats.UnknownFormatError as as_it_is:
            converted = as_json(text)
            try:
                reader = formats.choose(converted or "")
            except formats.UnknownFormatError:
                # Its line and words are those of the file.
                raise as_it_is from None
            return reader.read(converted or "")
    reader = formats.named(format_)
    converted = None if reader.recognises(text) else as_json(text)
    return reader.read(converted if converted and reader.recognises(converted) else text)

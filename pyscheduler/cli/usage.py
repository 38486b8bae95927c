"""Wrong options and missing arguments are one line on stderr, as all other input that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from typer._click import Context
from typer._click.core import Command
from typer._click.exceptions import UsageError
from typer.core import TyperCommand, TyperGroup

from pyscheduler.cli.input_text import InputError

__all__ = ["OneLineCommand", "OneLineGroup"]


class OneLineCommand(TyperCommand):
    """A command that tells in one line how it is used wrongly."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options."""
        with _one_line(ctx):
            return super().parse_args(ctx, args)


class OneLineGroup(TyperGroup):
    """Commands under one name, which alone prints its help."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options before the name of the command."""
        if not args:
            typer.echo(ctx.get_help())
            ctx.exit()
        with _one_line(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Return the command that is named."""
        with _one_line(ctx):
            return super().resolve_command(ctx, args)


@contextmanager
def _one_line(ctx: Context) -> Iterator[None]:
    try:
        yield
    except UsageError as failure:
        fault = " ".join(failure.format_message().split()).rstrip(".")
        raise InputError(f"{fault}; see `{ctx.command_path} --help`") from None

"""How the demo looks: who got which GPUs, what others would have got, and why. Readable with and without colours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import ascii_uppercase
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.local.demo_judge import Choice, Draw, as_fast
from deploy.local.demo_scenario import NodePlan
from deploy.local.demo_why import ranges

WIDTH: Final = 100

_TAKEN: Final = "x"
_FREE: Final = "."
_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta", "bright_green")
_NAME_WIDTH: Final = 11
_CELLS_WIDTH: Final = 30


@dataclass(frozen=True, slots=True)
class Row:
    """What one pod got.

    Attributes
    ----------
    pod
        What it is called.
    chosen
        What our scheduler gave it.
    default
        What it would have got from the default scheduler; None if that found no node.
    draw
        What a random choice gets on average.
    why
        Why it got this.

    """

    pod: str
    chosen: Choice
    default: Choice | None
    draw: Draw
    why: str


def console() -> Console:
    """Return where the demo is shown: at most `WIDTH` columns, plain text where it is no terminal."""
    shown = Console(highlight=False)
    shown.width = min(shown.width, WIDTH) if shown.is_terminal else WIDTH
    return shown


def picture(nodes: Sequence[NodePlan], numa: Mapping[str, Sequence[int]], rows: Sequence[Row]) -> RenderableType:
    """Return one line for each node, by rack: a cell for each GPU with the letter of the pod that holds it.

    `numa` is the NUMA node of each GPU, by node.
    """
    lines: list[RenderableType] = []
    for rack, members in groupby(nodes, key=lambda node: node.rack):
        lines.append(Text(rack, style="bold"))
        lines.extend(_node_line(node, numa[node.name], rows) for node in members)
    lines.append(Text(f"  letters: pods below; {_TAKEN} held by others before; {_FREE} free; | another NUMA node", style="dim"))
    return Group(*lines)


def results(rows: Sequence[Row]) -> RenderableType:
    """Return the table of what each pod got, beside what it would have got."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for title in ("\npod", "gpu-topology\nnode", "\nGPUs", "\nlink"):
        table.add_column(title, no_wrap=True)
    table.add_column("\nGB/s", justify="right", no_wrap=True)
    for title in ("default-scheduler\nnode", "\nGPUs", "\nlink"):
        table.add_column(title, no_wrap=True)
    table.add_column("\nGB/s", justify="right", no_wrap=True)
    table.add_column("random\nGB/s", justify="right", no_wrap=True)
    table.add_column("\nas good", justify="right", no_wrap=True)
    for letter, row in zip(ascii_uppercase, rows, strict=False):
        table.add_row(_label(letter, row.pod), *_cells(row.chosen), *_default_cells(row), *_draw_cells(row))
    return table


def reasons(rows: Sequence[Row]) -> RenderableType:
    """Return why each pod got its GPUs."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for letter, row in zip(ascii_uppercase, rows, strict=False):
        grid.add_row(_label(letter, row.pod), row.why)
    return grid


def tally(rows: Sequence[Row]) -> str:
    """Return in one sentence how often the default scheduler's GPUs were as good, for pods of two GPUs and more."""
    many = [row for row in rows if len(row.chosen.gpus) > 1]
    placed = [(row, row.default) for row in many if row.default]
    slower = sum(not as_fast(default, row.chosen.ring_gbps) for row, default in placed)
    faster = sum(not as_fast(row.chosen, default.ring_gbps) for row, default in placed)
    return (
        f"Of {len(many)} pods of two GPUs and more the default scheduler gave {slower} slower rings, "
        f"{len(placed) - slower - faster} equal and {faster} faster ones, and found no node for {len(many) - len(placed)}."
    )


def _label(letter: str, pod: str) -> Text:
    return Text.assemble((letter, _style(letter)), f" {pod}")


def _style(letter: str) -> str:
    return f"bold black on {_COLOURS[ascii_uppercase.index(letter) % len(_COLOURS)]}"


def _node_line(node: NodePlan, numa: Sequence[int], rows: Sequence[Row]) -> Text:
    holders = dict.fromkeys(node.taken, _TAKEN)
    for letter, row in zip(ascii_uppercase, rows, strict=False):
        if row.chosen.node == node.name:
            holders |= dict.fromkeys(row.chosen.gpus, letter)
    cells = Text()
    for gpu in range(len(numa)):
        if gpu and numa[gpu] != numa[gpu - 1]:
            cells.append("| ", style="dim")
        holder = holders.get(gpu, _FREE)
        cells.append(f" {holder} ", style=_style(holder) if holder in ascii_uppercase else "dim")
    cells.pad_right(max(0, _CELLS_WIDTH - len(cells)))
    return Text.assemble(f"  {node.name:<{_NAME_WIDTH}}", cells, (f"  {node.title}", "dim"))


def _cells(choice: Choice) -> Iterator[str]:
    yield choice.node
    yield ranges(choice.gpus)
    yield choice.link or "-"
    yield f"{choice.ring_gbps:.3g}" if choice.link else "-"


def _default_cells(row: Row) -> Iterator[Text | str]:
    if row.default is None:
        yield from (Text("no node", style="red"), "-", "-", "-")
        return
    *cells, ring = _cells(row.default)
    yield from cells
    yield Text(ring, style="" if as_fast(row.default, row.chosen.ring_gbps) else "red")


def _draw_cells(row: Row) -> Iterator[str]:
    if row.chosen.link is None:
        yield from ("-", "-")
        return
    yield f"{row.draw.ring_gbps:.3g}"
    yield f"{row.draw.as_good:.0%}"

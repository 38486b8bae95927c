"""The definitions of a Slurm topology: lines of topology.conf or ``scontrol show topology``, entries of topology.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyscheduler.readers.text.json_text import json_or_none, name_of
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["Definition", "definitions"]

_FIELDS: Final = frozenset((
    "switchname", "blockname", "blocksizes", "switches", "nodes", "linkspeed",
    "level", "blockindex", "blocksize", "aggregatedblock",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition: where it stands, its fields by lower-case name, and the words of it that are none."""

    where: str
    fields: Mapping[str, str]
    stray: tuple[str, ...] = ()


def definitions(text: str) -> list[Definition]:
    """Return the definitions of `text` in their order; none if it has none."""
    raw = json_or_none(text) if text.lstrip("\ufeff \t\r\n").startswith(("[", "{")) else None
    return list(_lines(text)) if raw is None else list(_topologies(raw))


def _lines(text: str) -> Iterator[Definition]:
    for number, line in _logical_lines(text):
        words = " ".join(line.partition("#")[0].split()).replace(" =", "=").replace("= ", "=").split(" ")
        pairs = [word.partition("=") for word in words if word]
        if pairs:
            fields = {name.casefold(): value.strip('"') for name, equals, value in pairs if equals}
            stray = [name for name, equals, _ in pairs if not equals or name.casefold() not in _FIELDS]
            yield Definition(f"line {number}", fields, tuple(stray))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their number, joined where one ends in a backslash."""
    kept: list[str] = []
    start = 0
    for number, line in enumerate(plain_lines(text), start=1):
        start = start if kept else number
        kept.append(line.rstrip().removesuffix("\\"))
        if not line.rstrip().endswith("\\"):
            yield start, " ".join(kept)
            kept = []
    if kept:
        yield start, " ".join(kept)


def _topologies(raw: Any) -> Iterator[Definition]:
    """Yield the definitions of one topology of topology.yaml: the default one, else the first with switches or blocks."""
    known = [entry for entry in (raw if isinstance(raw, list) else [raw]) if isinstance(entry, dict) and "topology" in entry]
    shaped = [entry for entry in known if isinstance(entry.get("tree"), dict) or isinstance(entry.get("block"), dict)]
    shaped.sort(key=lambda entry: entry.get("cluster_default") is not True)
    if not shaped:
        return
    where = f"topology {name_of(shaped[0]['topology']) or '?'}"
    tree, block = shaped[0].get("tree"), shaped[0].get("block")
    for switch in _list(tree, "switches"):
        yield Definition(
            where, _texts(switchname=switch.get("switch"), switches=switch.get("children"), nodes=switch.get("nodes"))
        )
    for entry in _list(block, "blocks"):
        yield Definition(where, _texts(blockname=entry.get("block"), nodes=entry.get("nodes")))
    sizes = block.get("block_sizes") if isinstance(block, dict) else None
    if isinstance(sizes, list):
        yield Definition(where, {"blocksizes": ",".join(map(str, sizes))})
    others = tuple(name_of(entry["topology"]) or "?" for entry in known if entry is not shaped[0])
    if others:
        yield Definition(where, {}, (*others, "(other topologies of the file)"))


def _list(raw: Any, key: str) -> list[Mapping[str, Any]]:
    entries = raw.get(key) if isinstance(raw, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _texts(**values: Any) -> dict[str, str]:
    return {key: text for key, value in values.items() if (text := name_of(value)) is not None}

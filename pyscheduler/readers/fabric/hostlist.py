"""Host lists as Slurm and Topograph write them: ``node[01-03,07],gw1`` is node01, node02, node03, node07, gw1."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LIMIT", "expand"]

# Hosts of one list. Slurm itself takes 65,536 nodes in a cluster; beyond this a range is a slip of the pen.
LIMIT: Final = 100_000

_TOKEN: Final = re.compile(r"\[([^\[\]]*+)\]|([^\[\],\s]++)")
_RANGE: Final = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)


def expand(text: str, limit: int = LIMIT) -> tuple[list[str], list[str]]:
    """Return the hosts of a list in its order, and the items that are no hosts (cut or reversed ranges, too many).

    A number keeps the width of the beginning of its range. Several brackets in one name give all combinations.
    """
    hosts: list[str] = []
    unreadable: list[str] = []
    for item in _items(text):
        names = _item(item, limit - len(hosts))
        if names is None:
            unreadable.append(item)
        else:
            hosts += names
    return hosts, unreadable


def _items(text: str) -> list[str]:
    """Split at commas that stand outside of brackets."""
    items, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth <= 0:
            items.append(text[start:position])
            start = position + 1
    items.append(text[start:])
    return [item for raw in items if (item := raw.strip())]


def _item(item: str, limit: int) -> list[str] | None:
    names, end = [""], 0
    for token in _TOKEN.finditer(item):
        options = [token[2]] if token[1] is None else _numbers(token[1], limit)
        if token.start() != end or not options or len(names) * len(options) > limit:
            return None
        names = [name + option for name in names for option in options]
        end = token.end()
    return names if end == len(item) else None


def _numbers(text: str, limit: int) -> list[str]:
    """Return the numbers of the inside of a bracket, none if one of them cannot be read."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= limit - len(numbers):
            return []
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers

"""Foreign text on a terminal: names of files, keys and devices must not steer it."""

from __future__ import annotations

from rich.markup import escape

__all__ = ["plain", "printable"]


def printable(text: str) -> str:
    """Return `text` with a question mark for each control character, mark of direction and end of line."""
    return "".join(character if character.isprintable() else "?" for character in text)


def plain(text: str) -> str:
    """Return `text` for a console that reads markup: printable, and no markup itself."""
    return escape(printable(text))

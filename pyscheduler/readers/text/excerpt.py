"""Foreign text inside a sentence."""

from __future__ import annotations

from typing import Final

__all__ = ["excerpt"]

# Letters that are shown: a UUID has 40.
_LETTERS_MAX: Final = 80


def excerpt(text: str, most: int = _LETTERS_MAX) -> str:
    """Return the beginning of `text` in one line, without what steers terminals."""
    # Twice as much is enough to look at: a text may have megabytes.
    words = "".join(letter if letter.isprintable() else " " for letter in text[: 2 * most]).split()
    line = " ".join(words)
    return line if len(line) <= most and len(text) <= 2 * most else f"{line[:most]}…"

"""Text as terminals, editors and chat windows leave it, to plain lines."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["plain", "plain_lines"]

# Escape sequences as a terminal gets them, as `cat -v` shows them, and colours whose escape was lost in a paste.
_ANSI: Final = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|(?:\x1b\[|\x9b|\^\[\[|\ufffd\[)[0-9;?]*[A-Za-z]"
    r"|\x1b[@-Z\\^_=>78]"
    r"|\[[0-9;]*m",
)
_LINE_END: Final = re.compile(r"\r*\n|\r+")
_INVISIBLE: Final = dict.fromkeys(map(ord, "\ufeff\u200b\u200e\u200f"), "") | dict.fromkeys(map(ord, "\u00a0\u2007\u202f"), " ")


def plain(text: str) -> str:
    """Return `text` without escape sequences, marks of byte order and carriage returns. Line numbers stay."""
    return _LINE_END.sub("\n", _ANSI.sub("", text)).translate(_INVISIBLE)


def plain_lines(text: str) -> list[str]:
    """Return the lines of `plain(text)`; line n of the input is item n - 1."""
    return plain(text).split("\n")

"""Lines of a matrix without what mails, logs, Markdown and lower-case copies make of them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["unquoted"]

# A row of 16 GPUs and 32 NICs has some 400 characters; what is far longer is no matrix.
_LONGEST: Final = 8192
_STAMP: Final = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]? ?")
# Not inside a word: enic0 is the name of a NIC.
_LOWER: Final = re.compile(r"(?<![a-z_])(?:gpu|nic)(?=\d)", re.IGNORECASE)


def unquoted(line: str) -> str:
    """Return `line` as nvidia-smi prints it: no time stamp, mark of a quote or Markdown rule; names in capitals."""
    if len(line) > _LONGEST:
        return ""
    line = _STAMP.sub("", line)
    if line.lstrip()[:1] in {">", "|"}:
        line = line.lstrip()[1:]
        line = line.replace("|", " ") if line.rstrip().endswith("|") else line
    return _LOWER.sub(lambda name: name[0].upper(), line)

"""What the DCGM exporter serves under /metrics."""

from __future__ import annotations

import re
from typing import Final

from pyscheduler.readers.cards.metric_reading import of_exposition
from pyscheduler.readers.reading import Reading

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "dcgm"

_LINE: Final = re.compile(r"^[^\S\n]{0,16}(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_[A-Za-z0-9_]{1,200}[\s{]", re.MULTILINE)


def recognises(text: str) -> bool:
    """Tell whether a line begins with a metric of DCGM."""
    return _LINE.search(text) is not None


def read(text: str) -> Reading:
    """Return the metrics.

    Raises
    ------
    RefusedError
        If no line is a sample of a GPU.

    """
    return of_exposition(FORMAT, text)

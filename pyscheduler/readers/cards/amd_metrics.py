"""What AMD's device metrics exporter serves under /metrics, and what ``rocm-smi -a --json`` prints."""

from __future__ import annotations

from typing import Final

from pyscheduler.readers.amd import rocm_smi_json
from pyscheduler.readers.cards.metric_reading import of_exposition
from pyscheduler.readers.reading import Reading

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "amd-metrics"

_INDEX: Final = 'gpu_id="'
_OTHERS: Final = ("card_model=", "serial_number=", "gpu_partition_id=")


def recognises(text: str) -> bool:
    """Tell whether a line has the labels of AMD's exporter, or the JSON the cards of rocm-smi."""
    if rocm_smi_json.cards(text):
        return True
    return _INDEX in text and any(_is_sample(line) for line in text.split("\n") if _INDEX in line)


def read(text: str) -> Reading:
    """Return the metrics.

    Raises
    ------
    RefusedError
        If nothing in it is a sample of a GPU.

    """
    cards = rocm_smi_json.cards(text)
    return rocm_smi_json.reading(FORMAT, cards) if cards else of_exposition(FORMAT, text)


def _is_sample(line: str) -> bool:
    return line.lstrip()[:1].isalpha() and "{" in line and any(label in line for label in _OTHERS)

"""The text format in which exporters give their samples: ``name{label="value",...} number``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from pyscheduler.readers.cards.metric_samples import Sample
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["Exposition", "parse"]

_NAME: Final = re.compile(r"[a-zA-Z_:][\w:]*+\s*+", re.ASCII)
_LABEL: Final = re.compile(r'\s*+([a-zA-Z_]\w*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"\s*+(?:,|(?=\}))', re.ASCII)
_CLOSE: Final = re.compile(r"\s*+\}")
# Value, time in ms (in s where it has a point), and what OpenMetrics puts behind a second "#".
_REST: Final = re.compile(r"\s*+(\S++)(?:\s++(-?\d{1,15}(?:\.\d{1,9})?))?\s*+(?:#.*+)?", re.ASCII)
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n"}


@dataclass(frozen=True, slots=True)
class Exposition:
    """The samples of a text, and its lines that are none as ``{"line", "reason"}``."""

    samples: list[Sample]
    unreadable: list[dict[str, Any]]


def parse(text: str) -> Exposition:
    """Return the samples of `text` in their order. Comments and blank lines are neither samples nor faults."""
    samples: list[Sample] = []
    unreadable: list[dict[str, Any]] = []
    known: dict[str, dict[str, str]] = {}
    for number, line in enumerate(plain_lines(text), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        sample = _sample(stripped, number, known)
        if isinstance(sample, str):
            unreadable.append({"line": number, "reason": f"{sample}: {stripped[:60]}"})
        else:
            samples.append(sample)
    return Exposition(samples, unreadable)


def _sample(line: str, number: int, known: dict[str, dict[str, str]]) -> Sample | str:
    """Return the sample of a line, or why it is none. `known` keeps label sets: a card repeats its own for every metric."""
    name = _NAME.match(line)
    if name is None:
        return "no metric name"
    labels: dict[str, str] = {}
    end = name.end()
    if line.startswith("{", end):
        closed = line.rfind("}") + 1
        quoted = line[end:closed]
        if quoted in known:
            labels, end = known[quoted], closed
        else:
            labels, end = _labels(line, end + 1)
            known[line[name.end() : end]] = labels
        if not end:
            return "label set is cut or malformed"
    rest = _REST.fullmatch(line, end)
    if rest is None:
        return "no value" if not line[end:].strip() else "malformed behind the value"
    return Sample(name[0].rstrip(), labels, rest[1], _seconds(rest[2]), number)


def _labels(line: str, start: int) -> tuple[dict[str, str], int]:
    """Return the labels from `start`, and the position behind their bracket, 0 if they do not end in one."""
    labels: dict[str, str] = {}
    while label := _LABEL.match(line, start):
        labels[label[1]] = _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), label[2])
        start = label.end()
    close = _CLOSE.match(line, start)
    return labels, close.end() if close else 0


def _seconds(stamp: str | None) -> float | None:
    if stamp is None:
        return None
    return float(stamp) if "." in stamp else int(stamp) / 1000

"""The capacity of cards for people: a summary, then a line for each card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from pyscheduler.cli.terminal import printable
from pyscheduler.core.explain import plural
from pyscheduler.readers.text.excerpt import excerpt

__all__ = ["lines"]

_NO_URL: Final = (
    "the service is told of no metrics: set metrics.url in its configuration to the Prometheus that scrapes the exporters of the"
    " GPUs, and start it again"
)
_NOTHING: Final = "no metric of a card has come: `pyscheduler doctor` finds out why"
_HEAD: Final = ("NODE", "CARD", "MODEL", "STATE", "FOR", "TIMER", "OUT", "SCORE", "H", "I", "A", "SPEED", "AGE", "WHY")
_UNKNOWN: Final = "-"
# Seconds of each unit, the longest first. From two of it on a time is told in it.
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))

Answer = Mapping[str, Any]


def lines(answer: Answer, now: float) -> Iterator[str]:
    """Yield the lines of an answer of `inspect_client.capacity`; `now` in Unix seconds."""
    status = answer["status"]
    if status is None:
        yield _NO_URL
        return
    yield from map(printable, _summary(status))
    if answer["cards"]:
        yield ""
        yield from map(printable, _aligned([_HEAD, *(_row(card, now) for card in answer["cards"])]))
    elif status["counts"]:
        yield "no card to show"


def _summary(status: Answer) -> Iterator[str]:
    age = "no sample yet" if status["age_seconds"] is None else f"newest sample {_duration(status['age_seconds'])} ago"
    if not status["url"]:
        yield _NO_URL
    about = f"{status['url']}, {age}" if status["url"] else "what others say of cards counts all the same"
    yield f"{about}; mode {status['mode']}"
    for model, counts in groupby(status["counts"], key=lambda count: count["model"]):
        yield _of_model(model, list(counts))
    for model in status["open_breakers"]:
        yield f"breaker open: so many {excerpt(model) or 'cards without a model'} look slow that not all of those are kept out"
    if status["frozen"]:
        yield "frozen: so many cards are silent at once that states stand still; `pyscheduler doctor` finds out why"
    if not status["polled"]:
        yield "the first poll is not over yet: ask again"
    elif not status["counts"]:
        yield _NOTHING
    for problem in status["problems"]:
        yield f"problem: {problem}"


def _of_model(model: str, counts: Sequence[Answer]) -> str:
    out = sum(count["excluded"] for count in counts)
    states = ", ".join(f"{count['cards']:,} {count['state']}" for count in counts)
    cards = plural(sum(count["cards"] for count in counts), "card")
    return f"{excerpt(model) or 'model unknown'}: {cards}, {states}; {out:,} kept out"


def _row(card: Answer, now: float) -> tuple[str, ...]:
    return (
        card["node"],
        excerpt(f"{card['uuid']}/{card['mig']}" if card["mig"] else card["uuid"]),
        excerpt(card["model"]) or _UNKNOWN,
        card["state"],
        _UNKNOWN if card["since"] is None else _duration(now - card["since"]),
        _timer(card),
        "yes" if card["excluded"] else "no",
        *(_number(card[key]) for key in ("score", "health", "speed", "available", "relative_speed")),
        _UNKNOWN if card["age_seconds"] is None else _duration(card["age_seconds"]),
        card["evidence"],
    )


def _timer(card: Answer) -> str:
    """Return for how long the card has been on its way to the next state, and how long it must be."""
    if card["timer_seconds"] is None:
        return _UNKNOWN
    return f"{_duration(card['timer_seconds'])}/{_duration(card['timer_end_seconds'])}"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.2f}"


def _duration(seconds: float) -> str:
    for unit, letter in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f}{letter}"
    return f"{max(seconds, 0):.0f}s"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()

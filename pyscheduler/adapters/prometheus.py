"""One poll of the metrics of all cards. It runs in the worker process, which hands over arrays: see `MetricsCollector`."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from pyscheduler.adapters.prometheus_errors import PrometheusError, query_failed
from pyscheduler.adapters.prometheus_session import Connection
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.findings import Finding
from pyscheduler.readers.cards.card_labels import LabelSets
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.cards.catalogue_entries import Metric, Source
from pyscheduler.readers.cards.metric_queries import query
from pyscheduler.readers.cards.metric_rows import Rows
from pyscheduler.readers.cards.polls import polls, vendors
from pyscheduler.readers.cards.prometheus_rows import rows_of_result
from pyscheduler.readers.metrics_config import MetricsConfig
from pyscheduler.readers.text.excerpt import excerpt

__all__ = ["Collected", "Memory", "collect"]

# Queries that are under way at one time: Prometheus runs 20 by default, and others ask, too.
IN_FLIGHT: Final = 4
# Failures after which the rest of a poll is not asked.
FAILURES_MAX: Final = 3
# Seconds after which metrics that nobody exported are asked for again.
ASK_ALL_S: Final = 60.0
# A poll that is later than so many intervals left a gap.
GAP: Final = 2.5
# Points of a series that are asked for at one time: the answers for 10,000 cards are in memory at once.
PIECE: Final = 7
# Remarks of the server that are passed on.
_WARNINGS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Memory:
    """What one poll leaves for the next.

    Attributes
    ----------
    polled
        Up to when all was asked for, None before the first.
    asked_all
        When every metric of the catalogue was asked for.
    absent
        Metrics that nobody exports.
    """

    polled: float | None = None
    asked_all: float = 0.0
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Collected:
    """What a poll brought.

    Attributes
    ----------
    polls
        In the order of their times: one, or at the start and after a gap several, and then the next poll goes on behind them.
    problems
        Why the last is not complete; empty if it is.
    findings
        What was left out of use.
    series, seconds
        How many series there were, and how long the longest query took.
    newest
        Time of the newest sample, None if there is none.
    """

    polls: tuple[Poll, ...]
    memory: Memory
    problems: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    series: int = 0
    seconds: float = 0.0
    newest: float | None = None


@dataclass(slots=True)
class _Round:
    """One poll under way. `lock` is held where results are read: several threads ask."""

    config: MetricsConfig
    sources: Sequence[Source]
    at: tuple[float, ...]
    deadline: float
    sets: LabelSets
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: list[Rows] = field(default_factory=list)
    failures: list[PrometheusError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def over(self) -> bool:
        """Whether the rest is not worth asking."""
        return len(self.failures) >= FAILURES_MAX or any(failure.fatal for failure in self.failures)


def collect(
    config: MetricsConfig, harmless_xids: Sequence[int], nodes: Mapping[str, str], memory: Memory, now: float
) -> Collected:
    """Ask for all metrics and return what there is.

    Parameters
    ----------
    harmless_xids
        As of `catalogue`.
    nodes
        Names and addresses of the nodes, to their names.
    now
        Unix seconds.

    Raises
    ------
    PrometheusError
        If nothing could be asked.

    """
    sources = catalogue(config.amd_prefix, config.evidence, harmless_xids)
    at = _times(config, memory, now)
    # Before it was asked: the clock was set back.
    asks_all = len(at) > 1 or not 0 <= now - memory.asked_all < ASK_ALL_S
    metrics = _asked(sources, frozenset() if asks_all else memory.absent)
    # Longer than to the next poll nothing may take; a longer span is more work, once.
    limit = config.interval_s if len(at) == 1 else max(config.interval_s, 12 * config.timeout_s)
    round_ = _Round(config, sources, at, time.monotonic() + limit, LabelSets(config.node_labels))
    _ask_all(round_, metrics)
    if round_.failures and not round_.rows:
        raise PrometheusError(_told(round_)[0])
    there = [rows for rows in round_.rows if len(rows.sets)]
    is_past = now - at[-1] > config.interval_s
    # Where there is nothing now, Prometheus knows of no card; of the past that says little.
    nothing = not there and not is_past
    complete = not (nothing or round_.failures or round_.warnings)
    made = polls(there, round_.sets, sources, at, complete=complete, nodes=nodes)
    return Collected(
        # Of the past nothing follows from what is absent: Prometheus may have been away.
        tuple(poll for poll in made.polls if poll.samples or (poll is made.polls[-1] and not is_past)),
        _remembered(memory, round_, all_asked=asks_all and not round_.failures),
        _problems(round_, nothing=nothing),
        made.findings,
        sum(len(rows.sets) for rows in there),
        round_.seconds,
        max((float(column.times.max()) for poll in made.polls for column in poll.samples.values()), default=None),
    )


def _problems(round_: _Round, *, nothing: bool) -> tuple[str, ...]:
    warned = [f"{round_.config.url}: the answer may be partial, it says: {text}" for text in round_.warnings[:_WARNINGS_MAX]]
    empty = f"{round_.config.url}: has no metric of a card: does it scrape DCGM exporter or AMD's device metrics exporter?"
    return tuple(dict.fromkeys((*_told(round_), *warned, *([empty] if nothing else []))))


def _told(round_: _Round) -> list[str]:
    """Return what failed, the same text in each poll as long as it is the same: which query fails first is chance."""
    return sorted({failure.kind if round_.over() else str(failure) for failure in round_.failures})


def _times(config: MetricsConfig, memory: Memory, now: float) -> tuple[float, ...]:
    """Return what times to ask for: now; or at the start and after a gap the first piece of what has passed since."""
    if memory.polled is not None and now - memory.polled <= GAP * config.interval_s:
        return (now,)
    step = round(config.interval_s)
    oldest = now - config.history_s
    since = int(oldest if memory.polled is None else max(oldest, memory.polled + step))
    return tuple(float(moment) for moment in range(since, int(now) + 1, step)[:PIECE])


def _asked(sources: Sequence[Source], absent: frozenset[str]) -> tuple[Metric, ...]:
    """Return the metrics to ask for: those that somebody exports, and those that begin with an event."""
    events = {metric.name for source in sources if source.from_first_event for metric in source.metrics}
    return tuple(metric for metric in vendors(sources) if metric.name not in absent or metric.name in events)


def _remembered(memory: Memory, round_: _Round, *, all_asked: bool) -> Memory:
    polled = round_.at[-1]
    if not all_asked:
        return replace(memory, polled=polled)
    there = {each.metric.name for each in round_.rows if len(each.sets)}
    # Where there is nothing at all yet, all is asked for the next time, too.
    absent = frozenset(each.metric.name for each in round_.rows) - there if there else frozenset()
    return Memory(polled, polled, absent)


def _ask_all(round_: _Round, metrics: Sequence[Metric]) -> None:
    # Answers are hundreds of thousands of small objects without cycles: looking for some takes a fifth of the time.
    gc.disable()
    try:
        with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="query") as pool:
            for part in [pool.submit(_ask, round_, metrics[first::IN_FLIGHT]) for first in range(IN_FLIGHT)]:
                part.result()
    finally:
        gc.enable()


def _ask(round_: _Round, metrics: Sequence[Metric]) -> None:
    """Ask for some of the metrics, one after the other."""
    try:
        connection = Connection(round_.config)
    except PrometheusError as cause:
        round_.failures.append(cause)
        return
    whose = vendors(round_.sources)
    try:
        for metric in metrics:
            if round_.over():
                break
            begun = time.monotonic()
            try:
                result = _result(connection, metric, round_)
                with round_.lock:
                    round_.rows.append(rows_of_result(metric, whose[metric], result, round_.at, round_.sets))
            except PrometheusError as cause:
                round_.failures.append(cause)
            except (ValueError, KeyError, TypeError, IndexError) as cause:
                words = f"got a series that cannot be read ({excerpt(repr(cause))}): is it Prometheus?"
                round_.failures.append(query_failed(round_.config.url, metric.name, words))
            round_.seconds = max(round_.seconds, time.monotonic() - begun)
    finally:
        round_.warnings += connection.warnings
        connection.close()


def _result(connection: Connection, metric: Metric, round_: _Round) -> list[Mapping[str, object]]:
    left = round_.deadline - time.monotonic()
    if left <= 0:
        raise PrometheusError(f"{round_.config.url}: the queries took longer than a poll may: raise metrics.collectionInterval")
    text, seconds = query(metric, round_.config.node_labels), min(left, round_.config.timeout_s)
    if len(round_.at) == 1:
        return connection.instant(metric.name, text, round_.at[0], seconds)
    step = round(round_.at[1] - round_.at[0])
    return connection.range(metric.name, text, (int(round_.at[0]), int(round_.at[-1]), step), seconds)

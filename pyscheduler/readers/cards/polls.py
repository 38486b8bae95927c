"""Series of metrics to what the core takes: one `Poll` per time, each quantity of a card from its preferred source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyscheduler.core.capacity.cards import CardFacts
from pyscheduler.core.capacity.poll import Column, Floats, Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.findings import Finding
from pyscheduler.readers.cards.card_labels import Cards, LabelSets
from pyscheduler.readers.cards.catalogue_entries import Join, Metric, Source, Vendor
from pyscheduler.readers.cards.exposition import parse
from pyscheduler.readers.cards.metric_rows import Rows, aggregated, checked, per_card
from pyscheduler.readers.cards.metric_samples import Sample, number

__all__ = ["Polls", "polls", "polls_of_samples", "polls_of_text", "vendors"]

# Values and times with a row per card and a column per time.
_Pair = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Polls:
    """The polls in the order of their times, and what was left out."""

    polls: tuple[Poll, ...]
    findings: tuple[Finding, ...]


def vendors(sources: Sequence[Source]) -> dict[Metric, Vendor]:
    """Return whose each metric is."""
    return {metric: source.vendor for source in sources for metric in source.metrics}


def polls(
    rows: Iterable[Rows],
    sets: LabelSets,
    sources: Sequence[Source],
    at: Sequence[float],
    *,
    complete: bool,
    nodes: Mapping[str, str],
) -> Polls:
    """Return the polls.

    Parameters
    ----------
    rows
        What there is of each metric, with one column for each of `at`.
    sets
        The label sets of the rows.
    at
        When it was asked for.
    complete
        Whether every metric was answered, and wholly.
    nodes
        As of `LabelSets.cards`.

    """
    cards = sets.cards(nodes)
    findings = list(cards.findings)
    node_of_set = [cards.keys[index].node if index >= 0 else "" for index in cards.of_set]
    of_metric: dict[Metric, _Pair] = {}
    for each in rows:
        good, found = checked(each, [node_of_set[number] for number in each.sets])
        findings += found
        of_metric[each.metric] = per_card(good, cards.of_set, len(cards.keys))
    tables = _tables(sources, of_metric, complete=complete)
    if complete:
        _no_event(tables, sources, cards)
    return Polls(tuple(_made(tables, cards, at, complete=complete)), tuple(findings))


def polls_of_text(
    text: str, sources: Sequence[Source], at: float, *, node: str = "", nodes: Mapping[str, str] | None = None
) -> Polls:
    """Return the poll of what exporters serve under /metrics.

    Parameters
    ----------
    at
        When it was read, which is the time of samples that have none.
    node
        The node of the exporter, where its labels do not say it.

    """
    return polls_of_samples(parse(text).samples, sources, at, node=node, nodes=nodes)


def polls_of_samples(
    samples: Iterable[Sample], sources: Sequence[Source], at: float, *, node: str = "", nodes: Mapping[str, str] | None = None
) -> Polls:
    """Return the poll of raw samples; of each series the newest counts. The rest is as of `polls_of_text`."""
    by_name: dict[str, dict[tuple[tuple[str, str], ...], Sample]] = {}
    for sample in samples:
        series = by_name.setdefault(sample.name, {})
        known = series.setdefault(tuple(sample.labels.items()), sample)
        if (known.time or at) < (sample.time or at):
            series[tuple(sample.labels.items())] = sample
    sets = LabelSets()
    rows = []
    for metric, vendor in vendors(sources).items():
        newest = list(by_name.get(metric.name, {}).values())
        if newest:
            labels = [{**sample.labels, "node": node} if node else sample.labels for sample in newest]
            values = np.array([[np.nan if (value := number(each.value)) is None else float(value)] for each in newest])
            times = np.array([[each.time or at] for each in newest], dtype=np.float64)
            rows.append(aggregated(metric, vendor, labels, values, times, sets))
    return polls(rows, sets, sources, [at], complete=True, nodes=nodes or {})


def _tables(sources: Sequence[Source], of_metric: Mapping[Metric, _Pair], *, complete: bool) -> dict[Quantity, _Pair]:
    """Return each quantity of each card from the first source that has it."""
    tables: dict[Quantity, _Pair] = {}
    for source in sources:
        # A sum that lacks a part looks as if its counters had begun anew, and jumps when the part is back.
        if source.join is Join.SUM and not complete:
            continue
        parts = [of_metric.get(metric) for metric in source.metrics]
        joined = _joined(source.join, parts)
        if joined is None:
            continue
        if source.quantity not in tables:
            tables[source.quantity] = joined
            continue
        values, times = tables[source.quantity]
        lacking = np.isnan(values)
        tables[source.quantity] = np.where(lacking, joined[0], values), np.where(lacking, joined[1], times)
    return tables


def _joined(join: Join, parts: Sequence[_Pair | None]) -> _Pair | None:
    """Return what the metrics of a source make together, None where they are not there."""
    known = [part for part in parts if part is not None]
    if not known or (join in (Join.SHARE, Join.PART) and len(known) < len(parts)):
        return None
    values, times = np.array([part[0] for part in known]), np.array([part[1] for part in known])
    with np.errstate(divide="ignore", invalid="ignore"):
        if join is Join.SHARE:
            made = values[0] / (values[0] + values[1])
        elif join is Join.PART:
            made = values[0] / values[1]
        elif join is Join.SUM:
            made = np.where(np.isnan(values).all(axis=0), np.nan, np.nansum(values, axis=0))
        else:
            made = np.fmax.reduce(values)
    return np.where(np.isfinite(made), made, np.nan), np.fmax.reduce(times)


def _no_event(tables: dict[Quantity, _Pair], sources: Sequence[Source], cards: Cards) -> None:
    """Put 0 where a series would be there if anything had happened, and other samples of the card are."""
    if not tables:
        return
    newest = np.fmax.reduce([np.where(np.isnan(values), np.nan, times) for values, times in tables.values()])
    for source in sources:
        if source.from_first_event:
            ours = np.array([vendor is source.vendor for vendor in cards.vendors], dtype=bool)[:, np.newaxis]
            values, times = tables.get(source.quantity) or (np.full_like(newest, np.nan), newest)
            absent = np.isnan(values) & ours & np.isfinite(newest)
            tables[source.quantity] = np.where(absent, 0.0, values), np.where(absent, newest, times)


def _made(tables: Mapping[Quantity, _Pair], cards: Cards, at: Sequence[float], *, complete: bool) -> Iterator[Poll]:
    """Yield a poll for each time. What they share is there once: they go from one process to another."""
    limits = (
        tables[Quantity.POWER_LIMIT_W][0][:, -1].tolist() if Quantity.POWER_LIMIT_W in tables else [math.nan] * len(cards.keys)
    )
    facts = [CardFacts(*pair) for pair in zip(cards.models, [None if math.isnan(w) else w for w in limits], strict=True)]
    everyone = np.arange(len(cards.keys))
    for step, moment in enumerate(at):
        samples: dict[Quantity, Column] = {}
        for quantity, (values, times) in tables.items():
            index = np.flatnonzero(np.isfinite(values[:, step]) & np.isfinite(times[:, step]))
            if len(index):
                who = everyone if len(index) == len(everyone) else index
                samples[quantity] = Column(who, values[index, step], times[index, step])
        yield Poll(moment, complete, cards.keys, samples, facts)

"""The series of one metric as arrays: a row per series, a column per time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.findings import Finding
from pyscheduler.readers.cards.card_labels import IDENTITY, LabelSets
from pyscheduler.readers.cards.catalogue_entries import Many, Metric, Vendor
from pyscheduler.readers.cards.metric_samples import BLANK_64, BLANKS, blank_reason

__all__ = ["Rows", "aggregated", "checked", "per_card"]

Numbers = NDArray[np.int64]

_BLANKS = np.array(sorted(BLANKS), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Rows:
    """What there is of one metric.

    Attributes
    ----------
    sets
        For each row the number of its label set.
    values
        A row per series, a column per time.
    times
        When each value was measured, in Unix seconds; NaN where there is none. Rows that were measured together share one.
    time_of
        For each row of `values` its row of `times`.
    """

    metric: Metric
    sets: Numbers
    values: Floats
    times: Floats
    time_of: Numbers


def aggregated(
    metric: Metric, vendor: Vendor, labels: Sequence[Mapping[str, str]], values: Floats, times: Floats, sets: LabelSets
) -> Rows:
    """Return raw series as the query of `metric_queries` would have: one row per card, its links or codes added up.

    Parameters
    ----------
    labels, values, times
        One row of each per series; they need not all be of the metric's `where`.

    """
    by = (*sets.node_labels, *IDENTITY)
    groups: dict[int, dict[tuple[str | None, ...], list[int]]] = {}
    for row, said in enumerate(labels):
        if all(_matches(said, match.label, match.pattern) != match.negated for match in metric.where):
            number = sets.number({key: said[key] for key in by if said.get(key)}, vendor)
            groups.setdefault(number, {}).setdefault(tuple(said.get(key) for key in metric.over), []).append(row)
    highest = np.fmin if metric.many is Many.LOWEST else np.fmax
    merged = np.full((len(groups), values.shape[1]), np.nan)
    newest = np.full_like(merged, np.nan)
    for index, parts in enumerate(groups.values()):
        singles = np.array([highest.reduce(values[rows]) for rows in parts.values()])
        absent = np.isnan(singles).all(axis=0)
        together = (~np.isnan(singles)).sum(axis=0) if metric.many is Many.NUMBER else np.nansum(singles, axis=0)
        merged[index] = np.where(absent, np.nan, together)
        newest[index] = np.fmax.reduce([times[row] for rows in parts.values() for row in rows])
    return Rows(metric, np.array(list(groups), dtype=np.int64), merged, newest, np.arange(len(groups)))


def _matches(labels: Mapping[str, str], label: str, pattern: str) -> bool:
    return re.fullmatch(pattern, labels.get(label, "")) is not None


def checked(rows: Rows, nodes: Sequence[str]) -> tuple[Rows, list[Finding]]:
    """Return the values in the quantity's unit without those that cannot be, and what was left out.

    Parameters
    ----------
    nodes
        For each row its node: versions, and with them units, differ from node to node.

    """
    metric = rows.metric
    there = np.isfinite(rows.times)[rows.time_of]
    # Of several times NaN may also stand for a point that is not there.
    no_number = ~np.isfinite(rows.values) if rows.values.shape[1] == 1 else np.isinf(rows.values)
    blank = there & (no_number | (rows.values >= BLANK_64) | np.isin(rows.values, _BLANKS))
    values = np.where(there & ~blank, rows.values, np.nan)
    values = values * (_ratios(values, nodes) if metric.percent_or_ratio else metric.scale)
    with np.errstate(invalid="ignore"):
        outside = (values < metric.least) | (values > metric.most)
    kept = np.where(outside, np.nan, values)
    found = _discarded(rows, blank | outside)
    return replace(rows, values=metric.convert(kept) if metric.convert else kept), found


def _discarded(rows: Rows, bad: NDArray[np.bool_]) -> list[Finding]:
    if not bad.any():
        return []
    value = float(rows.values[tuple(np.argwhere(bad)[0])])
    why = blank_reason(repr(value), int(value) if np.isfinite(value) else value) or "out of range"
    what = f"{rows.metric.name}: {int(bad.sum())} values left out, the first is {value:g} ({why})"
    return [Finding("sample-discarded", what)]


def _ratios(values: Floats, nodes: Sequence[str]) -> Floats:
    """Return for each row what makes a ratio of it, NaN where that cannot be told: 1 may be one percent or all.

    More than 1 is a percentage, a fraction a ratio. A node that shows neither is as all others are.
    """
    percent = {node for node, row in zip(nodes, values, strict=True) if (row > 1.0).any()}
    ratio = {node for node, row in zip(nodes, values, strict=True) if ((row > 0.0) & (row < 1.0)).any()} - percent
    others = 0.01 if percent and not ratio else 1.0 if ratio and not percent else np.nan
    scales = np.array([0.01 if node in percent else 1.0 if node in ratio else others for node in nodes])[:, np.newaxis]
    # Nothing is nothing in either unit.
    return np.where(np.isnan(scales) & (values == 0), 1.0, scales)


def per_card(rows: Rows, card_of_set: Numbers, cards: int) -> tuple[Floats, Floats]:
    """Return values and times with one row per card; of several series of a card the one that the metric says counts."""
    card_of = card_of_set[rows.sets]
    known = card_of >= 0
    card_of, of_rows, times = card_of[known], rows.values[known], rows.times[rows.time_of[known]]
    times = np.where(np.isnan(of_rows), np.nan, times)
    shape = (cards, rows.values.shape[1])
    values, newest = np.full(shape, np.nan), np.full(shape, np.nan)
    if len(np.unique(card_of)) == len(card_of):
        values[card_of], newest[card_of] = of_rows, times
    else:
        (np.fmin if rows.metric.many is Many.LOWEST else np.fmax).at(values, card_of, of_rows)
        np.fmax.at(newest, card_of, times)
    return values, newest

"""PromQL for the metrics of the catalogue: one query each, one series per card.

Instant answers carry the time of the query, not of the sample: an old value looks fresh. So each query also asks, per node,
when the metric was last scraped; those series have the label `TIME`. Counters come raw: rates and resets are the core's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyscheduler.readers.cards.card_labels import IDENTITY
from pyscheduler.readers.cards.catalogue_entries import Many, Metric

__all__ = ["TIME", "query"]

# The label of series that are times of samples, not values.
TIME: Final = "pyscheduler_time"


def query(metric: Metric, node_labels: Sequence[str]) -> str:
    """Return the query."""
    series = metric.name
    if metric.where:
        conditions = (f'{m.label}{"!~" if m.negated else "=~"}"{m.pattern}"' for m in metric.where)
        series = f"{metric.name}{{{', '.join(conditions)}}}"
    by = (*node_labels, *IDENTITY)
    choice = "min" if metric.many is Many.LOWEST else "max"
    if metric.over:
        # The highest of each first: a card may be scraped twice.
        total = "count" if metric.many is Many.NUMBER else "sum"
        value = f"{total} by ({', '.join(by)}) ({choice} by ({', '.join((*by, *metric.over))}) ({series}))"
    else:
        value = f"{choice} by ({', '.join(by)}) ({series})"
    times = f"max by ({', '.join(node_labels)}) (timestamp({series}))"
    return f'{value} or label_replace({times}, "{TIME}", "1", "", "")'

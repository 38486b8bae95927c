"""Results of Prometheus' query API, asked as in `metric_queries`, to rows. The server is believed nothing but numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyscheduler.readers.cards.card_labels import LabelSets
from pyscheduler.readers.cards.catalogue_entries import Metric, Vendor
from pyscheduler.readers.cards.metric_queries import TIME
from pyscheduler.readers.cards.metric_rows import Rows

__all__ = ["rows_of_result"]


def rows_of_result(
    metric: Metric, vendor: Vendor, result: Sequence[Mapping[str, Any]], at: Sequence[float], sets: LabelSets
) -> Rows:
    """Return the rows of a vector or a matrix.

    Parameters
    ----------
    at
        The times of its points; of a vector the one of the query.

    Raises
    ------
    ValueError, KeyError, TypeError
        If it is not of the form that the query API documents.

    """
    moments = [round(moment) for moment in at]
    time_places: list[int] = []
    times: list[list[float]] = []
    numbers: list[int] = []
    values: list[list[float]] = []
    for series in result:
        labels = series["metric"]
        row = [float(series["value"][1])] if "value" in series else _row(series["values"], moments)
        if TIME in labels:
            time_places.append(sets.place(labels))
            times.append(row)
        else:
            numbers.append(sets.number(labels, vendor))
            values.append(row)
    sets_of_rows, places = np.array(numbers, dtype=np.int64), sets.places()
    # A row that no time is told for: nothing is known of its age, so it counts as absent.
    times.append([np.nan] * len(at))
    time_of = np.full(max([*time_places, *places.tolist()], default=0) + 1, len(time_places), dtype=np.int64)
    time_of[time_places] = np.arange(len(time_places))
    table = np.array(values, dtype=np.float64).reshape(len(values), len(at))
    return Rows(metric, sets_of_rows, table, np.array(times), time_of[places[sets_of_rows]])


def _row(points: Sequence[Sequence[Any]], moments: Sequence[int]) -> list[float]:
    """Return one value for each moment, NaN where there is none."""
    if len(points) == len(moments):
        return [float(text) for _, text in points]
    there = {round(moment): float(text) for moment, text in points}
    return [there.get(moment, np.nan) for moment in moments]

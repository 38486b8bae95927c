"""Answers of Prometheus' query API, instant and range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyscheduler.readers.cards.metric_reading import reading
from pyscheduler.readers.cards.metric_samples import Sample
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.json_text import json_or_none, json_or_refuse, name_of

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "prometheus-json"

_HINTS: Final = ('"resultType"', '"errorType"', '"metric"')
# Unix seconds; more are no time of this era, nor is the "NaN" or "Infinity" that JSON parsers let pass.
_MAX_TIME: Final = 1e11
# Remarks of the server that are passed on, and letters of each.
_MAX_REMARKS: Final = 20
_MAX_LETTERS: Final = 200


def recognises(text: str) -> bool:
    """Tell whether the JSON is an answer of the query API, whole or its result alone."""
    if not any(hint in text for hint in _HINTS):
        return False
    raw = json_or_none(text)
    if isinstance(raw, list):
        return bool(raw) and all(isinstance(entry, dict) and isinstance(entry.get("metric"), dict) for entry in raw)
    return isinstance(raw, dict) and ("errorType" in raw or "resultType" in _data(raw))


def read(text: str) -> Reading:
    """Return the metrics. An answer without series is read: it says that the state of the GPUs is unknown.

    Raises
    ------
    RefusedError
        If the query failed, or its result has no series by its kind (a number, a string).

    """
    raw = json_or_refuse(text)
    series, ranged = _result(raw)
    samples = [sample for entry in series for sample in _samples(entry)]
    known = [sample for sample in samples if sample is not None]
    found = reading(FORMAT, known, timed=ranged, scraped=True)
    left_out = [*_unreadable(len(samples) - len(known)), *_histograms(series)]
    findings = (*_remarks(raw), *left_out, *found.findings, *_empty(found))
    return Reading("metrics", FORMAT, found.body, findings=findings)


def _data(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an answer that has the result: the answer itself where someone cut it out."""
    data = raw.get("data", raw)
    return data if isinstance(data, dict) else {}


def _result(raw: Any) -> tuple[list[Any], bool]:
    """Return the series, and whether they are of a range."""
    if isinstance(raw, list):
        return raw, any(isinstance(entry, dict) and "values" in entry for entry in raw)
    if not isinstance(raw, dict):
        raise RefusedError("no answer of the query API: an object is needed")
    if raw.get("status", "success") != "success":
        fault = _one_line(f"{raw.get('errorType')}: {raw.get('error')}")
        raise RefusedError(f"the query failed ({fault}): ask again")
    kind, result = _data(raw).get("resultType"), _data(raw).get("result")
    if kind not in ("vector", "matrix"):
        raise RefusedError(f"an answer of type {_one_line(str(kind))} names no GPU: ask for a vector or a matrix")
    if not isinstance(result, list):
        raise RefusedError('no "result" list in the answer: pass the whole answer')
    return result, kind == "matrix"


def _samples(entry: Any) -> Iterator[Sample | None]:
    """Yield the samples of a series, None for each that is none."""
    metric = entry.get("metric") if isinstance(entry, dict) else None
    if not isinstance(metric, dict):
        yield None
        return
    labels = {key: text for key, value in metric.items() if (text := name_of(value)) is not None}
    values = entry.get("values")
    if isinstance(values, list):
        yield from (_sample(labels, point) for point in values)
    elif "value" in entry or not _is_histogram(entry):
        yield _sample(labels, entry.get("value"))


def _sample(labels: Mapping[str, str], point: Any) -> Sample | None:
    time, value = point if isinstance(point, list) and len(point) == 2 else (None, None)
    if not isinstance(time, int | float) or not 0 <= time < _MAX_TIME:
        return None
    return Sample(labels.get("__name__", ""), labels, str(value), time)


def _is_histogram(entry: Any) -> bool:
    return isinstance(entry, dict) and ("histogram" in entry or "histograms" in entry)


def _unreadable(count: int) -> list[Finding]:
    return [Finding("sample-unreadable", f"{count} samples are not of the form [time, value]: left out")] if count else []


def _histograms(series: list[Any]) -> list[Finding]:
    count = sum(1 for entry in series if _is_histogram(entry))
    return [Finding("histogram", f"{count} series are native histograms: left out")] if count else []


def _remarks(raw: Any) -> list[Finding]:
    """Return what the server warned of: a partial answer, for one."""
    lists = [raw.get(key) for key in ("warnings", "infos")] if isinstance(raw, dict) else []
    remarks = [text for remarks in lists if isinstance(remarks, list) for text in remarks if isinstance(text, str)]
    return [Finding("server-warning", f"the server says: {_one_line(text)}") for text in remarks[:_MAX_REMARKS]]


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_LETTERS]


def _empty(found: Reading) -> list[Finding]:
    if found.body["series"]:
        return []
    return [Finding("empty-answer", "no series of a GPU in the answer: the state of the GPUs is unknown, not idle")]

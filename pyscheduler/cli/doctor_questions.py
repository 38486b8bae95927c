"""What `pyscheduler doctor` asks Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

from pyscheduler.adapters.prometheus import Memory, collect
from pyscheduler.adapters.prometheus_errors import PrometheusError
from pyscheduler.adapters.prometheus_session import Connection
from pyscheduler.cli.doctor_facts import Answers, Series, Targets
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.cards.catalogue_entries import Source, Vendor
from pyscheduler.readers.cards.polls import vendors
from pyscheduler.readers.metrics_config import MetricsConfig
from pyscheduler.readers.text.excerpt import excerpt

__all__ = ["ask"]

# Names that GPU exporters use, and one of AMD's with something before it.
_LIKE: Final = "(?i).*(dcgm|gpu|nvidia|rocm).*"
_PREFIXED: Final = ".*gpu_gfx_activity"
# What the exporters of GPUs are usually called.
_EXPORTER_JOBS: Final = re.compile(r"(?i)dcgm|gpu|amd|nvidia|rocm")
# Of these every card has one series, and for NVIDIA's the name shows the exporter's version. Of others it may have several.
_TELLING: Final = (Quantity.SM_CLOCK_HZ, Quantity.TEMP_C, Quantity.POWER_W, Quantity.ENGINE_ACTIVE)
_FOREIGN_MAX: Final = 1000
# Jobs whose intervals are looked at, and how far back.
_JOBS_MAX: Final = 8
_SPAN: Final = "10m"


def ask(config: MetricsConfig, harmless_xids: Sequence[int], nodes: Mapping[str, str], now: float) -> Answers:
    """Return what Prometheus says. A question that fails after the first is told in the answers. `nodes` is as of `collect`.

    Raises
    ------
    PrometheusError
        If it cannot be asked at all.

    """
    sources = catalogue(config.amd_prefix, config.evidence, harmless_xids)
    asker = _Asker(config, now)
    try:
        answers = _first(asker, Answers(config, sources, now))
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as cause:
        # The server is believed nothing.
        raise PrometheusError(
            f"{config.url}: got a series that cannot be read ({excerpt(repr(cause))}): is it Prometheus?"
        ) from cause
    finally:
        asker.close()
    collected = None
    if answers.names:
        try:
            collected = collect(config, harmless_xids, nodes, Memory(polled=now - 1), now)
        except PrometheusError as cause:
            asker.problems.append(str(cause))
    return replace(answers, collected=collected, problems=tuple(asker.problems))


def _first(asker: _Asker, nothing: Answers) -> Answers:
    """Return what is to be known before a poll: which metrics there are, whose they are, and whether they are scraped."""
    known = {metric.name: vendor for metric, vendor in vendors(nothing.sources).items()}
    counts = asker.must("metric names", f'count by (__name__) ({{__name__=~"{"|".join(map(re.escape, known))}"}})')
    names = {row["metric"]["__name__"]: int(float(row["value"][1])) for row in counts}
    foreign = _foreign(asker, known, _PREFIXED if names else _LIKE)
    answers = replace(nothing, names=names, foreign=foreign, targets=_targets(asker))
    if not names:
        return answers
    series = _series(asker, nothing.sources, names)
    return replace(answers, series=series, intervals=_intervals(asker, series))


class _Asker:
    """Asks one question after the other, and keeps what went wrong."""

    def __init__(self, config: MetricsConfig, now: float) -> None:
        self._connection = Connection(config)
        self._now = now
        self._seconds = config.timeout_s
        self.problems: list[str] = []

    def must(self, what: str, query: str) -> list[Mapping[str, Any]]:
        """Return the answer."""
        return self._connection.instant(what, query, self._now, self._seconds)

    def may(self, what: str, query: str) -> list[Mapping[str, Any]]:
        """Return the answer, nothing if there is none."""
        try:
            return self.must(what, query)
        except PrometheusError as cause:
            self.problems.append(str(cause))
            return []

    def close(self) -> None:
        """End the connection."""
        self.problems += (f"Prometheus warns: {text}" for text in dict.fromkeys(self._connection.warnings))
        self._connection.close()


def _foreign(asker: _Asker, known: Mapping[str, Vendor], like: str) -> tuple[str, ...]:
    rows = asker.may("other metric names", f'topk({_FOREIGN_MAX}, count by (__name__) ({{__name__=~"{like}"}}))')
    return tuple(sorted(name for row in rows if (name := row["metric"]["__name__"]) not in known))


def _targets(asker: _Asker) -> dict[str, Targets]:
    down = {row["metric"].get("job", ""): int(float(row["value"][1])) for row in asker.may("up", "count by (job) (up == 0)")}
    rows = asker.may("up", "count by (job) (up)")
    return {
        job: Targets(int(float(row["value"][1])), down.get(job, 0))
        for row in rows
        if _EXPORTER_JOBS.search(job := row["metric"].get("job", ""))
    }


def _series(asker: _Asker, sources: Sequence[Source], names: Mapping[str, int]) -> tuple[Series, ...]:
    """Return the series of a metric per vendor that most of its cards have."""
    found: list[Series] = []
    for vendor in (Vendor.NVIDIA, Vendor.AMD):
        wanted = _common(vendor, sources, names)
        if wanted:
            rows = asker.may("a metric of every card", f'{{__name__=~"{"|".join(map(re.escape, wanted))}"}}')
            found += [Series(vendor, row["metric"]["__name__"], row["metric"]) for row in rows]
    return tuple(found)


def _common(vendor: Vendor, sources: Sequence[Source], names: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names of the quantity that most cards of a vendor have."""
    by_quantity: dict[Quantity, dict[str, int]] = {quantity: {} for quantity in _TELLING}
    for source in sources:
        metric = source.metrics[0]
        is_one_per_card = len(source.metrics) == 1 and not (metric.over or metric.where or source.from_first_event)
        if source.vendor is vendor and is_one_per_card and metric.name in names:
            by_quantity.setdefault(source.quantity, {})[metric.name] = names[metric.name]
    telling = [quantity for quantity in _TELLING if by_quantity[quantity]]
    best = max(telling or by_quantity, key=lambda quantity: sum(by_quantity[quantity].values()))
    return tuple(by_quantity[best])


def _intervals(asker: _Asker, series: Iterable[Series]) -> dict[str, float]:
    """Return the seconds between two samples, by one series of each job."""
    first: dict[str, Series] = {}
    for one in series:
        first.setdefault(one.job, one)
    found = {}
    for job, one in list(first.items())[:_JOBS_MAX]:
        labels = ", ".join(f"{key}={json.dumps(text)}" for key, text in one.labels.items() if key != "__name__")
        for row in asker.may("the samples of a series", f"{one.metric}{{{labels}}}[{_SPAN}]"):
            steps = [later - earlier for (earlier, _), (later, _) in pairwise(row.get("values", []))]
            if steps:
                found[job] = median(steps)
    return found

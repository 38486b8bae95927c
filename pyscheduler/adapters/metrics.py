"""Metrics of the service in Prometheus form, and the canonical log line of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from pyscheduler.core.cluster import Cluster

__all__ = ["Metrics"]

# From a tenth of the cost of a unary call to the shim's deadline of 250 ms.
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """Counts calls and watch restarts; reads the rest from the cluster when it is scraped."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._logger = logger
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "pyscheduler_calls", "Calls by method, gRPC code and verdict.", ("method", "code", "verdict"), registry=self._registry
        )
        self._seconds = Histogram(
            "pyscheduler_call_seconds", "Time in the handler.", ("method",), buckets=_BUCKETS, registry=self._registry
        )
        self._relists = Counter("pyscheduler_lists", "Full lists read from the API server.", ("kind",), registry=self._registry)
        self._watch_failures = Counter(
            "pyscheduler_watch_failures", "Lists and watches that failed.", ("kind",), registry=self._registry
        )
        self._findings = Gauge(
            "pyscheduler_findings", "What lint found in the cluster.", ("code", "severity"), registry=self._registry
        )
        self._blind = Gauge(
            "pyscheduler_watch_blind_seconds",
            "For how long changes may have been missed: 0 while the watch is open.",
            ("kind",),
            registry=self._registry,
        )
        self._ready = Gauge("pyscheduler_ready", "1 once all nodes and pods have been read.", registry=self._registry)
        self._leads = Gauge(
            "pyscheduler_leads",
            "1 while the scheduler beside this service is the elected one, or the only one.",
            registry=self._registry,
        )

        self._polls = Counter(
            "pyscheduler_metric_polls", "Polls of the cards' metrics by outcome.", ("outcome",), registry=self._registry
        )
        self._query_seconds = Gauge(
            "pyscheduler_metric_query_seconds", "Longest query of the last poll of the cards' metrics.", registry=self._registry
        )
        self._series = Gauge(
            "pyscheduler_metric_series", "Series of cards that the last poll of their metrics saw.", registry=self._registry
        )
        self._cards = Gauge("pyscheduler_cards", "Cards by state of their capacity.", ["state"], registry=self._registry)
        self._spared = Gauge(
            "pyscheduler_slow_cards_spared",
            "Slow cards that are handed out because too many of their model look slow; above 0 that breaker is open.",
            registry=self._registry,
        )
        self._frozen = Gauge(
            "pyscheduler_card_states_frozen",
            "1 while so many cards are silent at once that states stand still.",
            registry=self._registry,
        )
        self._data_age = Gauge(
            "pyscheduler_metric_age_seconds",
            "Age of the newest sample of any card; -1 before the first.",
            registry=self._registry,
        )

    def watch_metric_age(self, seconds: Callable[[], float]) -> None:
        """Expose how old the cards' metrics are."""
        self._data_age.set_function(seconds)

    def polled(self, outcome: str, series: int, seconds: float) -> None:
        """Note a poll of the cards' metrics: ``complete``, ``partial`` or ``failed``."""
        self._polls.labels(outcome).inc()
        self._series.set(series)
        self._query_seconds.set(seconds)

    def cards(self, states: Mapping[str, int], spared: int, *, frozen: bool) -> None:
        """Note how many cards are in each state, how many slow ones are handed out all the same, and whether states stand still."""
        for state, count in states.items():
            self._cards.labels(state).set(count)
        self._spared.set(spared)
        self._frozen.set(frozen)

    def watch_blindness(self, kind: str, seconds: Callable[[], float]) -> None:
        """Expose for how long changes of a kind may have been missed."""
        self._blind.labels(kind).set_function(seconds)

    def watch_cluster(self, cluster: Cluster, lock: threading.Lock) -> None:
        """Expose the cluster's gauges."""
        self._registry.register(_ClusterCollector(cluster, lock))

    def call(self, method: str, code: str, verdict: str, seconds: float, **fields: object) -> None:
        """Note one finished call."""
        self._calls.labels(method, code, verdict).inc()
        self._seconds.labels(method).observe(seconds)
        tell = self._logger.info if code == "OK" else self._logger.warning
        tell("call", rpc=method, code=code, verdict=verdict, duration_ms=round(seconds * 1000, 3), **fields)

    def failed(self, method: str, cause: BaseException, **fields: object) -> None:
        """Note a bug in a handler."""
        self._logger.error("bug", rpc=method, exc_info=cause, **fields)

    def listed(self, kind: str) -> None:
        """Note a full list."""
        self._relists.labels(kind).inc()

    def watch_failed(self, kind: str) -> None:
        """Note a list or watch that failed."""
        self._watch_failures.labels(kind).inc()

    def findings(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Note what lint found, by code and severity, in place of what it found before."""
        self._findings.clear()
        for labels, count in counts.items():
            self._findings.labels(*labels).set(count)

    def ready(self) -> None:
        """Note that the service is ready."""
        self._ready.set(1)

    def leads(self, leads: bool) -> None:  # noqa: FBT001
        """Note whether the service leads."""
        self._leads.set(leads)

    def exposition(self) -> bytes:
        """Return all metrics as Prometheus text."""
        return generate_latest(self._registry)


class _ClusterCollector(Collector):
    def __init__(self, cluster: Cluster, lock: threading.Lock) -> None:
        self._cluster = cluster
        self._lock = lock

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            states = [s for s in self._cluster.states() if s.present]
            held = [h.state.value for h in self._cluster.ledger.holdings() for _ in range(h.count)]
            conflicts = len(self._cluster.ledger.conflicts())
            refused = len(self._cluster.refusals)
        yield GaugeMetricFamily("pyscheduler_nodes", "Nodes in the table.", value=len(states))
        yield GaugeMetricFamily(
            "pyscheduler_nodes_with_findings",
            "Nodes with something wrong in their documents.",
            value=sum(bool(s.facts.findings) for s in states),
        )
        yield GaugeMetricFamily("pyscheduler_refused_pods", "Refused pods that wait.", value=refused)
        yield GaugeMetricFamily(
            "pyscheduler_conflicting_pods", "Live pods that name a GPU which a pod that was bound earlier holds.", value=conflicts
        )
        yield GaugeMetricFamily("pyscheduler_gpus_free", "GPUs that could be given out.", value=sum(s.free for s in states))
        by_state = GaugeMetricFamily("pyscheduler_gpus_held", "GPUs held, by state.", labels=("state",))
        for state in sorted(set(held)):
            by_state.add_metric((state,), held.count(state))
        yield by_state

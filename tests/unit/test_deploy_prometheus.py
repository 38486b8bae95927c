"""What is shipped for Prometheus and Grafana is well formed and speaks of metrics that exist."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final

import pytest
import structlog
import yaml

from deploy.local.layout import REPOSITORY
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.core.capacity.config import BreakerConfig, BusyConfig, FaultConfig
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.cluster import Cluster
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.cards.catalogue_entries import Vendor
from pyscheduler.readers.cards.polls import vendors
from tests.sim.fleet import Generation
from tests.sim.names import EXPORTS

FOLDER: Final = REPOSITORY / "deploy" / "prometheus"
DASHBOARD: Final = json.loads((REPOSITORY / "deploy" / "dashboards" / "pyscheduler.json").read_text())
COUNTERS: Final = {Generation.OLD: "dcgm-counters-4.8.csv", Generation.NEW: "dcgm-counters-4.9.csv"}
NODE_NAME: Final = "__meta_kubernetes_pod_node_name"
# What is no metric in an expression: matchers, ranges, lists of labels, offsets.
ASIDE: Final = (
    r"\{[^}]*\}", r"\[[^]]*\]", r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", r"\boffset\s+\w+",
)  # fmt: skip
WORDS: Final = {"and", "or", "unless", "bool"}


def load(file: str) -> Any:
    return yaml.safe_load((FOLDER / file).read_text())


def rules(file: str) -> list[Mapping[str, Any]]:
    return [rule for group in load(file)["groups"] for rule in group["rules"]]


def counters(file: str) -> list[list[str]]:
    lines = [line for line in (FOLDER / file).read_text().splitlines() if line and not line.startswith("#")]
    return [[cell.strip() for cell in row] for row in csv.reader(lines)]


def metric_names(expression: str) -> set[str]:
    found = {name for names in re.findall(r'__name__=~"([^"]*)"', expression) for name in names.split("|")}
    for aside in ASIDE:
        expression = re.sub(aside, "", expression)
    # A name before a bracket is a function.
    return (found | set(re.findall(r"(?<![\w:.])[a-zA-Z_:][\w:]*\b(?!\s*\()", expression))) - WORDS


def exposed() -> set[str]:
    """What the service exposes, as Prometheus names it."""
    metrics = Metrics(structlog.get_logger())
    metrics.watch_cluster(Cluster(epoch=1, scheduler_name="gpu-topology"), threading.Lock())
    types = re.findall(r"^# TYPE (\w+) (\w+)$", metrics.exposition().decode(), re.MULTILINE)
    return {name + ("_bucket" if kind == "histogram" else "") for name, kind in types}


def known() -> set[str]:
    recorded = {rule["record"] for rule in rules("recording-rules.yaml")}
    return {metric.name for metric in vendors(catalogue())} | recorded | exposed()


def targets() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_names_are_found_in_expressions() -> None:
    """The oracle of the tests below."""
    text = 'sum by (a, b) (rate(c_total{d="e"}[5m])) / on (f) group_left () g:h:i offset 1h > bool 1e9 or {__name__=~"j|k"}'
    assert metric_names(text) == {"c_total", "g:h:i", "j", "k"}


@pytest.mark.parametrize("generation", COUNTERS)
def test_lists_of_counters_are_in_the_format_of_the_exporter(generation: Generation) -> None:
    rows = counters(COUNTERS[generation])
    assert {len(row) for row in rows} == {3}
    assert {kind for _, kind, _ in rows} == {"gauge", "counter"}
    assert len({name for name, _, _ in rows}) == len(rows)


@pytest.mark.parametrize("generation", COUNTERS)
def test_lists_of_counters_have_what_is_read_under_the_names_of_their_time(generation: Generation) -> None:
    names = {name for name, _, _ in counters(COUNTERS[generation])}
    assert names <= {metric.name for metric in vendors(catalogue())}
    (other,) = COUNTERS.keys() - {generation}
    mine, others = ({export.name for export in EXPORTS[each]} for each in (generation, other))
    # The exporter's own have not been renamed.
    assert not {name for name in names & (others - mine) if name.startswith("DCGM_FI_")}
    of_nvidia = [source for source in catalogue() if source.vendor is Vendor.NVIDIA]
    given = {source.quantity for source in of_nvidia if {metric.name for metric in source.metrics} <= names}
    # An old exporter does not start if it is asked for each XID.
    missing = {Quantity.XID_FATAL} if generation is Generation.OLD else set()
    assert {source.quantity for source in of_nvidia} - given == missing


def test_every_metric_in_the_rules_exists() -> None:
    for rule in (*rules("recording-rules.yaml"), *rules("alerts.yaml")):
        names = metric_names(rule["expr"])
        assert names, rule
        assert names <= known(), rule


def test_every_metric_on_the_dashboard_exists() -> None:
    for title, expression in targets():
        names = metric_names(expression)
        assert names, title
        assert names <= known(), title


def test_recorded_metrics_are_used() -> None:
    expressions = [rule["expr"] for file in ("recording-rules.yaml", "alerts.yaml") for rule in rules(file)]
    used = set().union(*map(metric_names, [*expressions, *(expression for _, expression in targets())]))
    assert {rule["record"] for rule in rules("recording-rules.yaml")} <= used


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    alerts = rules("alerts.yaml")
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert alert["labels"]["severity"] in {"warning", "critical"}, alert
        assert all(alert["annotations"][key] for key in ("summary", "description")), alert


def test_rules_have_the_thresholds_of_the_service() -> None:
    recorded = {(rule["record"], rule.get("labels", {}).get("kind", "")): rule["expr"] for rule in rules("recording-rules.yaml")}
    alerts = {alert["alert"]: alert["expr"] for alert in rules("alerts.yaml")}
    harmless = [str(code) for code in FaultConfig().harmless_xids]
    xids = recorded["gpu:fault:bool", "xid"]
    assert set(re.findall(r'xid!~"([^"]*)"', xids)) == {"|".join(harmless)}
    assert re.findall(r"!= (\d+)", xids) == harmless
    assert recorded["gpu:clock_busy:hertz", ""].endswith(f"> {BusyConfig().active}")
    assert f"pyscheduler_metric_age_seconds > {BreakerConfig().unknown_s:.0f}" in alerts["GPUMetricsOld"]


def relabelled(relabelings: list[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Which label is made of which others, in either way of writing it."""
    made = []
    for each in relabelings:
        plain = {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", key): value for key, value in each.items()}
        if "target_label" in plain:
            made.append((plain["target_label"], *plain["source_labels"], plain.get("regex")))
    return made


def test_both_ways_of_scraping_give_the_same_labels() -> None:
    monitors = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all((FOLDER / "monitors.yaml").read_text())}
    jobs = {job["job_name"]: job for job in load("scrape-configs.yaml")["scrape_configs"]}
    assert monitors.keys() == jobs.keys()
    for name in ("dcgm-exporter", "amd-metrics-exporter"):
        (endpoint,) = monitors[name]["endpoints"]
        assert ("node", NODE_NAME, None) in relabelled(endpoint["relabelings"])
        assert relabelled(endpoint["relabelings"]) == relabelled(jobs[name]["relabel_configs"])
        metrics = endpoint.get("metricRelabelings", []), jobs[name].get("metric_relabel_configs", [])
        assert relabelled(metrics[0]) == relabelled(metrics[1])


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for a, b in combinations(places, 2):
        apart = [a[at] + a[size] <= b[at] or b[at] + b[size] <= a[at] for at, size in (("x", "w"), ("y", "h"))]
        assert any(apart), (a, b)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


def test_dashboard_names_no_data_source_of_its_own() -> None:
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used <= variables | {"datasource"}
    assert set(re.findall(r'"uid": "([^"]*)"', json.dumps(DASHBOARD["panels"]))) == {"${datasource}"}

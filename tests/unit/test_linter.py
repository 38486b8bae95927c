"""Lint of the live cluster runs after changes, not too often, and tells each finding once."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.linter import LOOK_S, PAUSE_S, Linter, Report
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.errors import KubernetesError

TWINS = Finding("uuid-duplicated", "two nodes tell the same UUIDs", "write them anew", severity=Severity.ERROR)
ODD = Finding("unequal-depth", "node b has one level less", "label it", "b")


class Setting:
    """A linter, the clock it goes by, and a check whose outcome and length a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.takes_s = 0.0
        self.version = 1
        self.found: tuple[Finding, ...] = ()
        self.failure: Exception | None = None
        self.runs = 0
        self.during_run = 0
        self.metrics = Metrics(structlog.get_logger())
        self.linter = Linter(self._check, lambda: self.version, self.metrics, structlog.get_logger(), clock=lambda: self.now)

    def _check(self) -> Report:
        self.runs += 1
        self.now += self.takes_s
        self.version += self.during_run
        if self.failure:
            raise self.failure
        counts: dict[tuple[str, str], int] = {}
        for finding in self.found:
            key = (finding.code, finding.severity.value)
            counts[key] = counts.get(key, 0) + 1
        return Report(counts, self.found)

    def gauges(self) -> set[str]:
        """Return the lines of the gauge as Prometheus would read them."""
        lines = self.metrics.exposition().decode().splitlines()
        return {line for line in lines if line.startswith("pyscheduler_findings{")}


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as captured:
        yield captured


def told(logs: list[MutableMapping[str, Any]]) -> list[tuple[str, str]]:
    return [(line["code"], line["node"]) for line in logs if line["event"] == "topology finding"]


def test_finding_is_logged_once_with_its_remedy_however_often_lint_runs(
    setting: Setting, logs: list[MutableMapping[str, Any]]
) -> None:
    setting.found = (TWINS, ODD)
    for version in (2, 3, 4):
        setting.version = version
        setting.linter.look()
    assert setting.runs == 3
    assert sorted(told(logs)) == [("unequal-depth", "b"), ("uuid-duplicated", "")]
    assert {line["remedy"] for line in logs} == {"write them anew", "label it"}


def test_finding_that_comes_back_is_logged_again(setting: Setting, logs: list[MutableMapping[str, Any]]) -> None:
    for version, found in enumerate(((ODD,), (), (ODD,)), start=2):
        setting.version, setting.found = version, found
        setting.linter.look()
    assert told(logs) == [("unequal-depth", "b")] * 2


def test_metrics_show_what_the_last_run_found_and_nothing_older(setting: Setting) -> None:
    setting.found = (TWINS, ODD)
    setting.linter.look()
    assert setting.gauges() == {
        'pyscheduler_findings{code="unequal-depth",severity="warning"} 1.0',
        'pyscheduler_findings{code="uuid-duplicated",severity="error"} 1.0',
    }
    setting.version, setting.found = 2, (TWINS,)
    setting.linter.look()
    assert setting.gauges() == {'pyscheduler_findings{code="uuid-duplicated",severity="error"} 1.0'}


def test_lint_does_not_run_again_before_something_changes(setting: Setting) -> None:
    setting.linter.look()
    assert [setting.linter.look() for _ in range(3)] == [LOOK_S] * 3
    assert setting.runs == 1
    setting.version = 2
    setting.linter.look()
    assert setting.runs == 2


def test_change_during_a_run_is_looked_at_again(setting: Setting) -> None:
    setting.during_run = 1
    setting.linter.look()
    setting.during_run = 0
    setting.linter.look()
    setting.linter.look()
    assert setting.runs == 2


@pytest.mark.parametrize(("takes_s", "pause_s"), [(0.5, PAUSE_S), (30.0, 600.0)])
def test_pause_grows_with_what_a_run_costs(setting: Setting, takes_s: float, pause_s: float) -> None:
    setting.takes_s = takes_s
    assert setting.linter.look() == pytest.approx(pause_s)


def test_refusal_of_the_api_server_is_told_and_lint_is_tried_again(
    setting: Setting, logs: list[MutableMapping[str, Any]]
) -> None:
    setting.found, setting.failure = (ODD,), KubernetesError("nodes is forbidden: grant the rights of deploy/rbac")
    assert setting.linter.look() == PAUSE_S
    assert [(line["event"], line["error"]) for line in logs] == [("lint not run", str(setting.failure))]
    setting.failure = None
    setting.linter.look()
    assert told(logs) == [("unequal-depth", "b")]


def test_check_that_trips_a_bug_is_logged_and_leaves_what_was_found_before(
    setting: Setting, logs: list[MutableMapping[str, Any]]
) -> None:
    setting.found = (TWINS,)
    setting.linter.look()
    setting.version, setting.failure = 2, ZeroDivisionError("no nodes")
    assert setting.linter.look() == PAUSE_S
    assert [line["event"] for line in logs] == ["topology finding", "lint failed"]
    assert setting.gauges() == {'pyscheduler_findings{code="uuid-duplicated",severity="error"} 1.0'}
    # The same would trip it again.
    assert setting.linter.look() == LOOK_S

"""The loop that polls metrics of cards: what it tells and counts, and what one poll leaves for the next."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.metrics_collector import MetricsCollector, PollError
from pyscheduler.adapters.prometheus import Collected, Memory

NODES = {"10.0.0.1": "n1"}


class Setting:
    """A collector, its clock, and what Prometheus is to say next."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.takes_s = 2.0
        self.failure: Exception | None = None
        self.problems: tuple[str, ...] = ()
        self.asked: list[tuple[Mapping[str, str], Memory, float]] = []
        self.metrics = Metrics(structlog.get_logger())
        logger = structlog.get_logger()
        self.collector = MetricsCollector(self._ask, lambda: NODES, 30.0, self.metrics, logger, now=lambda: self.now)

    def _ask(self, nodes: Mapping[str, str], memory: Memory, now: float) -> Collected:
        self.asked.append((nodes, memory, now))
        self.now += self.takes_s
        if self.failure:
            raise self.failure
        return Collected((), Memory(polled=now), self.problems, series=7, seconds=1.5, newest=now - 8)

    def poll(self) -> tuple[float, list[str]]:
        """Poll once; return the pause and what was logged."""
        with capture_logs() as logs:
            pause = self.collector.poll()
        return pause, [str(entry.get("problem", entry["event"])) for entry in logs]

    def exposed(self) -> dict[str, float]:
        """Return the metrics of the polls."""
        lines = (
            line.rsplit(" ", 1)
            for line in self.metrics.exposition().decode().splitlines()
            if line.startswith("pyscheduler_metric")
        )
        return {name.removeprefix("pyscheduler_metric_"): float(value) for name, value in lines if "_created" not in name}


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_poll_knows_of_the_one_before(setting: Setting) -> None:
    assert setting.poll() == (28.0, [])
    setting.now = 1030.0
    setting.poll()
    assert setting.asked == [(NODES, Memory(), 1000.0), (NODES, Memory(polled=1000.0), 1030.0)]


def test_slow_poll_is_followed_at_once(setting: Setting) -> None:
    setting.takes_s = 45.0
    assert setting.poll()[0] == 0.0


def test_failed_poll_leaves_the_memory(setting: Setting) -> None:
    setting.poll()
    setting.failure = PollError("no answer")
    setting.poll()
    setting.failure = None
    setting.poll()
    assert setting.asked[2][1] == Memory(polled=1000.0), "from which the gap follows"


def test_problem_is_told_once_and_its_end(setting: Setting) -> None:
    setting.failure = PollError("no answer")
    assert setting.poll()[1] == ["no answer"]
    assert setting.poll()[1] == []
    setting.failure, setting.problems = None, ("no answer", "half of it")
    assert setting.poll()[1] == ["half of it"]
    setting.problems = ()
    assert setting.poll()[1] == ["metrics of cards are complete again"]


def test_bug_does_not_end_the_loop(setting: Setting) -> None:
    setting.failure = ZeroDivisionError("oh")
    pause, logged = setting.poll()
    assert pause == 28.0
    assert "metrics not read" in logged
    assert setting.exposed()['polls_total{outcome="failed"}'] == 1


def test_clock_that_was_set_back_is_told_once_and_polls_go_on(setting: Setting) -> None:
    setting.poll()
    setting.now = 500.0
    assert setting.poll() == (28.0, ["the clock was set back by 500 s"])
    assert setting.asked[-1][2] == 500.0
    assert setting.collector.age_s() <= 10.0
    setting.now = 530.0
    assert setting.poll() == (28.0, [])
    assert setting.collector.age_s() == 10.0
    setting.now = 500.0
    assert setting.poll() == (28.0, []), "an interval or less is not worth a word"


def test_clock_that_is_set_back_during_a_poll_holds_up_no_other(setting: Setting) -> None:
    setting.takes_s = -500.0
    assert setting.poll()[0] == 30.0
    assert setting.collector.age_s() == 0.0
    setting.takes_s = 2.0
    assert setting.poll() == (28.0, ["the clock was set back by 500 s"])


def test_how_it_goes_is_exposed(setting: Setting) -> None:
    assert setting.exposed()["age_seconds"] == -1
    setting.poll()
    setting.problems = ("x",)
    setting.poll()
    assert setting.exposed() == {
        'polls_total{outcome="complete"}': 1,
        'polls_total{outcome="partial"}': 1,
        "query_seconds": 1.5,
        "series": 7,
        "age_seconds": 10,
    }
    setting.failure = PollError("x")
    setting.now += 100
    setting.poll()
    assert setting.exposed()['polls_total{outcome="failed"}'] == 1
    assert setting.exposed()["age_seconds"] == 112

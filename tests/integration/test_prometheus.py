"""Metrics of cards from a real Prometheus that scrapes simulated exporters: both vendors, both generations of names, and faults."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import structlog

from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.metrics_collector import MetricsCollector
from pyscheduler.adapters.prometheus import FAILURES_MAX, IN_FLIGHT, Collected, Memory, collect
from pyscheduler.adapters.prometheus_errors import PrometheusError
from pyscheduler.adapters.worker import Worker
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import FaultConfig
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.metrics_config import MetricsConfig
from tests.integration.prometheus_server import Door, Misbehaviour, Prometheus, await_, program, respond
from tests.sim.exporter import Exporters, small_fleet
from tests.sim.fleet import Generation

HARMLESS = FaultConfig().harmless_xids
FATAL_XID = 79
TIMEOUT_S = 1.0


@dataclass
class Setting:
    """Exporters, the Prometheus that scrapes them, and the door between it and the collector."""

    exporters: Exporters
    prometheus: Prometheus
    door: Door

    def __post_init__(self) -> None:
        self.live = self.exporters.live
        self.nodes = {node.name: node.name for node in self.live.fleet.nodes}
        self.config = MetricsConfig(url=self.door.url, interval_s=5.0, history_s=60.0, timeout_s=TIMEOUT_S)

    def collect(self, memory: Memory | None = None, config: MetricsConfig | None = None) -> Collected:
        """Poll once; without a memory as if the last poll had just been."""
        now = time.time()
        return collect(config or self.config, HARMLESS, self.nodes, memory or Memory(polled=now - 1), now)

    def poll(self) -> Poll:
        """Poll once and return what is there now."""
        return self.collect().polls[-1]

    def cards(self, generation: Generation) -> list[int]:
        """Return the numbers of the cards of an exporter's generation."""
        fleet = self.live.fleet
        return [number for number, card in enumerate(fleet.cards) if fleet.nodes[card.node].exporter is generation]

    def key(self, number: int) -> CardKey:
        """Return the key that a card must have."""
        card = self.live.fleet.cards[number]
        node = self.live.fleet.nodes[card.node]
        return CardKey(node.name, card.uuid.removeprefix("GPU-") if node.exporter is Generation.AMD else card.uuid)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    program()
    live = small_fleet(3)
    live.work(range(len(live.fleet.cards)))
    exporters = Exporters(live)
    with ExitStack() as stack:
        address = stack.enter_context(exporters.serving())
        jobs = [
            {"job_name": node.name, "metrics_path": exporters.path(node.name), "static_configs": [{"targets": [address]}]}
            for node in live.fleet.nodes
        ]
        prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), jobs)
        stack.callback(prometheus.kill)
        prometheus.start()
        await_(prometheus.scrapes, "all exporters are scraped")
        yield Setting(exporters, prometheus, stack.enter_context(Door(prometheus.url).open()))


@pytest.fixture
def setting(running: Setting) -> Iterator[Setting]:
    running.door.asked.clear()
    running.door.at_once = 0
    yield running
    running.door.fault = None
    running.exporters.away.clear()


def values(poll: Poll, quantity: Quantity) -> dict[CardKey, float]:
    column = poll.samples.get(quantity)
    return {} if column is None else {poll.cards[i]: float(v) for i, v in zip(column.cards, column.values, strict=True)}


def served(setting: Setting, number: int, line: str) -> float:
    """What the exporter of a card serves on the line that matches: the oracle reads the text itself."""
    card = setting.live.fleet.cards[number]
    node = setting.live.fleet.nodes[card.node].name
    mark = setting.key(number).uuid
    text = setting.live.text(node)
    return max(float(row.rsplit(" ", 1)[1]) for row in text.splitlines() if re.match(line, row) and mark in row)


def test_cards_of_all_exporters_are_seen_in_one_unit(setting: Setting) -> None:
    poll = setting.poll()
    assert poll.complete
    assert set(poll.cards) == {setting.key(number) for number in range(len(setting.live.fleet.cards))}
    clocks, memory = values(poll, Quantity.SM_CLOCK_HZ), values(poll, Quantity.FB_USED)
    old, new, amd = (setting.cards(generation)[0] for generation in (Generation.OLD, Generation.NEW, Generation.AMD))
    assert clocks[setting.key(old)] == 1e6 * served(setting, old, r"DCGM_FI_DEV_SM_CLOCK\{")
    assert clocks[setting.key(new)] == served(setting, new, r"DCGM_FI_DEV_SM_CLOCK_HERTZ\{")
    assert clocks[setting.key(amd)] == 1e6 * served(setting, amd, r'gpu_clock\{.*clock_type="system"')
    used = [served(setting, new, rf"DCGM_FI_DEV_FB_{kind}_BYTES\{{") for kind in ("USED", "FREE")]
    assert memory[setting.key(new)] == pytest.approx(used[0] / sum(used))
    facts = dict(zip(poll.cards, poll.facts, strict=True))
    assert facts[setting.key(old)].power_limit_w == served(setting, old, r"DCGM_FI_DEV_POWER_MGMT_LIMIT\{")


def test_samples_have_the_times_of_their_scrapes(setting: Setting) -> None:
    before = time.time()
    poll = setting.poll()
    for column in poll.samples.values():
        # Every second; on a busy machine some are late.
        assert (column.times > before - 10).all()
        assert (column.times < poll.at).all()


def test_first_polls_bring_the_past_in_pieces_and_the_next_ones_only_now(setting: Setting) -> None:
    config = replace(setting.config, interval_s=2.0)

    def past() -> list[Collected]:
        found = [setting.collect(Memory(), config)]
        while found[-1].memory.polled is not None and time.time() - found[-1].memory.polled > 2 * config.interval_s:
            found.append(setting.collect(found[-1].memory, config))
        return found

    def long_enough() -> bool:
        return sum(len(each.polls) for each in past()) > 2

    await_(long_enough, "there is a past")
    setting.door.asked.clear()
    pieces = past()
    at = [poll.at for piece in pieces for poll in piece.polls]
    assert {round(later - earlier) for earlier, later in pairwise(at)} == {2}
    assert not any(piece.problems for piece in pieces)
    assert {asked.path for asked in setting.door.asked} == {"/api/v1/query_range"}

    setting.door.asked.clear()
    now = setting.collect(pieces[-1].memory, config)
    assert len(now.polls) == 1
    assert {asked.path for asked in setting.door.asked} == {"/api/v1/query"}
    assert len(setting.door.asked) < len(catalogue()), "what nobody exports is not asked for again at once"


def test_all_is_asked_for_now_when_the_clock_was_set_back(setting: Setting) -> None:
    later = time.time() + 3600.0
    absent = frozenset(metric.name for source in catalogue() for metric in source.metrics)
    found = setting.collect(Memory(polled=later, asked_all=later, absent=absent))
    assert len(found.polls) == 1
    assert Quantity.SM_CLOCK_HZ in found.polls[0].samples, "it may be there by now"
    assert found.memory.polled == found.memory.asked_all == found.polls[0].at < later


def test_queries_go_in_the_body_at_most_four_at_a_time_one_per_metric(setting: Setting) -> None:
    setting.collect()
    queries = [parse_qs(asked.form)["query"][0] for asked in setting.door.asked]
    assert len(set(queries)) == len(queries)
    assert setting.door.at_once <= IN_FLIGHT


def test_fatal_xid_is_seen_from_none_to_one(setting: Setting) -> None:
    number = setting.cards(Generation.NEW)[1]
    key = setting.key(number)
    assert values(setting.poll(), Quantity.XID_FATAL)[key] == 0
    setting.live.raise_xid(number, 13)
    setting.live.raise_xid(number, FATAL_XID)
    try:
        await_(lambda: values(setting.poll(), Quantity.XID_FATAL)[key] == 1, "the fatal one alone is counted")
        assert values(setting.poll(), Quantity.LAST_XID)[key] == FATAL_XID
    finally:
        setting.live.repair(number)


def test_cards_of_an_exporter_that_is_away_are_absent_not_zero(setting: Setting) -> None:
    node = setting.live.fleet.nodes[0].name
    setting.exporters.away.add(node)
    await_(lambda: node not in {card.node for card in setting.poll().cards}, "the series are stale")
    assert setting.poll().complete
    setting.exporters.away.clear()
    await_(lambda: node in {card.node for card in setting.poll().cards}, "they are back")


def test_killed_prometheus_is_told_and_its_gap_asked_for_when_it_is_back(setting: Setting) -> None:
    memory = setting.collect().memory
    setting.prometheus.kill()
    with pytest.raises(PrometheusError, match=r"queries failed .*refused.*is it up, and is metrics.url right\?"):
        setting.collect(memory, replace(setting.config, url=setting.prometheus.url))
    setting.prometheus.start()
    await_(setting.prometheus.scrapes, "it scrapes again")
    setting.door.asked.clear()
    back = setting.collect(replace(memory, polled=time.time() - 30))
    assert not back.problems
    assert {asked.path for asked in setting.door.asked} == {"/api/v1/query_range"}
    assert len(back.polls[-1].cards) == len(setting.live.fleet.cards)


def _silent(handler: BaseHTTPRequestHandler, form: str, body: bytes) -> None:
    # The collector is gone before; the thread of the door ends with the test's process at the latest.
    threading.Event().wait(3 * TIMEOUT_S)


def _dripping(handler: BaseHTTPRequestHandler, form: str, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    try:
        for byte in body:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            threading.Event().wait(TIMEOUT_S / 10)
    except OSError:
        handler.close_connection = True


def _status(status: int, text: str) -> Misbehaviour:
    return lambda handler, _, __: respond(handler, status, text.encode())


def _changed(change: Callable[[bytes], bytes]) -> Misbehaviour:
    return lambda handler, _, body: respond(handler, 200, change(body))


NO_SERVICE = '{"status": "error", "errorType": "unavailable", "error": "starting"}'


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param(_silent, r"took longer than 1 s: is it overloaded\? Raise metrics.timeout", id="no answer"),
        pytest.param(_dripping, r"took longer than 1 s: is it overloaded\? Raise metrics.timeout", id="an answer byte by byte"),
        pytest.param(_status(500, "oh no"), r"got HTTP 500 \(oh no\): see the log of Prometheus", id="500"),
        pytest.param(_status(503, NO_SERVICE), r"got HTTP 503 \(unavailable: starting\): see the log", id="503"),
        pytest.param(_status(401, "who?"), r"got HTTP 401 \(who\?\): check metrics.tokenFile", id="401"),
        pytest.param(_status(404, "<html>"), r"got HTTP 404 .*needs the path before /api/v1", id="404"),
        pytest.param(_changed(lambda body: body[: len(body) // 2]), r"in place of series: is metrics.url that of", id="cut JSON"),
        pytest.param(
            lambda h, _, b: respond(h, 200, b, len(b) + 9), r"IncompleteRead|cannot be read|failed", id="cut connection"
        ),
        pytest.param(
            _changed(lambda _: b"<html>sign in</html>"),
            r"queries got '<html>sign in</html>' in place of series: is metrics.url",
            id="a page",
        ),
        pytest.param(_changed(lambda _: b"[]"), r"got '\[\]' in place of series", id="JSON of something else"),
    ],
)
def test_failure_of_all_queries_is_one_sentence_with_the_remedy(setting: Setting, fault: Misbehaviour, says: str) -> None:
    setting.door.fault = fault
    begun = time.monotonic()
    with pytest.raises(PrometheusError, match=says) as caught:
        setting.collect()
    assert setting.door.url in str(caught.value)
    assert "\n" not in str(caught.value)
    # Two questions one after the other and their repetitions, at most: the rest is not asked.
    assert time.monotonic() - begun < 10
    assert len(setting.door.asked) <= 3 * (FAILURES_MAX + IN_FLIGHT)


def test_failure_of_one_query_leaves_the_others(setting: Setting) -> None:
    def fault(handler: BaseHTTPRequestHandler, form: str, body: bytes) -> None:
        if "gpu_health" in form:
            respond(handler, 422, b'{"errorType": "execution", "error": "too many samples"}')
        else:
            respond(handler, 200, body)

    setting.door.fault = fault
    found = setting.collect()
    assert not found.polls[-1].complete
    assert len(found.polls[-1].cards) == len(setting.live.fleet.cards)
    assert any("HTTP 422 (execution: too many samples)" in problem for problem in found.problems)


def test_warning_makes_the_poll_incomplete(setting: Setting) -> None:
    def warn(body: bytes) -> bytes:
        return json.dumps({**json.loads(body), "warnings": ["store b is away"]}).encode()

    setting.door.fault = _changed(warn)
    found = setting.collect()
    assert not found.polls[-1].complete
    assert found.polls[-1].cards
    assert found.problems == (f"{setting.door.url}: the answer may be partial, it says: store b is away",)


def test_prometheus_without_cards_is_no_empty_cluster(setting: Setting) -> None:
    setting.door.fault = _changed(lambda _: b'{"status": "success", "data": {"resultType": "vector", "result": []}}')
    found = setting.collect()
    assert not found.polls[-1].complete
    assert "has no metric of a card" in found.problems[0]


def test_token_is_read_anew_and_headers_are_sent(setting: Setting, tmp_path: Path) -> None:
    token = tmp_path / "token"
    config = replace(setting.config, token_file=str(token), headers={"X-Scope-OrgID": "team"})
    for text in ("first", "second"):
        token.write_text(f"{text}\n")
        setting.collect(config=config)
        sent = {(asked.headers["Authorization"], asked.headers["X-Scope-OrgID"]) for asked in setting.door.asked}
        assert sent == {(f"Bearer {text}", "team")}
        setting.door.asked.clear()


def test_user_and_password_are_sent(setting: Setting, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    setting.collect(config=replace(setting.config, username="ali", password_file=str(tmp_path / "password")))
    # printf 'ali:open sesame' | base64
    assert {asked.headers["Authorization"] for asked in setting.door.asked} == {"Basic YWxpOm9wZW4gc2VzYW1l"}


@pytest.mark.parametrize("key", ["token_file", "ca_file", "cert_file"])
def test_file_that_is_not_there_is_named_with_its_key(setting: Setting, tmp_path: Path, key: str) -> None:
    head, tail = key.split("_")
    says = rf"metrics\.{head}{tail.title()}: .*none cannot be read .*: name a file that is there"
    with pytest.raises(PrometheusError, match=says):
        setting.collect(config=replace(setting.config, **{key: str(tmp_path / "none")}))  # type: ignore[arg-type]


def test_collector_polls_in_the_worker_process(setting: Setting) -> None:
    polls: list[Poll] = []
    worker = Worker()
    metrics = Metrics(structlog.get_logger())

    def ask(nodes: Mapping[str, str], memory: Memory, now: float) -> Collected:
        collected = worker.run(collect, setting.config, HARMLESS, nodes, memory, now)
        polls.extend(collected.polls)
        return collected

    collector = MetricsCollector(ask, lambda: setting.nodes, 5.0, metrics, structlog.get_logger())
    try:
        begun = time.time()
        collector.start()
        await_(lambda: polls and polls[-1].at >= begun, "the past is read")
        await_(lambda: len(polls[-1].cards) == len(setting.live.fleet.cards), "the newest poll has all cards")
    finally:
        collector.stop()
        worker.stop()
    lines = dict(line.rsplit(" ", 1) for line in metrics.exposition().decode().splitlines() if not line.startswith("#"))
    assert float(lines['pyscheduler_metric_polls_total{outcome="complete"}']) >= 1
    assert float(lines["pyscheduler_metric_series"]) > 1000
    assert 0 <= float(lines["pyscheduler_metric_age_seconds"]) < 30

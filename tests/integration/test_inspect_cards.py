"""What a running service tells of the capacity of cards: ListCards on a real socket, and `pyscheduler capacity` that asks it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from pyscheduler.cli.main import main
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.config import Mode
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.states import State
from pyscheduler.core.capacity.table import CardCapacity
from pyscheduler.edge.card_views import PAGE_MAX, CardViews
from pyscheduler.edge.changes import Changes
from pyscheduler.edge.inspect_client import ServiceError, capacity
from pyscheduler.edge.inspect_servicer import InspectServicer
from pyscheduler.edge.pb.v1 import inspect_pb2 as pb
from pyscheduler.edge.pb.v1 import inspect_pb2_grpc
from pyscheduler.edge.plugin_servicer import PluginServicer
from pyscheduler.edge.server import EdgeServer
from tests.builders import node, planner

URL = "http://prometheus.monitoring:9090"
H100, MI300X = "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"


@dataclass(frozen=True)
class Collected:
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Polled:
    """What the collector says of its last poll."""

    collected: Collected | None = Collected()
    failure: str = ""
    frozen: bool = False


class Source:
    """Cards that a test sets."""

    def __init__(self) -> None:
        self.there: list[CardCapacity] = []
        self.polled: Polled | None = Polled()
        self.age = 12.0

    def cards(self) -> list[CardCapacity]:
        return self.there

    def status(self) -> Polled | None:
        return self.polled

    def age_s(self) -> float:
        return self.age


def card(name: str, uuid: str, state: State = State.HEALTHY, **fields: object) -> CardCapacity:
    good = CardCapacity(
        card=CardKey(name, uuid),
        model=H100,
        health=1.0,
        speed=0.97,
        available=None,
        score=0.96,
        relative_speed=1.01,
        excluded=False,
        state=state,
        since=1_000.0,
        evidence="it is 1 % faster than the median of its 7 peers at like load",
        age_s=8.0,
        confidence=0.5,
    )
    return replace(good, **fields)  # type: ignore[arg-type]


class Quiet:
    def call(self, *_: object, **__: object) -> None:
        """Keep nothing."""

    def failed(self, method: str, cause: BaseException, **_: object) -> None:
        raise AssertionError(method) from cause


class Service:
    """An edge on a socket, with or without a collector."""

    def __init__(self, path: Path, views: CardViews | None) -> None:
        self.path = path
        self.lock = threading.Lock()
        planner_ = planner(node("n1"))
        log = Quiet()
        common = {"ready": lambda: True, "clock": lambda: 0.0, "log": log, "version": "test"}
        self._changes = Changes(planner_, self.lock, lambda: 0.0, log)
        plugin = PluginServicer(planner_, self.lock, changes=self._changes, settle=lambda _: None, **common)  # type: ignore[arg-type]
        inspect = InspectServicer(planner_.cluster, self.lock, cards=views, **common)  # type: ignore[arg-type]
        self._server = EdgeServer(path, plugin, inspect)
        self._server.start()
        self._channel = grpc.insecure_channel(f"unix:{path}")
        self.stub = inspect_pb2_grpc.InspectStub(self._channel)

    def list(self, **fields: object) -> pb.ListCardsResponse:
        return self.stub.ListCards(pb.ListCardsRequest(**fields), timeout=10)  # type: ignore[arg-type]

    def stop(self) -> None:
        self._changes.stop()
        self._channel.close()
        self._server.stop(1.0)


Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Service] = []

    def begin(source: Source | None, mode: Mode = Mode.LAYERED, url: str = URL) -> Service:
        views = CardViews(source, mode, url) if source else None
        running.append(Service(tmp_path / f"{len(running)}.sock", views))
        return running[-1]

    yield begin
    for service in running:
        service.stop()


@pytest.fixture
def source() -> Source:
    made = Source()
    slow = {"speed": 0.5, "score": 0.5, "relative_speed": 0.85, "evidence": "it is 15 % slower"}
    slow |= {"timer_s": 90.0, "timer_end_s": 300.0}
    made.there = [
        card("n2", "GPU-c", State.SUSPECT),
        card("n1", "GPU-b", State.DEGRADED, excluded=True, **slow),
        card("n1", "GPU-a"),
        card("n3", "amd-1", State.UNKNOWN, model=MI300X, relative_speed=None, since=None, age_s=None, available=0.25),
    ]
    return made


def names(answer: pb.ListCardsResponse) -> list[str]:
    return [value.uuid for value in answer.cards]


def test_cards_come_in_order_with_all_that_is_known(start: Start, source: Source) -> None:
    answer = start(source).list()
    assert names(answer) == ["GPU-a", "GPU-b", "GPU-c", "amd-1"]
    bad, amd = answer.cards[1], answer.cards[3]
    assert (bad.node, bad.model, bad.state, bad.excluded, bad.since) == ("n1", H100, "degraded", True, 1_000.0)
    assert (bad.health, bad.speed, bad.score, bad.relative_speed, bad.age_seconds) == (1.0, 0.5, 0.5, 0.85, 8.0)
    assert (bad.evidence, bad.confidence, bad.HasField("available")) == ("it is 15 % slower", 0.5, False)
    assert (bad.timer_seconds, bad.timer_end_seconds) == (90.0, 300.0)
    assert amd.available == 0.25
    assert not any(map(amd.HasField, ("relative_speed", "since", "age_seconds", "timer_seconds", "timer_end_seconds")))
    assert answer.next_page_token == ""


def test_filters_leave_cards_out_and_not_the_counts(start: Start, source: Source) -> None:
    service = start(source)
    assert names(service.list(only_bad=True)) == ["GPU-b", "GPU-c"]
    assert names(service.list(node="n1", only_bad=True)) == ["GPU-b"]
    answer = service.list(node="nowhere")
    assert names(answer) == []
    counts = {(count.model, count.state): (count.cards, count.excluded) for count in answer.status.counts}
    assert counts == {
        (MI300X, "unknown"): (1, 0),
        (H100, "healthy"): (1, 0),
        (H100, "suspect"): (1, 0),
        (H100, "degraded"): (1, 1),
    }


def test_every_card_that_is_excluded_or_warns_is_bad_whatever_its_state(start: Start, source: Source) -> None:
    source.there = [card("n1", "GPU-a", excluded=True), card("n1", "GPU-b", State.FAILED), card("n1", "GPU-c", State.PROBATION)]
    source.there += [card("n1", "GPU-d", health=0.8), card("n1", "GPU-e"), replace(card("n1", "GPU-f"), unlocated=True)]
    assert names(start(source, Mode.CLASSIC).list(only_bad=True)) == ["GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-f"]


def test_pages_go_on_behind_the_last_card_though_cards_come_and_go(start: Start, source: Source) -> None:
    service = start(source)
    first = service.list(page_size=2)
    assert names(first) == ["GPU-a", "GPU-b"]
    source.there = [each for each in source.there if each.card.uuid != "GPU-b"] + [card("n0", "GPU-0"), card("n2", "GPU-d")]
    second = service.list(page_size=2, page_token=first.next_page_token)
    assert names(second) == ["GPU-c", "GPU-d"]
    last = service.list(page_size=2, page_token=second.next_page_token)
    assert (names(last), last.next_page_token) == (["amd-1"], "")


@pytest.mark.parametrize("token", ["2", "[]", '["n1"]', "{", '{"a": 1}', "null", "[1, 2, 3, 4]"])
def test_page_token_that_is_none_of_ours_is_refused(start: Start, source: Source, token: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        start(source).list(page_token=token)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "page_token" in str(refused.value.details())


def test_fleet_of_many_pages_comes_whole(start: Start, source: Source) -> None:
    source.there = [card(f"n{number // 8:05}", f"GPU-{number:036}") for number in range(2 * PAGE_MAX + 8)]
    service = start(source)
    assert len(service.list(page_size=1_000_000).cards) == PAGE_MAX
    shown = capacity(str(service.path))["cards"]
    assert [each["uuid"] for each in shown] == [each.card.uuid for each in source.there]


def test_cards_are_told_while_the_planner_is_at_work(start: Start, source: Source) -> None:
    service = start(source)
    with service.lock:
        assert len(service.list().cards) == 4


def test_status_tells_how_the_last_poll_went(start: Start, source: Source) -> None:
    service = start(source)
    source.polled = Polled(Collected(("the answer may be partial",)), frozen=True)
    status = service.list().status
    assert (status.mode, status.url, status.polled, status.frozen, status.age_seconds) == ("layered", URL, True, True, 12.0)
    assert list(status.problems) == ["the answer may be partial"]
    source.polled = Polled(None, "Prometheus is away")
    assert list(service.list().status.problems) == ["Prometheus is away"]
    source.polled, source.age, source.there = None, -1.0, []
    status = service.list().status
    assert (status.polled, status.HasField("age_seconds"), list(status.problems)) == (False, False, [])


def test_breaker_is_open_for_models_of_which_slow_cards_are_handed_out(start: Start, source: Source) -> None:
    source.there.append(card("n4", "GPU-z", State.DEGRADED, model=MI300X))
    assert list(start(source).list().status.open_breakers) == [MI300X]
    source.there.append(replace(card("n5", "GPU-y", State.DEGRADED, model=H100), unlocated=True))
    assert list(start(source).list().status.open_breakers) == [MI300X], "no breaker hands out what cannot be located"
    # There a state is that of a card, and whole nodes are kept out.
    assert list(start(source, Mode.CLASSIC).list().status.open_breakers) == []


def test_cards_of_the_detector_bring_their_models(start: Start, source: Source) -> None:
    judge = Capacity()
    keys = [CardKey("n1", "GPU-1"), CardKey("n1", "GPU-2"), CardKey("n2", "GPU-3")]
    judge.observe(Poll(100.0, complete=True, cards=keys, samples={}, facts=[CardFacts(H100), CardFacts(), CardFacts(MI300X)]))
    source.there = list(judge.table(100.0))
    assert [each.model for each in start(source).list().cards] == [H100, "", MI300X]


# -- the command ------------------------------------------------------------------------------------------------------------


class Run:
    """One call of `pyscheduler capacity`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["pyscheduler", "capacity", *words])
        with pytest.raises(SystemExit) as end:
            main()
        self.code = end.value.code or 0
        self.out, self.err = capfd.readouterr()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return lambda *words: Run(monkeypatch, capfd, *words)


def test_table_has_a_line_for_each_card_and_a_summary(start: Start, source: Source, run: Callable[..., Run]) -> None:
    source.polled = Polled(Collected(("metric x: cut",)), frozen=True)
    source.there.append(card("n4", "GPU-z", State.DEGRADED, model=MI300X))
    done = run("--socket", str(start(source).path))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"{URL}, newest sample 12s ago; mode layered"
    assert lines[1:3] == [
        f"{MI300X}: 2 cards, 1 unknown, 1 degraded; 0 kept out",
        f"{H100}: 3 cards, 1 healthy, 1 suspect, 1 degraded; 1 kept out",
    ]
    assert lines[3].startswith(f"breaker open: so many {MI300X} look slow")
    assert lines[4].startswith("frozen: ")
    assert lines[5:7] == ["problem: metric x: cut", ""]
    assert " ".join(lines[7].split()) == "NODE CARD MODEL STATE FOR TIMER OUT SCORE H I A SPEED AGE WHY"
    bad = next(line for line in lines if "GPU-b" in line)
    assert "degraded" in bad
    assert bad.endswith("90s/5m  yes  0.50   1.00  0.50  -     0.85   8s   it is 15 % slower")
    assert next(line for line in lines if "amd-1" in line).split()[5:12] == ["unknown", "-", "-", "no", "0.96", "1.00", "0.97"]


def test_node_and_bad_choose_the_lines(start: Start, source: Source, run: Callable[..., Run]) -> None:
    socket = str(start(source).path)
    assert "GPU-b" in run("--socket", socket, "--node", "n1", "--bad").out
    done = run("--socket", socket, "--node", "n3", "--bad")
    assert (done.code, done.out.splitlines()[-1]) == (0, "no card to show")


def test_json_has_status_and_cards(start: Start, source: Source, run: Callable[..., Run]) -> None:
    document = json.loads(run("--socket", str(start(source).path), "-o", "json").out)
    assert (document["version"], document["kind"], document["status"]["mode"]) == (1, "capacity", "layered")
    assert [each["uuid"] for each in document["cards"]] == ["GPU-a", "GPU-b", "GPU-c", "amd-1"]
    assert document["cards"][3]["relative_speed"] is None
    timers = [(each["timer_seconds"], each["timer_end_seconds"]) for each in document["cards"]]
    assert timers == [(None, None), (90.0, 300.0), (None, None), (None, None)]


def test_socket_is_read_from_the_configuration(start: Start, source: Source, run: Callable[..., Run], tmp_path: Path) -> None:
    config = tmp_path / "pyscheduler.yaml"
    config.write_text(f"socket: {start(source).path}\n")
    assert "GPU-b" in run("--config", str(config)).out


def test_service_without_prometheus_is_one_sentence_until_others_say_something(
    start: Start, source: Source, run: Callable[..., Run]
) -> None:
    there, source.there, source.age = source.there, [], -1.0
    service = start(source, url="")
    done = run("--socket", str(service.path))
    assert (done.code, done.out.count("\n")) == (1, 1)
    assert "set metrics.url" in done.out
    assert json.loads(run("--socket", str(service.path), "-o", "json").out)["status"] is None
    source.there = there
    done = run("--socket", str(service.path))
    assert done.code == 0
    assert done.out.splitlines()[1] == "what others say of cards counts all the same; mode layered"
    assert "set metrics.url" in done.out
    assert "GPU-b" in done.out


def test_no_card_at_all_names_doctor(start: Start, source: Source, run: Callable[..., Run]) -> None:
    source.there = []
    done = run("--socket", str(start(source).path))
    assert (done.code, done.out.splitlines()[1]) == (1, "no metric of a card has come: `pyscheduler doctor` finds out why")
    source.polled, source.age = None, -1.0
    assert run("--socket", str(start(source).path)).out.splitlines() == [
        f"{URL}, no sample yet; mode layered",
        "the first poll is not over yet: ask again",
    ]


def test_foreign_text_does_not_steer_the_terminal(start: Start, source: Source, run: Callable[..., Run]) -> None:
    source.there = [card("n\x1b[31m", "GPU-\x07", model="m\n")]
    done = run("--socket", str(start(source).path))
    assert not [letter for letter in done.out.replace("\n", "") if not letter.isprintable()]
    assert len(done.out.splitlines()) == 5


def test_long_texts_are_cut_in_the_table(start: Start, source: Source, run: Callable[..., Run]) -> None:
    source.there = [card("n1", "G" * 3000, model="M" * 3000)]
    done = run("--socket", str(start(source).path))
    assert max(map(len, done.out.splitlines())) < 500
    assert "G" * 40 in done.out


def test_without_a_service_it_says_where_to_look(run: Callable[..., Run], tmp_path: Path) -> None:
    done = run("--socket", str(tmp_path / "none.sock"))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "none.sock" in done.err
    assert "--socket" in done.err


def test_socket_that_a_dead_service_left_says_the_same(tmp_path: Path) -> None:
    left = tmp_path / "left.sock"
    left.touch()
    with pytest.raises(ServiceError, match=r"no service answers at .*left.sock: run this"):
        capacity(str(left))


def test_older_service_is_told_from_a_dead_one(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{tmp_path}/old.sock")
    server.start()
    try:
        with pytest.raises(ServiceError, match="older than this command"):
            capacity(f"{tmp_path}/old.sock")
    finally:
        server.stop(None).wait()


def test_bug_of_the_service_names_its_log(start: Start, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[CardCapacity]:
        raise ZeroDivisionError

    monkeypatch.setattr(source, "cards", broken)
    monkeypatch.setattr(Quiet, "failed", lambda *_, **__: None)
    with pytest.raises(ServiceError, match=r"INTERNAL .*see its log"):
        capacity(str(start(source).path))

"""List and watch against an HTTP server that answers as an API server does, faults included."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import structlog

from pyscheduler.adapters import watch as watch_module
from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.watch import Watcher
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.lists import Page

Query = dict[str, str]


class FakeApi:
    """Answers each request with the next prepared answer for its kind, and keeps what was asked.

    `lists` are (status, body); `watches` are lists of events, where None keeps the connection open until `stop`.
    """

    def __init__(self) -> None:
        self.lists: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self.watches: queue.Queue[list[dict[str, Any] | None]] = queue.Queue()
        self.asked: queue.Queue[Query] = queue.Queue()
        self.stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
                fake.asked.put(query)
                if "watch" in query:
                    self._watch(fake.watches.get(timeout=20))
                else:
                    status, body = fake.lists.get(timeout=20)
                    self._send(status, json.dumps(body).encode())

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _watch(self, events: list[dict[str, Any] | None]) -> None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for event in events:
                    if event is None:
                        fake.stopped.wait(20)
                        return
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *args: object) -> None:
                pass

        return Handler


class Told:
    """Keeps in order what the watcher tells."""

    watcher: Watcher[str]
    metrics: Metrics

    def __init__(self) -> None:
        self.queue: queue.Queue[tuple[str, Any]] = queue.Queue()

    def replace(self, items: list[str]) -> None:
        self.queue.put(("replace", items))

    def changed(self, raw: dict[str, Any]) -> None:
        if raw["metadata"]["name"] == "poison":
            raise RecursionError("an object that trips a bug")
        self.queue.put(("changed", raw["metadata"]["name"]))

    def gone(self, raw: dict[str, Any]) -> None:
        self.queue.put(("gone", raw["metadata"]["name"]))

    def failures(self) -> float:
        """Return how many lists and watches have failed."""
        lines = self.metrics.exposition().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("pyscheduler_watch_failures_total"))

    def next(self) -> tuple[str, Any]:
        return self.queue.get(timeout=20)


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    server = FakeApi()
    yield server
    server.stop()


@pytest.fixture
def start(fake: FakeApi, tmp_path: Path) -> Iterator[Callable[..., Told]]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": fake.url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    logger = structlog.get_logger()
    died = threading.Event()
    started: list[Watcher[str]] = []

    def begin(read_page: Callable[[bytes], Page[str]] = _read) -> Told:
        told = Told()
        told.metrics = Metrics(logger)
        watcher: Watcher[str] = Watcher(
            ApiServer(str(kubeconfig)),
            "things",
            "/things",
            selector={"fieldSelector": "a=b"},
            read_page=read_page,
            sink=told,
            metrics=told.metrics,
            logger=logger,
            died=died.set,
        )
        told.watcher = watcher
        watcher.start()
        started.append(watcher)
        return told

    yield begin
    for watcher in started:
        watcher.stop()
    assert not died.is_set()


def _read(text: bytes) -> Page[str]:
    raw = json.loads(text)
    names = [item["metadata"]["name"] for item in raw["items"]]
    return Page(names, raw["metadata"].get("continue", ""), raw["metadata"]["resourceVersion"])


def _list(version: str, *names: str, more: str = "") -> tuple[int, dict[str, Any]]:
    items = [{"metadata": {"name": name}} for name in names]
    return 200, {"metadata": {"resourceVersion": version, "continue": more}, "items": items}


def _event(kind: str, version: str, name: str = "x") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}


def test_pages_are_read_to_the_end_and_told_as_one_list(fake: FakeApi, start: Callable[[], Told]) -> None:
    fake.lists.put(_list("5", "a", "b", more="token"))
    fake.lists.put(_list("5", "c"))
    fake.watches.put([None])
    told = start()
    assert told.next() == ("replace", ["a", "b", "c"])
    first, second, watched = (fake.asked.get(timeout=20) for _ in range(3))
    assert (first["limit"], first["fieldSelector"], second["continue"]) == ("500", "a=b", "token")
    assert (watched["resourceVersion"], watched["allowWatchBookmarks"], watched["fieldSelector"]) == ("5", "true", "a=b")


def test_watch_goes_on_from_the_last_event_or_bookmark(fake: FakeApi, start: Callable[[], Told]) -> None:
    fake.lists.put(_list("5"))
    fake.watches.put(
        [_event("ADDED", "6", "a"), _event("MODIFIED", "7", "a"), _event("DELETED", "8", "a"), _event("BOOKMARK", "40")]
    )
    fake.watches.put([None])
    told = start()
    assert [told.next() for _ in range(4)] == [("replace", []), ("changed", "a"), ("changed", "a"), ("gone", "a")]
    asked = [fake.asked.get(timeout=20) for _ in range(3)]
    assert asked[2]["resourceVersion"] == "40"


@pytest.mark.parametrize("how", ["as an event", "as a status"])
def test_version_that_is_gone_lists_again(fake: FakeApi, start: Callable[[], Told], how: str) -> None:
    fake.lists.put(_list("5", "a"))
    if how == "as an event":
        fake.watches.put([GONE])
        fake.lists.put(_list("90", "b"))
    else:
        # The second page of a list can be gone, too.
        fake.lists.queue[0][1]["metadata"]["continue"] = "token"
        fake.lists.put((410, {"message": "too old"}))
        fake.lists.put(_list("90", "b"))
    fake.watches.put([None])
    told = start()
    if how == "as an event":
        assert told.next() == ("replace", ["a"])
    assert told.next() == ("replace", ["b"])


def test_refusal_is_retried_until_it_is_granted(fake: FakeApi, start: Callable[[], Told]) -> None:
    fake.lists.put((403, {"message": "things is forbidden"}))
    fake.lists.put(_list("5", "a"))
    fake.watches.put([None])
    assert start().next() == ("replace", ["a"])


def test_silent_connection_is_given_up_and_resumed(
    fake: FakeApi, start: Callable[[], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "SILENCE_S", 0.3)
    fake.lists.put(_list("5"))
    fake.watches.put([_event("ADDED", "6", "a"), None])
    fake.watches.put([_event("ADDED", "7", "b"), None])
    told = start()
    assert [told.next() for _ in range(3)] == [("replace", []), ("changed", "a"), ("changed", "b")]
    asked = [fake.asked.get(timeout=20) for _ in range(3)]
    assert asked[2]["resourceVersion"] == "6"
    assert told.failures() == 1, "where there was an event, there are bookmarks, too"


def test_watch_in_which_nothing_happens_is_opened_again_and_is_no_failure(
    fake: FakeApi, start: Callable[[], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "SILENCE_S", 0.3)
    fake.lists.put(_list("5"))
    for _ in range(3):
        fake.watches.put([None])
    fake.watches.put([_event("ADDED", "6", "a"), None])
    told = start()
    assert [told.next() for _ in range(2)] == [("replace", []), ("changed", "a")]
    asked = [fake.asked.get(timeout=20) for _ in range(5)]
    assert [each["resourceVersion"] for each in asked[1:]] == ["5"] * 4
    assert told.failures() == 0


def test_server_that_hangs_after_a_watch_in_which_nothing_happened_is_a_failure(
    fake: FakeApi, start: Callable[[], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "SILENCE_S", 0.3)
    fake.lists.put(_list("5"))
    fake.watches.put([None])
    # There is no other watch: the server takes the request and says nothing, not even that it has begun.
    told = start()
    for _ in range(4):  # the list, the watch, the one that hangs, and the next try
        fake.asked.get(timeout=20)
    assert told.failures() >= 1
    assert told.watcher.blind_s() > 0


def test_unusable_kubeconfig_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(KubernetesError, match="name a readable kubeconfig"):
        ApiServer(str(tmp_path / "none"))


def test_object_that_trips_a_bug_harms_only_itself(fake: FakeApi, start: Callable[[], Told]) -> None:
    fake.lists.put(_list("5"))
    fake.watches.put([_event("ADDED", "6", "poison"), _event("ADDED", "7", "sound"), None])
    told = start()
    assert [told.next() for _ in range(2)] == [("replace", []), ("changed", "sound")]


def test_list_is_read_again_after_the_next_event_when_asked(fake: FakeApi, start: Callable[[], Told]) -> None:
    fake.lists.put(_list("5", "a"))
    told = start()
    assert told.next() == ("replace", ["a"])
    told.watcher.relist()
    fake.lists.put(_list("9", "a", "b"))
    fake.watches.put([_event("ADDED", "6", "b"), _event("ADDED", "7", "never read"), None])
    fake.watches.put([_event("ADDED", "10", "c"), _event("ADDED", "11", "d"), None])
    assert [told.next() for _ in range(2)] == [("changed", "b"), ("replace", ["a", "b"])]
    # Once is enough.
    assert [told.next() for _ in range(2)] == [("changed", "c"), ("changed", "d")]
    asked = [fake.asked.get(timeout=20) for _ in range(4)]
    assert ["watch" in query for query in asked] == [False, True, False, True]
    assert asked[3]["resourceVersion"] == "9"


def test_list_that_is_asked_for_while_one_is_read_is_not_forgotten(fake: FakeApi, start: Callable[[], Told]) -> None:
    """Its first pages were read in the old way."""
    fake.lists.put(_list("5", "a", more="token"))
    told = start()
    assert "continue" not in fake.asked.get(timeout=20)
    assert "continue" in fake.asked.get(timeout=20)
    told.watcher.relist()
    fake.lists.put(_list("5", "b"))
    assert told.next() == ("replace", ["a", "b"])
    fake.watches.put([_event("BOOKMARK", "8")])
    fake.lists.put(_list("9", "c"))
    fake.watches.put([None])
    assert told.next() == ("replace", ["c"])


def test_list_that_fails_is_read_again_all_the_same(fake: FakeApi, start: Callable[[], Told]) -> None:
    fake.lists.put(_list("5", "a"))
    told = start()
    assert told.next() == ("replace", ["a"])
    told.watcher.relist()
    fake.watches.put([_event("BOOKMARK", "6")])
    fake.lists.put((500, {"message": "etcd is away"}))
    fake.lists.put(_list("9", "b"))
    fake.watches.put([None])
    assert told.next() == ("replace", ["b"])


def test_worker_that_ends_before_the_watch_does_is_no_death_of_the_watch(fake: FakeApi, start: Callable[..., Told]) -> None:
    stopped = threading.Event()

    def read_page(_: bytes) -> Page[str]:
        stopped.wait(20)
        raise RuntimeError("cannot schedule new futures after shutdown")

    fake.lists.put(_list("5", "a"))
    others = set(threading.enumerate())
    told = start(read_page)
    (thread,) = (each for each in set(threading.enumerate()) - others if each.name == "watch-things")
    told.watcher.stop()
    stopped.set()
    thread.join(20)
    assert not thread.is_alive()
    # The fixture sees whether it died.

"""What is told of answers that are none, and of secrets that cannot be sent. A server here answers with whatever the test sets."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pyscheduler.adapters.prometheus import Collected, Memory, collect
from pyscheduler.adapters.prometheus_errors import PrometheusError
from pyscheduler.cli.doctor_questions import ask
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.metrics_config import MetricsConfig
from tests.integration.prometheus_server import respond

NOTHING = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'


class Server:
    """Answers every query with `status` and `body`, or, where its text has one of `bad`, with 500."""

    def __init__(self) -> None:
        self.status, self.body = 200, NOTHING
        self.bad: Sequence[str] = ()
        self.authorizations: set[str] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                server.authorizations.add(self.headers["Authorization"] or "")
                if any(name in form for name in server.bad):
                    respond(self, 422, b'{"errorType": "execution", "error": "too many samples"}')
                else:
                    respond(self, server.status, server.body)

            def log_message(self, *_: object) -> None:
                """Keep silent."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.config = MetricsConfig(url=f"http://127.0.0.1:{self.http.server_address[1]}", timeout_s=5)

    def collect(self, **settings: str) -> Collected:
        now = time.time()
        config = MetricsConfig(url=self.config.url, timeout_s=5, **settings)  # type: ignore[arg-type]
        return collect(config, (), {}, Memory(polled=now - 1), now)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"[" * 200_000, f"got '{'[' * 80}…' in place of series: is metrics.url"),
        (b"", "got an empty answer: is metrics.url"),
        (b"null", "got 'null' in place of series"),
        (b"<html>\n<body>\x1b[31mSign in</body>", "got '<html> <body> [31mSign in</body>' in place of series"),
        (b'{"status": "success", "data": null}', "in place of series"),
        (b'{"data": {"resultType": "scalar", "result": [1, "2"]}}', "in place of series"),
        (b'{"data": {"result": [{"metric": null, "value": [1, "2"]}]}}', "in place of series"),
        (b'{"status": ' + b"9" * 5000 + b"}", "in place of series"),
        (
            b'{"status": "error", "errorType": "execution", "error": "would load too many\\u001b samples"}',
            "got an error (execution: would load too many samples): raise the limit that it names",
        ),
    ],
    ids=["deep", "empty", "null", "page", "no data", "scalar", "no labels", "long number", "error with status 200"],
)
def test_answer_that_is_none_is_one_sentence_with_what_came(server: Server, body: bytes, says: str) -> None:
    server.body = body
    with pytest.raises(PrometheusError) as of_a_poll:
        server.collect()
    with pytest.raises(PrometheusError) as of_doctor:
        ask(server.config, (), {}, time.time())
    for text in (str(of_a_poll.value), str(of_doctor.value)):
        assert says in text
        assert text.isprintable()
        assert len(text) < 400


def test_request_in_plain_text_that_the_server_itself_refuses_is_told(server: Server) -> None:
    server.status, server.body = 400, b"Client sent an HTTP request to an HTTPS server.\n"
    with pytest.raises(PrometheusError, match=r"queries got HTTP 400 \(Client sent .*\): write https:// in metrics\.url"):
        server.collect()


def test_warnings_of_another_form_are_none(server: Server) -> None:
    for warnings in ("text", 5, [5, None]):
        server.body = json.dumps({**json.loads(NOTHING), "warnings": warnings}).encode()
        assert [problem for problem in server.collect().problems if "partial" in problem] == []


def test_failure_of_many_queries_is_told_alike_whichever_fail_first(server: Server) -> None:
    names = [metric.name for source in catalogue() for metric in source.metrics]
    told = set()
    for bad in (names[:30], names[30:60], names):
        server.bad = bad
        try:
            told.add(server.collect().problems[0])
        except PrometheusError as cause:
            told.add(str(cause))
    limit = "raise the limit that it names, or report the query"
    assert told == {f"{server.config.url}: queries got HTTP 422 (execution: too many samples): {limit}"}


def test_failure_of_two_queries_names_them_in_order(server: Server) -> None:
    server.bad = ("gpu_health", "gpu_gfx_activity")
    problems = [problem for problem in server.collect().problems if "HTTP 422" in problem]
    assert [problem.split()[4] for problem in problems] == ["gpu_gfx_activity", "gpu_health"]


SECRET = "hunter2"  # noqa: S105


@pytest.mark.parametrize("key", ["tokenFile", "passwordFile"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (f"{SECRET}\n{SECRET}\n".encode(), "has more than one line: write the"),
        (f"{SECRET}\r{SECRET}".encode(), "has more than one line: write the"),
        (f"{SECRET}\x00\n".encode(), "holds a character that cannot be sent: write the"),
        (f"{SECRET}\x7f\n".encode(), "holds a character that cannot be sent: write the"),
        (b"", "is empty: write the"),
        (b"\n", "is empty: write the"),
    ],
)
def test_secret_that_cannot_be_sent_is_told_by_its_key_and_not_shown(
    server: Server, tmp_path: Path, key: str, content: bytes, says: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    settings = {"token_file": str(path)} if key == "tokenFile" else {"username": "ali", "password_file": str(path)}
    with pytest.raises(PrometheusError) as caught:
        server.collect(**settings)
    assert str(caught.value).startswith(f"metrics.{key}: {says} {key.removesuffix('File')}")
    assert SECRET not in str(caught.value)
    assert server.authorizations == set(), "nobody was asked"


@pytest.mark.parametrize("content", ["\ufeff" + SECRET, f"{SECRET}ü", f"{SECRET}€"])
def test_token_with_other_than_ascii_is_refused(server: Server, tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content, encoding="utf-8")
    with pytest.raises(PrometheusError, match=r"^metrics\.tokenFile: holds a character that cannot be sent: ") as caught:
        server.collect(token_file=str(tmp_path / "token"))
    assert SECRET not in str(caught.value)


def test_password_is_sent_as_the_file_has_it(server: Server, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pä€ss \n", encoding="utf-8")
    server.collect(username="alí", password_file=str(tmp_path / "password"))
    (sent,) = server.authorizations
    assert b64decode(sent.removeprefix("Basic ")).decode("utf-8") == "alí:pä€ss "


@pytest.mark.parametrize("named", [SECRET, f"{SECRET}\0", SECRET * 100])
def test_secret_in_place_of_the_name_of_its_file_is_not_shown(server: Server, named: str) -> None:
    with pytest.raises(PrometheusError, match=r"^metrics\.tokenFile: the file that it names cannot be read") as caught:
        server.collect(token_file=named)
    assert SECRET not in str(caught.value)

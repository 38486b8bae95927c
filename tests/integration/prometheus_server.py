"""A real Prometheus for tests, and a door before it that misbehaves on demand."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import pytest
import requests

T = TypeVar("T")

PROGRAM = Path(__file__).parents[2] / ".build/bin/prometheus"
WAIT_S = 30.0


def program() -> str:
    """Return the path of Prometheus. Without one the test is left out, where every change is judged it fails."""
    found = str(PROGRAM) if PROGRAM.exists() else shutil.which("prometheus")
    if found is None:
        why = "no Prometheus to test against: run deploy/local/prometheus.sh .build/bin"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return found


def await_(look: Callable[[], T | None], what: str) -> T:
    """Return what `look` gives as soon as it is true."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {WAIT_S:.0f} s: {what}")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@dataclass
class Prometheus:
    """A server with its data in `folder`. `jobs` are entries of scrape_configs; `env` is added to its environment."""

    folder: Path
    jobs: Sequence[Mapping[str, object]]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        config = self.folder / "prometheus.yml"
        # JSON is YAML.
        config.write_text(
            json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": list(self.jobs)})
        )
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    program(),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.env},
            )
        await_(self.ready, f"Prometheus is ready, see {self.folder / 'log'}")

    def ready(self) -> bool:
        """Whether it answers."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return requests.get(f"{self.url}/-/ready", timeout=1).status_code == 200
        except requests.RequestException:
            return False

    def scrapes(self) -> bool:
        """Whether every target was scraped."""
        asked = requests.get(f"{self.url}/api/v1/query", {"query": "count(up == 1)"}, timeout=5).json()["data"]["result"]
        return bool(asked) and int(asked[0]["value"][1]) == len(self.jobs)

    def kill(self) -> None:
        """End it as if its machine had failed."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


# What takes the place of an answer: it gets the request, its form and the answer of Prometheus.
Misbehaviour = Callable[[BaseHTTPRequestHandler, str, bytes], None]


@dataclass
class Asked:
    """One query as it came."""

    path: str
    form: str
    headers: dict[str, str]


class Door:
    """Passes requests on to Prometheus. While `fault` is set it answers in its place."""

    def __init__(self, url: str) -> None:
        self.fault: Misbehaviour | None = None
        self.asked: list[Asked] = []
        self.at_once = 0
        under_way = 0
        lock = threading.Lock()
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                nonlocal under_way
                form = self.rfile.read(int(self.headers["Content-Length"] or 0))
                with lock:
                    under_way += 1
                    door.at_once = max(door.at_once, under_way)
                    door.asked.append(Asked(self.path, form.decode(), dict(self.headers)))
                try:
                    self.pass_on(form)
                finally:
                    with lock:
                        under_way -= 1

            def pass_on(self, form: bytes) -> None:
                kind = {"Content-Type": self.headers["Content-Type"]}
                body = requests.post(url + self.path, form, headers=kind, timeout=WAIT_S).content
                if door.fault is not None:
                    door.fault(self, form.decode(), body)
                else:
                    respond(self, 200, body)

            def log_message(self, *_: object) -> None:
                """Keep silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def open(self) -> Iterator[Door]:
        """Serve."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def respond(handler: BaseHTTPRequestHandler, status: int, body: bytes, length: int | None = None) -> None:
    """Answer; a `length` above the body's cuts the connection after it."""
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = length is not None or handler.close_connection

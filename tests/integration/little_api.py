"""A small API server over plain HTTP for tests: it serves what it is told as an API server does, and misbehaves on demand.

Lists come in pages with a continue token, watches tell every event after their resource version. A *fault* takes the place of
the next answers to one kind of request.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Raw = dict[str, Any]
WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `at` is in seconds on the monotonic clock.

    `verb` is ``list``, ``watch``, ``create``, ``update`` or ``delete``, `name` that of the object that the last two are of.
    """

    at: float
    verb: str
    kind: str
    query: dict[str, str]
    token: str
    name: str = ""
    body: bytes = b""


@dataclass(slots=True)
class Exchange:
    """The answer to one request, for a fault to write."""

    asked: Asked
    _handler: BaseHTTPRequestHandler
    _stopped: threading.Event
    _chunked: bool = field(default=False)

    def answer(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        """Answer at once. A `length` that is more than the body's cuts the connection after it."""
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.send_header("Content-Length", str(len(body) if length is None else length))
        self._handler.end_headers()
        self._handler.wfile.write(body)
        self._handler.close_connection = length is not None

    def begin(self) -> None:
        """Begin an answer in chunks."""
        self._handler.send_response(200)
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()
        self._chunked = True

    def write(self, *lines: Raw | bytes) -> None:
        """Write each as one line of JSON, or bytes as they are."""
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self._handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def dribble(self, data: bytes, pause_s: float) -> None:
        """Write one byte after the other, as one chunk, until the reader has gone."""
        self._handler.wfile.write(f"{len(data):x}\r\n".encode())
        for byte in data:
            self._handler.wfile.write(bytes([byte]))
            if self._stopped.wait(pause_s):
                return

    def cut(self) -> None:
        """End the connection within the answer."""
        self._handler.close_connection = True
        self._chunked = False

    def end(self) -> None:
        """End an answer in chunks, if one was begun."""
        if self._chunked:
            self._handler.wfile.write(b"0\r\n\r\n")


Fault = Callable[[Exchange], None]


class LittleApi:
    """Serves objects by the last part of their path: ``nodes``, ``pods``, ``things`` ..."""

    def __init__(self, *, page: int | None = None) -> None:
        self.asked: list[Asked] = []
        self.token: str | None = None
        self._page = page
        self._change = threading.Condition()
        self._version = 10
        self._objects: dict[str, dict[str, Raw]] = {}
        self._events: list[tuple[int, str, Raw]] = []
        self._faults: dict[tuple[str, str], deque[Fault]] = {}
        self._server: _Server | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._stopped = threading.Event()

    # -- running ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve, or again."""
        self._stopped = threading.Event()
        self._server = _Server(self, self.port, self._stopped)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go away: all connections end. What is stored stays."""
        self._stopped.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.end_connections()
            self._server = None
        with self._change:
            self._change.notify_all()

    def kubeconfig(self, folder: Path, **user: str) -> Path:
        """Write a kubeconfig that leads here."""
        path = folder / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(content))
        return path

    # -- content ----------------------------------------------------------------------------------------------------

    def put(self, kind: str, raw: Raw) -> None:
        """Add or change an object."""
        with self._change:
            known = self._objects.setdefault(kind, {})
            what = "MODIFIED" if raw["metadata"]["name"] in known else "ADDED"
            known[raw["metadata"]["name"]] = raw
            self._note(kind, what, raw)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        with self._change:
            self._note(kind, "DELETED", self._objects[kind].pop(name))

    def bookmark(self, kind: str) -> None:
        """Let watches know how far they are."""
        with self._change:
            self._note(kind, "BOOKMARK", {"metadata": {}})

    def event(self, what: str, kind: str, name: str) -> Raw:
        """Return the event of an object that is stored, for a fault to write."""
        with self._change:
            return {"type": what, "object": self._objects[kind][name]}

    def fault(self, kind: str, verb: str, *faults: Fault) -> None:
        """Answer the next requests of this kind in these ways, each once."""
        with self._change:
            self._faults.setdefault((kind, verb), deque()).extend(faults)

    # -- what was asked ---------------------------------------------------------------------------------------------

    def count(self, kind: str, verb: str) -> int:
        """Return how many such requests came."""
        with self._change:
            return len([each for each in self.asked if (each.kind, each.verb) == (kind, verb)])

    def wait(self, kind: str, verb: str, count: int) -> list[Asked]:
        """Wait until so many such requests came; return the first of them."""

        def found() -> list[Asked]:
            return [each for each in self.asked if (each.kind, each.verb) == (kind, verb)]

        with self._change:
            assert self._change.wait_for(lambda: len(found()) >= count, WAIT_S), f"{len(found())} of {count}"
            return found()[:count]

    # -- inside -----------------------------------------------------------------------------------------------------

    def _note(self, kind: str, what: str, raw: Raw) -> None:
        self._version += 1
        told = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self._version)}}
        if what in ("ADDED", "MODIFIED"):
            self._objects[kind][raw["metadata"]["name"]] = told
        self._events.append((self._version, kind, {"type": what, "object": told}))
        self._change.notify_all()

    def _take(self, asked: Asked) -> Fault:
        with self._change:
            self.asked.append(asked)
            self._change.notify_all()
            if self.token is not None and asked.token != self.token:
                return lambda exchange: exchange.answer(401, b'{"message": "Unauthorized"}')
            faults = self._faults.get((asked.kind, asked.verb))
            if faults:
                return faults.popleft()
        return {"list": self.list, "watch": self.watch}.get(asked.verb, lambda exchange: exchange.answer(200, b"{}"))

    def list(self, exchange: Exchange) -> None:
        """Answer a list as it should be."""
        query = exchange.asked.query
        with self._change:
            known = self._objects.get(exchange.asked.kind, {})
            objects = [known[name] for name in sorted(known)]
            version = self._version
        first = int(query.get("continue", "0"))
        size = min(int(query["limit"]), self._page or int(query["limit"])) if "limit" in query else len(objects)
        meta = {"resourceVersion": str(version)}
        if first + size < len(objects):
            meta["continue"] = str(first + size)
        body = json.dumps({"kind": "List", "metadata": meta, "items": objects[first : first + size]}).encode()
        exchange.answer(200, body)

    def watch(self, exchange: Exchange) -> None:
        """Answer a watch as it should be, until the server stops."""
        seen = int(exchange.asked.query["resourceVersion"])
        stopped = exchange._stopped
        exchange.begin()
        while not stopped.is_set():
            with self._change:
                while self._version == seen and not stopped.is_set():
                    self._change.wait(1.0)
                news = [(at, event) for at, kind, event in self._events if at > seen and kind == exchange.asked.kind]
                seen = max(seen, self._version)
            exchange.write(*[event for _, event in news])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: LittleApi, port: int, stopped: threading.Event) -> None:
        self.api, self.stopped = api, stopped
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):  # its client has gone
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # the client, or the test, ended the connection
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        verb = {"POST": "create", "PUT": "update", "DELETE": "delete"}.get(self.command, "watch" if "watch" in query else "list")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        *_, parent, last = url.path.split("/")
        kind, name = (parent, last) if verb in ("update", "delete") else (last, "")
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        asked = Asked(time.monotonic(), verb, kind, query, token, name, body)
        exchange = Exchange(asked, self, self.server.stopped)
        self.server.api._take(asked)(exchange)
        exchange.end()

    def log_message(self, *args: object) -> None:
        pass


def gone(exchange: Exchange) -> None:
    """Answer a watch with 410 as its first event."""
    exchange.begin()
    exchange.write({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}})


def gone_at_once(exchange: Exchange) -> None:
    """Answer with the status 410."""
    exchange.answer(410, b'{"message": "too old resource version"}')

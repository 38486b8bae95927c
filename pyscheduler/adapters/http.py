"""/healthz, /readyz and /metrics over plain HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from pyscheduler.errors import ServeError

__all__ = ["REQUESTS_MAX", "HttpServer"]

# Path to a function that returns the status and the body.
Routes = dict[str, Callable[[], tuple[int, bytes]]]

# Requests that are answered at one time: each holds a thread. Probes and Prometheus ask one at a time.
REQUESTS_MAX: Final = 16
# Seconds that a client may be silent.
SILENCE_S: Final = 10.0
# Seconds until the request of a slow client, which is given up for a new one, has made room.
ROOM_S: Final = 0.5
_FULL: Final = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class HttpServer:
    """Serves fixed routes from a thread of its own until `stop`."""

    def __init__(self, host: str, port: int, routes: Routes) -> None:
        try:
            self._server = _Server((host, port), _handler(routes))
        except OSError as cause:
            raise ServeError(
                f"http_port {port} on {host} cannot be served ({cause.strerror}): choose another http_port, or 0 for a free one"
            ) from cause
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Answers `REQUESTS_MAX` requests at one time. For one more the oldest is given up: its client is slow, or does not ask."""

    # Connections that wait to be accepted; of more the kernel makes each wait a second or more.
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._room = threading.Semaphore(REQUESTS_MAX)
        self._guard = threading.Lock()
        # In the order of their arrival.
        self._open: dict[socket.socket, None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._give_up_oldest()
            if not self._room.acquire(timeout=ROOM_S):
                self._refuse(request)
                return
        with self._guard:
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            was_open = request in self._open
            self._open.pop(request, None)
        super().shutdown_request(request)
        if was_open:
            self._room.release()

    def _give_up_oldest(self) -> None:
        with self._guard, contextlib.suppress(OSError):  # its client may have gone
            for oldest in list(self._open)[:1]:
                oldest.shutdown(socket.SHUT_RDWR)

    def _refuse(self, request: socket.socket) -> None:
        with contextlib.suppress(OSError):
            request.sendall(_FULL)
        self.shutdown_request(request)


def _handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_S

        def do_GET(self) -> None:
            route = routes.get(self.path.split("?")[0])
            status, body = route() if route else (404, f"known paths: {', '.join(sorted(routes))}\n".encode())
            # A client that has gone needs no answer.
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Keep probes out of the log."""

    return Handler

"""/healthz, /readyz and /metrics over plain HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyscheduler.errors import ServeError

__all__ = ["HttpServer"]

# Path to a function that returns the status and the body.
Routes = dict[str, Callable[[], tuple[int, bytes]]]


class HttpServer:
    """Serves fixed routes from a thread of its own until `stop`."""

    def __init__(self, host: str, port: int, routes: Routes) -> None:
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(routes))
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


def _handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that does not speak must not hold a thread

        def do_GET(self) -> None:
            route = routes.get(self.path.split("?")[0])
            status, body = route() if route else (404, f"known paths: {', '.join(sorted(routes))}\n".encode())
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Keep probes out of the log."""

    return Handler

"""The exporters of a live fleet over HTTP, for a real Prometheus: ``/node/NAME/metrics``.

python -m tests.sim.exporter [PORT] serves a fleet of three nodes (DCGM's old and new names, AMD's) with all cards at work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.sim.fleet import FleetPlan, Generation, Pool, fleet
from tests.sim.live import LiveFleet
from tests.sim.models import H100, MI300X

__all__ = ["Exporters", "small_fleet"]

_CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class Exporters:
    """Serves a live fleet. `away` holds the names of the nodes whose exporters answer 503; it may be changed at any time."""

    def __init__(self, live: LiveFleet, port: int = 0) -> None:
        self.live = live
        self.away: set[str] = set()
        exporters = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = exporters.answer(self.path)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", _CONTENT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep silent: one line for each scrape says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        """Host and port, as a target of Prometheus names them."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def path(self, node: str) -> str:
        """Return the metrics path of a node."""
        return f"/node/{node}/metrics"

    def answer(self, path: str) -> tuple[int, str]:
        """Return status and text of a path."""
        match path.partition("?")[0].split("/"):
            case ["", "node", node, "metrics"] if node in self.away:
                return 503, "the exporter is starting\n"
            case ["", "node", node, "metrics"]:
                try:
                    return 200, self.live.text(node)
                except KeyError as fault:
                    return 404, f"{fault.args[0]}\n"
            case _:
                return 404, "ask for /node/NAME/metrics\n"

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve, and yield the address."""
        thread = Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self.address
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def serve(self) -> None:
        """Serve until interrupted."""
        self._server.serve_forever()


def small_fleet(nodes: int = 1, *, sigma: float = 0.01, seed: int = 1, interval_s: float = 30.0) -> LiveFleet:
    """Return a live fleet with `nodes` nodes of each generation of names, without faults."""
    pools = (
        Pool(H100, 2 * nodes, (Generation.OLD, Generation.NEW)),
        Pool(MI300X, nodes, (Generation.AMD,)),
    )
    return LiveFleet(fleet(FleetPlan(seed=seed, sigma=sigma, pools=pools, fault_share=0)), interval_s=interval_s)


if __name__ == "__main__":
    at_work = small_fleet()
    at_work.work(range(len(at_work.fleet.cards)))
    served = Exporters(at_work, int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for one in at_work.fleet.nodes:
        print(f"http://{served.address}{served.path(one.name)}", flush=True)
    served.serve()

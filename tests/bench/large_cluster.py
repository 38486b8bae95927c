"""An API server for `tests.bench.service`: a large cluster that exists nowhere, in list pages and watches, over plain HTTP.

It runs in a process of its own (`python -m tests.bench.large_cluster`) and prints its port. A POST to ``/bench/churn?rate=N``
begins with N pod events a second, rate 0 ends them; ``/bench/state`` tells what a service must know then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.bench.large_objects import NodeText, PodText, plain_pod, training_pod, uid_of

__all__ = ["SIZES", "LargeCluster"]

# GPUs of the pods on one node; two of eight stay free.
SIZES: Final = (1, 1, 2, 2)
# One of so many pods with GPUs was placed by another scheduler.
FOREIGN: Final = 10
# In so many pod events one pod with GPUs ends and another begins, which is three of them.
TURN: Final = 30
BOOKMARK_S: Final = 10.0


class LargeCluster:
    """The objects, and their changes. The first pods ask for GPUs, four on a node; the others ask for none."""

    def __init__(self, nodes: int, pods: int, gpu_pods: int) -> None:
        if gpu_pods > min(pods, nodes * len(SIZES)):
            raise ValueError(f"{gpu_pods} pods with GPUs are more than {nodes} nodes or {pods} pods hold")
        self.pods, self.gpu_pods, self.events = pods, gpu_pods, 0
        self._lives = [0] * gpu_pods
        self._nodes = [NodeText(i) for i in range(nodes)]
        self._plain = [plain_pod(containers) for containers in (1, 1, 2)]
        self._training = {(gpus, ours): training_pod(gpus, ours=ours) for gpus in SIZES for ours in (True, False)}
        self._guard = threading.Lock()
        self._watches: dict[str, list[queue.SimpleQueue[bytes]]] = {"nodes": [], "pods": []}
        self._churning = threading.Event()

    def state(self) -> dict[str, int]:
        """Return the events told so far, and the GPUs that pods hold and that are free while no pod comes or goes."""
        held = sum(SIZES[i % len(SIZES)] for i in range(self.gpu_pods))
        all_gpus = sum(len(node.handles) for node in self._nodes)
        return {"events": self.events, "gpus_held": held, "gpus_free": all_gpus - held}

    def page(self, kind: str, first: int, limit: int) -> bytes:
        """Return one page of a list."""
        total, text = {"nodes": (len(self._nodes), self._node), "pods": (self.pods, self._pod)}.get(kind, (0, self._node))
        end = min(total, first + limit) if limit else total
        with self._guard:
            items = b",".join(map(text, range(first, end)))
            meta = {"resourceVersion": str(self._version())} | ({"continue": str(end)} if end < total else {})
        return b'{"kind":"List","apiVersion":"v1","metadata":' + json.dumps(meta).encode() + b',"items":[' + items + b"]}"

    def watch(self, kind: str, seconds: float) -> Iterator[bytes]:
        """Yield the events of a watch, and bookmarks where there is none for long."""
        events: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        watches = self._watches.get(kind, [])
        with self._guard:
            watches.append(events)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                yield events.get(timeout=BOOKMARK_S)
            except queue.Empty:
                yield _event("BOOKMARK", json.dumps({"metadata": {"resourceVersion": str(self._version())}}).encode())
        with self._guard:
            watches.remove(events)

    def churn(self, rate: float) -> None:
        """Begin with so many pod events a second; 0 ends them."""
        self._churning.clear()
        if rate:
            self._churning = threading.Event()
            self._churning.set()
            threading.Thread(target=self._churn, args=(self._churning, rate), daemon=True).start()

    def _churn(self, on: threading.Event, rate: float) -> None:
        begun, first, turn = time.monotonic(), self.events, 0
        while on.is_set():
            with self._guard:
                # Steps of 7 go round all nodes: it has no divisor in common with a power of ten.
                self._replace(7 * turn % self.gpu_pods)
                for i in range(TURN - 3):
                    plain = self.gpu_pods + (TURN * turn + i) % (self.pods - self.gpu_pods)
                    self._tell("pods", "MODIFIED", self._pod(plain))
            turn += 1
            time.sleep(max(0.0, begun + (self.events - first) / rate - time.monotonic()))

    def _replace(self, i: int) -> None:
        """End a pod with GPUs; its GPUs go to the next one."""
        self._tell("pods", "DELETED", self._pod(i))
        self._lives[i] += 1
        self._tell("nodes", "MODIFIED", self._node(i // len(SIZES)))
        self._tell("pods", "ADDED", self._text_of(i).waiting(i, self._lives[i], self._version()))
        self._tell("pods", "MODIFIED", self._pod(i))

    def _node(self, i: int) -> bytes:
        on_it = range(i * len(SIZES), min(self.gpu_pods, (i + 1) * len(SIZES)))
        report = {uid_of(pod, self._lives[pod]): self._handles(pod) for pod in on_it}
        return self._nodes[i].text(self._version(), report)

    def _pod(self, i: int) -> bytes:
        if i < self.gpu_pods:
            node = self._nodes[i // len(SIZES)].name
            return self._text_of(i).bound(i, self._lives[i], self._version(), node, self._handles(i))
        return self._plain[i % len(self._plain)].bound(i, 0, self._version(), self._nodes[i % len(self._nodes)].name)

    def _text_of(self, i: int) -> PodText:
        return self._training[SIZES[i % len(SIZES)], i % FOREIGN != 0]

    def _handles(self, i: int) -> tuple[str, ...]:
        on, at = divmod(i, len(SIZES))
        first = sum(SIZES[:at])
        return self._nodes[on].handles[first : first + SIZES[at]]

    def _tell(self, kind: str, what: str, body: bytes) -> None:
        self.events += kind == "pods"
        for events in self._watches[kind]:
            events.put(_event(what, body))

    def _version(self) -> int:
        return 1_000_000 + self.events


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--nodes", "--pods", "--gpu-pods"):
        parser.add_argument(name, type=int, required=True)
    asked = parser.parse_args()
    _Handler.cluster = LargeCluster(asked.nodes, asked.pods, asked.gpu_pods)
    server = _Server(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def _event(what: str, body: bytes) -> bytes:
    return b'{"type":"' + what.encode() + b'","object":' + body + b"}\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Tell of a fault, but not that the service has ended."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: LargeCluster

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        kind = url.path.rsplit("/", 1)[-1]
        if url.path == "/bench/state":
            self._send(json.dumps(self.cluster.state()).encode())
        elif "watch" in query:
            self._watch(self.cluster.watch(kind, float(query["timeoutSeconds"])))
        else:
            self._send(self.cluster.page(kind, int(query.get("continue", "0")), int(query.get("limit", "0"))))

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if url.path == "/bench/churn":
            self.cluster.churn(float(parse_qs(url.query)["rate"][0]))
        self._send(b"{}")

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the service has ended
            for line in events:
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: object) -> None:
        """Keep requests out of the output."""


if __name__ == "__main__":
    main()

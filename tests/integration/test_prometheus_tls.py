"""Prometheus behind TLS: whom the collector trusts, and the certificate that it shows."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pyscheduler.adapters.prometheus import Memory, collect
from pyscheduler.adapters.prometheus_errors import PrometheusError
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.readers.metrics_config import MetricsConfig
from tests.integration.prometheus_server import respond

ANSWER = b"""{"status": "success", "data": {"resultType": "vector", "result": [
  {"metric": {"node": "n1", "UUID": "GPU-x"}, "value": [1, "1"]},
  {"metric": {"node": "n1", "pyscheduler_time": "1"}, "value": [1, "99"]}]}}"""

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates of an authority, a server and a client."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """A server that answers clients with a certificate of the authority."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            respond(self, 200, ANSWER)

        def log_message(self, *_: object) -> None:
            """Keep silent."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Keep silent: clients that are refused are what is tested."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    # Refuses in the handshake; 1.3 does so after it, when the client may be writing.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def ask(config: MetricsConfig) -> list[CardKey]:
    now = time.time()
    return list(collect(config, (), {}, Memory(polled=now - 1), now).polls[-1].cards)


def test_server_of_a_trusted_authority_answers_a_client_with_a_certificate(url: str, folder: Path) -> None:
    config = MetricsConfig(
        url=url,
        timeout_s=5,
        ca_file=str(folder / "ca.pem"),
        cert_file=str(folder / "client.pem"),
        key_file=str(folder / "client.key"),
    )
    assert ask(config) == [CardKey("n1", "GPU-x")]


@pytest.mark.parametrize(
    ("ca", "says"),
    [
        pytest.param(None, r": set metrics.caFile to the certificate of the authority", id="unknown authority"),
        pytest.param("server.pem", r": check metrics.caFile, metrics.certFile and metrics.keyFile", id="another authority"),
        pytest.param("ca.pem", r": check metrics.caFile, metrics.certFile and metrics.keyFile", id="no certificate of its own"),
    ],
)
def test_refused_handshake_is_one_sentence_with_the_settings(url: str, folder: Path, ca: str | None, says: str) -> None:
    with pytest.raises(PrometheusError, match=rf"queries failed \(.*\){says}"):
        ask(MetricsConfig(url=url, timeout_s=5, ca_file=str(folder / ca) if ca else None))


def test_http_to_a_port_of_tls_is_told(url: str) -> None:
    with pytest.raises(PrometheusError, match=r"queries failed \(.*\): is it up, and does metrics.url need https://"):
        ask(MetricsConfig(url=url.replace("https", "http"), timeout_s=5))


@pytest.fixture
def plain() -> Iterator[str]:
    """A server without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1 << 16)
                    # What Go's server says to bytes that are no request.
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 15\r\n\r\n400 Bad Request")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        yield address
        stopped.set()
        socket.create_connection(listening.getsockname()).close()
        thread.join()


def test_https_to_a_port_without_tls_is_told(plain: str, folder: Path) -> None:
    for ca in (None, str(folder / "ca.pem")):
        with pytest.raises(PrometheusError, match=r"queries failed \(.*\): the server speaks plain HTTP: write http://"):
            ask(MetricsConfig(url=f"https://{plain}", timeout_s=5, ca_file=ca))

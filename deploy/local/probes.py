"""How each component says that it is ready."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.local.processes import Probe, Process

_ANSWER_TIMEOUT_S: Final = 2.0


def listens(socket: Path) -> Probe:
    """Ready when the file of a unix socket is there."""
    return lambda _: socket.is_socket()


def https(port: int, path: str, authority: Path | None = None) -> Probe:
    """Ready when an HTTPS server on this machine answers 200.

    `authority` is the certificate that it must show. Without it any is accepted: kube-scheduler and
    kube-controller-manager sign one for themselves and keep it in memory.
    """
    return lambda _: _answers(f"https://127.0.0.1:{port}{path}", authority)


def http(port: int, path: str) -> Probe:
    """Ready when an HTTP server on this machine answers 200."""
    return lambda _: _answers(f"http://127.0.0.1:{port}{path}", None)


def serves(socket: Path) -> Probe:
    """Ready when the gRPC server behind a unix socket says that it is SERVING."""
    return lambda _: _is_serving(socket)


def names_itself(file: Path) -> Probe:
    """Ready when the process has written its pid into a file."""
    return lambda process: _names(file, process)


def _answers(url: str, authority: Path | None) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_S, context=_trust(authority)) as answer:  # noqa: S310
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, urllib.error.URLError):  # also: the certificate is not written yet
        return False


def _trust(authority: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_serving(socket: Path) -> bool:
    if not socket.is_socket():
        return False
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_ANSWER_TIMEOUT_S)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _names(file: Path, process: Process) -> bool:
    try:
        return file.read_text() == str(process.pid)
    except FileNotFoundError:
        return False

"""Lint in a process of its own: what it fails of is told, and it never outlives the service."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyscheduler.adapters.linter import lint_apart
from pyscheduler.config import Config
from pyscheduler.errors import KubernetesError

# A service that ends when it reads a line, with lint running.
SERVICE = """
import sys, threading
from pyscheduler.adapters.linter import lint_apart
from pyscheduler.config import Config

threading.Thread(target=lint_apart, args=(Config(kubeconfig=sys.argv[1]),), daemon=True).start()
sys.stdin.readline()
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that answers nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(20)
        yield listening


def kubeconfig(path: Path, port: int) -> str:
    """Write a kubeconfig and return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(content))
    return str(path)


def test_failure_in_the_other_process_is_raised_here_with_its_sentence(tmp_path: Path, silent: socket.socket) -> None:
    port = silent.getsockname()[1]
    silent.close()
    with pytest.raises(KubernetesError, match=r"/api/v1/nodes failed .*is the API server up"):
        lint_apart(Config(kubeconfig=kubeconfig(tmp_path / "config", port)))


def test_service_ends_at_once_though_lint_waits_for_the_api_server(tmp_path: Path, silent: socket.socket) -> None:
    path = kubeconfig(tmp_path / "config", silent.getsockname()[1])
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE, path], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
        asked, _ = silent.accept()
        with asked:
            service.communicate("end\n", timeout=10)
            assert service.returncode == 0
            # Nobody holds the connection any more: lint ended, too.
            asked.settimeout(10)
            while asked.recv(65536):
                pass

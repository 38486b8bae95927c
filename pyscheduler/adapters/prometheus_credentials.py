"""Token and password for Prometheus, from their files. No message holds anything of them."""

from __future__ import annotations

from pathlib import Path

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from pyscheduler.adapters.prometheus_errors import PrometheusError
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["credentials", "file_bytes"]


class _Bearer(AuthBase):
    """Sets the token. As a header it would give way to a ~/.netrc."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def credentials(config: MetricsConfig) -> AuthBase | None:
    """Return what to show to Prometheus, None if that is nothing.

    Raises
    ------
    PrometheusError
        If a file cannot be read, or what it holds cannot be sent.

    """
    if config.token_file:
        token = _one_line(file_bytes(config.token_file, "tokenFile").strip(), "tokenFile")
        if not token.isascii():
            raise PrometheusError("metrics.tokenFile: holds a character that cannot be sent: write the token alone, in ASCII")
        return _Bearer(token.decode("ascii"))
    if config.username and config.password_file:
        password = _one_line(file_bytes(config.password_file, "passwordFile").strip(b"\r\n"), "passwordFile")
        # Bytes: of a text, requests would send Latin-1.
        return HTTPBasicAuth(config.username.encode(), password)
    return None


def _one_line(content: bytes, key: str) -> bytes:
    """Return it if it is a line that can be sent."""
    what = key.removesuffix("File")
    if not content:
        raise PrometheusError(f"metrics.{key}: is empty: write the {what} into it")
    if b"\n" in content or b"\r" in content:
        raise PrometheusError(f"metrics.{key}: has more than one line: write the {what} alone")
    if any(byte < ord(" ") or byte == 0x7F for byte in content):
        raise PrometheusError(f"metrics.{key}: holds a character that cannot be sent: write the {what} alone, as plain text")
    return content


def file_bytes(path: str, key: str) -> bytes:
    """Return what the file that metrics.`key` names holds."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as cause:
        # What is no path may be the secret itself, by mistake.
        named = path if path.startswith(("/", "./", "../")) else "the file that it names"
        why = cause.strerror if isinstance(cause, OSError) else "no path has such a character"
        raise PrometheusError(f"metrics.{key}: {named} cannot be read ({why}): name a file that is there") from cause

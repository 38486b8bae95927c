"""One connection to Prometheus: the library ``prometheus-api-client``, and around it what it lacks.

The library builds the address and unpacks the answer. Its session is ours, because the library (0.7.2) has no time limit, puts
queries of any length in the URL even with POST, does not retry POST, and drops the server's warnings. The session sends the
parameters as a form, reads the answer within a deadline and a size, and keeps the warnings.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import requests
from prometheus_api_client import PrometheusConnect
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.retry import Retry

from pyscheduler.errors import PyschedulerError
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["Connection", "PrometheusError"]

# Of one answer. 10,000 cards over 10 minutes are 10 MB.
_BYTES_MAX: Final = 256 << 20
_CHUNK: Final = 1 << 18
# Answers of a server that is busy, starting or behind a proxy that cannot reach it: worth a second and a third question.
_BUSY: Final = (429, 500, 502, 503, 504)
_ATTEMPTS_AGAIN: Final = 2
_BACKOFF_S: Final = 0.2
_LETTERS_MAX: Final = 200


class PrometheusError(PyschedulerError):
    """Prometheus could not be asked. `fatal`: nor can it be asked anything else now."""

    def __init__(self, message: str, *, fatal: bool = True) -> None:
        super().__init__(message)
        self.fatal = fatal


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What the library takes for a response."""

    answer: Any
    status_code: int = 200

    def json(self) -> Any:
        return self.answer


@dataclass(slots=True)
class _RefusedError(Exception):
    """The server answered, but not with a result."""

    status: int
    said: str


class _Late(Exception):
    """The answer was not there in time."""


class _Bearer(AuthBase):
    """Sets the token. As a header it would give way to a ~/.netrc."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Session(requests.Session):
    """Sends the parameters as a form and reads the answer within `seconds`.

    Attributes
    ----------
    seconds
        How long the next answer may take, as a whole.
    warnings
        What the server said beside the last answer; a partial response is one.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.warnings: list[str] = []

    def request(self, method: str, url: str | bytes, *args: Any, **kwargs: Any) -> Any:
        """Return the answer; the library asks for nothing but its status and its JSON."""
        form = kwargs.pop("params", None)
        kwargs |= {"data": form, "stream": True, "timeout": self.seconds}
        deadline = time.monotonic() + self.seconds
        with super().request(method, url, *args, **kwargs) as response:
            body = _read(response, deadline)
        if response.status_code != 200:
            raise _RefusedError(response.status_code, _said(body))
        answer = json.loads(body)
        self.warnings = [text for text in answer.get("warnings") or [] if isinstance(text, str)]
        return _Parsed(answer)


def _read(response: requests.Response, deadline: float) -> bytes:
    chunks = []
    size = 0
    # Not iter_content: it waits for a whole chunk, and a server may send it byte by byte.
    while chunk := response.raw.read1(_CHUNK, decode_content=True):
        chunks.append(chunk)
        size += len(chunk)
        if time.monotonic() > deadline:
            raise _Late
        if size > _BYTES_MAX:
            raise _RefusedError(response.status_code, f"an answer of more than {_BYTES_MAX >> 20} MiB")
    return b"".join(chunks)


def _said(body: bytes) -> str:
    """Return the server's own words: the error of the query API, or the beginning of a page."""
    try:
        answer = json.loads(body)
        text = f"{answer['errorType']}: {answer['error']}"
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:_LETTERS_MAX]


@dataclass(slots=True)
class Connection:
    """A connection for one thread and one poll: what is read from files is as old as the poll.

    Attributes
    ----------
    warnings
        What the server said beside the answers.
    """

    config: MetricsConfig
    warnings: list[str] = field(default_factory=list)
    _session: _Session = field(init=False)
    _library: PrometheusConnect = field(init=False)

    def __post_init__(self) -> None:
        """Read the files and make the session.

        Raises
        ------
        PrometheusError
            If a file cannot be read.

        """
        config = self.config
        assert config.url is not None
        session = self._session = _Session(config.timeout_s)
        if config.ca_file:
            _bytes(config.ca_file, "caFile")
            session.verify = config.ca_file
        if config.cert_file:
            for path, key in ((config.cert_file, "certFile"), (config.key_file, "keyFile")):
                if path:
                    _bytes(path, key)
            session.cert = (config.cert_file, config.key_file) if config.key_file else config.cert_file
        # No second read: a server that does not answer in time is not asked again before the next poll.
        again = Retry(
            total=_ATTEMPTS_AGAIN,
            read=False,
            backoff_factor=_BACKOFF_S,
            status_forcelist=_BUSY,
            allowed_methods=None,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        self._library = PrometheusConnect(
            config.url, headers=dict(config.headers), retry=again, auth=_auth(config), session=session, method="POST"
        )

    def close(self) -> None:
        """End it."""
        self._library.close()

    def instant(self, what: str, query: str, at: float, seconds: float) -> list[Mapping[str, Any]]:
        """Return the vector at a time; `what` names the query in an error. The answer may take `seconds`.

        Raises
        ------
        PrometheusError
            If there is no answer, or none that can be used.

        """
        return self._asked(what, seconds, lambda: self._library.custom_query(query, params={"time": f"{at:.3f}"}))

    def range(self, what: str, query: str, span: tuple[int, int, int], seconds: float) -> list[Mapping[str, Any]]:
        """Return the matrix over a span (first and last second, and step); the rest is as of `instant`."""
        first, last, step = span
        start, end = datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)
        return self._asked(what, seconds, lambda: self._library.custom_query_range(query, start, end, str(step)))

    def _asked(self, what: str, seconds: float, ask: Any) -> list[Mapping[str, Any]]:
        self._session.seconds = seconds
        try:
            result = ask()
        except _RefusedError as cause:
            raise self._refused(what, cause) from cause
        except (requests.Timeout, ReadTimeoutError, _Late) as cause:
            remedy = "is it overloaded? Raise metrics.timeout or give it more room"
            raise PrometheusError(f"{self._where(what)} took longer than {seconds:.0f} s: {remedy}", fatal=False) from cause
        except requests.exceptions.SSLError as cause:
            remedy = "check metrics.caFile, metrics.certFile and metrics.keyFile"
            raise PrometheusError(f"{self._where(what)} failed ({_reason(cause)}): {remedy}") from cause
        except requests.ConnectionError as cause:
            remedy = "is it up, and is metrics.url right?"
            raise PrometheusError(f"{self._where(what)} failed ({_reason(cause)}): {remedy}") from cause
        except (requests.RequestException, HTTPError, ValueError, KeyError, TypeError, AttributeError) as cause:
            remedy = "is metrics.url that of Prometheus, with its path?"
            message = f"{self._where(what)} got an answer that cannot be read ({_reason(cause)}): {remedy}"
            raise PrometheusError(message, fatal=False) from cause
        self.warnings += self._session.warnings
        if not isinstance(result, list):
            raise PrometheusError(f"{self._where(what)} got no list of series: is metrics.url that of Prometheus?", fatal=False)
        return result

    def _where(self, what: str) -> str:
        return f"{self.config.url}: the query of {what}"

    def _refused(self, what: str, cause: _RefusedError) -> PrometheusError:
        said = f"{self._where(what)} got HTTP {cause.status} ({cause.said})"
        if cause.status in (401, 403):
            return PrometheusError(f"{said}: check metrics.tokenFile, or metrics.username and metrics.passwordFile")
        if cause.status == 404:
            return PrometheusError(f"{said}: metrics.url needs the path before /api/v1, such as /prometheus")
        remedy = "see the log of Prometheus" if cause.status >= 500 else "raise the limit that it names, or report the query"
        return PrometheusError(f"{said}: {remedy}", fatal=False)


def _auth(config: MetricsConfig) -> AuthBase | None:
    if config.token_file:
        return _Bearer(_bytes(config.token_file, "tokenFile").decode(errors="replace").strip())
    if config.username and config.password_file:
        password = _bytes(config.password_file, "passwordFile").decode(errors="replace").strip("\r\n")
        return HTTPBasicAuth(config.username, password)
    return None


def _bytes(path: str, key: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as cause:
        raise PrometheusError(f"metrics.{key}: {path} cannot be read ({cause.strerror}): name a file that is there") from cause


def _reason(cause: BaseException) -> str:
    """Return the innermost cause in one line: the outer ones repeat it with addresses of objects."""
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return " ".join((str(cause) or type(cause).__name__).split())[:_LETTERS_MAX]

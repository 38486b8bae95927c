"""What goes wrong with a query, in one sentence."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import BadStatusLine
from typing import Final

import requests
from urllib3.exceptions import ReadTimeoutError

from pyscheduler.errors import PyschedulerError
from pyscheduler.readers.metrics_config import MetricsConfig
from pyscheduler.readers.text.excerpt import excerpt

__all__ = ["LateError", "PrometheusError", "QueryError", "RefusedError", "UnreadableError", "failure", "query_failed", "said"]

# Of what a server or a library says.
_LETTERS_MAX: Final = 200
# What OpenSSL makes of an answer in plain text, by its version.
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_WHOSE_URL: Final = "is metrics.url that of Prometheus, with its path, and is there no page to sign in before it?"


class PrometheusError(PyschedulerError):
    """Prometheus could not be asked.

    Attributes
    ----------
    fatal
        Nor can it be asked anything else now.
    kind
        The sentence without the name of the query: the same for all that fail in this way.
    """

    def __init__(self, message: str, *, fatal: bool = True, kind: str = "") -> None:
        super().__init__(message)
        self.fatal = fatal
        self.kind = kind or message


class QueryError(Exception):
    """A query came to nothing."""


@dataclass(slots=True)
class RefusedError(QueryError):
    """The server answered, but not with a result."""

    status: int
    said: str


class UnreadableError(QueryError):
    """What came is no answer of Prometheus; the text says what it is."""


class LateError(QueryError):
    """The answer was not there in time."""


def failure(cause: Exception, config: MetricsConfig, what: str, limit: str) -> PrometheusError:
    """Return what became of the query of `what`, which had `limit` to answer."""
    words, fatal = _words(cause, config, limit)
    return query_failed(config.url, what, words, fatal=fatal)


def query_failed(url: str | None, what: str, words: str, *, fatal: bool = False) -> PrometheusError:
    """Return the sentence that ends with `words`."""
    return PrometheusError(f"{url}: the query of {what} {words}", fatal=fatal, kind=f"{url}: queries {words}")


def said(body: bytes, most: int = _LETTERS_MAX) -> str:
    """Return the server's own words: the error of the query API, or the beginning of a page."""
    try:
        answer = json.loads(body)
        text = f"{answer['errorType']}: {answer['error']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        text = body[: 4 * most].decode(errors="replace")
    return excerpt(text, most)


def _words(cause: Exception, config: MetricsConfig, limit: str) -> tuple[str, bool]:
    """Return the end of the sentence, and whether it is fatal."""
    if isinstance(cause, RefusedError):
        return _refused(cause)
    if isinstance(cause, UnreadableError):
        return f"got {cause}: {_WHOSE_URL}", False
    if isinstance(cause, (requests.Timeout, ReadTimeoutError, LateError)):
        return f"took longer than {limit}: is it overloaded? Raise metrics.timeout or give it more room", False
    if isinstance(cause, requests.exceptions.SSLError):
        return f"failed ({_reason(cause)}): {_handshake(cause, config)}", True
    if isinstance(cause, requests.ConnectionError):
        return f"failed ({_reason(cause)}): {_connection(cause, config)}", True
    return f"got an answer that cannot be read ({_reason(cause)}): {_WHOSE_URL}", False


def _refused(cause: RefusedError) -> tuple[str, bool]:
    # Some that stand before Prometheus answer with an error and status 200.
    what = f"got {f'HTTP {cause.status}' if cause.status != 200 else 'an error'} ({cause.said})"
    if cause.status in (401, 403):
        return f"{what}: check metrics.tokenFile, or metrics.username and metrics.passwordFile", True
    if cause.status == 404:
        return f"{what}: metrics.url needs the path before /api/v1, such as /prometheus", True
    if cause.status == 400 and "https" in cause.said.lower():
        return f"{what}: write https:// in metrics.url", True
    remedy = "see the log of Prometheus" if cause.status >= 500 else "raise the limit that it names, or report the query"
    return f"{what}: {remedy}", False


def _handshake(cause: Exception, config: MetricsConfig) -> str:
    """Return what to do where TLS fails."""
    if any(isinstance(each, ssl.SSLError) and each.reason in _NOT_TLS for each in _chain(cause)):
        return "the server speaks plain HTTP: write http:// in metrics.url"
    if not config.ca_file and any(isinstance(each, ssl.SSLCertVerificationError) for each in _chain(cause)):
        return "set metrics.caFile to the certificate of the authority that signed the server's"
    return "check metrics.caFile, metrics.certFile and metrics.keyFile"


def _connection(cause: Exception, config: MetricsConfig) -> str:
    # So ends a request in plain text to a port of TLS; some servers say it in HTTP, too.
    is_broken = any(isinstance(each, (BadStatusLine, ConnectionResetError)) for each in _chain(cause))
    if is_broken and not str(config.url).startswith("https:"):
        return "is it up, and does metrics.url need https://?"
    return "is it up, and is metrics.url right?"


def _chain(cause: BaseException) -> Iterator[BaseException]:
    """Yield the error and what caused it, the innermost last."""
    inner: BaseException | None = cause
    while inner is not None:
        yield inner
        inner = inner.__cause__ or inner.__context__


def _reason(cause: BaseException) -> str:
    """Return the innermost cause in one line: the outer ones repeat it with addresses of objects."""
    *_, innermost = _chain(cause)
    return excerpt(str(innermost) or type(innermost).__name__, _LETTERS_MAX)

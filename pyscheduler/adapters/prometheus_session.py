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
from typing import Any, Final

import requests
from prometheus_api_client import PrometheusConnect
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from pyscheduler.adapters.prometheus_credentials import credentials, file_bytes
from pyscheduler.adapters.prometheus_errors import LateError, QueryError, RefusedError, UnreadableError, failure, said
from pyscheduler.readers.metrics_config import MetricsConfig
from pyscheduler.readers.text.excerpt import excerpt

__all__ = ["Connection"]

# Of one answer. 10,000 cards over 10 minutes are 10 MB.
_BYTES_MAX: Final = 256 << 20
_CHUNK: Final = 1 << 18
# Answers of a server that is busy, starting or behind a proxy that cannot reach it: worth a second and a third question.
_BUSY: Final = (429, 500, 502, 503, 504)
_ATTEMPTS_AGAIN: Final = 2
_BACKOFF_S: Final = 0.2
# Letters of what came in place of an answer, and of a warning.
_SHOWN_MAX: Final = 80
_WARNING_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What the library takes for a response."""

    answer: Any
    status_code: int = 200

    def json(self) -> Any:
        return self.answer


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
            raise RefusedError(response.status_code, said(body))
        answer = _answer(body)
        warnings = answer.get("warnings")
        listed = warnings if isinstance(warnings, list) else []
        self.warnings = [excerpt(text, _WARNING_MAX) for text in listed if isinstance(text, str)]
        return _Parsed(answer)


def _read(response: requests.Response, deadline: float) -> bytes:
    chunks = []
    size = 0
    # Not iter_content: it waits for a whole chunk, and a server may send it byte by byte.
    while chunk := response.raw.read1(_CHUNK, decode_content=True):
        chunks.append(chunk)
        size += len(chunk)
        if time.monotonic() > deadline:
            raise LateError
        if size > _BYTES_MAX:
            raise UnreadableError(f"an answer of more than {_BYTES_MAX >> 20} MiB")
    return b"".join(chunks)


def _answer(body: bytes) -> dict[str, Any]:
    """Return the answer if it has a list of series, of which the library looks at nothing."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and "error" in answer:
        raise RefusedError(200, said(body))
    if not _has_series(answer):
        raise UnreadableError(f"{said(body, _SHOWN_MAX)!r} in place of series" if body else "an empty answer")
    return dict(answer)


def _has_series(answer: Any) -> bool:
    data = answer.get("data") if isinstance(answer, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    return isinstance(result, list) and all(isinstance(row, dict) and isinstance(row.get("metric"), dict) for row in result)


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
            If a file cannot be read, or what it holds cannot be sent.

        """
        config = self.config
        assert config.url is not None
        session = self._session = _Session(config.timeout_s)
        if config.ca_file:
            file_bytes(config.ca_file, "caFile")
            session.verify = config.ca_file
        if config.cert_file:
            for path, key in ((config.cert_file, "certFile"), (config.key_file, "keyFile")):
                if path:
                    file_bytes(path, key)
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
            config.url, headers=dict(config.headers), retry=again, auth=credentials(config), session=session, method="POST"
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
            result: list[Mapping[str, Any]] = ask()
        except (OSError, HTTPError, ValueError, QueryError) as cause:
            limit = f"{seconds:.0f} s" if seconds >= self.config.timeout_s else "what is left of the poll"
            raise failure(cause, self.config, what, limit) from cause
        self.warnings += self._session.warnings
        return result

"""Raw JSON access to the API server with the `kubernetes` package's configuration and connection pool.

The package's models are left out: building them costs many times the time of
reading the JSON, and holds the interpreter lock meanwhile.

Whatever the server does, a request ends: an answer that comes too slowly or grows
too large is given up, and so is a watch that says nothing for too long.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import kubernetes
import urllib3
from kubernetes.config import load_incluster_config, load_kube_config
from urllib3.exceptions import HTTPError, ReadTimeoutError

from pyscheduler.errors import KubernetesError

__all__ = ["ApiServer", "Busy", "Gone", "Nonsense", "Response", "Silent", "TooMuch", "usual_kubeconfig"]

# Seconds to connect, and to wait for the next bytes of an answer that is no watch.
CONNECT_S = 5.0
READ_S = 30.0
# Seconds for an answer that is no watch, and the most bytes of it: many times those of a page of a list.
ANSWER_S = 60.0
ANSWER_MAX = 64 << 20
# The most bytes of one event of a watch. The API server takes objects of 3 MB at most by default.
LINE_MAX = 32 << 20
# Seconds between two readings of the credentials.
RENEW_S = 5.0
# The longest Retry-After that is heeded, in seconds: a number that is wrong must not end the service's work.
RETRY_AFTER_MAX_S = 60.0

_CHUNK: Final = 1 << 16


class Gone(Exception):
    """410: the resource version is too old; list again."""


class Nonsense(KubernetesError):
    """An answer that is not what the API serves, such as JSON that is cut off."""


class Silent(KubernetesError):
    """A watch on which nothing came for long. Where nothing happens, that is nothing to worry about."""


class TooMuch(KubernetesError):
    """An answer that is too large, or takes too long: ask for less."""


class Busy(KubernetesError):
    """The server asks to be left alone for `after_s` seconds."""

    def __init__(self, text: str, after_s: float, status: int) -> None:
        super().__init__(text, status)
        self.after_s = after_s


Response = urllib3.BaseHTTPResponse


def usual_kubeconfig(*named: str | None) -> str | None:
    """Return the first that is named, else kubectl's ``~/.kube/config`` if it is there, else None: the pod's account."""
    usual = Path.home() / ".kube" / "config"
    return next((each for each in named if each), str(usual) if usual.exists() else None)


@dataclass(frozen=True, slots=True)
class _Access:
    """Address, credentials and connections."""

    configuration: kubernetes.client.Configuration
    pool: urllib3.PoolManager

    @classmethod
    def load(cls, kubeconfig: str | None) -> _Access:
        configuration = kubernetes.client.Configuration()
        try:
            if kubeconfig:
                load_kube_config(kubeconfig, client_configuration=configuration)
            else:
                load_incluster_config(client_configuration=configuration)
            configuration.connection_pool_maxsize = 8
            pool = kubernetes.client.ApiClient(configuration).rest_client.pool_manager
        # The package answers a file of another form with whatever error it runs into.
        except Exception as cause:
            what = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's service account"
            raise KubernetesError(
                f"{what} cannot be used ({type(cause).__name__}: {' '.join(str(cause).split())[:300]}): name a readable kubeconfig, or run in a pod that has a service account"
            ) from cause
        return cls(configuration, pool)

    def token(self) -> str | None:
        """Return the token to send, which the package may read from its file or from a program now."""
        try:
            token: str | None = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as cause:  # whatever it runs into
            raise KubernetesError(f"the token cannot be read ({type(cause).__name__}: {cause}): tried again") from cause
        return token


class ApiServer:
    """One API server, with the credentials of a kubeconfig or of the pod's service account.

    Credentials that the server refuses are read anew: their files may have been replaced. Safe to use from several threads.
    """

    def __init__(self, kubeconfig: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._access = _Access.load(kubeconfig)
        self._renewed_at = clock() - RENEW_S
        self._renewing = threading.Lock()

    @property
    def host(self) -> str:
        """URL of the server."""
        return str(self._access.configuration.host)

    def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        """Return one object or list."""
        text = self.get_bytes(path, query)
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError, RecursionError) as cause:
            raise self._nonsense(path, cause) from cause

    def get_bytes(self, path: str, query: dict[str, str] | None = None) -> bytes:
        """Return one object or list, not parsed; raises `TooMuch` where it is too large or takes too long."""
        return self._body(path, self._request("GET", path, query, None, READ_S))

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Create an object."""
        self._body(path, self._request("POST", path, None, json.dumps(body).encode(), READ_S))

    def put(self, path: str, body: dict[str, Any]) -> None:
        """Replace an object."""
        self._body(path, self._request("PUT", path, None, json.dumps(body).encode(), READ_S))

    def delete(self, path: str) -> None:
        """Delete an object."""
        self._body(path, self._request("DELETE", path, None, None, READ_S))

    def watch(self, path: str, query: dict[str, str], read_s: float) -> Iterator[dict[str, Any]]:
        """Begin a watch, and return its events, which end when the server ends it.

        Parameters
        ----------
        path, query
            What to watch, `resourceVersion` and selectors.
        read_s
            Seconds without an event after which the connection is taken for dead.

        """
        return self._events(path, self._request("GET", path, {**query, "watch": "true"}, None, read_s), read_s)

    def _events(self, path: str, response: Response, read_s: float) -> Iterator[dict[str, Any]]:
        parts: list[bytes] = []
        size, heard = 0, self._clock()
        try:
            # Not `stream`: it waits for whole chunks, which may never come.
            while chunk := response.read1(_CHUNK):
                *lines, rest = chunk.split(b"\n")
                for line in lines:
                    yield self._event(path, b"".join([*parts, line]))
                    parts, size = [], 0
                parts.append(rest)
                size += len(rest)
                heard = self._clock() if lines else heard
                if size > LINE_MAX:
                    raise self._nonsense(path, f"an event is larger than {LINE_MAX >> 20} MiB")
                if self._clock() - heard > read_s:
                    raise self._away(path, f"no event is complete after {read_s:.0f} s")
        except ReadTimeoutError as cause:
            if size:
                raise self._away(path, cause) from cause
            raise Silent(f"{self.host}{path} sent no event for {read_s:.0f} s: is the API server up and reachable?") from cause
        except HTTPError as cause:
            raise self._away(path, cause) from cause
        finally:
            response.close()

    def _event(self, path: str, line: bytes) -> dict[str, Any]:
        try:
            event = dict(json.loads(line))
            # Where a watch goes on after it.
            assert event["type"] == "ERROR" or event["object"]["metadata"]["resourceVersion"]
        except (ValueError, TypeError, KeyError, RecursionError, AssertionError) as cause:
            raise self._nonsense(path, cause) from cause
        return event

    def _body(self, path: str, response: Response) -> bytes:
        """Return the whole answer. Its connection is free for another request only then."""
        parts: list[bytes] = []
        size, begun, whole = 0, self._clock(), False
        try:
            while chunk := response.read1(_CHUNK):
                parts.append(chunk)
                size += len(chunk)
                if size > ANSWER_MAX:
                    raise TooMuch(f"{self.host}{path} answered with more than {ANSWER_MAX >> 20} MiB: less is asked for")
                if self._clock() - begun > ANSWER_S:
                    raise TooMuch(f"{self.host}{path} had not answered in full after {ANSWER_S:.0f} s: less is asked for")
            whole = True
        except HTTPError as cause:
            raise self._away(path, cause) from cause
        finally:
            if whole:
                response.release_conn()
            else:
                response.close()
        return b"".join(parts)

    def _request(self, method: str, path: str, query: dict[str, str] | None, body: bytes | None, read_s: float) -> Response:
        """Return an answer that is no refusal, not read yet."""
        access = self._access
        response = self._send(access, method, path, query, body, read_s)
        if response.status == 401 and self._renew(access):
            response.close()
            response = self._send(self._access, method, path, query, body, read_s)
        if response.status < 400:
            return response
        text = self._body(path, response).decode(errors="replace")
        raise self._refused(path, response, text)

    def _send(
        self, access: _Access, method: str, path: str, query: dict[str, str] | None, body: bytes | None, read_s: float
    ) -> Response:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token := access.token():
            headers["Authorization"] = token
        try:
            response: Response = access.pool.request(
                method,
                f"{access.configuration.host}{path}" + (f"?{urlencode(query)}" if query else ""),
                body=body,
                headers=headers,
                preload_content=False,
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=read_s),
            )
        except HTTPError as cause:
            raise self._away(path, cause, method) from cause
        return response

    def _renew(self, refused: _Access) -> bool:
        """Read the credentials anew. Return whether there are others to try than those that were refused."""
        with self._renewing:
            if self._access is not refused:
                return True
            if self._clock() - self._renewed_at < RENEW_S:
                return False
            self._renewed_at = self._clock()
            try:
                self._access = _Access.load(self._kubeconfig)
            except KubernetesError:  # being replaced at this moment, perhaps: the next refusal tries again
                return False
            return True

    def _away(self, path: str, cause: object, method: str = "GET") -> KubernetesError:
        return KubernetesError(f"{method} {self.host}{path} failed ({cause}): is the API server up and reachable?")

    def _nonsense(self, path: str, cause: object) -> Nonsense:
        return Nonsense(f"{self.host}{path} answered what cannot be read ({cause}): is there a proxy in between?")

    def _refused(self, path: str, response: Response, text: str) -> Exception:
        try:
            message = str(json.loads(text)["message"])
        except (ValueError, KeyError, TypeError, RecursionError):
            message = text
        if response.status == 410:
            return Gone(message)
        remedies = {401: "check the token of the kubeconfig", 403: "grant the rights of deploy/rbac"}
        ending = response.status == 403 and "because it is being terminated" in message
        remedy = "its namespace is being deleted" if ending else remedies.get(response.status, "retried")
        what = f"{self.host}{path} answered {response.status} ({message.strip()[:300]}): {remedy}"
        after = response.headers.get("Retry-After", "")
        # It may be a date, too; the API server sends seconds.
        if after.isascii() and after.isdigit():
            return Busy(what, min(float(after), RETRY_AFTER_MAX_S), response.status)
        return KubernetesError(what, response.status)

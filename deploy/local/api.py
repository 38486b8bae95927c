"""A small client of the Kubernetes API that speaks plain JSON.

It takes connection and credentials from the `kubernetes` package, but not its models: building those costs more than
the request, and the simulated nodes alone send thousands.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

from deploy.local.errors import ApiError, LocalError, NeverHappenedError

Object = dict[str, Any]
Item = TypeVar("Item")

_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

_CONNECTIONS: Final = 32
_CONNECT_TIMEOUT_S: Final = 10.0
_REQUEST_TIMEOUT_S: Final = 60.0
_WATCH_TIMEOUT_S: Final = 300.0
# The server ends a watch in time; only a dead connection is later than that.
_LATE_S: Final = 5.0
_PAGE: Final = 500
_GONE: Final = 410
_SHOWN: Final = 2_000  # characters of an object in a message
_PRESENT: Final = ("ADDED", "MODIFIED")
_ERROR: Final = 400


class Api:
    """Requests to one API server as one user. May be used by several threads at once."""

    def __init__(self, kubeconfig: Path) -> None:
        settings = client.Configuration()
        settings.connection_pool_maxsize = _CONNECTIONS
        config.load_kube_config(str(kubeconfig), client_configuration=settings)
        connection = client.ApiClient(settings)
        self._server: str = settings.host
        self._pool: urllib3.PoolManager = connection.rest_client.pool_manager
        self._headers = {"Authorization": settings.get_api_key_with_prefix("BearerToken")}

    def get(self, path: str, **query: str) -> Object:
        """Read an object, or one page of a list.

        Raises
        ------
        ApiError
            If the server refuses; so do all requests.
        LocalError
            If the server does not answer; so do all requests.

        """
        return self._request("GET", _with_query(path, query))

    def create(self, path: str, body: Object) -> Object:
        """Create an object in the collection `path`."""
        return self._request("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """Apply a JSON merge patch: keys that it does not name stay as they are; lists are replaced."""
        return self._request("PATCH", path, body, content_type=_MERGE_PATCH)

    def patch_status(self, path: str, status: Object, uid: str | None = None) -> Object:
        """Change the status of an object; conditions of types that `status` does not name stay as they are.

        With `uid` the server refuses (409) if another object stands under the name now.
        """
        body = {"status": status, **({"metadata": {"uid": uid}} if uid else {})}
        return self._request("PATCH", f"{path}/status", body, content_type=_STRATEGIC_MERGE_PATCH)

    def delete(self, path: str, **query: str) -> Object:
        """Delete an object or, with a collection as `path`, all that a selector in `query` matches."""
        return self._request("DELETE", _with_query(path, query))

    def read_all(self, path: str, **query: str) -> tuple[list[Object], str]:
        """Read a whole list, page by page.

        Returns
        -------
        items
            The objects.
        resource_version
            Where a watch may begin.

        """
        items: list[Object] = []
        more = ""
        while True:
            page = self.get(path, limit=str(_PAGE), **query, **({"continue": more} if more else {}))
            items += page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return items, page["metadata"]["resourceVersion"]

    def watch(
        self, path: str, resource_version: str, timeout_s: float = _WATCH_TIMEOUT_S, **query: str
    ) -> Iterator[tuple[str, Object]]:
        """Yield what changes: the kind of event (ADDED, MODIFIED, DELETED, BOOKMARK) and the object.

        Ends after `timeout_s` seconds or when the server ends it.

        Raises
        ------
        ApiError
            With status 410 if the changes since `resource_version` are no longer known.

        """
        query |= {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
        query["timeoutSeconds"] = str(max(1, round(timeout_s)))
        answer = self._send("GET", _with_query(path, query), timeout_s + _LATE_S, headers=self._headers, preload_content=False)
        try:
            for line in _lines(answer):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(f"watch {path}", status["code"], status.get("reason", ""), status.get("message", ""))
                yield event["type"], event["object"]
        except urllib3.exceptions.HTTPError:
            return  # the stream broke: to the caller it has ended
        finally:
            answer.close()

    def follow(self, path: str, **query: str) -> Iterator[tuple[str, Object]]:
        """Yield LIST with all objects as ``{"items": [...]}``, then what changes, for ever.

        When changes were missed, or the connection was lost, another LIST follows.
        """
        while True:
            items, version = self.read_all(path, **query)
            yield "LIST", {"items": items}
            try:
                yield from self._watch_on(path, version, query)
            except ApiError as error:
                if error.status != _GONE:
                    raise

    def wait_for(
        self, path: str, condition: Callable[[Object], bool], *, name: str | None = None, timeout_s: float = 60.0
    ) -> Object:
        """Wait until an object of a collection, or the one with a name, meets a condition; return it.

        Raises
        ------
        NeverHappenedError
            If none has after `timeout_s` seconds.

        """
        query = {"fieldSelector": f"metadata.name={name}"} if name else {}
        deadline = time.monotonic() + timeout_s
        last: Object = {}
        while (left_s := deadline - time.monotonic()) > 0:
            items, version = self.read_all(path, **query)
            changes = (item for kind, item in self.watch(path, version, left_s, **query) if kind in _PRESENT)
            for item in chain(items, changes):
                if condition(item):
                    return item
                last = item
        seen = json.dumps({key: last.get(key) for key in ("metadata", "status", "message")})[:_SHOWN]
        raise NeverHappenedError(f"{path} {name or ''}: no object met the condition within {timeout_s:g} s; last: {seen}")

    def wait_for_each(
        self, path: str, names: Collection[str], condition: Callable[[Object], bool], timeout_s: float = 60.0, **query: str
    ) -> None:
        """Wait until each named object of a collection has met a condition at some time; raises as `wait_for` does."""
        deadline = time.monotonic() + timeout_s
        left = set(names)
        while left and (left_s := deadline - time.monotonic()) > 0:
            items, version = self.read_all(path, **query)
            # The server ends the watch of a reader that cannot keep up: then the list is read again.
            changes = (item for kind, item in self.watch(path, version, left_s, **query) if kind in _PRESENT)
            for item in chain(items, changes):
                if condition(item):
                    left.discard(item["metadata"]["name"])
                if not left:
                    return
        if left:
            raise NeverHappenedError(
                f"{path}: {len(left)} objects, such as {min(left)}, did not meet the condition in {timeout_s:g} s"
            )

    def wait_each_gone(self, path: str, names: Collection[str], timeout_s: float = 60.0) -> None:
        """Wait until a collection holds none of these names; raises as `wait_for` does."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            items, version = self.read_all(path)
            left = {item["metadata"]["name"] for item in items} & set(names)
            for kind, item in self.watch(path, version, left_s) if left else ():
                if kind == "DELETED":
                    left.discard(item["metadata"]["name"])
                if not left:
                    break
            if not left:
                return
        raise NeverHappenedError(f"{path}: some of {len(names)} objects were still there after {timeout_s:g} s")

    def wait_gone(self, path: str, name: str, timeout_s: float = 60.0) -> None:
        """Wait until the object `name` is no longer in a collection; raises as `wait_for` does."""
        deadline = time.monotonic() + timeout_s
        query = {"fieldSelector": f"metadata.name={name}"}
        while (left_s := deadline - time.monotonic()) > 0:
            items, version = self.read_all(path, **query)
            if not items or any(kind == "DELETED" for kind, _ in self.watch(path, version, left_s, **query)):
                return
        raise NeverHappenedError(f"{path}/{name}: was still there after {timeout_s:g} s")

    def _watch_on(self, path: str, version: str, query: Mapping[str, str]) -> Iterator[tuple[str, Object]]:
        while True:
            for kind, item in self.watch(path, version, _WATCH_TIMEOUT_S, **query):
                version = item["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    yield kind, item

    def _request(self, method: str, path: str, body: Object | None = None, content_type: str = _JSON) -> Object:
        headers = {**self._headers, "Content-Type": content_type}
        data = None if body is None else json.dumps(body, separators=(",", ":"))
        answer = self._send(method, path, _REQUEST_TIMEOUT_S, body=data, headers=headers)
        document: Object = json.loads(answer.data)
        return document

    def _send(self, method: str, path: str, timeout_s: float, **options: Any) -> urllib3.BaseHTTPResponse:
        timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=timeout_s)
        try:
            answer = self._pool.request(method, self._server + path, timeout=timeout, retries=False, **options)
        except urllib3.exceptions.HTTPError as error:
            raise LocalError(f"{method} {path}: {self._server} does not answer ({error}): does it run?") from error
        if answer.status >= _ERROR:
            raise _refusal(f"{method} {path}", answer)
        return answer


def in_parallel(call: Callable[[Item], object], items: Iterable[Item], workers: int = 16) -> None:
    """Call a function once for each item, from several threads; the first error is raised, and calls not begun are left out."""
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(call, items):
            pass


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _refusal(request: str, answer: urllib3.BaseHTTPResponse) -> ApiError:
    try:
        status = json.loads(answer.data)
        return ApiError(request, answer.status, status.get("reason", ""), status.get("message", ""))
    except (ValueError, AttributeError):
        return ApiError(request, answer.status, answer.reason or "", answer.data.decode(errors="replace"))


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in answer.stream(amt=None):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines

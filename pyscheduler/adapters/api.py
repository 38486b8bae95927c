"""Raw JSON access to the API server with the `kubernetes` package's configuration and connection pool.

The package's models are left out: building them costs many times the time of
reading the JSON, and holds the interpreter lock meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import kubernetes
import urllib3
from kubernetes.config import load_incluster_config, load_kube_config
from urllib3.exceptions import HTTPError

from pyscheduler.errors import KubernetesError

__all__ = ["ApiServer", "Gone", "Response", "usual_kubeconfig"]

# Seconds to connect, and to wait for the next bytes of an answer that is no watch.
CONNECT_S = 5.0
READ_S = 30.0


class Gone(Exception):
    """410: the resource version is too old; list again."""


Response = urllib3.BaseHTTPResponse


def usual_kubeconfig(*named: str | None) -> str | None:
    """Return the first that is named, else kubectl's ``~/.kube/config`` if it is there, else None: the pod's account."""
    usual = Path.home() / ".kube" / "config"
    return next((each for each in named if each), str(usual) if usual.exists() else None)


class ApiServer:
    """One API server, with the credentials of a kubeconfig or of the pod's service account.

    Safe to use from several threads.
    """

    def __init__(self, kubeconfig: str | None) -> None:
        configuration = kubernetes.client.Configuration()
        try:
            if kubeconfig:
                load_kube_config(kubeconfig, client_configuration=configuration)
            else:
                load_incluster_config(client_configuration=configuration)
        # The package answers a file of another form with whatever error it runs into.
        except Exception as cause:
            what = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's service account"
            raise KubernetesError(
                f"{what} cannot be used ({type(cause).__name__}: {' '.join(str(cause).split())[:300]}): name a readable kubeconfig, or run in a pod that has a service account"
            ) from cause
        configuration.connection_pool_maxsize = 8
        self._configuration = configuration
        self._pool: urllib3.PoolManager = kubernetes.client.ApiClient(configuration).rest_client.pool_manager
        self.host: str = configuration.host

    def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        """Return one object or list."""
        return dict(json.loads(self.get_bytes(path, query)))

    def get_bytes(self, path: str, query: dict[str, str] | None = None) -> bytes:
        """Return one object or list, not parsed."""
        response = self._request("GET", path, query, None, READ_S)
        try:
            return bytes(response.data)
        except HTTPError as cause:
            raise self._away(path, cause) from cause
        finally:
            response.release_conn()

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Create an object."""
        self._request("POST", path, None, json.dumps(body).encode(), READ_S).release_conn()

    def watch(self, path: str, query: dict[str, str], read_s: float) -> Iterator[dict[str, Any]]:
        """Yield watch events until the server ends the watch.

        Parameters
        ----------
        path, query
            What to watch, `resourceVersion` and selectors.
        read_s
            Seconds without a byte after which the connection is taken for dead.

        """
        response = self._request("GET", path, {**query, "watch": "true"}, None, read_s)
        rest = b""
        try:
            for chunk in response.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        except HTTPError as cause:
            raise self._away(path, cause) from cause
        finally:
            response.close()

    def _request(self, method: str, path: str, query: dict[str, str] | None, body: bytes | None, read_s: float) -> Response:
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        try:
            response: Response = self._pool.request(
                method,
                url,
                body=body,
                headers=headers,
                preload_content=False,
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=read_s),
            )
        except HTTPError as cause:
            raise self._away(path, cause, method) from cause
        if response.status < 400:
            return response
        text = response.data.decode(errors="replace")
        response.release_conn()
        raise self._refused(path, response.status, text)

    def _away(self, path: str, cause: Exception, method: str = "GET") -> KubernetesError:
        return KubernetesError(f"{method} {self.host}{path} failed ({cause}): is the API server up and reachable?")

    def _refused(self, path: str, status: int, text: str) -> Exception:
        try:
            message = json.loads(text).get("message", text)
        except ValueError:
            message = text
        if status == 410:
            return Gone(message)
        remedy = {401: "check the token of the kubeconfig", 403: "grant the rights of deploy/rbac"}.get(status, "retried")
        return KubernetesError(f"{self.host}{path} answered {status} ({message.strip()[:300]}): {remedy}")

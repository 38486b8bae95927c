"""The gRPC server on its unix socket, with health and reflection."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pyscheduler.edge.inspect_servicer import InspectServicer
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from pyscheduler.edge.plugin_servicer import PluginServicer
from pyscheduler.errors import ServeError

__all__ = ["EdgeServer"]

PLUGIN = scheduler_pb2.DESCRIPTOR.services_by_name["SchedulerPlugin"].full_name
INSPECT = inspect_pb2.DESCRIPTOR.services_by_name["Inspect"].full_name

# Each open stream (Changes, health Watch) holds a thread; unary calls need few, since one lock orders them.
THREADS = 16
# More than this at once is refused with RESOURCE_EXHAUSTED: the scheduler asks for one pod at a time.
CALLS_MAX = 64


class EdgeServer:
    """Serves until `stop`.

    Health says NOT_SERVING until `serving` is called, and SERVING from then on. While the API server is away that stays so:
    what is known and what was reserved still holds, and nothing could be bound anyway. How old it is, /readyz says.
    """

    def __init__(self, path: Path, plugin: PluginServicer, inspect: InspectServicer) -> None:
        _claim(path)
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="rpc"), maximum_concurrent_rpcs=CALLS_MAX
        )
        self._health = health.HealthServicer(
            experimental_non_blocking=True, experimental_thread_pool=ThreadPoolExecutor(max_workers=1)
        )
        self._say(health_pb2.HealthCheckResponse.NOT_SERVING)
        scheduler_pb2_grpc.add_SchedulerPluginServicer_to_server(plugin, self._server)
        inspect_pb2_grpc.add_InspectServicer_to_server(inspect, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((PLUGIN, INSPECT, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as cause:
            raise ServeError(f"socket {path} cannot be served ({cause}): check that its folder is writable") from cause

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def serving(self) -> None:
        """Say SERVING: nodes and pods are known."""
        self._say(health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, wait for those under way at most that long."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()

    def _say(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", PLUGIN, INSPECT):
            self._health.set(service, status)


def _claim(path: Path) -> None:
    """Make sure that the folder exists and that no living server holds the socket; a file left by a dead one goes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise ServeError(f"socket {path}: its folder cannot be made ({cause.strerror}): choose another `socket`") from cause
    if not path.is_socket():
        if path.exists():
            raise ServeError(f"socket {path} is a file of another kind: remove it or choose another `socket`")
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ServeError(f"socket {path} is served by another process: stop it or choose another `socket`")

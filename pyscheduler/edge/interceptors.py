"""What every call goes through: readiness, deadline, one canonical log line, metrics, and errors to gRPC status.

The only place where gRPC status codes appear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from pyscheduler.edge.codec import BadRequest

__all__ = ["CallLog", "guarded"]


class CallLog(Protocol):
    """Where a finished call is told."""

    def call(self, method: str, code: str, verdict: str, seconds: float, **fields: object) -> None:
        """Note one call: log line and metrics."""

    def failed(self, method: str, cause: BaseException, **fields: object) -> None:
        """Note a bug in a handler, with its traceback."""


def guarded(
    name: str,
    handler: Callable[[Any, dict[str, object]], Message],
    *,
    ready: Callable[[], bool],
    clock: Callable[[], float],
    log: CallLog,
) -> Callable[[Any, grpc.ServicerContext], Message]:
    """Wrap one unary handler.

    The handler gets the request and a dictionary to put the fields of its log line into.
    """

    def call(request: Any, context: grpc.ServicerContext) -> Message:
        begun, fields, code = clock(), {}, grpc.StatusCode.OK  # type: ignore[var-annotated]
        try:
            refused = _refusal(ready, context)
            if refused is None:
                return handler(request, fields)
            code, text = refused
        except BadRequest as cause:
            code, text = grpc.StatusCode.INVALID_ARGUMENT, str(cause)
        except Exception as cause:  # noqa: BLE001  a bug: the caller gets a status, the log gets the traceback
            log.failed(name, cause, **fields)
            code, text = grpc.StatusCode.INTERNAL, f"bug in {name}: {type(cause).__name__}; see the service's log"
        finally:
            log.call(name, code.name, str(fields.pop("verdict", "")), clock() - begun, **fields)
        context.abort(code, text)
        raise AssertionError("abort always raises")

    return call


def _refusal(ready: Callable[[], bool], context: grpc.ServicerContext) -> tuple[grpc.StatusCode, str] | None:
    if not ready():
        return grpc.StatusCode.UNAVAILABLE, "the service has not yet read all nodes and pods"
    # None without a deadline, whatever the stubs say.
    left: float | None = context.time_remaining()
    if left is not None and left <= 0:
        return grpc.StatusCode.DEADLINE_EXCEEDED, "the caller has given up"
    return None

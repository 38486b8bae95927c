"""Asks a running service over its socket, for the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc

from pyscheduler.edge.pb.v1 import inspect_pb2 as pb
from pyscheduler.edge.pb.v1 import inspect_pb2_grpc
from pyscheduler.errors import PyschedulerError

__all__ = ["ServiceError", "capacity"]

# For one page: the service's worker may be polling meanwhile.
SECONDS: Final = 30.0


class ServiceError(PyschedulerError):
    """The service does not answer."""


def capacity(socket: str, *, node: str = "", only_bad: bool = False) -> dict[str, Any]:
    """Return what the service knows of cards: `status`, None where no card is judged, and `cards`.

    Raises
    ------
    ServiceError
        If it does not answer.

    """
    if not Path(socket).exists():
        raise ServiceError(f"no service has its socket at {socket}: {_REMEDY}")
    request = pb.ListCardsRequest(node=node, only_bad=only_bad)
    cards: list[dict[str, Any]] = []
    try:
        with grpc.insecure_channel(f"unix:{Path(socket).absolute()}") as channel:
            stub = inspect_pb2_grpc.InspectStub(channel)
            while True:
                page = stub.ListCards(request, timeout=SECONDS)
                cards += map(_card, page.cards)
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
    except grpc.RpcError as cause:
        raise _failure(socket, cause) from None
    return {"status": _status(page.status) if page.HasField("status") else None, "cards": cards}


_REMEDY: Final = "run this in its container (kubectl exec), or name its socket with --socket or --config"


def _failure(socket: str, cause: Any) -> ServiceError:
    if cause.code() is grpc.StatusCode.UNIMPLEMENTED:
        return ServiceError(f"the service at {socket} is older than this command: use the command of its own version")
    if cause.code() is grpc.StatusCode.UNAVAILABLE:
        return ServiceError(f"no service answers at {socket}: {_REMEDY}")
    return ServiceError(f"the service at {socket} answers {cause.code().name} ({cause.details()}): see its log")


def _status(value: pb.CapacityStatus) -> dict[str, Any]:
    return {
        "mode": value.mode,
        "url": value.url,
        "polled": value.polled,
        "frozen": value.frozen,
        "open_breakers": list(value.open_breakers),
        "age_seconds": _or_none(value, "age_seconds"),
        "problems": list(value.problems),
        "counts": [{"model": c.model, "state": c.state, "cards": c.cards, "excluded": c.excluded} for c in value.counts],
    }


def _card(value: pb.Card) -> dict[str, Any]:
    return {
        "node": value.node,
        "uuid": value.uuid,
        "mig": value.mig,
        "model": value.model,
        "state": value.state,
        "since": _or_none(value, "since"),
        "timer_seconds": _or_none(value, "timer_seconds"),
        "timer_end_seconds": _or_none(value, "timer_end_seconds"),
        "excluded": value.excluded,
        "score": value.score,
        "health": value.health,
        "speed": value.speed,
        "available": _or_none(value, "available"),
        "relative_speed": _or_none(value, "relative_speed"),
        "confidence": value.confidence,
        "evidence": value.evidence,
        "age_seconds": _or_none(value, "age_seconds"),
    }


def _or_none(message: Any, field: str) -> float | None:
    return getattr(message, field) if message.HasField(field) else None

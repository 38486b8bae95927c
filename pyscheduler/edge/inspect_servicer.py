"""Read-only views, for grpcurl, the command line and the page."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyscheduler.core.cluster import Cluster
from pyscheduler.edge import codec
from pyscheduler.edge.card_views import CardViews
from pyscheduler.edge.interceptors import CallLog, guarded
from pyscheduler.edge.pb.v1 import inspect_pb2 as pb
from pyscheduler.edge.pb.v1 import inspect_pb2_grpc

__all__ = ["InspectServicer"]

Fields = dict[str, object]


class InspectServicer(inspect_pb2_grpc.InspectServicer):
    """Shows one cluster. It answers before the service is ready, too: then it is needed most.

    `cards` is None where no cards are judged.
    """

    def __init__(
        self,
        cluster: Cluster,
        lock: threading.Lock,
        *,
        ready: Callable[[], bool],
        clock: Callable[[], float],
        log: CallLog,
        version: str,
        cards: CardViews | None = None,
    ) -> None:
        self._cluster = cluster
        self._lock = lock
        self._ready = ready
        self._clock = clock
        self._version = version
        self._cards = cards
        for name, handler in (
            ("GetState", self._state),
            ("ListNodes", self._nodes),
            ("ListHoldings", self._holdings),
            ("ListRefusals", self._refusals),
            ("ListCards", self._list_cards),
        ):
            setattr(self, name, guarded(name, handler, ready=lambda: True, clock=clock, log=log))

    def _state(self, request: pb.GetStateRequest, fields: Fields) -> pb.GetStateResponse:
        with self._lock:
            states = [s for s in self._cluster.states() if s.present]
            return pb.GetStateResponse(
                version=self._version,
                synced=self._ready(),
                epoch=self._cluster.table.epoch,
                generation=self._cluster.generation,
                nodes=len(states),
                gpus=sum(s.facts.allocatable for s in states),
                gpus_free=sum(s.free for s in states),
                gpus_held=sum(h.count for h in self._cluster.ledger.holdings()),
                refused_pods=len(self._cluster.refusals),
            )

    def _nodes(self, request: pb.ListNodesRequest, fields: Fields) -> pb.ListNodesResponse:
        with self._lock:
            names = self._cluster.table.names
            wanted = [i for i, name in enumerate(names) if request.name in ("", name)]
            found = [(i, names[i], self._cluster.state(i), tuple(self._cluster.ledger.on_node(i))) for i in wanted]
        return pb.ListNodesResponse(nodes=[codec.node(*view) for view in found])

    def _holdings(self, request: pb.ListHoldingsRequest, fields: Fields) -> pb.ListHoldingsResponse:
        with self._lock:
            names = self._cluster.table.names
            speed = self._cluster.relative_speed
            held = [(names[h.node], h, speed(h.node, h.gpus)) for h in self._cluster.ledger.holdings()]
        held.sort(key=lambda view: (view[0], view[1].namespace, view[1].name))
        now = self._clock()
        return pb.ListHoldingsResponse(holdings=[codec.holding(h, node, speed, now) for node, h, speed in held])

    def _refusals(self, request: pb.ListRefusalsRequest, fields: Fields) -> pb.ListRefusalsResponse:
        with self._lock:
            refused = list(self._cluster.refusals.all())
        now = self._clock()
        return pb.ListRefusalsResponse(refusals=[codec.refusal(r, now) for r in refused])

    def _list_cards(self, request: pb.ListCardsRequest, fields: Fields) -> pb.ListCardsResponse:
        # Without the lock: the cards come from another process, and that takes a moment.
        return self._cards.page(request) if self._cards else pb.ListCardsResponse()

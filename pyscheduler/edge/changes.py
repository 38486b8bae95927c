"""The stream that wakes refused pods: gathers what grew for 200 ms and hands it to every subscriber.

One thread asks the planner, however many shims listen. A slow subscriber loses
nothing that matters: its queue keeps the union of what it has not taken yet. One that
takes nothing for too long is ended: at the start of its next stream it wakes all pods itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from pyscheduler.core.planner import Planner
from pyscheduler.edge.interceptors import CallLog
from pyscheduler.edge.pb.v1 import scheduler_pb2 as pb

__all__ = ["GATHER_S", "Changes", "Subscription"]

GATHER_S = 0.2
# One scheduler listens, for a moment two while one takes over; the rest is people who look.
SUBSCRIBERS_MAX = 4
# Pods that a message names at most, some 400 kB: gRPC's clients take messages of 4 MB.
PODS_MAX = 10_000

_KINDS = {
    "nodes": pb.ChangesResponse.KIND_NODES,
    "freed": pb.ChangesResponse.KIND_FREED,
    "topology": pb.ChangesResponse.KIND_TOPOLOGY,
}


class Subscription:
    """One listening shim. Iterating blocks until there is something to tell, and ends after `close`.

    Parameters
    ----------
    first
        The first message.
    leave
        Called with the subscription at its end.
    cancel
        Ends the call itself, where the transport holds a message that the subscriber does not take.

    """

    def __init__(
        self, first: pb.ChangesResponse, leave: Callable[[Subscription], None], cancel: Callable[[], object] = lambda: None
    ) -> None:
        self._changed = threading.Condition()
        self._pending: pb.ChangesResponse | None = first
        self._closed = False
        # A message was handed to the transport, which has not asked for the next one.
        self._is_sending = False
        self._leave = leave
        self._cancel = cancel

    def put(self, message: pb.ChangesResponse) -> None:
        """Add to what the subscriber has not taken yet."""
        with self._changed:
            if self._pending is not None:
                message = _merged(self._pending, message)
            surplus = len(message.pod_uids) > PODS_MAX
            self._pending = None if surplus or self._closed else message
            self._changed.notify()
        if surplus:
            self.close()

    def close(self) -> None:
        """End the iteration. Safe to call more than once."""
        self._leave(self)
        with self._changed:
            is_stuck = self._is_sending and not self._closed
            self._closed = True
            self._changed.notify()
        if is_stuck:
            self._cancel()

    def __iter__(self) -> Iterator[pb.ChangesResponse]:
        while True:
            with self._changed:
                self._is_sending = False
                self._changed.wait_for(lambda: self._pending is not None or self._closed)
                message, self._pending = self._pending, None
                self._is_sending = message is not None
            if message is None:
                return
            yield message


class Changes:
    """Asks the planner every `GATHER_S` what grew. `run` is one thread's work until `stop`."""

    def __init__(self, planner: Planner, lock: threading.Lock, clock: Callable[[], float], log: CallLog) -> None:
        self._planner = planner
        self._log = log
        self._lock = lock
        self._clock = clock
        # In the order of their arrival.
        self._subscribers: dict[Subscription, None] = {}
        self._guard = threading.Lock()
        self._stopped = threading.Event()

    def subscribe(self, cancel: Callable[[], object] = lambda: None) -> Subscription:
        """Return a new subscription, which begins with the state as it is. Of too many the oldest ends: each holds a thread.

        `cancel` ends the call that carries it.
        """
        with self._lock:
            first = self._message(frozenset(), [])
        subscription = Subscription(first, self._leave, cancel)
        with self._guard:
            self._subscribers[subscription] = None
            surplus = list(self._subscribers)[:-SUBSCRIBERS_MAX]
        for oldest in surplus:
            oldest.close()
        if self._stopped.is_set():
            subscription.close()
        return subscription

    def run(self) -> None:
        """Gather and tell, until stopped."""
        while not self._stopped.wait(GATHER_S):
            try:
                self.tell()
            except Exception as cause:  # noqa: BLE001  a bug must not end all wake-ups
                self._log.failed("Changes", cause)

    def tell(self) -> None:
        """Tell the subscribers what grew since the last time, if anything did."""
        with self._lock:
            self._planner.expire(self._clock())
        with self._guard:
            listening = list(self._subscribers)
        if not listening:
            # What nobody hears would be lost: at the start of a stream the shim wakes everything itself.
            return
        with self._lock:
            grown, due = self._planner.wake(self._clock())
            ended = self._planner.gangs.plans.take_ended()
            message = self._message(grown, due, ended)
        if grown or due or ended:
            for subscription in listening:
                subscription.put(message)

    def stop(self) -> None:
        """End `run` and all subscriptions."""
        self._stopped.set()
        with self._guard:
            listening = list(self._subscribers)
        for subscription in listening:
            subscription.close()

    def _message(self, grown: frozenset[str], due: Sequence[str], ended: Sequence[str] = ()) -> pb.ChangesResponse:
        return pb.ChangesResponse(
            epoch=self._planner.cluster.table.epoch,
            table_size=len(self._planner.cluster.table),
            generation=self._planner.cluster.generation,
            kinds=sorted(_KINDS[kind] for kind in grown),
            pod_uids=due,
            ended_plans=ended,
        )

    def _leave(self, subscription: Subscription) -> None:
        with self._guard:
            self._subscribers.pop(subscription, None)


def _merged(older: pb.ChangesResponse, newer: pb.ChangesResponse) -> pb.ChangesResponse:
    return pb.ChangesResponse(
        epoch=newer.epoch,
        table_size=newer.table_size,
        generation=newer.generation,
        kinds=sorted({*older.kinds, *newer.kinds}),
        pod_uids=list(dict.fromkeys([*older.pod_uids, *newer.pod_uids])),
        ended_plans=[*older.ended_plans, *newer.ended_plans],
    )

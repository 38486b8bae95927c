"""All that may happen. One more family of events is one more module, and one more line here."""

from __future__ import annotations

from tests.oracle.books.event import Event
from tests.oracle.books.events_nodes import NODE_EVENTS
from tests.oracle.books.events_pods import POD_EVENTS
from tests.oracle.books.events_preemption import PREEMPTION_EVENTS
from tests.oracle.books.events_service import SERVICE_EVENTS
from tests.oracle.books.events_shim import SHIM_EVENTS

__all__ = ["EVENTS"]

EVENTS: tuple[Event, ...] = (*POD_EVENTS, *NODE_EVENTS, *SHIM_EVENTS, *PREEMPTION_EVENTS, *SERVICE_EVENTS)

"""Findings on nodes become Events that name the fix."""

from __future__ import annotations

from typing import cast

import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.events import EventWriter, Subject
from pyscheduler.adapters.node_events import NodeEvents
from pyscheduler.core.findings import Finding
from pyscheduler.core.model import NodeFacts


class Told:
    """Keeps what is to be written."""

    def __init__(self) -> None:
        self.events: list[tuple[Subject, str, str]] = []

    def tell(self, subject: Subject, reason: str, message: str) -> None:
        self.events.append((subject, reason, message))


WRONG = NodeFacts("a", findings=(Finding("odd", "its label is odd", "mend it"), Finding("late", "its report is old", "")))


def test_event_and_log_name_node_fault_and_remedy() -> None:
    told = Told()
    with capture_logs() as logs:
        NodeEvents(cast("EventWriter", told), structlog.get_logger()).tell(WRONG, "uid-of-a")
    subject = Subject("Node", "a", "uid-of-a")
    assert told.events == [(subject, "GPUTopologyFinding", "its label is odd; mend it; its report is old")]
    assert [(line["event"], line["node"], line["codes"]) for line in logs] == [("node finding", "a", ["late", "odd"])]


def test_node_of_a_list_goes_by_its_name() -> None:
    told = Told()
    with capture_logs():
        NodeEvents(cast("EventWriter", told), structlog.get_logger()).tell(WRONG, "")
    assert told.events[0][0].uid == "a"

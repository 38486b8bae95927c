"""What cannot be used of the labels and objects of a group: a log line, and an Event on one of its pods."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.events import EventWriter, Subject
from pyscheduler.core.gangs.problems import Problem

__all__ = ["GangEvents"]


class GangEvents:
    """Tells problems as Events of reason GPUGroupProblem."""

    def __init__(self, writer: EventWriter, logger: FilteringBoundLogger) -> None:
        self._writer = writer
        self._logger = logger

    def tell(self, problem: Problem) -> None:
        """Tell one problem, on the pod on which it was found."""
        pod, message = problem.pod, f"its group {problem.gang}: {problem.text}"
        self._logger.warning("group problem", pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, message=message)
        self._writer.tell(Subject("Pod", pod.name, pod.uid, pod.namespace), "GPUGroupProblem", message)

"""Findings on nodes, told once: a log line and a Kubernetes Event that names the fix."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.events import EventWriter, Subject
from pyscheduler.core.model import NodeFacts

__all__ = ["NodeEvents"]


class NodeEvents:
    """Tells findings as Events of reason GPUTopologyFinding."""

    def __init__(self, writer: EventWriter, logger: FilteringBoundLogger) -> None:
        self._writer = writer
        self._logger = logger

    def tell(self, facts: NodeFacts, uid: str) -> None:
        """Tell what is wrong with the node's documents. `uid` may be empty: then the node goes by its name."""
        sentences = [f"{f.message}; {f.remedy}" if f.remedy else f.message for f in facts.findings]
        self._logger.warning("node finding", node=facts.name, codes=sorted({f.code for f in facts.findings}), findings=sentences)
        self._writer.tell(Subject("Node", facts.name, uid or facts.name), "GPUTopologyFinding", "; ".join(sentences))

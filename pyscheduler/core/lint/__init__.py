"""Checks of a whole cluster: what its labels and documents say that cannot be right, or that is missing.

Nothing found here takes a GPU, a node or the cluster out of use: it is told, with what to do. The checks are listed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.lint import documents, machines, places
from pyscheduler.core.record import NodeRecord

__all__ = ["gpus", "lint"]

_RANK: Final = {severity: rank for rank, severity in enumerate((Severity.ERROR, Severity.WARNING, Severity.NOTE))}


def lint(records: Sequence[NodeRecord], beside: Iterable[Finding] = ()) -> list[Finding]:
    """Return all findings on a cluster, each once: those of the checks, those of reading its nodes, and those `beside` nodes.

    The order is total: severity, code, node, message. It does not depend on the order of `records`.
    """
    nodes = sorted(records, key=lambda node: node.name)
    found = {*beside, *(finding for node in nodes for check in OF_A_NODE for finding in check(node))}
    with_gpus = [node for node in nodes if gpus(node)]
    found.update(finding for check in OF_THE_CLUSTER for finding in check(with_gpus))
    return sorted(found, key=lambda each: (_RANK[each.severity], each.code, each.node, each.message, each.remedy))


def gpus(node: NodeRecord) -> int:
    """Return how many GPUs a node has: those of its document, else what its kubelet says."""
    return len(node.document.gpus) if node.document else node.capacity


# A check is named like the code of its findings.
OF_A_NODE: Final[tuple[Callable[[NodeRecord], Iterable[Finding]], ...]] = (
    machines.as_read,
    machines.document_older_than_boot,
    machines.scheduled_elsewhere,
    machines.capacity_differs,
    machines.allocatable_fewer,
    machines.numa_unknown,
    machines.gpu_off_fabric,
    machines.link_unknown,
)
# These take the nodes with GPUs, in the order of their names.
OF_THE_CLUSTER: Final[tuple[Callable[[Sequence[NodeRecord]], Iterable[Finding]], ...]] = (
    documents.document_missing,
    documents.document_assumed,
    documents.uuid_duplicated,
    places.node_unplaced,
    places.several_parents,
    places.unequal_depth,
    places.tier_inversion,
    places.nvlink_domain_split,
    places.shallow,
)

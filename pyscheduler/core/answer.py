"""A placement in full: level, weakest link, ring bandwidth and warnings of the sets that pods were given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pyscheduler.core.cautions import about
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.job import Job, PodSet, Selection
from pyscheduler.core.machine.device_table import Choice, DeviceTable
from pyscheduler.core.machine.links import Link

__all__ = ["pod_set", "selection", "worth_of"]

_WORTHS_MAX: Final = 1 << 14


@lru_cache(maxsize=_WORTHS_MAX)
def worth_of(table: DeviceTable, mask: int) -> Choice:
    """Return what a set is worth on a class of machine: asked for with every pod, so remembered."""
    return table.describe(mask)


def pod_set(cluster: Cluster, node: int, mask: int) -> PodSet:
    """Return the set with its ring order. A mask of 0: it is not known which GPUs."""
    machine = cluster.state(node).facts.machine
    return PodSet(node, mask, machine.table.ring_order(mask) if machine and mask else ())


def selection(cluster: Cluster, job: Job, pods: Sequence[PodSet]) -> Selection:
    """Return the placement of a job. `pods` are in rank order."""
    # Equal sets of equal machines are described once: all pods of a gang are often alike.
    machines = ((cluster.state(pod.node).facts.machine, pod.mask) for pod in pods)
    choices = [worth_of(table, mask) for table, mask in {(m.table, mask): None for m, mask in machines if m and mask}]
    worst = min(choices, key=lambda choice: choice.ring_gbps, default=None)
    links = [Link.parse(choice.bottleneck) for choice in choices if choice.bottleneck]
    return Selection(
        pods=tuple(pods),
        level=cluster.fleet.tree().join(pod.node for pod in pods),
        bottleneck=max(links, key=lambda link: link.distance, default=None),
        ring_gbps=worst.ring_gbps if worst else 0.0,
        model=worst.model if worst else "count-only",
        warnings=about(cluster, job, pods),
    )

"""Whether nodes to add would let a group start that does not fit, and where they would have to be."""

from __future__ import annotations

from pyscheduler.core import freeing
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import UNSEEN, plural
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.job import Job, Refusal
from pyscheduler.core.request import Shape

__all__ = ["advice"]

# What binds where the pods, each by itself, find no GPUs: a cluster autoscaler sees such pods.
_NO_GPUS = ("gpus", "health", "partitions")


def advice(cluster: Cluster, job: Job, eligible: int, refusal: Refusal, domain: str) -> str:
    """Return what is wrong in a few words, and which nodes would help; nothing if nodes would not.

    Parameters
    ----------
    job, eligible, refusal
        What does not fit, on which nodes, and why.
    domain
        Level and name of the domain in which most of its pods fit; empty if there is none.

    """
    shape = Shape(job.resource, job.gpus, job.limits)
    # A node to add is taken for one like the largest that is there.
    per_node = int(freeing.holds_each(cluster.fleet, job, shape, freeing.positions_of(cluster, eligible)).max(initial=0))
    # Of a single pod the refusal counts GPUs.
    lacking = job.pods - refusal.fits if job.pods > 1 else 1
    near = "all its pods find free GPUs, but not close enough; " if refusal.binds == "level" else ""
    if job.required_level == NODE_LEVEL:
        if 0 < per_node < job.pods:
            return f"{near}only larger nodes would help; {UNSEEN}"
        lacking = job.pods
    elif job.required_level not in (None, *cluster.fleet.tree().levels):
        lacking = 0
    if lacking < 1 or not per_node:
        return ""
    within = job.required_level if job.required_level != NODE_LEVEL else None
    nodes = -(-lacking // per_node)
    where = f" to {domain or f'one {within}'}" if within else ""
    added = f"{'a node' if nodes == 1 else plural(nodes, 'node')} added{where} would help"
    if refusal.binds in _NO_GPUS:
        far, seen = (", however far apart", "; a cluster autoscaler cannot see where") if where else ("", "")
        return f"not all its pods find free GPUs{far}; {added}{seen}"
    return f"{near}{added}; {UNSEEN}"

"""What a person reads of a group that waits. Depends on the state alone, so that it stays the same from attempt to attempt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.gangs import growing
from pyscheduler.core.gangs.membership import Membership
from pyscheduler.core.job import Job, Refusal, Selection
from pyscheduler.core.model import PodRequest
from pyscheduler.core.request import Shape
from pyscheduler.core.selector import select

__all__ = [
    "fits_nowhere",
    "gpus_first",
    "incomplete",
    "no_room",
    "no_size",
    "on_kept_nodes",
    "refused_nodes",
    "rests",
    "too_many",
    "unread",
]


def no_size(membership: Membership) -> str:
    """Return what to do about a group whose size is not known."""
    source = membership.spec_from
    if source is None:
        return (
            f"its group {membership.gang} does not say how many members it needs: set the annotation pyscheduler.io/min-members"
        )
    return f"how many members its group {membership.gang} needs is read from {source.kind} {source.namespace}/{source.name}, which has not said so yet"


def unread(membership: Membership) -> str:
    """Return that the object of the group is being read."""
    source = membership.spec_from
    return f"{source.kind} {source.namespace}/{source.name} of its group {membership.gang} is being read" if source else ""


def incomplete(membership: Membership, there: int, least: int) -> str:
    """Return that members are missing."""
    return f"waits for its group {membership.gang}: {there} of {plural(least, 'member')} {'is' if there == 1 else 'are'} there"


def rests(membership: Membership) -> str:
    """Return that the group is not placed for a while."""
    return f"its group {membership.gang} had a place, but not all its members came to theirs in time: it is placed anew after a while"


def too_many(membership: Membership, most: int | None) -> str:
    """Return that the group is as large as it may be."""
    return f"its group {membership.gang} has the {plural(most or 0, 'member')} that it may have"


def gpus_first(membership: Membership) -> str:
    """Return what a member without GPUs waits for."""
    return f"waits for the members of its group {membership.gang} that ask for GPUs to be placed"


def fits_nowhere(member: PodRequest) -> str:
    """Return that a group cannot start for one of its members."""
    return f"waits for its member {member.name}, which fits no node: see its Events"


def on_kept_nodes(job: Job, membership: Membership) -> str:
    """Return what a group needs, where only nodes that are kept for others could hold it."""
    return f"its group {membership.gang} needs {plural(job.pods, 'pod')} of {plural(job.gpus)}"


def no_room(cluster: Cluster, job: Job, eligible: int, membership: Membership, refusal: Refusal) -> str:
    """Return why a group cannot be placed, where it nearly fits, and what would help."""
    if refusal.binds in {"subgroups", "kinds"}:
        # As a whole it would fit, or each kind of its members: what follows counts pods of one kind.
        return f"its group {membership.gang} {refusal.reason}: {refusal.change}"
    best = _best_domain(cluster, job, eligible)
    near = _by_level(cluster, job, eligible, *best) if best else ""
    helps = growing.advice(cluster, job, eligible, refusal, best[0] if best and not job.same_model else "")
    return f"its group {membership.gang} {refusal.reason}{near}: {refusal.change}{f'; {helps}' if helps else ''}"


def refused_nodes(cluster: Cluster, nodes: Iterable[int]) -> str:
    """Return which nodes are left out."""
    names = sorted(cluster.table.names[node] for node in nodes)
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"without {some}, which other plugins refused for a member, for example for lack of CPU"


def _best_domain(cluster: Cluster, job: Job, eligible: int) -> tuple[str, int] | None:
    """Return level and name of the domain of the required level in which most pods fit, and how many do."""
    tree, level = cluster.fleet.tree(), job.required_level
    if level is None or level not in tree.levels:
        return None
    room = cluster.fleet.slots(Shape(job.resource, job.gpus, job.limits), eligible)
    if not room.grades:
        return None
    vertices = tree.of_tier(tree.levels.index(level))
    totals = room.totals(vertices, one_per_node=job.one_pod_per_node)[:, -1]
    best = vertices[int(np.argmax(totals))]
    return f"{level} {_name(cluster, level, int(tree.order[tree.low[best]]))}", int(totals.max())


def _by_level(cluster: Cluster, job: Job, eligible: int, domain: str, most: int) -> str:
    """Return how many pods fit in the best domain of the required level, and the nearest wider level that holds all."""
    texts = [f"{most} of {job.pods} fit in {domain}"]
    levels = cluster.fleet.tree().levels
    for wider in levels[levels.index(job.required_level or "") + 1 :]:
        found = select(cluster, replace(job, required_level=wider or None), eligible)
        if isinstance(found, Selection):
            where = f"{wider} {_name(cluster, wider, found.pods[0].node)}" if wider else "the whole cluster"
            texts.append(f"{job.pods} fit in {where}")
            break
    return "; " + "; ".join(texts)


def _name(cluster: Cluster, level: str, node: int) -> str:
    """Return the name of the domain of this level that a node is in."""
    place = cluster.state(node).facts.place
    domain = place.domain(level)
    return (
        domain[0][1]
        if domain
        else place.nvlink_domain or cluster.table.names[node]
        if level != NODE_LEVEL
        else cluster.table.names[node]
    )

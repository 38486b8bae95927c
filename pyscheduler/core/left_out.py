"""What a refusal owes to cards that are left out for their capacity. Depends on the state alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.explain import plural
from pyscheduler.core.job import Capacity
from pyscheduler.core.model import NodeFacts
from pyscheduler.core.request import Shape

__all__ = ["REMEDY", "any_card", "binds", "text"]

REMEDY: Final = "pyscheduler.io/capacity: ignore"


def any_card(shape: Shape) -> Shape:
    """Return the shape of a pod that takes cards whatever their capacity."""
    return replace(shape, limits=replace(shape.limits, capacity=Capacity.IGNORE))


def binds(cluster: Cluster, shape: Shape, among: int) -> bool:
    """Tell of a pod that no node can take now whether some node could if no card were left out: now, or once others are gone."""
    if shape.limits.takes_all:
        return False
    states = [cluster.state(node) for node, _ in cluster.left_out(among)]
    wide = any_card(shape)
    if any(state.key(wide) is not None for state in states):
        return True
    return any(state.fits(wide) for state in states) and not among & cluster.present & ~cluster.ranking(shape).unresolvable


def text(cluster: Cluster, resource: str, among: int) -> str:
    """Return how many cards of these nodes are left out, and why; empty if none is."""
    reasons: Counter[str] = Counter()
    for node, excluded in cluster.left_out(among):
        facts = cluster.state(node).facts
        if facts.resource == resource:
            reasons.update(_reasons(facts, excluded))
    if not reasons:
        return ""
    why = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items(), key=lambda each: (-each[1], each[0])))
    count = reasons.total()
    are, their = ("is", "its") if count == 1 else ("are", "their")
    return f"{plural(count)} {are} left out for {their} capacity ({why}; `pyscheduler capacity` says which)"


def _reasons(facts: NodeFacts, excluded: Mapping[str, str]) -> list[str]:
    """Return why each GPU of a node is left out that is."""
    if facts.machine is None:
        # By UUID and by index the same GPU may be named twice.
        return list(excluded.values())[: facts.allocatable]
    return [why for handle, why in excluded.items() if facts.machine.mask_of([handle])]

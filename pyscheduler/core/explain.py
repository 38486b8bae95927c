"""The one sentence that a person reads when a pod cannot be placed.

A sentence depends on the state alone: no times, counters or generations, so
that it stays the same from attempt to attempt while nothing changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyscheduler.core.request import Shape

__all__ = ["UNSEEN", "Hole", "no_node", "plural"]

# Where pods, each by itself, find as many GPUs as they ask for: that is all that an autoscaler looks at.
UNSEEN: Final = "a cluster autoscaler cannot see this"


@dataclass(frozen=True, slots=True)
class Hole:
    """The most GPUs that one node has, and which node that is."""

    gpus: int
    node: str


def plural(count: int, noun: str = "GPU") -> str:
    """Return ``1 GPU``, ``2 GPUs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def no_node(shape: Shape, *, eligible: int, known: int, largest: Hole, freest: Hole, free: int) -> str:
    """Return why no eligible node can take the shape.

    Parameters
    ----------
    shape
        What is asked for.
    eligible, known
        Number of eligible nodes and of all nodes.
    largest, freest
        Among the eligible nodes that have the resource: the one with the most
        GPUs, and the one with the most free GPUs. Their `gpus` is 0 if there is none.
    free
        Free GPUs on all eligible nodes together.

    """
    asked = f"needs {plural(shape.gpus)} ({shape.resource}) on one node"
    if not eligible:
        return f"{asked}; node selector, affinity, taints and cordons admit none of the {plural(known, 'node')}"
    if not largest.gpus:
        return f"{asked}; none of the {plural(eligible, 'eligible node')} has {shape.resource}"
    if largest.gpus < shape.gpus:
        return (
            f"{asked}; the largest eligible node has {largest.gpus} ({largest.node}), {shape.gpus - largest.gpus} too few: "
            f"ask for at most {largest.gpus} per pod, or use several pods"
        )
    if freest.gpus >= shape.gpus:
        return f"{asked}; {freest.node} has {freest.gpus} free, but in no set that its kubelet's topology policy admits; {UNSEEN}"
    where = f"the nearest fit is {freest.node} with {freest.gpus}" if freest.gpus else "no eligible node has a free one"
    return (
        f"{asked}; {where}, {shape.gpus - freest.gpus} too few; "
        f"{plural(free)} {'is' if free == 1 else 'are'} free on the {plural(eligible, 'eligible node')}"
    )

"""The all-reduce bandwidth that a choice is predicted to have, from the communication model. It ranks, it promises nothing."""

from __future__ import annotations

from collections.abc import Iterable

from pyscheduler.core import comm_model
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import NVLINK_LEVEL
from pyscheduler.core.job import PodSet
from pyscheduler.core.machine.weights import Profile, Weights
from pyscheduler.core.node import NodeState

__all__ = ["by_node", "predicted_gbps"]


def predicted_gbps(cluster: Cluster, weights: Weights, pods: Iterable[PodSet], level: str | None) -> float | None:
    """Return the predicted bus bandwidth of a large all-reduce over all GPUs of a job, GB/s in three digits.

    None where the model has none: for one GPU, and where links or GPUs are not known.
    """
    if weights.profile is Profile.CLASSIC:
        # Its scale orders links and says nothing of their speed.
        return None
    masks = by_node(pods)
    shares = [_share(cluster.state(node), weights, mask, level) for node, mask in masks.items()]
    if not all(shares):
        return None
    layout = comm_model.Layout(tuple(share for share in shares if share), level, _hops(cluster, level) if len(masks) > 1 else 0)
    found = comm_model.allreduce_gbps(layout)
    return float(f"{found:.3g}") if found else None


def by_node(pods: Iterable[PodSet]) -> dict[int, int]:
    """Return the GPUs of each node together."""
    masks: dict[int, int] = {}
    for pod in pods:
        masks[pod.node] = masks.get(pod.node, 0) | pod.mask
    return masks


def _hops(cluster: Cluster, level: str | None) -> int:
    """Return how far up a level is. The widest tier is the whole cluster and has no name."""
    tiers = [each for each in cluster.fleet.tree().levels if each != NVLINK_LEVEL]
    return tiers.index(level or "") if (level or "") in tiers else 0


def _share(state: NodeState, weights: Weights, mask: int, level: str | None) -> comm_model.NodeShare | None:
    """Return what a node carries of a job, None if it is not known which GPUs these are.

    Its traffic crosses the levels up to the one that holds the job: the narrowest of them counts.
    """
    facts = state.facts
    if facts.machine is None or not mask:
        return None
    kind = facts.machine.table.device_class
    model = kind.models[(mask & -mask).bit_length() - 1]
    levels = [name for name, _ in facts.place.path]
    crossed = levels[: levels.index(level) + 1] if level in levels else levels
    network = min([weights.level_gbps(name, model) for name in crossed or [""]])
    ring = facts.machine.table.describe(mask).ring_gbps
    return comm_model.share(kind, mask, ring, network, nvlink_domain=facts.place.nvlink_domain)

"""How many GPUs a pod needs at its peak, and which container gets which of them.

Kubernetes counts a pod's containers as its scheduler does (KEP-753): app and
sidecar containers run together; an init container runs beside the sidecars
that started before it, and its devices are reused afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyscheduler.core.job import NO_LIMITS, Limits
from pyscheduler.core.model import Code, ContainerKind, ContainerRequest, Verdict

__all__ = ["Shape", "effective_gpus", "shape_of", "share_out"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides where a pod fits: pods of one shape fit on the same nodes."""

    resource: str
    gpus: int
    limits: Limits = NO_LIMITS


def effective_gpus(containers: Iterable[ContainerRequest]) -> int:
    """Return the largest number of GPUs that the containers hold at one time."""
    apps = sidecars = init_peak = 0
    for c in containers:
        if c.kind is ContainerKind.APP:
            apps += c.gpus
        elif c.kind is ContainerKind.SIDECAR:
            sidecars += c.gpus
        else:
            init_peak = max(init_peak, sidecars + c.gpus)
    return max(apps + sidecars, init_peak)


def shape_of(containers: Sequence[ContainerRequest], limits: Limits = NO_LIMITS) -> Shape | Verdict:
    """Return the pod's shape, or the reason why it can never be placed."""
    resources = sorted({c.resource for c in containers if c.gpus})
    if len(resources) > 1:
        return Verdict(
            Code.UNRESOLVABLE,
            f"the pod asks for {' and '.join(resources)}; no node has both: use one resource per pod",
        )
    if not resources:
        return Verdict(Code.UNRESOLVABLE, "the pod asks for no GPU: nothing to place here")
    return Shape(resources[0], effective_gpus(containers), limits)


def share_out(containers: Iterable[ContainerRequest], handles: Sequence[str]) -> dict[str, list[str]]:
    """Return container name to GPU handles.

    Sidecars and app containers get disjoint GPUs. An init container gets GPUs
    behind those of the sidecars that started before it; the app containers reuse them.

    Parameters
    ----------
    containers
        In the order of the pod's spec, init containers first.
    handles
        ``effective_gpus(containers)`` different GPUs.

    """
    shares: dict[str, list[str]] = {}
    taken = 0
    for c in (c for c in containers if c.kind is not ContainerKind.APP):
        shares[c.name] = list(handles[taken : taken + c.gpus])
        if c.kind is ContainerKind.SIDECAR:
            taken += c.gpus
    for c in (c for c in containers if c.kind is ContainerKind.APP):
        shares[c.name] = list(handles[taken : taken + c.gpus])
        taken += c.gpus
    return {name: share for name, share in shares.items() if share}

"""What machines of one kind have in common: equal classes share one table of choices."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link, gbps

__all__ = ["DeviceClass", "TopologyPolicy", "class_hash", "cost_shares", "default_speeds"]


class TopologyPolicy(enum.StrEnum):
    """The kubelet's topology manager policy; one that is not known restricts nothing."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"

    @property
    def restricts(self) -> bool:
        """Whether the kubelet rejects pods for their NUMA nodes."""
        return self in {TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE}


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """What machines of one kind have in common; GPU UUIDs and health are not part of it.

    Attributes
    ----------
    models
        Model of each GPU, in index order; None where it is not known.
    numa
        NUMA node of each GPU; None where it is not known.
    links
        Link of each pair, in the order of ``itertools.combinations(range(n), 2)``.
    policy
        Topology manager policy of the kubelet.
    nic_links
        Distance of each GPU from each NIC, one row per GPU; empty where no NIC is known.
    speeds
        Bandwidth of each pair in MB/s, one direction, in the order of `links`, where it is not that of the link types
        (`core.machine.links.gbps`) but configured or measured; empty if the link types say it all.
    ring_mbps
        Measured bus bandwidth of a collective of all GPUs in MB/s, None if none was measured.
    costs
        What AMD's tools print as the weight of each pair, in the order of `links`: at least 1, lower is nearer; None
        where a pair has none. Empty if no pair has one.
    partitions
        Masks: the only sets of GPUs that may be given out together. Empty: any set.
    nics, nic_names
        Id of each NIC, and the name that the system gives it, in the order of the columns of `nic_links`.
        Either may be empty.

    """

    models: tuple[str | None, ...]
    numa: tuple[int | None, ...]
    links: tuple[Link, ...]
    policy: TopologyPolicy = TopologyPolicy.NONE
    nic_links: tuple[tuple[Link, ...], ...] = ()
    speeds: tuple[int, ...] = ()
    ring_mbps: int | None = None
    costs: tuple[int | None, ...] = ()
    partitions: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()
    nic_names: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        pairs = len(self.models) * (len(self.models) - 1) // 2
        if len(self.numa) != len(self.models) or len(self.links) != pairs:
            raise ValueError(
                f"{len(self.models)} GPUs need as many NUMA nodes and {pairs} links, not {len(self.numa)} and {len(self.links)}"
            )
        if self.nic_links and len(self.nic_links) != len(self.models):
            raise ValueError(f"{len(self.models)} GPUs need as many rows of NIC distances, not {len(self.nic_links)}")
        if self.speeds and len(self.speeds) != pairs:
            raise ValueError(f"{pairs} pairs need as many speeds, not {len(self.speeds)}")
        if self.costs and (len(self.costs) != pairs or any(cost is not None and cost < 1 for cost in self.costs)):
            raise ValueError(f"{pairs} pairs need as many costs of at least 1, not {len(self.costs)}: {self.costs[:8]}")
        if any(not 0 < partition < 1 << len(self.models) for partition in self.partitions):
            raise ValueError(f"a partition holds at least one of the {len(self.models)} GPUs, and no other")

    @classmethod
    def of(
        cls,
        models: Sequence[str | None],
        numa: Sequence[int | None],
        links: Mapping[tuple[int, int], str],
        policy: str | None = None,
    ) -> DeviceClass:
        """Return the class from link types by pair ``(a, b)``, a < b.

        Pairs that are left out are unknown, and so is a policy of None.

        Raises
        ------
        UnknownLinkTypeError
            If a link type is none.
        ValueError
            If the lengths differ, or `policy` is none of the kubelet's.

        """
        pairs = combinations(range(len(models)), 2)
        return cls(
            tuple(models),
            tuple(numa),
            tuple(Link.parse(links[pair]) if pair in links else UNKNOWN_LINK for pair in pairs),
            TopologyPolicy(policy or "none"),
        )

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.models)

    @property
    def known_models(self) -> tuple[str | None, ...]:
        """`models`, where a GPU without one counts as what all others are; None where these differ, or none is known."""
        known = {model for model in self.models if model is not None}
        return tuple(known) * self.gpus if len(known) == 1 else self.models

    @property
    def mixed(self) -> bool:
        """Whether GPUs of several models are in it."""
        return len(set(self.known_models)) > 1

    @property
    def matrix(self) -> tuple[tuple[Link, ...], ...]:
        """Link of each pair in both directions; of a GPU to itself, unknown."""
        by_pair = dict(zip(combinations(range(self.gpus), 2), self.links, strict=True))
        span = range(self.gpus)
        return tuple(tuple(by_pair.get((min(i, j), max(i, j)), UNKNOWN_LINK) for j in span) for i in span)


def default_speeds(device_class: DeviceClass) -> tuple[int, ...]:
    """Return the bandwidth of each pair in MB/s, in the order of ``links``.

    It is that of the link type with the slower GPU, times the pair's share by cost (`cost_shares`).
    """
    models = device_class.models
    pairs = zip(combinations(range(device_class.gpus), 2), device_class.links, cost_shares(device_class), strict=True)
    speeds = [1000 * share * min(gbps(link, models[a]), gbps(link, models[b])) for (a, b), link, share in pairs]
    # At least 1 where there is a speed: 0 is that of an unknown link.
    return tuple([max(1, round(speed)) if speed else 0 for speed in speeds])


def cost_shares(device_class: DeviceClass) -> tuple[float, ...]:
    """Return which share of its link type's bandwidth each pair has by its cost, above 0 and at most 1.

    The nearest pair of a kind of link has all of it, one of twice the cost half. A pair without a cost, where others of
    its kind have one, counts as farther than the farthest of them: what is not known must never win.
    """
    known: dict[Kind, set[int]] = {}
    priced = list(zip(device_class.links, device_class.costs, strict=True)) if device_class.costs else []
    for link, cost in priced:
        if cost is not None:
            known.setdefault(link.kind, set()).add(cost)
    if not known:
        return (1.0,) * len(device_class.links)
    return tuple(_share(cost, known.get(link.kind)) for link, cost in priced)


def _share(cost: int | None, known: Collection[int] | None) -> float:
    if not known:
        return 1.0
    return min(known) / (max(known) + 1 if cost is None else cost)


def class_hash(device_class: DeviceClass) -> str:
    """Return 16 hex digits that are equal for machines that can share a table, in every process and on every node."""
    content = [
        device_class.models,
        device_class.numa,
        [str(link) for link in device_class.links],
        device_class.policy if device_class.policy.restricts else None,
        [[str(link) for link in row] for row in device_class.nic_links],
        device_class.speeds,
        device_class.ring_mbps,
        device_class.costs,
        device_class.partitions,
        device_class.nics,
        device_class.nic_names,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

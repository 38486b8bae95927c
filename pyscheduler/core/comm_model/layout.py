"""What the communication model is told: the GPUs of a job, node by node, and the network between them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from pyscheduler.core.machine.device_class import DeviceClass, default_speeds
from pyscheduler.core.machine.links import behind_switch

__all__ = ["INFINIBAND", "ROCE", "Layout", "Links", "Network", "NodeShare", "share"]


class Links(enum.StrEnum):
    """What the GPUs of a node are linked by."""

    NVSWITCH = "nvswitch"
    DIRECT = "direct"
    PCIE = "pcie"


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The GPUs of a job on one node. `share` makes it from a device class.

    Attributes
    ----------
    gpus
        How many, at least 1.
    ring_gbps
        Bandwidth of the rings of exactly this set, GB/s, as `core.machine.device_table.Choice.ring_gbps`; 0 if it is not known.
        Of one GPU in an NVLink domain of several nodes: what its NVLinks carry.
    nic_gbps
        GB/s in one direction of each GPU's own NIC, or of the NIC that all of them share; 0 if it is not known.
    nic_shared
        Whether `nic_gbps` is that of the whole node.
    links
        What this set is linked by.
    model
        GPU model, as the driver or the product label has it.
    measured
        Whether `ring_gbps` is what a collective was measured at.
    nvlink_domain
        Key of the multi-node NVLink domain, as `core.fabric.place.Place.nvlink_domain`.
    """

    gpus: int
    ring_gbps: float
    nic_gbps: float = 0.0
    nic_shared: bool = False
    links: Links = Links.DIRECT
    model: str | None = None
    measured: bool = False
    nvlink_domain: str | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"a node's share must have at least 1 GPU, not {self.gpus}")
        for name, rate in (("ring_gbps", self.ring_gbps), ("nic_gbps", self.nic_gbps)):
            if not 0 <= rate < math.inf:
                raise ValueError(f"{name} must be a finite number of GB/s, at least 0, not {rate}")

    @property
    def network_gbps(self) -> float:
        """GB/s between these GPUs together and the network, one direction."""
        return self.nic_gbps if self.nic_shared else self.gpus * self.nic_gbps


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the GPUs of a job are.

    Attributes
    ----------
    shares
        One per node.
    level
        The nearest level that holds them all, as `core.job.Selection.level`; for people, nothing is computed from it.
    hops
        How far up that level is: 0 for the level nearest to the nodes.
    oversubscription
        Bandwidth of the NICs below that level over that of its uplinks, at least 1: 4 for 4:1. 1 is also right where
        traffic does not leave a leaf.
    """

    shares: tuple[NodeShare, ...]
    level: str | None = None
    hops: int = 0
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        if self.hops < 0:
            raise ValueError(f"hops must be at least 0, not {self.hops}")
        if not 1 <= self.oversubscription < math.inf:
            raise ValueError(f"oversubscription must be a finite number, at least 1, not {self.oversubscription}")

    @property
    def ranks(self) -> int:
        """Number of GPUs."""
        return sum(share.gpus for share in self.shares)


@dataclass(frozen=True, slots=True)
class Network:
    """What a collective gets of the NICs' nominal bandwidth.

    Attributes
    ----------
    efficiency
        Share of it on large messages. InfiniBand and EFA 0.96: NVIDIA expects 46 to 48 GB/s of a 50 GB/s NIC (nccl-tests
        issue 290). RoCE 0.80: 320 of 400 GB/s on 4 nodes (nccl issue 1221).
    crowd_ranks, crowd_efficiency
        Beyond so many ranks in several domains, this share of what links and network would give: 1,440 ranks on 20 racks
        of GB200 have 405 GB/s, 144 on two have 820 (CoreWeave's README of nccl-tests).
    peer_gbps
        What one node can send to one other, where a provider limits each TCP flow; None without a limit. EC2 outside a
        cluster placement group: 0.625, by its guide to network bandwidth. A ring of two nodes has one peer, any other two.
    """

    efficiency: float = 0.96
    crowd_ranks: int = 1000
    crowd_efficiency: float = 0.65
    peer_gbps: float | None = None

    def __post_init__(self) -> None:
        for name, part in (("efficiency", self.efficiency), ("crowd_efficiency", self.crowd_efficiency)):
            if not 0 < part <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, not {part}")
        if self.peer_gbps is not None and not 0 < self.peer_gbps < math.inf:
            raise ValueError(f"peer_gbps must be a finite number of GB/s above 0, not {self.peer_gbps}")


INFINIBAND: Final = Network()
ROCE: Final = Network(efficiency=0.80)


def share(
    device_class: DeviceClass,
    mask: int,
    ring_gbps: float,
    nic_gbps: float,
    *,
    nic_shared: bool = False,
    nvlink_domain: str | None = None,
) -> NodeShare:
    """Return a node's share from the kind of machine it is.

    Parameters
    ----------
    device_class
        The machine.
    mask
        Its GPUs that the job has, at least one.
    ring_gbps
        Ring bandwidth of that set by the device table, GB/s.
    nic_gbps, nic_shared, nvlink_domain
        As of `NodeShare`; `core.machine.weights.Weights.level_gbps` has the bandwidth of a NIC by GPU model.
    """
    members = [gpu for gpu in range(device_class.gpus) if mask >> gpu & 1]
    if not members:
        raise ValueError(f"mask {mask:#x} names none of the machine's {device_class.gpus} GPUs")
    matrix = device_class.matrix
    switched = all(behind_switch(matrix[gpu], device_class.models[gpu]) for gpu in members)
    # A GPU without a fast link to another of the set has the ring cross PCIe.
    direct = all(any(matrix[a][b].fast for b in members) for a in members)
    return NodeShare(
        gpus=len(members),
        ring_gbps=_port_gbps(device_class, members[0]) if len(members) == 1 and switched else ring_gbps,
        nic_gbps=nic_gbps,
        nic_shared=nic_shared,
        links=Links.NVSWITCH if switched else Links.DIRECT if direct else Links.PCIE,
        model=device_class.models[members[0]],
        measured=device_class.ring_mbps is not None,
        nvlink_domain=nvlink_domain,
    )


def _port_gbps(device_class: DeviceClass, gpu: int) -> float:
    """Return what the NVLinks of a GPU behind a switch carry, GB/s: as much as to any one peer."""
    speeds = device_class.speeds or default_speeds(device_class)
    pairs = combinations(range(device_class.gpus), 2)
    return max(speed for pair, speed in zip(pairs, speeds, strict=True) if gpu in pair) / 1000

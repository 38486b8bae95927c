"""Cost per step and per byte of a collective on a layout."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyscheduler.core.comm_model.layout import INFINIBAND, Layout, Links, Network, NodeShare
from pyscheduler.core.machine.links import words

__all__ = ["Bound", "Collective", "Prediction", "allreduce_gbps", "predict"]

# Microseconds, NCCL's Simple protocol (src/graph/tuning.cc): start of a ring; a step of a ring on NVLink, on PCIe, through
# the network; posting by the host within a step between nodes (3 times 2.0, the slower of its two figures). A step of a
# tree is the time of a 256 kB chunk on any link (2.8 to 2.17, where the file says what the figure means).
_START_US: Final = 8.4
_NVLINK_US: Final = 3.4
_PCIE_US: Final = 5.7
_NETWORK_US: Final = 14.0
_POST_US: Final = 6.0
_TREE_US: Final = 28.0
# A switch hop beyond the first, there and back, as `core.machine.weights` has it.
_HOP_US: Final = 1.0
# Tree bandwidth of that of a ring: tuning.cc.
_TREE_SHARE: Final = 0.92

# Bytes below which the model says nothing that can be trusted: across domains, inside one.
_TRUSTED_ACROSS: Final = 16e6
_TRUSTED_INSIDE: Final = 1e6
_LARGE: Final = float(1 << 30)

# What all-reduce was measured at on one node, over the nominal ring of the device table, from so many GPUs on. With five
# or more behind an NVSwitch that reduces (SHARP), bus bandwidth exceeds the ring.
# A100: 231.6 of 240 GB/s (Azure ND_A100_v4). H100, H200: 367.6 of 370.8 on the ring; 5 to 8 GPUs 414, 436, 460, 479
# (stas00/ml-engineering; nccl issue 1455 has the same). B200: 673 of 721.8; 5 to 8 GPUs 678, 778, 811, 838 (stas00).
_A100: Final = ((1, 0.965),)
_HOPPER: Final = ((1, 0.991), (5, 1.117), (6, 1.176), (7, 1.241), (8, 1.292))
_BLACKWELL: Final = ((1, 0.933), (5, 0.939), (6, 1.078), (7, 1.124), (8, 1.161))
_SWITCHED: Final[dict[str, tuple[tuple[int, float], ...]]] = {
    "A100": _A100,
    **dict.fromkeys(("H100", "H200", "GH200"), _HOPPER),
    **dict.fromkeys(("B200", "GB200"), _BLACKWELL),
}
# MI300X: 312.9 of the 448 GB/s that rings on its seven links would carry, and 47.7 of 64 for two GPUs (stas00).
_DIRECT: Final[dict[str, tuple[tuple[int, float], ...]]] = {"MI300X": ((1, 0.745), (8, 0.698))}


class Collective(enum.StrEnum):
    """A collective operation, by the names of nccl-tests."""

    ALLREDUCE = "allreduce"
    ALLGATHER = "allgather"
    REDUCESCATTER = "reducescatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALLTOALL = "alltoall"

    def factor(self, ranks: int) -> float:
        """Return bus bandwidth over size by time (nccl-tests, doc/PERFORMANCE.md)."""
        if self is Collective.ALLREDUCE:
            return 2 * (ranks - 1) / ranks
        return 1.0 if self in {Collective.BROADCAST, Collective.REDUCE} else (ranks - 1) / ranks


class Bound(enum.StrEnum):
    """What takes most of the time."""

    LINKS = "links"
    NETWORK = "network"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long a collective takes.

    Attributes
    ----------
    busbw_gbps
        Bus bandwidth as nccl-tests define it, GB/s.
    seconds
        Time of one operation.
    bound_by
        The links inside the narrowest domain, the network, or latency if it takes more than half of the time.
    trusted
        Whether the message is large enough for the model.
    """

    busbw_gbps: float
    seconds: float
    bound_by: Bound
    trusted: bool


@dataclass(frozen=True, slots=True)
class _Domain:
    """GPUs that NVLink or a node's own links join: a node's, or those of a multi-node NVLink domain."""

    shares: tuple[NodeShare, ...]

    @property
    def gpus(self) -> int:
        return sum(share.gpus for share in self.shares)

    @property
    def network_gbps(self) -> float:
        rates = [share.network_gbps for share in self.shares]
        return sum(rates) if min(rates) > 0 else 0.0

    @property
    def step_us(self) -> float:
        return _PCIE_US if any(share.links is Links.PCIE for share in self.shares) else _NVLINK_US

    def ring_gbps(self, collective: Collective) -> float:
        """Return the bandwidth inside, that of its slowest node; unlimited for one GPU."""
        if self.gpus == 1:
            return math.inf
        return min(share.ring_gbps * _reached(share, self.gpus, collective) for share in self.shares)


def predict(
    layout: Layout,
    size_bytes: float,
    collective: Collective = Collective.ALLREDUCE,
    network: Network = INFINIBAND,
) -> Prediction | None:
    """Predict how long one collective takes on an idle cluster; None if a bandwidth that it needs is not known.

    Parameters
    ----------
    layout
        At least two GPUs, else there is nothing to predict and the answer is None.
    size_bytes
        Size as nccl-tests count it: of one rank's buffer (all-gather, reduce-scatter: of the whole), above 0.
    collective
        The operation.
    network
        What it gets of the NICs.
    """
    if not 0 < size_bytes < math.inf:
        raise ValueError(f"size_bytes must be a finite number above 0, not {size_bytes}")
    ranks = layout.ranks
    if ranks < 2:
        return None
    domains = _domains(layout.shares)
    inside = min(domain.ring_gbps(collective) for domain in domains)
    outside = _network_gbps(domains, layout, network)
    if min(inside, outside) <= 0:
        return None
    if collective is Collective.ALLTOALL:
        inside, outside = _alltoall_gbps(domains, ranks, layout, network)
    crowd = network.crowd_efficiency if len(domains) > 1 and ranks > network.crowd_ranks else 1.0
    latency, transfer = _cost(domains, ranks, layout.hops, collective, size_bytes, min(inside, outside) * crowd)
    seconds = latency + transfer
    slower = Bound.NETWORK if outside < inside else Bound.LINKS
    return Prediction(
        busbw_gbps=size_bytes / seconds * collective.factor(ranks) / 1e9,
        seconds=seconds,
        bound_by=Bound.LATENCY if latency > transfer else slower,
        trusted=size_bytes >= (_TRUSTED_INSIDE if len(domains) == 1 else _TRUSTED_ACROSS),
    )


def allreduce_gbps(layout: Layout, network: Network = INFINIBAND) -> float | None:
    """Return the predicted bus bandwidth of an all-reduce of 1 GiB, GB/s; None as `predict`."""
    prediction = predict(layout, _LARGE, Collective.ALLREDUCE, network)
    return None if prediction is None else prediction.busbw_gbps


def _domains(shares: Iterable[NodeShare]) -> list[_Domain]:
    """Return the shares by NVLink domain; a node that is in none is its own."""
    groups: dict[str | int, list[NodeShare]] = {}
    for at, share in enumerate(shares):
        groups.setdefault(at if share.nvlink_domain is None else share.nvlink_domain, []).append(share)
    return [_Domain(tuple(group)) for group in groups.values()]


def _reached(share: NodeShare, gpus: int, collective: Collective) -> float:
    """Return what a collective of `gpus` reaches of a nominal ring: 1 for a measured one, and where no measurement is known."""
    if share.measured:
        return 1.0
    table = {Links.NVSWITCH: _SWITCHED, Links.DIRECT: _DIRECT, Links.PCIE: {}}[share.links]
    steps = next((table[word] for word in words(share.model) if word in table), ((1, 1.0),))
    # Only all-reduce was measured to gain from reductions in the switch.
    reach = gpus if collective is Collective.ALLREDUCE or share.links is not Links.NVSWITCH else 1
    return next(part for least, part in reversed(steps) if least <= reach)


def _network_gbps(domains: Sequence[_Domain], layout: Layout, network: Network) -> float:
    """Return the ring's bandwidth between domains: that of the domain with least of it, unlimited if there is one domain."""
    if len(domains) == 1:
        return math.inf
    nics = min(domain.network_gbps for domain in domains) * _nic_share(layout, network)
    return min(nics, _peers_gbps(domains, network))


def _nic_share(layout: Layout, network: Network) -> float:
    return network.efficiency / layout.oversubscription


def _peers_gbps(domains: Sequence[_Domain], network: Network) -> float:
    return math.inf if network.peer_gbps is None else network.peer_gbps * min(2, len(domains) - 1)


def _alltoall_gbps(domains: Sequence[_Domain], ranks: int, layout: Layout, network: Network) -> tuple[float, float]:
    """Return the bus bandwidths at which all-to-all would run if only the links counted, and if only the network did.

    A rank sends the share (c - 1) / (n - 1) of its traffic inside its domain of c, and the rest out.
    """
    at_links = at_network = math.inf
    for domain in domains:
        outside = (ranks - domain.gpus) / (ranks - 1)
        if domain.gpus > 1:
            at_links = min(at_links, domain.ring_gbps(Collective.ALLTOALL) / (1 - outside))
        if outside:
            sent = domain.network_gbps * _nic_share(layout, network)
            if network.peer_gbps is not None:
                sent = min(sent, network.peer_gbps * (len(domains) - 1))
            at_network = min(at_network, sent / domain.gpus / outside)
    return at_links, at_network


def _cost(
    domains: Sequence[_Domain], ranks: int, hops: int, collective: Collective, size_bytes: float, gbps: float
) -> tuple[float, float]:
    """Return seconds of latency and of transfer, of the faster of ring and tree."""
    transfer = collective.factor(ranks) * size_bytes / (gbps * 1e9)
    across = len(domains) - 1
    step = max(domain.step_us for domain in domains)
    once = (ranks - 1 - across) * (max(step, _POST_US) if across else step) + across * (_NETWORK_US + hops * _HOP_US)
    rounds = 2 if collective is Collective.ALLREDUCE else 1
    ring = 1e-6 * (_START_US + rounds * once), transfer
    if not across or collective is not Collective.ALLREDUCE:
        return ring
    inner = ranks / len(domains) - 1
    depth = inner * _TREE_US + math.log2(len(domains)) * (_TREE_US + hops * _HOP_US)
    tree = 1e-6 * (_START_US + 2 * depth), transfer / _TREE_SHARE
    return min(ring, tree, key=sum)

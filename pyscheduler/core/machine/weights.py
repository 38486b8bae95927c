"""How fast the links and levels count: defaults, what the operator configures, and benchmarks, which fade with age.

Two profiles. ``bandwidth`` (default): GB/s of each link type and GPU model (`core.machine.links`), cost in microseconds per MB.
``classic``: the scale NVLink 1, PCIe switch 5, across sockets 15, across nodes 50, whatever the machine.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from pyscheduler.core.machine.links import ACROSS_NODES_WEIGHT, Kind, Link, gbps, weight, words

__all__ = ["Override", "Profile", "Weights"]

# A classic weight as a bandwidth: any scale that falls with the weight ranks alike.
_CLASSIC_GBPS: Final = 1000.0

# GB/s of the network per GPU, one direction: the NICs that the vendor's reference machine of that card has (NVIDIA DGX
# and HGX user guides: 4 x 100 Gb/s for 8 V100, 8 x 200 for A100, 8 x 400 for H100, H200, B200; one 400 Gb/s ConnectX-7 per
# GB200, one 800 Gb/s ConnectX-8 per GB300; AMD's MI300X reference design: 8 x 400).
_NIC_GBPS: Final[dict[str, float]] = {
    **dict.fromkeys(("P100", "V100"), 6.25),
    **dict.fromkeys(("A100", "A800", "MI200", "MI250", "MI250X"), 25.0),
    **dict.fromkeys(("H100", "H200", "H20", "H800", "GH200", "B100", "B200", "GB200"), 50.0),
    **dict.fromkeys(("MI300X", "MI325", "MI325X", "MI350", "MI350X", "MI355", "MI355X"), 50.0),
    **dict.fromkeys(("B300", "GB300"), 100.0),
}
# Any other machine: one 100 Gb/s port per GPU.
_ANY_NIC_GBPS: Final = 12.5

# Microseconds. NCCL's hardware latencies of the Simple protocol on rings (src/graph/tuning.cc: NVLink 3.4, PCI 5.7,
# network 14.0); a switch hop beyond the first adds about 1 us (leaf to spine and back, vendors' figures for 2 hops each).
_LATENCY_US: Final = {"nvlink": 3.4, "pcie": 5.7, "network": 14.0}
_HOP_US: Final = 1.0
# MB by which latency and bandwidth are weighed against each other: the smallest message for which the model is used.
_MESSAGE_MB: Final = 16.0


class Profile(enum.StrEnum):
    """Which scale counts."""

    BANDWIDTH = "bandwidth"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class Override:
    """A figure of the operator's.

    Attributes
    ----------
    kind
        A link type (``NV18``, ``PIX``, ``SYS``), a kind with any count (``NV``, ``XGMI``), or the name of a fabric level.
    gbps
        GB/s in one direction; of a level, per GPU.
    model
        A word of the GPU model (``H100``); empty for all.
    level
        Whether `kind` is a level. A level may be named like a link type.
    """

    kind: str
    gbps: float
    model: str = ""
    level: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """The figures in force.

    Attributes
    ----------
    profile
        Which scale counts.
    overrides
        The operator's figures; of several that match, the last counts.
    half_life_s
        Seconds after which a benchmark's result counts half, against the default.
    """

    profile: Profile = Profile.BANDWIDTH
    overrides: tuple[Override, ...] = ()
    half_life_s: float = 30 * 86400.0

    @property
    def standard(self) -> bool:
        """Whether the defaults of the link types hold for every machine."""
        return self.profile is Profile.BANDWIDTH and not self.overrides

    def link_gbps(self, link: Link, model: str | None) -> float:
        """Return the bandwidth of a link in GB/s, one direction."""
        if self.profile is Profile.CLASSIC:
            return 0.0 if link.kind is Kind.UNKNOWN else _CLASSIC_GBPS / weight(link)
        configured = self._configured((str(link), str(link).rstrip("0123456789")), model, level=False)
        return gbps(link, model) if configured is None else configured

    def level_gbps(self, level: str, model: str | None, nic_gbps: float | None = None) -> float:
        """Return the bandwidth per GPU between domains within a level, GB/s; `nic_gbps` is that of the node's own NICs."""
        configured = self._configured((level,), model, level=True)
        if configured is not None:
            return configured
        if nic_gbps is not None:
            return nic_gbps
        return next((_NIC_GBPS[word] for word in words(model) if word in _NIC_GBPS), _ANY_NIC_GBPS)

    def link_cost(self, link: Link, model: str | None) -> float:
        """Return the cost of a link, > 0: microseconds per MB for large messages, or the classic weight."""
        if self.profile is Profile.CLASSIC:
            return float(weight(link))
        return _cost(self.link_gbps(link, model), _LATENCY_US["nvlink" if link.fast else "pcie"])

    def level_cost(self, level: str, hops: int, model: str | None, nic_gbps: float | None = None, *, below: float = 0.0) -> float:
        """Return the cost across the `hops`-th level of the fabric (0 is the nearest), > 0, as `link_cost`.

        It is a hop more than `below`, the cost of what the level joins, or the figures would put the wide level before
        the near one: between sockets PCIe is slower than the network of many machines. The classic scale has one weight
        for all levels.
        """
        if self.profile is Profile.CLASSIC:
            return max(float(ACROSS_NODES_WEIGHT), below)
        own = _cost(self.level_gbps(level, model, nic_gbps), _LATENCY_US["network"] + hops * _HOP_US)
        return max(own, below + _HOP_US / _MESSAGE_MB)

    def _configured(self, kinds: tuple[str, ...], model: str | None, *, level: bool) -> float | None:
        found = None
        for override in self.overrides:
            if override.level == level and override.kind in kinds and (not override.model or override.model in words(model)):
                found = override.gbps
        return found


def _cost(speed_gbps: float, latency_us: float) -> float:
    """Return microseconds per MB of a message of `_MESSAGE_MB`; an unknown path is the worst that floats sort."""
    return latency_us / _MESSAGE_MB + (1000.0 / speed_gbps if speed_gbps > 0 else 1e6)

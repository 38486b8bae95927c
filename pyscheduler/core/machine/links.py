"""What lies between two GPUs of one node, and how fast it is.

Bandwidths are those with which NCCL and RCCL plan their rings: GB/s, large
messages, one direction. They rank sets of GPUs; they are no promise.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ACROSS_NODES_WEIGHT",
    "UNKNOWN_LINK",
    "Kind",
    "Link",
    "UnknownLinkTypeError",
    "behind_switch",
    "gbps",
    "weight",
    "words",
]


class UnknownLinkTypeError(ValueError):
    """A text that is no link type."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"link type {text!r} is not known; use NV<n>, XGMI<n>, XGMI, PIX, PXB, PHB, NODE, PCIE, SYS or ? (unknown)"
        )
        self.text = text


class Kind(enum.IntEnum):
    """The kinds of path, nearest first."""

    NVLINK = 0
    XGMI = 1
    PIX = 2
    PXB = 3
    PHB = 4
    NODE = 5
    PCIE = 6
    SYS = 7
    UNKNOWN = 8


# Two digits: no two GPUs have 100 links between them, and what the tables add up must stay in 64 bits.
_COUNTED: Final = re.compile(r"(NV|XGMI)([1-9]\d?)")
_PREFIX: Final = {"NV": Kind.NVLINK, "XGMI": Kind.XGMI}
_NAMES: Final = {
    "XGMI": Kind.XGMI,
    "PIX": Kind.PIX,
    "PXB": Kind.PXB,
    "PHB": Kind.PHB,
    "NODE": Kind.NODE,
    "PCIE": Kind.PCIE,
    "SYS": Kind.SYS,
    # What older drivers print.
    "SOC": Kind.SYS,
    "?": Kind.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Link:
    """The path between two GPUs.

    `count` is the number of NVLinks or Infinity Fabric links, directly or
    through a switch; 0 where it is not known (``XGMI``) or has no meaning.
    """

    kind: Kind
    count: int = 0

    @classmethod
    def parse(cls, text: str) -> Link:
        """Read a link type as topology tools print it.

        Raises
        ------
        UnknownLinkTypeError
            If `text` is none. Nothing is guessed.

        """
        if text in _NAMES:
            return cls(_NAMES[text])
        if counted := _COUNTED.fullmatch(text):
            return cls(_PREFIX[counted[1]], int(counted[2]))
        raise UnknownLinkTypeError(text)

    def __str__(self) -> str:
        """Return the link type, so that ``Link.parse(str(link)) == link``."""
        if self.kind is Kind.NVLINK:
            return f"NV{self.count}"
        if self.kind is Kind.UNKNOWN:
            return "?"
        return f"{self.kind.name}{self.count or ''}"

    @property
    def distance(self) -> tuple[int, int]:
        """What to sort by, nearest first. Without a count: behind those of its kind that have one."""
        return self.kind, -self.count

    @property
    def fast(self) -> bool:
        """Whether GPUs are linked without PCIe."""
        return self.kind in {Kind.NVLINK, Kind.XGMI}


UNKNOWN_LINK: Final = Link(Kind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class _NvlinkPort:
    """What one GPU has: number of NVLinks, and GB/s of each in one direction."""

    links: int
    gbps: float


# GB/s: NCCL, src/graph/topo.h (SM60_NVLINK_BW ... SM100_NVLINK_BW, RUBIN_NVLINK_BW). Links per GPU: NVIDIA's NVLink
# generations table (nvidia.com/en-us/data-center/nvlink) and, for the bridged cards, their datasheets.
_PASCAL: Final = _NvlinkPort(4, 18.0)
_VOLTA: Final = _NvlinkPort(6, 20.0)
_AMPERE: Final = _NvlinkPort(12, 20.0)
_AMPERE_BRIDGED: Final = _NvlinkPort(4, 12.0)
_HOPPER: Final = _NvlinkPort(18, 20.6)
_BLACKWELL: Final = _NvlinkPort(18, 40.1)
_RUBIN: Final = _NvlinkPort(36, 31.2)
# NCCL takes 20 GB/s where it does not know the GPU; no GPU up to Blackwell has more than 18 NVLinks.
_ANY_NVIDIA: Final = _NvlinkPort(18, 20.0)

_NVLINK_PORTS: Final[dict[str, _NvlinkPort]] = {
    "P100": _PASCAL,
    "V100": _VOLTA,
    "A100": _AMPERE,
    "A800": _AMPERE,
    "A30": _NvlinkPort(4, 20.0),
    "A40": _AMPERE_BRIDGED,
    "A4500": _AMPERE_BRIDGED,
    "A5000": _AMPERE_BRIDGED,
    "A5500": _AMPERE_BRIDGED,
    "A6000": _AMPERE_BRIDGED,
    "3090": _AMPERE_BRIDGED,
    "H100": _HOPPER,
    "H200": _HOPPER,
    "H20": _HOPPER,
    "H800": _HOPPER,
    "GH200": _HOPPER,
    "B100": _BLACKWELL,
    "B200": _BLACKWELL,
    "B300": _BLACKWELL,
    "GB200": _BLACKWELL,
    "GB300": _BLACKWELL,
    "VR200": _RUBIN,
}

# 16 lanes at the rate that AMD names for the generation: 23, 25, 32 and 38.4 GT/s (rocm.docs.amd.com, GPU architecture
# pages of MI100, MI250 and MI300; MI350 series datasheet).
_XGMI_GBPS: Final[dict[str, float]] = {
    "MI100": 46.0,
    "MI210": 50.0,
    "MI250": 50.0,
    "MI250X": 50.0,
    # As the labels of AMD's node labeller have it: MI250X in blades of HPE.
    "MI200": 50.0,
    "MI300A": 64.0,
    "MI300X": 64.0,
    "MI325": 64.0,
    "MI325X": 64.0,
    "MI350": 76.8,
    "MI350X": 76.8,
    "MI355": 76.8,
    "MI355X": 76.8,
}
_ANY_AMD_GBPS: Final = 46.0

# GB/s of the two ends of the PCIe ladder, by PCIe generation of the GPU. Nearest: NCCL's rates of x16 links by link
# speed (src/graph/topo.cc, kvDictPciGen: 60, 120 and 240 in 100 Mb/s per lane, x 16 / 80). Farthest: between the
# sockets of the CPUs of that time (src/graph/topo.h: SKL_QPI_BW, AMD_BW, SPR_QPI_BW).
_PCIE_ENDS: Final[dict[int, tuple[float, float]]] = {3: (12.0, 10.0), 4: (24.0, 16.0), 5: (48.0, 22.0)}
# What lies between only orders the classes: each further bridge on the way costs a little.
_PCIE_STEPS: Final[dict[Kind, float]] = {
    Kind.PIX: 0.0,
    Kind.PXB: 0.2,
    Kind.PHB: 0.4,
    Kind.NODE: 0.6,
    Kind.PCIE: 0.8,
    Kind.SYS: 1.0,
}
# PCIe generation by the datasheet of the card. One that is not named counts as 3.0, which every machine has.
_PCIE_GENERATION: Final[dict[str, int]] = {
    **dict.fromkeys(("A100", "A800", "A30", "A40", "A10", "A16", "A2", "L4", "L40", "L40S", "L20"), 4),
    **dict.fromkeys(("A4500", "A5000", "A5500", "A6000", "3090", "4090", "MI100", "MI200", "MI210", "MI250", "MI250X"), 4),
    **dict.fromkeys(("H100", "H200", "H20", "H800", "GH200", "B100", "B200", "B300", "GB200", "GB300", "5090"), 5),
    **dict.fromkeys(("MI300A", "MI300X", "MI325", "MI325X", "MI350", "MI350X", "MI355", "MI355X"), 5),
}

# The classic scale, for display: NVLink 1, one PCIe switch 5, across sockets 15, across nodes 50.
ACROSS_NODES_WEIGHT: Final = 50
_WEIGHTS: Final[dict[Kind, int]] = {
    Kind.NVLINK: 1,
    Kind.XGMI: 1,
    Kind.PIX: 5,
    Kind.PXB: 5,
    Kind.PHB: 10,
    Kind.NODE: 10,
    Kind.PCIE: 15,
    Kind.SYS: 15,
    Kind.UNKNOWN: 50,
}

_WORD: Final = re.compile(r"[A-Z0-9]+")


def words(model: str | None) -> list[str]:
    """Return the words of a model name, upper case: what tables of models are looked up by."""
    return _WORD.findall((model or "").upper())


def _nvlink_port(model: str | None) -> _NvlinkPort:
    return next((_NVLINK_PORTS[word] for word in words(model) if word in _NVLINK_PORTS), _ANY_NVIDIA)


def _xgmi_gbps(model: str | None) -> float:
    return next((_XGMI_GBPS[word] for word in words(model) if word in _XGMI_GBPS), _ANY_AMD_GBPS)


def _pcie_gbps(kind: Kind, model: str | None) -> float:
    """Return the bandwidth of a PCIe path; nothing is promised of an unknown one."""
    if kind is Kind.UNKNOWN:
        return 0.0
    generation = next((_PCIE_GENERATION[word] for word in words(model) if word in _PCIE_GENERATION), 3)
    near, far = _PCIE_ENDS[generation]
    return near + (far - near) * _PCIE_STEPS[kind]


def gbps(link: Link, model: str | None) -> float:
    """Return the bandwidth of `link` in GB/s, one direction, between GPUs of `model`.

    `model` is the driver's name or the product label; an unknown one gets the
    rate that most GPUs of its vendor have or exceed. Links without a count are one link.
    """
    if link.kind is Kind.NVLINK:
        return link.count * _nvlink_port(model).gbps
    if link.kind is Kind.XGMI:
        return max(link.count, 1) * _xgmi_gbps(model)
    return _pcie_gbps(link.kind, model)


def behind_switch(links: Iterable[Link], model: str | None) -> bool:
    """Tell whether a GPU of `model` with these links to its peers is on an NVSwitch.

    Then the count of each pair is the GPU's whole port, shared by all peers:
    the counts add up to more NVLinks than the GPU has.
    """
    return sum(link.count for link in links if link.kind is Kind.NVLINK) > _nvlink_port(model).links


def weight(link: Link) -> int:
    """Return the cost of `link` on the classic scale, for people; nothing is decided by it."""
    return _WEIGHTS[link.kind]

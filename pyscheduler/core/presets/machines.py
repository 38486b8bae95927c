"""The machines that presets describe: how their GPUs are linked, and what else is the same on every one of them.

A board with an NVSwitch, or with all of its GPUs linked to each other, is built into many boxes. What the board decides
is in ``hgx-*`` and in AMD's presets: the links. What the box decides (NUMA nodes, NICs) is not known there; it differs
even for one card (B200: 0,0,0,0,1,1,1,1 and 0,0,2,2,3,3,5,5 are both in use, github.com/sgl-project/sglang/pull/40055).
``dgx-*`` and the names of systems are one box each, and say it.

Sources stand beside what they are of. What none was found for is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from pyscheduler.core.machine.document import Nic
from pyscheduler.core.machine.links import Link

__all__ = ["MACHINES", "PCIE_COUNTS", "Machine"]

Pair = tuple[int, int]
Links = Mapping[Pair, Link]


@dataclass(frozen=True, slots=True)
class Machine:
    """One kind of machine.

    Attributes
    ----------
    model
        What the cards of every such machine have in common in their name; None if any card may be in it.
    links
        (a, b), a < b, to the link of two GPUs; every pair is there.
    numa
        NUMA node of each GPU, None where it varies.
    nics
        NICs of the compute network; none where they vary.
    nic_links
        (gpu, nic) to their distance.
    """

    model: str | None
    links: Links
    numa: tuple[int | None, ...]
    nics: tuple[Nic, ...] = ()
    nic_links: Links = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Network:
    """NICs of `gbps` GB/s each, one direction. Of NIC i, `gpus[i]` are at its PCIe switch, at distance PXB.

    The other GPUs of the socket are ``NODE``, all others ``SYS``.
    """

    gbps: float
    gpus: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()

    def nics(self) -> tuple[Nic, ...]:
        names = self.names or (None,) * len(self.gpus)
        return tuple(Nic(f"NIC{at}", name, gbps=self.gbps) for at, name in enumerate(names))

    def links(self, numa: Sequence[int | None]) -> Links:
        return {
            (gpu, nic): Link.parse("PXB" if gpu in near else "NODE" if node == numa[near[0]] else "SYS")
            for nic, near in enumerate(self.gpus)
            for gpu, node in enumerate(numa)
        }


def _every(gpus: int, kind: str) -> Links:
    """Link every pair alike."""
    return dict.fromkeys(combinations(range(gpus), 2), Link.parse(kind))


def _mesh(gpus: int, other: str, **pairs: Iterable[Pair]) -> Links:
    """Link the given pairs by link type, and every other pair by `other`."""
    return {**_every(gpus, other), **{pair: Link.parse(kind) for kind, of_kind in pairs.items() for pair in of_kind}}


def _board(model: str | None, gpus: int, kind: str) -> Machine:
    return Machine(model, _every(gpus, kind), (None,) * gpus)


def _box(model: str, links: Links, numa: tuple[int, ...], network: _Network | None = None) -> Machine:
    if network is None:
        return Machine(model, links, numa)
    return Machine(model, links, numa, network.nics(), network.links(numa))


_TWO_SOCKETS: Final = (0, 0, 0, 0, 1, 1, 1, 1)

# DGX-1: each quad is fully linked, and each GPU to its counterpart in the other quad; Volta's two further links double
# some of these. github.com/NVIDIA/go-gpuallocator, gpuallocator/common_test.go (NewDGX1PascalNode, NewDGX1VoltaNode).
_CUBE_MESH: Final = (
    *combinations(range(4), 2),
    *combinations(range(4, 8), 2),
    *((gpu, gpu + 4) for gpu in range(4)),
)
_DOUBLED: Final = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))

# DGX A100: NUMA nodes, and two 200 Gb/s NICs at the switch of each pair of GPUs: github.com/NVIDIA/nccl/issues/1505.
_DGX_A100: Final = _Network(25.0, ((0, 1), (0, 1), (2, 3), (2, 3), (4, 5), (4, 5), (6, 7), (6, 7)))
# DGX H100/H200 User Guide, "Network Modules": the ConnectX-7 of each GPU and its RDMA name, 400 Gb/s. Distances and NUMA
# nodes: github.com/sgl-project/sglang/pull/9812 (a machine with that layout).
_RDMA: Final = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")
_DGX_HOPPER: Final = _Network(50.0, tuple((gpu,) for gpu in range(8)), _RDMA)
# DGX B200 User Guide: eight single-port ConnectX-7, 400 Gb/s; two CPUs of 56 cores. Distances and NUMA nodes:
# github.com/vllm-project/vllm/issues/16336 (a machine with those CPUs).
_DGX_B200: Final = _Network(50.0, tuple((gpu,) for gpu in range(8)))

# MI250X as HPE builds it (Cray EX235a: Frontier, LUMI). Which dies are linked, and NUMA nodes: github.com/ROCm/rccl,
# tools/topo_expl/models/topo_8p_90a_1.xml. Four links within a package (200 GB/s, Frontier User Guide). Between packages
# some pairs have one link and some two; which have two is not in these sources, so the number is left out.
_PACKAGES: Final = ((0, 1), (2, 3), (4, 5), (6, 7))
_BETWEEN_PACKAGES: Final = ((0, 2), (0, 6), (1, 3), (1, 5), (2, 4), (3, 7), (4, 6), (5, 7))

_BOXES: Final[Mapping[str, Machine]] = {
    "dgx-1p": _box("Tesla P100-SXM2", _mesh(8, "SYS", NV1=_CUBE_MESH), _TWO_SOCKETS),
    "dgx-1v": _box("Tesla V100-SXM2", _mesh(8, "SYS", NV1=_CUBE_MESH, NV2=_DOUBLED), _TWO_SOCKETS),
    # Links and NUMA nodes: github.com/NVIDIA/nccl-tests/issues/78.
    "dgx-2": _box("Tesla V100-SXM3", _every(16, "NV6"), (0,) * 8 + (1,) * 8),
    "dgx-a100": _box("NVIDIA A100-SXM4", _every(8, "NV12"), (3, 3, 1, 1, 7, 7, 5, 5), _DGX_A100),
    "dgx-h100": _box("NVIDIA H100 80GB HBM3", _every(8, "NV18"), _TWO_SOCKETS, _DGX_HOPPER),
    "dgx-h200": _box("NVIDIA H200", _every(8, "NV18"), _TWO_SOCKETS, _DGX_HOPPER),
    "dgx-b200": _box("NVIDIA B200", _every(8, "NV18"), _TWO_SOCKETS, _DGX_B200),
    # One CPU with four NUMA nodes: ALCF user guide, Polaris, "Device Affinity Information".
    "polaris": _box("NVIDIA A100-SXM4", _every(4, "NV4"), (3, 2, 1, 0)),
    # One Grace per GPU; 18 NVLinks to three peers, as nvidia-smi shows on Cray nodes with four GH200.
    "gh200-4": _box("NVIDIA GH200", _every(4, "NV6"), (0, 1, 2, 3)),
    # A compute tray of NVL72: two Graces, github.com/sgl-project/sglang/issues/11208; of GB300 likewise,
    # github.com/ishandhanani/srt-slurm/pull/164. All GPUs of the rack are one NVLink domain; that is the fabric's to tell.
    "gb200": _box("NVIDIA GB200", _every(4, "NV18"), (0, 0, 1, 1)),
    "gb300": _box("NVIDIA GB300", _every(4, "NV18"), (0, 0, 1, 1)),
    "mi250x": _box(
        "AMD Instinct MI250X",
        _mesh(8, "SYS", XGMI4=_PACKAGES, XGMI=_BETWEEN_PACKAGES),
        (3, 3, 1, 1, 0, 0, 2, 2),
    ),
}

_BOARDS: Final[Mapping[str, Machine]] = {
    # Behind NVSwitches every pair has the whole port of a GPU: 12 NVLinks of A100, 18 of Hopper and Blackwell (NVIDIA's
    # table of NVLink generations); A800 and H800 are limited to 8 (matrices: github.com/guevara/read-it-later/issues/11550,
    # github.com/sgl-project/sglang/issues/5765); H20 is not (the former). Two A100 boards make one of 16 (Fabric
    # Manager User Guide).
    "hgx-a100": _board("NVIDIA A100-SXM4", 8, "NV12"),
    "hgx-a100-16": _board("NVIDIA A100-SXM4", 16, "NV12"),
    "hgx-a800": _board("NVIDIA A800-SXM4", 8, "NV8"),
    "hgx-h100": _board("NVIDIA H100", 8, "NV18"),
    "hgx-h800": _board("NVIDIA H800", 8, "NV8"),
    "hgx-h20": _board("NVIDIA H20", 8, "NV18"),
    "hgx-h200": _board("NVIDIA H200", 8, "NV18"),
    "hgx-b200": _board("NVIDIA B200", 8, "NV18"),
    "hgx-b300": _board("NVIDIA B300", 8, "NV18"),
    # Boards of four have no NVSwitch: each GPU's NVLinks go to its three peers in equal parts (12 / 3 and 18 / 3; the
    # first as in the ALCF user guide, Polaris). Four GPUs of an eight-GPU board, as clouds rent them, have more than this.
    "hgx-a100-4": _board("NVIDIA A100-SXM4", 4, "NV4"),
    "hgx-h100-4": _board("NVIDIA H100", 4, "NV6"),
    "hgx-h200-4": _board("NVIDIA H200", 4, "NV6"),
    # One link between any two of eight: github.com/ROCm/rccl, tools/topo_expl/models: topo_8p_940.xml (MI300X),
    # topo_8p_950.xml (MI350X). MI325X and MI355X sit on the same boards (AMD datasheets: seven links to seven peers).
    "mi300x": _board("AMD Instinct MI300X", 8, "XGMI1"),
    "mi325x": _board("AMD Instinct MI325X", 8, "XGMI1"),
    "mi350x": _board("AMD Instinct MI350X", 8, "XGMI1"),
    "mi355x": _board("AMD Instinct MI355X", 8, "XGMI1"),
}

# Cards in PCIe slots: which share a switch or a socket, and where bridges are seated, is the owner's choice. SYS is the
# one link type that promises nothing false: any two cards of a machine reach each other at least so. Taken as unknown
# (0 GB/s), such a node would rank below every other and be refused to whoever sets a limit; taken as better, a job could
# be promised a switch that is not there. All sets of one size are equal then: lowest indices and whole aligned pairs
# decide, which are neighbours on most machines.
PCIE_COUNTS: Final = (2, 3, 4, 6, 8, 10, 16)

MACHINES: Final[Mapping[str, Machine]] = {
    **_BOXES,
    **_BOARDS,
    # No pair, so nothing that could be wrong.
    "single": _board(None, 1, "SYS"),
    **{f"pcie-{gpus}": _board(None, gpus, "SYS") for gpus in PCIE_COUNTS},
}

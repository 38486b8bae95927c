"""Node documents of real machines, for simulated nodes.

Each machine is what public dumps of that machine show: link matrix, NUMA nodes, CPU lists and NICs.
The source of every figure stands beside it. GPU UUIDs follow from node name and index; bus ids and CPU lists that a
source does not show are the simulation's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Machine:
    """One kind of machine.

    Attributes
    ----------
    model
        Card as the driver names it.
    resource
        Extended resource that the device plugin of the vendor serves.
    pci
        Bus id of each GPU, in index order.
    numa
        NUMA node of each GPU.
    cpus
        CPU list of each NUMA node.
    fast
        Link type of the pairs ``(a, b)``, a < b, that are better connected than by their NUMA nodes alone.
    inside
        Link type of every other pair within one NUMA node. Pairs across NUMA nodes are ``SYS``.
    nic_switches
        GPUs behind the same PCIe switch as each NIC, one entry for each NIC.
    nic_near
        Distance of a NIC to those GPUs.
    nic_inside
        Distance of a NIC to the other GPUs of its NUMA node.
    """

    model: str
    resource: str
    pci: tuple[str, ...]
    numa: tuple[int, ...]
    cpus: Mapping[int, str]
    fast: Mapping[tuple[int, int], str]
    inside: str
    nic_switches: tuple[tuple[int, ...], ...] = ()
    nic_near: str = "PIX"
    nic_inside: str = "NODE"


def _pairs(kind: str, *pairs: tuple[int, int]) -> dict[tuple[int, int], str]:
    return dict.fromkeys(pairs, kind)


def _mesh(kind: str, gpus: int) -> dict[tuple[int, int], str]:
    return dict.fromkeys(combinations(range(gpus), 2), kind)


def _buses(*buses: str) -> tuple[str, ...]:
    return tuple(f"0000:{bus}:00.0" for bus in buses)


_NVIDIA: Final = "nvidia.com/gpu"
_AMD: Final = "amd.com/gpu"

# NVLinks of the hybrid cube mesh: github.com/NVIDIA/go-gpuallocator, gpuallocator/common_test.go (NewDGX1VoltaNode).
# CPU lists, NICs and the distances between sockets: github.com/microsoft/msccl-tools, tests/test_topologies.py.
_DGX_1V: Final = Machine(
    model="Tesla V100-SXM2-32GB",
    resource=_NVIDIA,
    pci=_buses("06", "07", "0a", "0b", "85", "86", "89", "8a"),
    numa=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus={0: "0-19,40-59", 1: "20-39,60-79"},
    fast=_pairs("NV2", (0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
    | _pairs("NV1", (0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)),
    inside="PHB",
    nic_switches=((0, 1), (2, 3), (4, 5), (6, 7)),
    nic_inside="PHB",
)

# github.com/NVIDIA/nccl/issues/1505: matrix, four of the eight NUMA nodes, CPU lists; storage NICs left out.
_HGX_A100: Final = Machine(
    model="NVIDIA A100-SXM4-40GB",
    resource=_NVIDIA,
    pci=_buses("07", "0f", "47", "4e", "87", "90", "b7", "bd"),
    numa=(3, 3, 1, 1, 7, 7, 5, 5),
    cpus={1: "16-31,144-159", 3: "48-63,176-191", 5: "80-95,208-223", 7: "112-127,240-255"},
    fast=_mesh("NV12", 8),
    inside="PXB",
    nic_switches=((0, 1), (0, 1), (2, 3), (2, 3), (4, 5), (4, 5), (6, 7), (6, 7)),
    nic_near="PXB",
)

# Matrix and CPU lists: github.com/deepseek-ai/DeepEP/issues/145.
# One NIC for each GPU: github.com/sgl-project/sglang/issues/13973.
_HGX_H100: Final = Machine(
    model="NVIDIA H100 80GB HBM3",
    resource=_NVIDIA,
    pci=_buses("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
    numa=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus={0: "0-55,112-167", 1: "56-111,168-223"},
    fast=_mesh("NV18", 8),
    inside="NODE",
    nic_switches=tuple((gpu,) for gpu in range(8)),
)

# Matrix and CPU lists: github.com/NVIDIA/k8s-device-plugin/issues/436, the second bridge seated as its owner meant it.
# NV12 is three bridges of four NVLinks: NVIDIA A100 80GB PCIe product brief.
_A100_PCIE_BRIDGED: Final = Machine(
    model="NVIDIA A100 80GB PCIe",
    resource=_NVIDIA,
    pci=_buses("17", "65", "ca", "e3"),
    numa=(0, 0, 1, 1),
    cpus={0: "0-27,56-83", 1: "28-55,84-111"},
    fast=_pairs("NV12", (0, 1), (2, 3)),
    inside="NODE",
    nic_switches=((), ()),
)

# github.com/NVIDIA/nccl-tests/issues/307: bus ids and PHB within a socket, SYS between.
_RTX_4090_X8: Final = Machine(
    model="NVIDIA GeForce RTX 4090",
    resource=_NVIDIA,
    pci=_buses("4e", "4f", "50", "51", "ce", "cf", "d0", "d1"),
    numa=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus={0: "0-31,64-95", 1: "32-63,96-127"},
    fast={},
    inside="PHB",
)

# github.com/pytorch/pytorch/issues/79299: NV4 bridges in pairs, NODE within a socket, SYS between.
_A6000_X8_BRIDGED: Final = Machine(
    model="NVIDIA RTX A6000",
    resource=_NVIDIA,
    pci=_buses("01", "25", "41", "61", "81", "a1", "c1", "e1"),
    numa=(0, 0, 0, 0, 1, 1, 1, 1),
    cpus={0: "0-63,128-191", 1: "64-127,192-254"},
    fast=_pairs("NV4", (0, 1), (2, 3), (4, 5), (6, 7)),
    inside="NODE",
)

# github.com/NVIDIA/nccl-tests/issues/78: 16 GPUs at NV6, pairs of GPUs at one PCIe switch with a NIC.
# Storage NICs are left out; a NIC at the neighbouring switch is PXB there, NODE here.
_DGX_2: Final = Machine(
    model="Tesla V100-SXM3-32GB",
    resource=_NVIDIA,
    pci=_buses("34", "36", "39", "3b", "57", "59", "5c", "5e", "b7", "b9", "bc", "be", "e0", "e2", "e5", "e7"),
    numa=(0,) * 8 + (1,) * 8,
    cpus={0: "0-23,48-71", 1: "24-47,72-95"},
    fast=_mesh("NV6", 16),
    inside="NODE",
    nic_switches=tuple((gpu, gpu + 1) for gpu in range(0, 16, 2)),
)

# A card has three Infinity Fabric links, and the quad bridge joins each of four cards to each other by one:
# AMD Instinct MI210 datasheet (300 GB/s in all directions together = 3 x 2 x 50).
_MI210_X4: Final = Machine(
    model="AMD Instinct MI210",
    resource=_AMD,
    pci=_buses("03", "26", "43", "63"),
    numa=(0, 0, 1, 1),
    cpus={0: "0-31,64-95", 1: "32-63,96-127"},
    fast=_mesh("XGMI1", 4),
    inside="NODE",
    nic_switches=((),),
)

# github.com/ROCm/rccl, tools/topo_expl/models/topo_8p1h.xml: eight dies of four packages, link counts 4 within a package,
# 2 or 1 between; four dies and two NICs below one PCIe switch of each socket. CPU lists are its affinity masks.
_MI250X: Final = Machine(
    model="AMD Instinct MI250X",
    resource=_AMD,
    pci=_buses("29", "2c", "2f", "32", "ad", "b0", "b3", "b6"),
    numa=(1, 1, 1, 1, 3, 3, 3, 3),
    cpus={1: "24-47", 3: "72-95"},
    fast=_pairs("XGMI4", (0, 1), (2, 3), (4, 5), (6, 7))
    | _pairs("XGMI2", (0, 4), (2, 6))
    | _pairs("XGMI1", (0, 6), (1, 3), (1, 7), (2, 4), (3, 5), (5, 7)),
    inside="PXB",
    nic_switches=((0, 1, 2, 3), (0, 1, 2, 3), (4, 5, 6, 7), (4, 5, 6, 7)),
    nic_near="PXB",
)

_MACHINES: Final[Mapping[str, Machine]] = MappingProxyType(
    {
        "dgx-1v": _DGX_1V,
        "hgx-a100": _HGX_A100,
        "hgx-h100": _HGX_H100,
        "a100-pcie-bridged": _A100_PCIE_BRIDGED,
        "rtx-4090x8": _RTX_4090_X8,
        "a6000x8-bridged": _A6000_X8_BRIDGED,
        "dgx-2": _DGX_2,
        "mi210x4": _MI210_X4,
        "mi250x": _MI250X,
    }
)

NAMES: Final[tuple[str, ...]] = tuple(_MACHINES)


def document(machine: str, node: str) -> dict[str, Any]:
    """Return the node document of `machine` as the agent of `node` would publish it.

    Parameters
    ----------
    machine
        One of `NAMES`.
    node
        Node name; the GPU UUIDs follow from it.

    Returns
    -------
    dict
        JSON-able; the same for the same arguments, in every process.

    Raises
    ------
    ValueError
        If `machine` is not known.
    """
    kind = _machine(machine)
    count = len(kind.pci)
    return {
        "version": 1,
        "kind": "node",
        "format": "simulated",
        "complete": True,
        "source": "simulated",
        "gpus": [_gpu(kind, node, index) for index in range(count)],
        "nics": [{"id": f"NIC{nic}", "name": f"mlx5_{nic}"} for nic in range(len(kind.nic_switches))],
        "links": [{"a": f"GPU{a}", "b": f"GPU{b}", "type": _link(kind, a, b)} for a, b in combinations(range(count), 2)],
        "nic_links": [
            {"gpu": f"GPU{gpu}", "nic": f"NIC{nic}", "type": _nic_link(kind, gpu, nic)}
            for gpu in range(count)
            for nic in range(len(kind.nic_switches))
        ],
        "warnings": [],
    }


def resource(machine: str) -> str:
    """Return the extended resource of the machine's GPUs; ValueError if the machine is not known."""
    return _machine(machine).resource


def product(machine: str) -> str:
    """Return the product label of the machine: its model as a label value; ValueError if the machine is not known."""
    return _machine(machine).model.replace(" ", "-")


def _machine(name: str) -> Machine:
    if name not in _MACHINES:
        raise ValueError(f"machine {name!r} is not known; use one of {', '.join(NAMES)}")
    return _MACHINES[name]


def _gpu(kind: Machine, node: str, index: int) -> dict[str, Any]:
    return {
        "id": f"GPU{index}",
        "index": index,
        "uuid": _uuid(node, index),
        "pci": kind.pci[index],
        "model": kind.model,
        "numa": kind.numa[index],
        "cpu_affinity": kind.cpus[kind.numa[index]],
        "healthy": True,
    }


def _uuid(node: str, index: int) -> str:
    digits = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def _link(kind: Machine, a: int, b: int) -> str:
    if (a, b) in kind.fast:
        return kind.fast[a, b]
    return kind.inside if kind.numa[a] == kind.numa[b] else "SYS"


def _nic_link(kind: Machine, gpu: int, nic: int) -> str:
    near = kind.nic_switches[nic]
    if gpu in near:
        return kind.nic_near
    return kind.nic_inside if kind.numa[gpu] == _nic_numa(kind, nic) else "SYS"


def _nic_numa(kind: Machine, nic: int) -> int:
    """Return the NUMA node of a NIC: that of the GPUs at its switch; a NIC at no switch hangs at the first GPU's socket."""
    near = kind.nic_switches[nic]
    return kind.numa[near[0] if near else 0]

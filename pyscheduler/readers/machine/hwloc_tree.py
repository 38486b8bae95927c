"""What both forms of hwloc's output give."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.machine.pcie import Position
from pyscheduler.readers.reading import Finding

__all__ = ["ACCELERATOR", "Device", "Tree", "name_rank"]

# OS devices that only a GPU for computing has, as hwloc names them: CUDA, NVML, OpenCL, ROCm SMI, Level Zero.
ACCELERATOR: Final = re.compile(r"(?:cuda|nvml|opencl|rsmi|ze)\d")


def name_rank(name: str) -> int:
    """Return the order of a NIC's names: that of its RDMA device (mlx5_0) before that of its interface (eth0, ib0)."""
    return 0 if name.startswith(("mlx", "bnxt_re", "efa", "rdmap", "irdma", "hfi", "ionic", "roce")) else 1


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or NIC; None where the output does not say."""

    position: Position
    pci: str | None = None
    numa: int | None = None
    cpus: str | None = None
    uuid: str | None = None
    model: str | None = None
    name: str | None = None


@dataclass(slots=True)
class Tree:
    """Devices in their order, and the fast links between GPUs by their positions (i < j).

    `host` is the machine's name where the output has it. `shows_links` tells whether the output would hold fast links if there were any; `broken` whether a part of it could
    not be read.
    """

    gpus: list[Device] = field(default_factory=list)
    nics: list[Device] = field(default_factory=list)
    fast: dict[tuple[int, int], str] = field(default_factory=dict)
    host: str | None = None
    shows_links: bool = False
    broken: bool = False
    findings: list[Finding] = field(default_factory=list)

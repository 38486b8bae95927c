"""Models of cards as the simulated fleets have them. Round figures of the vendors' data sheets: only their order matters here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["A100", "H100", "MI300X", "V100", "Model", "Vendor"]


class Vendor(StrEnum):
    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True)
class Model:
    """A model of card.

    Attributes
    ----------
    name
        As its exporter writes it.
    clock_step_mhz
        Clocks are multiples of it.
    slowdown_c
        Where the driver begins to lower the clock.
    clock_domains
        Core clocks that the exporter reports (AMD: one per die).
    """

    name: str
    vendor: Vendor
    max_clock_mhz: float
    idle_clock_mhz: float
    clock_step_mhz: float
    memory_clock_mhz: float
    idle_memory_clock_mhz: float
    limit_w: float
    idle_w: float
    memory_mib: float
    slowdown_c: float
    pcie_gen: int
    clock_domains: int = 1
    has_memory_temperature: bool = True


H100 = Model("NVIDIA H100 80GB HBM3", Vendor.NVIDIA, 1980, 345, 15, 2619, 2619, 700, 72, 81559, 87, 5)
A100 = Model("NVIDIA A100-SXM4-80GB", Vendor.NVIDIA, 1410, 210, 15, 1593, 1593, 400, 58, 81920, 85, 4)
V100 = Model("Tesla V100-SXM2-32GB", Vendor.NVIDIA, 1530, 135, 15, 877, 877, 300, 42, 32768, 83, 3, has_memory_temperature=False)
MI300X = Model("AMD_Instinct_MI300X_OAM", Vendor.AMD, 2100, 132, 1, 1300, 900, 750, 138, 196592, 100, 5, clock_domains=8)

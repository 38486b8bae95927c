"""Machines whose GPUs all link to each other directly: a part of them uses only a part of the links."""

from __future__ import annotations

from typing import Final

from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.links import Kind

__all__ = ["partial_set_note"]

_MESH_GPUS: Final = 8


def partial_set_note(device_class: DeviceClass, mask: int) -> str | None:
    """Return what to tell of a set of some GPUs of an 8-way xGMI mesh, None for all or one of them, or another machine."""
    size = mask.bit_count()
    if not _fully_meshed(device_class) or not 1 < size < _MESH_GPUS:
        return None
    used, links = size * (size - 1) // 2, len(device_class.links)
    # MI300X, all-reduce bus bandwidth of large messages: Stas Bekman, Machine Learning Engineering, network benchmarks.
    return (
        f"{size} of {_MESH_GPUS} GPUs of a fully meshed machine use only {used} of its {links} links:"
        " 47.7 GB/s for 2 against 312.9 for 8 was measured on MI300X"
    )


def _fully_meshed(device_class: DeviceClass) -> bool:
    """Whether there are 8 GPUs with one direct link between any two."""
    return (
        device_class.gpus == _MESH_GPUS
        and all(link.kind is Kind.XGMI and link.count <= 1 for link in device_class.links)
        and len(set(device_class.costs)) <= 1
    )

"""The best set of free GPUs of one machine; of those with equal links, one whose slowest card is as fast as it can be."""

from __future__ import annotations

from dataclasses import replace

from pyscheduler.core.cards import Cards
from pyscheduler.core.job import Limits
from pyscheduler.core.machine.choice import Choice
from pyscheduler.core.machine.device_table import DeviceTable

__all__ = ["fastest"]


def fastest(table: DeviceTable, cards: Cards, free: int, gpus: int, limits: Limits, healthy: int) -> Choice | None:
    """Return the best set of so many free GPUs, None if no set of them is free and admitted.

    `free` and `healthy` are masks, as in `DeviceTable.choose`.
    """
    best = table.choose(free, gpus, limits, healthy)
    if best is None or not cards.paces:
        return best
    # A single GPU is worth what it takes from the others, so those that are as good are known beforehand.
    usable = free if gpus > 1 else _as_good(table, free, best)
    for _, within in cards.paces:
        faster = table.choose(usable & within, gpus, limits, healthy)
        if faster is not None and (gpus == 1 or faster.key == best.key):
            return replace(faster, key=best.key)
    return best


def _as_good(table: DeviceTable, free: int, best: Choice) -> int:
    """Return the mask of the free GPUs each of which is worth as much as this one."""
    singles = [1 << gpu for gpu in range(free.bit_length()) if free >> gpu & 1]
    return sum(single for single in singles if table.describe(single, free).key == best.key)

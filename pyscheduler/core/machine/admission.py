"""Which sets of GPUs may be given out to one pod: the machine's own rules, and the limits of a job.

Sets are bit masks: GPU i is bit i. Limits are first put into `Rules`, as one
class of machine understands them: equal rules admit the same sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from pyscheduler.core.job import UNKNOWN_MODEL, Limits
from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy
from pyscheduler.core.machine.links import Kind

__all__ = ["Rules", "admits", "admitted", "allowed", "nearest", "numa_nodes_needed", "rules"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits of a job on one class of machine.

    Attributes
    ----------
    gpus
        Only these GPUs.
    near
        A set holds at least one of these; 0 asks for none.
    apart
        For each GPU, which ones it may not be in a set with.
    """

    gpus: int
    near: int
    apart: tuple[int, ...]


def rules(device_class: DeviceClass, limits: Limits, healthy: int | None = None) -> Rules:
    """Return the rules of `limits`. Of a NIC whose distances are not known nothing is asked: see `nearest`.

    `healthy` are the GPUs that count for which is nearest to a NIC, None: all.
    """
    everyone = range(device_class.gpus)
    wanted = None if limits.model == UNKNOWN_MODEL else limits.model
    models = device_class.known_models
    gpus = sum(1 << g for g in everyone if limits.model is None or models[g] == wanted)
    near = nearest(device_class, limits.near_nic, healthy) if limits.near_nic is not None else 0
    return Rules(gpus, near, _apart(device_class, limits))


def _apart(device_class: DeviceClass, limits: Limits) -> tuple[int, ...]:
    """Return for each GPU which ones it may not be in a set with. One of unknown NUMA node may only be alone on its own."""
    apart = [0] * device_class.gpus
    numa = device_class.numa
    for (a, b), link in zip(combinations(range(device_class.gpus), 2), device_class.links, strict=True):
        too_far = limits.max_link is not None and link.distance > limits.max_link.distance
        if too_far or (limits.same_numa and (numa[a] is None or numa[a] != numa[b])):
            apart[a] |= 1 << b
            apart[b] |= 1 << a
    return tuple(apart)


def nearest(device_class: DeviceClass, nic: str, healthy: int | None = None) -> int:
    """Return which of the healthy GPUs (None: of all) are nearest to a NIC, by its id or name.

    0 if the machine has no such NIC, or its distance from none of them is known.
    """
    column = _column(device_class, nic)
    if column is None or not device_class.nic_links:
        return 0
    by_distance: dict[tuple[int, int], int] = {}
    for gpu, row in enumerate(device_class.nic_links):
        if (healthy is None or healthy >> gpu & 1) and row[column].kind is not Kind.UNKNOWN:
            distance = row[column].distance
            by_distance[distance] = by_distance.get(distance, 0) | 1 << gpu
    return by_distance[min(by_distance)] if by_distance else 0


def _column(device_class: DeviceClass, nic: str) -> int | None:
    for names in (device_class.nics, device_class.nic_names):
        if nic in names:
            return names.index(nic)
    return None


def admitted(device_class: DeviceClass, numa_nodes: Ints) -> Flags:
    """Tell for each set whether the machine lets it be given out: its kubelet's topology policy, and its partitions.

    An unknown NUMA node admits all. ``restricted`` admits what touches no more NUMA nodes than a pod of that size must
    on the empty machine. `numa_nodes` is how many each set touches, by mask.
    """
    flags = np.ones(len(numa_nodes), np.bool_)
    if device_class.partitions:
        flags[:] = False
        flags[list(device_class.partitions)] = True
    if not device_class.policy.restricts or None in device_class.numa:
        return flags
    if device_class.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return flags & (numa_nodes <= 1)
    sizes = np.bitwise_count(np.arange(len(numa_nodes)))
    for k in range(1, device_class.gpus + 1):
        of_size = sizes == k
        flags[of_size] &= numa_nodes[of_size] == numa_nodes[of_size].min()
    return flags


def numa_nodes_needed(device_class: DeviceClass, k: int) -> int | None:
    """Return how many NUMA nodes the kubelet lets a set of `k` touch at most, None for any number; see `admitted`."""
    numa = device_class.numa
    if not device_class.policy.restricts or None in numa:
        return None
    if device_class.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return 1
    sizes = sorted((numa.count(node) for node in set(numa)), reverse=True)
    return next(count for count in range(1, len(sizes) + 1) if sum(sizes[:count]) >= k)


def admits(device_class: DeviceClass, mask: int, limits: Rules | None) -> bool:
    """Tell of one set whether the kubelet's policy and the limits admit it. Of partitions nothing is asked."""
    gpus = [gpu for gpu in range(device_class.gpus) if mask >> gpu & 1]
    needed = numa_nodes_needed(device_class, len(gpus))
    if needed is not None and len({device_class.numa[gpu] for gpu in gpus}) > needed:
        return False
    if limits is None:
        return True
    near = not limits.near or limits.near & mask != 0
    return near and mask & ~limits.gpus == 0 and not any(limits.apart[gpu] & mask for gpu in gpus)


def allowed(limits: Rules) -> Flags:
    """Tell for each set whether `limits` allow it."""
    flags = np.ones(1, np.bool_)
    for gpu, apart in enumerate(limits.apart):
        below = np.arange(len(flags))
        with_gpu = flags & (below & apart == 0) if limits.gpus >> gpu & 1 else np.zeros_like(flags)
        flags = np.concatenate([flags, with_gpu])
    if limits.near:
        flags &= np.arange(len(flags)) & limits.near != 0
    return flags

"""Which GPUs of a node the vendors' device plugins prefer, for the comparison of the demo.

A scheduler that names no GPUs leaves the choice to the kubelet, which asks the node's device plugin
(GetPreferredAllocation). NVIDIA's plugin answers with the best-effort policy of go-gpuallocator whenever GPUs are
handed out whole; AMD's with its own policy of that name. Both are written here anew, after
github.com/NVIDIA/go-gpuallocator (gpuallocator/besteffort_policy.go, internal/links/device.go) and
github.com/ROCm/k8s-device-plugin (internal/pkg/allocator). Ties go to the lowest indices; upstream they go to the
order in which the kubelet lists the GPUs. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from pyscheduler.core.machine.links import Kind, Link, behind_switch

Gpus = tuple[int, ...]
PairScore = Callable[[int, int], int]
Document = Mapping[str, Any]

# NVIDIA: points of a pair, higher is better. PCIe counts besides NVLink.
_PCIE_POINTS: Final = {Kind.SYS: 10, Kind.NODE: 20, Kind.PHB: 30, Kind.PXB: 40, Kind.PIX: 50}
_NVLINK_POINTS: Final = 100

# AMD: weights of a pair, lower is better. Each GPU or die is a device of its own.
_OTHER_DEVICE: Final = 20
_XGMI: Final = 10
_PCIE: Final = 40
_SAME_NUMA: Final = 10
_OTHER_NUMA: Final = 20


def preferred(document: Document, free: Iterable[int], size: int) -> Gpus:
    """Return the GPUs that the vendor's device plugin prefers.

    Parameters
    ----------
    document
        Node document of the machine.
    free
        GPUs that can be handed out, at least `size`.
    size
        How many are wanted, at least 1.

    """
    if "AMD" in document["gpus"][0]["model"]:
        return amd_best_effort(amd_weight(document), free, size)
    return nvidia_best_effort(nvidia_score(document), free, size)


def nvidia_best_effort(score: PairScore, free: Iterable[int], size: int) -> Gpus:
    """Return the best set of the best partition of the free GPUs into sets of `size`, one of which may be smaller."""
    best = max(_partitions(tuple(sorted(free)), size), key=lambda sets: sum(_sum(score, gpus) for gpus in sets))
    return max((gpus for gpus in best if len(gpus) == size), key=lambda gpus: _sum(score, gpus))


def amd_best_effort(weight: PairScore, free: Iterable[int], size: int) -> Gpus:
    """Return the set of least total weight."""
    return min(combinations(sorted(free), size), key=lambda gpus: _sum(weight, gpus))


def nvidia_score(document: Document) -> PairScore:
    """Return the score of a pair: 100 for each NVLink, and 10 to 50 for its PCIe path.

    NVLinks to an NVSwitch are not seen, as upstream: they end at no other GPU.
    """
    links = _links(document)
    model = document["gpus"][0]["model"]
    switched = behind_switch((link for pair, link in links.items() if 0 in pair), model)

    def score(a: int, b: int) -> int:
        link = links[a, b]
        direct = link.count if link.kind is Kind.NVLINK and not switched else 0
        return direct * _NVLINK_POINTS + _PCIE_POINTS[pcie_path(document, a, b)]

    return score


def amd_weight(document: Document) -> PairScore:
    """Return the weight of a pair: by kind of link, not by their number, and by NUMA node."""
    links = _links(document)
    numa = [gpu["numa"] for gpu in document["gpus"]]

    def weight(a: int, b: int) -> int:
        path = _XGMI if links[a, b].kind is Kind.XGMI else _PCIE
        return _OTHER_DEVICE + path + (_SAME_NUMA if numa[a] == numa[b] else _OTHER_NUMA)

    return weight


def pcie_path(document: Document, a: int, b: int) -> Kind:
    """Return the PCIe path between two GPUs, also where NVLinks hide it in the matrix.

    PCIe is a tree: the path is no longer than the longer of those from both GPUs to any one NIC.
    """
    if (kind := _links(document)[a, b].kind) in _PCIE_POINTS:
        return kind
    to_nics: dict[str, list[Kind]] = {}
    for link in document["nic_links"]:
        if link["gpu"] in {f"GPU{a}", f"GPU{b}"}:
            to_nics.setdefault(link["nic"], []).append(Link.parse(link["type"]).kind)
    numa = [document["gpus"][gpu]["numa"] for gpu in (a, b)]
    by_socket = Kind.NODE if numa[0] == numa[1] else Kind.SYS
    return min([by_socket, *(max(kinds) for kinds in to_nics.values())])


def _links(document: Document) -> dict[tuple[int, int], Link]:
    return {(int(each["a"][3:]), int(each["b"][3:])): Link.parse(each["type"]) for each in document["links"]}


def _sum(score: PairScore, gpus: Gpus) -> int:
    return sum(score(a, b) for a, b in combinations(gpus, 2))


def _partitions(gpus: Gpus, size: int) -> Iterator[tuple[Gpus, ...]]:
    """Yield the partitions into sets of `size` in upstream's order; what does not divide evenly is one smaller set.

    Upstream pads the list and lets one set hold all of the padding; single GPUs it does not partition.
    """
    if size == 1:
        yield from (((gpu,),) for gpu in gpus)
        return
    yield from _divisions(gpus, size, -len(gpus) % size)


def _divisions(gpus: Gpus, size: int, padding: int) -> Iterator[tuple[Gpus, ...]]:
    if len(gpus) + padding == size:
        yield (gpus,)
        return
    first, *others = gpus
    for rest in dict.fromkeys(combinations((*others, *(None,) * padding), size - 1)):
        real = tuple(gpu for gpu in rest if gpu is not None)
        used = len(rest) - len(real)
        if used in {0, padding}:
            left = tuple(gpu for gpu in others if gpu not in real)
            for more in _divisions(left, size, padding - used):
                yield ((first, *real), *more)

"""The best set of k free GPUs on one kind of machine, exactly.

All sets of a machine are judged once, when its table is built; a choice is
then a search through a sorted list. Sets are bit masks: GPU i is bit i.

What a set is worth, in this order (higher first, except the last):

1. ring: bandwidth of the rings that a collective of exactly these GPUs can run
   on. A busy GPU is never a relay, so only links inside the set count.
2. pair sum: bandwidth over all pairs of the set.
3. NUMA nodes that the set touches.

Of sets that are equal in this, the one comes first that leaves most behind: the
free GPUs left are carved into disjoint sets of 8, in the best way, then of 4,
then of 2 (requests are mostly powers of two, and the largest are the hardest to
place); more ring bandwidth over all sets is better, then fewer NUMA nodes. Then
fewer aligned pairs 2i, 2i + 1 torn apart: neighbours on the PCI bus share a
switch on the common machines. Last come the lowest indices.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from pyscheduler.core.links import UNKNOWN_LINK, Link, behind_switch, gbps
from pyscheduler.core.rings import bottlenecks, packing

__all__ = ["MAX_GPUS", "Choice", "DeviceClass", "DeviceTable", "TooManyGpusError", "TopologyPolicy", "class_hash"]

MAX_GPUS: Final = 16
_MAX_GPUS_PACKED: Final = 8
_CACHE_MAX: Final = 1 << 16
# The low bits of a remainder's order.
_ALIGNED_PAIRS: Final = 0xF
_UNLIMITED: Final = np.iinfo(np.int64).max

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class TooManyGpusError(ValueError):
    """A machine with more GPUs than the exact search can judge."""

    def __init__(self, gpus: int) -> None:
        super().__init__(f"machine has {gpus} GPUs; sets are judged up to {MAX_GPUS}: place by count on this node")
        self.gpus = gpus


class TopologyPolicy(enum.StrEnum):
    """The kubelet's topology manager policy; one that is not known restricts nothing."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"

    @property
    def restricts(self) -> bool:
        """Whether the kubelet rejects pods for their NUMA nodes."""
        return self in {TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE}


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """What machines of one kind have in common; GPU UUIDs and health are not part of it.

    Attributes
    ----------
    models
        Model of each GPU, in index order; None where it is not known.
    numa
        NUMA node of each GPU; None where it is not known.
    links
        Link of each pair, in the order of ``itertools.combinations(range(n), 2)``.
    policy
        Topology manager policy of the kubelet.

    """

    models: tuple[str | None, ...]
    numa: tuple[int | None, ...]
    links: tuple[Link, ...]
    policy: TopologyPolicy = TopologyPolicy.NONE

    def __post_init__(self) -> None:
        pairs = len(self.models) * (len(self.models) - 1) // 2
        if len(self.numa) != len(self.models) or len(self.links) != pairs:
            raise ValueError(
                f"{len(self.models)} GPUs need as many NUMA nodes and {pairs} links, not {len(self.numa)} and {len(self.links)}"
            )

    @classmethod
    def of(
        cls,
        models: Sequence[str | None],
        numa: Sequence[int | None],
        links: Mapping[tuple[int, int], str],
        policy: str | None = None,
    ) -> DeviceClass:
        """Return the class from link types by pair ``(a, b)``, a < b.

        Pairs that are left out are unknown, and so is a policy of None.

        Raises
        ------
        UnknownLinkTypeError
            If a link type is none.
        ValueError
            If the lengths differ, or `policy` is none of the kubelet's.

        """
        pairs = combinations(range(len(models)), 2)
        return cls(
            tuple(models),
            tuple(numa),
            tuple(Link.parse(links[pair]) if pair in links else UNKNOWN_LINK for pair in pairs),
            TopologyPolicy(policy or "none"),
        )

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.models)

    @property
    def matrix(self) -> tuple[tuple[Link, ...], ...]:
        """Link of each pair in both directions; of a GPU to itself, unknown."""
        by_pair = dict(zip(combinations(range(self.gpus), 2), self.links, strict=True))
        span = range(self.gpus)
        return tuple(tuple(by_pair.get((min(i, j), max(i, j)), UNKNOWN_LINK) for j in span) for i in span)


def class_hash(device_class: DeviceClass) -> str:
    """Return 16 hex digits that are equal for machines that can share a table, in every process."""
    content = [
        device_class.models,
        device_class.numa,
        [str(link) for link in device_class.links],
        device_class.policy if device_class.policy.restricts else None,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of GPUs on one machine, and what it is worth.

    Attributes
    ----------
    mask
        The GPUs.
    ring_gbps
        Bandwidth of the set's rings together, GB/s as all-reduce bus bandwidth; 0 for one GPU or unknown links.
    pair_sum_gbps
        Sum over all pairs, GB/s in one direction.
    numa_nodes
        NUMA nodes that the set touches; unknown ones count as one node.
    bottleneck
        Link type of the weakest pair in the set; None for one GPU.
    model
        What `ring_gbps` rests on: ``"ring-packing"`` (all rings on NVLink or xGMI, by linear programming),
        ``"bottleneck-ring"`` (the best single ring) or ``"single"`` (one GPU).
    key
        Orders choices of equal size on all machines, smaller is better. MB/s, so that equal sets compare equal.

    """

    mask: int
    ring_gbps: float
    pair_sum_gbps: float
    numa_nodes: int
    bottleneck: str | None
    model: str
    key: tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTable:
    """The worth of every set of GPUs of a class: immutable, pickles, and is safe to share between threads.

    Make one with `build`.
    """

    device_class: DeviceClass
    class_hash: str
    # MB/s of each pair, shape (n, n).
    _pairs: Ints
    # Link types of the class, nearest first.
    _ladder: tuple[str, ...]
    # By mask: `_score`, place of the weakest link on the ladder, whether the ring is a packing, worth as a remainder.
    _scores: Ints
    _weakest: Ints
    _packed: Flags
    _remainders: Ints
    # By size: the sets that the kubelet admits, best first.
    _sets: tuple[Ints, ...]
    # A choice is a pure function of the query, so a race between threads writes the same value twice.
    _cache: dict[int, Choice | None] = field(default_factory=dict)

    @classmethod
    def build(cls, device_class: DeviceClass) -> DeviceTable:
        """Judge all sets of `device_class`: up to about a second, so run it in a worker process.

        Raises
        ------
        TooManyGpusError
            If the class has more than `MAX_GPUS` GPUs.

        """
        if device_class.gpus > MAX_GPUS:
            raise TooManyGpusError(device_class.gpus)
        pairs, ladder = _pair_mbps(device_class), _ladder(device_class)
        rings, packed = _ring_mbps(device_class, pairs)
        numa_nodes = _numa_nodes(device_class.numa)
        admitted = _admitted(device_class, numa_nodes)
        scores = _score(rings, _over_pairs(pairs, np.add), numa_nodes)
        return cls(
            device_class=device_class,
            class_hash=class_hash(device_class),
            _pairs=pairs,
            _ladder=tuple(str(link) for link in ladder),
            _scores=scores,
            _weakest=_over_pairs(_places(device_class, ladder), np.maximum),
            _packed=packed,
            _remainders=_remainders(device_class, rings, numa_nodes, admitted),
            _sets=tuple(_best_first(k, scores, admitted) for k in range(device_class.gpus + 1)),
        )

    def choose(self, free_mask: int, k: int) -> Choice | None:
        """Return the best `k` of the free GPUs, or None if no set of them is free and admitted by the kubelet.

        Parameters
        ----------
        free_mask
            Free GPUs; bits beyond the machine's GPUs are ignored.
        k
            At least 1.

        """
        if k < 1:
            raise ValueError(f"cannot choose {k} GPUs: ask for at least 1")
        free = free_mask & ((1 << self.device_class.gpus) - 1)
        if k > free.bit_count():
            return None
        query = free << 5 | k
        try:
            return self._cache[query]
        except KeyError:
            if len(self._cache) >= _CACHE_MAX:
                self._cache.clear()
            choice = self._cache[query] = self._choose_one(free) if k == 1 else self._choose_set(free, k)
            return choice

    def _choose_one(self, free: int) -> Choice:
        """Choose the GPU whose best link to another free GPU is weakest: a larger job misses it least."""
        candidates = np.flatnonzero(free >> np.arange(self.device_class.gpus) & 1)
        best_links = self._pairs[np.ix_(candidates, candidates)].max(axis=1)
        weakest = candidates[best_links == best_links.min()]
        mask = self._leaving_most(free, 1 << weakest)
        return Choice(mask, 0.0, 0.0, 1, None, "single", key=(int(best_links.min()), 0, 1))

    def _choose_set(self, free: int, k: int) -> Choice | None:
        sets = self._sets[k]
        fitting = sets[sets & ~free == 0]
        if not fitting.size:
            return None
        scores = self._scores[fitting]
        return self._describe(self._leaving_most(free, fitting[scores == scores[0]]))

    def _leaving_most(self, free: int, masks: Ints) -> int:
        order = self._remainders[free ^ masks] + (self._remainders[masks] & _ALIGNED_PAIRS)
        return int(masks[np.argmax(order)])

    def _describe(self, mask: int) -> Choice:
        ring, pair_sum, numa_nodes = _worth(int(self._scores[mask]))
        return Choice(
            mask=mask,
            ring_gbps=ring / 1000,
            pair_sum_gbps=pair_sum / 1000,
            numa_nodes=numa_nodes,
            bottleneck=self._ladder[self._weakest[mask]],
            model="ring-packing" if self._packed[mask] else "bottleneck-ring",
            key=(-ring, -pair_sum, numa_nodes),
        )


def _score(rings: Ints, pair_sums: Ints, numa_nodes: Ints) -> Ints:
    """Return ring before pair sum before fewest NUMA nodes, in one number: 27 + 31 + 5 bits."""
    return rings << 36 | pair_sums << 5 | (31 - numa_nodes)


def _worth(score: int) -> tuple[int, int, int]:
    """Return ring and pair sum in MB/s, and the number of NUMA nodes."""
    return score >> 36, score >> 5 & 0x7FFFFFFF, 31 - (score & 31)


def _pair_mbps(device_class: DeviceClass) -> Ints:
    """Return the bandwidth of each pair in MB/s, shape (n, n): that of the slower GPU."""
    models, n = device_class.models, device_class.gpus
    mbps = np.zeros((n, n), np.int64)
    for (a, b), link in zip(combinations(range(n), 2), device_class.links, strict=True):
        mbps[a, b] = mbps[b, a] = round(1000 * min(gbps(link, models[a]), gbps(link, models[b])))
    return mbps


def _ring_mbps(device_class: DeviceClass, pairs: Ints) -> tuple[Ints, Flags]:
    """Return each set's ring bandwidth, and whether it comes from a packing.

    NVLink and xGMI links carry their rate in both directions at once; PCIe paths
    share bridges and memory controllers, so one ring in one direction counts.
    """
    fast = np.where([[link.fast for link in row] for row in device_class.matrix], pairs, 0)
    single = bottlenecks(fast)
    small = device_class.gpus <= _MAX_GPUS_PACKED
    total = _packings(fast, single) if small else np.where(_sizes(len(pairs)) > 2, 2 * single, single)
    rings = np.minimum(total, _ports(device_class, fast))
    return np.maximum(rings, bottlenecks(pairs)), (rings > 0) & small


def _packings(fast: Ints, single: Ints) -> Ints:
    """Return the packing of each set that has a ring on fast links; equal submatrices are solved once."""
    total = single.copy()
    solved: dict[bytes, int] = {}
    for mask in np.flatnonzero((single > 0) & (_sizes(len(fast)) > 2)):
        members = np.flatnonzero(mask >> np.arange(len(fast)) & 1)
        capacity = fast[np.ix_(members, members)]
        content = capacity.tobytes()
        if content not in solved:
            solved[content] = round(packing(capacity))
        total[mask] = solved[content]
    return total


def _ports(device_class: DeviceClass, fast: Ints) -> Ints:
    """Return for each set the bandwidth of its narrowest port to an NVSwitch, unlimited if none of it has one."""
    ports = np.full(1 << len(fast), _UNLIMITED)
    for gpu, row in enumerate(device_class.matrix):
        if behind_switch(row, device_class.models[gpu]):
            with_gpu = np.arange(1 << len(fast)) >> gpu & 1 == 1
            ports[with_gpu] = np.minimum(ports[with_gpu], fast[gpu].max())
    return ports


def _over_pairs(values: Ints, combine: Callable[[Ints, np.int64 | Ints], Ints]) -> Ints:
    """Return for each set the combination of `values` over its pairs, 0 for sets without one."""
    result = np.zeros(1, np.int64)
    for i, row in enumerate(values):
        to_new = np.zeros(1, np.int64)
        for j in range(i):
            to_new = np.concatenate([to_new, combine(to_new, row[j])])
        result = np.concatenate([result, combine(result, to_new)])
    return result


def _ladder(device_class: DeviceClass) -> list[Link]:
    """Return the class's link types, nearest first."""
    return sorted(set(device_class.links), key=lambda link: link.distance)


def _places(device_class: DeviceClass, ladder: Sequence[Link]) -> Ints:
    """Return for each pair its link's place on the ladder, shape (n, n)."""
    place = {link: at for at, link in enumerate(ladder)}
    return np.array([[place.get(link, 0) for link in row] for row in device_class.matrix], np.int64)


def _numa_nodes(numa: Sequence[int | None]) -> Ints:
    """Return for each set how many NUMA nodes it touches; unknown ones count as one node."""
    bit = {node: 1 << at for at, node in enumerate(dict.fromkeys(numa))}
    touched = np.zeros(1, np.int64)
    for node in numa:
        touched = np.concatenate([touched, touched | bit[node]])
    return np.bitwise_count(touched).astype(np.int64)


def _admitted(device_class: DeviceClass, numa_nodes: Ints) -> Flags:
    """Tell for each set whether the kubelet's topology policy admits it; an unknown NUMA node admits all.

    ``restricted`` admits what touches no more NUMA nodes than a pod of that size must on the empty machine.
    """
    admitted = np.ones(len(numa_nodes), np.bool_)
    if not device_class.policy.restricts or None in device_class.numa:
        return admitted
    if device_class.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return numa_nodes <= 1
    for k in range(1, device_class.gpus + 1):
        of_size = _sizes(device_class.gpus) == k
        admitted[of_size] = numa_nodes[of_size] == numa_nodes[of_size].min()
    return admitted


def _sizes(n: int) -> Ints:
    return np.bitwise_count(np.arange(1 << n)).astype(np.int64)


def _best_first(k: int, scores: Ints, admitted: Flags) -> Ints:
    """Return the admitted sets of `k`, best score first, then in the order of their GPU indices."""
    n = len(scores).bit_length() - 1
    masks = np.flatnonzero((_sizes(n) == k) & admitted)
    # Of two sets of one size, that with the lower indices has the larger mirror image.
    mirrored = np.zeros_like(masks)
    for gpu in range(n):
        mirrored |= (masks >> gpu & 1) << (n - 1 - gpu)
    return masks[np.lexsort((-mirrored, -scores[masks]))]


def _remainders(device_class: DeviceClass, rings: Ints, numa_nodes: Ints, admitted: Flags) -> Ints:
    """Return a number for each set that orders sets of one size by what they are worth when they are left over."""
    n = device_class.gpus
    # Up to 8 disjoint sets: their (16 - NUMA nodes) add up to less than 128.
    worth = rings << 7 | (16 - numa_nodes)
    order = np.zeros(1 << n, np.int64)
    for k in (8, 4, 2):
        carved = _carved(np.where(admitted & (_sizes(n) == k), worth, 0))
        order = order << 16 | np.unique(carved, return_inverse=True)[1]
    return order << 4 | _aligned_pairs(device_class.numa)


def _carved(worth: Ints) -> Ints:
    """Return for each set the largest sum of `worth` over disjoint sets within it.

    Only sets of worth > 0 are used. Of the sets with highest GPU h, all are known once those below are:
    h stays unused, or one set takes it and the rest lies below.
    """
    total = np.zeros(1, np.int64)
    while len(total) < len(worth):
        with_top = total.copy()
        for below in np.flatnonzero(worth[len(total) : 2 * len(total)]):
            rest = _disjoint(int(below), len(total))
            with_top[rest | below] = np.maximum(with_top[rest | below], total[rest] + worth[len(total) + below])
        total = np.concatenate([total, with_top])
    return total


def _disjoint(mask: int, end: int) -> Ints:
    """Return all masks below `end`, a power of two, that share no GPU with `mask`."""
    result = np.zeros(1, np.int64)
    for gpu in range(end.bit_length() - 1):
        if not mask >> gpu & 1:
            result = np.concatenate([result, result | 1 << gpu])
    return result


def _aligned_pairs(numa: Sequence[int | None]) -> Ints:
    """Return for each set how many pairs 2i, 2i + 1 of one NUMA node lie whole within it."""
    masks = np.arange(1 << len(numa))
    count = np.zeros_like(masks)
    for first in range(0, len(numa) - 1, 2):
        if numa[first] == numa[first + 1]:
            count += masks >> first & 3 == 3
    return count

"""What sets of GPUs are worth, for the demo's checks and comparisons. Pure.

The link level of a set is judged here by itself, from the link matrix, by trying every ring and every set: a check
that shared the selector's tables could not find its faults. Bandwidths are the selector's model.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise, permutations
from typing import Any

from deploy.local import machines
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Kind, gbps
from pyscheduler.readers import node_document

Gpus = tuple[int, ...]
Free = Mapping[str, frozenset[int]]

# Bandwidths are whole MB/s: what differs by less is equal.
_EPSILON_GBPS = 1e-3


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of GPUs that a pod could get.

    Attributes
    ----------
    node, gpus
        Where.
    level
        Kind of the weakest link on the best ring through the set; None for one GPU.
    link
        Link type of the weakest pair in the set; None for one GPU.
    ring_gbps
        Bandwidth of its rings by the selector's model, GB/s; 0 for one GPU.
    spoils_gbps
        For one GPU: bandwidth of its best link to another free GPU, which larger jobs then miss; else 0.
    numa_nodes
        NUMA nodes that it touches.

    """

    node: str
    gpus: Gpus
    level: Kind | None
    link: str | None
    ring_gbps: float
    spoils_gbps: float
    numa_nodes: int

    @property
    def rank(self) -> tuple[int, float, float]:
        """What to sort by, best first: link level, then ring bandwidth; for one GPU what it spoils."""
        return Kind.NVLINK if self.level is None else self.level, -self.ring_gbps, self.spoils_gbps


@dataclass(frozen=True, slots=True)
class Draw:
    """What a random choice gets on average: any node with room, any set of its free GPUs, all equally likely.

    `as_good` is the share of draws whose rings are as fast as those of the best choice.
    """

    ring_gbps: float
    as_good: float


class Judge:
    """Knows the machines of the nodes."""

    def __init__(self, machine_of: Mapping[str, str]) -> None:
        self._machine_of = dict(machine_of)

    def document(self, node: str) -> dict[str, Any]:
        """Return the node document of the node."""
        return machines.document(self._machine_of[node], node)

    def judge(self, node: str, gpus: Iterable[int], free: Collection[int] = ()) -> Choice:
        """Return what a set on a node is worth; `free` are the GPUs that were free there, for sets of one."""
        chosen = tuple(sorted(gpus))
        table = device_table(self._machine_of[node])
        worth = table.choose(sum(1 << gpu for gpu in chosen), len(chosen))
        if worth is None:
            raise ValueError(f"{node}: its kubelet admits no pod on GPUs {chosen}")
        return Choice(
            node=node,
            gpus=chosen,
            level=ring_level(self._machine_of[node], chosen),
            link=worth.bottleneck,
            ring_gbps=worth.ring_gbps,
            spoils_gbps=_best_link(table, chosen[0], free) if len(chosen) == 1 else 0.0,
            numa_nodes=worth.numa_nodes,
        )

    def choices(self, free: Free, nodes: Iterable[str], size: int) -> list[Choice]:
        """Return every set of `size` free GPUs on these nodes."""
        return [self.judge(node, gpus, free[node]) for node in nodes for gpus in combinations(sorted(free[node]), size)]


def is_best(chosen: Choice, choices: Sequence[Choice]) -> bool:
    """Return whether no other choice has a nearer link level, or faster rings at that level."""
    level, ring, spoils = min(choice.rank for choice in choices)
    mine = chosen.rank
    return mine[0] == level and mine[1] <= ring + _EPSILON_GBPS and mine[2] <= spoils + _EPSILON_GBPS


def random_draw(choices: Sequence[Choice]) -> Draw:
    """Return the exact expectation over all draws."""
    by_node: dict[str, list[Choice]] = {}
    for choice in choices:
        by_node.setdefault(choice.node, []).append(choice)
    best = max(choice.ring_gbps for choice in choices)
    rings = [sum(choice.ring_gbps for choice in on) / len(on) for on in by_node.values()]
    as_good = [sum(as_fast(choice, best) for choice in on) / len(on) for on in by_node.values()]
    return Draw(sum(rings) / len(by_node), sum(as_good) / len(by_node))


def as_fast(choice: Choice, ring_gbps: float) -> bool:
    """Return whether the rings of a choice have at least this bandwidth."""
    return choice.ring_gbps >= ring_gbps - _EPSILON_GBPS


@cache
def device_table(machine: str) -> DeviceTable:
    """Return the selector's table of a machine; it takes up to a second to build."""
    document = node_document.parse(json.dumps(machines.document(machine, machine)))
    return DeviceTable.build(class_of(document))


@cache
def ring_level(machine: str, gpus: Gpus) -> Kind | None:
    """Return the weakest kind of link on the ring, of all rings through the set, whose weakest is nearest."""
    if len(gpus) == 1:
        return None
    matrix = device_table(machine).device_class.matrix
    first, *others = gpus
    rings = (pairwise((first, *order, first)) for order in permutations(others) if order[0] <= order[-1])
    return min(max(matrix[a][b].kind for a, b in ring) for ring in rings)


def _best_link(table: DeviceTable, gpu: int, free: Collection[int]) -> float:
    device_class = table.device_class
    links = (device_class.matrix[gpu][other] for other in free if other != gpu)
    return max((gbps(link, device_class.models[gpu]) for link in links), default=0.0)

"""The objective of the selector by enumeration: every set of hosts, every count, every set of GPUs.

Shares no code with what it checks. Keys are tuples, smaller is better, in the order of the objective:
level, ring of the worst pod, then (on one host) ring of all GPUs, free slots of the domain, hosts, balance, ring of the
worst host, inner domains, GPUs left over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

from tests.oracle.boards import Board, Gpus, worths
from tests.oracle.fabric import Fabric

__all__ = ["STEPS", "Key", "Wanted", "best", "judge"]

Key = tuple[object, ...]
STEPS = ("level", "ring", "ring together", "slots", "hosts", "balance", "worst host", "inner domains", "left over")


@dataclass(frozen=True)
class Wanted:
    pods: int
    gpus: int
    one_pod_per_node: bool = False
    required: str | None = None
    same_model: bool = False


def best(fabric: Fabric, wanted: Wanted) -> Key | None:
    """Return the best key of any placement, None if there is none."""
    models = sorted({host.board.model(gpu) for host in fabric.hosts for gpu in host.board.gpus})
    alike = [key for model in models for key in _keys(fabric, wanted, model)]
    if alike or wanted.same_model:
        return min(alike, default=None)
    return min(_keys(fabric, wanted, None), default=None)


def judge(fabric: Fabric, wanted: Wanted, pods: Sequence[tuple[int, Gpus]]) -> Key:
    """Return the key of one placement: (host, GPUs) of each pod."""
    models = {fabric.hosts[host].board.model(gpu) for host, gpus in pods for gpu in gpus}
    model = next(iter(models)) if len(models) == 1 else None
    groups: dict[int, list[Gpus]] = {}
    for host, gpus in pods:
        groups.setdefault(host, []).append(gpus)
    options = []
    for host, sets in groups.items():
        board = fabric.hosts[host].board
        together = tuple(sorted(gpu for gpus in sets for gpu in gpus))
        options.append((host, len(sets), min(map(board.ring, sets)), board.ring(together)))
    return _key(fabric, wanted, model, options)


Option = tuple[int, int, int, int]


def _keys(fabric: Fabric, wanted: Wanted, model: str | None) -> Iterator[Key]:
    """Yield the keys of all placements of one model, None: of any."""
    everyone = range(len(fabric.hosts))
    room = {host: _slots(fabric.hosts[host].board, fabric.hosts[host].free, wanted, model) for host in everyone}
    usable = [host for host in everyone if room[host]]
    most = fabric.levels.index(wanted.required) if wanted.required else fabric.whole
    for size in range(1, min(wanted.pods, len(usable)) + 1):
        for hosts in combinations(usable, size):
            if sum(room[host] for host in hosts) < wanted.pods or not fabric.within(hosts, most):
                continue
            for counts in product(*(range(1, room[host] + 1) for host in hosts)):
                if sum(counts) == wanted.pods:
                    yield from _with_counts(fabric, wanted, model, hosts, counts)


def _with_counts(fabric: Fabric, wanted: Wanted, model: str | None, hosts: Sequence[int], counts: Sequence[int]) -> Iterator[Key]:
    each = [
        [(host, count, *worth) for worth in worths(fabric.hosts[host].board, fabric.hosts[host].free, wanted.gpus, count, model)]
        for host, count in zip(hosts, counts, strict=True)
    ]
    for options in product(*each):
        yield _key(fabric, wanted, model, options)


def _key(fabric: Fabric, wanted: Wanted, model: str | None, options: Sequence[Option]) -> Key:
    hosts = [host for host, *_ in options]
    level = fabric.level(hosts)
    together = min(union for *_, union in options)
    members = fabric.members(hosts, fabric.levels.index(wanted.required) if wanted.required else fabric.whole)
    slots = sum(_slots(fabric.hosts[host].board, fabric.hosts[host].free, wanted, model) for host in members)
    left = sum(len(fabric.hosts[host].free) - count * wanted.gpus for host, count, *_ in options)
    return (
        level,
        -min(ring for _, _, ring, _ in options),
        -together if len(hosts) == 1 else 0,
        slots,
        len(hosts),
        # The fewest pods on a host as many as can be, then the second fewest.
        tuple(-count for count in sorted(count for _, count, *_ in options)),
        -together,
        fabric.inner(hosts, level),
        left,
    )


def _slots(board: Board, free: Gpus, wanted: Wanted, model: str | None) -> int:
    """Return how many pods the host takes at once."""
    return _most(board, free, wanted.gpus, 1 if wanted.one_pod_per_node else len(free), model)


@lru_cache(maxsize=1 << 14)
def _most(board: Board, free: Gpus, gpus: int, cap: int, model: str | None) -> int:
    usable = [gpu for gpu in free if model is None or board.model(gpu) == model]
    return min(cap, len(usable) // gpus)

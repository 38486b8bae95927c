"""What sets of GPUs of a small machine are worth, by enumeration. Bandwidths are the oracle's own table, MB/s.

Shares no code with what it checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, pairwise, permutations

from scipy.optimize import linprog

__all__ = ["Board", "Gpus", "families"]

Gpus = tuple[int, ...]

# Of PCIe generation 3: what cards without a known model count as.
_PATH = {"PIX": 12_000, "PXB": 11_600, "PHB": 11_200, "NODE": 10_800, "SYS": 10_000, "?": 0}
_PER_NVLINK = 20_000
# A card of unknown model has at most so many NVLinks; more to its peers together means a switch.
_NVLINKS = 18


@dataclass(frozen=True)
class Board:
    """A machine of a few GPUs: link of each pair in the order of `combinations`, NUMA nodes, models."""

    links: tuple[str, ...]
    numa: tuple[int, ...]
    models: tuple[str | None, ...]
    _rings: dict[Gpus, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def gpus(self) -> Gpus:
        return tuple(range(len(self.numa)))

    def model(self, gpu: int) -> str:
        """A card without a model is of the one that all others with a model are of; else of none that is known."""
        named = sorted({model for model in self.models if model})
        return self.models[gpu] or (named[0] if len(named) == 1 else "?")

    def link(self, a: int, b: int) -> str:
        return self.links[list(combinations(self.gpus, 2)).index((min(a, b), max(a, b)))]

    def rate(self, a: int, b: int) -> int:
        link = self.link(a, b)
        return int(link[2:]) * _PER_NVLINK if link.startswith("NV") else _PATH[link]

    def ring(self, gpus: Gpus) -> int:
        """MB/s of what rings through exactly these GPUs carry; 0 for one GPU."""
        if gpus not in self._rings:
            self._rings[gpus] = 0 if len(gpus) < 2 else self._ring(gpus)
        return self._rings[gpus]

    def _ring(self, gpus: Gpus) -> int:
        if len(gpus) == 2:
            return self.rate(*gpus)
        cycles = [list(pairwise((gpus[0], *rest, gpus[0]))) for rest in permutations(gpus[1:])]
        one = max(min(self.rate(a, b) for a, b in cycle) for cycle in cycles)
        fast = [cycle for cycle in cycles if all(self.link(a, b).startswith("NV") for a, b in cycle)]
        if not fast:
            return one
        if len(self.numa) > 8:
            together = 2 * max(min(self.rate(a, b) for a, b in cycle) for cycle in fast)
        else:
            directed = [(a, b) for a in gpus for b in gpus if a != b and self.link(a, b).startswith("NV")]
            uses = [[float(edge in cycle) for cycle in fast] for edge in directed]
            solved = linprog([-1.0] * len(fast), uses, [self.rate(a, b) for a, b in directed])
            assert solved.fun is not None
            together = round(-solved.fun)
        return max(one, min(together, *(self._port(gpu) for gpu in gpus)))

    def _port(self, gpu: int) -> int:
        counts = [int(link[2:]) for b in self.gpus if b != gpu and (link := self.link(gpu, b)).startswith("NV")]
        return max(counts) * _PER_NVLINK if sum(counts) > _NVLINKS else 1 << 40

    def pair_sum(self, gpus: Gpus) -> int:
        return sum(self.rate(a, b) for a, b in combinations(gpus, 2))

    def numa_nodes(self, gpus: Gpus) -> int:
        return len({self.numa[gpu] for gpu in gpus})

    def best_link(self, gpu: int, free: Gpus) -> int:
        return max((self.rate(gpu, other) for other in free if other != gpu), default=0)


def families(free: Gpus, size: int, count: int) -> Iterator[tuple[Gpus, ...]]:
    """Yield every choice of `count` disjoint sets of `size` of the free GPUs, once."""
    if count == 0:
        yield ()
        return
    for at, lowest in enumerate(free):
        for others in combinations(free[at + 1 :], size - 1):
            taken = (lowest, *others)
            rest = tuple(gpu for gpu in free[at + 1 :] if gpu not in taken)
            for more in families(rest, size, count - 1):
                yield (taken, *more)


@lru_cache(maxsize=1 << 14)
def worths(board: Board, free: Gpus, size: int, count: int, model: str | None) -> frozenset[tuple[int, int]]:
    """Return (worst ring, ring of all together) of every choice of `count` sets, of one model if one is named."""
    usable = tuple(gpu for gpu in free if model is None or board.model(gpu) == model)
    found = set()
    for family in families(usable, size, count):
        together = tuple(sorted(gpu for gpus in family for gpu in gpus))
        found.add((min(map(board.ring, family)), board.ring(together)))
    return frozenset(found)

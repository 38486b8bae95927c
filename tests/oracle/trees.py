"""The objective across nodes by enumeration of all sets of up to 12 hosts whose GPUs are all linked alike.

Shares no code with what it checks. Keys as those of `tests.oracle.placement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.oracle.boards import Board
from tests.oracle.fabric import Fabric, Host
from tests.oracle.placement import Key, Wanted

__all__ = ["Forest", "switched"]

_PER_NVLINK = 20_000


def switched(gpus: int, nvlinks: int, model: str | None = None) -> Board:
    """Return a machine whose GPUs are all linked with so many NVLinks: any set of at least two has that ring."""
    return Board((f"NV{nvlinks}",) * (gpus * (gpus - 1) // 2), (0,) * gpus, (model,) * gpus)


@dataclass(frozen=True)
class Forest:
    """Hosts of `switched` boards in a fabric."""

    fabric: Fabric

    @property
    def hosts(self) -> Sequence[Host]:
        return self.fabric.hosts

    def best(self, wanted: Wanted) -> Key | None:
        """Return the best key of any placement, None if there is none."""
        models = sorted({host.board.models[0] or "?" for host in self.hosts})
        alike = [key for model in models for key in self._keys(wanted, model)]
        if alike or wanted.same_model:
            return min(alike, default=None)
        return min(self._keys(wanted, None), default=None)

    def judge(self, wanted: Wanted, counts: Mapping[int, int]) -> Key:
        """Return the key of a placement: pods by host."""
        models = {self.hosts[host].board.models[0] or "?" for host in counts}
        return self._key(wanted, next(iter(models)) if len(models) == 1 else None, counts)

    def room(self, host: int, wanted: Wanted, model: str | None) -> int:
        found = self.hosts[host]
        if model is not None and (found.board.models[0] or "?") != model:
            return 0
        slots = len(found.free) // wanted.gpus
        return min(slots, 1) if wanted.one_pod_per_node else slots

    def ring(self, host: int, gpus: int) -> int:
        board = self.hosts[host].board
        return int(board.links[0][2:]) * _PER_NVLINK if gpus > 1 else 0

    def _keys(self, wanted: Wanted, model: str | None) -> Iterator[Key]:
        room = {host: slots for host in range(len(self.hosts)) if (slots := self.room(host, wanted, model))}
        most = self.fabric.levels.index(wanted.required) if wanted.required else self.fabric.whole
        found: tuple[int, int] | None = None
        for size in range(1, min(wanted.pods, len(room)) + 1):
            for hosts in combinations(room, size):
                if sum(room[host] for host in hosts) < wanted.pods:
                    continue
                level = self.fabric.level(hosts)
                coarse = level, -min(self.ring(host, wanted.gpus) for host in hosts)
                # What is worse in the first two parts of the key need not be looked at any further.
                if self.fabric.within(hosts, most) and (found is None or coarse <= found):
                    found = coarse
                    yield self._key(wanted, model, _even({host: room[host] for host in hosts}, wanted.pods))

    def _key(self, wanted: Wanted, model: str | None, counts: Mapping[int, int]) -> Key:
        hosts = list(counts)
        level = self.fabric.level(hosts)
        together = min(self.ring(host, count * wanted.gpus) for host, count in counts.items())
        members = self.fabric.members(hosts, self.fabric.levels.index(wanted.required) if wanted.required else self.fabric.whole)
        return (
            level,
            -min(self.ring(host, wanted.gpus) for host in hosts),
            -together if len(hosts) == 1 else 0,
            sum(self.room(host, wanted, model) for host in members),
            len(hosts),
            tuple(-count for count in sorted(counts.values())),
            -together,
            self.fabric.inner(hosts, level),
            sum(len(self.hosts[host].free) - count * wanted.gpus for host, count in counts.items()),
        )


def _even(room: Mapping[int, int], pods: int) -> dict[int, int]:
    """Give out one pod at a time, each to a host that has fewest and room for more; every host gets one."""
    counts = dict.fromkeys(room, 0)
    for _ in range(pods):
        counts[min((host for host in counts if counts[host] < room[host]), key=lambda host: counts[host])] += 1
    return counts

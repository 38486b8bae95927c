"""Which domain two hosts share, from their paths alone, pair by pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.oracle.boards import Board, Gpus

__all__ = ["Fabric", "Host"]

# (level, name) of each domain, nearest first.
Path = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Host:
    """A machine in the fabric, with its free GPUs."""

    name: str
    path: Path
    board: Board
    free: Gpus
    nvlink: str | None = None


class Fabric:
    """`levels` are all levels, nearest first. NVLink domains are nearer than all of them."""

    def __init__(self, hosts: Sequence[Host], levels: Sequence[str]) -> None:
        self.hosts = hosts
        self.levels = ("node", "nvlink-domain", *levels)
        everyone = range(len(hosts))
        self._direct = [[self._shared(hosts[a], hosts[b]) for b in everyone] for a in everyone]
        self.near = [[self._joined(a, b) for b in everyone] for a in everyone]

    @property
    def whole(self) -> int:
        """The level of the whole cluster, behind all others."""
        return len(self.levels)

    def level(self, hosts: Iterable[int]) -> int:
        """Return the nearest level that holds these hosts, 0 for one host."""
        chosen = list(hosts)
        return max(self.near[chosen[0]][other] for other in chosen)

    def domain(self, host: int, level: int) -> frozenset[int]:
        """Return the hosts that share a level with this one."""
        return frozenset(other for other in range(len(self.hosts)) if self.near[host][other] <= level)

    def within(self, hosts: Iterable[int], level: int) -> bool:
        """Whether hosts are in one domain of a level, or, where none says in which, of a nearer one; or all are one host."""
        chosen = set(hosts)
        if len(chosen) == 1 or level == self.whole:
            return True
        if level == 0:
            return False
        domains = {self._own(host, level) for host in chosen}
        return self.within(chosen, level - 1) if domains == {None} else len(domains) == 1 and None not in domains

    def members(self, hosts: Sequence[int], required: int) -> set[int]:
        """Return the hosts of the domain that these are in: no wider than the required level."""
        domain = self.domain(hosts[0], self.level(hosts))
        return {other for other in domain if self.within({hosts[0], other}, required)}

    def common(self, hosts: Iterable[int]) -> int:
        """Return the nearest level of which these hosts are in one domain, 0 for one host."""
        chosen = set(hosts)
        if len(chosen) == 1:
            return 0
        shared = (
            level for level in range(1, self.whole) if len(own := {self._own(h, level) for h in chosen}) == 1 and None not in own
        )
        return next(shared, self.whole)

    def _own(self, host: int, level: int) -> object:
        """Return the domain of this level that a host says it is in."""
        found = self.hosts[host]
        if level == 1:
            return found.nvlink
        return next((found.path[at:] for at, (name, _) in enumerate(found.path) if name == self.levels[level]), None)

    def inner(self, hosts: Iterable[int], level: int) -> tuple[int, ...]:
        """Return in how many domains of each nearer level, the widest first, these hosts lie; one in none counts as one."""
        chosen = list(hosts)
        return tuple(len({self.domain(host, nearer) for host in chosen}) for nearer in range(level - 1, 0, -1))

    def _shared(self, one: Host, other: Host) -> int:
        if one.name == other.name:
            return 0
        if one.nvlink is not None and one.nvlink == other.nvlink:
            return 1
        for at, (level, _) in enumerate(one.path):
            if one.path[at:] in [other.path[start:] for start in range(len(other.path))]:
                return self.levels.index(level)
        return self.whole

    def _joined(self, one: int, other: int) -> int:
        """Return the nearest level at which a walk from host to host stays within: chains count as joined."""
        for level in range(self.whole):
            reached, border = {one}, [one]
            while border:
                at = border.pop()
                fresh = [to for to in range(len(self.hosts)) if self._direct[at][to] <= level and to not in reached]
                reached.update(fresh)
                border.extend(fresh)
            if other in reached:
                return level
        return self.whole

"""A fabric as a forest: switches with their parents, hosts under switches; gives the path of every host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyscheduler.readers.reading import Finding, RefusedError
from pyscheduler.readers.text.parts import some

__all__ = ["FabricTree", "Path", "agreed", "level_names"]

Path = list[str | None]

_LEVELS: Final = ("leaf", "spine", "core")
# The largest fabrics have four tiers; what is deeper than this is no fabric.
_MAX_DEPTH: Final = 32
# Five times what one Slurm cluster can have.
_MAX_HOSTS: Final = 300_000


def level_names(depth: int) -> list[str]:
    """Return names for `depth` levels, nearest first."""
    return [_LEVELS[i] if i < len(_LEVELS) else f"tier-{i}" for i in range(depth)]


def agreed(paths: Sequence[Path]) -> Path:
    """Return the one path that contradicts none of `paths`: the levels on which they, and all above, agree."""
    if len({len(path) for path in paths}) != 1:
        return []
    path: Path = [None] * len(paths[0])
    for level in range(len(path) - 1, -1, -1):
        here = {each[level] for each in paths}
        if len(here) > 1:
            break
        path[level] = here.pop()
    return path if any(path) else []


class FabricTree:
    """Switches and hosts, in the order in which they are named.

    A host or switch with two parents is placed as far as these agree, and reported: which of them is right is not
    known. A parent that is an ancestor of another parent says nothing new.
    """

    def __init__(self) -> None:
        self._parents: dict[str, dict[str, None]] = {}
        self._hosts: dict[str, dict[str, None]] = {}
        self._above: dict[str, Path] = {}
        self._open: set[str] = set()
        self._torn: dict[str, None] = {}
        self._cycles: dict[str, None] = {}

    def add_switch(self, child: str, parent: str) -> None:
        """State that switch `child` hangs below switch `parent`."""
        self._parents.setdefault(child, {})[parent] = None

    def add_host(self, host: str, switch: str | None) -> None:
        """State that `host` hangs below `switch`, None if that is not known.

        Raises
        ------
        RefusedError
            If there are more hosts than any fabric has.

        """
        switches = self._hosts.setdefault(host, {})
        if switch is not None:
            switches[switch] = None
        if len(self._hosts) > _MAX_HOSTS:
            raise RefusedError(f"more than {_MAX_HOSTS} hosts: a host range is too wide")

    @property
    def hosts(self) -> Mapping[str, object]:
        """All hosts."""
        return self._hosts

    def nodes(self) -> list[dict[str, Any]]:
        """Return name and path of every host.

        Raises
        ------
        RefusedError
            If the tree is deeper than any fabric.

        """
        return [{"name": host, "path": self._path(host, list(switches))} for host, switches in self._hosts.items()]

    def findings(self) -> list[Finding]:
        """Return what the last `nodes` could not place."""
        found = []
        if self._torn:
            found.append(Finding("several-parents", f"{some(self._torn)}: more than one parent; placed as far as these agree"))
        if self._cycles:
            found.append(Finding("switch-cycle", f"{some(self._cycles)}: below itself; the levels above are unknown"))
        return found

    def _path(self, host: str, switches: list[str]) -> Path:
        paths = [self._with(switch) for switch in switches]
        above = {name for path in paths for name in path[1:]}
        return self._one(host, [path for path in paths if len(paths) == 1 or path[0] not in above])

    def _with(self, switch: str) -> Path:
        """Return the path that begins with `switch`."""
        if switch in self._open:
            self._cycles[switch] = None
            return []
        if switch not in self._above:
            self._open.add(switch)
            if len(self._open) > _MAX_DEPTH:
                raise RefusedError(f"switch {switch} is more than {_MAX_DEPTH} levels deep: no fabric is")
            paths = [self._with(parent) for parent in self._parents.get(switch, ())]
            # Which member of a cycle is the upper one is not known: none is above another.
            self._above[switch] = [] if switch in self._cycles else self._one(switch, [path for path in paths if path])
            self._open.discard(switch)
        if len(self._above[switch]) >= _MAX_DEPTH:
            raise RefusedError(f"switch {switch} is more than {_MAX_DEPTH} levels deep: no fabric is")
        return [switch, *self._above[switch]]

    def _one(self, child: str, paths: list[Path]) -> Path:
        if len(paths) > 1:
            self._torn[child] = None
            return agreed(paths)
        return paths[0] if paths else []

"""Words that findings share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyscheduler.core.explain import plural

__all__ = ["shares", "some"]

_NAMED: Final = 6
# So few nodes are told by name.
_FEW: Final = 2


def some(names: Iterable[str]) -> str:
    """Return the first of `names` and how many more there are."""
    listed = list(names)
    rest = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def shares(nodes_of: Mapping[str, Sequence[str]]) -> str:
    """Return how many nodes each domain has, the largest first; one or two nodes are named."""
    ordered = sorted(nodes_of.items(), key=lambda item: (-len(item[1]), item[0]))
    return some(f"{domain} ({plural(len(nodes), 'node')}{_names(nodes)})" for domain, nodes in ordered)


def _names(nodes: Sequence[str]) -> str:
    return f": {', '.join(nodes)}" if len(nodes) <= _FEW else ""

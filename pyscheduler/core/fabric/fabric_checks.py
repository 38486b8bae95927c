"""Checks of a fabric as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from pyscheduler.core.fabric.place import Place
from pyscheduler.core.findings import Finding

__all__ = ["inversions"]


def inversions(places: Iterable[Place], levels: Sequence[str]) -> list[Finding]:
    """Check by counting that `levels` are written nearest first.

    Of two neighbouring levels the wider one holds several domains of the nearer one. Where each of its domains has one
    nearer domain alone, and there are fewer of these, the order is reversed. A place without one of the two says
    nothing, so trees of different depth are no fault.
    """
    paths = [dict(place.path) for place in places]
    found = []
    for near, wide in pairwise(levels):
        # Bare names: by their full paths there are never fewer of the nearer ones.
        pairs = {(path[near], path[wide]) for path in paths if near in path and wide in path}
        nears, wides = len({a for a, _ in pairs}), len({b for _, b in pairs})
        if nears < wides == len(pairs):
            what = f"{wide} has {wides} values and the nearer {near} only {nears}: the order of the levels may be reversed"
            remedy = "if it is, list these levels in a pool under fabric.pools with order: farthest-first, or swap their labels"
            found.append(Finding("tier-inversion", what, remedy))
    return found

"""Checks of where the nodes hang in the fabric.

Each check takes the GPU nodes in the order of their names. A domain is its full path, so one name under two parents may
be two domains; what differs in depth between pools is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from pyscheduler.core.explain import plural
from pyscheduler.core.fabric.fabric_checks import inversions
from pyscheduler.core.fabric.place import Domain, Place
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.lint.words import shares, some
from pyscheduler.core.record import NodeRecord

__all__ = [
    "node_unplaced",
    "nvlink_domain_split",
    "several_parents",
    "shallow",
    "tier_inversion",
    "unequal_depth",
]

# One or two nodes apart from at least four times as many are more likely a wrong label than a domain of their own.
_FEW = 2
_MANY_TIMES = 4


def node_unplaced(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find nodes without any level where others have some."""
    placed = sum(bool(node.place.path) for node in nodes)
    if not placed and len(nodes) > 1:
        yield Finding(
            "fabric-unknown",
            f"no label of {plural(len(nodes), 'GPU node')} says where in the fabric they are: all count as equally far from each other",
            "set the labels of a known writer, or describe yours under fabric.pools",
            severity=Severity.NOTE,
        )
    for node in nodes:
        if placed and not node.place.path:
            labels = f"its labels for {', '.join(node.levels)}" if node.levels else "the labels that the other nodes have"
            yield Finding(
                "node-unplaced",
                f"no level of the fabric, though {placed} of {plural(len(nodes), 'GPU node')} have one: counts as far from all others",
                f"set {labels}",
                node.name,
            )


def several_parents(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find names of domains that stand under more than one parent of the next known level."""
    between: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for node in nodes:
        for (level, name), (above, parent) in pairwise(node.place.path):
            parents = between.setdefault((level, above), {}).setdefault(name, {})
            parents.setdefault(parent, []).append(node.name)
    for (level, above), parents_of in between.items():
        torn = {name: parents for name, parents in parents_of.items() if len(parents) > 1}
        if len(torn) < 2 or 2 * len(torn) <= len(parents_of):
            yield from (_torn(level, name, above, parents) for name, parents in torn.items())
        elif any(len(children) > 1 for children in _children(parents_of).values()):
            yield Finding(
                "several-parents",
                f"{len(torn)} of {len(parents_of)} names of level {level} stand under several {above}, such as {some(sorted(torn))}: "
                "taken as names that are used anew under each",
                f"nothing, if each {above} numbers its {level} from the start; else correct the labels of {above}",
                severity=Severity.NOTE,
            )
        # Else each parent has one child: the levels are the wrong way round, and `tier_inversion` says so.


def _children(parents_of: Mapping[str, Mapping[str, object]]) -> dict[str, set[str]]:
    children: dict[str, set[str]] = {}
    for name, parents in parents_of.items():
        for parent in parents:
            children.setdefault(parent, set()).add(name)
    return children


def _torn(level: str, name: str, above: str, parents: Mapping[str, Sequence[str]]) -> Finding:
    fewest, most = (pick(parents.values(), key=len) for pick in (min, max))
    suspect = len(fewest) <= _FEW and len(most) >= _MANY_TIMES * len(fewest)
    if suspect:
        guess = f"; probably mislabelled: {', '.join(fewest)}"
        remedy = f"correct the label of {above} or {level} on {', '.join(fewest)}"
    else:
        guess = ""
        remedy = f"correct the labels of {above}; nothing need be done if these are different {level} of one name"
    return Finding("several-parents", f"{level} {name} stands under {len(parents)} {above}: {shares(parents)}{guess}", remedy)


def unequal_depth(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find levels that some nodes lack, of those that their pool has or that hang in the same domains."""
    deeper = _deeper(nodes)
    pools: dict[tuple[str, ...], list[NodeRecord]] = {}
    for node in nodes:
        if path := node.place.path:
            above = deeper.get(path, ())
            pools.setdefault(tuple(dict.fromkeys((*node.levels, *(level for level, _ in path), *above))), []).append(node)
    for levels, members in pools.items():
        for level in levels:
            lacking = [node.name for node in members if node.place.domain(level) is None]
            if lacking:
                yield Finding(
                    "unequal-depth",
                    f"no {level} on {len(lacking)} of {plural(len(members), 'node')} with the levels {', '.join(levels)}: "
                    f"{some(lacking)}",
                    f"set the label of {level} there",
                )


def shallow(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find nodes that end at a nearer level than others of the same GPUs do: whole domains may lack their parent's label."""
    deeper = _deeper(nodes)
    groups: dict[tuple[str, str | None], dict[tuple[str, ...], list[str]]] = {}
    for node in nodes:
        levels = tuple(level for level, _ in node.place.path)
        # What its pool has, or nodes in the same domains have, `unequal_depth` finds.
        if levels and node.place.path not in deeper and set(node.levels) <= set(levels):
            model = node.document.gpus[0].model if node.document else None
            groups.setdefault((levels[0], model), {}).setdefault(levels, []).append(node.name)
    for paths in groups.values():
        longest = max(paths, key=lambda levels: (len(levels), levels))
        for levels, names in paths.items():
            if len(levels) < len(longest) and levels == longest[: len(levels)]:
                yield Finding(
                    "depth-differs",
                    f"{plural(len(names), 'node')} end at level {levels[-1]} where others with the same GPUs go on to {longest[-1]}: "
                    f"{some(names)}",
                    f"set the label of {longest[len(levels)]} there; nothing need be done if their fabric is less deep",
                    severity=Severity.NOTE,
                )


def _deeper(nodes: Sequence[NodeRecord]) -> dict[Domain, tuple[str, ...]]:
    """Return for each path at which another one goes on: the levels of the longest such one beyond it."""
    beyond: dict[Domain, tuple[str, ...]] = {}
    for path in {node.place.path for node in nodes}:
        for depth in range(1, len(path)):
            levels = tuple(level for level, _ in path[depth:])
            here = path[:depth]
            # Of equally long ones any order would do; this one does not depend on that of the set.
            beyond[here] = max(beyond.get(here, ()), levels, key=lambda each: (len(each), each))
    return beyond


def tier_inversion(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find levels that are the wrong way round, by counting, pool by pool."""
    pools: dict[tuple[str, ...], list[Place]] = {}
    for node in nodes:
        pools.setdefault(node.levels, []).append(node.place)
    for levels, places in pools.items():
        yield from inversions(places, levels)


def nvlink_domain_split(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find NVLink domains whose nodes are in several domains of a level: an NVLink domain lies within one rack."""
    domains: dict[str, list[NodeRecord]] = {}
    for node in nodes:
        if node.place.nvlink_domain:
            domains.setdefault(node.place.nvlink_domain, []).append(node)
    for domain, members in domains.items():
        for level in dict.fromkeys(level for node in members for level in (*node.levels, *(at for at, _ in node.place.path))):
            parts: dict[str, list[str]] = {}
            for node in members:
                if found := node.place.domain(level):
                    parts.setdefault(found[0][1], []).append(node.name)
            if len(parts) > 1:
                yield Finding(
                    "nvlink-domain-split",
                    f"NVLink domain {domain} lies in {len(parts)} {level}: {shares(parts)}",
                    f"correct the label of {level} or of the NVLink domain on the smaller part; nothing need be done where one NVLink domain spans racks (NVL36x2)",
                )
                break

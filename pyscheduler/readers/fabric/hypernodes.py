"""HyperNodes of Volcano (topology.volcano.sh/v1alpha1): where a node is in the fabric that they describe.

Tier 1 is the nearest. The level of a tier is named ``tier-N``, its domains are named like the HyperNodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pyscheduler.core.fabric.place import Place
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.readers.fabric.hypernode_members import Members
from pyscheduler.readers.fabric.places import Placement, domain_of
from pyscheduler.readers.text.parts import integer, some

__all__ = ["HyperNodes"]

# Tier and name of the HyperNodes that hold something, nearest first.
_Path = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _Above:
    """Where something hangs.

    Attributes
    ----------
    path
        What is known of it.
    tiers
        All tiers above it, known which or not, nearest first.
    torn
        HyperNodes of one tier that hold it all, though only one can.
    """

    path: _Path = ()
    tiers: tuple[int, ...] = ()
    torn: tuple[str, ...] = ()


_NOTHING: Final = _Above()


@dataclass(frozen=True, slots=True)
class HyperNodes:
    """The HyperNodes of a cluster. It does not change: build it anew when one of them does.

    Attributes
    ----------
    findings
        What is wrong with them, whichever nodes there are.
    """

    findings: tuple[Finding, ...] = ()
    _members: Members = field(default_factory=Members)
    # By HyperNode: itself and what is above it.
    _above: Mapping[str, _Above] = field(default_factory=dict)

    @classmethod
    def build(cls, objects: Iterable[Mapping[str, Any]]) -> Self:
        """Return the HyperNodes of the API objects."""
        tiers: dict[str, int] = {}
        members = Members()
        for raw in objects:
            _add(raw, tiers, members)
        parents, findings = _parents(tiers, members.children)
        above: dict[str, _Above] = {}
        # The widest first: all parents of one are done before it.
        for name in sorted(tiers, key=lambda name: -tiers[name]):
            over = _merged([above[parent] for parent in parents.get(name, ())])
            if over.torn:
                what = f"HyperNode {name} is a member of {some(over.torn)}: placed as far as these agree"
                findings.append(Finding("several-parents", what, "keep it as a member of one of them alone"))
            above[name] = _Above(((tiers[name], name), *over.path), (tiers[name], *over.tiers))
        return cls((*members.findings, *findings), members, above)

    def place_of(self, name: str, labels: Mapping[str, str]) -> Placement:
        """Return where the node `name` is."""
        domain, findings = domain_of(labels, name)
        owners = dict.fromkeys(selector.owner for selector in self._members.of(name, labels))
        its = _merged([self._above[owner] for owner in owners if owner in self._above])
        if its.torn:
            what = f"is in HyperNodes of one tier, {some(its.torn)}: placed as far as these agree"
            findings = (*findings, Finding("several-parents", what, "keep the node in one of them alone", name))
        path = tuple([(_level(tier), owner) for tier, owner in its.path])
        return Placement(Place(path, domain), tuple([_level(tier) for tier in its.tiers]), findings)

    def unmatched(self, nodes: Iterable[tuple[str, Mapping[str, str]]]) -> list[Finding]:
        """Return which members choose none of `nodes`, all nodes of the cluster with their labels."""
        used = {selector for name, labels in nodes for selector in self._members.of(name, labels)}
        idle: dict[str, list[str]] = {}
        for selector in self._members.selectors():
            if selector not in used:
                idle.setdefault(selector.owner, []).append(selector.text)
        remedy = "remove the member, or add the node or label that it waits for"
        return [
            Finding(
                "hypernode-member-unmatched",
                f"HyperNode {owner}: no node is chosen by {some(texts)}",
                remedy,
                severity=Severity.NOTE,
            )
            for owner, texts in idle.items()
        ]


def _level(tier: int) -> str:
    return f"tier-{tier}"


def _add(raw: Mapping[str, Any], tiers: dict[str, int], members: Members) -> None:
    meta, spec = raw.get("metadata"), raw.get("spec")
    name = meta.get("name") if isinstance(meta, dict) else None
    tier = integer(spec.get("tier")) if isinstance(spec, dict) else None
    if not isinstance(name, str) or not name or not isinstance(spec, dict) or tier is None or tier < 0:
        what = f"HyperNode {name or '(without a name)'} has no tier from 0: it is left out"
        members.findings.append(Finding("hypernode-unreadable", what, "set spec.tier; 1 is the nearest"))
        return
    tiers[name] = tier
    listed = spec.get("members")
    for number, member in enumerate(listed if isinstance(listed, list) else []):
        members.add(name, number, member)


def _parents(tiers: Mapping[str, int], children: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[Finding]]:
    """Return the parents of each HyperNode, all of wider tiers, and what is wrong with the others."""
    findings = []
    parents: dict[str, list[str]] = {}
    reverse: list[tuple[str, str]] = []
    for parent, its in children.items():
        for child in dict.fromkeys(its):
            if child not in tiers:
                what = f"HyperNode {parent}: its member {child} does not exist"
                findings.append(Finding("hypernode-member-missing", what, f"create HyperNode {child}, or remove the member"))
            elif tiers[child] < tiers[parent]:
                parents.setdefault(child, []).append(parent)
            else:
                reverse.append((parent, child))
    findings += [_reversed(parent, child, tiers, children) for parent, child in reverse]
    return parents, findings


def _reversed(parent: str, child: str, tiers: Mapping[str, int], children: Mapping[str, Sequence[str]]) -> Finding:
    """Say why a member whose tier is not nearer than that of its parent is left out."""
    below, todo = {child}, [child]
    while todo and parent not in below:
        new = [name for name in children.get(todo.pop(), ()) if name not in below]
        below.update(new)
        todo += new
    if parent in below:
        what = f"HyperNode {child} is a member of {parent} and holds it, too: left out as a member"
        return Finding("hypernode-cycle", what, f"remove {child} from the members of {parent}, or the reverse")
    what = f"HyperNode {child} of tier {tiers[child]} is a member of {parent} of tier {tiers[parent]}: left out as a member"
    return Finding("tier-inversion", what, "give the member the lower tier: 1 is the nearest")


def _merged(holders: Sequence[_Above]) -> _Above:
    """Return the levels of all holders; of those that differ on one, only what is above it in all of them."""
    if len(holders) < 2:
        return holders[0] if holders else _NOTHING
    names: dict[int, dict[str, None]] = {}
    for holder in holders:
        for tier, name in holder.path:
            names.setdefault(tier, {})[name] = None
    tiers = sorted({tier for holder in holders for tier in holder.tiers})
    path: list[tuple[int, str]] = []
    for tier in sorted(names, reverse=True):
        if len(names[tier]) > 1:
            sides = [holder.path for holder in holders if any(at == tier for at, _ in holder.path)]
            common = [step for step in reversed(path) if all(step in side for side in sides)]
            return _Above(tuple(common), tuple(tiers), tuple(names[tier]))
        path.append((tier, next(iter(names[tier]))))
    return _Above(tuple(reversed(path)), tuple(tiers))

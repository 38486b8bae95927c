"""Members of HyperNodes: which nodes their selectors choose.

As in Volcano (pkg/scheduler/api, GetMembers): the selectors of one member add up, a pattern may match anywhere in the
name, an empty label selector chooses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyscheduler.core.findings import Finding
from pyscheduler.readers.fabric.name_pattern import PatternError, compile_pattern

__all__ = ["Members", "Selector"]

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_REMEDY: Final = "mend spec.members of the HyperNode"


@dataclass(frozen=True, slots=True)
class _Requirement:
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator in {"Exists", "DoesNotExist"}:
            return (value is not None) == (self.operator == "Exists")
        # As in Kubernetes, a label that is not there is not in any list.
        return (value in self.values) == (self.operator == "In")


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """One selector. It is itself alone: two that say the same are two.

    Attributes
    ----------
    owner
        The HyperNode that it is of.
    text
        It, for people.
    """

    owner: str
    text: str
    pattern: re.Pattern[str] | None = None
    requirements: tuple[_Requirement, ...] = ()

    def chooses(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether it chooses a node by a pattern or labels."""
        if self.pattern is not None:
            return self.pattern.search(name) is not None
        return all(requirement.holds(labels) for requirement in self.requirements)


@dataclass(slots=True)
class Members:
    """The members of all HyperNodes, so that the owners of a node are found without a look at each."""

    children: dict[str, list[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _exact: dict[str, list[Selector]] = field(default_factory=dict)
    _labelled: dict[tuple[str, str], list[Selector]] = field(default_factory=dict)
    _others: list[Selector] = field(default_factory=list)

    def add(self, owner: str, number: int, raw: Any) -> None:
        """Take in one member of `owner`."""
        member: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
        selector = member.get("selector") if isinstance(member.get("selector"), dict) else {}
        where = f"HyperNode {owner}: members[{number}]"
        if member.get("type") == "HyperNode":
            name = _exact_name(selector)
            if name:
                self.children.setdefault(owner, []).append(name)
            else:
                self._unusable(f"{where} of type HyperNode has no selector.exactMatch.name: it is left out")
        elif member.get("type") == "Node":
            self._add_nodes(owner, where, selector or {})
        else:
            self._unusable(f"{where} is neither of type Node nor HyperNode: it is left out")

    def selectors(self) -> Iterator[Selector]:
        """Yield all selectors of nodes."""
        for lists in (self._exact, self._labelled):
            for selectors in lists.values():
                yield from selectors
        yield from self._others

    def of(self, name: str, labels: Mapping[str, str]) -> list[Selector]:
        """Return the selectors that choose a node."""
        found = list(self._exact.get(name, ()))
        if self._labelled:
            for item in labels.items():
                found += [selector for selector in self._labelled.get(item, ()) if selector.chooses(name, labels)]
        found += [selector for selector in self._others if selector.chooses(name, labels)]
        return found

    def _add_nodes(self, owner: str, where: str, raw: Mapping[str, Any]) -> None:
        before = len(self.findings)
        known = [
            self._add_exact(owner, raw.get("exactMatch")),
            self._add_pattern(owner, where, raw.get("regexMatch")),
            self._add_labels(owner, where, raw.get("labelMatch")),
        ]
        if not any(known) and len(self.findings) == before:
            self._unusable(f"{where} chooses nothing: it is left out")

    def _add_exact(self, owner: str, raw: Any) -> bool:
        name = _exact_name({"exactMatch": raw})
        if name:
            self._exact.setdefault(name, []).append(Selector(owner, f"exactMatch {name}"))
        return bool(name)

    def _add_pattern(self, owner: str, where: str, raw: Any) -> bool:
        pattern = raw.get("pattern") if isinstance(raw, dict) else None
        if not isinstance(pattern, str) or not pattern:
            return False
        try:
            compiled = compile_pattern(pattern)
        except PatternError as cause:
            what = f"{where}: pattern {pattern[:80]!r} {cause}: it chooses nothing"
            remedy = "write it more simply, or choose the nodes with labelMatch"
            self.findings.append(Finding("hypernode-pattern", what, remedy))
            return False
        self._others.append(Selector(owner, f"regexMatch {pattern}", compiled))
        return True

    def _add_labels(self, owner: str, where: str, raw: Any) -> bool:
        if not isinstance(raw, dict) or not (raw.get("matchLabels") or raw.get("matchExpressions")):
            return False
        requirements = _requirements(raw)
        if requirements is None:
            self._unusable(f"{where}: labelMatch is no label selector: it chooses nothing")
            return False
        text = ", ".join(f"{each.key} {each.operator} {'|'.join(sorted(each.values))}".strip() for each in requirements)
        selector = Selector(owner, f"labelMatch {text}", None, requirements)
        single = next((each for each in requirements if each.operator == "In" and len(each.values) == 1), None)
        if single:
            self._labelled.setdefault((single.key, next(iter(single.values))), []).append(selector)
        else:
            self._others.append(selector)
        return True

    def _unusable(self, what: str) -> None:
        self.findings.append(Finding("hypernode-member-unusable", what, _REMEDY))


def _exact_name(selector: Any) -> str:
    exact = selector.get("exactMatch") if isinstance(selector, dict) else None
    name = exact.get("name") if isinstance(exact, dict) else None
    return name if isinstance(name, str) else ""


def _requirements(raw: Mapping[str, Any]) -> tuple[_Requirement, ...] | None:
    """Return the requirements of a label selector, None if it is none."""
    labels, expressions = raw.get("matchLabels") or {}, raw.get("matchExpressions") or []
    if not isinstance(labels, dict) or not isinstance(expressions, list):
        return None
    found = [_Requirement(key, "In", frozenset([value])) for key, value in labels.items() if isinstance(value, str)]
    if len(found) < len(labels):
        return None
    for each in expressions:
        requirement = _expression(each)
        if requirement is None:
            return None
        found.append(requirement)
    return tuple(found)


def _expression(raw: Any) -> _Requirement | None:
    key, operator, values = (raw.get(name) for name in ("key", "operator", "values")) if isinstance(raw, dict) else (None,) * 3
    values = [] if values is None else values
    if not isinstance(key, str) or operator not in _OPERATORS or not isinstance(values, list):
        return None
    if not all(isinstance(value, str) for value in values) or bool(values) != (operator in {"In", "NotIn"}):
        return None
    return _Requirement(key, operator, frozenset(values))

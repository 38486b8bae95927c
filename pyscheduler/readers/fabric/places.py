"""Where one node is in the fabric, by its labels, without a look at any other node.

A level is known by its name: one that a node has no value for is left out of its path and shifts no other. Of labels
of two generations of one writer the newer ones count, whole. The NVLink domain comes from the same writer, else from
``nvidia.com/gpu.clique``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.findings import Finding
from pyscheduler.readers.fabric.label_families import CLIQUE, KEYS
from pyscheduler.readers.fabric.label_meaning import Meaning, meaning, missing
from pyscheduler.readers.fabric.rules import PoolConfig, Rules

__all__ = ["Placement", "domain_of", "meaning_of", "place_of"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a node is.

    Attributes
    ----------
    place
        What is known of it.
    levels
        Names of the levels that nodes of its pool should have, nearest first.
    findings
        What is wrong. They matter for nodes with GPUs: others need no place.
    """

    place: Place = NOWHERE
    levels: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


_UNPLACED: Final = Placement()


def place_of(labels: Mapping[str, str], name: str, rules: Rules) -> Placement:
    """Return where the node `name` with these labels is."""
    if not rules.pools:
        return _by_family(labels, name)
    for pool in rules.pools:
        if pool.holds(labels):
            return _by_pool(labels, name, pool)
    domain, findings = domain_of(labels, name)
    what = "matches the selector of no pool: its levels are unknown"
    remedy = "add a pool for it under fabric.pools; one without selector holds every node"
    return Placement(Place((), domain), (), (Finding("pool-unknown", what, remedy, name), *findings))


def domain_of(labels: Mapping[str, str], name: str) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the NVLink domain by the well-known labels, and what is wrong with them."""
    return _domain(labels, name, meaning_of(labels))


def meaning_of(labels: Mapping[str, str]) -> Meaning:
    """Return what the labels mean by their keys."""
    present = frozenset(labels.keys() & KEYS)
    return meaning(present, frozenset([key for key in present if labels[key]]))


def _by_family(labels: Mapping[str, str], name: str) -> Placement:
    if labels.keys().isdisjoint(KEYS):
        return _UNPLACED
    known = meaning_of(labels)
    domain, findings = _domain(labels, name, known)
    levels = tuple([level.name for level in known.levels])
    if known.rivals or known.lacking or known.doubles:
        findings = (*findings, *_family_findings(labels, name, known))
    return Placement(Place(tuple([(level, labels[key]) for level, key in known.steps]), domain), levels, findings)


def _family_findings(labels: Mapping[str, str], name: str, known: Meaning) -> list[Finding]:
    found = []
    for rival in known.rivals:
        if any(labels[new] != labels[old] for new, old in rival.pairs):
            what = f"label families {rival.newer} and {rival.older} disagree: {rival.newer} is newer and used alone"
            remedy = f"remove the stale labels from the node: {', '.join(rival.stale)}"
            found.append(Finding("label-families-disagree", what, remedy, name))
    found += [_missing(missing(level, labels), level.keys[0], name) for level in known.lacking]
    for keys in known.doubles:
        if len({labels[key] for key in keys}) > 1:
            what = f"labels {' and '.join(keys)} disagree: the first is used"
            found.append(Finding("label-conflict", what, f"remove the wrong one from the node, or set both to {keys[0]}", name))
    return found


def _by_pool(labels: Mapping[str, str], name: str, pool: PoolConfig) -> Placement:
    path, found = [], []
    for level in pool.levels:
        if value := labels.get(level.keys[0]):
            path.append((level.name, value))
        else:
            found.append(_missing(missing(level, labels), level.keys[0], name))
    domain, findings = _pool_domain(labels, name, pool)
    return Placement(Place(tuple(path), domain), tuple([level.name for level in pool.levels]), (*found, *findings))


def _pool_domain(labels: Mapping[str, str], name: str, pool: PoolConfig) -> tuple[str | None, tuple[Finding, ...]]:
    key = pool.nvlink_domain
    if not key:
        return domain_of(labels, name)
    if key == CLIQUE and labels.get(key):
        return _clique(labels, name)
    if value := labels.get(key):
        return value, ()
    fault = "empty" if key in labels else "missing"
    what = f"label {key} is {fault}: its NVLink domain is unknown"
    remedy = f"set the label, or leave nvlink_domain out of the pool {pool.name}"
    return None, (Finding("nvlink-domain-missing", what, remedy, name),)


def _missing(what: str, key: str, name: str) -> Finding:
    return Finding("level-missing", what, f"set the label {key} on the node", name)


def _domain(labels: Mapping[str, str], name: str, known: Meaning) -> tuple[str | None, tuple[Finding, ...]]:
    clique, findings = _clique(labels, name)
    return (labels[known.domain] if known.domain else clique), findings


def _clique(labels: Mapping[str, str], name: str) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the whole clique label as a domain: clique ids begin anew in each NVLink cluster."""
    value = labels.get(CLIQUE)
    if value is None:
        return None, ()
    cluster, _, clique = value.rpartition(".")
    fault = "an all-zero cluster UUID" if cluster else "an empty cluster UUID"
    if cluster.strip("0-."):
        fault = "" if clique.isascii() and clique.isdigit() else "no clique id"
    if not fault:
        return value, ()
    what = f"label {CLIQUE}={value!r} has {fault}: in no NVLink domain"
    remedy = "see that the fabric manager and IMEX run on the node, then start GPU feature discovery anew"
    return None, (Finding("clique-unusable", what, remedy, name),)

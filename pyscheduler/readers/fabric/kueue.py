"""A Topology of Kueue (kueue.x-k8s.io, ``spec.levels[].nodeLabel``) as one pool of all nodes.

Kueue writes the outermost level first, and as the last one, if it likes, ``kubernetes.io/hostname``: the node itself,
which is no level of the fabric. A level is named by its label, as Kueue's own annotations do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyscheduler.core.findings import Finding
from pyscheduler.readers.fabric.label_families import Level
from pyscheduler.readers.fabric.rules import PoolConfig

__all__ = ["pool_of"]

_HOSTNAME: Final = "kubernetes.io/hostname"


def pool_of(raw: Mapping[str, Any]) -> tuple[PoolConfig, tuple[Finding, ...]]:
    """Return the levels of a Topology object, nearest first, and what is wrong with it."""
    meta, spec = raw.get("metadata"), raw.get("spec")
    name = str((meta.get("name") if isinstance(meta, dict) else None) or "?")
    listed = spec.get("levels") if isinstance(spec, dict) else None
    labels: dict[str, None] = {}
    findings = []
    for number, level in enumerate(listed if isinstance(listed, list) else []):
        label = level.get("nodeLabel") if isinstance(level, dict) else None
        if not isinstance(label, str) or not label:
            findings.append(_finding(f"Topology {name}: levels[{number}] has no nodeLabel: it is left out"))
        elif label in labels:
            findings.append(_finding(f"Topology {name}: levels[{number}] is {label} again: it is left out"))
        elif label != _HOSTNAME:
            labels[label] = None
    if not labels:
        findings.append(_finding(f"Topology {name} has no level besides the node: nothing is known of the fabric"))
    return PoolConfig(name, tuple(Level(label, (label,)) for label in reversed(labels))), tuple(findings)


def _finding(what: str) -> Finding:
    return Finding("kueue-topology", what, "set spec.levels[].nodeLabel of the Topology, the outermost level first")

"""Taints of devices in ResourceSlices: what a DRA driver says of single cards.

Those that a DeviceTaintRule adds stand in no slice, and are not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyscheduler.core.capacity.opinions import NodeOpinion, Opinion
from pyscheduler.readers.cards.card_notes import sentence
from pyscheduler.readers.machine.dra_devices import devices

__all__ = ["SliceTaints", "opinions_by_node", "slice_taints"]

_BAD: Final = 0.0


@dataclass(frozen=True, slots=True)
class SliceTaints:
    """The cards of a slice that pods are kept away from.

    Attributes
    ----------
    name
        Of the slice.
    pool, generation
        Driver and pool; slices of a pool that are older than its newest do not count.
    taints
        By node and UUID the key of the taint.
    """

    name: str
    pool: tuple[str, str]
    generation: int
    taints: Mapping[tuple[str, str], str]


def slice_taints(raw: Mapping[str, Any]) -> SliceTaints:
    """Return what a ResourceSlice says."""
    spec = raw["spec"]
    pool = spec.get("pool") or {}
    found, _ = devices(spec, [])
    taints = {(d.host, d.card): d.tainted for d in found if d.tainted and d.host and d.card}
    return SliceTaints(
        raw["metadata"]["name"], (spec.get("driver", ""), pool.get("name", "")), pool.get("generation") or 0, taints
    )


def opinions_by_node(slices: Collection[SliceTaints]) -> dict[str, NodeOpinion]:
    """Return what slices say, by the names of nodes."""
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        newest[each.pool] = max(newest.get(each.pool, 0), each.generation)
    cards: dict[str, dict[str, Opinion]] = {}
    for each in slices:
        for (node, uuid), key in each.taints.items():
            if each.generation == newest[each.pool]:
                reason = sentence(f"its DRA driver {each.pool[0]} keeps pods off it: taint {key}")
                cards.setdefault(node, {})[uuid] = Opinion(_BAD, reason)
    return {node: NodeOpinion(cards=said) for node, said in cards.items()}

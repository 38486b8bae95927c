"""GPUs whose UUIDs no document says. They go by their index: what is said of their whole node keeps them out all the same.

Which of them a card is that has series nobody knows: alone it cannot be kept out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.inventory import Uuids
from pyscheduler.core.capacity.opinions import NodeOpinion
from pyscheduler.core.explain import plural
from pyscheduler.core.findings import Finding

__all__ = ["HANDED_OUT", "findings_of", "reported", "unlocated", "with_indices"]

HANDED_OUT: Final = (
    "no document says which GPU of its node it is, so it cannot be kept out (`pyscheduler topology merge` writes one)"
)
# Names that a message has room for.
_NODES_MAX: Final = 5
_REMEDY: Final = "publish node documents with the UUIDs of nvidia-smi or amd-smi (`pyscheduler topology merge` writes one)"


def reported(said: Mapping[str, NodeOpinion]) -> frozenset[str]:
    """Return the nodes that somebody reports as a whole."""
    return frozenset(node for node, opinion in said.items() if opinion.every is not None and opinion.every.value < 1)


def with_indices(nodes: Mapping[str, Uuids], of: Collection[str]) -> dict[str, Uuids]:
    """Return the cards of each node; of these nodes a GPU without a UUID goes by its index."""
    return {node: _handles(uuids) if node in of else uuids for node, uuids in nodes.items()}


def unlocated(out: Collection[CardKey], nodes: Mapping[str, Uuids]) -> set[CardKey]:
    """Return which of the cards that should be out are handed out, for nobody knows which GPU of their node they are."""
    open_nodes = {node: uuids for node in {key.node for key in out} if None in (uuids := nodes.get(node, ()))}
    # Where every GPU without a UUID is out, so is each card.
    vague = {node: set(uuids) for node, uuids in open_nodes.items() if not _nameless(node, uuids) <= set(out)}
    return {key for key in out if key.node in vague and not key.by_index and key.uuid not in vague[key.node]}


def findings_of(cards: Collection[CardKey]) -> Iterator[Finding]:
    """Yield which nodes have such cards."""
    if cards:
        nodes = sorted({key.node for key in cards})
        more = f" and {len(nodes) - _NODES_MAX:,} more" if len(nodes) > _NODES_MAX else ""
        what = f"{plural(len(cards), 'bad card')} cannot be kept out, for no document says the UUIDs of the GPUs there"
        yield Finding("uuids-unknown", f"{what} (nodes {', '.join(nodes[:_NODES_MAX])}{more})", _REMEDY)


def _handles(uuids: Uuids) -> tuple[str, ...]:
    return tuple(uuid or f"index:{index}" for index, uuid in enumerate(uuids))


def _nameless(node: str, uuids: Uuids) -> set[CardKey]:
    """Return the GPUs without a UUID, by their index."""
    return {CardKey(node, handle) for handle, uuid in zip(_handles(uuids), uuids, strict=True) if uuid is None}

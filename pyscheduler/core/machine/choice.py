"""The answers of a device table: one set of GPUs, or what a machine can offer to several equal pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = ["Choice", "Offer", "Picker"]

_PICKS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of GPUs on one machine, and what it is worth.

    Attributes
    ----------
    mask
        The GPUs.
    ring_gbps
        Bandwidth of the set's rings together, GB/s as all-reduce bus bandwidth; 0 for one GPU or unknown links.
    pair_sum_gbps
        Sum over all pairs, GB/s in one direction.
    numa_nodes
        NUMA nodes that the set touches; unknown ones count as one node.
    bottleneck
        Link type of the weakest pair in the set; None for one GPU.
    model
        What `ring_gbps` rests on: ``"ring-packing"`` (all rings on NVLink or xGMI, by linear programming),
        ``"bottleneck-ring"`` (the best single ring), ``"single"`` (one GPU) or ``"heuristic"`` (more GPUs than are
        searched exactly: set and ring are not proven best).
    key
        Orders choices of equal size on all machines, smaller is better. MB/s, so that equal sets compare equal.

    """

    mask: int
    ring_gbps: float
    pair_sum_gbps: float
    numa_nodes: int
    bottleneck: str | None
    model: str
    key: tuple[int, int, int]


class Picker(Protocol):
    """Finds disjoint sets."""

    def pick(self, count: int, floor: int) -> tuple[int, ...]:
        """Return `count` disjoint sets whose rings have at least `floor` MB/s, or nothing if there are not so many."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """How many pods of one size the free GPUs of a machine take at once, and how well.

    Attributes
    ----------
    slots
        Largest number of disjoint sets that can be given out.
    at
        (ring, count), rings in MB/s and falling: up to `count` disjoint sets have at least this ring each. Counts grow,
        the last is `slots`; empty if there is no set.
    """

    slots: int
    at: tuple[tuple[int, int], ...]
    _picker: Picker = field(repr=False)
    _picked: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, repr=False)

    def pick(self, count: int, floor: int = 0) -> tuple[int, ...]:
        """Return the best `count` disjoint sets whose rings have at least `floor` MB/s each, lowest GPU first.

        Best is, in this order: the ring of all of their GPUs together, the sum over the pairs of all, fewest NUMA nodes,
        what is left is best connected, lowest indices. The same GPUs are parted so that the worst ring is highest, then
        the sum of the rings, then that of the pairs within, then fewest NUMA nodes.

        Raises
        ------
        ValueError
            If there are not so many such sets: see `at`.

        """
        query = count, floor
        picked = self._picked.get(query)
        if picked is None:
            if len(self._picked) >= _PICKS_MAX:
                self._picked.clear()
            picked = self._picked[query] = self._picker.pick(count, floor) if count > 0 else ()
        if not picked:
            raise ValueError(f"there are no {count} disjoint sets with rings of {floor} MB/s: at most {self.at}")
        return picked

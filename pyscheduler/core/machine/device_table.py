"""The best set of k free GPUs on one kind of machine.

Up to 16 GPUs, all sets of a machine are judged once, when its table is built; a
choice is then a search through a sorted list (`exact_search`). Above, sets are
searched heuristically (`large_search`). Sets are bit masks: GPU i is bit i.

What a set is worth, in this order (higher first, except the last):

1. ring: bandwidth of the rings that a collective of exactly these GPUs can run
   on. A busy GPU is never a relay, so only links inside the set count.
2. pair sum: bandwidth over all pairs of the set.
3. NUMA nodes that the set touches.

Of sets that are equal in this, the one comes first that leaves most behind: the
free GPUs left are carved into disjoint sets of 8, in the best way, then of 4,
then of 2 (requests are mostly powers of two, and the largest are the hardest to
place); more ring bandwidth over all sets is better, then fewer NUMA nodes. Then
fewer aligned pairs 2i, 2i + 1 torn apart: neighbours on the PCI bus share a
switch on the common machines. Last come the lowest indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from pyscheduler.core.job import NO_LIMITS, Limits
from pyscheduler.core.machine.admission import Rules, nearest, rules
from pyscheduler.core.machine.choice import Choice, Offer
from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy, class_hash
from pyscheduler.core.machine.exact_search import EXACT_GPUS, ExactSearch
from pyscheduler.core.machine.large_search import LargeSearch
from pyscheduler.core.machine.mesh import partial_set_note

__all__ = ["MAX_GPUS", "Choice", "DeviceClass", "DeviceTable", "Offer", "TooManyGpusError", "TopologyPolicy", "class_hash"]

MAX_GPUS: Final = 128
_CHOICES_MAX: Final = 1 << 16
_OTHERS_MAX: Final = 1 << 13

T = TypeVar("T")


class TooManyGpusError(ValueError):
    """A machine with more GPUs than are searched."""

    def __init__(self, gpus: int) -> None:
        super().__init__(f"machine has {gpus} GPUs; sets are judged up to {MAX_GPUS}: place by count on this node")
        self.gpus = gpus


class _Search(Protocol):
    """How sets are found on one class of machine. Rules of None: those of the machine alone."""

    def choose(self, free: int, k: int, rules: Rules | None) -> Choice | None: ...

    def offer(self, free: int, k: int, rules: Rules | None) -> Offer: ...

    def describe(self, mask: int, free: int = 0) -> Choice: ...

    def ring_order(self, mask: int) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTable:
    """What sets of GPUs of a class are worth: immutable, pickles, and is safe to share between threads.

    Make one with `build`.
    """

    device_class: DeviceClass
    class_hash: str
    _search: _Search
    # Answers are pure functions of the query, so a race between threads writes the same value twice.
    _choices: dict[object, Choice | None] = field(default_factory=dict)
    _offers: dict[object, Offer] = field(default_factory=dict)
    _rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _rules: dict[tuple[Limits, int | None], Rules] = field(default_factory=dict)

    @classmethod
    def build(cls, device_class: DeviceClass) -> DeviceTable:
        """Judge `device_class`: up to about a second, so run it in a worker process.

        Raises
        ------
        TooManyGpusError
            If the class has more than `MAX_GPUS` GPUs.

        """
        if device_class.gpus > MAX_GPUS:
            raise TooManyGpusError(device_class.gpus)
        search = ExactSearch.of(device_class) if device_class.gpus <= EXACT_GPUS else LargeSearch.of(device_class)
        return cls(device_class, class_hash(device_class), search)

    def choose(self, free_mask: int, k: int, limits: Limits = NO_LIMITS, healthy: int | None = None) -> Choice | None:
        """Return the best `k` of the free GPUs, or None if no set of them is free and admitted.

        The kubelet's policy, the machine's partitions and the limits admit a set.

        Parameters
        ----------
        free_mask
            Free GPUs; bits beyond the machine's GPUs are ignored.
        k
            At least 1.
        limits
            Hard limits of the job. A NIC that is not known here (`knows_nic`) asks for nothing.
        healthy
            Mask of the GPUs that count for which is nearest to a NIC, None: all.

        """
        free = self._free(free_mask, k)
        if k > free.bit_count():
            return None
        ruled = self._ruled(limits, healthy)
        query: object = (free, k) if ruled is None else (free, k, ruled)
        return _cached(self._choices, query, lambda: self._search.choose(free, k, ruled), _CHOICES_MAX)

    def offer(self, free_mask: int, k: int, limits: Limits = NO_LIMITS, healthy: int | None = None) -> Offer:
        """Return how many pods of `k` GPUs the free ones take at once, and how well. Parameters as of `choose`."""
        free = self._free(free_mask, k)
        ruled = self._ruled(limits, healthy)
        query: object = (free, k) if ruled is None else (free, k, ruled)
        return _cached(self._offers, query, lambda: self._search.offer(free, k, ruled))

    def describe(self, mask: int, free: int = 0) -> Choice:
        """Return what any set of at least one GPU is worth, admitted or not; a single GPU by what it takes from those of `free`."""
        return self._search.describe(mask, free)

    def ring_order(self, mask: int) -> tuple[int, ...]:
        """Return the GPUs of a set in the order of its best ring; by index where no ring is known.

        Best is the widest weakest link, then the largest sum. The lowest GPU comes first, then its lower neighbour.
        """
        return _cached(self._rings, mask, lambda: self._search.ring_order(mask))

    def knows_nic(self, limits: Limits, healthy: int | None = None) -> bool:
        """Tell whether it is known which GPU is nearest to the NIC of `limits`; true if they name none."""
        return limits.near_nic is None or nearest(self.device_class, limits.near_nic, healthy) != 0

    def partial_set_note(self, mask: int) -> str | None:
        """Return what to tell of a set that is a part of a fully meshed machine, None if there is nothing to tell."""
        return partial_set_note(self.device_class, mask)

    def _free(self, free_mask: int, k: int) -> int:
        if k < 1:
            raise ValueError(f"cannot choose {k} GPUs: ask for at least 1")
        return free_mask & ((1 << self.device_class.gpus) - 1)

    def _ruled(self, limits: Limits, healthy: int | None) -> Rules | None:
        """Return the limits as this machine understands them, None if there are none."""
        if limits.admit_any_set:
            return None
        # Which GPUs are healthy matters to NICs only.
        counted = healthy if limits.near_nic is not None else None
        return _cached(self._rules, (limits, counted), lambda: rules(self.device_class, limits, counted))


Query = TypeVar("Query")


def _cached(cache: dict[Query, T], query: Query, answer: Callable[[], T], most: int = _OTHERS_MAX) -> T:
    try:
        return cache[query]
    except KeyError:
        if len(cache) >= most:
            cache.clear()
        found = cache[query] = answer()
        return found

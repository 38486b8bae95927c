"""What is held on one node, by what would have to go together, and what the node is without some of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Protocol

from pyscheduler.core.evictions.units import Unit, Units, in_order, is_leaving
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import InUse, PodUid
from pyscheduler.core.node import NodeState, located

__all__ = ["Load", "Preempting", "Trial", "at_most"]


class Preempting(Protocol):
    """Who wants GPUs."""

    @property
    def given(self) -> Collection[PodUid]:
        """Pods whose GPUs are as good as free for it, whatever they do."""

    def passes_over(self, held: Holding) -> bool:
        """Tell whether these GPUs are as good as free for it, which are on their way or held for a nominated pod."""


class Load:
    """What is held on one node as long as it is in this state, and its units stay what they are.

    Attributes
    ----------
    state
        The node as it is.
    units
        What could go, in the order in which it would.
    here, unit_of
        The pods of each unit that are on this node; the unit of each of these.
    """

    def __init__(
        self, state: NodeState, holdings: Collection[Holding], units: Units, without: Callable[[Collection[PodUid]], NodeState]
    ) -> None:
        self.state = state
        self.without = without
        self._units = units
        self._holdings = tuple(holdings)
        self._reported = state.facts.in_use or {}
        self.here: dict[Unit, list[PodUid]] = {}
        self.unit_of: dict[PodUid, Unit] = {}
        self._most: dict[Unit, int] = {}
        self._groups = {held: units.of(held) for held in self._holdings if held.gang}
        for held in self._holdings:
            unit = self._groups[held] if held.gang else units.of(held)
            if unit is not None:
                self.here.setdefault(unit, []).append(held.uid)
                self.unit_of[held.uid] = unit
                self._most[unit] = self._most.get(unit, 0) + at_most(held, self._reported)
        self.units = in_order(self.here)
        # Held by nobody who would have to be evicted.
        self.passing = [held for held in self._holdings if held.state is HoldingState.NOMINATED or is_leaving(held)]

    def is_current(self) -> bool:
        """Tell whether the groups of which members are here are still what they were."""
        return all(self._units.of(held) is unit for held, unit in self._groups.items())

    @cached_property
    def masks(self) -> Mapping[PodUid, int] | None:
        """The GPUs of each pod; None unless all are located, and no two running pods share one.

        Then what is free without some of them is simple. Where it is not, `without` tells.
        """
        machine = self.state.facts.machine
        if machine is None:
            return None
        masks = {uid: machine.mask_of(handles) for uid, handles in self._reported.items()}
        counts = {uid: len(handles) for uid, handles in self._reported.items()}
        running = dict(masks)
        for held in self._holdings:
            masks[held.uid] = masks.get(held.uid, 0) | machine.mask_of(held.gpus)
            counts[held.uid] = held.count
            if held.state is not HoldingState.NOMINATED:
                running[held.uid] = masks[held.uid]
            elif held.uid in running:
                return None
        located = all(mask.bit_count() == counts[uid] for uid, mask in masks.items())
        apart = sum(mask.bit_count() for mask in running.values()) == reduce(or_, running.values(), 0).bit_count()
        return masks if located and apart else None

    def union(self, pods: Iterable[PodUid]) -> int:
        """Return the mask of the GPUs that these pods have, as far as that is simple."""
        masks = self.masks
        return reduce(or_, (masks[uid] for uid in pods), 0) if masks is not None else 0

    def sizes(self, taken: int) -> Mapping[Unit, int]:
        """Return how many GPUs are free at most when each unit is gone, besides those of a mask."""
        if self.masks is None:
            return self._most
        return {unit: (self.union(uids) & ~taken).bit_count() for unit, uids in self.here.items()}

    def most(self) -> Sequence[int]:
        """Return how many GPUs each unit has at most, in the order of `units`."""
        return [self._most[unit] for unit in self.units]

    def gone(self, pod: Preempting) -> set[PodUid]:
        """Return those whose GPUs are as good as free for who wants them."""
        gone = {held.uid for held in self.passing if pod.passes_over(held)}
        if pod.given:
            gone.update(held.uid for held in self._holdings if held.uid in pod.given)
        return gone


class Trial:
    """A node without some of its units. `units` are those of the ones that may go which have what could be had."""

    def __init__(self, load: Load, pod: Preempting, may_go: Collection[Unit]) -> None:
        self._load = load
        self._gone = load.gone(pod)
        self._may_go = may_go
        self._staying = 0
        # Of each unit that may go.
        self._masks: dict[Unit, int] = {}
        for uid, mask in (load.masks or {}).items():
            unit = load.unit_of.get(uid)
            if uid in self._gone:
                continue
            if unit is not None and unit in may_go:
                self._masks[unit] = self._masks.get(unit, 0) | mask
            else:
                self._staying |= mask
        if load.masks is None:
            sizes = load.sizes(0)
            self.sizes = {unit: sizes[unit] for unit in load.units if unit in may_go and sizes[unit]}
        else:
            free = ~self._staying
            sizes = {unit: (self._masks[unit] & free).bit_count() for unit in load.units if unit in self._masks}
            self.sizes = {unit: size for unit, size in sizes.items() if size}
        self.units = list(self.sizes)

    def state(self, victims: Collection[Unit]) -> NodeState:
        """Return what the node is when these are gone."""
        held = self.held(victims)
        if held is None:
            going = (uid for uid, unit in self._load.unit_of.items() if unit in victims and unit in self._may_go)
            return self._load.without(self._gone.union(going))
        return located(self._load.state.facts, held)

    def held(self, victims: Collection[Unit]) -> int | None:
        """Return the mask of the GPUs that are held when these are gone; None where it is not that simple."""
        if self._load.masks is None:
            return None
        mask = self._staying
        for unit, gpus in self._masks.items():
            if unit not in victims:
                mask |= gpus
        return mask


def at_most(held: Holding, reported: InUse) -> int:
    """Return how many GPUs are free at most when this is gone."""
    if held.uid not in reported:
        return held.count
    return max(held.count, len({*held.gpus, *reported[held.uid]}))

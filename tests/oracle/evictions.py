"""What the evictions on one machine cost that make room for a pod, by trying every set of pods.

Shares no code with what it checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

from tests.oracle.boards import Board, Gpus

__all__ = ["Box", "Cost", "Holder", "Wanted", "cost_of", "evictions", "free_sets", "survivors", "units"]

# Protected pods, the highest priority among the victims, the sum of their priorities with each pod counted as one of the
# lowest priority more, pods, and how early the first of those of the highest priority started: the later, the better.
Cost = tuple[int, int, int, int, float]

_LOWEST = -(1 << 31)
_FAR = ("PIX", "PXB", "PHB", "NODE", "SYS", "?")


@dataclass(frozen=True)
class Holder:
    """A pod on a machine. `gpus` are those that it is known to have, fewer than its `count` where that is not known of all.

    `told` says how they are known: by its `annotation`, by the node's `report`, or not: by `number`. `state`: it `runs`,
    `starts` (its Binding is under way), `leaves` (it is being deleted), has `ended` but not released its GPUs, or `waits`
    for GPUs that are held for it. `gang`: the group that it is one of, empty if it is none. `devices` are those of a pod that waits, and runs: somebody
    else has bound it.
    """

    name: str
    count: int
    gpus: Gpus
    priority: int
    start: float = 0.0
    told: str = "annotation"
    state: str = "runs"
    gang: str = ""
    protected: bool = False
    devices: Gpus = ()


@dataclass(frozen=True)
class Box:
    """A machine; without a board only the number of its GPUs is known. The kubelet offers `offered` of them.

    `strangers` are GPUs that are in use by nobody knows whom.
    """

    name: str
    board: Board | None
    offered: int
    healthy: Gpus
    holders: tuple[Holder, ...]
    strangers: Gpus = ()


@dataclass(frozen=True)
class Wanted:
    """A pod that waits, and the limits on the set that it gets."""

    gpus: int
    priority: int
    name: str = "wanted"
    max_link: str | None = None
    same_numa: bool = False

    def takes(self, board: Board, gpus: Sequence[int]) -> bool:
        """Whether a set satisfies the limits."""
        if self.same_numa and len({board.numa[gpu] for gpu in gpus}) > 1:
            return False
        if self.max_link is None:
            return True
        distances, worst = _distances(board), _distance(self.max_link)
        return all(distances[pair] <= worst for pair in combinations(gpus, 2))


@cache
def _distances(board: Board) -> dict[tuple[int, int], tuple[int, int]]:
    return {pair: _distance(link) for pair, link in zip(combinations(board.gpus, 2), board.links, strict=True)}


def _distance(link: str) -> tuple[int, int]:
    return (0, -int(link[2:])) if link.startswith("NV") else (1, _FAR.index(link))


def evictions(box: Box, wanted: Wanted, boxes: Sequence[Box]) -> Iterator[tuple[Cost, tuple[str, ...]]]:
    """Yield every set of pods that make room on one of the machines if they go, and what it costs. Groups go whole."""
    candidates = units(box, wanted, boxes)
    for size in range(len(candidates) + 1):
        for chosen in combinations(candidates, size):
            victims = [h for unit in chosen for h in unit]
            if free_sets(box, wanted, victims):
                yield cost_of(victims), tuple(h.name for h in victims)


def units(box: Box, wanted: Wanted, boxes: Sequence[Box]) -> list[list[Holder]]:
    """Return what of a machine may go: single pods, and groups with what they have elsewhere."""
    found = [[h] for h in box.holders if not h.gang and h.state == "runs"]
    for gang in sorted({h.gang for h in box.holders if h.gang and h.state == "runs"}):
        members = [h for each in boxes for h in each.holders if h.gang == gang]
        if not any(h.state == "starts" for h in members):
            found.append([h for h in members if h.state == "runs"])
    return [unit for unit in found if all(h.priority < wanted.priority for h in unit)]


def cost_of(victims: Sequence[Holder]) -> Cost:
    highest = max((h.priority for h in victims), default=_LOWEST)
    starts = [h.start for h in victims if h.priority == highest]
    return (
        len([h for h in victims if h.protected]),
        highest,
        sum(h.priority - _LOWEST for h in victims),
        len(victims),
        -min(starts, default=0.0),
    )


def survivors(box: Box, wanted: Wanted, victims: Sequence[Holder]) -> list[Holder]:
    """Return who is there when the victims are gone, and those that leave anyway or that give way to the pod."""

    def after(h: Holder) -> list[Holder]:
        gives_way = h.state == "waits" and (h.name == wanted.name or h.priority < wanted.priority)
        if gives_way:
            return [replace(h, state="runs", count=len(h.devices), gpus=h.devices)] if h.devices else []
        return [] if h in victims or h.state in ("ended", "leaves") else [replace(h, gpus=tuple({*h.gpus, *h.devices}))]

    return [h for each in box.holders for h in after(each)]


def free_sets(box: Box, wanted: Wanted, victims: Sequence[Holder]) -> list[Gpus]:
    """Return the sets that the pod may have when the victims are gone; one empty set where only the number is known."""
    staying = survivors(box, wanted, victims)
    if wanted.gpus > box.offered:
        return []
    only_number: list[Gpus] = [()] if wanted.max_link is None and not wanted.same_numa else []
    if box.board is None:
        held = sum(h.count for h in staying) + len(box.strangers)
        return only_number if box.offered - held >= wanted.gpus else []
    taken = {gpu for h in staying for gpu in h.gpus} | set(box.strangers)
    somewhere = sum(max(0, h.count - len(h.gpus)) for h in staying)
    # Of those that share a GPU all but one get another; what one waits for may be what its victims still have.
    claims = sum(len(h.gpus) for h in staying if h.state != "waits") + len(box.strangers)
    somewhere += max(0, claims - len(taken))
    free = [gpu for gpu in box.healthy if gpu not in taken]
    if min(len(free), box.offered - somewhere - len(taken)) < wanted.gpus:
        return []
    if somewhere or box.offered < len(box.healthy):
        return only_number
    return [gpus for gpus in combinations(free, wanted.gpus) if wanted.takes(box.board, gpus)]

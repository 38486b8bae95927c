"""What the planner answers, and what it is told of reservations: values only."""

from __future__ import annotations

from dataclasses import dataclass

from pyscheduler.core.holdings import Holding
from pyscheduler.core.model import PodRequest, PodUid, Verdict
from pyscheduler.core.preemption import Proposal

__all__ = ["Candidate", "FilterAnswer", "HeldByShim", "PreemptAnswer", "ReserveAnswer", "ResyncAnswer"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """`score` is 1 to 100, falling with the rank."""

    node: int
    score: int


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """`feasible` and `unresolvable` are bitmaps over the whole table."""

    verdict: Verdict
    generation: int
    feasible: int = 0
    unresolvable: int = 0
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class ReserveAnswer:
    """`annotations` go verbatim to the Binding."""

    verdict: Verdict
    generation: int
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PreemptAnswer:
    """`proposal` is held for the pod; None if the verdict is not OK."""

    verdict: Verdict
    generation: int
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class ResyncAnswer:
    """`orphans` are to be read live and then given to `settle_orphan`."""

    orphans: tuple[Holding, ...]
    conflicts: tuple[PodUid, ...]


@dataclass(frozen=True, slots=True)
class HeldByShim:
    """One pod that the shim holds, as it says in a resync; `nominated`: not reserved, preemption makes room for it."""

    pod: PodRequest
    number: int
    node: str
    gpus: tuple[str, ...]
    doubtful: bool
    nominated: bool = False

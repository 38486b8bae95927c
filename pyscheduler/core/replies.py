"""What the planner answers, and what it is told of reservations: values only."""

from __future__ import annotations

from dataclasses import dataclass

from pyscheduler.core.evictions.search import Proposal
from pyscheduler.core.holdings import Holding
from pyscheduler.core.model import PodRequest, PodUid, Verdict

__all__ = [
    "Candidate",
    "FilterAnswer",
    "HeldByShim",
    "PlanAnswer",
    "PlanMember",
    "PreemptAnswer",
    "ReserveAnswer",
    "ResyncAnswer",
]


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
class PlanMember:
    """To which plan a member of a group belongs. `needed` members have to be reserved before any is let go; 0: its group has started."""

    plan: str
    group: str
    needed: int


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """`node` is None for a member without GPUs, which may go anywhere; `member` is None if the verdict is not OK.

    `seats` are the nodes of the other members that are not reserved yet, told once, when the plan is made. `preempt`: an
    eviction of pods of lower priority may make room for the group.
    """

    verdict: Verdict
    generation: int
    node: int | None = None
    member: PlanMember | None = None
    seats: tuple[tuple[PodUid, int], ...] = ()
    preempt: bool = False


@dataclass(frozen=True, slots=True)
class ReserveAnswer:
    """`annotations` go verbatim to the Binding. `member`: of a member of a group."""

    verdict: Verdict
    generation: int
    annotations: tuple[tuple[str, str], ...] = ()
    member: PlanMember | None = None


@dataclass(frozen=True, slots=True)
class PreemptAnswer:
    """`proposal` is held for the pod; None if the verdict is not OK. `ended_plans`: their members that wait in Permit are refused."""

    verdict: Verdict
    generation: int
    proposal: Proposal | None = None
    ended_plans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResyncAnswer:
    """`orphans` are to be read live and then given to `settle_orphan`."""

    orphans: tuple[Holding, ...]
    conflicts: tuple[PodUid, ...]


@dataclass(frozen=True, slots=True)
class HeldByShim:
    """One pod that the shim holds, as it says in a resync; `nominated`: not reserved, preemption makes room for it.

    `member`: of a member of a group; `let_go`: its plan's members are being bound.
    """

    pod: PodRequest
    number: int
    node: str
    gpus: tuple[str, ...]
    doubtful: bool
    nominated: bool = False
    member: PlanMember | None = None
    let_go: bool = False

"""What a chaos run has found, and how it is printed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from deploy.local.chaos_recorder import Refusal, Wait
from deploy.local.chaos_violations import Violation

GOAL_S: Final = 5.0

_SHOWN: Final = 10  # of the pods that waited longest


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How it went on after a fault. Times are seconds since the run began.

    Attributes
    ----------
    fault
        What was done to what.
    begun_s
        When.
    ready_s
        When all processes were ready again or, if they were stopped, went on.
    next_bind_s
        Seconds from then, or from when a pod waited that had room if that was later, to the next binding; None if no
        pod was bound.
    longest_s
        Seconds that a pod waited at most until the next fault, counted from then, and while there was room for it
        without a break.

    """

    fault: str
    begun_s: float
    ready_s: float
    next_bind_s: float | None
    longest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that a run has found.

    Attributes
    ----------
    seed
        What it can be repeated with.
    took_s
        Seconds from the first pod to the last.
    pods, job_pods, bound
        How many pods were created, how many of them for Jobs, and how many were bound.
    changes
        How many states of pods were judged.
    gaps, unjudged
        How often the recorder missed changes, and how often it could not read them afterwards.
    suffered
        How often each thing was done to a node.
    refusals
        Pods that their node refused.
    waits
        How long the pods waited while there was room for them.
    recoveries
        One for each fault.
    violations
        All that must not be.

    """

    seed: int
    took_s: float
    pods: int
    job_pods: int
    bound: int
    changes: int
    gaps: int
    unjudged: int
    suffered: Mapping[str, int]
    refusals: Sequence[Refusal]
    waits: Sequence[Wait]
    recoveries: Sequence[Recovery]
    violations: Sequence[Violation]

    def lines(self) -> Iterable[str]:
        """Yield the report as text."""
        suffered = ", ".join(f"{what} {times}" for what, times in sorted(self.suffered.items()))
        yield f"seed {self.seed}: {len(self.recoveries)} faults in {self.took_s:.0f} s; nodes: {suffered or 'well all the time'}"
        yield f"pods: {self.pods} created ({self.job_pods} for Jobs), {self.bound} bound, {self._refused()}"
        yield f"judged: {self.changes} states of pods; {self.gaps} times read from history, {self.unjudged} times impossible"
        yield ""
        yield from _table(self.recoveries)
        yield ""
        yield from self._long_waits()
        yield from (f"refused for no good reason: {_told(each)}" for each in self.refusals if not each.lost)
        yield f"violations: {len(self.violations) or 'none'}"
        yield from map(str, self.violations)

    def _long_waits(self) -> Iterable[str]:
        """Yield the pods that waited with room for longer than the goal, without the times of faults."""
        calm = {wait: calm_s(wait, self.recoveries) for wait in self.waits}
        late = sorted((wait for wait, took_s in calm.items() if took_s > GOAL_S), key=lambda wait: -calm[wait])
        if late:
            yield f"pods that waited for more than {GOAL_S:g} s though there was room and all processes ran: {len(late)}"
        for wait in late[:_SHOWN]:
            yield f"  {wait.pod} for {calm[wait]:.1f} s between {wait.since_s:.1f} s and {wait.until_s:.1f} s"

    def _refused(self) -> str:
        lost = sum(1 for each in self.refusals if each.lost)
        return f"{len(self.refusals)} refused by their node ({lost} of them because it had just lost GPUs)"


def _table(recoveries: Sequence[Recovery]) -> Iterable[str]:
    yield f"{'':36}{'times':>5}   {'next binding after, s':^22}   longest wait with room, s"
    yield f"{'':36}{'':>5}   {'median':>10}{'max':>12}   {'max':>10}"
    faults = sorted({each.fault for each in recoveries})
    for fault in faults:
        rows = [each for each in recoveries if each.fault == fault]
        bound = [each.next_bind_s for each in rows if each.next_bind_s is not None]
        times = f"{median(bound):>10.2f}{max(bound):>12.2f}" if bound else f"{'-':>10}{'-':>12}"
        over = f"   over the goal of {GOAL_S:g} s" if len(bound) < len(rows) or max(bound) > GOAL_S else ""
        yield f"{fault:36}{len(rows):>5}   {times}   {max(each.longest_s for each in rows):>10.2f}{over}"


def calm_s(wait: Wait, faults: Iterable[Recovery]) -> float:
    """Return how long a pod waited without a fault, in seconds; faults do not overlap."""
    during = (min(wait.until_s, fault.ready_s) - max(wait.since_s, fault.begun_s) for fault in faults)
    return wait.until_s - wait.since_s - sum(max(0.0, overlap) for overlap in during)


def _told(refusal: Refusal) -> str:
    pod = refusal.bind.pod
    return f"{pod.name} bound to {pod.node} at {refusal.bind.at_s:.1f} s, refused at {refusal.ended_s:.1f} s: {refusal.message}"

"""The chaos run: processes die and hang, nodes lose GPUs and go away, pods come and go; a recorder judges every moment.

The plans follow from the seed. When each step happens depends on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from deploy.local import chaos_faults, chaos_plans
from deploy.local.chaos_faults import Fault
from deploy.local.chaos_load import Load, Ward
from deploy.local.chaos_recorder import Recorder
from deploy.local.chaos_report import Recovery, Report
from deploy.local.chaos_timetable import Timetable
from deploy.local.chaos_violations import Kind, Violation
from deploy.local.chaos_watch import Feed
from deploy.local.control_plane import ControlPlane
from deploy.local.scheduler_config import GPU_PROFILE
from deploy.local.workspace import Workspace

# How long a node holds the devices of a pod that has ended: GPUs must not be given before.
RELEASE_DELAY_S: Final = 0.5

_NODES: Final = 6
_MACHINE: Final = "hgx-h100"
_FABRIC: Final = ("leaf-1", "spine-1")
# Pods that come just before a fault, so that it meets Bindings under way, and while it lasts, so that somebody waits.
_BEFORE: Final = 3
_MEANWHILE: Final = 3
_NEXT_BIND_S: Final = 30.0
# A pod that waits longer with room and without a fault is parked: a Binding whose answer was lost is waited for for 75 s
# (plugin_shim/gputopology/settle.go), and then the scheduler's own backoff is 10 s at most.
_PARKED_S: Final = 100.0
_SETTLED_S: Final = 180.0
_LOOK_S: Final = 0.5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to do.

    Attributes
    ----------
    seconds
        How long faults go on.
    pods
        How many pods come in that time, besides those that come with each fault.
    seed
        What the plans follow from.
    run_s
        Least and most seconds that a pod runs.
    faults
        Faults to let happen, one after the other; None: those that follow from the seed, until the time is over.

    """

    seconds: float
    pods: int
    seed: int
    run_s: tuple[float, float] = (1.0, 6.0)
    faults: tuple[Fault, ...] | None = None


def run(plane: ControlPlane, options: Options, say: Say) -> Report:
    """Run on a control plane of its own.

    Raises
    ------
    LocalError
        If a component ends by itself or does not become ready, or the API server refuses a request.

    """
    begun = time.monotonic()

    def clock() -> float:
        return time.monotonic() - begun

    recorder = Recorder(GPU_PROFILE)
    with (
        Workspace(plane.api, "chaos") as workspace,
        Feed(plane.kubeconfig, recorder, clock) as feed,
        Timetable() as timetable,
    ):
        names = workspace.add_nodes(_MACHINE, _NODES, fabric=_FABRIC)
        workspace.wait_untainted()
        load = Load(workspace, timetable, chaos_plans.pods(options.seed, options.run_s), over=lambda: _asked(feed, Recorder.over))
        ward = Ward(workspace, timetable, names, chaos_plans.troubles(options.seed, len(names)))
        return _Run(plane, options, feed, load, ward, say).run()


class _Run:
    """One run. Its methods are called by one thread, that which started the control plane."""

    def __init__(self, plane: ControlPlane, options: Options, feed: Feed, load: Load, ward: Ward, say: Say) -> None:
        self._plane = plane
        self._options = options
        self._feed = feed
        self._load = load
        self._ward = ward
        self._say = say
        self._recoveries: list[Recovery] = []

    def run(self) -> Report:
        begun_s = self._feed.clock()
        # The logs of the components tell the time of day.
        self._say(f"{begun_s:6.1f} s  begun with seed {self._options.seed} at {datetime.now(UTC):%H:%M:%S} UTC")
        self._load.begin(self._options.pods / self._options.seconds)
        self._ward.begin()
        for fault in self._faults(begun_s + self._options.seconds):
            self._recoveries.append(self._suffer(fault))
        self._load.end()
        self._ward.end()
        self._settle()
        with self._feed.changed:
            return self._report(self._feed.clock() - begun_s)

    def _faults(self, until_s: float) -> Iterator[Fault]:
        if self._options.faults is not None:
            return iter(self._options.faults)
        return takewhile(lambda _: self._feed.clock() < until_s, chaos_faults.plan(self._options.seed))

    def _suffer(self, fault: Fault) -> Recovery:
        """Let a fault happen, wait for the next binding, and then some time."""
        begun_s = self._feed.clock()
        self._load.burst(_BEFORE)
        chaos_faults.inject(self._plane, fault, meanwhile=lambda: self._load.burst(_MEANWHILE))
        ready_s = self._feed.clock()
        bind = self._feed.wait_for(lambda recorder: recorder.next_bind(ready_s), _NEXT_BIND_S)
        next_bind_s = None
        if bind:
            with self._feed.changed:
                hungry_s = self._feed.recorder.hungry_s(ready_s, bind.at_s)
            next_bind_s = bind.at_s - (ready_s if hungry_s is None else hungry_s)
        time.sleep(fault.calm_s)
        self._plane.check()
        self._load.timetable.check()
        with self._feed.changed:
            longest_s = self._feed.recorder.longest_wait_s(ready_s, self._feed.clock())
        after = f"next binding after {next_bind_s:.2f} s" if next_bind_s is not None else f"no binding in {_NEXT_BIND_S:g} s"
        self._say(f"{begun_s:6.1f} s  {fault}, ready after {ready_s - begun_s:.1f} s, {after}, longest wait {longest_s:.1f} s")
        return Recovery(fault=str(fault), begun_s=begun_s, ready_s=ready_s, next_bind_s=next_bind_s, longest_s=longest_s)

    def _settle(self) -> None:
        """Wait until every pod has run and every Job is complete; what does not happen becomes a violation."""
        self._load.timetable.hurry()
        self._load.timetable.wait_idle(_SETTLED_S)
        calm_s = self._feed.clock()
        self._say(
            f"{calm_s:6.1f} s  faults are over, nodes are well; {len(_asked(self._feed, Recorder.unfinished))} pods are left"
        )
        while self._feed.clock() - calm_s < _SETTLED_S:
            if self._feed.wait_for(lambda recorder: not recorder.unfinished(), _LOOK_S) and self._jobs_done():
                break
            with self._feed.changed:
                self._feed.recorder.judge_parked(calm_s, self._feed.clock(), _PARKED_S)
            self._plane.check()
        with self._feed.changed:
            recorder, now_s = self._feed.recorder, self._feed.clock()
            recorder.judge_end(now_s, self._load.created, self._load.deleted)
        for name in self._unfinished_jobs():
            recorder.violations.append(Violation(kind=Kind.NOT_DONE, at_s=now_s, pods=(name,)))

    def _jobs_done(self) -> bool:
        return not self._unfinished_jobs()

    def _unfinished_jobs(self) -> list[str]:
        items, _ = self._load.workspace.api.read_all(self._load.workspace.jobs)
        done = {item["metadata"]["name"] for item in items if item.get("status", {}).get("completionTime")}
        return sorted(self._load.jobs - done)

    def _report(self, took_s: float) -> Report:
        recorder = self._feed.recorder
        return Report(
            seed=self._options.seed,
            took_s=took_s,
            pods=self._load.pods,
            job_pods=self._load.job_pods,
            bound=len(recorder.binds),
            changes=recorder.changes,
            gaps=self._feed.gaps,
            unjudged=self._feed.unjudged,
            suffered=dict(self._ward.suffered),
            refusals=recorder.refused(),
            waits=recorder.waits(self._feed.clock()),
            recoveries=self._recoveries,
            violations=recorder.violations,
        )


def _asked(feed: Feed, question: Callable[[Recorder], list[str]]) -> list[str]:
    with feed.changed:
        return question(feed.recorder)

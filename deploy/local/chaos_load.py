"""Lets the pods of the chaos run come and go, and its nodes suffer, though the API server may be away."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from deploy.local import simulated_nodes
from deploy.local.chaos_plans import PodPlan, Trouble
from deploy.local.chaos_timetable import Timetable
from deploy.local.scheduler_config import GPU_PROFILE
from deploy.local.simulated_nodes import NODES
from deploy.local.workspace import RUN_LABEL, Workspace

_CLEANED_EVERY_S: Final = 1.0
_ILL_AT_MOST: Final = 0.4  # of the nodes at one time


@dataclass(slots=True)
class Load:
    """The pods.

    Attributes
    ----------
    workspace
        Where they are created.
    timetable
        Who creates and deletes them.
    plans
        What comes.
    over
        Asked for the names (namespace/name) of the pods that are over: they are deleted, but those of Jobs.
    created
        Names of the pods whose creation the API server has acknowledged; those of Jobs are left out.
    deleted
        Names of the pods that are to be deleted, or are.
    jobs
        Names of the Jobs that were created.
    pods, job_pods
        How many pods were created, and how many of them for Jobs.

    """

    workspace: Workspace
    timetable: Timetable
    plans: Iterator[PodPlan]
    over: Callable[[], Iterable[str]]
    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    pods: int = 0
    job_pods: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    def begin(self, per_s: float) -> None:
        """Let so many pods come per second, until `end`."""
        self.timetable.after(0, partial(self._come, per_s))
        self.timetable.after(_CLEANED_EVERY_S, self._clean)

    def burst(self, pods: int) -> None:
        """Let at least so many more pods come at once."""
        while pods > 0:
            pods -= self._create_next()

    def end(self) -> None:
        """Let no more come."""
        self._ended = True

    def _come(self, per_s: float) -> None:
        if not self._ended:
            self.timetable.after(self._create_next() / per_s, partial(self._come, per_s))

    def _create_next(self) -> int:
        with self._lock:
            plan = next(self.plans)
            self.pods += plan.pods
            self.job_pods += plan.completions
        self.timetable.after(0, partial(self._create, plan))
        return plan.pods

    def _create(self, plan: PodPlan) -> None:
        body = plan.body(GPU_PROFILE, {RUN_LABEL: self.workspace.name})
        path = self.workspace.jobs if plan.completions else self.workspace.pods
        self.timetable.insist(partial(self.workspace.api.create, path, body))
        if plan.completions:
            self.jobs.add(plan.name)
            return
        self.created.add(f"{self.workspace.name}/{plan.name}")
        if plan.deleted_after_s is not None:
            self.timetable.after(plan.deleted_after_s, partial(self._delete, plan.name))

    def _clean(self) -> None:
        for name in {*self.over()} & self.created - self.deleted:
            self._delete(name.partition("/")[2])
        if not self._ended:
            self.timetable.after(_CLEANED_EVERY_S, self._clean)

    def _delete(self, name: str) -> None:
        self.deleted.add(f"{self.workspace.name}/{name}")
        self.timetable.insist(partial(self.workspace.api.delete, f"{self.workspace.pods}/{name}"))


@dataclass(slots=True)
class Ward:
    """The nodes, and what they suffer.

    Attributes
    ----------
    workspace
        Where they are.
    timetable
        Who lets them suffer.
    nodes
        Their names.
    plans
        What they suffer.
    suffered
        How often each thing was done to a node.

    """

    workspace: Workspace
    timetable: Timetable
    nodes: Sequence[str]
    plans: Iterator[Trouble]
    suffered: Counter[str] = field(default_factory=Counter)
    _ill: set[str] = field(default_factory=set)
    _ended: bool = False

    def begin(self) -> None:
        """Let nodes suffer, until `end`."""
        self._next()

    def end(self) -> None:
        """Let them suffer no more than they do."""
        self._ended = True

    def _next(self) -> None:
        plan = next(self.plans)
        self.timetable.after(plan.after_s, partial(self._strike, plan))

    def _strike(self, plan: Trouble) -> None:
        if self._ended:
            return
        name = self.nodes[plan.node]
        if name not in self._ill and len(self._ill) < _ILL_AT_MOST * len(self.nodes):
            self._ill.add(name)
            self._tell(name, plan.instructions, unschedulable=not plan.instructions)
            self.suffered[str(plan)] += 1
            self.timetable.after(plan.lasts_s, partial(self._heal, name))
        self._next()

    def _heal(self, name: str) -> None:
        self._tell(name, {}, unschedulable=False)
        self._ill.discard(name)

    def _tell(self, name: str, instructions: dict[str, object], *, unschedulable: bool) -> None:
        api = self.workspace.api
        self.timetable.insist(partial(simulated_nodes.simulate, api, name, instructions or None))
        self.timetable.insist(partial(api.patch, f"{NODES}/{name}", {"spec": {"unschedulable": unschedulable or None}}))

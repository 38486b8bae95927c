"""Which pods come and go in the chaos run, and what its nodes suffer. Pure: a seed gives the same plans each time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.api import Object

# As in clusters of training jobs: most pods are small, and a few take a whole node.
_SIZES: Final = (1, 2, 4, 8)
_SIZE_WEIGHTS: Final = (40, 30, 20, 10)
_JOBS: Final = 0.08  # of all plans; a Job has several pods
_COMPLETIONS: Final = (3, 6)
_DELETED: Final = 0.25
_DELETED_AFTER_S: Final = (0.0, 6.0)
_EVICTABLE: Final = 0.3
_SPLIT: Final = 0.15
_WITH_INIT: Final = 0.1
# A Job may lose pods to evictions and to nodes that lost GPUs, and must still complete.
_BACKOFF_LIMIT: Final = 1000
# What simulator and kwok make a node do; without instructions it is cordoned.
_TROUBLES: Final[tuple[dict[str, object], ...]] = ({"gpus": 6}, {"gpus": 6}, {"ready": False}, {})
_RESOURCE: Final = "nvidia.com/gpu"
_SIMULATE: Final = "pyscheduler.io/simulate"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """A pod, or a Job of equal pods.

    Attributes
    ----------
    name
        Name of the pod or Job.
    containers
        GPUs of each container.
    init
        GPUs of an init container; 0: it has none.
    run_s
        Seconds that it runs.
    evictable
        Whether it leaves a node that is not ready for longer than a second; if not, it stays.
    grace_s
        Seconds between its deletion and its end; 0: it is gone at once.
    deleted_after_s
        Seconds until it is deleted, wherever it is then; None: it may end.
    completions
        Pods of the Job; 0: it is a pod.

    """

    name: str
    containers: tuple[int, ...]
    init: int
    run_s: float
    evictable: bool
    grace_s: int
    deleted_after_s: float | None
    completions: int

    @property
    def pods(self) -> int:
        """Number of pods."""
        return self.completions or 1

    def body(self, scheduler: str, selector: dict[str, str]) -> Object:
        """Return the object to create."""
        template = {
            "metadata": {"annotations": {_SIMULATE: f'{{"runSeconds": {self.run_s:g}}}'}},
            "spec": self._spec(scheduler, selector),
        }
        if not self.completions:
            return {**template, "metadata": {**template["metadata"], "name": self.name}}
        spec = {
            "completions": self.completions,
            "parallelism": self.completions,
            "completionMode": "Indexed",
            "backoffLimit": _BACKOFF_LIMIT,
            "template": template,
        }
        return {"metadata": {"name": self.name}, "spec": spec}

    def _spec(self, scheduler: str, selector: dict[str, str]) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "schedulerName": scheduler,
            "nodeSelector": selector,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": self.grace_s,
            "containers": [_container(f"main-{number}", gpus) for number, gpus in enumerate(self.containers)],
        }
        if self.init:
            spec["initContainers"] = [_container("first", self.init)]
        if self.evictable:
            spec["tolerations"] = [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
                for key in ("not-ready", "unreachable")
            ]
        return spec


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a node suffers.

    Attributes
    ----------
    after_s
        Seconds since the trouble before.
    node
        Number of the node.
    instructions
        What the simulator and kwok make it do; empty: it is cordoned instead.
    lasts_s
        Seconds until it is well again.

    """

    after_s: float
    node: int
    instructions: dict[str, object]
    lasts_s: float

    def __str__(self) -> str:
        if not self.instructions:
            return "cordoned"
        return "not ready" if "ready" in self.instructions else "lost GPUs"


def pods(seed: int, run_s: tuple[float, float]) -> Iterator[PodPlan]:
    """Yield pods and Jobs without end; each runs for some time between the two of `run_s`."""
    draw = random.Random(f"{seed}/pods")  # noqa: S311 - a plan that can be repeated is the point
    number = 0
    while True:
        number += 1
        is_job = draw.random() < _JOBS
        gpus = draw.choices(_SIZES[:3] if is_job else _SIZES, _SIZE_WEIGHTS[:3] if is_job else _SIZE_WEIGHTS)[0]
        split = gpus > 1 and draw.random() < _SPLIT
        yield PodPlan(
            name=f"job-{number:04}" if is_job else f"pod-{number:04}",
            containers=(gpus - gpus // 2, gpus // 2) if split else (gpus,),
            init=draw.randint(1, gpus) if draw.random() < _WITH_INIT else 0,
            run_s=round(draw.uniform(*run_s), 1),
            evictable=draw.random() < _EVICTABLE,
            grace_s=draw.randint(0, 1),
            deleted_after_s=round(draw.uniform(*_DELETED_AFTER_S), 2) if draw.random() < _DELETED and not is_job else None,
            completions=draw.randint(*_COMPLETIONS) if is_job else 0,
        )


def troubles(seed: int, nodes: int) -> Iterator[Trouble]:
    """Yield troubles of nodes without end."""
    draw = random.Random(f"{seed}/nodes")  # noqa: S311
    while True:
        instructions = dict(draw.choice(_TROUBLES))
        yield Trouble(round(draw.uniform(0.5, 2.5), 2), draw.randrange(nodes), instructions, round(draw.uniform(2.0, 6.0), 2))


def _container(name: str, gpus: int) -> dict[str, Any]:
    amounts = {"cpu": "100m", _RESOURCE: str(gpus)}
    return {"name": name, "image": "pause", "resources": {"requests": amounts, "limits": amounts}}

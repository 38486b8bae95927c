"""The GPUs that a pod gets on the node that the framework took, and what is said of them on its Binding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.job import PodSet, Selection
from pyscheduler.core.machine.choice import Choice
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.model import Attempt, PodRequest
from pyscheduler.core.node import NodeState
from pyscheduler.core.predicting import predicted_gbps
from pyscheduler.core.request import Shape, share_out

__all__ = ["Chooser", "Chosen"]

# Predictions that are remembered.
_PREDICTIONS_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Chosen:
    """GPUs by their handles, and what the annotation ``pyscheduler.io/placement`` says of them."""

    handles: tuple[str, ...]
    placement: Mapping[str, object]


class Chooser:
    """Concurrency contract: one caller at a time, under the cluster's lock."""

    def __init__(self, cluster: Cluster, weights: Weights, version: str) -> None:
        self._cluster = cluster
        self._weights = weights
        self._version = version
        self._predictions: dict[object, float | None] = {}

    def choose(self, node: int, shape: Shape) -> Chosen | None:
        """Return the GPUs to take on the node, None if the shape does not fit there now."""
        state = self._cluster.state(node)
        if state.key(shape) is None:
            return None
        choice, machine = state.choose(shape), state.facts.machine
        if choice is None or machine is None:
            return Chosen(self._any_gpus(node, state, shape), _placement(None, None, advisory=True))
        # Of a machine that nobody looked at the links are a guess, and nobody makes the kubelet hand out these GPUs.
        said = _placement(choice, self._predicted(node, state, choice), advisory=machine.assumed)
        return Chosen(machine.handles(choice.mask), said)

    def handles(self, node: int, mask: int, shape: Shape) -> tuple[str, ...]:
        """Return the GPUs of a set by their handles; of a set of 0, any that nobody is known to hold."""
        state = self._cluster.state(node)
        machine = state.facts.machine
        return machine.handles(mask) if machine is not None and mask else self._any_gpus(node, state, shape)

    def of_job(self, selection: Selection) -> dict[str, object]:
        """Return what the annotation ``pyscheduler.io/placement`` says of each pod of a job."""
        return {
            "level": selection.level,
            "bottleneck": str(selection.bottleneck) if selection.bottleneck else None,
            "model": selection.model,
            "advisory": False,
            "predicted_allreduce_gbps": predicted_gbps(self._cluster, self._weights, selection.pods, selection.level),
        }

    def is_advisory(self, node: int, mask: int) -> bool:
        """Tell whether nobody makes the kubelet hand out just these GPUs, or nobody knows which they are."""
        machine = self._cluster.state(node).facts.machine
        return machine is None or not mask or machine.assumed

    def annotations(
        self, attempt: Attempt, pod: PodRequest, node: int, chosen: Chosen, rank: int | None = None
    ) -> tuple[tuple[str, str], ...]:
        """Return the annotations of the Binding. `rank`: of a member of a group."""
        said = {**chosen.placement, "leader": f"{attempt.host}/{attempt.session}", "version": self._version}
        ranked = (("pyscheduler.io/rank", str(rank)),) if rank is not None else ()
        speed = self._cluster.relative_speed(node, chosen.handles)
        judged = (("pyscheduler.io/relative-speed", str(speed)),) if speed is not None else ()
        return (
            ("pyscheduler.io/gpus", json.dumps(share_out(pod.containers, chosen.handles), separators=(",", ":"))),
            ("pyscheduler.io/placement", json.dumps(said, separators=(",", ":"))),
            *ranked,
            *judged,
        )

    def _any_gpus(self, node: int, state: NodeState, shape: Shape) -> tuple[str, ...]:
        """Return GPUs that nobody is known to hold, where it is not known which are free."""
        machine = state.facts.machine
        if machine is not None:
            left_out = machine.handles(state.left_out_mask) if shape.limits.takes_all else ()
            return (*machine.handles(state.free_mask), *left_out)[: shape.gpus]
        taken = {handle for h in self._cluster.ledger.on_node(node) for handle in h.gpus}
        return tuple(islice((h for i in range(state.facts.allocatable) if (h := f"index:{i}") not in taken), shape.gpus))

    def _predicted(self, node: int, state: NodeState, choice: Choice) -> float | None:
        """Return the predicted all-reduce bandwidth; nodes of one class and level are alike in it."""
        table = state.facts.machine.table if state.facts.machine else None
        nearest = state.facts.place.path[0][0] if state.facts.place.path else ""
        key = (table, choice.mask, nearest)
        if key not in self._predictions:
            if len(self._predictions) >= _PREDICTIONS_MAX:
                self._predictions.clear()
            pod = PodSet(node, choice.mask, ())
            self._predictions[key] = predicted_gbps(self._cluster, self._weights, (pod,), NODE_LEVEL)
        return self._predictions[key]


def _placement(choice: Choice | None, predicted: float | None, *, advisory: bool) -> dict[str, object]:
    """Return what to say of a choice, None where it is not known which GPUs are free."""
    return {
        "level": NODE_LEVEL,
        "bottleneck": choice.bottleneck if choice else None,
        "model": choice.model if choice else "count-only",
        "advisory": advisory,
        "predicted_allreduce_gbps": predicted,
    }

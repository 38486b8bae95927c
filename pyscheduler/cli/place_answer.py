"""The answer of `pyscheduler place`: where a job goes, or why not, as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations
from typing import Any, Final

from pyscheduler.cli.place_scene import Scene
from pyscheduler.core import predicting
from pyscheduler.core.findings import Finding
from pyscheduler.core.job import PodSet, Refusal, Selection
from pyscheduler.core.model import Machine

__all__ = ["document", "listed", "pods_of", "predicted_gbps", "warnings_of"]

# A large cluster can be wrong in a thousand places.
_WARNINGS_MAX: Final = 20


def document(scene: Scene, result: Selection | Refusal, *, alone: bool = True) -> dict[str, Any]:
    """Return the answer to one request.

    Parameters
    ----------
    scene
        What it was asked of, before the selection is committed.
    result
        What the selector says.
    alone
        Whether it is the only one: then what is wrong with the input is told with it.

    """
    if isinstance(result, Refusal):
        told = listed(scene.findings if alone else ())
        keys = ("reason", "fits", "level", "binds", "change")
        return {"feasible": False, **{key: getattr(result, key) for key in keys}, "warnings": told}
    return {
        "feasible": True,
        "pods": pods_of(scene, result),
        "bottleneck": None if result.bottleneck is None else str(result.bottleneck),
        "level": result.level,
        "predicted_allreduce_gbps": predicted_gbps(scene, result),
        "model": result.model,
        "warnings": listed(warnings_of(scene, result, scene.findings if alone else ())),
    }


def pods_of(scene: Scene, selection: Selection) -> list[dict[str, Any]]:
    """Return where the pods go, in rank order."""
    return [_pod(scene, pod) for pod in selection.pods]


def predicted_gbps(scene: Scene, selection: Selection) -> float | None:
    """Return the predicted bus bandwidth of a large all-reduce, as `core.predicting`."""
    return predicting.predicted_gbps(scene.cluster, scene.weights, selection.pods, selection.level)


def warnings_of(scene: Scene, selection: Selection, about_input: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what the user should know of a selection, what is of the chosen nodes first."""
    yield from selection.warnings
    chosen: dict[str, None] = {}
    for pod in selection.pods:
        facts = scene.cluster.state(pod.node).facts
        if facts.name in scene.notes and facts.name not in chosen:
            yield from _on_node(scene, facts.name, selection)
        chosen[facts.name] = None
        if facts.name in scene.notes and facts.machine:
            yield from _on_peers(scene, facts.name, facts.machine, pod)
    others = list(about_input)
    yield from (finding for finding in others if finding.node in chosen)
    yield from (finding for finding in others if finding.node not in chosen)


def _pod(scene: Scene, pod: PodSet) -> dict[str, Any]:
    facts = scene.cluster.state(pod.node).facts
    if facts.machine is None:
        return {"node": facts.name, "gpus": [], "ring": []}
    ids, uuids = facts.machine.ids, facts.machine.uuids
    members = [gpu for gpu in range(len(ids)) if pod.mask >> gpu & 1]
    # An index is no identity: CUDA counts in another order than the driver's tools do.
    named = {"uuids": [uuids[gpu] for gpu in members]} if any(uuids) else {}
    return {"node": facts.name, "gpus": [ids[gpu] for gpu in members], "ring": [ids[gpu] for gpu in pod.ring], **named}


def _on_node(scene: Scene, node: str, selection: Selection) -> Iterator[Finding]:
    notes = scene.notes[node]
    if not notes.complete:
        yield Finding("topology-incomplete", "its topology is incomplete: links that are missing count as unknown", node=node)
    index = scene.cluster.table.index_of(node)
    machine = None if index is None else scene.cluster.state(index).facts.machine
    pairs = [] if machine is None else list(permutations(range(len(machine.ids)), 2))
    names = {f"{machine.ids[a]}-{machine.ids[b]}": 1 << a | 1 << b for a, b in pairs} if machine and notes.findings else {}
    masks = [pod.mask for pod in selection.pods if pod.node == index]
    for finding in notes.findings:
        told_of = [names[word] for each in finding.message.split() if (word := each.strip(",;:.()")) in names]
        # What is wrong between GPUs that no pod has together is none of its business.
        if not told_of or any(mask & pair == pair for mask in masks for pair in told_of):
            yield finding


def _on_peers(scene: Scene, node: str, machine: Machine, pod: PodSet) -> Iterator[Finding]:
    members = [gpu for gpu in range(len(machine.ids)) if pod.mask >> gpu & 1]
    refused = scene.notes[node].p2p
    for a, b in combinations(members, 2) if refused else ():
        if (a, b) in refused:
            what = f"{machine.ids[a]} and {machine.ids[b]} have no peer access ({refused[a, b]}): they talk through the host"
            yield Finding("p2p-refused", what, node=node)


def listed(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return the findings, each once, as many as a person reads."""
    distinct = list(dict.fromkeys((finding.code, _message(finding)) for finding in findings))
    told = distinct[:_WARNINGS_MAX]
    if len(distinct) > len(told):
        told.append(("more-warnings", f"{len(distinct) - len(told)} more warnings of the same input are not shown"))
    return [{"code": code, "message": message} for code, message in told]


def _message(finding: Finding) -> str:
    named = not finding.node or finding.message.startswith(f"{finding.node}: ")
    return finding.message if named else f"{finding.node}: {finding.message}"

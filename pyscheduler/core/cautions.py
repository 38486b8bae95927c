"""What the user should know of a choice: weak members that had to be taken, and what is not known of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.job import Job, PodSet
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Kind, Link
from pyscheduler.core.model import Machine
from pyscheduler.core.node import model_names

__all__ = ["about"]

_NOTES_MAX: Final = 1 << 14
_MODEL_UNKNOWN: Final = "the model of chosen GPUs is unknown: it is not certain that all are of one model"


def about(cluster: Cluster, job: Job, pods: Iterable[PodSet]) -> tuple[Finding, ...]:
    """Return the warnings on a choice, each once."""
    found: dict[Finding, None] = {}
    models: set[str] = set()
    alike = job.same_model and job.pods * job.gpus > 1
    for pod in pods:
        facts = cluster.state(pod.node).facts
        if facts.machine is None or not pod.mask:
            found[_finding("count-only", facts.name, "it is not known which GPUs are free, only how many")] = None
            if alike:
                found[_finding("model-unknown", facts.name, _MODEL_UNKNOWN)] = None
            continue
        notes = _notes(facts.machine.table, pod.mask)
        models.update(notes.models)
        if alike and not notes.models_known:
            found[_finding("model-unknown", facts.name, _MODEL_UNKNOWN)] = None
        for code, gpus, text in notes.links:
            ids = "-".join(facts.machine.ids[gpu] for gpu in gpus)
            found[_finding(code, facts.name, text.replace("{}", ids))] = None
        if facts.machine.assumed or job.limits.near_nic:
            found.update(dict.fromkeys(_on_machine(facts.name, facts.machine, job)))
    if len(models) > 1:
        found[Finding("mixed-models", f"GPUs of different models: {', '.join(sorted(models))}; the slowest sets the pace")] = None
    return tuple(found)


def _on_machine(node: str, machine: Machine, job: Job) -> Iterator[Finding]:
    if job.limits.near_nic and not machine.table.knows_nic(job.limits):
        yield _finding(
            "nic-unknown", node, f"the distance of its GPUs from NIC {job.limits.near_nic} is unknown: any GPUs were taken"
        )
    if machine.assumed:
        yield _finding("topology-assumed", node, "its links are those of a preset: nobody looked at this node")


@dataclass(frozen=True, slots=True)
class _Notes:
    """What there is to tell of a set on any machine of a class: (code, GPUs, text with {} for their ids), and its models.

    `models_known` is false if some GPU has none of its own: it counts as what the others of its machine are.
    """

    links: tuple[tuple[str, tuple[int, ...], str], ...]
    models: tuple[str, ...]
    models_known: bool


@lru_cache(maxsize=_NOTES_MAX)
def _notes(table: DeviceTable, mask: int) -> _Notes:
    """Return the notes on a set: asked for with every pod, so remembered."""
    kind = table.device_class
    members = [gpu for gpu in range(kind.gpus) if mask >> gpu & 1]
    links = list(_on_links(kind.matrix, members)) if len(members) > 1 else []
    if note := table.partial_set_note(mask):
        links.append(("partial-mesh", (), note))
    models = kind.known_models
    known = all(kind.models[gpu] is not None for gpu in members)
    return _Notes(tuple(links), tuple(model_names(models[gpu] for gpu in members)), known)


def _on_links(matrix: Sequence[Sequence[Link]], members: list[int]) -> Iterator[tuple[str, tuple[int, ...], str]]:
    pairs = list(combinations(members, 2))
    unknown = [(a, b) for a, b in pairs if matrix[a][b].kind is Kind.UNKNOWN]
    if len(unknown) == len(pairs):
        yield "topology-unknown", (), "no link between the chosen GPUs is known: no topology to choose by"
    elif unknown:
        yield "link-unknown", unknown[0], "the link {} is unknown"
    # GPUs without a fast link to the others, where most of these have one.
    linked = {gpu for gpu in members if any(matrix[gpu][other].fast for other in members if other != gpu)}
    weak = [gpu for gpu in members if gpu not in linked]
    if linked and len(weak) < len(linked):
        for gpu in weak:
            yield "weak-member", (gpu,), "{} has no NVLink or xGMI to the other chosen GPUs: it slows all of them"


def _finding(code: str, node: str, what: str) -> Finding:
    return Finding(code, f"{node}: {what}", node=node, severity=Severity.WARNING)

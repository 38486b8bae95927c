"""The cluster that a placement is asked of, from a snapshot file: the same books and tables that the service decides with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Final

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.merge_tree import NODE_LEVEL, NVLINK_LEVEL
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.findings import Finding
from pyscheduler.core.job import Job, Refusal, Selection
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.model import ContainerKind, ContainerRequest, Machine, NodeFacts, PodFacts, PodUid
from pyscheduler.core.selector import select
from pyscheduler.readers.snapshot import Snapshot, SnapshotNode

__all__ = ["Notes", "Policy", "Scene", "levels_of", "of_snapshot"]

# Decides like `core.selector.select`.
Policy = Callable[[Cluster, Job, int | None], Selection | Refusal]

_OURS: Final = "snapshot"
# That of jobs that do not say which.
_RESOURCE: Final = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Notes:
    """What a user should know of a node when it is chosen.

    Attributes
    ----------
    complete
        False where its links are known to be only a part.
    p2p
        (a, b) to the status of peer access, indices of GPUs, for pairs where it is not OK.
    findings
        What is wrong with what describes it.
    """

    complete: bool = True
    p2p: Mapping[tuple[int, int], str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """What is decided on.

    Attributes
    ----------
    cluster
        Nodes, and who holds what.
    levels
        Names of the levels that may be asked for, nearest first, without the node.
    scheduler
        Whose pods the books trust to name their GPUs.
    resource
        The GPU resource that jobs ask for.
    weights
        The figures in force.
    eligible
        Bitmap of the nodes that may be used; None: all.
    notes
        By name of the node.
    findings
        What is wrong with the input as a whole; told whatever is chosen.
    policy
        Who decides.
    """

    cluster: Cluster
    levels: tuple[str, ...]
    scheduler: str = _OURS
    resource: str = _RESOURCE
    weights: Weights = field(default_factory=Weights)
    eligible: int | None = None
    notes: Mapping[str, Notes] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    policy: Policy = select

    def decide(self, job: Job) -> Selection | Refusal:
        """Return what the policy says. A level that has a name but no known domain holds single nodes only."""
        wanted = {level for level in (job.required_level, job.preferred_level) if level}
        unknown = wanted - {NODE_LEVEL, *self.cluster.fleet.tree().levels} if wanted else wanted
        if not unknown:
            return self.policy(self.cluster, job, self.eligible)
        required = NODE_LEVEL if job.required_level in unknown else job.required_level
        preferred = None if job.preferred_level in unknown else job.preferred_level
        known = replace(job, required_level=required, preferred_level=preferred)
        result = self.policy(self.cluster, known, self.eligible)
        if isinstance(result, Refusal) and job.required_level in unknown:
            reason = f"{result.reason}; 0 nodes are in a known {job.required_level}"
            return replace(result, level=job.required_level, reason=reason)
        return result

    def nics(self) -> tuple[str, ...]:
        """Return the ids and names of all NICs that nodes list, each once."""
        tables = dict.fromkeys(state.facts.machine.table for state in self.cluster.states() if state.facts.machine)
        kinds = [table.device_class for table in tables]
        rows = [zip_longest(kind.nics, kind.nic_names) for kind in kinds]
        return tuple(dict.fromkeys(name for row in rows for nic in row for name in nic if name))

    def without(self, node: int) -> Scene:
        """Return the scene without the node of this index."""
        among = self.cluster.present if self.eligible is None else self.eligible
        return replace(self, eligible=among & ~(1 << node))

    def emptied(self) -> Scene:
        """Return the scene as if nobody held a GPU, for the selector to decide."""
        empty = Cluster(epoch=1, scheduler_name=self.scheduler)
        for state in self.cluster.states():
            empty.observe_node(replace(state.facts, in_use=None), 0.0)
        return replace(self, cluster=empty, policy=select)

    def commit(self, job: Job, selection: Selection, number: int) -> None:
        """Take the GPUs of a selection: what is asked next finds them held. `number` tells the jobs apart."""
        for rank, pod in enumerate(selection.pods):
            state = self.cluster.state(pod.node)
            handles = state.facts.machine.handles(pod.mask) if state.facts.machine else ()
            uid = f"request-{number}-{rank}"
            self.cluster.observe_pod(_held(uid, state.facts.name, self.scheduler, job.resource, job.gpus, handles), 0.0)


def levels_of(named: Iterable[str], places: Iterable[Place]) -> tuple[str, ...]:
    """Return the levels that may be asked for: those that are named, and NVLink domains where a node is in one."""
    levels = tuple(named)
    has_domain = any(place.nvlink_domain is not None for place in places)
    return (NVLINK_LEVEL, *levels) if has_domain and NVLINK_LEVEL not in levels else levels


def of_snapshot(snapshot: Snapshot, weights: Weights) -> Scene:
    """Return the scene of a snapshot file that was read under these weights."""
    cluster = Cluster(epoch=1, scheduler_name=_OURS)
    tables: dict[DeviceClass, DeviceTable] = {}
    for node in snapshot.nodes:
        machine = _machine(node, tables)
        # What the kubelet offers: GPUs that are healthy.
        gpus = node.healthy.bit_count()
        cluster.observe_node(NodeFacts(node.name, node.place, _RESOURCE if node.kind.ids else "", gpus, machine), 0.0)
        busy = node.allocated & node.healthy
        if busy:
            handles = machine.handles(busy) if machine else ()
            cluster.observe_pod(_held(f"allocated-{node.name}", node.name, _OURS, _RESOURCE, busy.bit_count(), handles), 0.0)
    return Scene(
        cluster=cluster,
        levels=levels_of(snapshot.levels, (node.place for node in snapshot.nodes)),
        weights=weights,
        notes={node.name: Notes(node.complete, node.kind.p2p) for node in snapshot.nodes},
        findings=snapshot.findings,
    )


def _machine(node: SnapshotNode, tables: dict[DeviceClass, DeviceTable]) -> Machine | None:
    kind = node.kind.device_class
    if kind.gpus == 0:
        return None
    if kind not in tables:
        tables[kind] = DeviceTable.build(kind)
    return Machine(node.kind.ids, (None,) * kind.gpus, node.healthy, tables[kind])


def _held(uid: str, node: str, scheduler: str, resource: str, gpus: int, handles: Sequence[str]) -> PodFacts:
    """Return a pod that holds these GPUs; without handles, so many that nobody can name."""
    container = ContainerRequest("gpus", ContainerKind.APP, resource, gpus)
    named = {container.name: tuple(handles)} if handles else None
    return PodFacts(PodUid(uid), "", uid, scheduler, (container,), node, gpus=named)

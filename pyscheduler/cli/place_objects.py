"""Kubernetes objects as a scene to place on: nodes, what describes them, and the pods that hold their GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyscheduler.adapters.logs import set_up
from pyscheduler.adapters.machines import Machines
from pyscheduler.adapters.tables import Tables
from pyscheduler.adapters.worker import Worker
from pyscheduler.cli.cluster_files import objects_of, sort_in
from pyscheduler.cli.input_text import InputError
from pyscheduler.cli.place_scene import Notes, Scene, levels_of
from pyscheduler.config import Config
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.findings import Finding
from pyscheduler.core.model import NodeFacts, PodFacts, binding_order
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers.cluster_objects import ClusterObjects

__all__ = ["of_file", "scene_of", "unread_pod"]

# How long the tables of all classes may take, in seconds: each takes up to about one.
_TABLES_S: Final = 120.0
# Keys of the taints by which Kubernetes says that a node is cordoned, not ready or under pressure.
_OUT: Final = "node.kubernetes.io/"


def of_file(file: str, raw: Any, config: Config, resource: str | None) -> Scene:
    """Return the cluster of objects that kubectl printed.

    Parameters
    ----------
    file, raw
        Where they stand, and their JSON.
    config, resource
        As of a live cluster.

    Raises
    ------
    InputError
        If there is no Node among them, or as `scene_of`.

    """
    objects, reader = ClusterObjects(), config.reader()
    pods: list[PodFacts] = []
    findings: list[Finding] = []
    seen = 0
    for each in objects_of(raw):
        kind = each.get("kind") if isinstance(each, Mapping) else None
        if kind == "Pod":
            seen += 1
            try:
                pod = reader.pod(each)
            except Exception as cause:  # noqa: BLE001  one object must not keep all others from being read
                findings.append(unread_pod(f"{seen} of the file: {type(cause).__name__}: {cause}"))
            else:
                pods += [pod] if pod and not pod.finished else []
        else:
            sort_in(each, objects)
    if not objects.nodes:
        raise InputError(f"{file}: holds no Node objects: pass what `kubectl get nodes,pods -A -o json` prints, or a snapshot")
    if not seen:
        findings.append(Finding("pods-missing", "the file holds no Pod objects: every healthy GPU counts as free"))
    return scene_of(objects, pods, findings, config, resource)


def scene_of(
    objects: ClusterObjects, pods: Iterable[PodFacts], findings: Iterable[Finding], config: Config, resource: str | None
) -> Scene:
    """Return the scene of these objects.

    Nodes that are cordoned, not ready or under pressure are left out; what else a kube-scheduler asks of a node (selectors,
    tolerations, CPUs, memory) is not looked at.

    Parameters
    ----------
    objects
        The nodes, and what describes them.
    pods
        Those that hold or want GPUs.
    findings
        What could not be read.
    config
        Under which they are read.
    resource
        The GPU resource; None if they have one only.

    Raises
    ------
    InputError
        If they have several GPU resources and none is named, or not the one that is.

    """
    records, about = objects.records(config.reader(), config.fabric, config.weights, time.time())
    nodes = _facts(records, config)
    cluster = Cluster(epoch=1, scheduler_name=config.scheduler_name)
    for facts in nodes:
        cluster.observe_node(facts, 0.0)
    for pod in sorted(pods, key=binding_order):
        cluster.observe_pod(pod, 0.0)
    unread = [f for record in records for f in record.findings if f.code == "node-unreadable"]
    out = {_name(raw) for raw in objects.nodes if _is_out(raw)}
    levels = dict.fromkeys(level for record in records for level in (*record.levels, *(step for step, _ in record.place.path)))
    return Scene(
        cluster=cluster,
        levels=levels_of(levels, (record.place for record in records)),
        scheduler=config.scheduler_name,
        resource=_resource(nodes, resource),
        weights=config.weights,
        eligible=sum(1 << index for index, name in enumerate(cluster.table.names) if name not in out),
        notes={record.name: _notes(record, facts) for record, facts in zip(records, nodes, strict=True)},
        findings=(*about, *unread, *findings),
    )


def unread_pod(what: str) -> Finding:
    """Return the finding on a pod that cannot be read."""
    return Finding("pod-unreadable", f"pod {what}: what it holds is not known")


def _name(raw: Mapping[str, Any]) -> Any:
    meta = raw.get("metadata")
    return meta.get("name") if isinstance(meta, Mapping) else None


def _facts(records: Sequence[NodeRecord], config: Config) -> list[NodeFacts]:
    """Return the facts of the nodes, their machines judged as the service judges them."""
    logger = set_up("text", "error")
    worker = Worker()
    tables = Tables(worker, logger)
    tables.start()
    machines = Machines(tables, config.weights, time.time)
    try:
        for record in records:
            machines.attach(record)
        tables.wait(_TABLES_S)
        facts = [machines.attach(record).facts for record in records]
    finally:
        tables.stop()
        worker.stop()
    known = [each for each in facts if each is not None]
    if len(known) < len(facts):
        raise InputError(f"place: the links of {len(facts) - len(known)} nodes were not judged within {_TABLES_S:g} s; try again")
    return known


def _is_out(raw: Any) -> bool:
    """Tell whether nothing is scheduled on the node now."""
    spec = raw.get("spec") if isinstance(raw, Mapping) else None
    taints = spec.get("taints") if isinstance(spec, Mapping) else None
    return any(
        str(taint.get("key")).startswith(_OUT) and taint.get("effect") != "PreferNoSchedule"
        for taint in (taints if isinstance(taints, list) else ())
        if isinstance(taint, Mapping)
    )


def _resource(nodes: Iterable[NodeFacts], named: str | None) -> str:
    known = sorted({facts.resource for facts in nodes if facts.resource})
    if named is None and len(known) == 1:
        return known[0]
    if named not in known:
        fault = f"--resource {named}: no node has it" if named else "name the GPU resource with --resource"
        raise InputError(f"{fault}; nodes have {' and '.join(known) or 'no GPU resource of the configuration'}")
    return named


def _notes(record: NodeRecord, facts: NodeFacts) -> Notes:
    document = record.document
    # What was measured is told when the record is read, and again when its machine is judged.
    findings = dict.fromkeys(replace(finding, node=record.name) for finding in facts.findings)
    return Notes(document is None or document.complete, {} if document is None else document.p2p, tuple(findings))

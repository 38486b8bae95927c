"""The live cluster as a scene to place on: read once, never written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyscheduler.adapters.api import ApiServer, Gone, usual_kubeconfig
from pyscheduler.adapters.logs import set_up
from pyscheduler.adapters.machines import Machines
from pyscheduler.adapters.survey import PAGE, survey
from pyscheduler.adapters.tables import Tables
from pyscheduler.adapters.worker import Worker
from pyscheduler.cli.input_text import InputError
from pyscheduler.cli.place_scene import Notes, Scene, levels_of
from pyscheduler.config import Config
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.findings import Finding
from pyscheduler.core.model import NodeFacts, PodFacts, binding_order
from pyscheduler.core.record import NodeRecord
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.lists import pod_page
from pyscheduler.readers.objects import ObjectReader

__all__ = ["live"]

_PODS: Final = "/api/v1/pods"
# Terminal pods hold nothing.
_LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
# How long the tables of all classes may take, in seconds: each takes up to about one.
_TABLES_S: Final = 120.0
# Keys of the taints by which Kubernetes says that a node is cordoned, not ready or under pressure.
_OUT: Final = "node.kubernetes.io/"


def live(kubeconfig: str | None, config: Path | None, resource: str | None) -> Scene:
    """Return the cluster of the kubeconfig as it is now.

    Nodes that are cordoned, not ready or under pressure are left out; what else a kube-scheduler asks of a node (selectors,
    tolerations, CPUs, memory) is not looked at.

    Raises
    ------
    InputError
        If it has several GPU resources and none is named, or not the one that is.
    KubernetesError
        If the API server refuses or is away.

    """
    loaded = Config.load(config)
    api = ApiServer(usual_kubeconfig(kubeconfig, loaded.kubeconfig))
    objects = survey(api, loaded)
    records, findings = objects.records(loaded.resources, loaded.fabric, loaded.weights, time.time())
    nodes = _facts(records, loaded)
    cluster = Cluster(epoch=1, scheduler_name=loaded.scheduler_name)
    for facts in nodes:
        cluster.observe_node(facts, 0.0)
    pods, unread = _pods(api, loaded)
    for pod in pods:
        cluster.observe_pod(pod, 0.0)
    out = {raw["metadata"]["name"] for raw in objects.nodes if _is_out(raw)}
    levels = dict.fromkeys(level for record in records for level in (*record.levels, *(step for step, _ in record.place.path)))
    return Scene(
        cluster=cluster,
        levels=levels_of(levels, (record.place for record in records)),
        scheduler=loaded.scheduler_name,
        resource=_resource(nodes, resource),
        weights=loaded.weights,
        eligible=sum(1 << index for index, name in enumerate(cluster.table.names) if name not in out),
        notes={record.name: _notes(record, facts) for record, facts in zip(records, nodes, strict=True)},
        findings=(*findings, *unread),
    )


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


def _pods(api: ApiServer, config: Config) -> tuple[list[PodFacts], list[Finding]]:
    """Return the pods that hold or want GPUs, in the order in which they were bound, and those that cannot be read."""
    reader = ObjectReader(config.resources)
    query = {"fieldSelector": _LIVE, "limit": str(PAGE)}
    pods: list[PodFacts] = []
    unread: list[Finding] = []
    while True:
        try:
            page = pod_page(reader, api.get_bytes(_PODS, query))
        except Gone as cause:
            raise KubernetesError(f"the list of {_PODS} ended between two pages ({cause}): try again") from None
        pods += page.items
        unread += [Finding("pod-unreadable", f"pod {what}: what it holds is not known") for what in page.unread]
        if not page.token:
            return sorted(pods, key=binding_order), unread
        query["continue"] = page.token


def _is_out(raw: Mapping[str, Any]) -> bool:
    """Tell whether nothing is scheduled on the node now."""
    taints = (raw.get("spec") or {}).get("taints") or ()
    return any(taint["key"].startswith(_OUT) and taint["effect"] != "PreferNoSchedule" for taint in taints)


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
    return Notes(document is None or document.complete, {} if document is None else document.p2p, facts.findings)

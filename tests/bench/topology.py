"""Seconds to read and index the topology of 100,000 GPUs, and what changes cost decisions: `make bench-topology`."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import structlog

from deploy.local import machines as simulated
from pyscheduler.adapters.machines import Machines
from pyscheduler.adapters.tables import Tables
from pyscheduler.adapters.watch import PAGE
from pyscheduler.adapters.worker import Worker
from pyscheduler.app import SWITCH_S
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric import graph
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import DeviceClass, class_hash
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.planner import Planner
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers import document_entries, node_document
from pyscheduler.readers.lists import node_page
from pyscheduler.readers.objects import TOPOLOGY, ObjectReader
from tests.builders import ALL, GPU, OURS, attempt, pod

MACHINE = "hgx-h100"
RESOURCES = (GPU,)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=12_800)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    sys.setswitchinterval(SWITCH_S)
    shared = class_of(node_document.parse(json.dumps(simulated.document(MACHINE, "any"))))
    worker = Worker()
    tables = Tables(worker, structlog.get_logger())
    tables.start()
    tables.find(shared)
    tables.wait(60)
    print(f"{asked.nodes} nodes, {asked.nodes * 8} GPUs, 3 levels; median of {asked.rounds} rounds")
    full = _read("full documents", _nodes(asked.nodes, None), shared, asked.rounds)
    short = _read("documents with shared class", _nodes(asked.nodes, shared), shared, asked.rounds)
    print(f"ratio full to shared: {full / short:.1f}")
    _index(asked.nodes, shared, asked.rounds)
    machines = Machines(tables, Weights(), time.time)
    machines.share({class_hash(shared): shared})
    _changes(asked.nodes, shared, machines)
    tables.stop()
    worker.stop()


def _nodes(count: int, shared: DeviceClass | None) -> list[dict[str, Any]]:
    """Return Node objects, with whole documents or with those that name their class."""
    return [_node(i, shared) for i in range(count)]


def _node(i: int, shared: DeviceClass | None, healthy: int = 255) -> dict[str, Any]:
    name = f"n{i:05}"
    document = node_document.parse(json.dumps(simulated.document(MACHINE, name)))
    gpus = tuple(replace(gpu, healthy=bool(healthy >> at & 1)) for at, gpu in enumerate(document.gpus))
    document = replace(document, gpus=gpus, class_hash=class_hash(shared) if shared else None)
    text = node_document.dump(document, shared=shared is not None)
    assert shared is None or len(text) <= 1536, len(text)
    tiers = (f"leaf-{i // 32}", f"spine-{i // 512}", f"core-{i // 4096}")
    return {
        "metadata": {
            "name": name,
            "labels": {f"fabric.topograph.run/tier-{tier}": domain for tier, domain in enumerate(tiers)},
            "annotations": {TOPOLOGY: text},
        },
        "status": {"capacity": {GPU: "8"}, "allocatable": {GPU: str(healthy.bit_count())}},
    }


def _read(title: str, nodes: list[dict[str, Any]], shared: DeviceClass, rounds: int) -> float:
    """Print and return the seconds from pages of Node objects, as the API server sends them, to the indexed graph."""
    size = sum(len(raw["metadata"]["annotations"][TOPOLOGY]) for raw in nodes)
    pages = [_page(nodes[at : at + PAGE]) for at in range(0, len(nodes), PAGE)]
    spent, wall = [], []
    for _ in range(rounds):
        document_entries.known_links.cache_clear()
        document_entries.known_nic_links.cache_clear()
        begun, begun_wall = time.thread_time(), time.perf_counter()
        reader = ObjectReader(RESOURCES)
        records = [record for page in pages for record in node_page(reader, page).items]
        _graph(records, {class_hash(shared): shared})
        spent.append(time.thread_time() - begun)
        wall.append(time.perf_counter() - begun_wall)
    print(
        f"{title}: {statistics.median(spent):.2f} s CPU, {statistics.median(wall):.2f} s wall ({size / len(nodes):.0f} bytes each)"
    )
    return statistics.median(spent)


def _page(nodes: list[dict[str, Any]]) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": nodes}).encode()


def _graph(records: list[NodeRecord], shared: dict[str, DeviceClass]) -> graph.TopologyGraph:
    classes: dict[DeviceClass, int] = {}
    known: dict[tuple[int, str | None], int] = {}
    class_indices = []
    for record in records:
        assert record.document is not None
        key = (id(record.document.links), record.document.class_hash)
        if key not in known:
            kind = class_of(record.document) if record.document.whole else shared[record.document.class_hash or ""]
            known[key] = classes.setdefault(kind, len(classes))
        class_indices.append(known[key])
    built = graph.build(list(classes), class_indices, [record.place for record in records], Weights())
    built.matrix()
    return built


def _index(count: int, shared: DeviceClass, rounds: int) -> None:
    reader = ObjectReader(RESOURCES)
    places = [reader.node(raw).place for raw in _nodes(count, shared)]
    spent = []
    for _ in range(rounds):
        begun = time.perf_counter()
        graph.build([shared], [0] * count, places, Weights()).matrix()
        spent.append(1000 * (time.perf_counter() - begun))
    print(f"index (graph and its matrix): {statistics.median(spent):.0f} ms")


def _changes(count: int, shared: DeviceClass, machines: Machines) -> None:
    """Print what one node's change costs, and Filter's latency while 100 nodes change."""
    cluster, reader = Cluster(epoch=1, scheduler_name=OURS), ObjectReader(RESOURCES)
    planner, lock = Planner(cluster, version="bench"), threading.Lock()
    planner.resync(attempt(1), (), 0.0)
    for raw in _nodes(count, shared):
        _tell(cluster, lock, machines, reader, raw)
    numbers = iter(range(1, 10**9))
    for _ in range(8):
        _filter(planner, lock, numbers)
    # As the service does once it is ready.
    gc.collect()
    gc.freeze()
    spent = []
    for i in range(1000):
        raw = _node(i, shared, healthy=255 ^ 1 << i % 8)
        begun = time.perf_counter()
        _tell(cluster, lock, machines, reader, raw)
        spent.append(1000 * (time.perf_counter() - begun))
    _print("one node's change", spent)
    quiet = [_filter(planner, lock, numbers) for _ in range(2000)]
    _print("Filter, nothing changes", quiet)
    busy = _during(_storm(cluster, lock, machines, reader, shared), lambda: _filter(planner, lock, numbers))
    _print(f"Filter, while 100 nodes change ({len(busy)} calls)", busy)
    print(f"ratio of the p99: {_p99(busy) / _p99(quiet):.1f}")


def _storm(
    cluster: Cluster, lock: threading.Lock, machines: Machines, reader: ObjectReader, shared: DeviceClass
) -> Callable[[], None]:
    """Return changes of 100 nodes at once, fifty of them, so that there are calls enough for a p99."""
    changed = [_node(i, shared, healthy=255 ^ 1 << (i + i // 100) % 8) for i in range(5000)]

    def run() -> None:
        for raw in changed:
            _tell(cluster, lock, machines, reader, raw)

    return run


def _tell(cluster: Cluster, lock: threading.Lock, machines: Machines, reader: ObjectReader, raw: dict[str, Any]) -> None:
    """Take one node as the service does: read and attached without the lock, then observed under it."""
    facts = machines.attach(reader.node(raw)).facts
    assert facts is not None
    with lock:
        cluster.observe_node(facts, 0.0)


def _filter(planner: Planner, lock: threading.Lock, numbers: Iterator[int]) -> float:
    """Return the milliseconds of one Filter, the wait for the lock included."""
    number = next(numbers)
    wanted = pod(f"p{number}", (1, 2, 4, 8)[number % 4])
    begun = time.perf_counter()
    with lock:
        planner.filter(attempt(number), wanted, ALL, 0.0)
    return 1000 * (time.perf_counter() - begun)


def _during(change: Callable[[], None], call: Callable[[], float]) -> list[float]:
    thread = threading.Thread(target=change)
    thread.start()
    spent = []
    while thread.is_alive():
        spent.append(call())
        # As calls come: at most a few thousand a second.
        time.sleep(0.0003)
    return spent


def _p99(spent: list[float]) -> float:
    return sorted(spent)[int(0.99 * len(spent))]


def _print(title: str, spent: list[float]) -> None:
    print(f"{title}: median {statistics.median(spent):.3f} ms, p99 {_p99(spent):.3f} ms, max {max(spent):.3f} ms")


if __name__ == "__main__":
    main()

"""The composition root: from the configuration to a running service. Nothing else builds adapters."""

from __future__ import annotations

import functools
import gc
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from pyscheduler import __version__
from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.card_memory import CardMemory
from pyscheduler.adapters.cards import Cards
from pyscheduler.adapters.cluster import NodeSink, PodSink
from pyscheduler.adapters.conflicts import ConflictSink
from pyscheduler.adapters.events import EventWriter
from pyscheduler.adapters.gang_events import GangEvents
from pyscheduler.adapters.gang_specs import GangSpecs
from pyscheduler.adapters.gang_tables import GangTables
from pyscheduler.adapters.http import HttpServer
from pyscheduler.adapters.lease import Leadership, lease_query
from pyscheduler.adapters.linter import Linter, lint_apart
from pyscheduler.adapters.machines import Machines
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.node_events import NodeEvents
from pyscheduler.adapters.node_opinions import SliceSink, slices_path
from pyscheduler.adapters.settler import Settler
from pyscheduler.adapters.shared_objects import ClassSink, FabricSink
from pyscheduler.adapters.survey import CLASSES, NODES, fabric_path, namespace
from pyscheduler.adapters.tables import Tables
from pyscheduler.adapters.watch import Watcher
from pyscheduler.adapters.worker import Worker
from pyscheduler.config import Config
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.planner import Planner
from pyscheduler.edge.card_views import CardViews
from pyscheduler.edge.changes import Changes
from pyscheduler.edge.inspect_servicer import InspectServicer
from pyscheduler.edge.plugin_servicer import PluginServicer
from pyscheduler.edge.server import EdgeServer
from pyscheduler.errors import ServeError
from pyscheduler.readers.cards.slice_taints import SliceTaints
from pyscheduler.readers.class_document import LABEL
from pyscheduler.readers.cluster_objects import reader_for
from pyscheduler.readers.fabric.level_names import level_names
from pyscheduler.readers.lists import Page, node_page, pod_page, raw_page, slice_page

__all__ = ["Service", "serve"]

# Terminal pods hold nothing: the server leaves them out, and tells of a pod that becomes one as of a deleted one.
LIVE_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
# Seconds without an open watch that are worth telling: the server ends each every few minutes, and it is opened again at once.
BLIND_S = 1.0
# Seconds that calls under way get at the end.
GRACE_S = 2.0
# Seconds that nodes wait for the objects that describe them.
OBJECTS_S = 10.0
# Seconds that pods wait for the tables of the nodes' classes.
TABLES_S = 30.0
# Seconds that pods wait for what is remembered and said of cards.
CARDS_S = 5.0
# How often the interpreter hands its lock from a busy thread to a waiting one; Python's default of 5 ms would be most of a call.
SWITCH_S = 0.0005


class Service:
    """One running service: `start`, then `stop`. `died` is called if it can no longer see the cluster."""

    def __init__(self, config: Config, logger: FilteringBoundLogger, died: Callable[[], None]) -> None:
        self._logger = logger
        lock, clock = threading.Lock(), time.monotonic
        api = ApiServer(config.kubeconfig)
        metrics = self._metrics = Metrics(logger)
        weight = config.capacity.score_weight
        cluster = Cluster(epoch=time.time_ns(), scheduler_name=config.scheduler_name, score_weight=weight)
        planner = Planner(cluster, version=__version__, weights=config.weights, levels=level_names(config.fabric))
        metrics.watch_cluster(cluster, lock)
        self._worker = Worker()
        self._tables = Tables(self._worker, logger)
        machines = Machines(self._tables, config.weights, time.time)
        fabric = FabricSink(lambda objects: reader_for(config.reader(), config.fabric, objects)[0], logger)
        host = config.host or socket.gethostname()
        self._events = EventWriter(api, host, clock, time.time, logger)
        node_events = NodeEvents(self._events, logger)
        nodes = self._nodes = NodeSink(cluster, lock, clock, fabric.reader, machines, node_events.tell)
        self._tables.built = nodes.retry
        classes = ClassSink(nodes.share, logger)
        watcher = functools.partial(Watcher, api, metrics=metrics, logger=logger, died=died)
        self._gang_tables = GangTables(api, planner.gangs.tables, lock, clock, logger)
        self._leadership = Leadership(host, self._lead, metrics, logger)
        self._lease_watch = None
        if config.lease:
            leases, selector = lease_query(config.lease)
            self._lease_watch = watcher("lease", leases, selector=selector, read_page=raw_page, sink=self._leadership)
        self._node_watch = watcher(
            "nodes",
            NODES,
            selector={},
            # The reader is another one when the objects that describe the fabric change.
            read_page=lambda text: self._worker.run(node_page, fabric.reader(), text),
            sink=nodes,
        )
        fabric.told = self._node_watch.relist
        # What nodes are made of comes first: without it they would be known as less than they are.
        self._before_nodes: list[Watcher[Any]] = [
            watcher(
                "classes",
                CLASSES.format(namespace=namespace(config)),
                selector={"labelSelector": LABEL},
                read_page=raw_page,
                sink=classes,
            )
        ]
        if path := fabric_path(api, config):
            self._before_nodes.append(watcher(config.fabric.source, path, selector={}, read_page=raw_page, sink=fabric))
        self._linter = Linter(
            functools.partial(lint_apart, config),
            # Sums of what only grows: any change changes it.
            lambda: cluster.topology + nodes.changes + classes.version + fabric.version,
            metrics,
            logger,
        )
        reader = config.reader(scheduler=config.scheduler_name)
        self._pod_watch = watcher(
            "pods",
            "/api/v1/pods",
            selector=LIVE_PODS,
            read_page=lambda text: self._worker.run(pod_page, reader, text),
            sink=ConflictSink(PodSink(cluster, lock, clock, reader), cluster, lock, reader, self._events, logger),
        )
        self._cards = Cards(
            config.metrics,
            config.capacity,
            cluster,
            lock,
            clock,
            nodes.opinions.current,
            nodes.addresses.names,
            CardMemory(api, self._leadership, config, logger),
            Worker(),
            metrics,
            logger,
        )
        self._slices_path = functools.partial(slices_path, api)
        page = functools.partial(_slice_page, self._worker)
        self._slice_watch = functools.partial(watcher, "slices", selector={}, read_page=page, sink=SliceSink(nodes.opinions))
        self._ready = threading.Event()
        self._gang_specs = GangSpecs(api, planner.gangs, lock, clock, GangEvents(self._events, logger).tell, logger)
        self._settler = Settler(api, planner, lock, clock, reader, logger)
        self._changes = Changes(planner, lock, clock, metrics)
        self._edge = EdgeServer(
            Path(config.socket),
            PluginServicer(
                planner,
                lock,
                changes=self._changes,
                settle=self._settler.submit,
                read_specs=self._gang_specs.ask,
                ready=self._ready.is_set,
                clock=clock,
                log=metrics,
                version=__version__,
            ),
            InspectServicer(
                cluster,
                lock,
                ready=self._ready.is_set,
                clock=clock,
                log=metrics,
                version=__version__,
                cards=CardViews(self._cards, config.capacity.mode, config.metrics.url or ""),
            ),
        )
        self._http = HttpServer(
            config.http_host,
            config.http_port,
            {
                "/healthz": lambda: (200, b"ok\n"),
                "/readyz": self._readyz,
                "/metrics": lambda: (200, metrics.exposition()),
            },
        )
        self.http_port = self._http.port
        self._threads = [
            threading.Thread(target=self._changes.run, name="changes", daemon=True),
            threading.Thread(target=self._become_ready, name="ready", daemon=True),
        ]

    def start(self) -> None:
        """Begin to answer; calls of the plugin are refused until nodes and pods are known."""
        self._http.start()
        self._edge.start()
        self._settler.start()
        self._gang_specs.start()
        self._events.start()
        if self._lease_watch:
            self._lease_watch.start()
        else:
            self._leadership.alone()
        self._tables.start()
        for watch in self._before_nodes:
            watch.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End everything, within about `GRACE_S`."""
        self._changes.stop()
        self._edge.stop(GRACE_S)
        self._linter.stop()
        self._tables.stop()
        for watch in self._before_nodes:
            watch.stop()
        self._node_watch.stop()
        self._pod_watch.stop()
        if self._lease_watch:
            self._lease_watch.stop()
        self._settler.stop()
        self._gang_specs.stop()
        self._gang_tables.stop()
        self._cards.stop()
        self._events.stop()
        self._http.stop()
        self._worker.stop()

    def _become_ready(self) -> None:
        # Not asked before: where the API server is away, that may take long.
        if path := self._slices_path():
            slices = self._slice_watch(path)
            self._before_nodes.append(slices)
            slices.start()
        for watch in self._before_nodes:
            if not watch.listed.wait(OBJECTS_S):
                self._logger.warning("not listed in time: nodes are read without", watch=watch.kind)
        # Nodes before pods: a pod can only be judged against the node that it is bound to.
        self._node_watch.start()
        self._node_watch.listed.wait()
        # Nodes that wait for the table of their class are known only then.
        if not self._tables.wait(TABLES_S):
            self._logger.warning("not judged in time: some nodes become known later", watch="nodes")
        self._nodes.retry()
        # While pods are listed its process starts.
        self._cards.start()
        self._pod_watch.start()
        self._pod_watch.listed.wait()
        # A card that is known to be bad must not be handed out because nobody has asked yet.
        if not self._cards.begun.wait(CARDS_S):
            self._logger.warning("not judged in time: what is known of cards counts later", watch="cards")
        # What is known now lives long: a full collection over it would stop every call for tens of milliseconds.
        gc.collect()
        gc.freeze()
        self._ready.set()
        self._metrics.ready()
        self._edge.serving()
        self._linter.start()
        # Not before: of a group that is half listed half a table would be written.
        self._gang_tables.start()
        self._logger.info("ready")

    def _lead(self, leads: bool) -> None:  # noqa: FBT001
        self._events.lead(leads)
        self._gang_tables.lead(leads)

    def _readyz(self) -> tuple[int, bytes]:
        if self._ready.is_set():
            # What is known goes on to count: the scheduler can bind nothing either while the API server is away.
            blind = [f"{w.kind} for {w.blind_s():.0f} s" for w in (self._node_watch, self._pod_watch) if w.blind_s() > BLIND_S]
            told = f", but changes are not seen of {' and '.join(blind)}: is the API server up and reachable?" if blind else ""
            return 200, f"ok{told}\n".encode()
        missing = "nodes" if not self._node_watch.listed.is_set() else "pods"
        return 503, f"not ready: the list of {missing} has not been read yet\n".encode()


def serve(config: Config, logger: FilteringBoundLogger) -> None:
    """Run the service until SIGTERM or SIGINT."""
    sys.setswitchinterval(SWITCH_S)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    failed = threading.Event()

    def died() -> None:
        failed.set()
        stop.set()

    service = Service(config, logger, died)
    service.start()
    logger.info("serving", socket=config.socket, http_port=service.http_port, version=__version__)
    stop.wait()
    service.stop()
    logger.info("stopped")
    if failed.is_set():
        raise ServeError("a watch of the API server ended by a bug, see the log above: started again, the service reads all anew")


def _slice_page(worker: Worker, text: bytes) -> Page[SliceTaints]:
    return worker.run(slice_page, text)

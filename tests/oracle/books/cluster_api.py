"""The fake API server: pods and nodes as they truly are, and the log that watches read.

Beside them stand the hosts: what the kubelets have truly given to whom, which the API shows late or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pyscheduler.core.fabric.place import Place
from pyscheduler.core.gangs.membership import GangKey, Membership
from pyscheduler.core.model import NodeFacts, PodFacts, PodRequest, PodUid
from tests.builders import OURS
from tests.oracle.books.hardware import FLEET, GPU, Hardware, Request, machine_of

__all__ = ["OTHERS", "Api", "Host", "Node", "NodeSight", "NodeTold", "Pod", "PodSight", "PodTold"]

OTHERS = "default-scheduler"
Shares = dict[str, tuple[str, ...]]


class PodSight(NamedTuple):
    """What the API shows of a pod, for the model. `handles` are distinct; None without a readable annotation."""

    uid: str
    node: str | None
    finished: bool
    ours: bool
    claimed: bool
    count: int  # type: ignore[assignment]
    handles: tuple[str, ...] | None
    bound_at: float
    priority: int
    gang: bool
    terminating: bool


class NodeSight(NamedTuple):
    """What the API shows of a node, for the model. `gpus` is None without a document, `report` without an agent."""

    name: str
    gpus: tuple[str, ...] | None
    sick: frozenset[int]
    allocatable: int
    report: dict[str, tuple[str, ...]] | None
    garbled: bool


class PodTold(NamedTuple):
    """One event of the log of pods. Both are None where the pod is gone, or finished: the watch asks for live pods only."""

    uid: str
    facts: PodFacts | None
    sight: PodSight | None


class NodeTold(NamedTuple):
    """One event of the log of nodes. Both are None where the node is gone."""

    name: str
    facts: NodeFacts | None
    sight: NodeSight | None


@dataclass(eq=False)
class Pod:
    """A pod, and what only the test knows of it.

    `session` is that of the shim whose Binding bound it. `landed` counts the bindings in the order of the API server.
    Of a pod that is `stale` (bound by a shim that was superseded), `edited`, `forged`, `swapped` (the kubelet gave it
    others) or `void` (the service does not count its annotation, for a good reason) nobody promises which GPUs it has.
    """

    uid: str
    name: str
    scheduler: str
    request: Request
    priority: int = 0
    gang: bool = False
    node: str | None = None
    shares: Shares | None = None
    bound_at: float = 0.0
    landed: int = 0
    session: int | None = None
    finished: bool = False
    gone: bool = False
    terminating: bool = False
    claimed: bool = False
    stale: bool = False
    edited: bool = False
    forged: bool = False
    swapped: bool = False
    void: bool = False

    @property
    def live(self) -> bool:
        return not self.finished and not self.gone

    @property
    def handles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(gpu for share in (self.shares or {}).values() for gpu in share))

    @property
    def sure(self) -> bool:
        """Whether the service chose its GPUs, and nothing excuses it if another pod has them."""
        odd = self.stale or self.edited or self.forged or self.swapped or self.void
        return self.session is not None and not odd

    @property
    def waits(self) -> PodRequest:
        return PodRequest(PodUid(self.uid), "default", self.name, self.request.containers, priority=self.priority)

    def told(self) -> PodTold:
        if not self.live:
            return PodTold(self.uid, None, None)
        return PodTold(self.uid, self.facts(), self.sight())

    def facts(self) -> PodFacts:
        return PodFacts(
            uid=PodUid(self.uid),
            namespace="default",
            name=self.name,
            scheduler=self.scheduler,
            containers=self.request.containers,
            node=self.node,
            finished=self.finished,
            gpus=self.shares,
            bound_at=self.bound_at,
            claimed=self.claimed,
            priority=self.priority,
            # A group of its own: what goes together over several nodes is another test's.
            membership=Membership(GangKey("default", self.uid, "test"), min_members=1) if self.gang else None,
            terminating=self.terminating,
        )

    def sight(self) -> PodSight:
        handles = None if self.shares is None else self.handles
        ours, peak = self.scheduler == OURS, self.request.peak
        own = self.priority, self.gang, self.terminating
        return PodSight(self.uid, self.node, self.finished, ours, self.claimed, peak, handles, self.bound_at, *own)


@dataclass(eq=False)
class Node:
    """A Node object. `told` is what watches are shown; `hardware` is what the document says, if there is one."""

    name: str
    hardware: Hardware
    document: bool
    allocatable: int
    sick: frozenset[int] = frozenset()
    report: dict[str, tuple[str, ...]] | None = None
    garbled: bool = False

    @property
    def healthy(self) -> int:
        return len(self.hardware.gpus) - len(self.sick)

    def told(self) -> NodeTold:
        machine = machine_of(self.hardware, self.sick) if self.document else None
        report = None if self.garbled else self.report
        in_use = None if report is None else {PodUid(uid): gpus for uid, gpus in report.items()}
        place = Place((("leaf", f"leaf-{self.name in 'ab'}"),))
        facts = NodeFacts(self.name, place, GPU, self.allocatable, machine, in_use, self.garbled)
        gpus = self.hardware.gpus if self.document else None
        sick = self.sick if self.document else frozenset()
        return NodeTold(self.name, facts, NodeSight(self.name, gpus, sick, self.allocatable, report, self.garbled))


@dataclass(eq=False)
class Host:
    """The machine behind a node: which GPUs its kubelet has given to which pod UID, and whether an agent reports them."""

    name: str
    hardware: Hardware
    has_document: bool
    agent: bool
    given: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Api:
    """Pods by UID (also those that are gone), the names that are taken, nodes by name, hosts, and the two logs."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.named: dict[str, Pod] = {}
        # Live pods only.
        self.bound: dict[str, dict[str, Pod]] = {}
        self.nodes: dict[str, Node] = {}
        self.hosts: dict[str, Host] = {}
        self.pod_log: list[PodTold] = []
        self.node_log: list[NodeTold] = []
        self._births = self._landings = 0
        self.now = 0.0

    # -- pods -----------------------------------------------------------------------------------------------------------

    def create(self, name: str, scheduler: str, request: Request, priority: int = 0, shares: Shares | None = None) -> Pod:
        self._births += 1
        pod = Pod(f"{name}.{self._births}", name, scheduler, request, priority, shares=shares)
        self.pods[pod.uid] = self.named[name] = pod
        self.show(pod)
        return pod

    def bind(self, pod: Pod, node: str, *, dated: bool = True) -> None:
        """Note that the pod is bound; `shares` and `session` are set before. No two are bound at one time.

        A Binding dates the pod. One that was made with its node is not `dated` until the kubelet writes its status.
        """
        self._landings += 1
        self.now += 0.01
        pod.node, pod.landed, pod.bound_at = node, self._landings, self.now if dated else 0.0
        self.bound.setdefault(node, {})[pod.uid] = pod
        self.show(pod)

    def finish(self, pod: Pod) -> None:
        pod.finished = True
        self._unbind(pod)
        self.show(pod)

    def delete(self, pod: Pod) -> None:
        pod.gone = True
        self._unbind(pod)
        del self.named[pod.name]
        if not pod.finished:
            self.show(pod)

    def show(self, pod: Pod) -> None:
        self.pod_log.append(pod.told())

    def read(self, uid: str) -> Pod | None:
        """Return the pod of this UID as it is now, None if it is gone."""
        pod = self.pods[uid]
        return None if pod.gone else pod

    def live(self) -> list[Pod]:
        return [pod for pod in self.named.values() if not pod.finished]

    def bound_live(self) -> list[Pod]:
        return [pod for pods in self.bound.values() for pod in pods.values()]

    def _unbind(self, pod: Pod) -> None:
        if pod.node is not None:
            self.bound[pod.node].pop(pod.uid, None)

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def add_node(self, name: str) -> Node:
        """Add the Node object of a host, which is new where there is none."""
        kind, document = FLEET[name]
        host = self.hosts.setdefault(name, Host(name, Hardware(kind, name), document, agent=True))
        node = self.nodes[name] = Node(name, host.hardware, host.has_document, len(host.hardware.gpus))
        self.show_node(node)
        return node

    def remove_node(self, name: str) -> None:
        del self.nodes[name]
        self.node_log.append(NodeTold(name, None, None))

    def show_node(self, node: Node) -> None:
        self.node_log.append(node.told())

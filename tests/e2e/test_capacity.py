"""A card that is made slow is kept out of the next group, and comes back: from the exporter to the Binding, all parts real.

Exporters of a simulated fleet, whose cards take the names of those of the cluster's nodes; a real Prometheus that scrapes
them; the service that polls it. Times are short, so that a minute shows what takes hours of work in earnest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import grpc
import pytest

from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.workspace import Workspace, annotation
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc
from tests.e2e.known_nodes import shown, until
from tests.e2e.test_gangs import BOX, add_group, bound_of, each_gpu_once, known, running
from tests.integration.prometheus_server import Prometheus
from tests.sim.exporter import Exporters
from tests.sim.fleet import FleetPlan, Generation, Pool, fleet
from tests.sim.live import LiveFleet
from tests.sim.models import H100

NODES: Final = 3
SLOW: Final = 0.75
SHORT: Final = {
    "stabilizationWindow": "5s",
    "recoveryWindow": "5s",
    "probation": "5s",
    "peerBusyTime": "10s",
    "peerHalfLife": "5s",
    "likeLoadTime": "5s",
    "loadBusyTime": "1h",
    "peerRefresh": "5s",
    # Its history is another matter, and takes its time.
    "ownBusyTime": "24h",
}


class Renamed(Exporters):
    """Exporters whose nodes and cards are called as those of the cluster. `names` gives each name its name there."""

    names: Mapping[str, str]

    def answer(self, path: str) -> tuple[int, str]:
        status, text = super().answer(path)
        for name, there in self.names.items():
            text = text.replace(f'"{name}"', f'"{there}"')
        return status, text


@dataclass(frozen=True)
class Monitored:
    """A control plane, its nodes, and what their cards do."""

    plane: ControlPlane
    own: Workspace
    nodes: Sequence[str]
    live: LiveFleet
    prometheus: Prometheus

    def card(self, node: int, gpu: int) -> int:
        """Return the number of a card in the fleet."""
        return 8 * node + gpu

    def cards(self) -> list[inspect_pb2.Card]:
        """Return what the service knows of all cards."""
        with grpc.insecure_channel(f"unix:{self.plane.layout.socket}") as channel:
            answer = inspect_pb2_grpc.InspectStub(channel).ListCards(inspect_pb2.ListCardsRequest(), timeout=10)
        return list(answer.cards)

    def kept_out(self) -> list[tuple[str, str]]:
        """Return node and UUID of the cards that are not handed out."""
        return [(card.node, card.uuid) for card in self.cards() if card.excluded]


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    root = tmp_path_factory.mktemp("capacity")
    plan = FleetPlan(seed=3, sigma=0.01, pools=(Pool(H100, NODES, (Generation.OLD,)),), fault_share=0)
    live = LiveFleet(fleet(plan), interval_s=1.0)
    prometheus = Prometheus(root, [])
    service = {
        "metrics": {"url": prometheus.url, "collectionInterval": "5s", "historyWindow": "60s"},
        "tuning": SHORT,
    }
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane.start(Options(root=root / "plane", mode=Mode.REPLACE, service=service)))
        own = stack.enter_context(Workspace(plane.api, "capacity"))
        nodes = own.add_nodes(BOX, NODES, fabric=("leaf-1", "spine-1"))
        known(plane, nodes)
        own.wait_untainted()
        exporters = Renamed(live)
        address = stack.enter_context(exporters.serving())
        exporters.names = _names(plane, live, nodes)
        prometheus.jobs = [
            {
                "job_name": node,
                "metrics_path": exporters.path(ours.name),
                "static_configs": [{"targets": [address], "labels": {"node": node}}],
            }
            for node, ours in zip(nodes, live.fleet.nodes, strict=True)
        ]
        for card in range(len(live.fleet.cards)):
            # Each at a job of its own: in one job all wait for the slowest, and are at another load than it.
            live.work([card])
        stack.callback(prometheus.kill)
        prometheus.start()
        yield Monitored(plane, own, nodes, live, prometheus)
        plane.check()


def _names(plane: ControlPlane, live: LiveFleet, nodes: Sequence[str]) -> dict[str, str]:
    """Return what nodes and cards of the fleet are called in the cluster."""
    there = dict(zip((node.name for node in live.fleet.nodes), nodes, strict=True))
    for number, node in enumerate(nodes):
        seen = shown(plane.layout.socket, node)
        assert seen is not None
        ours = [card.uuid for card in live.fleet.cards if card.node == number]
        there |= dict(zip(ours, (gpu.uuid for gpu in seen.gpus), strict=True))
    return there


def test_card_that_is_made_slow_is_kept_out_of_the_next_group_and_comes_back(monitored: Monitored) -> None:
    own, live = monitored.own, monitored.live
    until(
        lambda: len([card for card in monitored.cards() if card.state == "healthy"]) == 8 * NODES, "all cards are healthy", 90.0
    )
    assert monitored.kept_out() == []
    slow = monitored.card(1, 3)
    live.set_speed(slow, SLOW * live.fleet.speeds[slow])
    until(lambda: [node for node, _ in monitored.kept_out()] == [monitored.nodes[1]], "the slow card is kept out", 120.0)
    (known_slow,) = [card for card in monitored.cards() if card.excluded]
    assert known_slow.relative_speed == pytest.approx(SLOW, abs=0.05)
    assert "slower" in known_slow.evidence

    two = add_group(own, "two", 2)
    found = running(own, two)
    assert {pod["spec"]["nodeName"] for pod in found} == {monitored.nodes[0], monitored.nodes[2]}
    assert each_gpu_once(found)
    # Who needs the eighth card of that node as well waits, and is told why.
    third = add_group(own, "third", 1)
    event = own.wait_event(third[0], "1 GPU is left out for its capacity")
    assert "pyscheduler.io/capacity: ignore" in event["message"]
    assert bound_of(own, third) == set()

    live.set_speed(slow, float(live.fleet.speeds[slow]))
    (back,) = running(own, third)
    assert back["spec"]["nodeName"] == monitored.nodes[1]
    assert float(annotation(back, "pyscheduler.io/relative-speed") or 0) == pytest.approx(1.0, abs=0.1)


def test_card_with_a_fatal_xid_is_out_at_the_next_poll(monitored: Monitored) -> None:
    own, live = monitored.own, monitored.live
    for pod in ("two-0", "two-1", "third-0"):
        own.delete_pod(pod)
    until(lambda: monitored.kept_out() == [], "no card is kept out", 90.0)
    live.raise_xid(monitored.card(0, 5), 79)
    until(lambda: [node for node, _ in monitored.kept_out()] == [monitored.nodes[0]], "the card is kept out", 30.0)
    (failed,) = [card for card in monitored.cards() if card.excluded]
    assert failed.state == "failed"
    assert "XID" in failed.evidence
    # Seven of that node are as good as before.
    spec = own.pod_spec(7)
    spec["nodeSelector"]["kubernetes.io/hostname"] = monitored.nodes[0]
    own.add_pod("seven", spec)
    bound = own.wait_bound("seven")
    assert failed.uuid not in (annotation(bound, "pyscheduler.io/gpus") or "")


def test_what_is_known_and_said_of_cards_counts_after_a_restart_without_prometheus(monitored: Monitored) -> None:
    own, plane = monitored.own, monitored.plane
    own.delete_pod("seven")
    (failed,) = monitored.kept_out()
    monitored.prometheus.kill()
    plane.stop_component("pyscheduler")
    said = {"*": {"value": 0, "reason": "to be looked at"}}
    annotations = {"pyscheduler.io/cards": json.dumps(said)}
    plane.api.patch(f"/api/v1/nodes/{monitored.nodes[2]}", {"metadata": {"annotations": annotations}})
    for pod, node, gpus in (("all", 0, 8), ("one", 2, 1)):
        spec = own.pod_spec(gpus)
        spec["nodeSelector"]["kubernetes.io/hostname"] = monitored.nodes[node]
        own.add_pod(pod, spec)
    plane.start_component("pyscheduler")
    own.wait_event("all", "1 GPU is left out for its capacity (faulty: 1;")
    own.wait_event("one", "8 GPUs are left out for their capacity (reported by others: 8;")
    assert failed in monitored.kept_out()
    assert len(monitored.kept_out()) == 9
    assert not any(own.pod(pod)["spec"].get("nodeName") for pod in ("all", "one"))

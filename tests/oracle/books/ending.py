"""The end of a world: all pods go, all messages arrive, and nothing may be held."""

from __future__ import annotations

from tests.oracle.books.known import Fault
from tests.oracle.books.rest import come_to_rest
from tests.oracle.books.service import demand
from tests.oracle.books.world import World

__all__ = ["end_all"]


def end_all(world: World) -> None:
    """Let everything come to rest, first with the pods that are there, then without any."""
    come_to_rest(world)
    world.api.now += 1000.0
    for pod in list(world.api.named.values()):
        world.api.delete(pod)
    for node in world.api.nodes.values():
        host = world.api.hosts[node.name]
        host.given.clear()
        node.report, node.garbled = ({} if host.agent else None), False
        node.sick, node.allocatable = frozenset(), len(host.hardware.gpus)
        world.api.show_node(node)
    come_to_rest(world)
    world.api.now += 3600.0
    world.service.wake()
    _check_nothing_held(world)


def _check_nothing_held(world: World) -> None:
    cluster = world.service.planner.cluster
    left = sorted(holding.uid for holding in cluster.ledger.holdings())
    demand(not left, "all pods are gone, and {} hold GPUs", left)
    for index, name in enumerate(cluster.table.names):
        node, state = world.api.nodes.get(name), cluster.state(index)
        demand(state.present == (node is not None), "{} is known as {}", name, "there" if state.present else "gone")
        if node is not None:
            demand(state.free == node.allocatable, "{} of {} GPUs of {} are free at the end", state.free, node.allocatable, name)
    if Fault.REFUSAL_LEAK not in world.faults:
        demand(not len(cluster.refusals), "{} are gone, and kept as refused", [r.uid for r in cluster.refusals.all()])

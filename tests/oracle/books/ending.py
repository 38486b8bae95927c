"""The end of a world: all pods go, all messages arrive, and nothing may be held."""

from __future__ import annotations

from tests.builders import OURS
from tests.oracle.books.hardware import REQUESTS
from tests.oracle.books.memory import most_remembered
from tests.oracle.books.rest import catch_up, come_to_rest
from tests.oracle.books.service import demand
from tests.oracle.books.world import World

__all__ = ["end_all"]

# What is worked out of a node is kept until it changes, with the pods that were there.
_REMEMBERED_MAX = 12


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
    _check_nothing_remembered(world)


def _check_nothing_held(world: World) -> None:
    cluster = world.service.planner.cluster
    left = sorted(holding.uid for holding in cluster.ledger.holdings())
    demand(not left, "all pods are gone, and {} hold GPUs", left)
    for index, name in enumerate(cluster.table.names):
        node, state = world.api.nodes.get(name), cluster.state(index)
        demand(state.present == (node is not None), "{} is known as {}", name, "there" if state.present else "gone")
        if node is not None:
            demand(state.free == node.allocatable, "{} of {} GPUs of {} are free at the end", state.free, node.allocatable, name)
    demand(not len(cluster.refusals), "{} are gone, and kept as refused", [r.uid for r in cluster.refusals.all()])


def _check_nothing_remembered(world: World) -> None:
    """Of pods that are long gone the service remembers no more than a few, when one more has come and gone."""
    world.api.delete(world.api.create("last", OURS, REQUESTS[0]))
    catch_up(world)
    # The ends of their attempts are not forgotten yet: `test_end_of_an_attempt_is_forgotten_when_its_pod_is_heard_of_no_more`.
    count, where = most_remembered(world.service.planner, world.api.pods.keys())
    demand(count <= _REMEMBERED_MAX, "{} pods are long gone and remembered in {}", count, where)

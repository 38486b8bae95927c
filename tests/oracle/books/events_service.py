"""What the service sees, when it starts anew, and whether what it rebuilds is what it had."""

from __future__ import annotations

from tests.oracle.books.draws import Draw, chance, pick, shuffled
from tests.oracle.books.event import Event, any_of
from tests.oracle.books.rebuild import compare_with_a_rebuild
from tests.oracle.books.rest import come_to_rest
from tests.oracle.books.world import World

__all__ = ["SERVICE_EVENTS"]


def the_watch_shows_pods(world: World, draw: Draw) -> None:
    world.service.tell_pods(1 + draw.below(5))
    world.judge_books()


def the_watch_shows_nodes(world: World, draw: Draw) -> None:
    world.service.tell_nodes(1 + draw.below(3))
    world.judge_books()


def the_watch_of_pods_has_a_gap(world: World, draw: Draw) -> None:
    """The list that follows it is told while calls are answered."""
    world.service.list_pods()


def the_watch_of_nodes_has_a_gap(world: World, draw: Draw) -> None:
    world.service.list_nodes(shuffled(draw, list(world.api.nodes)))


def a_node_is_judged(world: World, draw: Draw) -> None:
    world.service.judge(pick(draw, sorted(world.service.unjudged)))
    world.judge_books()


def an_orphan_is_read_live(world: World, draw: Draw) -> None:
    world.service.read_live(draw.below(len(world.service.orphans)))


def a_live_read_is_told(world: World, draw: Draw) -> None:
    world.service.settle(draw.below(len(world.service.reads)))
    world.judge_books()


def the_service_restarts(world: World, draw: Draw) -> None:
    names = shuffled(draw, list(world.api.nodes))
    unjudged = {name for name in names if chance(draw, 50)} if chance(draw, 40) else set()
    world.start_service(names, unjudged)
    world.say("  nodes {}, not judged yet {}", names, unjudged)


def the_service_is_compared_with_a_rebuild(world: World, draw: Draw) -> None:
    compare_with_a_rebuild(world, shuffled(draw, list(world.api.nodes)))


def time_passes(world: World, draw: Draw) -> None:
    """Less than messages may be late, since everything was at rest."""
    world.api.now += draw.below(30)


def a_quiet_hour_passes(world: World, draw: Draw) -> None:
    come_to_rest(world)
    world.api.now += 3600.0
    world.rested_at = world.api.now


SERVICE_EVENTS = (
    Event(the_watch_shows_pods, 90, lambda world: world.service.pods_behind > 0),
    Event(the_watch_shows_nodes, 40, lambda world: world.service.nodes_behind > 0),
    Event(the_watch_of_pods_has_a_gap, 4),
    Event(the_watch_of_nodes_has_a_gap, 3),
    Event(a_node_is_judged, 10, any_of(lambda world: world.service.unjudged)),
    Event(an_orphan_is_read_live, 20, any_of(lambda world: world.service.orphans)),
    Event(a_live_read_is_told, 20, any_of(lambda world: world.service.reads)),
    Event(the_service_restarts, 3),
    Event(the_service_is_compared_with_a_rebuild, 5),
    Event(time_passes, 8, lambda world: world.api.now - world.rested_at < 500.0),
    Event(a_quiet_hour_passes, 1),
)

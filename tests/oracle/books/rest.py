"""How a world comes to rest: what is on its way arrives, who is behind catches up, what is in doubt is settled."""

from __future__ import annotations

from tests.oracle.books.shim import Shim
from tests.oracle.books.world import World

__all__ = ["catch_up", "come_to_rest", "greet"]


def catch_up(world: World) -> None:
    """Tell the service all that its watches have still to tell."""
    service = world.service
    service.tell_nodes(service.nodes_behind)
    service.tell_pods(service.pods_behind)
    for name in sorted(service.unjudged):
        service.judge(name)
    world.judge_books()


def greet(world: World, shim: Shim) -> None:
    """Make a Resync that is answered at once, and settle what comes of it."""
    world.resync(shim, shim.statement())
    while world.service.orphans or world.service.reads:
        for number in reversed(range(len(world.service.orphans))):
            world.service.read_live(number)
        for number in reversed(range(len(world.service.reads))):
            world.service.settle(number)
    world.judge_books()


def come_to_rest(world: World) -> None:
    """Let everything arrive. A scheduler that was deposed ends."""
    for binding in world.bindings:
        world.land(binding, answered=True)
    world.bindings.clear()
    world.proposals.clear()
    del world.shims[:-1]
    shim = world.shim
    while world.wire:
        world.deliver(world.wire.pop(0), answered=True)
    world.proposals.clear()
    shim.look(shim.behind)
    catch_up(world)
    for holds in shim.doubts:
        if world.looks_bound(holds):
            shim.no_doubt(holds)
        else:
            shim.give_back(holds.pod.uid, holds.attempt)
    shim.doubts.clear()
    greet(world, shim)
    for uid, ending in list(shim.endings.items()):
        world.service.unreserve(ending.attempt, uid, unknown=ending.unknown)
        shim.acknowledged(uid, ending)
    world.service.wake()
    greet(world, shim)

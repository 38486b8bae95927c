"""Pods of higher priority make room for themselves: what the plugin asks, and what becomes of the evictions."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle.books.cluster_api import Pod
from tests.oracle.books.draws import Draw, chance, pick
from tests.oracle.books.event import Event, any_of
from tests.oracle.books.shim import Call, Shim
from tests.oracle.books.world import World

__all__ = ["PREEMPTION_EVENTS", "ask_for_room"]


def ask_for_room(world: World, draw: Draw, shim: Shim, call: Call) -> None:
    """Send Preempt, within the scheduling cycle that began with a Filter."""
    protected = {pod.uid for pod in world.api.bound_live() if chance(draw, 10)} if chance(draw, 20) else set()
    shim.cycle = replace(call, protected=frozenset(protected))
    world.send(shim.cycle)


def an_eviction_is_carried_out(world: World, draw: Draw) -> None:
    """Its victims are to end. Or the other plugins are against it: then another node is asked for, in the same cycle."""
    call, answer = world.proposals.pop(draw.below(len(world.proposals)))
    shim = call.shim
    same_cycle = shim.cycle is None and call.attempt == shim.attempt(shim.begun) and call.service == world.service.number
    if same_cycle and chance(draw, 20):
        nodes = tuple(name for name in call.nodes if name != answer.node)
        ask_for_room(world, draw, shim, replace(call, nodes=nodes, awaited=True))
        world.say("  not on {}", answer.node)
        return
    for pod in (world.api.pods[uid] for uid in answer.victims):
        if pod.live and not pod.terminating:
            pod.terminating = True
            world.api.show(pod)
    world.say("  {} of {} are to end", answer.victims, answer.node)


def a_victim_ends(world: World, draw: Draw) -> None:
    pod = pick(draw, _ending(world))
    world.api.hosts[str(pod.node)].given.pop(pod.uid, None)
    world.api.delete(pod)
    world.say("  {}", pod.uid)


def the_service_wakes_pods(world: World, draw: Draw) -> None:
    world.service.wake()


def _ending(world: World) -> list[Pod]:
    return [pod for pod in world.api.bound_live() if pod.terminating]


PREEMPTION_EVENTS = (
    Event(an_eviction_is_carried_out, 80, any_of(lambda world: world.proposals)),
    Event(a_victim_ends, 30, any_of(_ending)),
    Event(the_service_wakes_pods, 8),
)

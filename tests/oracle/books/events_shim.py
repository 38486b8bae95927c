"""What the scheduler's plugin does, and what becomes of its calls and Bindings on their way."""

from __future__ import annotations

from dataclasses import replace

from pyscheduler.core.model import Code
from tests.oracle.books.draws import Draw, chance, pick
from tests.oracle.books.event import Event, any_of
from tests.oracle.books.events_preemption import ask_for_room
from tests.oracle.books.shim import Binding, Call, Holds, Method, Shim, Stage
from tests.oracle.books.world import World

__all__ = ["SHIM_EVENTS"]


def a_cycle_begins(world: World, draw: Draw) -> None:
    """PreFilter asks Filter, the framework takes a node, and Reserve is sent."""
    able = _may_begin(world)
    # One that was deposed gets no answer worth having.
    _begin_cycle(world, draw, able[0] if chance(draw, 25) else able[-1])


def a_cycle_begins_before_the_shim_has_connected(world: World, draw: Draw) -> None:
    _begin_cycle(world, draw, pick(draw, _may_begin_too_early(world)))


def _begin_cycle(world: World, draw: Draw, shim: Shim) -> None:
    pod = pick(draw, shim.waiting())
    attempt = shim.begin()
    if chance(draw, 3):
        world.say("  attempt {} for {}: Filter is lost", attempt.number, pod.uid)
        return
    known = world.service.model.names
    eligible = [name for name in known if not chance(draw, 20)] if chance(draw, 15) else list(known)
    code, found = world.service.filter(attempt, pod, eligible)
    world.counts[f"Filter answered {code.value}"] += 1
    world.say("  attempt {}/{} for {} on any of {}: {}", shim.session, attempt.number, pod.uid, eligible, found)
    if found:
        # Mostly the best; the other plugins may refuse it.
        node = pick(draw, found) if chance(draw, 30) else found[0]
        shim.cycle = Call(Method.RESERVE, shim, world.service.number, pod=pod, attempt=attempt, node=node)
        world.send(shim.cycle)
    elif code is Code.UNSCHEDULABLE and eligible and chance(draw, 80):
        ask_for_room(
            world, draw, shim, Call(Method.PREEMPT, shim, world.service.number, pod=pod, attempt=attempt, nodes=tuple(eligible))
        )


def a_binding_is_posted(world: World, draw: Draw) -> None:
    shim, holds = pick(draw, _chosen(world))
    if holds.conflicting:
        shim.give_back(holds.pod.uid, holds.attempt)
        world.say("  not of {}: others have its GPUs", holds.pod.uid)
        return
    holds.stage = Stage.POSTED
    world.bindings.append(Binding(shim, holds))
    world.say("  {} to {} with {}", holds.pod.uid, holds.node, sorted(holds.gpus))


def a_pod_is_given_up_before_its_binding(world: World, draw: Draw) -> None:
    """Another plugin refuses it in Permit or PreBind."""
    shim, holds = pick(draw, _chosen(world))
    shim.give_back(holds.pod.uid, holds.attempt)
    world.say("  {}", holds.pod.uid)


def a_binding_arrives(world: World, draw: Draw) -> None:
    binding = world.bindings.pop(draw.below(len(world.bindings)))
    twice = any(other.holds is binding.holds for other in world.bindings)
    world.land(binding, answered=not chance(draw, 10), refused=not twice and chance(draw, 5))


def a_binding_is_sent_twice(world: World, draw: Draw) -> None:
    world.bindings.append(pick(draw, world.bindings))


def a_binding_is_lost(world: World, draw: Draw) -> None:
    binding = world.bindings.pop(draw.below(len(world.bindings)))
    world.say("  {}", binding.holds.pod.uid)
    if binding.shim in world.shims and binding.holds.stage is Stage.POSTED:
        binding.shim.doubt(binding.holds)


def a_binding_takes_too_long(world: World, draw: Draw) -> None:
    binding = pick(draw, _posted(world))
    binding.shim.doubt(binding.holds)
    world.say("  {}", binding.holds.pod.uid)


def a_doubt_is_looked_into(world: World, draw: Draw) -> None:
    """The pod is read live. That it is not bound counts when its Binding can no longer land."""
    shim, holds = pick(draw, _doubts(world))
    under_way = [binding for binding in world.bindings if binding.holds is holds]
    if world.looks_bound(holds):
        shim.no_doubt(holds)
        world.say("  {} is bound", holds.pod.uid)
    elif holds.pod.live and holds.pod.node is None and under_way and chance(draw, 60):
        return
    else:
        for binding in under_way:
            world.bindings.remove(binding)
        shim.give_back(holds.pod.uid, holds.attempt)
        world.say("  {} is not bound", holds.pod.uid)
    shim.doubts.remove(holds)


def an_unreserve_is_sent(world: World, draw: Draw) -> None:
    shim, uid = pick(draw, _owing(world))
    ending = shim.endings[uid]
    shim.sending = Call(Method.UNRESERVE, shim, world.service.number, pod=world.api.pods[uid], ending=ending)
    world.send(shim.sending)
    world.say("  {}/{} of {}, {}", shim.session, ending.attempt.number, uid, "unknown" if ending.unknown else "not bound")


def a_resync_is_sent(world: World, draw: Draw) -> None:
    _send_resync(world, pick(draw, _not_sending(world)))


def a_shim_connects(world: World, draw: Draw) -> None:
    """The first thing that it says to a new run of the service is what it holds."""
    _send_resync(world, pick(draw, _not_greeted(world)))


def a_call_arrives(world: World, draw: Draw) -> None:
    """Any of those on their way: they may overtake each other."""
    call = world.wire.pop(draw.below(len(world.wire)))
    world.deliver(call, answered=not chance(draw, 6))


def a_call_is_sent_twice(world: World, draw: Draw) -> None:
    """The answer to the second one is not awaited."""
    call = replace(pick(draw, world.wire), awaited=False)
    world.send(call)
    world.say("  {}", call.method.value)


def a_call_is_lost(world: World, draw: Draw) -> None:
    call = world.wire.pop(draw.below(len(world.wire)))
    world.say("  {}", call.method.value)
    world.unanswered(call)


def a_call_takes_too_long(world: World, draw: Draw) -> None:
    call = pick(draw, _awaited(world))
    world.say("  {}", call.method.value)
    world.unanswered(call)


def the_shim_sees_pods(world: World, draw: Draw) -> None:
    shim = pick(draw, _behind(world))
    shim.look(1 + draw.below(6))


def the_scheduler_restarts(world: World, draw: Draw) -> None:
    """What it sent may still arrive; its Bindings may still land."""
    for shim in world.shims:
        _forget(world, shim)
    world.supersede()
    world.shims = world.shims[-1:]


def another_scheduler_takes_over(world: World, draw: Draw) -> None:
    """The old leader does not know that it was deposed, and goes on."""
    for shim in world.shims[:-1]:
        _forget(world, shim)
    world.supersede()
    world.shims = world.shims[-2:]


def the_deposed_scheduler_ends(world: World, draw: Draw) -> None:
    _forget(world, world.shims.pop(0))


# -- inside ------------------------------------------------------------------------------------------------------------


def _send_resync(world: World, shim: Shim) -> None:
    shim.sending = Call(Method.RESYNC, shim, world.service.number, statement=shim.statement())
    world.send(shim.sending)
    world.say("  session {} up to {}: holds {}", shim.session, shim.decided, sorted(shim.held))


def _may_begin(world: World) -> list[Shim]:
    return [shim for shim in _idle(world) if shim.greeted == world.service.number]


def _may_begin_too_early(world: World) -> list[Shim]:
    return [shim for shim in _idle(world) if shim.greeted != world.service.number]


def _idle(world: World) -> list[Shim]:
    return [shim for shim in world.shims if shim.cycle is None and shim.waiting()]


def _chosen(world: World) -> list[tuple[Shim, Holds]]:
    return [(shim, holds) for shim in world.shims for holds in shim.held.values() if holds.stage is Stage.CHOSEN]


def _posted(world: World) -> list[Binding]:
    return [binding for binding in world.bindings if binding.shim in world.shims and binding.holds.stage is Stage.POSTED]


def _doubts(world: World) -> list[tuple[Shim, Holds]]:
    return [(shim, holds) for shim in world.shims for holds in shim.doubts]


def _owing(world: World) -> list[tuple[Shim, str]]:
    return [(shim, uid) for shim in world.shims if shim.sending is None for uid in shim.endings]


def _not_sending(world: World) -> list[Shim]:
    return [shim for shim in world.shims if shim.sending is None]


def _not_greeted(world: World) -> list[Shim]:
    return [shim for shim in _not_sending(world) if shim.greeted != world.service.number]


def _behind(world: World) -> list[Shim]:
    return [shim for shim in world.shims if shim.behind]


def _forget(world: World, shim: Shim) -> None:
    for call in world.wire:
        if call.shim is shim:
            call.awaited = False
    world.proposals = [(call, answer) for call, answer in world.proposals if call.shim is not shim]


def _calls(world: World) -> list[Call]:
    return world.wire


def _awaited(world: World) -> list[Call]:
    return [call for call in world.wire if call.awaited]


def _bindings(world: World) -> list[Binding]:
    return world.bindings


SHIM_EVENTS = (
    Event(a_cycle_begins, 130, any_of(_may_begin)),
    Event(a_cycle_begins_before_the_shim_has_connected, 10, any_of(_may_begin_too_early)),
    Event(a_binding_is_posted, 110, any_of(_chosen)),
    Event(a_pod_is_given_up_before_its_binding, 8, any_of(_chosen)),
    Event(a_binding_arrives, 70, any_of(_bindings)),
    Event(a_binding_is_sent_twice, 4, any_of(_bindings)),
    Event(a_binding_is_lost, 5, any_of(_bindings)),
    Event(a_binding_takes_too_long, 12, any_of(_posted)),
    Event(a_doubt_is_looked_into, 18, any_of(_doubts)),
    Event(an_unreserve_is_sent, 40, any_of(_owing)),
    Event(a_resync_is_sent, 10, any_of(_not_sending)),
    Event(a_shim_connects, 60, any_of(_not_greeted)),
    Event(a_call_arrives, 120, any_of(_calls)),
    Event(a_call_is_sent_twice, 8, any_of(_calls)),
    Event(a_call_is_lost, 5, any_of(_calls)),
    Event(a_call_takes_too_long, 10, any_of(_awaited)),
    Event(the_shim_sees_pods, 80, any_of(_behind)),
    Event(the_scheduler_restarts, 3),
    Event(another_scheduler_takes_over, 3),
    Event(the_deposed_scheduler_ends, 6, lambda world: len(world.shims) > 1),
)

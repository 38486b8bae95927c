"""What happens to nodes: they come, go and change, and their agents report."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle.books.cluster_api import Node
from tests.oracle.books.draws import Draw, chance, pick
from tests.oracle.books.event import Event, any_of
from tests.oracle.books.hardware import EIGHT, FLEET, FOUR, Hardware
from tests.oracle.books.world import World

__all__ = ["NODE_EVENTS"]


def a_node_comes(world: World, draw: Draw) -> None:
    """New, or back: as it was, with other GPUs, with fewer or more."""
    name = pick(draw, [name for name in FLEET if name not in world.api.nodes])
    host = world.api.hosts.get(name)
    if host is not None and chance(draw, 30):
        kind = pick(draw, (host.hardware.kind, FOUR, EIGHT))
        serial = pick(draw, (name, f"{name}-other"))
        if Hardware(kind, serial) != host.hardware:
            host.hardware = Hardware(kind, serial)
            host.given.clear()
    node = world.api.add_node(name)
    world.say("  {} with {}", name, node.hardware)


def a_node_goes(world: World, draw: Draw) -> None:
    """Its pods stay, until somebody deletes them."""
    name = pick(draw, list(world.api.nodes))
    world.api.remove_node(name)
    world.say("  {}", name)


def allocatable_changes(world: World, draw: Draw) -> None:
    """To nothing for some seconds, to any number, or back to what is healthy."""
    node = pick(draw, list(world.api.nodes.values()))
    node.allocatable = pick(draw, (node.healthy, node.healthy, node.healthy, 0, draw.below(node.healthy + 1)))
    _show(world, node)


def a_gpu_fails_or_recovers(world: World, draw: Draw) -> None:
    node = pick(draw, list(world.api.nodes.values()))
    gpu = draw.below(len(node.hardware.gpus))
    node.sick = node.sick ^ {gpu} if len(node.sick) < 2 else frozenset()
    if chance(draw, 70):
        node.allocatable = node.healthy
    _show(world, node)


def a_document_comes_or_goes(world: World, draw: Draw) -> None:
    node = pick(draw, list(world.api.nodes.values()))
    node.document = not node.document
    world.api.hosts[node.name].has_document = node.document
    _show(world, node)


def cards_are_exchanged(world: World, draw: Draw) -> None:
    """The kubelet gives out the new ones, and its agent names them, before the node's document does."""
    node = pick(draw, list(world.api.nodes.values()))
    host = world.api.hosts[node.name]
    serial = pick(draw, [serial for serial in (node.name, f"{node.name}-other") if serial != host.hardware.serial])
    host.hardware = replace(host.hardware, serial=serial)
    host.given.clear()
    world.say("  {} has {}", node.name, host.hardware)


def a_document_is_renewed(world: World, draw: Draw) -> None:
    node = pick(draw, _outdated(world))
    node.hardware = world.api.hosts[node.name].hardware
    _show(world, node)


def an_agent_reports(world: World, draw: Draw) -> None:
    """What the kubelet has given to whom, or a moment in which it has not given all."""
    node = pick(draw, _with_agent(world))
    host = world.api.hosts[node.name]
    report = dict(host.given)
    if report and chance(draw, 15):
        uid = pick(draw, list(report))
        report[uid] = report[uid][: draw.below(len(report[uid]))]
    if report != node.report or node.garbled:
        node.report, node.garbled = report, False
        _show(world, node)


def an_agent_goes_or_comes(world: World, draw: Draw) -> None:
    node = pick(draw, list(world.api.nodes.values()))
    host = world.api.hosts[node.name]
    host.agent = not host.agent
    node.report, node.garbled = (dict(host.given) if host.agent else None), False
    _show(world, node)


def a_report_cannot_be_read(world: World, draw: Draw) -> None:
    node = pick(draw, _with_agent(world))
    node.garbled = True
    _show(world, node)


def _show(world: World, node: Node) -> None:
    world.api.show_node(node)
    if world.story is not None:
        world.say("  {}", replace(node))


def _with_agent(world: World) -> list[Node]:
    return [node for node in world.api.nodes.values() if world.api.hosts[node.name].agent]


def _outdated(world: World) -> list[Node]:
    return [node for node in world.api.nodes.values() if node.hardware != world.api.hosts[node.name].hardware]


def _some(world: World) -> bool:
    return bool(world.api.nodes)


NODE_EVENTS = (
    Event(a_node_comes, 14, lambda world: len(world.api.nodes) < len(FLEET)),
    Event(a_node_goes, 4, lambda world: len(world.api.nodes) > 1),
    Event(allocatable_changes, 9, _some),
    Event(a_gpu_fails_or_recovers, 5, _some),
    Event(a_document_comes_or_goes, 3, _some),
    Event(cards_are_exchanged, 2, _some),
    Event(a_document_is_renewed, 6, any_of(_outdated)),
    Event(an_agent_reports, 30, any_of(_with_agent)),
    Event(an_agent_goes_or_comes, 3, _some),
    Event(a_report_cannot_be_read, 3, any_of(_with_agent)),
)

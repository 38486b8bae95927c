"""What a service that starts anew knows after its lists and the shim's Resync, beside what the running one knew."""

from __future__ import annotations

from tests.oracle.books.cluster_api import Node
from tests.oracle.books.model import UNBOUND_STATES, UNLISTED_S, Entry, Free
from tests.oracle.books.rest import catch_up, greet
from tests.oracle.books.service import Service, demand
from tests.oracle.books.shim import Shim
from tests.oracle.books.world import World

__all__ = ["compare_with_a_rebuild"]

Knowledge = tuple[dict[str, tuple[object, ...]], Free | None]


def compare_with_a_rebuild(world: World, names: list[str]) -> None:
    """Restart the service in a quiet moment. It must know the same as before of every node where nothing is odd."""
    shim = world.shim
    if shim.cycle is not None or shim.sending is not None:
        return
    catch_up(world)
    shim.look(shim.behind)
    world.api.now += 2 * UNLISTED_S
    world.service.wake()
    greet(world, shim)
    before = world.service
    clean = [node for node in world.api.nodes.values() if _is_clean(world, before, shim, node)]
    known = {node.name: _knowledge(before, node.name) for node in clean}
    _check_truth(world, before)
    world.start_service(names, frozenset())
    greet(world, shim)
    _check_truth(world, world.service)
    world.counts["nodes compared with a rebuild"] += len(clean)
    world.counts["nodes not compared"] += len(world.api.nodes) - len(clean)
    for name, knew in known.items():
        knows = _knowledge(world.service, name)
        if any(world.api.pods[uid].void for uid in {*knew[0], *knows[0]}):
            continue
        demand(knew == knows, "of {} the service knew {}, and after a restart {}", name, knew, knows)


def _knowledge(service: Service, name: str) -> Knowledge:
    """Return what is held on the node, and what is free, but for what is held for nominated pods: that is no promise."""
    held: dict[str, tuple[object, ...]] = {}
    entries = service.model.on.get(name, {})
    for uid, entry in entries.items():
        state = "unbound" if entry.state in UNBOUND_STATES else entry.state
        # Where the agent says which, the books need not; what is being released, its report tells as well.
        if state not in ("releasing", "nominated"):
            held[uid] = (state, entry.count, frozenset() if state == "foreign" else entry.gpus)
    return held, service.model.free(name, [uid for uid, entry in entries.items() if entry.state == "nominated"])


def _check_truth(world: World, service: Service) -> None:
    """Of nodes that are there, exactly the pods that are truly bound are known as bound."""
    for name in world.api.nodes:
        entries = service.model.on.get(name, {})
        known = {uid for uid, entry in entries.items() if entry.state in ("bound", "foreign")}
        truly = set(world.api.bound.get(name, {}))
        demand(known == truly, "on {} the books have {} bound, and truly there are {}", name, sorted(known), sorted(truly))


def _is_clean(world: World, service: Service, shim: Shim, node: Node) -> bool:
    """Tell whether the same can be known of the node from the API and the shim alone as from all that happened before."""
    if node.garbled:
        return False
    told = {uid: frozenset(gpus) for uid, gpus in (node.report or {}).items()}
    entries = service.model.on.get(node.name, {})
    return all(_is_plain(world, shim, uid, entry, told.get(uid)) for uid, entry in entries.items())


def _is_plain(world: World, shim: Shim, uid: str, entry: Entry, told: frozenset[str] | None) -> bool:
    pod = world.api.pods[uid]
    if entry.state == "nominated":
        return True
    if entry.state in UNBOUND_STATES:
        return entry.attempt is not None and entry.attempt <= (shim.session, shim.decided)
    if entry.state == "releasing" or entry.how == "reported":
        return told is not None and len(told) == entry.count and entry.gpus <= told
    return not (pod.edited or pod.forged or pod.void or pod.stale)

"""What users, other schedulers and kubelets do to pods."""

from __future__ import annotations

from tests.builders import OURS
from tests.oracle.books.cluster_api import OTHERS, Host, Pod, Shares
from tests.oracle.books.draws import Draw, chance, pick
from tests.oracle.books.event import Event, any_of
from tests.oracle.books.hardware import REQUESTS, Request
from tests.oracle.books.world import World

__all__ = ["POD_EVENTS"]

# Names of pods of ours, and of those that others bind: few, so that names come again.
OUR_NAMES = tuple(f"p{i}" for i in range(10))
OTHER_NAMES = tuple(f"x{i}" for i in range(4))


def _request(draw: Draw) -> Request:
    """Return a request, small ones more often: full nodes take nobody."""
    return REQUESTS[min(draw.below(len(REQUESTS)), draw.below(len(REQUESTS)))]


def _priority(draw: Draw) -> int:
    return pick(draw, (0, 0, 0, 10, 100))


def _our_names(world: World) -> list[str]:
    return [name for name in OUR_NAMES if name not in world.api.named]


def _other_names(world: World) -> list[str]:
    return [name for name in OTHER_NAMES if name not in world.api.named]


def a_pod_is_created(world: World, draw: Draw) -> None:
    name, request = pick(draw, _our_names(world)), _request(draw)
    shares = _forged(world, draw, pick(draw, list(world.api.hosts)), request) if chance(draw, 5) else None
    pod = world.api.create(name, OURS, request, _priority(draw), shares)
    pod.gang = chance(draw, 10)
    world.say("  {} asks for {}, priority {}, annotation {}", pod.uid, request.peak, pod.priority, shares)


def another_scheduler_binds_a_pod(world: World, draw: Draw) -> None:
    """As default-scheduler, a static pod, or one whose devices come from a resource claim."""
    node, request = pick(draw, list(world.api.hosts)), _request(draw)
    shares = _forged(world, draw, node, request) if chance(draw, 10) else None
    pod = world.api.create(pick(draw, _other_names(world)), OTHERS, request, _priority(draw), shares)
    if chance(draw, 20):
        pod.scheduler, pod.claimed = OURS, True
    # A static pod has no Binding.
    world.api.bind(pod, node, dated=not chance(draw, 20))
    world.say("  {} takes {} of {}", pod.uid, request.peak, node)


def another_scheduler_binds_a_pod_of_ours(world: World, draw: Draw) -> None:
    pod, node = pick(draw, _waiting(world)), pick(draw, list(world.api.hosts))
    pod.forged = True
    world.api.bind(pod, node)
    world.say("  {} is bound to {} from outside, annotation {}", pod.uid, node, pod.shares)


def a_user_binds_a_pod_with_an_annotation_of_his_own(world: World, draw: Draw) -> None:
    node, request = pick(draw, list(world.api.hosts)), _request(draw)
    shares = _forged(world, draw, node, request)
    pod = world.api.create(pick(draw, _other_names(world)), OURS, request, _priority(draw), shares)
    pod.forged = True
    world.api.bind(pod, node, dated=False)
    world.say("  {} is bound to {} with {}", pod.uid, node, pod.shares)


def an_annotation_is_edited(world: World, draw: Draw) -> None:
    pod = pick(draw, _bound(world))
    shares = None if chance(draw, 25) else _forged(world, draw, str(pod.node), pod.request)
    if shares != pod.shares:
        pod.shares, pod.edited = shares, True
        world.api.show(pod)
        world.say("  annotation of {} is now {}", pod.uid, shares)


def a_pod_changes_otherwise(world: World, draw: Draw) -> None:
    """Its status, or that it is to end: the plugin's watch and the service's get an event that says nothing new."""
    pod = pick(draw, world.api.live())
    if pod.node is not None and pod.bound_at == 0.0:
        pod.bound_at = world.api.now
    pod.terminating = pod.terminating or chance(draw, 20)
    world.api.show(pod)
    world.say("  {}{}", pod.uid, " is to end" if pod.terminating else "")


def a_pod_is_deleted(world: World, draw: Draw) -> None:
    pod = pick(draw, list(world.api.named.values()))
    if pod.terminating and pod.node in world.api.hosts:
        # It ends in order: the kubelet lets its devices go before the object is gone.
        world.api.hosts[str(pod.node)].given.pop(pod.uid, None)
    world.api.delete(pod)
    world.say("  {}", pod.uid)


def a_pod_finishes(world: World, draw: Draw) -> None:
    pod = pick(draw, _bound(world))
    world.api.finish(pod)
    world.say("  {}", pod.uid)


# -- kubelets ----------------------------------------------------------------------------------------------------------


def a_kubelet_admits_a_pod(world: World, draw: Draw) -> None:
    """With the GPUs that were chosen; or with others; or not at all, where too few are left."""
    pod = pick(draw, _not_admitted(world))
    host = world.api.hosts[str(pod.node)]
    left = _left(world, host)
    if len(left) < pod.request.peak:
        world.api.finish(pod)
        world.say("  {} fails: {} has {} left", pod.uid, host.name, len(left))
        return
    chosen = [gpu for gpu in pod.handles if gpu in left]
    if len(chosen) < pod.request.peak or chance(draw, 10):
        if chance(draw, 50) and pod.session is not None:
            # The agent never gives others than those that were chosen.
            world.api.finish(pod)
            return
        chosen = [left.pop(draw.below(len(left))) for _ in range(pod.request.peak)]
    host.given[pod.uid] = tuple(chosen)
    pod.swapped = pod.swapped or (pod.session is not None and set(chosen) != set(pod.handles))
    world.say("  {} on {} gets {}", pod.uid, host.name, chosen)


def a_kubelet_lets_devices_go(world: World, draw: Draw) -> None:
    host, uid = pick(draw, _ended(world))
    del host.given[uid]
    world.say("  those of {} on {}", uid, host.name)


# -- inside ------------------------------------------------------------------------------------------------------------


def _waiting(world: World) -> list[Pod]:
    return [pod for pod in world.api.live() if pod.node is None and not pod.terminating]


def _bound(world: World) -> list[Pod]:
    return world.api.bound_live()


def _ended(world: World) -> list[tuple[Host, str]]:
    return [(host, uid) for host in world.api.hosts.values() for uid in host.given if not world.api.pods[uid].live]


def _not_admitted(world: World) -> list[Pod]:
    hosts = world.api.hosts
    return [pod for name in world.api.nodes for pod in world.api.bound.get(name, {}).values() if pod.uid not in hosts[name].given]


def _left(world: World, host: Host) -> list[str]:
    given = {gpu for gpus in host.given.values() for gpu in gpus}
    sick = world.api.nodes[host.name].sick
    return [gpu for i, gpu in enumerate(host.hardware.gpus) if gpu not in given and i not in sick]


def _forged(world: World, draw: Draw, node: str, request: Request) -> Shares:
    """Return GPUs that somebody would like to have: any of the node, taken or not, sometimes too few or of nowhere."""
    gpus = list(world.api.hosts[node].hardware.gpus)
    if chance(draw, 15):
        gpus = [f"GPU-nowhere-{i}" for i in range(len(gpus))]
    elif chance(draw, 20):
        gpus = [f"index:{i}" for i in range(len(gpus))]
    count = request.peak - 1 if chance(draw, 10) else request.peak
    return {"main": tuple(gpus.pop(draw.below(len(gpus))) for _ in range(count))}


POD_EVENTS = (
    Event(a_pod_is_created, 120, any_of(_our_names)),
    Event(another_scheduler_binds_a_pod, 12, any_of(_other_names)),
    Event(another_scheduler_binds_a_pod_of_ours, 3, any_of(_waiting)),
    Event(a_user_binds_a_pod_with_an_annotation_of_his_own, 4, any_of(_other_names)),
    Event(an_annotation_is_edited, 3, any_of(_bound)),
    Event(a_pod_changes_otherwise, 10, any_of(lambda world: world.api.live())),
    Event(a_pod_is_deleted, 34, any_of(lambda world: world.api.named)),
    Event(a_pod_finishes, 14, any_of(_bound)),
    Event(a_kubelet_admits_a_pod, 60, any_of(_not_admitted)),
    Event(a_kubelet_lets_devices_go, 30, any_of(_ended)),
)

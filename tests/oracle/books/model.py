"""The books as plain dictionaries: what the service should know after what it was told, written from the rules of the design.

Shares no code with the core. One method per message; each is told the same as the core. `changed` gathers the nodes
that may look different now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from tests.oracle.books.cluster_api import NodeSight, PodSight

__all__ = ["BOUND_STATES", "NOMINATION_S", "UNBOUND_STATES", "Entry", "Foreign", "Free", "Held", "Model", "Wants"]

UNBOUND_STATES = ("reserved", "doubtful")
BOUND_STATES = ("bound", "foreign")
YIELDING_STATES = (*UNBOUND_STATES, "nominated")

# Seconds for which GPUs are held for a pod that preemption makes room for.
NOMINATION_S = 300.0
# Seconds for which devices that no agent has told of stay held after their pod.
UNLISTED_S = 5.0

_HELD = "names a GPU that another pod holds"

# Session and number.
Attempt = tuple[int, int]


class Entry(NamedTuple):
    """What one pod holds.

    `how` says why the GPUs are those that they are. `room_since` is since when preemption makes room for the pod, None if
    it does not; `victims` are those that go for it. `rival` is the pod that keeps a GPU that this one names, too. `told`: the
    node's agent has reported its devices. `gang`: one of a group of another scheduler, whose other members are not known.
    """

    node: str
    state: str
    count: int  # type: ignore[assignment]
    gpus: frozenset[str]
    attempt: Attempt | None
    since: float
    how: str
    priority: int = 0
    gang: bool = False
    victims: tuple[str, ...] = ()
    room_since: float | None = None
    rival: str | None = None
    told: bool = False
    terminating: bool = False

    @property
    def leaving(self) -> bool:
        return self.state == "releasing" or self.terminating


class Wants(NamedTuple):
    """A pod that waits."""

    uid: str
    count: int  # type: ignore[assignment]
    priority: int


class Held(NamedTuple):
    """What a Resync says of one pod."""

    wants: Wants
    number: int
    node: str
    gpus: frozenset[str]
    doubtful: bool
    nominated: bool = False


class Free(NamedTuple):
    """What is free on a node. `gpus` are indices."""

    count: int  # type: ignore[assignment]
    gpus: frozenset[int]
    by_number: bool


class Foreign(NamedTuple):
    """A pod of our scheduler whose annotation does not count, why, and those who have GPUs that it names."""

    uid: str
    why: str
    holders: tuple[str, ...] = ()


@lru_cache(maxsize=1 << 10)
def _index(gpus: tuple[str, ...]) -> dict[str, int]:
    return {f"index:{i}": i for i in range(len(gpus))} | {gpu: i for i, gpu in enumerate(gpus)}


class Model:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.nodes: dict[str, NodeSight] = {}
        self.entries: dict[str, Entry] = {}
        self.on: dict[str, dict[str, Entry]] = {}
        self.dead: set[str] = set()
        self.ended: dict[str, Attempt] = {}
        self.seen: set[str] = set()
        self.early: dict[str, PodSight] = {}
        self.session = 0
        self.greeted: set[int] = set()
        self.changed: set[str] = set()
        # Annotations that do not count: the world has to judge them.
        self.foreign: list[Foreign] = []

    # -- nodes ----------------------------------------------------------------------------------------------------------

    def node_seen(self, sight: NodeSight, now: float) -> None:
        name, before = sight.name, self.nodes.get(sight.name)
        if name not in self.names:
            self.names.append(name)
        if sight.garbled:
            # An error is never an empty report.
            sight = sight._replace(report=before.report if before else None)
        if before == sight:
            return
        self.nodes[name] = sight
        self.changed.add(name)
        self._take_early(name, now)
        for uid, entry in list(self.on.get(name, {}).items()):
            self._follow(uid, entry, sight.report)

    def node_gone(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.changed.add(name)
            for uid, entry in list(self.on.get(name, {}).items()):
                if entry.state == "releasing":
                    self._drop(uid)

    def _take_early(self, name: str, now: float) -> None:
        for sight in sorted((s for s in self.early.values() if s.node == name), key=_binding_time):
            del self.early[sight.uid]
            self._bind(sight, now)

    def _follow(self, uid: str, entry: Entry, report: dict[str, tuple[str, ...]] | None) -> None:
        if report is not None and report.get(uid) and not entry.told:
            entry = entry._replace(told=True)
            self._put(uid, entry)
        if report is None or uid not in report:
            if entry.state == "releasing" and (report is None or entry.told):
                self._drop(uid)
        elif entry.state not in YIELDING_STATES and len(report[uid]) == entry.count and set(report[uid]) != entry.gpus:
            self._put(uid, entry._replace(gpus=frozenset(report[uid]), how="reported", rival=None))

    # -- pods -----------------------------------------------------------------------------------------------------------

    def pod_seen(self, sight: PodSight, now: float) -> None:
        if not sight.finished:
            self.seen.add(sight.uid)
        self.pod_read(sight, now)

    def pod_read(self, sight: PodSight, now: float) -> None:
        if sight.finished:
            self.pod_gone(sight.uid, now)
        elif sight.node is None:
            return
        elif sight.node not in self.nodes:
            if sight.uid in self.seen:
                self.early[sight.uid] = sight
            held = self.entries.get(sight.uid)
            if held is not None and held.state in YIELDING_STATES:
                self._drop(sight.uid)
        else:
            self._bind(sight, now)

    def pod_gone(self, uid: str, now: float) -> None:
        self.seen.discard(uid)
        self.early.pop(uid, None)
        self.dead.add(uid)
        self.ended.pop(uid, None)
        entry = self.entries.get(uid)
        if entry is None or entry.state == "releasing":
            return
        node = self.nodes.get(entry.node)
        report = node.report if node else None
        if report is not None and entry.state != "nominated" and uid in report:
            self._put(uid, entry._replace(state="releasing", since=now, how="gone", told=True))
        elif report is not None and entry.state in BOUND_STATES and not entry.told:
            self._put(uid, entry._replace(state="releasing", since=now, how="gone"))
        else:
            self._drop(uid)

    def time_passed(self, now: float) -> None:
        """Let go of the devices of gone pods that no agent has told of."""
        for uid, entry in list(self.entries.items()):
            if entry.state == "releasing" and not entry.told and now - entry.since > UNLISTED_S:
                self._drop(uid)

    def pods_listed(self, uids: AbstractSet[str], now: float) -> None:
        for uid in self.seen - uids:
            self.pod_gone(uid, now)

    def _bind(self, sight: PodSight, now: float) -> None:
        uid, node, entry = sight.uid, str(sight.node), self.entries.get(sight.uid)
        if uid in self.dead:
            return
        if entry is not None and entry.node == node and entry.state not in YIELDING_STATES:
            # What was first seen stands, but for this.
            if sight.terminating and not entry.terminating:
                self._put(uid, entry._replace(terminating=True))
            return
        gpus, foreign = self._believed(sight, node)
        if foreign is not None and sight.ours and not sight.claimed:
            self.foreign.append(foreign)
        for other in self._others_with(uid, node, gpus):
            if self.entries[other].state == "nominated":
                self._drop(other)
        how = "reported" if gpus and gpus == self._reported(uid, node, sight.count) else "bound"
        attempt, rival = entry.attempt if entry else None, foreign.holders[0] if foreign and foreign.why == _HELD else None
        state, gang = "foreign" if foreign else "bound", sight.gang and not sight.ours
        new = Entry(node, state, sight.count, gpus, attempt, now, how, sight.priority, gang)
        known = self.nodes.get(node)
        told = known is not None and uid in (known.report or {})
        self._put(uid, new._replace(rival=rival, told=told, terminating=sight.terminating))

    def _believed(self, sight: PodSight, node: str) -> tuple[frozenset[str], Foreign | None]:
        """Return the GPUs that a bound pod is taken to have, and why it is foreign."""
        if sight.claimed or not sight.ours:
            return frozenset(), Foreign(sight.uid, "is not ours")
        reported = self._reported(sight.uid, node, sight.count)
        gpus = reported or frozenset(sight.handles or ())
        if not reported and (foreign := self._distrust(sight, node, gpus)):
            return frozenset(), foreign
        known = self.nodes.get(node)
        if known is not None and known.gpus is not None:
            index = _index(known.gpus)
            if len({index[gpu] for gpu in gpus if gpu in index}) < len(gpus):
                return gpus, Foreign(sight.uid, "names GPUs that are not there")
        return gpus, None

    def _distrust(self, sight: PodSight, node: str, gpus: frozenset[str]) -> Foreign | None:
        """Return why the annotation of a pod does not count, None if it does."""
        uid = sight.uid
        if len(gpus) != sight.count:
            return Foreign(uid, "names another number of GPUs, or none")
        holders = tuple(u for u in self._others_with(uid, node, gpus) if self.entries[u].state in BOUND_STATES)
        if holders:
            return Foreign(uid, _HELD, holders)
        known = self.nodes.get(node)
        report = (known.report if known else None) or {}
        named = self._physical(known, gpus)
        others = tuple(u for u, theirs in report.items() if u != uid and named & self._physical(known, frozenset(theirs)))
        return Foreign(uid, "names a GPU that the agent reports of another pod", others) if others else None

    def _reported(self, uid: str, node: str, count: int) -> frozenset[str]:
        """Return what the node's agent says that the pod has, empty if it does not, or says another number."""
        known = self.nodes.get(node)
        gpus = (known.report or {}).get(uid, ()) if known else ()
        return frozenset(gpus) if len(gpus) == count else frozenset()

    # -- calls of the shim ----------------------------------------------------------------------------------------------

    def must_retry(self, attempt: Attempt, uid: str) -> bool:
        if not self.nodes or attempt[0] < self.session or attempt[0] not in self.greeted:
            return True
        if uid in self.dead or uid in self.early or attempt <= self.ended.get(uid, (0, 0)):
            return True
        entry = self.entries.get(uid)
        if entry is None or entry.state not in YIELDING_STATES:
            return entry is not None
        if entry.attempt is None or entry.attempt == attempt:
            return False
        # A newer session's view of the pod is late: what an older one reserved for it, it may have bound.
        unsettled = entry.state == "reserved" and entry.attempt[0] < attempt[0]
        return attempt < entry.attempt or entry.state == "doubtful" or unsettled

    def feasible(self, wants: Wants) -> set[str]:
        """Return the nodes that could take the pod now, but for what is held for nominated pods."""
        return {name for name in self.nodes if self._fits(name, wants.count)}

    def open_to(self, wants: Wants) -> tuple[str | None, set[str]]:
        """Return where room was made for the pod and is there by now, and where it could take that of pods of lower priority."""
        own, lower = None, set()
        for name in self.nodes:
            hidden = self.giving_way(name, wants)
            if hidden and self._fits(name, wants.count, hidden):
                if wants.uid in hidden:
                    own = name
                else:
                    lower.add(name)
        return own, lower

    def waits_for_room(self, uid: str, names: Collection[str]) -> bool:
        """Return whether room is being made for the pod on one of these nodes."""
        entry = self.entries.get(uid)
        return entry is not None and entry.state == "nominated" and entry.node in names

    def could_fit(self, names: Iterable[str], count: int) -> bool:
        """Return whether one of the nodes could take the pod if it were empty."""
        return any(count <= self.nodes[name].allocatable for name in names if name in self.nodes)

    def verdict_on_reserve(self, attempt: Attempt, wants: Wants, node: str) -> str:
        """Return ``retry``, ``again`` (the same answer as before), ``no`` or ``yes``."""
        if self.must_retry(attempt, wants.uid):
            return "retry"
        entry = self.entries.get(wants.uid)
        if entry is not None and entry.attempt == attempt and entry.node == node:
            return "again"
        own = {wants.uid} if entry is not None and entry.node == node else set()
        if self._fits(node, wants.count, own):
            return "yes"
        lower = self.giving_way(node, wants)
        return "yes" if self._fits(node, wants.count, own | lower) else "no"

    def reserved(self, attempt: Attempt, wants: Wants, node: str, gpus: frozenset[str], now: float) -> None:
        """Note what was chosen after ``yes``."""
        self.session = max(self.session, attempt[0])
        before = self.entries.get(wants.uid)
        victims, room_since = (before.victims, before.room_since) if before else ((), None)
        entry = Entry(node, "reserved", len(gpus), gpus, attempt, now, "chosen", wants.priority)
        self._put(wants.uid, entry._replace(victims=victims, room_since=room_since))

    def refused(self, wants: Wants) -> None:
        """Note that nothing was chosen after ``no``: what an earlier attempt had reserved is not held any longer."""
        entry = self.entries.get(wants.uid)
        if entry is not None and entry.state != "nominated":
            self._drop(wants.uid)

    def unreserve(self, attempt: Attempt, uid: str, now: float, *, unknown: bool) -> None:
        if attempt[0] < self.session:
            return
        self.session = attempt[0]
        if uid not in self.dead:
            self.ended[uid] = max(attempt, self.ended.get(uid, attempt))
        entry = self.entries.get(uid)
        if entry is None or entry.state not in UNBOUND_STATES or entry.attempt != attempt:
            return
        self._drop(uid)
        if unknown:
            self._put(uid, entry._replace(state="doubtful", since=now, how="lost"))
        elif entry.room_since is not None:
            self._put(uid, entry._replace(state="nominated", since=entry.room_since, how="room is made"))

    def resync(self, attempt: Attempt, held: Iterable[Held], rooms: dict[str, float], now: float) -> tuple[set[str], set[str]]:
        """Return the UIDs of what is to be read live, and of what others hold.

        `rooms` are the nominated pods that the service says it makes room for now, and since when: what the plugin tells
        of them is no promise, so the service may take it up or leave it.
        """
        said = list(held)
        if attempt[0] < self.session:
            return set(), {h.wants.uid for h in said}
        self.session = attempt[0]
        self.greeted.add(self.session)
        uids = {h.wants.uid for h in said if not h.nominated}
        conflicts = {h.wants.uid for h in said if not h.nominated and not self._adopt(attempt, h, now)}
        for room in (h for h in said if h.nominated):
            self._adopt_room(attempt, room, rooms.get(room.wants.uid))
        lost = {
            uid
            for uid, e in self.entries.items()
            if e.state in UNBOUND_STATES and uid not in uids and e.attempt is not None and e.attempt <= attempt
        }
        # A live read showed them, and no watch did: they may be gone.
        lost |= {uid for uid, e in self.entries.items() if e.state in BOUND_STATES and uid not in self.seen}
        return lost, conflicts

    def settled_unbound(self, uid: str, entry: Entry) -> None:
        """Note that a live read showed the pod without a node. `entry` is what it held when the read began."""
        if self.entries.get(uid) == entry:
            self._drop(uid)

    def _adopt(self, attempt: Attempt, held: Held, now: float) -> bool:
        """Return whether the pod may be bound with what is held for it."""
        uid, mine = held.wants.uid, (attempt[0], held.number)
        entry = self.entries.get(uid)
        if entry is not None and entry.state in UNBOUND_STATES and (entry.attempt or mine) < mine:
            self._drop(uid)
            entry = None
        if entry is not None and entry.state != "nominated":
            return entry.state not in UNBOUND_STATES or not self._bound_with(uid, entry.node, entry.gpus)
        if uid in self.early:
            return self.early[uid].node == held.node
        return self._take_up(held, mine, now)

    def _take_up(self, held: Held, mine: Attempt, now: float) -> bool:
        uid = held.wants.uid
        if held.node not in self.names:
            self.names.append(held.node)
        # Of a doubtful one the attempt has ended, and its Binding may land.
        if uid in self.dead or (not held.doubtful and mine <= self.ended.get(uid, (0, 0))):
            return False
        for other in self._others_with(uid, held.node, held.gpus):
            if self.entries[other].state == "nominated":
                self._drop(other)
        state = "doubtful" if held.doubtful else "reserved"
        self._put(uid, Entry(held.node, state, held.wants.count, held.gpus, mine, now, "taken up"))
        return not self._others_with(uid, held.node, held.gpus)

    def _adopt_room(self, attempt: Attempt, held: Held, since: float | None) -> None:
        uid, entry = held.wants.uid, self.entries.get(held.wants.uid)
        if since is None:
            if entry is not None and entry.state == "nominated":
                self._drop(uid)
        elif entry is None and held.node in self.names and uid not in self.dead and uid not in self.early:
            room = Entry(held.node, "nominated", held.wants.count, held.gpus, attempt, since, "room is made", held.wants.priority)
            self._put(uid, room._replace(room_since=since))

    # -- preemption -----------------------------------------------------------------------------------------------------

    def rooms(self) -> dict[str, Entry]:
        """Return what is held for nominated pods."""
        return {uid: entry for uid, entry in self.entries.items() if entry.state == "nominated"}

    def let_go(self, uid: str) -> None:
        """Note that nothing is held for a nominated pod any longer."""
        self._drop(uid)

    def verdict_on_preempt(self, attempt: Attempt, wants: Wants, names: Collection[str]) -> str:
        """Return what is to be answered: ``retry``, ``unschedulable`` or ``ok``."""
        if self.must_retry(attempt, wants.uid):
            return "retry"
        could = any(self._fits(name, wants.count, self._could_go(name, wants)) for name in names)
        return "ok" if could or self.standing_room(wants, names) else "unschedulable"

    def standing_room(self, wants: Wants, names: Collection[str]) -> Entry | None:
        """Return what is held for the pod on one of these nodes, None unless it is there when all that were named are gone."""
        room = self.rooms().get(wants.uid)
        if room is None or room.node not in names:
            return None
        gone = self.giving_way(room.node, wants) | self.leaving(room.node)
        return room if self._fits(room.node, wants.count, gone.union(room.victims)) else None

    def may_go(self, wants: Wants, node: str, victims: Collection[str]) -> bool:
        """Tell whether a pod may have these evicted."""
        return set(victims) <= self._evictable(node, wants)

    def may_get(self, uid: str, room: Entry) -> bool:
        """Tell whether all who have what is held for a nominated pod go, or could go for it."""
        wants = Wants(uid, room.count, room.priority)
        return self._could_go(room.node, wants).issuperset(self._others_with(uid, room.node, room.gpus))

    def free_without(self, wants: Wants, node: str, victims: Collection[str]) -> Free | None:
        """Return what is free for the pod when the victims are gone, and who is gone already."""
        return self.free(node, {wants.uid, *self.leaving(node), *victims})

    def would_fit(self, wants: Wants, node: str, gone: Collection[str]) -> bool:
        """Tell whether the pod would fit if it were not for these."""
        return self._fits(node, wants.count, {wants.uid, *gone})

    def nominated(self, wants: Wants, room: Entry) -> None:
        """Note what is held for a pod from now on; what an earlier attempt had reserved is not."""
        self._put(wants.uid, room)

    def giving_way(self, name: str, wants: Wants) -> set[str]:
        """Return those nominated pods on the node whose GPUs the pod may have: of lower priority, and itself."""
        return {
            uid
            for uid, e in self.on.get(name, {}).items()
            if e.state == "nominated" and (uid == wants.uid or e.priority < wants.priority)
        }

    def _could_go(self, name: str, wants: Wants) -> set[str]:
        own = self.entries.get(wants.uid)
        mine = {wants.uid} if own and own.node == name else set()
        return self.leaving(name) | mine | self._evictable(name, wants) | self.giving_way(name, wants)

    def leaving(self, name: str) -> set[str]:
        """Return the pods on the node that are gone or end."""
        return {uid for uid, e in self.on.get(name, {}).items() if e.leaving}

    def _evictable(self, name: str, wants: Wants) -> set[str]:
        here = self.on.get(name, {})
        bound = {uid for uid, e in here.items() if e.state in BOUND_STATES and not e.gang and not e.terminating}
        return {uid for uid in bound if here[uid].priority < wants.priority}

    # -- what is free ---------------------------------------------------------------------------------------------------

    def free(self, name: str, hidden: Collection[str] = ()) -> Free | None:
        """Return what is free on the node if it were not for these pods, None if there is no such node."""
        node = self.nodes.get(name)
        if node is None:
            return None
        entries = {uid: e for uid, e in self.on.get(name, {}).items() if uid not in hidden}
        report = {uid: gpus for uid, gpus in (node.report or {}).items() if uid not in hidden or self._stays(uid)}
        if node.gpus is None:
            counts = {uid: len(gpus) for uid, gpus in report.items()} | {uid: e.count for uid, e in entries.items()}
            return Free(max(0, node.allocatable - sum(counts.values())), frozenset(), by_number=True)
        index = _index(node.gpus)
        held: set[int] = set()
        lost = bound = 0
        for uid in {*entries, *report}:
            entry = entries.get(uid)
            named = {*report.get(uid, ()), *(entry.gpus if entry else ())}
            count = entry.count if entry else len(report[uid])
            located = {index[gpu] for gpu in named if gpu in index}
            lost += max(0, count - len(located))
            # What is held for a nominated pod may be what its victims still have.
            bound += len(located) if entry is None or entry.state != "nominated" else 0
            held |= located
        # Two that name one GPU: one of them has another.
        lost += max(0, bound - len(held))
        healthy = len(node.gpus) - len(node.sick)
        free = frozenset(i for i in range(len(node.gpus)) if i not in node.sick and i not in held)
        by_count = max(0, node.allocatable - lost - len(held))
        return Free(min(len(free), by_count), free, by_number=lost > 0 or node.allocatable < healthy)

    def _stays(self, uid: str) -> bool:
        """Tell whether what the agent reports of a pod that is hidden has to count all the same."""
        entry = self.entries.get(uid)
        # What it has is not what is held for it here: somebody else has bound it.
        return entry is not None and entry.state in YIELDING_STATES

    def _fits(self, name: str, count: int, hidden: Collection[str] = ()) -> bool:
        node, free = self.nodes.get(name), self.free(name, hidden)
        return node is not None and free is not None and 0 < count <= node.allocatable and count <= free.count

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _others_with(self, uid: str, node: str, gpus: frozenset[str]) -> list[str]:
        """Return who else on the node holds one of these GPUs, under whichever name."""
        known = self.nodes.get(node)
        wanted = self._physical(known, gpus)
        return [
            other
            for other, entry in self.on.get(node, {}).items()
            if other != uid and entry.state != "releasing" and wanted & self._physical(known, entry.gpus)
        ]

    def _bound_with(self, uid: str, node: str, gpus: frozenset[str]) -> bool:
        return any(self.entries[other].state in BOUND_STATES for other in self._others_with(uid, node, gpus))

    def _physical(self, node: NodeSight | None, gpus: frozenset[str]) -> frozenset[str]:
        """Return the GPUs under the one name that each of them has on this node."""
        if node is None or node.gpus is None:
            return gpus
        index = _index(node.gpus)
        return frozenset(f"index:{index[gpu]}" if gpu in index else gpu for gpu in gpus)

    def _put(self, uid: str, entry: Entry) -> None:
        self._drop(uid)
        self.entries[uid] = entry
        self.on.setdefault(entry.node, {})[uid] = entry
        self.changed.add(entry.node)

    def _drop(self, uid: str) -> None:
        entry = self.entries.pop(uid, None)
        if entry is not None:
            del self.on[entry.node][uid]
            self.changed.add(entry.node)


def _binding_time(sight: PodSight) -> tuple[bool, float, str]:
    """Return the order in which pods are told; who has no date was not bound by a Binding."""
    return sight.bound_at == 0.0, sight.bound_at, sight.uid

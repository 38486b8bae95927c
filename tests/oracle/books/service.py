"""The service: a planner and a cluster of the core, told what the adapters would tell them, in the adapters' order.

The model is told the same. After each message both must say the same: verdicts, what each pod holds, what is free.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import Attempt, Code, PodUid, binding_order
from pyscheduler.core.planner import Planner
from pyscheduler.core.refusals import Eligible
from pyscheduler.core.replies import FilterAnswer, HeldByShim
from tests.builders import OURS
from tests.oracle.books.cluster_api import Api, NodeTold, Pod, PodTold
from tests.oracle.books.model import NOMINATION_S, UNBOUND_STATES, Entry, Free, Held, Model, Wants

__all__ = ["Orphan", "Preempted", "Reserved", "Service", "Violation", "demand", "wants_of"]


class Violation(AssertionError):
    """The books broke a promise: `promise` says which, in words that are the same each time."""

    def __init__(self, promise: str, *values: object) -> None:
        super().__init__(promise.format(*values))
        self.promise = promise


def demand(promise: bool, broken: str, *values: object) -> None:
    """Raise a `Violation` unless the promise holds; `broken` is a template for the values."""
    if not promise:
        raise Violation(broken, *values)


class Reserved(NamedTuple):
    """The answer to a Reserve. `shares` are container to handles, empty on refusal; `fresh` if they were chosen just now."""

    code: Code
    shares: dict[str, tuple[str, ...]]
    fresh: bool


class Preempted(NamedTuple):
    """The answer to a Preempt. `node` is empty on refusal, `gpus` where it is not known which are free."""

    code: Code
    node: str
    victims: tuple[str, ...]
    gpus: tuple[str, ...]


class Orphan(NamedTuple):
    """A reservation that is to be read live, as the books and as the model have it."""

    holding: Holding
    entry: Entry


class LiveRead(NamedTuple):
    """What a live read of an orphan has shown; `pod` is None where it is gone. Not told to the core yet."""

    orphan: Orphan
    pod: PodTold | None


class Service:
    """One run of the service, from its first lists on.

    Parameters
    ----------
    number
        Counts the runs; the epoch of the node table.
    api
        The API server.
    names
        The nodes in the order of the list.
    unjudged
        Those of them whose GPUs are not judged yet: they become known by `judge`.

    """

    def __init__(self, number: int, api: Api, names: Iterable[str], unjudged: AbstractSet[str]) -> None:
        self.number = number
        self._api = api
        self.planner = Planner(Cluster(epoch=number, scheduler_name=OURS), version="test")
        self.model = Model()
        self.unjudged: dict[str, NodeTold | None] = dict.fromkeys(unjudged)
        self.orphans: list[Orphan] = []
        self.reads: list[LiveRead] = []
        # What is still to be told of a list that was read while the service ran, one step after the other.
        self._node_steps: deque[Callable[[], None]] = deque()
        self._pod_steps: deque[Callable[[], None]] = deque()
        self._node_position = self._pod_position = 0
        self._states: dict[str, object] = {}
        # Until when room was held for a pod, as far as is known.
        self._had_room: dict[str, float] = {}
        self.list_nodes(names)
        self.list_pods()
        self.tell_nodes(len(self._node_steps))
        self.tell_pods(len(self._pod_steps))

    # -- what the watches show ------------------------------------------------------------------------------------------

    @property
    def nodes_behind(self) -> int:
        return len(self._node_steps) + len(self._api.node_log) - self._node_position

    @property
    def pods_behind(self) -> int:
        return len(self._pod_steps) + len(self._api.pod_log) - self._pod_position

    def list_nodes(self, names: Iterable[str]) -> None:
        """Read the full list of nodes, in this order, in place of what the watch had still to tell."""
        listed = [self._api.nodes[name].told() for name in names]
        self._node_position = len(self._api.node_log)
        self._node_steps = deque([_step(self._tell_node, told) for told in listed])
        self._node_steps.append(lambda: self._forget_nodes({told.name for told in listed}))

    def list_pods(self) -> None:
        """Read the full list of live pods, in place of what the watch had still to tell."""
        listed = [pod.told() for pod in self._api.live()]
        self._pod_position = len(self._api.pod_log)
        # As the adapter sorts them.
        ordered = sorted(((binding_order(told.facts), told) for told in listed if told.facts), key=lambda pair: pair[0])
        self._pod_steps = deque([_step(self._tell_pod, told) for _, told in ordered])
        self._pod_steps.append(lambda: self._forget_pods({told.uid for told in listed}))

    def tell_nodes(self, count: int) -> None:
        for _ in range(min(count, self.nodes_behind)):
            if self._node_steps:
                self._node_steps.popleft()()
            else:
                self._node_position += 1
                self._tell_node(self._api.node_log[self._node_position - 1])
            self.check()

    def tell_pods(self, count: int) -> None:
        for _ in range(min(count, self.pods_behind)):
            if self._pod_steps:
                self._pod_steps.popleft()()
            else:
                self._pod_position += 1
                self._tell_pod(self._api.pod_log[self._pod_position - 1])
            self.check()

    def judge(self, name: str) -> None:
        """The GPUs of a node that waited for it are judged now."""
        told = self.unjudged.pop(name)
        if told is not None:
            self._tell_node(told)
        self.check()

    def _tell_node(self, told: NodeTold) -> None:
        if told.facts is None or told.sight is None:
            if told.name in self.unjudged:
                self.unjudged[told.name] = None
            self.planner.cluster.forget_node(told.name)
            self.model.node_gone(told.name)
        elif told.name in self.unjudged:
            self.unjudged[told.name] = told
        else:
            self.planner.cluster.observe_node(told.facts, self._api.now)
            self.model.node_seen(told.sight, self._api.now)

    def _forget_nodes(self, listed: AbstractSet[str]) -> None:
        self.planner.cluster.forget_other_nodes(listed)
        for name in set(self.model.nodes) - listed:
            self.model.node_gone(name)
        self.unjudged.update(dict.fromkeys(set(self.unjudged) - listed))

    def _tell_pod(self, told: PodTold) -> None:
        if told.facts is None or told.sight is None:
            self.planner.cluster.forget_pod(PodUid(told.uid), self._api.now)
            self.model.pod_gone(told.uid, self._api.now)
        else:
            self.planner.cluster.observe_pod(told.facts, self._api.now)
            self.model.pod_seen(told.sight, self._api.now)

    def _forget_pods(self, listed: AbstractSet[str]) -> None:
        self.planner.cluster.forget_other_pods({PodUid(uid) for uid in listed}, self._api.now)
        self.model.pods_listed(listed, self._api.now)

    # -- calls of the shim ----------------------------------------------------------------------------------------------

    def filter(self, attempt: Attempt, pod: Pod, eligible: Sequence[str]) -> tuple[Code, list[str]]:
        """Return the verdict, and the names of the candidates, best first."""
        cluster, wants = self.planner.cluster, wants_of(pod)
        self._expire()
        answer = self.planner.filter(attempt, pod.waits, Eligible(self._bits(eligible), len(cluster.table)), self._api.now)
        found = [cluster.table.names[candidate.node] for candidate in answer.candidates]
        self._follow_rooms(set())
        if self.model.must_retry((attempt.session, attempt.number), pod.uid):
            code = Code.RETRY
        else:
            code = self._check_verdict(wants, eligible, found, answer)
        demand(answer.verdict.code is code, "Filter of {} answered {}, and {} was due", pod.uid, answer.verdict, code)
        self.check()
        return code, found

    def _check_verdict(self, wants: Wants, eligible: Sequence[str], found: list[str], answer: FilterAnswer) -> Code:
        """Check the candidates, and return the code that was due."""
        own, lower = self.model.open_to(wants)
        free = self.model.feasible(wants)
        due = free & set(eligible) | ({own} & set(eligible)) or lower & set(eligible)
        demand(set(found) == due, "candidates are {}, and what fits is {}", found, due)
        demand(own not in found or found[0] == own, "candidates are {}, and room was made on {}", found, own)
        could = free | lower | ({own} if own else set())
        never = {name for name in self.model.names if not self.model.could_fit([name], wants.count)}
        if never == set(self.model.names):
            # No node of the cluster is large enough: none is looked at.
            could, never = set(), set()
        feasible, unresolvable = self._names(answer.feasible), self._names(answer.unresolvable)
        demand(feasible == could, "feasible are {}, not {}", feasible, could)
        demand(unresolvable == never, "never feasible are {}, not {}", unresolvable, never)
        if due:
            return Code.OK
        curable = self.model.waits_for_room(wants.uid, eligible) or self.model.could_fit(eligible, wants.count)
        return Code.UNSCHEDULABLE if curable else Code.UNRESOLVABLE

    def reserve(self, attempt: Attempt, pod: Pod, node: str) -> Reserved:
        number, wants, model = (attempt.session, attempt.number), wants_of(pod), self.model
        due, giving_way = model.verdict_on_reserve(number, wants, node), model.giving_way(node, wants)
        answer = self.planner.reserve(attempt, pod.waits, self._index(node), self._api.now)
        codes = {"retry": Code.RETRY, "no": Code.UNSCHEDULABLE}
        demand(
            answer.verdict.code is codes.get(due, Code.OK), "Reserve of {} answered {}; due was {}", pod.uid, answer.verdict, due
        )
        said = json.loads(dict(answer.annotations).get("pyscheduler.io/gpus", "{}"))
        shares = {name: tuple(share) for name, share in said.items()}
        gpus = frozenset(gpu for share in shares.values() for gpu in share)
        if due == "yes":
            self._check_need(wants, node, ())
        self._follow_rooms({*giving_way, pod.uid} if due == "yes" else set())
        if due == "yes":
            self._check_choice(node, gpus, pod.uid)
            model.reserved(number, wants, node, gpus, self._api.now)
        elif due == "no":
            model.refused(wants)
        elif due == "again" and model.entries[pod.uid].how == "chosen":
            demand(gpus == model.entries[pod.uid].gpus, "a repeated Reserve of {} gave {}", pod.uid, sorted(gpus))
        self.check()
        return Reserved(answer.verdict.code, shares, due == "yes")

    def preempt(self, attempt: Attempt, pod: Pod, nodes: Sequence[str], protected: AbstractSet[str]) -> Preempted:
        number, wants, model = (attempt.session, attempt.number), wants_of(pod), self.model
        self._expire()
        room, uids = model.standing_room(wants, nodes), {PodUid(uid) for uid in protected}
        due = model.verdict_on_preempt(number, wants, nodes)
        answer = self.planner.preempt(attempt, pod.waits, self._bits(nodes), uids, self._api.now)
        code, found = answer.verdict.code, answer.proposal
        demand(code.value == due, "Preempt of {} answered {}; due was {}", pod.uid, answer, due)
        if found is None:
            if code is Code.UNSCHEDULABLE:
                model.refused(wants)
            self._follow_rooms({pod.uid} if code is Code.UNSCHEDULABLE else set())
            self.check()
            return Preempted(code, "", (), ())
        node = self.planner.cluster.table.names[found.node]
        # Those that were named for what does not do any more need not go.
        before = set(room.victims) if room else set()
        demand(node in nodes, "Preempt of {} names {}, which it was not asked about", pod.uid, node)
        stands = room is None or (node == room.node and before.issuperset(found.victims))
        demand(stands, "{} was to get {}, and now {} go from {}", pod.uid, room, found.victims, node)
        demand(model.may_go(wants, node, set(found.victims) - before), "{} may not have {} evicted", pod.uid, found.victims)
        if found.victims or not before:
            # Who was named before may stay after all: where the pod fits without, others give way instead.
            self._check_need(wants, node, before.union(found.victims, model.leaving(node)))
        self._follow_rooms({*model.giving_way(node, wants), pod.uid})
        self._check_room(model.free_without(wants, node, before.union(found.victims)), wants, node, found.gpus)
        model.nominated(wants, self._room(pod, number, node, frozenset(found.gpus)))
        self.check()
        return Preempted(code, node, found.victims, found.gpus)

    def wake(self) -> None:
        """Ask which refused pods to wake, as is done five times a second."""
        self._expire()
        self.check()

    # -- what is held for nominated pods --------------------------------------------------------------------------------

    def _expire(self) -> None:
        self.planner.wake(self._api.now)
        self.model.time_passed(self._api.now)
        for uid, room in self.model.rooms().items():
            if self._api.now - room.since > NOMINATION_S:
                self.model.let_go(uid)

    def _follow_rooms(self, may_end: AbstractSet[str]) -> None:
        """Follow the books in which nominated pods lost what was held for them. Others than these keep it for their time."""
        for uid, room in self.model.rooms().items():
            if self._has_lost_room(uid):
                expired = self._api.now - room.since > NOMINATION_S
                demand(expired or uid in may_end, "what was held for {} is not held any longer: {}", uid, room)
                if uid not in may_end or self.planner.cluster.ledger.get(PodUid(uid)) is None:
                    self.model.let_go(uid)

    def _has_lost_room(self, uid: str) -> bool:
        held = self.planner.cluster.ledger.get(PodUid(uid))
        return held is None or held.state is not HoldingState.NOMINATED

    def _check_need(self, wants: Wants, node: str, going: Collection[str]) -> None:
        """No nominated pod lost what was held for it that could have kept it beside what this one got."""
        lost = {uid for uid in self.model.giving_way(node, wants) - {wants.uid} if self._has_lost_room(uid)}
        for uid in lost:
            needed = not self.model.would_fit(wants, node, {*going, *lost} - {uid})
            demand(needed, "{} got GPUs on {}, and {} lost what was held for it without need", wants, node, uid)

    def _room(self, pod: Pod, number: tuple[int, int], node: str, gpus: frozenset[str]) -> Entry:
        """Return what is held for a pod after its Preempt. On the same node it keeps its time, or begins anew."""
        held, before = self.planner.cluster.ledger.get(PodUid(pod.uid)), self.model.rooms().get(pod.uid)
        assert held is not None
        since = {self._api.now} | ({before.since} if before and before.node == node else set())
        demand(held.since in since, "what is held for {} is so since {}", pod.uid, held.since)
        room = Entry(node, "nominated", pod.request.peak, gpus, number, held.since, "room is made", pod.priority)
        return room._replace(victims=tuple(held.victims), room_since=held.since)

    def unreserve(self, attempt: Attempt, uid: str, *, unknown: bool) -> None:
        self.planner.unreserve(attempt, PodUid(uid), bound_unknown=unknown, now=self._api.now)
        self.model.unreserve((attempt.session, attempt.number), uid, self._api.now, unknown=unknown)
        self.check()

    def resync(self, attempt: Attempt, held: Sequence[HeldByShim], said: Sequence[Held]) -> set[str]:
        """Return the UIDs of the pods whose GPUs others hold. What the shim no longer knows is read live later."""
        answer = self.planner.resync(attempt, held, self._api.now)
        before = dict(self.model.entries)
        rooms: dict[str, float] = {h.uid: h.since for h in self.planner.cluster.ledger.nominated()}
        # What the plugin holds takes the place of what is held for nominated pods.
        self._follow_rooms(set(self.model.rooms()))
        orphans, conflicts = self.model.resync((attempt.session, attempt.number), said, rooms, self._api.now)
        demand({o.uid for o in answer.orphans} == orphans, "orphans are {}, due {}", [o.uid for o in answer.orphans], orphans)
        nominated = {held.wants.uid for held in said if held.nominated}
        found = {str(uid) for uid in answer.conflicts}
        demand(found - nominated == conflicts - nominated, "conflicts are {}, due {}", found, conflicts)
        conflicts |= found
        self.orphans += [Orphan(holding, before[holding.uid]) for holding in answer.orphans]
        for uid, room in self.model.rooms().items():
            if uid not in before:
                demand(self.model.may_get(uid, room), "room is taken up for {}, and others stay there: {}", uid, room)
                ended = self._api.now - self._had_room.get(uid, -NOMINATION_S) < NOMINATION_S
                demand(not ended, "room that has ended is taken up again for {}", uid)
        self.check()
        return conflicts

    # -- live reads of what the shim no longer knows --------------------------------------------------------------------

    def read_live(self, number: int) -> None:
        orphan = self.orphans.pop(number)
        pod = self._api.read(orphan.holding.uid)
        self.reads.append(LiveRead(orphan, None if pod is None else PodTold(pod.uid, pod.facts(), pod.sight())))

    def settle(self, number: int) -> None:
        (holding, entry), pod = self.reads.pop(number)
        now = self._api.now
        if pod is None or pod.facts is None or pod.sight is None:
            self.planner.cluster.forget_pod(holding.uid, now)
            self.model.pod_gone(holding.uid, now)
        elif pod.sight.node or pod.sight.finished:
            self.planner.cluster.settle_pod(pod.facts, now)
            self.model.pod_read(pod.sight, now)
        else:
            self.planner.settle_orphan(holding)
            self.model.settled_unbound(holding.uid, entry)
        self.check()

    # -- what both must say ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare the books with the model: all holdings, and the nodes that changed."""
        model, cluster = self.model, self.planner.cluster
        names = cluster.table.names
        holdings = cluster.ledger.holdings()
        if len(holdings) != len(model.entries) or not all(self._alike(names[h.node], h) for h in holdings):
            raise Violation("the books hold {}\nand should hold {}", sorted(map(self._shown, holdings)), sorted(_told(model)))
        rivals = {held.uid: held.rival for held in cluster.ledger.conflicts()}
        live = {uid for uid, entry in model.entries.items() if entry.state != "releasing"}
        due = {uid: entry.rival for uid, entry in model.entries.items() if entry.rival in live}
        demand(rivals == due, "in conflict are {}, due {}", rivals, due)
        demand(names == model.names, "the table has {}, and the nodes came as {}", names, model.names)
        for index, name in enumerate(names):
            state = cluster.state(index)
            if state is self._states.get(name) and name not in model.changed:
                continue
            self._states[name] = state
            free = model.free(name)
            demand(state.present == (free is not None), "{} is {}, the books say otherwise", name, "there" if free else "gone")
            if free is not None:
                mask = frozenset(i for i in range(state.free_mask.bit_length()) if state.free_mask >> i & 1)
                seen = (state.free, mask, state.count_only)
                demand(seen == free, "of {} free is {} by the books and should be {}: {}", name, seen, free, model.on.get(name))
                self._check_balance(name)
                self._check_once(name)
        model.changed.clear()
        self._had_room.update({uid: self._api.now for uid, entry in model.entries.items() if entry.room_since is not None})

    def _alike(self, node: str, held: Holding) -> bool:
        entry = self.model.entries.get(held.uid)
        if entry is None or (entry.node, entry.state, entry.count) != (node, held.state.value, held.count):
            return False
        if entry.terminating != held.terminating:
            return False
        if entry.gpus != frozenset(held.gpus) or len(entry.gpus) != len(held.gpus):
            return False
        if entry.state not in UNBOUND_STATES:
            return True
        return held.attempt is not None and entry.attempt == (held.attempt.session, held.attempt.number)

    def _shown(self, h: Holding) -> tuple[object, ...]:
        attempt = (h.attempt.session, h.attempt.number) if h.attempt and h.state.value in UNBOUND_STATES else ()
        return h.uid, self.planner.cluster.table.names[h.node], h.state.value, h.count, tuple(sorted(h.gpus)), attempt

    def _check_choice(self, node: str, gpus: frozenset[str], uid: str) -> None:
        """Nothing that somebody else is known to hold is given out, and nothing that is not there."""
        known, free = self.model.nodes[node], self.model.free(node, {uid} & self.model.on.get(node, {}).keys())
        taken = {gpu for other, entry in self.model.on.get(node, {}).items() if other != uid for gpu in entry.gpus}
        demand(taken.isdisjoint(gpus), "{} of {} is held already", sorted(gpus & taken), node)
        if known.gpus is None:
            demand(gpus <= {f"index:{i}" for i in range(known.allocatable)}, "{} has no {}", node, sorted(gpus))
        else:
            there = {known.gpus[i] for i in (free.gpus if free else ())}
            demand(gpus <= there, "{} of {} is not free", sorted(gpus - there), node)

    def _check_room(self, free: Free | None, wants: Wants, node: str, gpus: Sequence[str]) -> None:
        """What is held for a nominated pod is enough, and nobody has it but those that go."""
        demand(free is not None and free.count >= wants.count, "room is made for {} on {}, and will be {}", wants, node, free)
        known = self.model.nodes[node].gpus
        if gpus:
            there = {known[i] for i in free.gpus} if free and known else set()
            demand(len(set(gpus)) == wants.count and there >= set(gpus), "{} of {} are held, free will be {}", gpus, node, there)

    def _check_balance(self, name: str) -> None:
        """Free and held GPUs make up the healthy ones, where it is known which are free; else the numbers add up."""
        node, free = self.model.nodes[name], self.model.free(name)
        entries, report = self.model.on.get(name, {}), node.report or {}
        assert free is not None
        if node.gpus is None or free.by_number or report or any(entry.state == "nominated" for entry in entries.values()):
            return
        held = {gpu for entry in entries.values() for gpu in entry.gpus}
        sick = {node.gpus[i] for i in node.sick} | {f"index:{i}" for i in node.sick}
        if held.isdisjoint(sick) and node.allocatable == len(node.gpus) - len(node.sick):
            count = sum(entry.count for entry in entries.values())
            demand(free.count == max(0, node.allocatable - count), "{}: {} free, {} held", name, free.count, count)

    def _check_once(self, name: str) -> None:
        """No two bound pods have one GPU, unless the node's agent says so."""
        entries = self.model.on.get(name, {}).values()
        named = [gpu for e in entries if e.state == "bound" and e.how != "reported" for gpu in e.gpus]
        demand(len(named) == len(set(named)), "a GPU of {} is held twice: {}", name, self.model.on.get(name))

    def _bits(self, names: Iterable[str]) -> int:
        return sum(1 << self._index(name) for name in names)

    def _index(self, name: str) -> int:
        index = self.planner.cluster.table.index_of(name)
        assert index is not None
        return index

    def _names(self, bits: int) -> set[str]:
        names = self.planner.cluster.table.names
        return {names[i] for i in range(bits.bit_length()) if bits >> i & 1}


def wants_of(pod: Pod) -> Wants:
    return Wants(pod.uid, pod.request.peak, pod.priority)


def _step(tell: Callable[..., None], told: object) -> Callable[[], None]:
    return lambda: tell(told)


def _told(model: Model) -> Iterable[tuple[object, ...]]:
    for uid, e in model.entries.items():
        attempt = e.attempt if e.state in UNBOUND_STATES else ()
        yield uid, e.node, e.state, e.count, tuple(sorted(e.gpus)), attempt


assert {state.value for state in HoldingState} >= {*UNBOUND_STATES, "bound", "foreign", "releasing", "nominated"}

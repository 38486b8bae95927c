"""Preemption under any order of calls: nothing is given twice, taken from those that wait, held for ever, or waited for in vain.

The planner against an API server that is a dictionary, and a scheduler that may be slow, forgetful or wrong about its
claims. At the end of each run the scheduler does its duty: then nobody may wait who could go on, and when all pods are
gone all GPUs are free.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyscheduler.core.evictions.search import propose
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import Code, NodeFacts, PodFacts, PodRequest, PodUid, binding_order
from pyscheduler.core.nominations import NOMINATION_S
from pyscheduler.core.replies import HeldByShim
from pyscheduler.core.request import Shape
from pyscheduler.core.settings import shape_of_pod
from tests.builders import ALL, GPU, attempt, bound, node, planner, pod

# The agent of the first reports who has which GPU; of the last only the number of GPUs is known.
NODES = {"a": "hgx-h100", "b": "a100-pcie-bridged", "c": None}
REPORTING = ("a",)
SIZES = {"a": 8, "b": 4, "c": 4}
WISHES: tuple[dict[str, str], ...] = ({}, {}, {}, {"max-link": "NV12"}, {"same-numa": "true"})
FIXED = (HoldingState.RESERVED, HoldingState.DOUBTFUL, HoldingState.BOUND)

EVERYWHERE = 0b111
numbers = st.integers(1, 14)
subsets = st.sampled_from([EVERYWHERE, EVERYWHERE, EVERYWHERE, 0b101, 0b001])
outcomes = st.sampled_from(["bound", "bound", "refused", "lost"])


@dataclass
class Reserved:
    """What the scheduler has for a pod whose Binding is not settled."""

    number: int
    on: str
    gpus: tuple[str, ...]
    doubtful: bool = False


@dataclass
class First:
    """The first answer of a hold that stands: only these pods may be named again."""

    node: int
    victims: frozenset[PodUid]
    since: float


class Preempting(RuleBasedStateMachine):
    @initialize(
        filled=st.lists(st.tuples(st.sampled_from([1, 1, 2, 4]), st.sampled_from([0, 0, 5, 25])), min_size=6, max_size=14)
    )
    def start(self, filled: list[tuple[int, int]]) -> None:
        self.now, self.number, self.born = 0.0, 0, 0
        # Pods that wait, by the number of their kind; and all that are there, by name.
        self.current: dict[int, PodRequest] = {}
        self.waiting: dict[str, PodRequest] = {}
        self.reserved: dict[str, Reserved] = {}
        # The truth: who runs, on which GPUs; who is being deleted; whose GPUs are not released.
        self.bound: dict[str, PodFacts] = {}
        self.devices: dict[str, tuple[str, ...]] = {}
        self.untold: list[PodFacts] = []
        self.leaving: set[str] = set()
        self.unreleased: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.sick: dict[str, tuple[int, ...]] = {}
        # By pod, the nodes that its last call for an eviction named, and what the scheduler thinks is held.
        self.asked: dict[str, int] = {}
        self.claims: dict[str, HeldByShim] = {}
        self.first: dict[PodUid, First] = {}
        # Pods that the scheduler tries again without being told.
        self.retried: set[str] = set()
        self._new_service()
        for self.born, (gpus, priority) in enumerate(filled, 1):
            self._run(pod(f"r{self.born}", gpus, priority=priority), EVERYWHERE, carried_out=False, outcome="bound")
        self.watch_tells(100)

    # -- what happens -----------------------------------------------------------------------------------------------

    @rule(
        number=numbers, among=subsets, carried_out=st.booleans(), outcome=st.sampled_from(["bound", "bound", "refused", "lost"])
    )
    def try_pod(self, number: int, among: int, carried_out: bool, outcome: str) -> None:
        if number not in self.current:
            self.born += 1
            name = f"p{self.born}"
            gpus = (1, 2, 2, 4, 4, 8)[number % 6]
            wanted = pod(name, gpus, priority=number // 3 * 10, settings=WISHES[number % 5])
            self.current[number] = self.waiting[name] = wanted
        name = self.current[number].name
        if name in self.waiting and name not in self.reserved:
            self._cycle(self.waiting[name], among, carried_out, outcome)

    @rule(data=st.data(), outcome=outcomes)
    def try_nominated_pod(self, data: st.DataObject, outcome: str) -> None:
        nominated = sorted(held.name for held in self._holds() if held.name in self.waiting)
        if nominated:
            wanted = self.waiting[data.draw(st.sampled_from(nominated))]
            self._cycle(wanted, EVERYWHERE, carried_out=True, outcome=outcome)

    @rule()
    def evicted_pods_end(self) -> None:
        for name in sorted(self.leaving):
            self._end(name, released=True)

    @rule(on=st.sampled_from(sorted(NODES)), gpus=st.integers(1, 4), priority=st.sampled_from([0, 15, 100]), gang=st.booleans())
    def another_scheduler_binds(self, on: str, gpus: int, priority: int, gang: bool) -> None:
        devices = self._unused(on)[:gpus]
        if len(devices) == gpus:
            self.born += 1
            facts = bound(f"f{self.born}", on, gpus, None, scheduler="other", priority=priority, gang=gang, bound_at=self.now)
            self.bound[facts.name], self.devices[facts.name] = facts, devices
            self.untold.append(facts)

    @rule(count=st.integers(1, 5))
    def watch_tells(self, count: int) -> None:
        for facts in self.untold[:count]:
            self._see(facts)
        del self.untold[:count]

    @rule(data=st.data(), released=st.booleans())
    def evicted_pod_ends(self, data: st.DataObject, released: bool) -> None:
        if self.leaving:
            self._end(data.draw(st.sampled_from(sorted(self.leaving))), released=released)

    @rule(data=st.data(), released=st.booleans())
    def pod_ends(self, data: st.DataObject, released: bool) -> None:
        if self.bound:
            self._end(data.draw(st.sampled_from(sorted(self.bound))), released=released)

    @rule(number=numbers)
    def waiting_pod_is_deleted(self, number: int) -> None:
        wanted = self.current.get(number)
        if wanted is not None and wanted.name in self.waiting and wanted.name not in self.reserved:
            self._forget(wanted.name)

    @rule(on=st.sampled_from(REPORTING))
    def agent_reports(self, on: str) -> None:
        self.unreleased = {name: what for name, what in self.unreleased.items() if what[0] != on}
        self._observe(on)

    @rule(on=st.sampled_from(["a", "b"]), sick=st.sampled_from([(), (), (0,), (1, 2)]))
    def health_changes(self, on: str, sick: tuple[int, ...]) -> None:
        self.sick[on] = sick
        self._observe(on)

    @rule(on=st.sampled_from(sorted(NODES)))
    def node_goes_and_comes_back(self, on: str) -> None:
        self.planner.cluster.forget_node(on)
        self._observe(on)

    @rule(data=st.data())
    def live_read_settles_a_doubt(self, data: st.DataObject) -> None:
        doubtful = sorted(name for name, held in self.reserved.items() if held.doubtful)
        if doubtful:
            self._settle(data.draw(st.sampled_from(doubtful)))

    @rule()
    def shim_resyncs(self) -> None:
        if not self.number:
            return
        said = [
            HeldByShim(self.waiting[name], held.number, held.on, held.gpus, held.doubtful)
            for name, held in self.reserved.items()
            if name in self.waiting
        ]
        said += [claim for name, claim in self.claims.items() if name not in self.reserved]
        answer = self.planner.resync(attempt(self.number), said, self.now)
        for orphan in answer.orphans:
            if orphan.uid in self.bound:
                self._see(self.bound[orphan.uid])
            else:
                self.planner.settle_orphan(orphan)

    @rule()
    def service_restarts(self) -> None:
        self._new_service()
        self.untold.clear()
        for facts in sorted(self.bound.values(), key=binding_order):
            self._see(facts)
        self.first.clear()
        self.shim_resyncs()
        # The scheduler wakes all pods when it has connected anew.
        self.retried.update(self.waiting)

    @rule(seconds=st.sampled_from([0.3, 6.0, 90.0, NOMINATION_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        if seconds > NOMINATION_S:
            # The scheduler leaves no pod alone for longer than five minutes.
            self.retried.update(self.waiting)

    @rule()
    def service_wakes(self) -> None:
        self.retried.update(self.planner.wake(self.now)[1])
        self._nothing_is_held_too_long()

    # -- one cycle --------------------------------------------------------------------------------------------------

    def _run(self, wanted: PodRequest, among: int, *, carried_out: bool, outcome: str) -> None:
        self.waiting[wanted.name] = wanted
        self._cycle(wanted, among, carried_out, outcome)

    def _cycle(self, wanted: PodRequest, among: int, carried_out: bool, outcome: str) -> None:
        self.number += 1
        tried = attempt(self.number)
        answer = self.planner.filter(tried, wanted, ALL, self.now)
        self._nothing_is_held_too_long()
        if answer.verdict.code is Code.OK:
            self._reserve(wanted, answer.candidates[0].node, outcome)
        elif answer.verdict.code in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE):
            self._preempt(wanted, among, carried_out)

    def _reserve(self, wanted: PodRequest, where: int, outcome: str) -> None:
        advisory = self.planner.cluster.state(where).count_only
        promised = [held for held in self._holds() if self._is_promise(held, wanted)]
        chosen = self.planner.reserve(attempt(self.number), wanted, where, self.now)
        assert chosen.verdict.code is Code.OK, chosen.verdict
        on = self.planner.cluster.table.names[where]
        gpus = tuple(json.loads(dict(chosen.annotations)["pyscheduler.io/gpus"])["main"])
        taken = {gpu for held in self.reserved.values() if held.on == on for gpu in held.gpus}
        taken |= {gpu for facts in self.bound.values() if facts.node == on and facts.gpus for gpu in facts.gpus["main"]}
        assert advisory or taken.isdisjoint(gpus), f"{wanted.name} was given GPUs of others"
        for held in promised:
            assert self._is_promise(held, wanted), f"{wanted.name} was given what is held for {held.name}"
            assert advisory or held.node != where or set(held.gpus).isdisjoint(gpus), (
                f"{wanted.name} was given GPUs held for {held.name}"
            )
        self._bind(wanted, Reserved(self.number, on, gpus), outcome)

    def _bind(self, wanted: PodRequest, held: Reserved, outcome: str) -> None:
        self.reserved[wanted.name] = held
        if outcome == "bound" or (outcome == "lost" and self.number % 2):
            count = len(held.gpus)
            facts = bound(wanted.name, held.on, count, held.gpus, priority=wanted.priority, bound_at=float(self.number))
            self.bound[wanted.name], self.devices[wanted.name] = facts, held.gpus
            self.untold.append(facts)
        if outcome == "bound":
            del self.reserved[wanted.name]
            self._settled(wanted.name)
        elif outcome == "lost":
            held.doubtful = True
            self.planner.unreserve(attempt(held.number), wanted.uid, bound_unknown=True, now=self.now)
        else:
            del self.reserved[wanted.name]
            self.planner.unreserve(attempt(held.number), wanted.uid, bound_unknown=False, now=self.now)
        if outcome != "bound":
            self.retried.add(wanted.name)

    def _settle(self, name: str) -> None:
        """A live read has shown what became of the Binding."""
        held = self.reserved.pop(name)
        if name in self.bound:
            self._settled(name)
        else:
            self.planner.unreserve(attempt(held.number), PodUid(name), bound_unknown=False, now=self.now)

    def _preempt(self, wanted: PodRequest, among: int, carried_out: bool) -> None:
        tried, self.asked[wanted.name] = attempt(self.number), among
        while True:
            stands = self._stands(wanted, among)
            answer = self.planner.preempt(tried, wanted, among, frozenset(), self.now)
            self._nothing_is_held_too_long()
            found = answer.proposal
            told_to_leave = self.leaving - {facts.name for facts in self.untold}
            if found is None:
                assert not stands
                assert self.planner.cluster.ledger.get(wanted.uid) is None, "where no eviction helps nothing is held"
                self.claims.pop(wanted.name, None)
                return
            assert among >> found.node & 1
            since = next(held.since for held in self._holds() if held.uid == wanted.uid)
            if stands:
                assert found.node == stands.node
                assert stands.victims.issuperset(found.victims), f"{found} after {stands}"
                assert since == stands.since
            else:
                self.first[wanted.uid] = First(found.node, frozenset(found.victims), since)
            for uid in found.victims:
                assert self.bound[uid].priority < wanted.priority
                assert not self.bound[uid].gang
                assert uid not in told_to_leave, "it goes anyway"
            on = self.planner.cluster.table.names[found.node]
            self.claims[wanted.name] = HeldByShim(wanted, self.number, on, found.gpus, doubtful=False, nominated=True)
            if carried_out:
                self._delete(found.victims)
                return
            # The other plugins do not take what is proposed: nothing that the service sees could change that.
            self.asked[wanted.name] = among = among & ~(1 << found.node)
            carried_out = among.bit_count() % 2 == 0

    def _delete(self, victims: Iterable[PodUid]) -> None:
        """The API server marks them as being deleted; they end later."""
        for uid in victims:
            facts = self.bound[uid] = replace(self.bound[uid], terminating=True)
            self.untold.append(facts)
            self.leaving.add(uid)

    # -- what must hold ---------------------------------------------------------------------------------------------

    def _holds(self) -> list[Holding]:
        return self.planner.cluster.ledger.nominated()

    def _is_promise(self, held: Holding, wanted: PodRequest) -> bool:
        """Whether this is held for another pod that does not give way, and comes true when those are gone that go anyway."""
        if held.uid == wanted.uid or held.priority < wanted.priority or held not in self._holds():
            return False
        if not held.gpus:
            return self._comes_true(held, held.victims)
        gone = self._gone(held).union(held.victims)
        others = [h for h in self.planner.cluster.ledger.on_node(held.node) if h.uid not in gone and h.uid != held.uid]
        return not any(set(other.gpus) & set(held.gpus) for other in others)

    def _gone(self, held: Holding) -> set[PodUid]:
        """Those whose GPUs are as good as free for the pod that this is held for."""
        here = self.planner.cluster.ledger.on_node(held.node)
        gone = {h.uid for h in here if h.state is HoldingState.RELEASING or h.terminating}
        return gone | {h.uid for h in here if h.state is HoldingState.NOMINATED and h.priority < held.priority}

    def _comes_true(self, held: Holding, victims: Iterable[PodUid]) -> bool:
        state = self.planner.cluster.state_without(held.node, {*self._gone(held), *victims, held.uid})
        return state.key(shape(self.waiting[held.name])) is not None

    def _stands(self, wanted: PodRequest, among: int) -> First | None:
        """Return the first answer, if it would still do on one of these nodes."""
        held = self.planner.cluster.ledger.get(wanted.uid)
        if held is None or held.state is not HoldingState.NOMINATED or wanted.uid not in self.first:
            return None
        # A hold that was carried over to another node by a failed Binding has nobody to wait for.
        first = self.first[wanted.uid]
        if first.node != held.node or not among >> held.node & 1 or self.now - held.since > NOMINATION_S:
            return None
        return first if self._comes_true(held, held.victims) else None

    def _nothing_is_held_too_long(self) -> None:
        assert all(self.now - held.since <= NOMINATION_S for held in self._holds())

    @invariant()
    def no_gpu_is_held_twice(self) -> None:
        for index, name in enumerate(self.planner.cluster.table.names):
            holdings = self.planner.cluster.ledger.on_node(index)
            fixed = [gpu for held in holdings if held.state in FIXED for gpu in held.gpus]
            assert len(fixed) == len(set(fixed)), f"a GPU of {name} is given twice"
            held_for = [gpu for held in holdings if held.state is HoldingState.NOMINATED for gpu in held.gpus]
            assert len(held_for) == len(set(held_for)), f"a GPU of {name} is held for two pods"
            for held in holdings:
                if held.state is HoldingState.NOMINATED:
                    self._only_lower_pods_have(held, holdings)

    def _only_lower_pods_have(self, held: Holding, holdings: object) -> None:
        for other in self.planner.cluster.ledger.on_node(held.node):
            if other.state in FIXED and not set(other.gpus).isdisjoint(held.gpus):
                assert other.state is HoldingState.BOUND
                assert other.priority < held.priority or other.terminating, (
                    f"{held.name} waits for GPUs of {other.name}, which is not lower"
                )

    @invariant()
    def first_answers_end_with_their_holds(self) -> None:
        holders = {held.uid for held in self.planner.cluster.ledger.holdings() if held.nominated_at is not None}
        self.first = {uid: first for uid, first in self.first.items() if uid in holders}

    @invariant()
    def what_is_remembered_of_nodes_is_true(self) -> None:
        cluster, remembered = self.planner.cluster, self.planner._nominations._evictions
        for gpus, priority in ((2, 15), (4, 35)):
            wanted = Shape(GPU, gpus), PodUid("anybody"), priority, EVERYWHERE
            assert remembered.propose(*wanted) == propose(cluster, *wanted)

    # -- the end ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if hasattr(self, "planner"):
            self._duty_is_done()
            self._nobody_waits_in_vain()
            self._all_pods_go()
            self._all_gpus_are_free()

    def _duty_is_done(self) -> None:
        """All that is under way comes to its end, and every pod that is woken is tried, until nobody is woken any more."""
        for name in list(self.reserved):
            self._settle(name)
        for name in sorted(self.retried):
            self._cycle_if_waiting(name)
        idle = rounds = 0
        last: list[PodUid] = []
        while idle < 40:
            rounds += 1
            assert rounds < 800, f"{last} are woken for ever"
            self.watch_tells(100)
            for on in REPORTING:
                self.agent_reports(on)
            for name in sorted(self.leaving):
                self._end(name, released=True)
            self.now += 0.2
            woken = self.planner.wake(self.now)[1]
            last, idle = woken or last, 0 if woken else idle + 1
            for uid in woken:
                self._cycle_if_waiting(uid)

    def _cycle_if_waiting(self, name: str) -> None:
        if name in self.waiting and name not in self.reserved:
            self._cycle(self.waiting[name], EVERYWHERE, carried_out=True, outcome="bound")

    def _nobody_waits_in_vain(self) -> None:
        for name, wanted in self.waiting.items():
            if name in self.asked:
                self.number += 1
                verdict = self.planner.filter(attempt(self.number), wanted, ALL, self.now).verdict
                assert verdict.code is not Code.OK, f"{name} waits though it fits"
                of_wanted = shape(wanted), wanted.uid, wanted.priority, self.asked[name]
                found = propose(self.planner.cluster, *of_wanted)
                assert found is None, f"{name} waits though it could have {found}"

    def _all_pods_go(self) -> None:
        for name in sorted(self.bound):
            self._end(name, released=True)
        for name in list(self.waiting):
            self._forget(name)
        for on in NODES:
            self.sick[on] = ()
            self._observe(on)

    def _all_gpus_are_free(self) -> None:
        self.now += NOMINATION_S + 1
        self.planner.wake(self.now)
        assert not list(self.planner.cluster.ledger.holdings())
        assert [state.free for state in self.planner.cluster.states()] == list(SIZES.values())
        self.now += 2 * NOMINATION_S + 1
        self.planner.wake(self.now)
        nominations = self.planner._nominations
        for left in ("_calls", "_ended", "_holders", "_looks", "_unhelped", "_changed", "_offers"):
            assert not getattr(nominations, left), left

    # -- inside -----------------------------------------------------------------------------------------------------

    def _new_service(self) -> None:
        self.planner = planner()
        for name in NODES:
            self._observe(name)

    def _observe(self, name: str) -> None:
        facts = facts_of(name, self.sick.get(name, ()))
        if name in REPORTING:
            told = {self.untold_uid(facts) for facts in self.untold}
            in_use = {PodUid(pod): gpus for pod, gpus in self.devices.items() if self.bound[pod].node == name and pod not in told}
            in_use |= {PodUid(pod): gpus for pod, (on, gpus) in self.unreleased.items() if on == name}
            facts = replace(facts, in_use=in_use)
        self.planner.cluster.observe_node(facts, self.now)

    @staticmethod
    def untold_uid(facts: PodFacts) -> str:
        return facts.name

    def _see(self, facts: PodFacts) -> None:
        self.planner.cluster.observe_pod(facts, self.now)

    def _settled(self, name: str) -> None:
        self.waiting.pop(name, None)
        self.claims.pop(name, None)
        self.current = {number: wanted for number, wanted in self.current.items() if wanted.name != name}

    def _forget(self, name: str) -> None:
        self._settled(name)
        self.planner.cluster.forget_pod(PodUid(name), self.now)

    def _end(self, name: str, *, released: bool) -> None:
        facts, gpus = self.bound.pop(name), self.devices.pop(name)
        assert facts.node
        if not released and facts.node in REPORTING:
            self.unreleased[name] = facts.node, gpus
        self.leaving.discard(name)
        self.reserved.pop(name, None)
        self.untold = [told for told in self.untold if told.name != name]
        self._forget(name)

    def _unused(self, on: str) -> tuple[str, ...]:
        known = facts_of(on, ()).machine
        every = known.uuids if known else tuple(f"index:{gpu}" for gpu in range(4))
        used = {gpu for name, gpus in self.devices.items() if self.bound[name].node == on for gpu in gpus}
        used |= {gpu for held in self.reserved.values() if held.on == on for gpu in held.gpus}
        used |= {gpu for where, gpus in self.unreleased.values() if where == on for gpu in gpus}
        return tuple(gpu for gpu in every if gpu and gpu not in used)


@cache
def facts_of(name: str, sick: tuple[int, ...]) -> NodeFacts:
    kind = NODES[name]
    return node(name, kind, sick=sick) if kind else NodeFacts(name, resource=GPU, allocatable=4)


def shape(wanted: PodRequest) -> Shape:
    found = shape_of_pod(wanted)
    assert isinstance(found, Shape)
    return found


TestPreempting = Preempting.TestCase
TestPreempting.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)

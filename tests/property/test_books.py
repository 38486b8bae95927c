"""No GPU twice, whatever is late, lost, repeated or restarted: the planner against an API server that is a dictionary."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import HoldingState
from pyscheduler.core.model import Code, PodFacts, PodUid, binding_order
from pyscheduler.core.planner import Planner
from pyscheduler.core.replies import HeldByShim
from tests.builders import ALL, OURS, attempt, bound, node, pod

NODES = {"a": "a100-pcie-bridged", "b": "dgx-1v"}


@dataclass
class Held:
    """What the shim holds for a pod whose Binding is not settled."""

    number: int
    on: str
    gpus: tuple[str, ...]
    asked: int
    doubtful: bool = False


class Books(RuleBasedStateMachine):
    """Pods are reserved, bound (with replies that are lost), seen late by the watch, deleted; service and list start anew."""

    @initialize()
    def start(self) -> None:
        self.number = 0
        # How many pods of each name were deleted: the next one is another pod.
        self.deleted = Counter[int]()
        self.gone: set[str] = set()
        self.bound_by: dict[str, int] = {}
        self.held: dict[str, Held] = {}
        # The truth: pods that the API server has bound and not deleted, in the order of binding.
        self.bound: dict[str, PodFacts] = {}
        # What the watch has still to tell.
        self.untold: list[tuple[str, PodFacts]] = []
        self._new_service()

    def _new_service(self) -> None:
        self.planner = Planner(Cluster(epoch=1, scheduler_name=OURS), version="test")
        for name, kind in NODES.items():
            self.planner.cluster.observe_node(node(name, kind), 0.0)

    @rule(number=st.integers(1, 12), gpus=st.integers(1, 4))
    def reserve(self, number: int, gpus: int) -> None:
        name = f"p{number}.{self.deleted[number]}"
        self.number += 1
        tried, wanted = attempt(self.number), pod(name, gpus)
        answer = self.planner.filter(tried, wanted, ALL, 0.0)
        if answer.verdict.code is not Code.OK or name in self.held or name in self.bound:
            return
        chosen = self.planner.reserve(tried, wanted, answer.candidates[0].node, 0.0)
        if chosen.verdict.code is not Code.OK:
            return
        handles = tuple(json.loads(dict(chosen.annotations)["pyscheduler.io/gpus"])["main"])
        on = self.planner.cluster.table.names[answer.candidates[0].node]
        taken = {h for other in self.held.values() if other.on == on for h in other.gpus}
        taken |= {h for facts in self.bound.values() if facts.node == on for h in (facts.gpus or {})["main"]}
        assert len(set(handles)) == gpus
        assert taken.isdisjoint(handles), f"{name} was given GPUs of others"
        self.held[name] = Held(self.number, on, handles, gpus)

    @rule(data=st.data(), outcome=st.sampled_from(["bound", "bound, reply lost", "lost on the way", "refused"]))
    def bind(self, data: st.DataObject, outcome: str) -> None:
        sure = sorted(name for name, held in self.held.items() if not held.doubtful)
        if not sure:
            return
        name = data.draw(st.sampled_from(sure))
        held = self.held[name]
        if outcome.startswith("bound"):
            facts = bound(name, held.on, held.asked, held.gpus, bound_at=float(len(self.bound) + self.number))
            self.bound[name] = facts
            self.bound_by[name] = held.number
            self.untold.append(("changed", facts))
        if outcome in ("bound, reply lost", "lost on the way"):
            held.doubtful = True
            self._unreserve(name, held.number, unknown=True)
            return
        del self.held[name]
        if outcome == "refused":
            self._unreserve(name, held.number, unknown=False)

    @rule(data=st.data())
    def settle_by_a_live_read(self, data: st.DataObject) -> None:
        doubtful = sorted(name for name, held in self.held.items() if held.doubtful)
        if doubtful:
            name = data.draw(st.sampled_from(doubtful))
            held = self.held.pop(name)
            if name not in self.bound:
                self._unreserve(name, held.number, unknown=False)

    @rule(number=st.integers(1, 12), back=st.integers(0, 3))
    def late_or_repeated_unreserve(self, number: int, back: int) -> None:
        name, late = f"p{number}.{self.deleted[number]}", self.number - back
        mine = self.held.get(name)
        # Of an attempt that has ended, or of one that never reserved; never of the one that bound the pod.
        if late > 0 and (mine is None or late < mine.number) and late != self.bound_by.get(name):
            self._unreserve(name, late, unknown=False)

    @rule(count=st.integers(1, 4))
    def watch_tells(self, count: int) -> None:
        for kind, facts in self.untold[:count]:
            if kind == "changed":
                self.planner.cluster.observe_pod(facts, 0.0)
            else:
                self.planner.cluster.forget_pod(facts.uid, 0.0)
        del self.untold[:count]

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.bound:
            name = data.draw(st.sampled_from(sorted(self.bound)))
            self.untold.append(("gone", self.bound.pop(name)))
            self.held.pop(name, None)
            self.deleted[int(name[1:].split(".")[0])] += 1
            self.gone.add(name)

    @rule()
    def service_restarts(self) -> None:
        self._new_service()
        self._list()

    @rule()
    def watch_lists_again(self) -> None:
        self._list()

    def _list(self) -> None:
        for facts in sorted(self.bound.values(), key=binding_order):
            self.planner.cluster.observe_pod(facts, 0.0)
        self.planner.cluster.forget_other_pods({facts.uid for facts in self.bound.values()}, 0.0)
        self.untold.clear()
        self._resync()

    @rule()
    def shim_resyncs(self) -> None:
        self._resync()

    def _resync(self) -> None:
        if not self.number:
            return
        said = [HeldByShim(pod(n, h.asked), h.number, h.on, h.gpus, h.doubtful) for n, h in sorted(self.held.items())]
        answer = self.planner.resync(attempt(self.number), said, 0.0)
        assert answer.conflicts == ()
        for orphan in answer.orphans:
            # The live read: bound, gone, or there and unbound.
            if orphan.uid in self.bound:
                self.planner.cluster.settle_pod(self.bound[orphan.uid], 0.0)
            elif orphan.uid in self.gone:
                self.planner.cluster.forget_pod(orphan.uid, 0.0)
            else:
                self.planner.settle_orphan(orphan)

    def _unreserve(self, name: str, number: int, *, unknown: bool) -> None:
        self.planner.unreserve(attempt(number), PodUid(name), bound_unknown=unknown, now=0.0)

    @invariant()
    def books_balance(self) -> None:
        cluster = self.planner.cluster
        for index, name in enumerate(cluster.table.names):
            state, holdings = cluster.state(index), cluster.ledger.on_node(index)
            named = [h for holding in holdings for h in holding.gpus if holding.state is not HoldingState.RELEASING]
            assert len(named) == len(set(named)), f"a GPU of {name} is held twice"
            assert state.free == state.facts.allocatable - len(named)
            assert not state.count_only


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)

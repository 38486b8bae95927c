"""The cluster as it is known: nodes, who holds what, and the nodes in order for each request shape.

Adapters tell what the API shows through `observe_*`, `settle_*` and `forget_*`.
Every change passes `refresh`, which derives the touched nodes anew and moves
them in the rankings, so all views agree at all times.

Concurrency contract: one writer at a time; the caller holds one lock round every method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core import bitmap
from pyscheduler.core.cards import NO_CARDS, NodeCards, cards_of, slowest
from pyscheduler.core.explain import Hole
from pyscheduler.core.fabric.fleet import Fleet
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.fabric.tightness import Tightness
from pyscheduler.core.gangs.roster import Roster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.job import NO_LIMITS, Limits
from pyscheduler.core.kinds import Kinds
from pyscheduler.core.ledger import Ledger
from pyscheduler.core.model import NodeFacts, PodFacts, PodUid, binding_order
from pyscheduler.core.node import ABSENT, NodeState, derive, model_names
from pyscheduler.core.ranking import Ranking
from pyscheduler.core.refusals import Refusals
from pyscheduler.core.request import Shape
from pyscheduler.core.table import NodeTable

__all__ = ["RANKINGS_MAX", "Cluster"]

# Shapes whose order of nodes is kept up to date: more than a cluster's jobs have, few enough that a change is cheap.
RANKINGS_MAX = 64


class Cluster:
    """Attributes are to be read; what changes them are the methods.

    Parameters
    ----------
    epoch
        Number of this life of the service.
    scheduler_name
        Whose bindings are ours.
    score_weight
        How finely scores of cards count among nodes that are alike in links: 1 in steps of 0.05, 2 in half of them; 0 not at all.

    Attributes
    ----------
    table, ledger, refusals, roster
        Nodes by index; holdings; the pods that wait because no node could take them; the members of groups.
    generation
        Grows with every change of a node's state.
    topology
        Grows with every change of which nodes there are, of their GPUs and links, and of where they hang.
    present
        Bitmap of the nodes whose Node object exists.
    fleet
        The same nodes by their place in the fabric, for jobs of many pods.
    """

    def __init__(self, *, epoch: int, scheduler_name: str, score_weight: float = 1.0) -> None:
        self.table = NodeTable(epoch)
        self.ledger = Ledger(scheduler_name)
        self.refusals = Refusals()
        self.roster = Roster()
        self.generation = 1
        self.topology = 1
        self.present = 0
        self._kinds = Kinds()
        self.fleet = Fleet(self._kinds)
        self._tightness = Tightness()
        self._models: dict[str, tuple[int, list[str]]] = {}
        self._unhealthy: tuple[int, list[int]] = (0, [])
        self._with_resource: dict[str, int] = {}
        self._states: list[NodeState] = []
        self._score_weight = score_weight
        # What monitoring says, by name of node, also of nodes that are not known yet; and what it leaves out, where that is any.
        self._cards: dict[str, NodeCards] = {}
        self._excluded: dict[str, Mapping[str, str]] = {}
        # The paces of each node's cards, where any is behind a good one, and how many nodes have such at each.
        self._paces_of: dict[int, tuple[int, ...]] = {}
        self._paces: Counter[int] = Counter()
        # Free and allocatable GPUs of each node, for sums; longer than the table, to grow seldom.
        self._free: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self._left_out: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self._allocatable: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        # By resource: how many nodes offer how many GPUs.
        self._sizes: dict[str, Counter[int]] = {}
        self._offers: dict[int, tuple[str, int]] = {}
        self._rankings: dict[Shape, Ranking] = {}
        # Live pods that the API has shown, and those of them that are bound to a node that it has not shown yet.
        self._seen: set[PodUid] = set()
        self._early: dict[PodUid, PodFacts] = {}
        self._grown: set[str] = set()

    # -- views ------------------------------------------------------------------------------------------------------

    def state(self, node: int) -> NodeState:
        """Return what is known of the node of this index."""
        return self._states[node] if node < len(self._states) else ABSENT

    def state_without(self, node: int, hidden: Collection[PodUid]) -> NodeState:
        """Return what the node would be if it were not for what these pods hold there."""
        state = self.state(node)
        holdings = [held for held in self.ledger.on_node(node) if held.uid not in hidden]
        if not state.present or len(holdings) == len(self.ledger.on_node(node)):
            return state
        facts, reported = state.facts, state.facts.in_use
        # A pod that is not reserved and has devices by its agent's report is bound by others: these are not what is held for it.
        promised = {held.uid for held in self.ledger.on_node(node) if held.is_promised}
        gone = set(hidden) - promised
        if reported and not reported.keys().isdisjoint(gone):
            facts = replace(facts, in_use={uid: gpus for uid, gpus in reported.items() if uid not in gone})
        return derive(facts, holdings)

    def states(self) -> list[NodeState]:
        """Return the states of all nodes, in the order of the table."""
        return list(self._states)

    def ranking(self, shape: Shape) -> Ranking:
        """Return the nodes in order for this shape. The shapes asked for least recently are forgotten."""
        ranking = self._rankings.pop(shape, None)
        if ranking is None:
            ranking = Ranking(shape, self._kinds)
            for node, state in enumerate(self._states):
                ranking.update(node, self._kinds.number(state))
        self._rankings[shape] = ranking
        if len(self._rankings) > RANKINGS_MAX:
            del self._rankings[next(iter(self._rankings))]
        return ranking

    def rank(self, nodes: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return a number for each of these nodes, smaller first: the fullest domain round it, then the total order."""
        return self._tightness.ranks(nodes, self.table.order())

    def models(self, resource: str) -> list[str]:
        """Return the models of the GPUs of this resource, in order."""
        version, known = self._models.get(resource, (0, []))
        if version != self.topology:
            tables = {s.facts.machine.table for s in self._states if s.facts.machine and s.facts.resource == resource}
            known = sorted({model for table in tables for model in model_names(table.device_class.known_models)})
            self._models[resource] = (self.topology, known)
        return known

    def unhealthy(self) -> list[int]:
        """Return the nodes that have an unhealthy GPU, in the order of the table."""
        version, known = self._unhealthy
        if version != self.topology:
            machines = [(node, state.facts.machine) for node, state in enumerate(self._states)]
            known = [node for node, m in machines if m and m.healthy.bit_count() < len(m.ids)]
            self._unhealthy = (self.topology, known)
        return known

    def paces(self) -> list[int]:
        """Return how many steps cards of some node are behind a good one (`core.cards`), the best first; empty if none is."""
        return sorted(self._paces)

    def left_out(self, among: int) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield each of these nodes that leaves cards out, with their handles and why; which of them are held is not asked."""
        for name, excluded in self._excluded.items():
            node = self.table.index_of(name)
            if node is not None and among >> node & 1 and self._states[node].present:
                yield node, excluded

    def relative_speed(self, node: int, gpus: Collection[str]) -> float | None:
        """Return the speed of the slowest of these GPUs (handles) by that of its peers, to three digits; None where none is known."""
        known = self._cards.get(self.table.names[node])
        if known is None or not known.speeds:
            return None
        machine = self._states[node].facts.machine
        return slowest(known.speeds, machine.handles(machine.mask_of(gpus)) if machine is not None else gpus)

    def room(self, shape: Shape, eligible: int) -> int:
        """Return how many pods of this shape could be placed on these nodes."""
        if not self.could_fit(shape):
            return 0
        nodes = bitmap.indices(self.ranking(shape).feasible & eligible)
        free = self._free[nodes] + self._left_out[nodes] if shape.limits.takes_all else self._free[nodes]
        return int((free // shape.gpus).sum())

    def could_fit(self, shape: Shape) -> bool:
        """Return whether any node, if it were empty, could take the shape."""
        return any(shape.gpus <= size for size in self._sizes.get(shape.resource, ()))

    def holes(self, resource: str, eligible: int, limits: Limits = NO_LIMITS) -> tuple[Hole, Hole, int]:
        """Return, of these nodes that have the resource, the largest, the one with the most free GPUs, and the sum of free ones.

        Free for a pod with these limits, of which only that on capacity counts.
        """
        nodes = bitmap.indices(eligible & self.present & self._with_resource.get(resource, 0))
        free = self._free + self._left_out if limits.takes_all else self._free
        return self._hole(self._allocatable, nodes), self._hole(free, nodes), int(free[nodes].sum())

    def take_grown(self) -> frozenset[str]:
        """Return what grew since the last call: some of ``nodes``, ``freed``, ``topology``."""
        grown = frozenset(self._grown)
        self._grown.clear()
        return grown

    def early(self, uid: PodUid) -> str | None:
        """Return the node that the pod is bound to if that is not known yet."""
        pod = self._early.get(uid)
        return pod.node if pod is not None else None

    @contextmanager
    def supposing(self, states: Mapping[int, NodeState]) -> Iterator[None]:
        """While it lasts, nodes are in these states; nothing may be changed then. Afterwards they are as before."""
        before = {node: self._states[node] for node in states}
        for node, state in states.items():
            self._set(node, state)
        try:
            yield
        finally:
            for node, state in before.items():
                self._set(node, state)

    # -- changes ----------------------------------------------------------------------------------------------------

    def refresh(self, nodes: Iterable[int]) -> None:
        """Derive these nodes anew after a change of what is held on them."""
        for node in nodes:
            before = self._states[node]
            if not before.present:
                continue
            after = derive(before.facts, self.ledger.on_node(node))
            self._set(node, after)
            if after.free > before.free or after.free + after.left_out > before.free + before.left_out:
                self._grown.add("freed")

    def observe_node(self, facts: NodeFacts, now: float) -> None:
        """Note a node as it is now."""
        node = self._place(facts.name, facts.place)
        before = self._states[node]
        if facts.in_use_unreadable:
            # An error is never an empty report: the last one that could be read stands.
            facts = replace(facts, in_use=before.facts.in_use)
        facts = self._with_cards(facts)
        if before.present and before.facts == facts:
            return
        if not before.present:
            self._grown.add("nodes")
        if before.facts.machine != facts.machine:
            self._grown.add("topology")
        if _shape_of(before.facts) != _shape_of(facts) or not before.present:
            self.topology += 1
        self._states[node] = replace(before, facts=facts, present=True)
        self._take_early(facts.name, now)
        if facts.in_use is None:
            self.ledger.end_releasing(node)
        else:
            self.ledger.follow_report(node, facts.in_use)
        self.refresh({node})

    def set_cards(self, name: str, cards: NodeCards | None, now: float) -> None:
        """Note what monitoring says of the cards of a node, which there may be no Node object of yet; None: nothing any more."""
        self._cards.pop(name, None)
        self._excluded.pop(name, None)
        if cards is not None:
            self._cards[name] = cards
            if cards.excluded:
                self._excluded[name] = cards.excluded
        node = self.table.index_of(name)
        if node is not None and self._states[node].present:
            self.observe_node(self._states[node].facts, now)

    def join(self, name: str) -> int:
        """Return the index of a node that somebody knows of, though there may be no Node object yet."""
        node = self.table.index_of(name)
        if node is None:
            node = self._place(name, NOWHERE)
            self._set(node, ABSENT)
        return node

    def forget_node(self, name: str) -> None:
        """Note that the Node object is gone. Its index stays taken; what its pods hold stays in the books."""
        node = self.table.index_of(name)
        if node is not None and self._states[node].present:
            self.ledger.end_releasing(node)
            self.topology += 1
            self._set(node, ABSENT)

    def forget_other_nodes(self, listed: Collection[str]) -> None:
        """Note that a full list of nodes held these names: all others are gone."""
        for name in set(self.table.names).difference(listed):
            self.forget_node(name)

    def observe_pod(self, pod: PodFacts, now: float) -> None:
        """Note a pod as the watch shows it now. Of several, in `binding_order`."""
        if not pod.finished:
            self._seen.add(pod.uid)
            if pod.scheduler == self.ledger.scheduler_name:
                self.roster.see(pod)
        self.settle_pod(pod, now)

    def settle_pod(self, pod: PodFacts, now: float) -> None:
        """Note a pod as a live read shows it, which may be newer than what the watch has shown."""
        if pod.finished:
            self._gone(pod.uid, now)
            return
        if pod.node is None:
            return
        self.refusals.clear(pod.uid)
        self.roster.bind(pod.uid)
        if not pod.containers:
            # A member of a group that has no GPUs.
            return
        node = self.table.index_of(pod.node)
        if node is None or not self._states[node].present:
            if pod.uid in self._seen:
                self._early[pod.uid] = pod
            held = self.ledger.get(pod.uid)
            if held is not None and (held.is_unbound or held.is_promised):
                # It is bound elsewhere.
                self.refresh(self.ledger.drop(held))
        else:
            self.refresh(self.ledger.see_bound(pod, node, now, self._states[node].facts))

    def unseen(self) -> list[Holding]:
        """Return what pods are bound with that a live read has shown and the watch has not: it would not show them go, either."""
        bound = (HoldingState.BOUND, HoldingState.FOREIGN)
        return [held for held in self.ledger.holdings() if held.state in bound and held.uid not in self._seen]

    def forget_pod(self, uid: PodUid, now: float) -> None:
        """Note that the Pod object is gone."""
        self._gone(uid, now)

    def forget_other_pods(self, listed: Collection[PodUid], now: float) -> None:
        """Note that a full list of pods held these: all others that the watch has shown are gone.

        Others are not: a pod that the shim asked about, or that was read live, may be newer than the list.
        """
        for uid in self._seen.difference(listed):
            self._gone(uid, now)

    def expire(self, now: float) -> None:
        """Note that time has passed."""
        self.refresh(self.ledger.end_unlisted(now))
        self.refusals.expire(now)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _gone(self, uid: PodUid, now: float) -> None:
        self.refusals.clear(uid)
        self._seen.discard(uid)
        self.roster.forget(uid)
        self._early.pop(uid, None)
        held = self.ledger.get(uid)
        in_use = self._states[held.node].facts.in_use if held else None
        reported = None if in_use is None else uid in in_use
        self.refresh(self.ledger.see_gone(uid, reported=reported, now=now))

    def _take_early(self, name: str, now: float) -> None:
        """Note the pods that were seen bound to this node before the node itself was seen."""
        early = sorted((p for p in self._early.values() if p.node == name), key=binding_order)
        for pod in early:
            del self._early[pod.uid]
            self.settle_pod(pod, now)

    def _with_cards(self, facts: NodeFacts) -> NodeFacts:
        """Return what is known of a node with what monitoring says of its cards."""
        known = self._cards.get(facts.name)
        cards = cards_of(facts.machine, known, self._score_weight) if known is not None else NO_CARDS
        return facts if cards == facts.cards else replace(facts, cards=cards)

    def _note_paces(self, node: int, paces: tuple[int, ...]) -> None:
        """Note at which paces the cards of a node are."""
        if paces == self._paces_of.get(node, ()):
            return
        self._paces.subtract(self._paces_of.pop(node, ()))
        self._paces.update(paces)
        self._paces = +self._paces
        if paces:
            self._paces_of[node] = paces

    def _set(self, node: int, state: NodeState) -> None:
        self.generation += 1
        self._note_paces(node, tuple([pace for pace, _ in state.facts.cards.paces]))
        self._offer(node, (state.facts.resource, state.facts.allocatable) if state.present else None)
        self._states[node] = state
        self._tightness.change(node, state.free)
        self._free[node] = state.free
        self._left_out[node] = state.left_out
        self._allocatable[node] = state.facts.allocatable
        if self._kinds.full:
            self._number_anew()
        kind = self._kinds.number(state)
        self.fleet.touch(node, kind, state.free)
        for ranking in self._rankings.values():
            ranking.update(node, kind)

    def _number_anew(self) -> None:
        """Forget the kinds that no node is of any more."""
        self._kinds = Kinds()
        self._rankings.clear()
        self.fleet.renumber(self._kinds)
        for node, state in enumerate(self._states):
            self.fleet.touch(node, self._kinds.number(state), state.free)

    def _offer(self, node: int, offer: tuple[str, int] | None) -> None:
        """Note which resource a node has, and how many GPUs; None if the node is not present."""
        before = self._offers.get(node)
        if offer == before:
            return
        bit = 1 << node
        if before is not None:
            resource, gpus = before
            self.present ^= bit
            self._with_resource[resource] ^= bit
            self._sizes[resource][gpus] -= 1
            if not self._sizes[resource][gpus]:
                del self._sizes[resource][gpus]
            del self._offers[node]
        if offer is not None:
            resource, gpus = self._offers[node] = offer
            self.present |= bit
            self._with_resource[resource] = self._with_resource.get(resource, 0) | bit
            self._sizes.setdefault(resource, Counter())[gpus] += 1

    def _place(self, name: str, place: Place) -> int:
        """Note where a node is. Return its index."""
        node = self.table.place(name, place.path)
        self._make_room()
        self.fleet.place(node, name, place)
        self._tightness.move(node, place.path)
        return node

    def _make_room(self) -> None:
        """Make room for the nodes that joined the table."""
        while len(self._states) < len(self.table):
            self._states.append(ABSENT)
        if len(self._free) < len(self._states):
            self._free = np.pad(self._free, (0, len(self._states)))
            self._left_out = np.pad(self._left_out, (0, len(self._states)))
            self._allocatable = np.pad(self._allocatable, (0, len(self._states)))

    def _hole(self, gpus: NDArray[np.int64], nodes: NDArray[np.intp]) -> Hole:
        """Return the first node, in the total order, with the most of these GPUs."""
        if not len(nodes):
            return Hole(0, "")
        most = gpus[nodes].max()
        first = nodes[gpus[nodes] == most]
        return Hole(int(most), self.table.names[first[np.argmin(self.table.order()[first])]])


def _shape_of(facts: NodeFacts) -> tuple[object, ...]:
    """Return what of a node the topology is made of."""
    return facts.machine, facts.place, facts.resource, facts.allocatable

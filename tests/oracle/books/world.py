"""The API server, the shims, the service and all that is on its way between them; and what must be true of them.

The promises that need the truth are kept here: no GPU in two live pods, none offered that somebody has. Those about the
books alone are in `service`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

from pyscheduler.core.model import Code
from tests.oracle.books.cluster_api import Api, Pod
from tests.oracle.books.draws import Draw, shuffled
from tests.oracle.books.hardware import FLEET, shares_fault
from tests.oracle.books.model import Foreign
from tests.oracle.books.service import Preempted, Service, demand
from tests.oracle.books.shim import Binding, Call, Holds, Method, Shim, Stage, Statement

__all__ = ["World"]


class World:
    """One cluster from its beginning on.

    Attributes
    ----------
    api, service
        The API server, and the present run of the service.
    shims
        The sessions that live, oldest first: one, or two while the older does not know that it was deposed.
    wire, bindings
        Calls on their way to the service, Bindings on their way to the API server, in no order.
    proposals
        Answers to Preempt, with the calls: what they name is evicted, or another one is asked for.
    counts
        How often what happened, for the report of a run.
    rested_at
        When nothing was on its way for the last time, in seconds.
    story
        What happened, in words; None while nobody reads it.
    """

    def __init__(self, draw: Draw, *, told: bool = False) -> None:
        self.api = Api()
        self.wire: list[Call] = []
        self.bindings: list[Binding] = []
        # Evictions that are still to be carried out, by the shims that asked.
        self.proposals: list[tuple[Call, Preempted]] = []
        self.counts: Counter[str] = Counter()
        self.story: list[str] | None = [] if told else None
        # The newest session that any run of the service has heard of: Bindings of older ones are stale.
        self.newest_heard = 0
        self.rested_at = 0.0
        for name in list(FLEET)[:3]:
            self.api.add_node(name)
        self.service = Service(1, self.api, shuffled(draw, list(self.api.nodes)), frozenset())
        self.shims = [Shim(1, self.api)]

    @property
    def shim(self) -> Shim:
        """The newest session."""
        return self.shims[-1]

    def say(self, text: str, *values: object) -> None:
        if self.story is not None:
            self.story.append(text.format(*values))

    def supersede(self) -> None:
        """Start a newer session. It cannot say what older ones bound that the service, new itself, has not seen yet."""
        for pod in self.api.bound_live():
            pod.stale = pod.stale or pod.uid not in self.service.model.entries
        self.shims.append(Shim(self.shim.session + 1, self.api))

    # -- the service ----------------------------------------------------------------------------------------------------

    def start_service(self, names: list[str], unjudged: AbstractSet[str]) -> None:
        """Start a new run; all calls to the present one are lost."""
        for call in self.wire:
            self.unanswered(call)
        self.wire.clear()
        self.service = Service(self.service.number + 1, self.api, names, unjudged)
        self.judge_books()

    def judge_books(self) -> None:
        """Hear which annotations the service does not count; honest pods need an excuse."""
        model = self.service.model
        for foreign in model.foreign:
            pod = self.api.pods[foreign.uid]
            if pod.sure:
                demand(
                    self._excused_foreign(pod, foreign),
                    "{} was bound with GPUs of its own, and by the books {}",
                    pod.uid,
                    foreign,
                )
            pod.void = True
        model.foreign.clear()

    def _excused_foreign(self, pod: Pod, foreign: Foreign) -> bool:
        """Tell whether the annotation of a pod that the service chose GPUs for may well not count."""
        if foreign.why.startswith("names another number"):
            return False
        if not foreign.why.startswith("names a GPU that another"):
            # The GPUs of the node are others now, or the kubelet gave one of them to another pod.
            return True
        return any(self._excuses(pod, self.api.pods[holder]) for holder in foreign.holders)

    def _excuses(self, pod: Pod, holder: Pod) -> bool:
        """Tell whether the holder may well be taken for the one that was first."""
        node = self.service.model.nodes.get(holder.node or "")
        told = (node.report or {}).get(holder.uid, ()) if node else ()
        if not set(told).isdisjoint(pod.handles):
            return True
        if any(gpu.startswith("index:") for gpu in (*pod.handles, *holder.handles)):
            # Given out by number while the node had no document: which ones they are nobody knows.
            return True
        if holder.forged:
            return holder.landed < pod.landed
        unsure = holder.stale or holder.edited or holder.void or holder.session is None
        return unsure or (holder.swapped and len(told) != holder.request.peak)

    def resync(self, shim: Shim, statement: Statement, *, answered: bool = True) -> None:
        """Have the service handle a Resync. The shim takes the answer if it hears it."""
        conflicts = self.service.resync(*statement)
        self._hear()
        self.say("  Resync of session {}: conflicts {}", shim.session, sorted(conflicts))
        if answered:
            shim.answered(statement, conflicts)
            shim.greeted = self.service.number

    # -- calls ----------------------------------------------------------------------------------------------------------

    def send(self, call: Call) -> None:
        self.wire.append(call)

    def deliver(self, call: Call, *, answered: bool) -> None:
        """Have the service handle a call. Its caller hears the answer if it waits for it and the answer is not lost."""
        self.counts[f"{call.method.value} {'handled' if call.awaited else 'handled late'}"] += 1
        {
            Method.RESERVE: self._reserve,
            Method.UNRESERVE: self._unreserve,
            Method.RESYNC: self._resync,
            Method.PREEMPT: self._preempt,
        }[call.method](call, answered)
        self.judge_books()

    def unanswered(self, call: Call) -> None:
        """End the wait for an answer: the call may still arrive."""
        if not call.awaited:
            return
        call.awaited = False
        if call is call.shim.cycle:
            assert call.pod is not None
            assert call.attempt is not None
            call.shim.cycle = None
            if call.method is Method.RESERVE:
                call.shim.give_back(call.pod.uid, call.attempt)
        elif call is call.shim.sending:
            call.shim.sending = None

    def _hear(self) -> None:
        self.newest_heard = max(self.newest_heard, self.service.model.session)

    def _reserve(self, call: Call, answered: bool) -> None:
        pod, attempt, shim = call.pod, call.attempt, call.shim
        assert pod is not None
        assert attempt is not None
        answer = self.service.reserve(attempt, pod, call.node)
        self._hear()
        self.say("  Reserve {} for {} on {}: {} {}", attempt.number, pod.uid, call.node, answer.code.value, answer.shares)
        if answer.fresh:
            self._check_offer(shim, pod, call.node, answer.shares)
        if not (call.awaited and answered):
            self.unanswered(call)
            return
        call.awaited = False
        shim.cycle = None
        if answer.code is Code.OK:
            demand(bool(answer.shares), "the answer to the first Reserve of {} names no GPUs", pod.uid)
            shim.hold(Holds(pod, attempt, call.node, answer.shares))

    def _preempt(self, call: Call, answered: bool) -> None:
        pod, attempt, shim = call.pod, call.attempt, call.shim
        assert pod is not None
        assert attempt is not None
        answer = self.service.preempt(attempt, pod, call.nodes, call.protected)
        self._hear()
        self.say("  Preempt {} for {}: {}", attempt.number, pod.uid, answer)
        if not (call.awaited and answered):
            self.unanswered(call)
            return
        call.awaited = False
        shim.cycle = None
        if answer.node:
            shim.nominate(pod, attempt.number, answer.node, answer.gpus)
            self.proposals.append((call, answer))
        elif answer.code is Code.UNSCHEDULABLE:
            shim.nominated.pop(pod.uid, None)

    def _unreserve(self, call: Call, answered: bool) -> None:
        assert call.pod is not None
        assert call.ending is not None
        self.service.unreserve(call.ending.attempt, call.pod.uid, unknown=call.ending.unknown)
        self._hear()
        if call.awaited and answered:
            call.shim.acknowledged(call.pod.uid, call.ending)
        self.unanswered(call)

    def _resync(self, call: Call, answered: bool) -> None:
        assert call.statement is not None
        self.resync(call.shim, call.statement, answered=call.awaited and answered)
        self.unanswered(call)

    def _check_offer(self, shim: Shim, pod: Pod, node: str, shares: dict[str, tuple[str, ...]]) -> None:
        """No GPU is offered that a live pod has, or that the shim holds for another one, told of or not."""
        wrong = shares_fault(pod.request, shares)
        demand(not wrong, "{} was offered {}: {}", pod.uid, shares, wrong)
        if shim.session < self.newest_heard:
            # A service that started anew does not know yet that this one was deposed.
            return
        offered = {gpu for share in shares.values() for gpu in share}
        for other in self.api.bound.get(node, {}).values():
            if other is not pod and other.sure:
                demand(
                    offered.isdisjoint(other.handles), "{} was offered GPUs of {} that {} is bound with", pod.uid, node, other.uid
                )
        for holds in shim.held.values():
            if holds.pod is not pod and holds.node == node and holds.pod.live and not self._excused(holds):
                demand(
                    offered.isdisjoint(holds.gpus), "{} was offered GPUs of {} that {} is held for", pod.uid, node, holds.pod.uid
                )

    def _excused(self, holds: Holds) -> bool:
        bound = holds.pod
        elsewhere = bound.node is not None and (bound.node != holds.node or set(bound.handles) != holds.gpus)
        return elsewhere or bound.void or bound.edited or bound.swapped or bound.stale

    # -- Bindings -------------------------------------------------------------------------------------------------------

    def land(self, binding: Binding, *, answered: bool, refused: bool = False) -> None:
        """Have the API server handle a Binding."""
        shim, holds = binding.shim, binding.holds
        pod = holds.pod
        done = not refused and pod.live and pod.node is None and not pod.terminating
        if done:
            pod.shares, pod.session = dict(holds.shares), shim.session
            pod.edited = pod.forged = False
            pod.stale = self._is_stale(holds)
            self.api.bind(pod, holds.node)
            self.counts["bound"] += 1
            self.counts["bound by a superseded scheduler"] += pod.stale
            self._check_once(pod)
        self.say("  Binding of {} to {} {}", pod.uid, holds.node, "lands" if done else "is refused")
        if shim not in self.shims or holds.stage is not Stage.POSTED:
            return
        if not answered:
            shim.doubt(holds)
        elif done or self.looks_bound(holds):
            shim.no_doubt(holds)
        else:
            shim.give_back(pod.uid, holds.attempt)

    def _is_stale(self, holds: Holds) -> bool:
        """Tell whether nobody could know of this Binding: its session was superseded, or it and the service are new both."""
        session, entry = holds.attempt.session, self.service.model.entries.get(holds.pod.uid)
        if session < self.newest_heard:
            return True
        return session < self.shim.session and (entry is None or entry.attempt != (session, holds.attempt.number))

    def looks_bound(self, holds: Holds) -> bool:
        """Tell whether a live read shows the pod bound as its Binding says."""
        return holds.pod.live and holds.pod.node == holds.node and holds.pod.shares == holds.shares

    def _check_once(self, pod: Pod) -> None:
        """No GPU is in two live pods that the service chose it for."""
        assert pod.node is not None
        for other in self.api.bound[pod.node].values():
            if other is not pod and other.session is not None and not set(other.handles).isdisjoint(pod.handles):
                excused = not (pod.sure and other.sure)
                demand(
                    excused,
                    "{} of {} is in {} and {}",
                    sorted(set(other.handles) & set(pod.handles)),
                    pod.node,
                    other.uid,
                    pod.uid,
                )
                self.counts["doubled by a superseded scheduler" if other.stale or pod.stale else "doubled otherwise"] += 1

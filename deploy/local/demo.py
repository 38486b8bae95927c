"""The main job, shown: pods of many sizes come to a half-full cluster, and each gets the best-connected GPUs.

The same pods come, in the same order, to equal nodes that the default scheduler serves. What it would have given them
is shown beside, and so is what a random choice gets. Everything that is shown is checked first.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Final

from rich.console import Console

from deploy.local import demo_picture, machines
from deploy.local.control_plane import ControlPlane, Mode, Options, running
from deploy.local.demo_cluster import Bound, Side, await_known
from deploy.local.demo_judge import Choice, Free, Judge, is_best, random_draw
from deploy.local.demo_picture import Row
from deploy.local.demo_policies import preferred
from deploy.local.demo_scenario import NODES, PODS, TOO_LARGE, TOO_LATE, NodePlan, PodPlan, Refused
from deploy.local.demo_why import ranges, why
from deploy.local.errors import AlreadyRunningError, LocalError
from deploy.local.layout import Layout
from deploy.local.scheduler_config import DEFAULT_PROFILE, GPU_PROFILE

_OURS: Final = "demo"
_TWIN: Final = "demo-default"
_TWIN_SUFFIX: Final = "-twin"

_HOW_COMPARED: Final = (
    "GB/s: bandwidth of the rings through the GPUs, by our model; link: weakest pair. default-scheduler: its real "
    "choice of nodes on an equal set of nodes, same pods, same order (it breaks ties at random); the GPUs there by the "
    "policy of the vendor's device plugin, which the kubelet asks (GetPreferredAllocation; if a plugin does not offer "
    "it, the kubelet takes any): NVIDIA's best-effort policy, for mi250x AMD's. random: mean over any node with room and any set of its free GPUs, all equally likely; as good: "
    "share of those draws that reach our GB/s."
)


class DemoFailedError(LocalError):
    """The demo saw something that must not be."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a pod got, and what it could have got then."""

    pod: str
    chosen: Choice
    choices: Sequence[Choice]
    free: Free


def run(root: Path, *, keep: bool, output_json: Path | None, console: Console) -> None:
    """Run the demo.

    Parameters
    ----------
    root
        Folder for all state and the logs.
    keep
        Leave everything running at the end.
    output_json
        File that takes the results; None: none.
    console
        Where it is shown.

    Raises
    ------
    LocalError
        If something fails, or a check does. Everything is stopped then, with `keep` too.

    """
    begun = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - begun:5.1f} s[/]  {text}", soft_wrap=True)

    with _handling(_end, signal.SIGTERM), _control_plane(root, keep=keep, say=say) as plane:
        show = _Show(plane, say)
        show.prepare()
        refusals = show.refuse(TOO_LARGE)
        rows = [row for plan in PODS for row in show.place(plan)]
        refusals |= show.refuse(TOO_LATE)
        show.check_reports()
        _print(console, rows, refusals)
        if output_json:
            output_json.write_text(json.dumps(_document(rows, refusals), indent=2) + "\n")
        if keep:
            _print_commands(console, plane)
    say("left running" if keep else f"stopped; logs are in {plane.layout.logs}")


def refuse_second(layout: Layout) -> None:
    """Raise `AlreadyRunningError` if a demo runs in the folder."""
    if running(layout):
        raise AlreadyRunningError(f"a demo is running in {layout.root}: wait for it to end, or end it with `make demo-stop`")


class _Show:
    """One run of the scenario. `free` are the GPUs that are free now, on our side and on the default scheduler's."""

    def __init__(self, plane: ControlPlane, say: Callable[[str], None]) -> None:
        self._plane = plane
        self._say = say
        self._judge = Judge({node.name: node.machine for node in NODES})
        self._ours = Side(plane, _OURS, GPU_PROFILE)
        self._twin = Side(plane, _TWIN, DEFAULT_PROFILE, _TWIN_SUFFIX)
        self._free = {node.name: _free_at_first(node) for node in NODES}
        self._twin_free = dict(self._free)
        self._bound: dict[str, Bound] = {}

    def prepare(self) -> None:
        """Create the nodes of both sides and what is taken on them."""
        kinds = len({node.machine for node in NODES})
        self._say(f"creating {len(NODES)} nodes of {kinds} kinds in {len({node.rack for node in NODES})} racks, and their twins")
        for side in (self._ours, self._twin):
            side.create_nodes(NODES)
        await_known(self._plane, NODES)
        self._say("the scheduler knows their links; some GPUs are taken by others")

    def place(self, plan: PodPlan) -> list[Row]:
        """Let a pod or Job come on both sides; check and return what its pods got."""
        self._ours.create(plan)
        self._twin.create(plan)
        bound = self._ours.await_running(plan)
        defaults = self._twin.await_settled(plan)
        self._bound |= bound
        rows = [self._row(given, plan, defaults[given.pod]) for given in self._replay(plan, bound)]
        for row in rows:
            chosen = row.chosen
            self._say(f"{row.pod}: {chosen.node} GPUs {ranges(chosen.gpus)}" + (f" ({chosen.link})" if chosen.link else ""))
        return rows

    def refuse(self, refused: Refused) -> dict[str, str]:
        """Let a pod come that cannot be placed; return the message of its Event, by its name."""
        name = refused.pod.name
        self._ours.create(refused.pod)
        message = self._ours.await_refusal(refused.pod)
        if refused.says not in message or self._ours.phase(refused.pod) != "Pending":
            raise DemoFailedError(f"pod {name} should be Pending with an Event that says {refused.says!r}: {message}")
        self._say(f"{name}: waits, and its Event says why")
        return {name: message}

    def check_reports(self) -> None:
        """Compare what the nodes say that they handed out with what the pods were promised."""
        for name, bound in self._bound.items():
            reported = self._ours.await_report(bound)
            if sorted(reported) != sorted(bound.gpus):
                raise DemoFailedError(f"{bound.node} gave pod {name} {reported}, its annotation says {bound.gpus}")
        self._say(f"checked: {len(self._bound)} pods on distinct GPUs, each at the best link level possible then")

    def _replay(self, plan: PodPlan, bound: Mapping[str, Bound]) -> list[Given]:
        """Return the pods of a plan in an order in which each got the best that was free; they come at once.

        Raises
        ------
        DemoFailedError
            If there is no such order.

        """
        complaints = []
        for order in permutations(bound):
            try:
                given, free = self._in_order(plan, [(name, bound[name]) for name in order])
            except DemoFailedError as complaint:
                complaints.append(complaint)
                continue
            self._free = free
            return given
        raise complaints[0]

    def _in_order(self, plan: PodPlan, order: Sequence[tuple[str, Bound]]) -> tuple[list[Given], dict[str, frozenset[int]]]:
        free, given = dict(self._free), []
        for name, bound in order:
            gpus = self._indices(name, bound, plan.gpus)
            if not gpus <= free[bound.node]:
                raise DemoFailedError(f"pod {name} got GPUs {ranges(gpus)} of {bound.node}, of which others hold some")
            chosen = self._judge.judge(bound.node, gpus, free[bound.node])
            choices = self._judge.choices(free, _eligible(plan), plan.gpus)
            if not is_best(chosen, choices):
                best = min(choices, key=lambda choice: choice.rank)
                raise DemoFailedError(
                    f"pod {name} got {bound.node} GPUs {ranges(gpus)} ({chosen.link}, {chosen.ring_gbps:.3g} GB/s), but "
                    f"{best.node} had GPUs {ranges(best.gpus)} ({best.link}, {best.ring_gbps:.3g} GB/s) free"
                )
            given.append(Given(name, chosen, choices, dict(free)))
            free[bound.node] -= gpus
        return given, free

    def _indices(self, pod: str, bound: Bound, size: int) -> frozenset[int]:
        index_of = {gpu["uuid"]: gpu["index"] for gpu in self._judge.document(bound.node)["gpus"]}
        gpus = frozenset(index_of[uuid] for uuid in bound.gpus if uuid in index_of)
        if len(gpus) != size:
            raise DemoFailedError(f"pod {pod} asked for {size} GPUs; its annotation names {bound.gpus} on {bound.node}")
        return gpus

    def _row(self, given: Given, plan: PodPlan, default: Bound | None) -> Row:
        return Row(
            pod=given.pod,
            chosen=given.chosen,
            default=self._default(plan, default.node) if default else None,
            draw=random_draw(given.choices),
            why=why(given.chosen, given.choices, given.free),
        )

    def _default(self, plan: PodPlan, node: str) -> Choice:
        """Return the GPUs that the vendor's policy takes on the node that the default scheduler chose, and take them.

        They are taken here alone: the simulated kubelet asks no plugin, and that scheduler only counts GPUs.
        """
        free = self._twin_free[node]
        gpus = preferred(self._judge.document(node), free, plan.gpus)
        self._twin_free[node] = free.difference(gpus)
        return self._judge.judge(node, gpus, free)


def _free_at_first(node: NodePlan) -> frozenset[int]:
    count = len(machines.document(node.machine, node.name)["gpus"])
    return frozenset(range(count)).difference(node.taken)


def _eligible(plan: PodPlan) -> list[str]:
    """Return the nodes that a pod could be on: with its resource, and the product that it selects."""
    return [
        node.name for node in NODES if machines.resource(node.machine) == plan.resource and plan.machine in {None, node.machine}
    ]


@contextmanager
def _control_plane(root: Path, *, keep: bool, say: Callable[[str], None]) -> Iterator[ControlPlane]:
    """Start the control plane; stop it at the end, unless it is to be kept and all went well."""
    layout = Layout.of(root)
    refuse_second(layout)
    say(f"starting etcd, kube-apiserver, kube-controller-manager, kwok, kube-scheduler, pyscheduler; logs: {layout.logs}")
    plane = ControlPlane.start(Options(root=root, mode=Mode.REPLACE, detached=keep))
    kept = False
    try:
        say("all are ready")
        yield plane
        kept = keep
    except LocalError as error:
        plane.check()
        raise DemoFailedError(f"{error}; logs are in {layout.logs}") from error
    finally:
        if not kept:
            say("stopping")
            with _handling(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM):
                plane.stop()


@contextmanager
def _handling(handler: Callable[[int, object], None] | signal.Handlers, *numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals in another way for a while."""
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _print(console: Console, rows: Sequence[Row], refusals: Mapping[str, str]) -> None:
    numa = {node.name: [gpu["numa"] for gpu in machines.document(node.machine, node.name)["gpus"]] for node in NODES}
    console.print()
    console.print(demo_picture.picture(NODES, numa, rows))
    console.print()
    console.print(demo_picture.results(rows))
    console.print(demo_picture.tally(rows))
    console.print(_HOW_COMPARED, style="dim")
    console.print("\nWhy", style="bold")
    console.print(demo_picture.reasons(rows))
    console.print("\nPending, and what their Events say", style="bold")
    for name, message in refusals.items():
        console.print(f"[bold]{name}[/]  {message}")
    console.print()


def _document(rows: Sequence[Row], refusals: Mapping[str, str]) -> dict[str, object]:
    """Return the results for machines."""
    return {"pods": [_row(row) for row in rows], "pending": dict(refusals)}


def _row(row: Row) -> dict[str, object]:
    chosen, default = _choice(row.chosen), _choice(row.default) if row.default else None
    return {"pod": row.pod, **chosen, "default": default, "random": asdict(row.draw), "why": row.why}


def _choice(choice: Choice) -> dict[str, object]:
    return {"node": choice.node, "gpus": choice.gpus, "link": choice.link, "ring_gbps": choice.ring_gbps}


def _print_commands(console: Console, plane: ControlPlane) -> None:
    gpus = r"""-o jsonpath='{range .items[*]}{.metadata.name}{"\t"}{.metadata.annotations.pyscheduler\.io/gpus}{"\n"}{end}'"""
    kubectl = f"kubectl --kubeconfig {plane.kubeconfig} -n {_OURS}"
    grpcurl = f"grpcurl -plaintext -unix {plane.layout.socket}"
    console.print(f"kubeconfig  {plane.kubeconfig}\nsocket      {plane.layout.socket}\n", soft_wrap=True)
    for command in (
        f"{kubectl} get pods -o wide",
        f"{kubectl} get pods {gpus}",
        f"{kubectl} get events --field-selector reason=FailedScheduling",
        f"{grpcurl} list",
        f"{grpcurl} pyscheduler.v1.Inspect/ListNodes",
        "make demo-stop",
    ):
        console.print(command, markup=False, soft_wrap=True)
    console.print()

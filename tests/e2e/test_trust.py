"""Annotations that the scheduler did not write, where no admission policy keeps them out: ignored, told, and harming nobody.

On each of many nodes without an agent stand a pod that the scheduler placed and one whose annotation is forged. The
service's books are looked at twice: while it runs, and after it was killed and has read all anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest
import yaml

from deploy.local import components
from deploy.local.api import Object, in_parallel
from deploy.local.control_plane import ControlPlane
from deploy.local.devices import GPUS
from deploy.local.scheduler_config import DEFAULT_PROFILE, GPU_PROFILE
from deploy.local.workspace import Workspace
from tests.e2e.forging import (
    GPUS_OF_NODE,
    Books,
    chosen,
    edit,
    forge,
    named,
    nodes_without_agent,
    place,
    report,
    set_bound_at,
    uuids,
    wait_held,
)

# GPUs of each pod that the scheduler placed, and of each whose annotation is forged.
ASKED: Final = 2
LONG_AGO: Final = "2020-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """An annotation that the scheduler did not write.

    Attributes
    ----------
    value
        The annotation, by the name of the node and the GPUs of the other pod there; None: there is none.
    why
        Part of the reason that Inspect gives for not trusting it.
    scheduler
        The pod's scheduler.

    """

    value: Callable[[str, list[str]], str | None]
    why: str
    scheduler: str = GPU_PROFILE


def _always(value: str | None) -> Callable[[str, list[str]], str | None]:
    return lambda _node, _theirs: value


MALFORMED: Final = {
    "empty": "",
    "no-json": "GPU-0,GPU-1",
    "cut": '{"main": ["GPU-0", "GPU-1"',
    "null": "null",
    "number": "2",
    "endless-number": "9" * 10_000,
    "text": '"GPU-0"',
    "list": '["GPU-0", "GPU-1"]',
    "gpu-without-list": '{"main": "GPU-0"}',
    "indices-as-numbers": '{"main": [0, 1]}',
    "nulls": '{"main": [null, null]}',
    "empty-names": '{"main": ["", ""]}',
    "nested-lists": '{"main": [["GPU-0", "GPU-1"]]}',
    "deep": "[" * 100_000,
    "byte-order-mark": '\ufeff{"main": ["GPU-0", "GPU-1"]}',
}

FORGERIES: Final[Mapping[str, Forgery]] = {
    "gpus-of-a-running-pod": Forgery(value=lambda _, theirs: named(theirs), why="names a GPU that"),
    "one-gpu-of-a-running-pod": Forgery(value=lambda node, theirs: named([theirs[1], *_others(node, theirs)[:1]]), why="holds"),
    "gpus-of-a-running-pod-by-index": Forgery(value=lambda node, theirs: named(_indices(node, theirs)), why="names a GPU that"),
    "gpus-that-do-not-exist": Forgery(value=_always(named(["GPU-a", "GPU-b"])), why="names"),
    "gpus-of-another-node": Forgery(value=_always(named(uuids("elsewhere", 0, 1))), why="names"),
    "index-that-does-not-exist": Forgery(value=_always(named(["index:8", "index:-1"])), why="names"),
    "one-gpu-under-two-names": Forgery(value=lambda node, _: named([*uuids(node, 7), "index:7"]), why="names"),
    "one-gpu-twice": Forgery(value=lambda node, _: named(uuids(node, 7, 7)), why="another number"),
    "too-few": Forgery(value=lambda node, _: named(uuids(node, 7)), why="another number"),
    "too-many": Forgery(value=lambda node, theirs: named(_others(node, theirs)), why="another number"),
    "none": Forgery(value=_always("{}"), why="another number"),
    "no-annotation": Forgery(value=_always(None), why="without naming"),
    "another-scheduler": Forgery(
        value=lambda node, theirs: named(_others(node, theirs)[:2]), why="another scheduler", scheduler=DEFAULT_PROFILE
    ),
    "huge": Forgery(value=_always(named([f"GPU-{number}" for number in range(20_000)])), why="another number"),
    "huge-and-malformed": Forgery(value=_always("x" * 250_000), why="without naming"),
    **{f"malformed-{kind}": Forgery(value=_always(text), why="without naming") for kind, text in MALFORMED.items()},
}

# What becomes of the annotation of a pod that the scheduler placed, the last of two on its node.
EDITS: Final[Mapping[str, Forgery]] = {
    "removed": Forgery(value=_always(None), why="without naming"),
    "malformed": Forgery(value=_always("{"), why="without naming"),
    "to-gpus-of-an-earlier-pod": Forgery(value=lambda _, theirs: named(theirs), why="names a GPU that"),
    "to-too-many": Forgery(value=lambda node, _: named(uuids(node, *range(8))), why="another number"),
}


def _others(node: str, theirs: list[str]) -> list[str]:
    return [uuid for uuid in uuids(node, *range(GPUS_OF_NODE)) if uuid not in theirs]


def _indices(node: str, handles: list[str]) -> list[str]:
    all_of_node = uuids(node, *range(GPUS_OF_NODE))
    return [f"index:{all_of_node.index(handle)}" for handle in handles]


def _params(cases: Mapping[str, Forgery]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", list(cases))


@dataclass(frozen=True)
class Scene:
    """Pods by the name of their case, and the books while the service ran and when it had read all anew."""

    nodes: Mapping[str, str]
    placed: Mapping[str, Object]
    forged: Mapping[str, Object]
    later: Mapping[str, Object]
    live: Books
    rebuilt: Books


@pytest.fixture(scope="module")
def own(control_plane: ControlPlane) -> Iterator[Workspace]:
    with Workspace(control_plane.api, "trust") as workspace:
        yield workspace


@dataclass(frozen=True)
class Reported:
    """Pods on nodes whose agents report, by name, and the GPUs that the reports give them."""

    pods: Mapping[str, Object]
    truth: Mapping[str, list[str]]


@pytest.fixture(scope="module")
def reported(own: Workspace) -> Iterator[Reported]:
    with nodes_without_agent(own, ["edited", "forged", "foreign"]) as nodes:
        pods: dict[str, Object] = {}
        truth: dict[str, list[str]] = {}
        # Of two that were placed the earlier one names the GPUs of the later one.
        for name in ("editor", "edited-against"):
            pods[name] = place(own, name, nodes["edited"], ASKED)
            truth[name] = chosen(pods[name])
        set_bound_at(own, "editor", LONG_AGO)
        edit(own, "editor", named(truth["edited-against"]))
        # The node has given a forged pod other GPUs than it names.
        pods["forged-against"] = place(own, "forged-against", nodes["forged"], ASKED)
        truth["forged-against"] = chosen(pods["forged-against"])
        pods["forger"] = forge(own, "forger", nodes["forged"], ASKED, named(truth["forged-against"]))
        truth["forger"] = _others(nodes["forged"], truth["forged-against"])[:ASKED]
        # A pod of another scheduler has GPUs that a forged pod names, of which the agent says nothing yet.
        pods["foreign"] = forge(own, "foreign", nodes["foreign"], ASKED, None, DEFAULT_PROFILE)
        truth["foreign"] = uuids(nodes["foreign"], 4, 5)
        pods["against-foreign"] = forge(own, "against-foreign", nodes["foreign"], ASKED, named(truth["foreign"]))
        for node in nodes.values():
            report(own.api, node, {uid(pods[n]): gpus for n, gpus in truth.items() if pods[n]["spec"]["nodeName"] == node})
        yield Reported(pods, truth)


@pytest.fixture(scope="module")
def scene(control_plane: ControlPlane, own: Workspace, reported: Reported) -> Iterator[Scene]:
    cases = {**FORGERIES, **{f"edited-{name}": forgery for name, forgery in EDITS.items()}}
    edited = [f"edited-{name}" for name in EDITS]
    with nodes_without_agent(own, [*cases, "last"]) as nodes:
        placed = _each(cases, lambda case: place(own, f"placed-{case}", nodes[case], ASKED))
        for case in edited:
            set_bound_at(own, f"placed-{case}", LONG_AGO)

        def forged_pod(case: str) -> Object:
            if case in edited:
                return place(own, f"forged-{case}", nodes[case], ASKED)
            forgery, node = cases[case], nodes[case]
            value = forgery.value(node, chosen(placed[case]))
            return forge(own, f"forged-{case}", node, ASKED, value, forgery.scheduler)

        forged = _each(cases, forged_pod)
        for case in edited:
            edit(own, f"forged-{case}", cases[case].value(nodes[case], chosen(placed[case])))
        # When the service has seen this one it has seen the edits: one watch tells all, in order.
        last = forge(own, "last", nodes["last"], 1, None)
        live = wait_held(control_plane.layout.socket, [uid(pod) for pod in (*placed.values(), *forged.values(), last)])
        control_plane.kill_component(components.SERVICE)
        control_plane.start_component(components.SERVICE)
        rebuilt = Books.of(control_plane.layout.socket)
        later = _each(cases, lambda case: place(own, f"later-{case}", nodes[case], GPUS_OF_NODE - 2 * ASKED))
        yield Scene(nodes, placed, forged, later, live, rebuilt)


def _each(cases: Mapping[str, Forgery], make: Callable[[str], Object]) -> dict[str, Object]:
    pods: dict[str, Object] = {}
    in_parallel(lambda case: pods.update({case: make(case)}), cases, workers=8)
    return pods


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def assert_distrusted(scene: Scene, books: Books, case: str, why: str) -> None:
    """The forged pod counts by number only, which is told with the reason; the placed pod keeps its GPUs."""
    held = books.holdings[uid(scene.forged[case])]
    assert (held.state, held.gpus) == ("foreign", ASKED)
    assert set(held.gpu_ids).isdisjoint(chosen(scene.placed[case]))
    assert why in held.reason
    assert_unharmed(scene, books, case)


def assert_unharmed(scene: Scene, books: Books, case: str) -> None:
    placed = scene.placed[case]
    theirs = books.holdings[uid(placed)]
    assert (theirs.state, sorted(theirs.gpu_ids)) == ("bound", sorted(chosen(placed)))
    assert books.nodes[scene.nodes[case]].free == GPUS_OF_NODE - 2 * ASKED


# Bound by its maker, with an annotation of his own


@_params(FORGERIES)
def test_forged_annotation_is_not_believed_while_the_service_runs(scene: Scene, case: str) -> None:
    assert_distrusted(scene, scene.live, case, FORGERIES[case].why)


@_params(FORGERIES)
def test_forged_annotation_is_not_believed_by_a_service_that_starts(scene: Scene, case: str) -> None:
    assert_distrusted(scene, scene.rebuilt, case, FORGERIES[case].why)


@_params(FORGERIES)
def test_pod_that_comes_later_gets_gpus_of_nobody_else(scene: Scene, case: str) -> None:
    later = chosen(scene.later[case])
    assert len(set(later)) == GPUS_OF_NODE - 2 * ASKED
    assert set(later).isdisjoint(chosen(scene.placed[case]))


def test_distrust_is_logged_with_the_pod(scene: Scene, control_plane: ControlPlane, own: Workspace) -> None:
    lines = [
        json.loads(line) for line in control_plane.layout.log(components.SERVICE).read_text().splitlines() if line[:1] == "{"
    ]
    told = {line.get("pod") for line in lines if line["level"] == "warning"}
    ours = {case for case, forgery in FORGERIES.items() if forgery.scheduler == GPU_PROFILE}
    assert {f"{own.name}/forged-{case}" for case in ours} <= told


def test_node_refuses_a_pod_that_names_gpus_of_another(control_plane: ControlPlane, own: Workspace) -> None:
    (node,) = own.add_nodes("hgx-h100")
    placed = place(own, "runs", node, ASKED)
    own.wait_phase("runs", "Running")
    own.wait_in_use(node, lambda use: uid(placed) in use)
    forge(own, "forged-on-a-node-with-agent", node, ASKED, named(chosen(placed)))
    refused = own.wait_phase("forged-on-a-node-with-agent", "Failed")
    assert "not free" in refused["status"]["message"]
    # All others are still to be had.
    rest = place(own, "rest", node, GPUS_OF_NODE - ASKED)
    assert set(chosen(rest)).isdisjoint(chosen(placed))


def test_name_that_is_no_text_hides_no_holding(control_plane: ControlPlane, own: Workspace) -> None:
    with nodes_without_agent(own, ["no-text"]) as nodes:
        forged = forge(own, "no-text", nodes["no-text"], 1, '{"main": ["\\ud800"]}')
        last = forge(own, "after-no-text", nodes["no-text"], 1, None)
        try:
            books = wait_held(control_plane.layout.socket, [uid(forged), uid(last)])
        finally:
            own.delete_pod("no-text")
    assert books.holdings[uid(forged)].state == "foreign"


# Edited later


@_params(EDITS)
def test_edit_of_a_bound_pods_annotation_changes_nothing_while_the_service_runs(scene: Scene, case: str) -> None:
    edited = scene.forged[f"edited-{case}"]
    held = scene.live.holdings[uid(edited)]
    assert (held.state, sorted(held.gpu_ids)) == ("bound", sorted(chosen(edited)))
    assert_unharmed(scene, scene.live, f"edited-{case}")


@_params(EDITS)
def test_edited_annotation_is_not_believed_by_a_service_that_starts(scene: Scene, case: str) -> None:
    assert_distrusted(scene, scene.rebuilt, f"edited-{case}", EDITS[case].why)


# Where an agent reports


@pytest.mark.parametrize("name", ["editor", "edited-against"])
def test_report_wins_over_an_edited_annotation(scene: Scene, reported: Reported, name: str) -> None:
    held = scene.rebuilt.holdings[uid(reported.pods[name])]
    assert (held.state, sorted(held.gpu_ids)) == ("bound", sorted(reported.truth[name]))


@pytest.mark.parametrize("name", ["forger", "forged-against"])
def test_report_wins_over_a_forged_annotation(scene: Scene, reported: Reported, name: str) -> None:
    held = scene.rebuilt.holdings[uid(reported.pods[name])]
    assert sorted(held.gpu_ids) == sorted(reported.truth[name])
    node = scene.rebuilt.nodes[held.node]
    assert (node.free, node.count_only) == (GPUS_OF_NODE - 2 * ASKED, False)


def test_gpus_that_an_agent_reports_of_a_foreign_pod_cannot_be_named_by_another(scene: Scene, reported: Reported) -> None:
    forged = scene.rebuilt.holdings[uid(reported.pods["against-foreign"])]
    assert (forged.state, list(forged.gpu_ids)) == ("foreign", [])
    assert scene.rebuilt.nodes[forged.node].free == GPUS_OF_NODE - 2 * ASKED


# Where the scheduler is told to do without the service


@pytest.mark.long
def test_annotation_of_a_pod_that_was_bound_while_the_service_was_away_is_not_believed(
    control_plane: ControlPlane, own: Workspace
) -> None:
    config = control_plane.layout.config / f"{components.SCHEDULER}.yaml"
    before = config.read_text()
    content = yaml.safe_load(before)
    content["profiles"][-1]["pluginConfig"][0]["args"]["onUnavailable"] = "fallback"
    with nodes_without_agent(own, ["away"]) as nodes:
        config.write_text(yaml.safe_dump(content))
        control_plane.restart_component(components.SCHEDULER)
        control_plane.stop_component(components.SERVICE)
        try:
            spec = own.pod_spec(ASKED)
            spec["nodeSelector"]["kubernetes.io/hostname"] = nodes["away"]
            own.add_pod("away", spec, {GPUS: named(uuids(nodes["away"], 0, 1))})
            pod = own.wait_bound("away")
        finally:
            control_plane.start_component(components.SERVICE)
            config.write_text(before)
            control_plane.restart_component(components.SCHEDULER)
        held = Books.of(control_plane.layout.socket).holdings[uid(pod)]
    assert (held.state, held.gpus, list(held.gpu_ids)) == ("foreign", ASKED, [])

"""Preemption with the real scheduler: who goes for a pod of higher priority, who gets the GPUs, and when nobody goes."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import grpc
import pytest

from deploy.local.api import Api, Object
from deploy.local.control_plane import ControlPlane
from deploy.local.errors import ApiError
from deploy.local.simulated_nodes import simulate
from deploy.local.workspace import Workspace
from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc
from tests.e2e.test_placement import GPUS, gpus, uuids

CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
URGENT: Final = 1000
# Priority -> its PriorityClass. Pods without one have priority 0.
NAMES: Final = {0: "", 1: "preemption-1", 2: "preemption-2", 5: "preemption-5", URGENT: "preemption-urgent"}
PATIENT: Final = "preemption-patient"
MAX_LINK: Final = "pyscheduler.io/max-link"


@pytest.fixture(scope="module", autouse=True)
def classes(control_plane: ControlPlane) -> Iterator[None]:
    """The PriorityClasses of the tests."""
    api = control_plane.api
    bodies: list[Object] = [{"metadata": {"name": name}, "value": value} for value, name in NAMES.items() if name]
    bodies.append({"metadata": {"name": PATIENT}, "value": URGENT, "preemptionPolicy": "Never"})
    for body in bodies:
        api.create(CLASSES, body)
    for body in bodies:
        _wait_admitted(api, body["metadata"]["name"])
    yield
    for body in bodies:
        api.delete(f"{CLASSES}/{body['metadata']['name']}")


def _wait_admitted(api: Api, name: str) -> None:
    """Wait until the API server takes pods of a class: it learns of classes from a watch of its own, which nobody can see."""
    pod: Object = {
        "metadata": {"name": "probe"},
        "spec": {"priorityClassName": name, "containers": [{"name": "c", "image": "i"}]},
    }
    for attempt in range(100):
        try:
            api.create("/api/v1/namespaces/default/pods?dryRun=All", pod)
        except ApiError:
            if attempt == 99:
                raise
            time.sleep(0.1)
        else:
            return


def _spec(own: Workspace, count: int = 0, *, priority: int = 0, node: str = "", **more: Any) -> Object:
    """Return the spec of a pod of this priority, for one node if it is named."""
    spec = own.pod_spec(count, **more)
    if NAMES[priority]:
        spec["priorityClassName"] = NAMES[priority]
    if node:
        spec["nodeSelector"]["kubernetes.io/hostname"] = node
    return spec


def _run(own: Workspace, pods: Mapping[str, Object]) -> dict[str, Object]:
    """Create pods, and return them when they run."""
    for name, spec in pods.items():
        own.add_pod(name, spec)
    return {name: own.wait_phase(name, "Running") for name in pods}


def _occupy(own: Workspace, node: str, priorities: Mapping[str, int]) -> None:
    """Let a pod of each of these names and priorities hold one GPU of the node, in the order of its GPUs."""
    uids = set()
    for index, (name, priority) in enumerate(priorities.items()):
        spec = {**_spec(own, 1, priority=priority, scheduler="nobody"), "nodeName": node}
        uids.add(own.add_pod(name, spec, {GPUS: json.dumps({"main": [f"index:{index}"]})})["metadata"]["uid"])
    own.wait_in_use(node, lambda report: uids <= report.keys())


def _alive(own: Workspace, names: Collection[str]) -> set[str]:
    """Return those of these pods that are there and are not being deleted."""
    pods, _ = own.api.read_all(own.pods)
    return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]} & set(names)


def _holding(plane: ControlPlane, own: Workspace, name: str) -> inspect_pb2.Holding | None:
    with grpc.insecure_channel(f"unix:{plane.layout.socket}") as channel:
        answer = inspect_pb2_grpc.InspectStub(channel).ListHoldings(inspect_pb2.ListHoldingsRequest(), timeout=10)
    return next((holding for holding in answer.holdings if (holding.namespace, holding.name) == (own.name, name)), None)


def _was_refused(pod: Object) -> bool:
    """Return whether a scheduling cycle of the pod has ended: what it evicts has been decided by then."""
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in pod["status"].get("conditions", ()))


def test_cheapest_pods_go_and_their_gpus_are_for_the_one_that_needs_them(workspace: Workspace) -> None:
    one, two = workspace.add_nodes("hgx-h100", 2)
    running = _run(
        workspace,
        {
            "whole": _spec(workspace, 8, priority=1, node=one),
            "cheap": _spec(workspace, 4, node=two),
            "dear": _spec(workspace, 4, priority=5, node=two),
        },
    )
    workspace.add_pod("urgent", _spec(workspace, 4, priority=URGENT))
    urgent = workspace.wait_phase("urgent", "Running")
    assert urgent["spec"]["nodeName"] == two
    assert set(gpus(urgent)) == set(gpus(running["cheap"]))
    assert _alive(workspace, running) == {"whole", "dear"}
    assert workspace.wait_event("urgent", f"preempting 1 pod on node {two} for 4 GPUs")["reason"] == "Preempting"
    assert workspace.wait_event("cheap", "Preempted by")["reason"] == "Preempted"


def test_those_go_whose_gpus_make_a_set_within_the_limit(workspace: Workspace) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    # Bridged are the first two and the last two. The cheapest two, a and c, have GPUs across the sockets.
    _occupy(workspace, node, {"a": 0, "b": 5, "c": 1, "d": 2})
    workspace.add_pod("urgent", _spec(workspace, 2, priority=URGENT), {MAX_LINK: "PIX"})
    urgent = workspace.wait_phase("urgent", "Running")
    assert set(gpus(urgent)) == uuids("a100-pcie-bridged", node, (2, 3))
    assert _alive(workspace, "abcd") == {"a", "b"}


@pytest.mark.parametrize(
    ("others", "count", "settings", "policy", "why"),
    [
        pytest.param(1, 3, {MAX_LINK: "PIX"}, NAMES[URGENT], "", id="limit that no set meets"),
        pytest.param(URGENT, 2, {MAX_LINK: "PIX"}, NAMES[URGENT], "", id="limit that what may go does not meet"),
        pytest.param(1, 5, {}, NAMES[URGENT], "ask for at most 4", id="more than the node has"),
        pytest.param(1, 2, {}, PATIENT, "needs 2 GPUs", id="policy Never"),
    ],
)
def test_nobody_goes_where_it_would_not_help(
    workspace: Workspace, others: int, count: int, settings: Mapping[str, str], policy: str, why: str
) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    # Bridged are the first two and the last two.
    _occupy(workspace, node, {"a": others, "b": 1, "c": others, "d": 0})
    workspace.add_pod("hopeless", {**_spec(workspace, count), "priorityClassName": policy}, settings)
    workspace.wait_event("hopeless", why)
    workspace.wait_pod("hopeless", _was_refused)
    # Whom that pod had evicted would be gone before this one runs.
    workspace.add_pod("urgent", _spec(workspace, 1, priority=URGENT))
    workspace.wait_phase("urgent", "Running")
    assert _alive(workspace, "abcd") == {"a", "b", "c"}
    assert "nodeName" not in workspace.pod("hopeless")["spec"]


def test_set_is_held_while_smaller_pods_wait_for_its_gpus(workspace: Workspace, control_plane: ControlPlane) -> None:
    (node,) = workspace.add_nodes("hgx-h100")
    simulate(workspace.api, node, {"releaseSeconds": 3})
    _run(workspace, {f"v{i}": _spec(workspace, 2, priority=i % 2) for i in range(4)})
    small = [f"small-{i}" for i in range(4)]
    for name in small:
        workspace.add_pod(name, _spec(workspace, 1))
        workspace.wait_pod(name, _was_refused)
    workspace.add_pod("urgent", _spec(workspace, 4, priority=URGENT))
    workspace.wait_event("urgent", "preempting 2 pods")
    held = _holding(control_plane, workspace, "urgent")
    assert held is not None
    assert (held.state, held.node, len(held.gpu_ids)) == ("nominated", node, 4)
    # This one comes while the GPUs are free by the API already, and fits before the other.
    workspace.wait_pods_gone(["v0", "v2"])
    workspace.add_pod("late", _spec(workspace, 1))
    urgent = workspace.wait_phase("urgent", "Running")
    assert set(gpus(urgent)) == set(held.gpu_ids)
    assert _alive(workspace, ["v0", "v1", "v2", "v3"]) == {"v1", "v3"}
    assert not any("nodeName" in workspace.pod(name)["spec"] for name in (*small, "late"))


def test_pods_that_a_disruption_budget_protects_go_last(workspace: Workspace) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    pods = {"protected": _spec(workspace, 2), "other": _spec(workspace, 2, priority=5)}
    budgets = f"/apis/policy/v1/namespaces/{workspace.name}/poddisruptionbudgets"
    budget = {"metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    workspace.api.create(budgets, budget)
    for name, spec in pods.items():
        labels = {"app": "web"} if name == "protected" else {}
        workspace.api.create(workspace.pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        workspace.wait_phase(name, "Running")
    workspace.api.wait_for(budgets, lambda item: item.get("status", {}).get("currentHealthy") == 1, name="budget")
    workspace.add_pod("urgent", _spec(workspace, 2, priority=URGENT))
    assert workspace.wait_phase("urgent", "Running")["spec"]["nodeName"] == node
    assert _alive(workspace, pods) == {"protected"}


def test_pod_that_lacks_cpu_only_evicts_who_has_it_and_no_pod_with_gpus(workspace: Workspace) -> None:
    (node,) = workspace.add_nodes("hgx-h100", cpu="4")
    running = _run(
        workspace,
        {
            "gpus": _spec(workspace, 4),
            "cpu": _spec(workspace, priority=1, cpu="3"),
        },
    )
    workspace.add_pod("urgent", _spec(workspace, 4, priority=URGENT, cpu="2"))
    assert workspace.wait_phase("urgent", "Running")["spec"]["nodeName"] == node
    assert _alive(workspace, running) == {"gpus"}


def test_pod_without_gpus_preempts_as_without_the_plugin(workspace: Workspace) -> None:
    workspace.add_nodes("a100-pcie-bridged", cpu="4")
    workspace.wait_untainted()
    running = _run(
        workspace,
        {
            "low": _spec(workspace, cpu="1"),
            "middle": _spec(workspace, priority=1, cpu="1"),
            "high": _spec(workspace, 4, priority=5, cpu="1"),
        },
    )
    workspace.add_pod("urgent", _spec(workspace, priority=URGENT, cpu="2"))
    workspace.wait_phase("urgent", "Running")
    assert _alive(workspace, running) == {"middle", "high"}

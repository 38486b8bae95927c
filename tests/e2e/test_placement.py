"""The main job: a real kube-scheduler binds real pods to the best-connected GPUs of simulated nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from deploy.local import machines, simulated_nodes
from deploy.local.api import Object
from deploy.local.control_plane import ControlPlane
from deploy.local.simulated_nodes import NODES, TOPOLOGY
from deploy.local.workspace import Workspace, annotation
from tests.e2e.known_nodes import wait_known

GPUS = "pyscheduler.io/gpus"
PLACEMENT = "pyscheduler.io/placement"
KUBECTL = Path(sys.executable).with_name("kubectl")


def gpus(pod: Object) -> list[str]:
    """Return the GPUs that the pod was given."""
    return [handle for share in json.loads(annotation(pod, GPUS) or "{}").values() for handle in share]


def uuids(machine: str, node: str, indices: Iterable[int]) -> set[str]:
    """Return the UUIDs of these GPUs of a node."""
    listed = machines.document(machine, node)["gpus"]
    return {listed[i]["uuid"] for i in indices}


def test_two_gpu_pods_on_the_bridged_box_get_the_bridged_pairs(workspace: Workspace) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    for name in ("a", "b"):
        workspace.add_pod(name, workspace.pod_spec(2))
    got = [set(gpus(workspace.wait_phase(name, "Running"))) for name in ("a", "b")]
    pairs = [uuids("a100-pcie-bridged", node, pair) for pair in ((0, 1), (2, 3))]
    assert sorted(map(sorted, got)) == sorted(map(sorted, pairs))


@pytest.mark.parametrize(
    ("busy", "asked", "want"),
    [
        pytest.param((1, 2, 3), 4, (4, 5, 6, 7), id="four of {0,4,5,6,7}"),
        pytest.param((1, 2, 3, 7), 2, (5, 6), id="two of {0,4,5,6}"),
    ],
)
def test_dgx_1v_that_is_half_full_gives_the_best_ring(
    workspace: Workspace, busy: tuple[int, ...], asked: int, want: tuple[int, ...]
) -> None:
    (node,) = workspace.add_nodes("dgx-1v")
    workspace.occupy(node, busy)
    workspace.add_pod("p", workspace.pod_spec(asked))
    pod = workspace.wait_phase("p", "Running")
    assert set(gpus(pod)) == uuids("dgx-1v", node, want)
    assert json.loads(annotation(pod, PLACEMENT) or "{}")["advisory"] is False


def test_indexed_job_of_the_real_controller_shares_no_gpu(workspace: Workspace) -> None:
    nodes = workspace.add_nodes("hgx-h100", 2)
    workspace.wait_untainted()
    # Long enough that all run at one time: a pod that comes after another has ended may have its GPUs.
    workspace.add_indexed_job("train", 4, workspace.pod_spec(4), {"pyscheduler.io/simulate": '{"runSeconds": 5}'})
    workspace.wait_job("train", "Complete")
    pods, _ = workspace.api.read_all(workspace.pods)
    given = [(pod["spec"]["nodeName"], handle) for pod in pods for handle in gpus(pod)]
    assert len(given) == len(set(given)) == 16
    assert {node for node, _ in given} == set(nodes)


def test_amd_pod_is_placed_by_its_own_resource(workspace: Workspace) -> None:
    workspace.add_nodes("hgx-h100")
    (node,) = workspace.add_nodes("mi210x4")
    workspace.add_pod("p", workspace.pod_spec(4, resource="amd.com/gpu"))
    assert workspace.wait_phase("p", "Running")["spec"]["nodeName"] == node


def test_kubectl_shows_the_gpus(workspace: Workspace, control_plane: ControlPlane) -> None:
    workspace.add_nodes("dgx-1v")
    workspace.add_pod("p", workspace.pod_spec(1))
    pod = workspace.wait_bound("p")
    target = ["--kubeconfig", str(control_plane.kubeconfig), "--namespace", workspace.name]
    asked = ["get", "pod", "p", "-o", r"jsonpath={.metadata.annotations.pyscheduler\.io/gpus}"]
    shown = subprocess.run([KUBECTL, *target, *asked], capture_output=True, text=True, check=True)
    assert shown.stdout == annotation(pod, GPUS)


def test_pod_that_cannot_fit_waits_with_an_event_that_says_what_is_lacking_and_goes_on_when_gpus_are_freed(
    workspace: Workspace,
) -> None:
    (node,) = workspace.add_nodes("dgx-1v")
    occupant = workspace.occupy(node, range(6))
    workspace.add_pod("p", workspace.pod_spec(4))
    workspace.wait_event("p", f"needs 4 GPUs (nvidia.com/gpu) on one node; the nearest fit is {node} with 2, 2 too few")
    assert workspace.pod("p")["status"]["phase"] == "Pending"
    workspace.delete_pod(occupant)
    workspace.wait_phase("p", "Running")


def test_devices_that_the_node_still_holds_are_not_given_out(workspace: Workspace) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    simulated_nodes.simulate(workspace.api, node, {"releaseSeconds": 3})
    workspace.add_pod("first", workspace.pod_spec(4))
    first = workspace.wait_phase("first", "Running")
    workspace.wait_in_use(node, lambda report: first["metadata"]["uid"] in report)
    workspace.delete_pod("first")
    workspace.add_pod("second", workspace.pod_spec(4))
    workspace.wait_event("second", "needs 4 GPUs")
    second = workspace.wait_phase("second", "Running")
    assert second["status"]["phase"] == "Running"
    assert set(gpus(second)) == set(gpus(first))


def test_pod_recreated_under_its_name_gets_gpus_of_its_own(workspace: Workspace) -> None:
    workspace.add_nodes("hgx-h100")
    uids = set()
    # Without grace the API server ends it. kwok would end it by its name alone, and when it is late the next one of that name.
    spec = workspace.pod_spec(8) | {"terminationGracePeriodSeconds": 0}
    for _ in range(3):
        workspace.add_pod("p", spec)
        pod = workspace.wait_phase("p", "Running")
        uids.add(pod["metadata"]["uid"])
        assert len(set(gpus(pod))) == 8
        workspace.delete_pod("p")
    assert len(uids) == 3


def test_node_that_joins_wakes_the_pod_that_needs_it(workspace: Workspace) -> None:
    workspace.add_nodes("a100-pcie-bridged")
    workspace.add_pod("p", workspace.pod_spec(8))
    workspace.wait_event("p", "the largest eligible node has 4")
    (node,) = workspace.add_nodes("hgx-a100")
    assert workspace.wait_phase("p", "Running")["spec"]["nodeName"] == node


# Bad input


def test_more_gpus_than_any_node_has_is_told_with_the_fix(workspace: Workspace) -> None:
    workspace.add_nodes("hgx-h100")
    workspace.add_pod("nine", workspace.pod_spec(9))
    workspace.wait_event("nine", "1 too few: ask for at most 8 per pod, or use several pods")


def test_request_of_zero_gpus_is_a_plain_pod(workspace: Workspace) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    spec = workspace.pod_spec()
    spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0", "cpu": "100m"}}
    workspace.add_pod("zero", spec)
    pod = workspace.wait_phase("zero", "Running")
    assert (pod["spec"]["nodeName"], annotation(pod, GPUS)) == (node, None)


def test_malformed_topology_degrades_that_node_alone_and_is_told(workspace: Workspace) -> None:
    broken, sound = workspace.add_nodes("a100-pcie-bridged", 2)
    workspace.api.patch(f"{NODES}/{broken}", {"metadata": {"annotations": {TOPOLOGY: "{not json"}}})
    event = workspace.api.wait_for(
        "/api/v1/namespaces/default/events", lambda e: e["involvedObject"]["name"] == broken and "is not JSON" in e["message"]
    )
    assert "or remove the annotation" in event["message"]
    for name in ("a", "b"):
        workspace.add_pod(name, workspace.pod_spec(4))
    pods = {pod["spec"]["nodeName"]: pod for pod in (workspace.wait_bound(name) for name in ("a", "b"))}
    advisory = {node: json.loads(annotation(pod, PLACEMENT) or "{}")["advisory"] for node, pod in pods.items()}
    assert advisory == {sound: False, broken: True}


def test_setting_that_is_not_supported_is_told_not_ignored(workspace: Workspace) -> None:
    workspace.add_nodes("a100-pcie-bridged")
    workspace.add_pod("p", workspace.pod_spec(1), {"pyscheduler.io/max-links": "PIX"})
    workspace.wait_event("p", "pyscheduler.io/max-links")


def test_limit_of_the_pod_is_kept_or_told(workspace: Workspace) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    workspace.occupy(node, [1])
    workspace.add_pod("pair", workspace.pod_spec(2), {"pyscheduler.io/max-link": "NV12"})
    assert len(set(gpus(workspace.wait_phase("pair", "Running")))) == 2
    workspace.add_pod("triple", workspace.pod_spec(3), {"pyscheduler.io/max-link": "NV12"})
    workspace.wait_event("triple", "no link worse than NV12")
    workspace.add_pod("typo", workspace.pod_spec(2), {"pyscheduler.io/max-link": "NVLINK"})
    workspace.wait_event("typo", "use NV<n>")


def test_nodes_and_pods_that_no_reader_expects_harm_only_themselves(workspace: Workspace, control_plane: ControlPlane) -> None:
    odd, _ = workspace.add_nodes("a100-pcie-bridged", 2)
    workspace.wait_untainted()
    document = json.dumps(
        {
            "version": 1,
            "kind": "node",
            "gpus": [{"id": "GPU0"}, {"id": "GPU1"}],
            "links": [{"a": ["GPU0"], "b": "GPU1", "type": "NV1"}],
        }
    )
    workspace.api.patch(f"{NODES}/{odd}", {"metadata": {"annotations": {TOPOLOGY: document}}})
    # A pod placed by the old document would hold GPUs that the new one does not name.
    wait_known(control_plane.layout.socket, odd, lambda node: len(node.gpus) == 2)
    workspace.add_pod("deep", workspace.pod_spec(1), {GPUS: "[" * 20_000})
    workspace.add_pod("absurd", workspace.pod_spec(3_000_000_000))
    workspace.wait_event("absurd", "ask for at most 4 per pod")
    for name, gpus in (("a", 3), ("b", 1)):
        workspace.add_pod(name, workspace.pod_spec(gpus))
    for name in ("deep", "a", "b"):
        workspace.wait_phase(name, "Running")
    # Wake-ups still come.
    workspace.add_pod("waits", workspace.pod_spec(4))
    workspace.wait_event("waits", "needs 4 GPUs")
    for name in ("a", "b", "deep"):
        workspace.delete_pod(name)
    workspace.wait_phase("waits", "Running")


def test_node_recreated_under_its_name_wakes_a_pod_that_tolerates_everything(workspace: Workspace) -> None:
    workspace.add_nodes("a100-pcie-bridged")
    (node,) = workspace.add_nodes("hgx-h100")
    manifest = workspace.node(node)
    workspace.api.delete(f"{NODES}/{node}")
    workspace.api.wait_gone(NODES, node)
    spec = {**workspace.pod_spec(8), "tolerations": [{"operator": "Exists"}]}
    workspace.add_pod("p", spec)
    workspace.wait_event("p", "the largest eligible node has 4")
    kept = {key: manifest["metadata"][key] for key in ("name", "labels", "annotations")}
    workspace.api.create(NODES, {"metadata": kept, "status": manifest["status"]})
    workspace.wait_phase("p", "Running", timeout_s=20)


def test_pod_that_lacks_cpu_where_the_gpus_are_is_woken_where_the_cpu_is(workspace: Workspace) -> None:
    (roomy,) = workspace.add_nodes("a100-pcie-bridged")
    workspace.add_nodes("hgx-h100", cpu="1")
    simulated_nodes.simulate(workspace.api, roomy, {"releaseSeconds": 3})
    occupant = workspace.occupy(roomy, range(4))
    workspace.add_pod("p", workspace.pod_spec(1, cpu="10"))
    workspace.wait_event("p", "Insufficient cpu")
    workspace.delete_pod(occupant)
    assert workspace.wait_phase("p", "Running", timeout_s=30)["spec"]["nodeName"] == roomy

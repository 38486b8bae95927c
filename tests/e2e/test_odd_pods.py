"""Pods of every kind, and pods that others put on our nodes, with the real schedulers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deploy.local import simulated_nodes
from deploy.local.api import Object
from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.scheduler_config import DEFAULT_PROFILE, GPU_PROFILE
from deploy.local.workspace import Workspace, annotation
from tests.e2e.test_control_plane import ENDS_AFTER_1_S

GPUS = "pyscheduler.io/gpus"


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Two schedulers that do not know of each other: ours beside that of the cluster."""
    with ControlPlane.start(Options(root=tmp_path_factory.mktemp("beside"), mode=Mode.BESIDE)) as plane:
        yield plane


def container(name: str, gpus: int, **fields: str) -> Object:
    amounts = {"cpu": "10m", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {"name": name, "image": "any", "resources": {"requests": amounts, "limits": amounts}, **fields}


def shares(pod: Object) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(annotation(pod, GPUS) or "{}")
    return found


def test_containers_init_containers_and_sidecars_share_the_gpus_as_the_kubelet_gives_them(workspace: Workspace) -> None:
    workspace.add_nodes("hgx-h100")
    spec = workspace.pod_spec()
    spec["initContainers"] = [container("side", 1, restartPolicy="Always"), container("warm", 4)]
    spec["containers"] = [container("train", 2), container("eval", 1), container("log", 0)]
    workspace.add_pod("many", spec)
    given = shares(workspace.wait_phase("many", "Running"))
    assert {name: len(gpus) for name, gpus in given.items()} == {"side": 1, "warm": 4, "train": 2, "eval": 1}
    assert len({*given["side"], *given["train"], *given["eval"]}) == 4, "they run at one time"
    assert len({*given["side"], *given["warm"]}) == 5
    assert {*given["train"], *given["eval"]} <= set(given["warm"]), "what an init container had is used again"
    # Five are held at its peak: three are left.
    workspace.add_pod("rest", workspace.pod_spec(3))
    rest = shares(workspace.wait_phase("rest", "Running"))
    assert not {*rest["main"]} & {*given["side"], *given["warm"]}


def test_pod_that_a_user_binds_to_a_node_himself_holds_what_it_asks_for(workspace: Workspace) -> None:
    """As a static pod or a DaemonSet's pod of old: no scheduler is asked."""
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    workspace.add_pod("static", {**workspace.pod_spec(3, scheduler=GPU_PROFILE), "nodeName": node})
    static = workspace.wait_phase("static", "Running")
    report = workspace.wait_in_use(node, lambda pods: static["metadata"]["uid"] in pods)
    theirs = {gpu for gpus in report[static["metadata"]["uid"]].values() for gpu in gpus}
    workspace.add_pod("ours", workspace.pod_spec(1))
    assert not theirs & {*shares(workspace.wait_phase("ours", "Running"))["main"]}
    workspace.add_pod("more", workspace.pod_spec(1))
    workspace.wait_event("more", "needs 1 GPU")


def test_completed_pod_gives_its_gpus_back(workspace: Workspace) -> None:
    workspace.add_nodes("a100-pcie-bridged")
    workspace.add_indexed_job("done", 1, workspace.pod_spec(4), ENDS_AFTER_1_S)
    workspace.api.wait_for(workspace.pods, lambda pod: "nodeName" in pod["spec"])
    workspace.add_pod("next", workspace.pod_spec(4))
    workspace.wait_job("done", "Complete")
    workspace.wait_phase("next", "Running")


def test_two_schedulers_on_one_node_give_no_gpu_twice_and_who_came_too_late_is_told(beside: ControlPlane) -> None:
    """Each sees only later what the other has bound; what a node has no room for it refuses."""
    with Workspace(beside.api, "two-schedulers") as workspace:
        (node,) = workspace.add_nodes("hgx-h100")
        workspace.wait_untainted()
        names = [f"{who}-{number}" for number in range(6) for who in ("ours", "theirs")]
        for name in names:
            profile = GPU_PROFILE if name.startswith("ours") else DEFAULT_PROFILE
            workspace.add_pod(name, workspace.pod_spec(2, scheduler=profile))
        # Six pods of twelve ask for more than there is: four run, in whatever mixture, the others wait or were refused.
        report = workspace.wait_in_use(node, lambda pods: len(pods) == 4)
        given = [gpu for pod in report.values() for gpus in pod.values() for gpu in gpus]
        assert len(given) == len(set(given)) == 8
        for name in names:
            pod = workspace.pod(name)
            if pod["status"]["phase"] == "Failed":
                assert pod["status"]["reason"] == "UnexpectedAdmissionError"
            elif pod["status"]["phase"] == "Pending" and name.startswith("ours"):
                workspace.wait_event(name, "needs 2 GPUs")
            elif name.startswith("ours"):
                assert set(shares(pod)["main"]) <= set(given)


def test_devices_of_pods_that_go_at_once_are_not_given_out_before_the_node_has_them_back(workspace: Workspace) -> None:
    """Each pod is force-deleted as soon as it runs: often its node has not told of its devices yet."""
    (node,) = workspace.add_nodes("hgx-h100")
    simulated_nodes.simulate(workspace.api, node, {"releaseSeconds": 0.5})
    for number in range(10):
        workspace.add_pod(f"p{number}", workspace.pod_spec(8))
        pod = workspace.wait_pod(f"p{number}", lambda item: item["status"].get("phase") in {"Running", "Failed"})
        assert pod["status"]["phase"] == "Running", pod["status"]
        workspace.delete_pod(f"p{number}")

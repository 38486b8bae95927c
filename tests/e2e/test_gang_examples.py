"""The examples in deploy/examples on the real control plane: placed by one plan, ranked in order, with their table beside them.

Pods of Jobs are those of the real Job controller. The controllers of JobSet, LeaderWorkerSet and PyTorchJob are not here: what
they would create is created as they do, by one function for each.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pytest
import yaml

from deploy.local import components
from deploy.local.api import Object
from deploy.local.control_plane import ControlPlane
from deploy.local.layout import REPOSITORY
from deploy.local.workspace import RUN_LABEL, Workspace, annotation
from tests.e2e.known_nodes import until, wait_known
from tests.e2e.test_gangs import add_member, each_gpu_once, names, running
from tests.e2e.test_placement import gpus
from tests.e2e.test_topology import definition, installed

EXAMPLES: Final = REPOSITORY / "deploy" / "examples"
BOX: Final = "hgx-h100"
RANK: Final = "pyscheduler.io/rank"


def example(file: str, kind: str) -> Object:
    """Return the object of a kind in an example."""
    return next(copy.deepcopy(each) for each in yaml.safe_load_all((EXAMPLES / file).read_text()) if each["kind"] == kind)


def collection(own: Workspace, api_version: str, plural: str) -> str:
    prefix = "/apis" if "/" in api_version else "/api"
    return f"{prefix}/{api_version}/namespaces/{own.name}/{plural}"


def here(own: Workspace, template: Object) -> Object:
    """Return a pod template that is kept to the nodes of a workspace."""
    return {"metadata": {}, **template, "spec": {**template["spec"], "nodeSelector": {RUN_LABEL: own.name}}}


def marked(item: Object, labels: dict[str, str], annotations: dict[str, str] | None = None) -> Object:
    """Return an object, or a pod template, with further labels and annotations."""
    meta = item.get("metadata") or {}
    more = {
        "labels": {**(meta.get("labels") or {}), **labels},
        "annotations": {**(meta.get("annotations") or {}), **(annotations or {})},
    }
    return {**item, "metadata": {**meta, **more}}


def owned(item: Object, owner: Object, name: str) -> Object:
    """Return an object of this name that another one controls."""
    by = {
        **{key: owner[key] for key in ("apiVersion", "kind")},
        **{key: owner["metadata"][key] for key in ("name", "uid")},
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**item, "metadata": {**item["metadata"], "name": name, "ownerReferences": [by]}}


def created(own: Workspace, item: Object, plural: str) -> Object:
    """Create an object, and return it with its kind."""
    kind = {key: item[key] for key in ("apiVersion", "kind")}
    return {**own.api.create(collection(own, item["apiVersion"], plural), item), **kind}


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane) -> Iterator[None]:
    """Serve the kinds whose controllers are not here.

    The API server makes whoever creates an object of a kind that is younger than 2 s wait for 2 s (crdHandler of
    k8s.io/apiextensions-apiserver): so for all at once, and before the Job.
    """
    with ExitStack() as kept:
        for file, kind in (
            ("jobset.yaml", "JobSet"),
            ("leaderworkerset.yaml", "LeaderWorkerSet"),
            ("pytorchjob.yaml", "PyTorchJob"),
        ):
            group, _, version = example(file, kind)["apiVersion"].partition("/")
            crd = definition(group, version, kind, f"{kind.lower()}s")
            crd["spec"]["scope"] = "Namespaced"
            kept.enter_context(installed(control_plane.api, crd))
        yield


def known_nodes(plane: ControlPlane, own: Workspace) -> list[str]:
    """Create two leaves of a spine, in which the second alone has room for four pods; return its nodes."""
    narrow = own.add_nodes(BOX, 2, fabric=("leaf-1", "spine-1"))
    wide = own.add_nodes(BOX, 5, fabric=("leaf-2", "spine-1"))
    own.wait_untainted()
    for name in (*narrow, *wide):
        wait_known(plane.layout.socket, name, lambda node: len(node.gpus) == 8 and len(node.path) == 2)
    return wide


# -- what is checked of each ------------------------------------------------------------------------------------------


def members(own: Workspace, count: int) -> list[Object]:
    """Wait until there are so many pods, and all are bound; return them by rank."""
    until(lambda: len(own.api.read_all(own.pods)[0]) == count, f"{count} pods")
    pods = [item["metadata"]["name"] for item in own.api.read_all(own.pods)[0]]
    return sorted(running(own, pods), key=lambda pod: int(annotation(pod, RANK) or -1))


def plans(plane: ControlPlane, own: Workspace, group: str) -> list[bool]:
    """Return how the plans of a group have ended, as the scheduler logs it: true for one whose members were let go."""
    lines = plane.layout.log(components.SCHEDULER).read_text().splitlines()
    return ["letGo=true" in line for line in lines if "A plan is decided" in line and f'plan="{own.name}/{group}/' in line]


def table(own: Workspace, group: str, ranks: int) -> Object:
    """Wait for the table of a group with so many ranks; return its ConfigMap."""
    path = collection(own, "v1", "configmaps")
    return own.api.wait_for(path, lambda item: item["data"].get("world_size") == str(ranks), name=f"{group}-ranks")


def check_table(own: Workspace, group: str, pods: Sequence[Object], hosts: Sequence[str], owner: Object) -> None:
    """The table says of each rank what its pod says, in the order of the ranks, and goes with its owner."""
    found = table(own, group, len(pods))
    data = found["data"]
    rows: list[dict[str, Any]] = json.loads(data["ranks.json"])
    assert [row["rank"] for row in rows] == list(range(len(pods)))
    assert [(row["pod"], row["node"]) for row in rows] == [(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in pods]
    assert [sorted(row["gpus"]) for row in rows] == [sorted(gpus(pod)) for pod in pods]
    assert [row["host"] for row in rows] == list(hosts)
    assert data["hostfile"] == "".join(f"{host} slots=8\n" for host in hosts)
    assert {row["bottleneck"] for row in rows} == {"NV18"}
    (by,) = found["metadata"]["ownerReferences"]
    assert (by["kind"], by["name"], by["uid"]) == (owner["kind"], owner["metadata"]["name"], owner["metadata"]["uid"])
    assert not by.get("controller")
    # The example mounts just this one.
    (volume,) = [each for each in pods[0]["spec"]["volumes"] if each["name"] == "ranks"]
    assert volume["configMap"]["name"] == found["metadata"]["name"]


# -- a Job ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kinds")
def test_job(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    nodes = known_nodes(control_plane, own)
    created(own, example("job.yaml", "Service"), "services")
    job = example("job.yaml", "Job")
    job["spec"]["template"] = here(own, job["spec"]["template"])
    job = created(own, job, "jobs")
    pods = members(own, 4)
    indices = [annotation(pod, "batch.kubernetes.io/job-completion-index") for pod in pods]
    assert [annotation(pod, RANK) for pod in pods] == indices == ["0", "1", "2", "3"]
    assert {pod["spec"]["nodeName"] for pod in pods} <= set(nodes)
    assert each_gpu_once(pods)
    assert plans(control_plane, own, "train") == [True]
    check_table(own, "train", pods, [f"train-{index}.train" for index in range(4)], job)
    own.api.delete(f"{own.jobs}/train", propagationPolicy="Background")
    own.api.wait_gone(collection(own, "v1", "configmaps"), "train-ranks")


# -- a JobSet ---------------------------------------------------------------------------------------------------------


def jobs_of(own: Workspace, jobset: Object) -> Iterator[Object]:
    """Yield the Jobs of a JobSet in the order in which its controller creates them.

    kubernetes-sigs/jobset, pkg/controllers/jobset_controller.go: constructJob, labelAndAnnotateObject.
    """
    name, replicated = jobset["metadata"]["name"], jobset["spec"]["replicatedJobs"]
    every = [(job, index) for job in replicated for index in range(job["replicas"])]
    for at, (job, index) in enumerate(every):
        job_name = f"{name}-{job['name']}-{index}"
        said = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": job["name"],
            "jobset.sigs.k8s.io/restart-attempt": "0",
            "jobset.sigs.k8s.io/replicatedjob-replicas": str(job["replicas"]),
            "jobset.sigs.k8s.io/global-replicas": str(len(every)),
            "jobset.sigs.k8s.io/job-index": str(index),
            "jobset.sigs.k8s.io/job-key": hashlib.sha1(f"{own.name}/{job_name}".encode(), usedforsecurity=False).hexdigest(),
            "jobset.sigs.k8s.io/job-global-index": str(at),
        }
        spec = copy.deepcopy(job["template"]["spec"])
        spec["template"] = marked(here(own, spec["template"]), said, said)
        if jobset["spec"].get("network", {}).get("enableDNSHostnames"):
            spec["template"]["spec"]["subdomain"] = name
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {**spec, "suspend": False}}
        yield owned(marked(body, said, said), jobset, job_name)


@pytest.mark.usefixtures("kinds")
def test_jobset(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    nodes = known_nodes(control_plane, own)
    wanted = example("jobset.yaml", "JobSet")
    for job in jobs_of(own, created(own, wanted, "jobsets")):
        created(own, job, "jobs")
    pods = members(own, 4)
    assert [annotation(pod, RANK) for pod in pods] == ["0", "1", "2", "3"]
    hosts = [f"train-workers-{job}-{index}" for job in range(2) for index in range(2)]
    assert [pod["spec"]["hostname"] for pod in pods] == hosts
    assert {pod["spec"]["nodeName"] for pod in pods} <= set(nodes)
    assert each_gpu_once(pods)
    assert plans(control_plane, own, "train") == [True]
    # Its pods are those of two Jobs.
    check_table(own, "train", pods, [f"{host}.train" for host in hosts], {**pods[0], "kind": "Pod"})


# -- a LeaderWorkerSet ------------------------------------------------------------------------------------------------


def stateful_set(
    own: Workspace, owner: Object, name: str, service: str, ordinals: range, labels: dict[str, str], template: Object
) -> Object:
    """Create a StatefulSet that takes the pods of these ordinals for its own."""
    spec = {
        "serviceName": service,
        "replicas": len(ordinals),
        "ordinals": {"start": ordinals.start},
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": template,
        "updateStrategy": {"type": "OnDelete"},
    }
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"labels": labels}, "spec": spec}
    return created(own, owned(body, owner, name), "statefulsets")


def replica_of(own: Workspace, lws: Object, number: int) -> None:
    """Create the pods of one replica, the leader first.

    kubernetes-sigs/lws: pkg/controllers/leaderworkerset_controller.go and pod_controller.go make a StatefulSet of the
    leaders and one of the workers of each, pkg/webhooks/pod_webhook.go adds the indices to the pods.
    """
    name, spec = lws["metadata"]["name"], lws["spec"]["leaderWorkerTemplate"]
    leader_name = f"{name}-{number}"
    key = hashlib.sha1(f"{own.name}/{leader_name}".encode(), usedforsecurity=False).hexdigest()
    group = {
        "leaderworkerset.sigs.k8s.io/name": name,
        "leaderworkerset.sigs.k8s.io/template-revision-hash": "6d4f5b7c9",
        "leaderworkerset.sigs.k8s.io/group-index": str(number),
        "leaderworkerset.sigs.k8s.io/group-key": key,
    }
    size = {"leaderworkerset.sigs.k8s.io/size": str(spec["size"])}

    def pod(index: int, ordinal: int, pod_name: str, by: Object, annotations: dict[str, str]) -> Object:
        labels = {
            **group,
            "leaderworkerset.sigs.k8s.io/worker-index": str(index),
            # Of a StatefulSet.
            "apps.kubernetes.io/pod-index": str(ordinal),
            "statefulset.kubernetes.io/pod-name": pod_name,
        }
        body = marked({"apiVersion": "v1", "kind": "Pod", **template}, labels, annotations)
        body["spec"] = {**body["spec"], "hostname": pod_name, "subdomain": name}
        return created(own, owned(body, by, pod_name), "pods")

    template = here(own, spec["workerTemplate"])
    labels = {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    leaders = stateful_set(own, lws, name, name, range(number + 1), labels, marked(template, labels, size))
    leader = pod(0, number, leader_name, leaders, size)
    ordinals = range(1, spec["size"])
    workers = stateful_set(own, leader, leader_name, name, ordinals, group, marked(template, group))
    for index in ordinals:
        pod(index, index, f"{leader_name}-{index}", workers, {**size, "leaderworkerset.sigs.k8s.io/leader-name": leader_name})


@pytest.mark.usefixtures("kinds")
def test_leader_worker_set(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    nodes = known_nodes(control_plane, own)
    wanted = example("leaderworkerset.yaml", "LeaderWorkerSet")
    lws = created(own, wanted, "leaderworkersets")
    # Or it would create the pods itself, without what LWS's webhook adds.
    with control_plane.frozen_component(components.CONTROLLER_MANAGER):
        replica_of(own, lws, 0)
    pods = members(own, 4)
    assert [pod["metadata"]["name"] for pod in pods] == ["vllm-0", "vllm-0-1", "vllm-0-2", "vllm-0-3"]
    assert {pod["spec"]["nodeName"] for pod in pods} <= set(nodes)
    assert each_gpu_once(pods)
    assert plans(control_plane, own, "vllm-0") == [True]
    hosts = [f"{pod['metadata']['name']}.vllm" for pod in pods]
    check_table(own, "vllm-0", pods, hosts, {**pods[0], "kind": "Pod"})


# -- a PyTorchJob -----------------------------------------------------------------------------------------------------


def pods_of(own: Workspace, job: Object) -> Iterator[Object]:
    """Yield the pods of a PyTorchJob in the order in which its controller may create them: that of the roles is any.

    kubeflow/training-operator v1, pkg/controller.v1/common/pod.go: createNewPod.
    """
    name = job["metadata"]["name"]
    for role, replicas in reversed(job["spec"]["pytorchReplicaSpecs"].items()):
        for index in range(replicas["replicas"]):
            kind = role.lower()
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/replica-type": kind,
                "training.kubeflow.org/replica-index": str(index),
                **({"training.kubeflow.org/job-role": "master"} if role == "Master" else {}),
            }
            template = here(own, replicas["template"])
            template["spec"]["restartPolicy"] = replicas["restartPolicy"]
            yield owned(marked({"apiVersion": "v1", "kind": "Pod", **template}, labels), job, f"{name}-{kind}-{index}")


@pytest.mark.usefixtures("kinds")
def test_pytorch_job(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    nodes = known_nodes(control_plane, own)
    wanted = example("pytorchjob.yaml", "PyTorchJob")
    job = created(own, wanted, "pytorchjobs")
    for pod in pods_of(own, job):
        created(own, pod, "pods")
    pods = members(own, 4)
    expected = ["bert-master-0", "bert-worker-0", "bert-worker-1", "bert-worker-2"]
    assert [pod["metadata"]["name"] for pod in pods] == expected
    assert {pod["spec"]["nodeName"] for pod in pods} <= set(nodes)
    assert each_gpu_once(pods)
    assert plans(control_plane, own, "bert") == [True]
    check_table(own, "bert", pods, expected, job)


# -- the table afterwards ---------------------------------------------------------------------------------------------


def test_table_follows_a_member_that_takes_the_place_of_another_and_is_written_anew_if_it_was_lost(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    own = workspace
    known_nodes(control_plane, own)
    for index in range(2):
        add_member(own, "train", 2, index)
    running(own, names("train", 2))
    table(own, "train", 2)
    own.delete_pod("train-1")
    labels = {"batch.kubernetes.io/job-completion-index": "1"}
    said = {"pyscheduler.io/group": "train", "pyscheduler.io/min-members": "2"}
    own.add_pod("another", own.pod_spec(8), said, labels)
    pods = running(own, ["train-0", "another"])
    path = collection(own, "v1", "configmaps")
    before = own.api.wait_for(path, lambda item: "another" in item["data"].get("ranks.json", ""), name="train-ranks")
    assert [row["pod"] for row in json.loads(before["data"]["ranks.json"])] == ["train-0", "another"]
    assert [annotation(pod, RANK) for pod in pods] == ["0", "1"]
    control_plane.stop_component(components.SERVICE)
    own.api.delete(f"{path}/train-ranks")
    control_plane.start_component(components.SERVICE)
    after = table(own, "train", 2)
    assert (after["data"], after["metadata"]["uid"] == before["metadata"]["uid"]) == (before["data"], False)


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_every_example_names_the_profile_and_mounts_its_table(file: str) -> None:
    def templates(raw: Any) -> Iterator[Any]:
        if isinstance(raw, dict):
            yield from [raw] if "containers" in raw else []
            raw = list(raw.values())
        for each in raw if isinstance(raw, list) else ():
            yield from templates(each)

    found = [each for raw in yaml.safe_load_all((EXAMPLES / file).read_text()) for each in templates(raw)]
    assert found
    for spec in found:
        assert spec["schedulerName"] == "gpu-topology"
        assert spec["volumes"][0]["configMap"]["optional"] is False
        assert spec["volumes"][0]["name"] == spec["containers"][0]["volumeMounts"][0]["name"]

"""How large a group is, by the objects that say it."""

from __future__ import annotations

from typing import Any

import pytest

from pyscheduler.core.gangs.membership import ObjectRef
from pyscheduler.readers.gang_size import path_of, ref_of, size_of


def job_set(*jobs: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "js", "annotations": annotations}, "spec": {"replicatedJobs": list(jobs), **spec}}


def replicated(name: str, replicas: int | None = None, depends_on: str | None = None, **job: int) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "template": {"spec": job}}
    found |= {"replicas": replicas} if replicas is not None else {}
    return found | ({"dependsOn": [{"name": depends_on, "status": "Ready"}]} if depends_on else {})


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"minMember": 4}, (4, None)),
        ({"minMember": 1, "queue": "default"}, (1, None)),
        ({"minMember": 0}, None),
        ({"minSubGroup": 2}, None),
        ({"minMember": "4"}, None),
        ({"minMember": 1_000_001}, None),
        ({}, None),
    ],
)
def test_pod_group(spec: dict[str, Any], size: object):
    assert size_of("PodGroup", {"spec": spec}) == size


@pytest.mark.parametrize(
    ("spec", "status", "size"),
    [
        ({"parallelism": 8, "completions": 8, "completionMode": "Indexed"}, {}, (8, 8)),
        ({"parallelism": 8, "completions": 3}, {}, (3, 3)),
        ({"parallelism": 8}, {}, (8, 8)),
        ({}, {}, (1, 1)),
        ({"parallelism": 0}, {}, None),
        # The last pods of a Job are fewer than at its start.
        ({"parallelism": 4, "completions": 10}, {"succeeded": 8}, (2, 2)),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 4}, None),
    ],
)
def test_job(spec: dict[str, Any], status: dict[str, Any], size: object):
    assert size_of("Job", {"spec": spec, "status": status}) == size


def test_job_set_has_all_pods_of_its_jobs():
    driver, workers = replicated("driver"), replicated("workers", 4, parallelism=2, completions=2)
    assert size_of("JobSet", job_set(driver, workers)) == (9, 9)
    assert size_of("JobSet", job_set(driver, workers, startupPolicy={"startupPolicyOrder": "AnyOrder"})) == (9, 9)


def test_pods_that_a_job_set_creates_later_are_not_waited_for():
    driver, workers = replicated("driver"), replicated("workers", 4, parallelism=2)
    assert size_of("JobSet", job_set(driver, workers, startupPolicy={"startupPolicyOrder": "InOrder"})) == (1, 9)
    dependent = replicated("workers", 4, "driver", parallelism=2)
    assert size_of("JobSet", job_set(driver, dependent, replicated("other", 2))) == (3, 11)
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    assert size_of("JobSet", job_set(workers, annotations=exclusive)) == (1, 8)


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderCreated"}, (4, 4)),
        ({"leaderWorkerTemplate": {}}, (1, 1)),
        ({"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"}, (1, 4)),
    ],
)
def test_leader_worker_set(spec: dict[str, Any], size: object):
    assert size_of("LeaderWorkerSet", {"spec": spec}) == size


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs"),
        ("TFJob", "tfReplicaSpecs"),
        ("MPIJob", "mpiReplicaSpecs"),
        ("XGBoostJob", "xgbReplicaSpecs"),
        ("PaddleJob", "paddleReplicaSpecs"),
        ("MXJob", "mxReplicaSpecs"),
        ("JAXJob", "jaxReplicaSpecs"),
    ],
)
def test_jobs_of_kubeflow_have_the_replicas_of_all_roles(kind: str, field: str):
    roles = {"Master": {"template": {}}, "Worker": {"replicas": 3}}
    assert size_of(kind, {"spec": {field: roles}}) == (4, 4)
    policy = {"schedulingPolicy": {"minAvailable": 2}}
    assert size_of(kind, {"spec": {field: roles, "runPolicy": policy}}) == (2, 4)
    policy = {"schedulingPolicy": {"minAvailable": 9}}
    assert size_of(kind, {"spec": {field: roles, "runPolicy": policy}}) == (4, 4)


def test_number_of_an_elastic_job_has_no_end():
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}
    assert size_of("PyTorchJob", {"spec": spec}) == (2, None)


def test_launcher_that_is_created_when_the_workers_are_ready_is_not_waited_for():
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 4}}
    spec = {"mpiReplicaSpecs": roles, "launcherCreationPolicy": "WaitForWorkersReady"}
    assert size_of("MPIJob", {"spec": spec}) == (4, 5)
    assert size_of("MPIJob", {"spec": {**spec, "launcherCreationPolicy": "AtStartup"}}) == (5, 5)


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": []}, {"spec": {"replicatedJobs": 3, "leaderWorkerTemplate": 1}}])
@pytest.mark.parametrize("kind", ["PodGroup", "JobSet", "PyTorchJob", "Deployment"])
def test_object_that_says_nothing_has_no_size(kind: str, raw: dict[str, Any]):
    assert size_of(kind, raw) is None


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("scheduling.x-k8s.io/v1alpha1", "PodGroup", "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/x"),
        ("scheduling.run.ai/v2alpha2", "PodGroup", "/apis/scheduling.run.ai/v2alpha2/namespaces/ns/podgroups/x"),
        ("batch/v1", "Job", "/apis/batch/v1/namespaces/ns/jobs/x"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/x"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/x"),
        ("kubeflow.org/v1", "PyTorchJob", "/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/x"),
        ("kubeflow.org/v2beta1", "MPIJob", "/apis/kubeflow.org/v2beta1/namespaces/ns/mpijobs/x"),
    ],
)
def test_path_of_an_object(api_version: str, kind: str, path: str):
    ref = ref_of(api_version, kind, "ns", "x")
    assert ref == ObjectRef(api_version, kind, "ns", "x")
    assert path_of(ref) == path


@pytest.mark.parametrize(
    ("api_version", "kind"), [("apps/v1", "StatefulSet"), ("v1", "Secret"), ("batch/v1", "CronJob"), ("example.com/v1", "Job")]
)
def test_objects_that_say_no_size_are_not_read(api_version: str, kind: str):
    assert ref_of(api_version, kind, "ns", "x") is None

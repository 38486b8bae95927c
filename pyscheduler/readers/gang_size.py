"""How large a group is, by the object that says it; and where the API serves that object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyscheduler.core.gangs.membership import ObjectRef, Size

__all__ = ["MEMBERS_MAX", "POD_GROUP", "path_of", "ref_of", "size_of"]

# More members than any group has.
MEMBERS_MAX: Final = 1_000_000

POD_GROUP: Final = "PodGroup"

# The least and the largest number of members; None: no largest.
Numbers = tuple[int, int | None]

# By kind of job of Kubeflow's training operator (v1) and MPI operator (v2beta1), the field with its replicas.
_REPLICAS: Final = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "MXJob": "mxReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
# By API group and kind, the plural in the path.
_PLURALS: Final = {
    ("scheduling.x-k8s.io", POD_GROUP): "podgroups",
    ("scheduling.sigs.k8s.io", POD_GROUP): "podgroups",
    ("scheduling.run.ai", POD_GROUP): "podgroups",
    ("scheduling.volcano.sh", POD_GROUP): "podgroups",
    ("batch", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
    **{("kubeflow.org", kind): f"{kind.lower()}s" for kind in _REPLICAS},
}
_VERSION: Final = re.compile(r"v\d{1,3}((alpha|beta)\d{1,3})?", re.ASCII)
# An object's name is a DNS subdomain (Kubernetes, "Object Names and IDs"). Nothing else may become part of a path.
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# Annotations of a JobSet or LeaderWorkerSet whose first pods must have a node before it creates the others.
_EXCLUSIVE: Final = ("alpha.jobset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/exclusive-topology")


def ref_of(api_version: str, kind: str, namespace: str, name: str) -> ObjectRef | None:
    """Return the object, None if it is none that says how large a group is."""
    group, _, version = api_version.partition("/")
    known = (group, kind) in _PLURALS and _VERSION.fullmatch(version)
    return ObjectRef(api_version, kind, namespace, name) if known and _NAME.fullmatch(name) else None


def path_of(ref: ObjectRef) -> str:
    """Return the path at which the API serves an object that `ref_of` gave."""
    group = ref.api_version.partition("/")[0]
    return f"/apis/{ref.api_version}/namespaces/{ref.namespace}/{_PLURALS[group, ref.kind]}/{ref.name}"


def size_of(kind: str, raw: Mapping[str, Any]) -> Size | None:
    """Return how many members the object asks for, None if it does not say.

    The least number is that of the pods that come without any of them running before: who waits for more waits in vain.
    """
    read = _READERS.get(kind)
    size = read(raw) if read else None
    if size is None:
        return None
    least, most = size
    return Size(least, most) if 1 <= least <= MEMBERS_MAX and (most is None or least <= most <= MEMBERS_MAX) else None


def _pod_group(raw: Mapping[str, Any]) -> Numbers | None:
    least = _whole(_spec(raw).get("minMember"))
    return None if least is None else (least, None)


def _job(raw: Mapping[str, Any]) -> Numbers:
    pods = _pods_of_job(_spec(raw), succeeded=_whole(_mapping(raw.get("status")).get("succeeded")) or 0)
    return pods, pods


def _job_set(raw: Mapping[str, Any]) -> Numbers:
    jobs = [_mapping(job) for job in _listed(_spec(raw).get("replicatedJobs"))]
    pods = [_replicas(job) * _pods_of_job(_spec(_mapping(job.get("template")))) for job in jobs]
    if _mapping(_spec(raw).get("startupPolicy")).get("startupPolicyOrder") == "InOrder":
        at_start = sum(pods[:1])
    else:
        at_start = sum(count for job, count in zip(jobs, pods, strict=True) if not job.get("dependsOn"))
    return 1 if _is_exclusive(raw) else at_start, sum(pods)


def _leader_worker_set(raw: Mapping[str, Any]) -> Numbers:
    size = _whole(_mapping(_spec(raw).get("leaderWorkerTemplate")).get("size"), 1) or 0
    leader_first = _spec(raw).get("startupPolicy") == "LeaderReady" or _is_exclusive(raw)
    return 1 if leader_first else size, size


def _kubeflow(raw: Mapping[str, Any]) -> Numbers:
    spec = _spec(raw)
    roles = next((_mapping(spec[field]) for field in _REPLICAS.values() if field in spec), {})
    pods = {role: _replicas(_mapping(entry)) for role, entry in roles.items()}
    launcher_last = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    at_start = sum(pods.values()) - (pods.get("Launcher", 0) if launcher_last else 0)
    wanted = _whole(_mapping(_mapping(spec.get("runPolicy")).get("schedulingPolicy")).get("minAvailable")) or at_start
    # The number of pods of an elastic job changes while it runs.
    return min(wanted, at_start), None if spec.get("elasticPolicy") else sum(pods.values())


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Numbers | None]]] = {
    POD_GROUP: _pod_group,
    "Job": _job,
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
    **dict.fromkeys(_REPLICAS, _kubeflow),
}


def _pods_of_job(spec: Mapping[str, Any], *, succeeded: int = 0) -> int:
    """Return how many pods of a Job run at one time."""
    parallelism, completions = _whole(spec.get("parallelism"), 1) or 0, _whole(spec.get("completions"))
    return parallelism if completions is None else min(parallelism, completions - succeeded)


def _is_exclusive(raw: Mapping[str, Any]) -> bool:
    return not _mapping(_mapping(raw.get("metadata")).get("annotations")).keys().isdisjoint(_EXCLUSIVE)


def _spec(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(raw.get("spec"))


def _replicas(entry: Mapping[str, Any]) -> int:
    return _whole(entry.get("replicas"), 1) or 0


def _whole(value: Any, absent: int | None = None) -> int | None:
    """Return a whole number from 0; `absent` if there is none, None if it is anything else."""
    if value is None:
        return absent
    return value if type(value) is int and value >= 0 else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

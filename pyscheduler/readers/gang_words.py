"""The words of those who make groups of pods: which label or annotation says what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyscheduler.readers.gang_levels import KOORDINATOR, LevelWords, by_keys, by_tiers
from pyscheduler.readers.gang_subgroups import SubgroupWords

__all__ = ["LEFT_OUT", "ROLES", "VOCABULARIES", "Words", "used_by"]


@dataclass(frozen=True, slots=True)
class Words:
    """The keys of one vocabulary, each of a label or an annotation; of several the first that a pod has counts.

    Attributes
    ----------
    vocabulary
        Its name.
    group
        Keys whose values together name the group; none: it names no groups.
    on_purpose
        Somebody writes them to make a group; otherwise a controller writes them on all its pods.
    least, most
        Numbers of members.
    sized_by
        API version and kind of the object that says the numbers, and if it is a PodGroup also the levels. Its name is the value of the first key of the group.
    owner
        API group of controllers of pods that say the numbers in place of `sized_by`.
    staged
        Key, and value or None for any: members come one after the other, so nobody can wait for a number of them.
    role, role_order
        The pod's role; the number of its role, where the vocabulary has one.
    index
        The pod's number in its role.
    levels
        The levels that it asks for.
    subgroup
        The subgroup that it is in.
    """

    vocabulary: str
    group: tuple[str, ...] = ()
    on_purpose: bool = True
    least: str = ""
    most: str = ""
    sized_by: tuple[str, str] | None = None
    owner: str = ""
    staged: tuple[str, str | None] | None = None
    role: tuple[str, ...] = ()
    role_order: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    levels: LevelWords | None = None
    subgroup: SubgroupWords | None = None

    def all_keys(self) -> frozenset[str]:
        """Return all keys."""
        single = (self.least, self.most, *(self.staged or ())[:1])
        levels = (*(self.levels.keys if self.levels else ()), *(self.subgroup.keys if self.subgroup else ()))
        return frozenset((*self.group, *single, *levels, *self.role, *self.role_order, *self.index)) - {""}


# Which role comes first where names alone tell: rank 0 is that of the master.
ROLES: Final = {"chief": 1, "launcher": 1, "leader": 1, "master": 1, "ps": 2, "worker": 3}

# In the order in which they count: ours, what is written on purpose, what controllers write on all their pods.
VOCABULARIES: Final = (
    Words(
        "pyscheduler",
        group=("pyscheduler.io/group",),
        least="pyscheduler.io/min-members",
        most="pyscheduler.io/max-members",
        levels=by_keys("pyscheduler.io/required-level", "pyscheduler.io/preferred-level"),
        subgroup=SubgroupWords(
            "pyscheduler.io/subgroup-level", "pyscheduler.io/subgroup", name="pyscheduler.io/subgroup", usual="#1"
        ),
    ),
    # kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1/types.go (PodGroupLabel).
    Words(
        "scheduler-plugins",
        group=("scheduling.x-k8s.io/pod-group",),
        sized_by=("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    ),
    # The same before it was renamed; Koordinator keeps it (koordinator.sh/docs/architecture/job).
    Words(
        "pod-group",
        group=("pod-group.scheduling.sigs.k8s.io",),
        sized_by=("scheduling.sigs.k8s.io/v1alpha1", "PodGroup"),
    ),
    # scheduler-plugins' lightweight coscheduling; ACK, and arena with --gang.
    Words(
        "lightweight-pod-group",
        group=("pod-group.scheduling.sigs.k8s.io/name",),
        least="pod-group.scheduling.sigs.k8s.io/min-available",
    ),
    # koordinator-sh/koordinator, apis/extension/coscheduling.go and network_topology.go.
    Words(
        "koordinator",
        group=("gang.scheduling.koordinator.sh/name",),
        least="gang.scheduling.koordinator.sh/min-available",
        most="gang.scheduling.koordinator.sh/total-number",
        index=("gang.scheduling.koordinator.sh/network-topology-index",),
        levels=KOORDINATOR,
    ),
    # kai-scheduler/KAI-Scheduler, pkg/common/constants/constants.go (PodGroupAnnotationForPod), docs/topology.
    Words(
        "kai",
        group=("pod-group-name",),
        sized_by=("scheduling.run.ai/v2alpha2", "PodGroup"),
        levels=by_keys("kai.scheduler/topology-required-placement", "kai.scheduler/topology-preferred-placement"),
        # docs/topology/segment-based.md: pods are counted by their index.
        subgroup=SubgroupWords("kai.scheduler/segment-topology-required-placement", "kai.scheduler/segment-size", by_role=True),
    ),
    # kubernetes-sigs/kueue, pkg/controller/jobs/pod/constants, apis/kueue/v1beta1/topology_types.go. A serving group is that
    # of a StatefulSet, which creates a pod when the one before is ready.
    Words(
        "kueue",
        group=("kueue.x-k8s.io/pod-group-name",),
        least="kueue.x-k8s.io/pod-group-total-count",
        most="kueue.x-k8s.io/pod-group-total-count",
        staged=("kueue.x-k8s.io/pod-group-serving", "true"),
        index=("kueue.x-k8s.io/pod-group-pod-index",),
        levels=by_keys("kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology"),
        subgroup=SubgroupWords("kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"),
    ),
    # volcano-sh/apis, pkg/apis/scheduling/v1beta1/labels.go and pkg/apis/batch/v1alpha1/labels.go.
    Words(
        "volcano",
        group=("scheduling.k8s.io/group-name",),
        least="scheduling.volcano.sh/group-min-member",
        sized_by=("scheduling.volcano.sh/v1beta1", "PodGroup"),
        role=("volcano.sh/task-spec",),
        index=("volcano.sh/task-index",),
        levels=by_tiers("volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"),
    ),
    # kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go. Jobs are the roles, pods of a Job their members.
    Words(
        "jobset",
        group=("jobset.sigs.k8s.io/jobset-name",),
        on_purpose=False,
        sized_by=("jobset.x-k8s.io/v1alpha2", "JobSet"),
        role=("jobset.sigs.k8s.io/replicatedjob-name",),
        role_order=("jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/job-index"),
        index=("batch.kubernetes.io/job-completion-index",),
    ),
    # kubernetes-sigs/lws, api/leaderworkerset/v1/leaderworkerset_types.go. With exclusive placement the workers are created
    # when their leader has a node (pkg/controllers/pod_controller.go). A leader that is left out of the subgroups has no index of one.
    Words(
        "leaderworkerset",
        group=("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
        on_purpose=False,
        least="leaderworkerset.sigs.k8s.io/size",
        most="leaderworkerset.sigs.k8s.io/size",
        sized_by=("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        staged=("leaderworkerset.sigs.k8s.io/exclusive-topology", None),
        index=("leaderworkerset.sigs.k8s.io/worker-index",),
        subgroup=SubgroupWords(
            "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
            name="leaderworkerset.sigs.k8s.io/subgroup-index",
            alone=True,
        ),
    ),
    # kubeflow/training-operator, pkg/apis/kubeflow.org/v1/common_types.go; kubeflow/mpi-operator, whose launcher is the pod
    # of a Job, and whose pods have a job-role alone.
    Words(
        "kubeflow",
        group=("training.kubeflow.org/job-name",),
        on_purpose=False,
        sized_by=("kubeflow.org/v2beta1", "MPIJob"),
        owner="kubeflow.org",
        role=("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role"),
        index=("training.kubeflow.org/replica-index",),
    ),
    # Of an indexed Job, of a StatefulSet (k8s.io/api batch/v1 and apps/v1, labels).
    Words("kubernetes", index=("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")),
)

_KEYS: Final = tuple((words, words.all_keys()) for words in VOCABULARIES)


def used_by(said: Mapping[str, str]) -> list[Words]:
    """Return the vocabularies of which a pod has any key, in the order in which they count."""
    return [words for words, keys in _KEYS if not keys.isdisjoint(said)]


# Keys that ask for more than this version gives.
LEFT_OUT: Final = (
    "gang.scheduling.koordinator.sh/groups",
    "kai.scheduler/segment-topology-preferred-placement",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)

"""Groups of pods: labels and annotations as each controller writes them."""

from __future__ import annotations

import json

import pytest

from pyscheduler.core.gangs.membership import GangKey, Membership, ObjectRef
from pyscheduler.readers.fabric.label_families import Level
from pyscheduler.readers.fabric.level_names import WELL_KNOWN, level_names
from pyscheduler.readers.fabric.rules import FabricConfig, PoolConfig
from pyscheduler.readers.gang_words import VOCABULARIES
from pyscheduler.readers.gangs import GROUP_KEYS, Controller, membership_of

NS = "team-a"
GROUP = {"pyscheduler.io/group": "g"}
JOB = Controller("batch/v1", "Job", "train")


def member(labels: dict[str, str], annotations: dict[str, str] | None = None, made_by: Controller | None = None) -> Membership:
    found = membership_of(NS, labels, annotations or {}, made_by)
    assert found is not None
    return found


def ours(**said: str) -> Membership:
    """Return what a pod says with these annotations of our domain, beside a group and its size."""
    keys = {f"pyscheduler.io/{key.replace('_', '-')}": value for key, value in said.items()}
    return member(GROUP | {"pyscheduler.io/min-members": "2"}, keys)


def good(found: Membership) -> Membership:
    assert (found.problems, found.refusal) == ((), "")
    return found


# -- which pods ---------------------------------------------------------------------------------------------------------


def test_pod_without_a_word_of_groups_belongs_to_none():
    labels = {
        "app": "web",
        "batch.kubernetes.io/job-name": "train",
        "batch.kubernetes.io/job-completion-index": "0",
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "pyscheduler.io/min-members": "3",
    }
    assert membership_of(NS, labels, {"pyscheduler.io/max-link": "NV12"}, JOB) is None


def test_keys_that_make_a_member_are_those_that_name_a_group():
    assert {words.group[0] for words in VOCABULARIES if words.group} == GROUP_KEYS


@pytest.mark.parametrize("key", sorted(GROUP_KEYS))
@pytest.mark.parametrize("value", ["", "  ", "a\nb", "x" * 400])
def test_group_without_a_usable_name_is_a_group_that_nothing_can_be_placed_of(key: str, value: str):
    found = member({}, {key: value, "leaderworkerset.sigs.k8s.io/group-index": "0"})
    assert key in found.refusal
    assert "name of a group" in found.refusal


# -- ours ---------------------------------------------------------------------------------------------------------------


def test_every_word_of_ours_is_read():
    found = ours(
        min_members="4",
        max_members="8",
        required_level="block",
        preferred_level="rack",
        wait="1h10m5s",
        same_model="true",
        one_pod_per_node="True",
    )
    assert good(found) == Membership(
        gang=GangKey(NS, "g", "pyscheduler"),
        min_members=4,
        max_members=8,
        required_level="block",
        preferred_level="rack",
        wait_s=4205.0,
        same_model=True,
        one_pod_per_node=True,
    )


def test_annotation_wins_over_label():
    found = member(GROUP | {"pyscheduler.io/min-members": "9"}, {"pyscheduler.io/group": "h", "pyscheduler.io/min-members": "3"})
    assert (good(found).gang.name, found.min_members) == ("h", 3)


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0.0), ("90s", 90.0), ("10m", 600.0), ("2h", 7200.0), (" 1h30m ", 5400.0)])
def test_duration_is_read(text: str, seconds: float):
    assert good(ours(wait=text)).wait_s == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-1m", "1.5h", "5m1h", "10 minutes", "99999999999s", "\u0661m"])
def test_wait_that_is_none_is_told_and_left_out(text: str):
    found = ours(wait=text)
    assert (found.wait_s, found.refusal) == (None, "")
    assert "such as 90s, 10m" in found.problems[0]


@pytest.mark.parametrize("key", ["same_model", "one_pod_per_node"])
@pytest.mark.parametrize("text", ["", "yes", "1", "tru"])
def test_switch_that_is_neither_true_nor_false_is_no_switch_that_is_off(key: str, text: str):
    assert ours(**{key: text}).refusal.endswith("write true or false")


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "four", "1000001", "9" * 5000, "1_0", "\u0663"])
def test_size_that_cannot_be_read_lets_nothing_start(text: str):
    found = ours(min_members=text)
    assert found.min_members is None
    assert found.refusal.endswith("write a whole number from 1 to 1,000,000")


def test_largest_size_is_read_and_a_larger_one_is_told():
    assert good(ours(max_members="1000000")).max_members == 1_000_000
    found = ours(max_members="1000001")
    assert (found.max_members, found.refusal) == (None, "")
    assert found.problems[0].endswith("from 1 to 1,000,000; it is left out of use")


def test_at_least_more_than_at_most_is_told():
    found = ours(min_members="8", max_members="4")
    assert (found.min_members, found.max_members, found.refusal) == (8, 8, "")
    assert "at least 8 and at most 4" in found.problems[0]


@pytest.mark.parametrize("text", ["", " ", "a\tb", "x" * 400, "#", "#0", "#x", "#100", "# 1 2"])
def test_level_that_can_be_none_is_never_left_out_if_it_is_required(text: str):
    assert "pyscheduler.io/required-level" in ours(required_level=text).refusal
    found = ours(preferred_level=text)
    assert (found.preferred_level, found.refusal) == (None, "")
    assert "pyscheduler.io/preferred-level" in found.problems[0]


def test_level_may_be_named_by_number():
    assert good(ours(required_level="#2")).required_level == "#2"


def test_size_of_a_group_in_a_plain_job_is_that_of_the_job():
    found = member(GROUP | {"batch.kubernetes.io/job-completion-index": "7"}, {}, JOB)
    assert good(found).spec_from == ObjectRef("batch/v1", "Job", NS, "train")
    assert (found.min_members, found.index) == (None, 7)


@pytest.mark.parametrize(
    "made_by", [None, Controller("apps/v1", "ReplicaSet", "web-5c"), Controller("example.com/v1", "Job", "x")]
)
def test_group_of_unknown_size_is_told(made_by: Controller | None):
    found = member(GROUP, {}, made_by)
    assert (found.min_members, found.spec_from) == (None, None)
    assert found.problems == ("nothing says how many members the group has: write pyscheduler.io/min-members",)


# -- levels by label ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "level"),
    [
        ("kubernetes.io/hostname", "node"),
        ("cloud.provider.com/topology-rack", "rack"),
        ("topology.k8s.aws/network-node-layer-3", "layer-3"),
        ("network.topology.nvidia.com/block", "leaf"),
        ("fabric.topograph.run/tier-12", "tier-12"),
        ("nvidia.com/gpu.clique", "nvlink-domain"),
        ("topology.nebius.com/tier-0", "nvlink-domain"),
        ("example.com/rack", "example.com/rack"),
    ],
)
def test_level_may_be_named_by_the_label_that_says_it(label: str, level: str):
    assert WELL_KNOWN.get(label, label) == level


def test_labels_mean_levels_as_the_configuration_says():
    rack = PoolConfig("a", (Level("tor", ("example.com/rack",)),), nvlink_domain="example.com/nvl")
    other = PoolConfig("b", (Level("cabinet", ("example.com/rack",)), Level("row", ("example.com/row",))))
    known = level_names(FabricConfig(pools=(rack, other)))
    names = {key: known.get(key) for key in ("example.com/rack", "example.com/row", "example.com/nvl", "nvidia.com/gpu.clique")}
    assert list(names.values()) == ["tor", "row", "nvlink-domain", "nvlink-domain"]
    assert known["kubernetes.io/hostname"] == "node"
    assert "cloud.provider.com/topology-rack" not in known


def test_levels_of_a_kueue_topology_are_named_by_their_labels():
    assert dict(level_names(FabricConfig("kueue"))) == {"kubernetes.io/hostname": "node"}


# -- what others write --------------------------------------------------------------------------------------------------


def test_scheduler_plugins_pod_group():
    # kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1/types.go: PodGroupLabel.
    found = member({"scheduling.x-k8s.io/pod-group": "pg1"})
    assert good(found) == Membership(
        GangKey(NS, "pg1", "scheduler-plugins"), spec_from=ObjectRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", NS, "pg1")
    )


def test_pod_group_of_koordinator():
    # koordinator.sh/docs/architecture/job; the index is an annotation of the pod also with a PodGroup.
    found = member(
        {"pod-group.scheduling.sigs.k8s.io": "gang-example"}, {"gang.scheduling.koordinator.sh/network-topology-index": "3"}
    )
    assert good(found) == Membership(
        GangKey(NS, "gang-example", "pod-group"),
        spec_from=ObjectRef("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", NS, "gang-example"),
        index=3,
    )


def test_lightweight_pod_group_of_ack_and_arena():
    # kubeflow/arena with --gang; ACK, "Work with gang scheduling".
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "tf-smoke", "pod-group.scheduling.sigs.k8s.io/min-available": "5"}
    assert good(member(labels)) == Membership(GangKey(NS, "tf-smoke", "lightweight-pod-group"), min_members=5)


KOORDINATOR = {
    # koordinator-sh/koordinator, apis/extension/coscheduling.go.
    "gang.scheduling.koordinator.sh/name": "basic",
    "gang.scheduling.koordinator.sh/min-available": "3",
    "gang.scheduling.koordinator.sh/total-number": "5",
    "gang.scheduling.koordinator.sh/waiting-time": "3600s",
    "gang.scheduling.koordinator.sh/network-topology-index": "2",
}
SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"


def gathered(*rules: tuple[str, str]) -> Membership:
    spec = {"gatherStrategy": [{"layer": layer, "strategy": strategy} for layer, strategy in rules]}
    return member({}, KOORDINATOR | {SPEC: json.dumps(spec)})


def test_koordinator_gang():
    found = good(gathered(("SpineLayer", "PreferGather"), ("NodeTopologyLayer", "MustGather")))
    assert found == Membership(
        GangKey(NS, "basic", "koordinator"),
        min_members=3,
        max_members=5,
        index=2,
        required_level="node",
        preferred_level="SpineLayer",
    )


def test_koordinator_layer_may_be_the_whole_cluster():
    assert good(gathered(("ClusterTopologyLayer", "MustGather"))).required_level is None


def test_koordinator_layers_of_which_one_counts():
    found = gathered(("BlockLayer", "PreferGather"), ("SpineLayer", "PreferGather"))
    assert (found.preferred_level, found.refusal, len(found.problems)) == ("BlockLayer", "", 1)
    assert "BlockLayer and SpineLayer" in gathered(("BlockLayer", "MustGather"), ("SpineLayer", "MustGather")).refusal


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[" * 20_000,
        "[]",
        "7",
        '{"gatherStrategy": {}}',
        '{"gatherStrategy": [1]}',
        '{"gatherStrategy": [{"layer": 1, "strategy": "MustGather"}]}',
        '{"gatherStrategy": [{"layer": "SpineLayer", "strategy": "Gather"}]}',
        '{"gatherStrategy": [{"layer": "", "strategy": "MustGather"}]}',
        '{"gatherStrategy": [{"layer": "#x", "strategy": "MustGather"}]}',
    ],
)
def test_koordinator_spec_that_cannot_be_read_is_not_left_out(text: str):
    assert SPEC in member({}, KOORDINATOR | {SPEC: text}).refusal


@pytest.mark.parametrize("text", ["", "{}", '{"gatherStrategy": []}'])
def test_koordinator_spec_that_asks_for_nothing(text: str):
    assert good(member({}, KOORDINATOR | {SPEC: text})).required_level is None


def test_kai_pod_group():
    # kai-scheduler/KAI-Scheduler: PodGroupAnnotationForPod, written by its pod grouper; docs/topology/README.md.
    annotations = {
        "pod-group-name": "pg-train-3f2a",
        "kai.scheduler/topology": "cluster-topology",
        "kai.scheduler/topology-required-placement": "cloud.provider.com/topology-block",
        "kai.scheduler/topology-preferred-placement": "cloud.provider.com/topology-rack",
    }
    assert good(member({"kai.scheduler/queue": "q"}, annotations)) == Membership(
        GangKey(NS, "pg-train-3f2a", "kai"),
        spec_from=ObjectRef("scheduling.run.ai/v2alpha2", "PodGroup", NS, "pg-train-3f2a"),
        required_level="cloud.provider.com/topology-block",
        preferred_level="cloud.provider.com/topology-rack",
    )


KUEUE_LABELS = {
    # kubernetes-sigs/kueue, docs "Run A Group Of Pods"; pkg/controller/jobs/pod/constants/constants.go.
    "kueue.x-k8s.io/queue-name": "user-queue",
    "kueue.x-k8s.io/pod-group-name": "sample-group",
    "kueue.x-k8s.io/pod-group-pod-index": "1",
}
KUEUE_NOTES = {"kueue.x-k8s.io/pod-group-total-count": "2"}


def test_kueue_pod_group():
    notes = KUEUE_NOTES | {"kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-rack"}
    rack = "cloud.provider.com/topology-rack"
    assert good(member(KUEUE_LABELS, notes)) == Membership(
        GangKey(NS, "sample-group", "kueue"), min_members=2, max_members=2, index=1, required_level=rack
    )
    notes = KUEUE_NOTES | {"kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname"}
    assert good(member(KUEUE_LABELS, notes)).preferred_level == "kubernetes.io/hostname"
    notes = KUEUE_NOTES | {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    assert good(member(KUEUE_LABELS, notes)).required_level is None


def test_kueue_serving_group_is_not_waited_for():
    # Kueue's StatefulSet integration: each pod is created when the one before it is ready.
    labels = KUEUE_LABELS | {"apps.kubernetes.io/pod-index": "4"}
    del labels["kueue.x-k8s.io/pod-group-pod-index"]
    found = good(member(labels, KUEUE_NOTES | {"kueue.x-k8s.io/pod-group-serving": "true"}))
    assert (found.min_members, found.max_members, found.index) == (1, None, 4)


@pytest.mark.parametrize(
    "key",
    [
        "kueue.x-k8s.io/podset-slice-required-topology-constraints",
        "kai.scheduler/segment-topology-preferred-placement",
        "gang.scheduling.koordinator.sh/groups",
    ],
)
def test_what_is_not_supported_is_told(key: str):
    assert member(KUEUE_LABELS, KUEUE_NOTES | {key: "x"}).problems == (f"{key} is not supported: it is left out of use",)


def test_volcano_pod_group():
    # volcano-sh/volcano, pkg/controllers/job/job_controller_util.go (createJobPod).
    labels = {
        "volcano.sh/job-name": "train",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/task-index": "3",
        "volcano.sh/queue-name": "default",
    }
    annotations = {
        "scheduling.k8s.io/group-name": "train-5f3c",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/task-index": "3",
        "volcano.sh/network-topology-mode": "hard",
        "volcano.sh/network-topology-highest-tier": "2",
    }
    assert good(member(labels, annotations, Controller("batch.volcano.sh/v1alpha1", "Job", "train"))) == Membership(
        GangKey(NS, "train-5f3c", "volcano"),
        spec_from=ObjectRef("scheduling.volcano.sh/v1beta1", "PodGroup", NS, "train-5f3c"),
        role=(3, "worker"),
        index=3,
        required_level="#2",
    )


VOLCANO = {"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "2"}
TIER = "volcano.sh/network-topology-highest-tier"
MODE = "volcano.sh/network-topology-mode"


def test_volcano_modes():
    assert good(member({}, VOLCANO | {TIER: "1"})).required_level == "#1"
    assert good(member({}, VOLCANO | {TIER: "1", MODE: "Soft"})).preferred_level == "#1"
    assert good(member({}, VOLCANO | {MODE: "hard"})).required_level is None
    assert good(member({}, VOLCANO)).min_members == 2


def test_pod_group_is_read_for_levels_even_if_the_pods_say_the_size():
    volcano = ObjectRef("scheduling.volcano.sh/v1beta1", "PodGroup", NS, "g")
    assert good(member({}, VOLCANO)).spec_from == volcano
    ours = good(member({"pyscheduler.io/group": "g", "pyscheduler.io/min-members": "4"}, VOLCANO))
    assert (ours.gang.vocabulary, ours.min_members, ours.spec_from) == ("pyscheduler", 4, volcano)
    # Its controller is not read: it says no levels.
    assert good(member(LWS, LWS_NOTES)).spec_from is None


def test_volcano_tier_that_cannot_be_read():
    assert TIER in member({}, VOLCANO | {TIER: "rack"}).refusal
    assert MODE in member({}, VOLCANO | {TIER: "1", MODE: "firm"}).refusal
    found = member({}, VOLCANO | {TIER: "0", MODE: "soft"})
    assert (found.preferred_level, found.refusal, len(found.problems)) == (None, "", 1)


JOBSET = {
    # kubernetes-sigs/jobset: on Jobs and pods, as labels and as annotations (api/jobset/v1alpha2/jobset_types.go).
    "jobset.sigs.k8s.io/jobset-name": "train",
    "jobset.sigs.k8s.io/jobset-uid": "0f8c",
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
    "jobset.sigs.k8s.io/global-replicas": "3",
    "jobset.sigs.k8s.io/job-index": "1",
    "jobset.sigs.k8s.io/job-global-index": "2",
    "jobset.sigs.k8s.io/job-key": "60409ea1",
    "batch.kubernetes.io/job-completion-index": "5",
    "batch.kubernetes.io/job-name": "train-workers-1",
}
JOBSET_OBJECT = ObjectRef("jobset.x-k8s.io/v1alpha2", "JobSet", NS, "train")


def test_jobset():
    found = member(JOBSET, JOBSET, Controller("batch/v1", "Job", "train-workers-1"))
    assert good(found) == Membership(GangKey(NS, "train", "jobset"), spec_from=JOBSET_OBJECT, role=(2, "workers"), index=5)


def test_pods_of_a_jobset_are_ordered_by_job_then_by_index():
    def place(job: str, index: str) -> tuple[tuple[int, str], int]:
        said = JOBSET | {"jobset.sigs.k8s.io/job-global-index": job, "batch.kubernetes.io/job-completion-index": index}
        return member(said).place

    order = [("0", "0"), ("0", "2"), ("0", "10"), ("1", "0"), ("10", "0")]
    assert sorted(order, key=lambda each: place(*each)) == order


LWS = {
    # kubernetes-sigs/lws, api/leaderworkerset/v1/leaderworkerset_types.go; the leader has worker-index 0.
    "leaderworkerset.sigs.k8s.io/name": "vllm",
    "leaderworkerset.sigs.k8s.io/group-index": "1",
    "leaderworkerset.sigs.k8s.io/group-key": "a59a",
    "leaderworkerset.sigs.k8s.io/worker-index": "3",
    "leaderworkerset.sigs.k8s.io/template-revision-hash": "6d4f",
    "apps.kubernetes.io/pod-index": "3",
}
LWS_NOTES = {"leaderworkerset.sigs.k8s.io/size": "4", "leaderworkerset.sigs.k8s.io/leader-name": "vllm-1"}


def test_leader_worker_set_group():
    found = member(LWS, LWS_NOTES, Controller("apps/v1", "StatefulSet", "vllm-1"))
    assert good(found) == Membership(GangKey(NS, "vllm-1", "leaderworkerset"), min_members=4, max_members=4, index=3)


def test_leader_worker_set_with_exclusive_placement_creates_workers_when_the_leader_has_a_node():
    notes = LWS_NOTES | {"leaderworkerset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    assert good(member(LWS, notes)).min_members == 1


def test_leader_worker_set_under_kueue_has_the_size_of_its_group():
    # Kueue's LeaderWorkerSet integration makes its groups serving ones.
    labels = LWS | {"kueue.x-k8s.io/pod-group-name": "leaderworkerset-vllm-1-c4b1"}
    notes = LWS_NOTES | {"kueue.x-k8s.io/pod-group-total-count": "4", "kueue.x-k8s.io/pod-group-serving": "true"}
    found = good(member(labels, notes))
    assert (found.gang.vocabulary, found.min_members, found.index) == ("kueue", 4, 3)


def pytorch(role: str, index: str) -> dict[str, str]:
    # kubeflow/training-operator v1: GenLabels, and replica type and index in lower case; the master has a role, too.
    labels = {
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": index,
    }
    return labels | ({"training.kubeflow.org/job-role": "master"} if role == "master" else {})


PYTORCH_JOB = Controller("kubeflow.org/v1", "PyTorchJob", "bert")


def test_pytorch_job():
    found = member(pytorch("worker", "2"), {}, PYTORCH_JOB)
    assert good(found) == Membership(
        GangKey(NS, "bert", "kubeflow"),
        spec_from=ObjectRef("kubeflow.org/v1", "PyTorchJob", NS, "bert"),
        role=(3, "worker"),
        index=2,
    )


def test_masters_come_before_parameter_servers_and_those_before_workers():
    order = [("chief", "0"), ("ps", "0"), ("ps", "1"), ("worker", "0"), ("worker", "11"), ("evaluator", "0")]
    assert sorted(order, key=lambda each: member(pytorch(*each)).place) == order
    assert member(pytorch("master", "0")).place < member(pytorch("worker", "0")).place


def mpi(role: str, **more: str) -> dict[str, str]:
    # kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go (defaultLabels).
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "pi",
        "training.kubeflow.org/job-role": role,
    }
    return labels | more


def test_mpi_job_of_which_the_launcher_is_the_pod_of_a_job():
    launcher = good(member(mpi("launcher"), {}, Controller("batch/v1", "Job", "pi-launcher")))
    worker = good(
        member(
            mpi("worker", **{"training.kubeflow.org/replica-index": "0"}), {}, Controller("kubeflow.org/v2beta1", "MPIJob", "pi")
        )
    )
    assert launcher.gang == worker.gang == GangKey(NS, "pi", "kubeflow")
    assert launcher.spec_from == worker.spec_from == ObjectRef("kubeflow.org/v2beta1", "MPIJob", NS, "pi")
    assert (launcher.role, launcher.index, worker.role, worker.index) == ((1, "launcher"), None, (3, "worker"), 0)


# -- several at once ----------------------------------------------------------------------------------------------------


def test_what_the_first_vocabulary_does_not_say_comes_from_the_others():
    # The training operator with scheduler-plugins puts the pod group's label on the pods of a PyTorchJob.
    found = member(pytorch("worker", "2") | {"scheduling.x-k8s.io/pod-group": "bert"}, {}, PYTORCH_JOB)
    assert good(found) == Membership(
        GangKey(NS, "bert", "scheduler-plugins"),
        spec_from=ObjectRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", NS, "bert"),
        role=(3, "worker"),
        index=2,
    )


def test_our_words_count_first_whoever_names_the_group():
    said = {
        "pyscheduler.io/min-members": "2",
        "pyscheduler.io/required-level": "leaf",
        "kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-block",
        "kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/topology-rack",
    }
    found = good(member(JOBSET, said))
    assert (found.gang.vocabulary, found.min_members, found.spec_from) == ("jobset", 2, None)
    assert (found.required_level, found.preferred_level) == ("leaf", "cloud.provider.com/topology-rack")


def test_our_group_on_pods_of_a_jobset_has_the_size_of_the_jobset():
    found = good(member(JOBSET | GROUP, {}, Controller("batch/v1", "Job", "train-workers-1")))
    assert (found.gang, found.spec_from, found.role) == (GangKey(NS, "g", "pyscheduler"), JOBSET_OBJECT, (2, "workers"))


def test_two_groups_made_on_purpose_are_told_and_the_first_counts():
    found = member(KUEUE_LABELS | {"scheduling.x-k8s.io/pod-group": "pg"}, KUEUE_NOTES)
    assert (found.gang, found.refusal) == (GangKey(NS, "pg", "scheduler-plugins"), "")
    assert found.problems == (
        "scheduling.x-k8s.io/pod-group names the group pg, kueue.x-k8s.io/pod-group-name names sample-group: the first counts",
    )
    # Nothing is taken from the other group.
    assert (found.min_members, found.index) == (None, None)


def test_two_controllers_that_name_different_groups_are_told():
    found = member(JOBSET | pytorch("worker", "0"))
    assert found.gang == GangKey(NS, "train", "jobset")
    assert len(found.problems) == 1


def test_two_words_for_one_group_are_no_contradiction():
    found = member(KUEUE_LABELS | {"pyscheduler.io/group": "sample-group"}, KUEUE_NOTES)
    assert (good(found).gang.vocabulary, found.min_members) == ("pyscheduler", 2)


def test_empty_name_gives_way_to_one_that_is_none():
    found = member(JOBSET | {"pyscheduler.io/group": ""})
    assert (found.gang.vocabulary, found.refusal, len(found.problems)) == ("jobset", "", 1)


@pytest.mark.parametrize("name", ["../secrets/token", "a/b", "A", "a%2fb", ".", "x?watch=1", "a b"])
def test_name_that_is_none_of_an_object_becomes_part_of_no_path(name: str):
    assert member({}, {"pod-group-name": name}).spec_from is None
    assert member(pytorch("worker", "0"), {}, Controller("kubeflow.org/v1", "PyTorchJob", name)).spec_from is None
    assert member(GROUP, {}, Controller("batch/v1", "Job", name)).spec_from is None


@pytest.mark.parametrize("version", ["batch/../v1", "batch/v1/x", "batch", "batch/", "v1", "batch/V1"])
def test_api_version_that_is_none_becomes_part_of_no_path(version: str):
    assert member(GROUP, {}, Controller(version, "Job", "train")).spec_from is None

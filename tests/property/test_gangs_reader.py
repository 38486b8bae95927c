"""Whatever stands in labels and annotations, a group is read or refused, and nothing of it leaves the paths of the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.gangs.membership import GroupSpec, Membership, ObjectRef
from pyscheduler.readers.gang_size import path_of, size_of
from pyscheduler.readers.gang_spec import spec_of
from pyscheduler.readers.gang_words import LEFT_OUT, VOCABULARIES
from pyscheduler.readers.gangs import GROUP_KEYS, Controller, membership_of

KEYS = sorted(
    {key for words in VOCABULARIES for key in words.all_keys()}
    | set(LEFT_OUT)
    | {f"pyscheduler.io/{key}" for key in ("wait", "spread", "same-model", "one-pod-per-node", "gpus")}
)
VALUES = st.one_of(
    st.text(),
    st.sampled_from(
        ["", "a", "b", "0", "1", "7", "1000000", "true", "hard", "soft", "10m", "#1", "rack", "kubernetes.io/hostname"]
    ),
    st.sampled_from(['{"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}]}', "{", "null", "../x", "\ud800"]),
)
SAID = st.dictionaries(st.sampled_from(KEYS) | st.text(), VALUES, max_size=12)
CONTROLLERS = st.builds(
    Controller,
    st.sampled_from(["batch/v1", "kubeflow.org/v1", "apps/v1", ""]) | st.text(),
    st.sampled_from(["Job", "PyTorchJob", "MPIJob", "StatefulSet"]) | st.text(),
    st.sampled_from(["train", "../x", ""]) | st.text(),
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
FIELDS = st.sampled_from(
    [
        *("minMember", "parallelism", "completions", "replicatedJobs", "replicas", "template", "spec", "dependsOn", "size"),
        *("leaderWorkerTemplate", "startupPolicy", "startupPolicyOrder", "pytorchReplicaSpecs", "mpiReplicaSpecs", "Worker"),
        *("Launcher", "runPolicy", "schedulingPolicy", "minAvailable", "elasticPolicy", "launcherCreationPolicy"),
        *("metadata", "annotations", "status", "networkTopology", "mode", "highestTierAllowed", "highestTierName"),
        *("topologyConstraint", "requiredTopologyLevel", "preferredTopologyLevel", "subGroups", "subGroupPolicy"),
        "gang.scheduling.koordinator.sh/network-topology-spec",
    ]
)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5), max_leaves=20)
PATH = re.compile(r"/apis/[a-z0-9.-]+/v[0-9a-z]+/namespaces/ns/[a-z]+/[a-z0-9.-]+", re.ASCII)


def check(found: Membership) -> None:
    for number in (found.min_members, found.max_members):
        assert number is None or 1 <= number <= 1_000_000
    if found.min_members is not None and found.max_members is not None:
        assert found.min_members <= found.max_members
    # Of those who say their size only PodGroups are read: for levels.
    assert found.min_members is None or found.spec_from is None or found.spec_from.kind == "PodGroup"
    assert found.subgroup is None or (found.subgroup.size or 2) >= 2
    assert found.index is None or 0 <= found.index <= 1_000_000
    assert found.gang.name or found.refusal
    if found.spec_from is not None:
        assert PATH.fullmatch(path_of(found.spec_from))
    for text in (
        found.gang.name,
        found.role[1],
        found.required_level or "",
        found.preferred_level or "",
        found.refusal,
        *found.problems,
    ):
        assert text.isprintable()
    for level in (found.required_level, found.preferred_level):
        assert level is None or level.strip() == level != ""
    assert sorted([found.place, found.place]) == [found.place] * 2


@given(SAID, SAID, st.none() | CONTROLLERS)
def test_any_words_are_read_or_refused(labels: Mapping[str, str], annotations: Mapping[str, str], made_by: Controller | None):
    found = membership_of("ns", labels, annotations, made_by)
    assert (found is None) == (GROUP_KEYS.isdisjoint(labels) and GROUP_KEYS.isdisjoint(annotations))
    if found is not None:
        check(found)


@given(st.sampled_from(sorted(GROUP_KEYS)), SAID)
def test_where_a_word_stands_does_not_matter(key: str, said: Mapping[str, str]):
    everywhere = {"leaderworkerset.sigs.k8s.io/group-index": "0", **said, key: "g"}
    assert membership_of("ns", everywhere, {}, None) == membership_of("ns", {}, everywhere, None)


@given(st.sampled_from(["PodGroup", "Job", "JobSet", "LeaderWorkerSet", "PyTorchJob", "MPIJob", "Pod"]), JSON, JSON, JSON)
def test_any_object_has_a_size_or_none(kind: str, spec: Any, meta: Any, status: Any):
    size = size_of(kind, {"spec": spec, "metadata": meta, "status": status})
    assert size is None or (1 <= size[0] <= 1_000_000 and (size[1] is None or size[0] <= size[1] <= 1_000_000))


@given(st.sampled_from(["scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2alpha2", "scheduling.sigs.k8s.io/v1alpha1"]), JSON)
def test_any_pod_group_is_read_or_refused(api_version: str, raw: Any):
    found = spec_of(ObjectRef(api_version, "PodGroup", "ns", "pg"), raw)
    for text in (found.required_level or "x", found.preferred_level or "x", found.refusal, *found.problems):
        assert text.isprintable()
    for level in (found.required_level, found.preferred_level):
        assert level is None or level.strip() == level != ""
    assert isinstance(raw, dict) or found == GroupSpec()

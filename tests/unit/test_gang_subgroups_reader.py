"""Subgroups and spread, as they stand in labels and annotations."""

from __future__ import annotations

import pytest

from pyscheduler.core.gangs.membership import Membership, Subgroup
from pyscheduler.core.model import PodRequest, PodUid, Verdict
from pyscheduler.core.settings import shape_of_pod
from pyscheduler.readers.gangs import membership_of
from tests.builders import containers

RACK = "cloud.provider.com/topology-rack"


def member(labels: dict[str, str], annotations: dict[str, str] | None = None) -> Membership:
    found = membership_of("team-a", labels, annotations or {}, None)
    assert found is not None
    return found


def ours(**said: str) -> Membership:
    keys = {f"pyscheduler.io/{key.replace('_', '-')}": value for key, value in said.items()}
    return member({"pyscheduler.io/group": "g", "pyscheduler.io/min-members": "2"}, keys)


def good(found: Membership) -> Membership:
    assert (found.problems, found.refusal) == ((), "")
    return found


def test_pod_that_says_nothing_is_in_no_subgroup_and_is_not_spread():
    assert (good(ours()).subgroup, good(ours()).spread_level) == (None, None)


def test_number_is_the_size_of_subgroups_and_anything_else_a_name():
    assert good(ours(subgroup=" 8 ", subgroup_level="nvlink-domain")).subgroup == Subgroup("nvlink-domain", 8)
    assert good(ours(subgroup="decode", subgroup_level="rack")).subgroup == Subgroup("rack", name="decode")


def test_without_a_level_it_is_the_nearest_one_that_is_wider_than_a_node():
    assert good(ours(subgroup="8")).subgroup == Subgroup("#1", 8)


@pytest.mark.parametrize("text", ["", "0", "1", "10000000", "a\nb", "x" * 64])
def test_subgroup_that_cannot_be_one_is_refused(text: str):
    found = ours(subgroup=text)
    assert found.subgroup is None
    assert "pyscheduler.io/subgroup is" in found.refusal
    assert found.refusal.endswith("write a whole number from 2 to 1,000,000 or the name of a subgroup")


@pytest.mark.parametrize("text", ["", "#0", "#x", "a\nb"])
def test_level_that_cannot_be_one_is_refused(text: str):
    assert "pyscheduler.io/subgroup-level is" in ours(subgroup="8", subgroup_level=text).refusal


def test_level_of_subgroups_alone_asks_what_they_are():
    assert ours(subgroup_level="rack").refusal == (
        "pyscheduler.io/subgroup-level is set, and nothing says which pods are a subgroup: write pyscheduler.io/subgroup"
    )


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("true", "node"),
        ("True", "node"),
        ("false", None),
        ("rack", "rack"),
        (" #2 ", "#2"),
        ("example.com/rack", "example.com/rack"),
    ],
)
def test_spread_is_a_switch_or_a_level(text: str, level: str | None):
    assert good(ours(spread=text)).spread_level == level


@pytest.mark.parametrize("text", ["", "#0", "a\nb"])
def test_spread_that_is_neither_is_refused(text: str):
    assert ours(spread=text).refusal.endswith("write true, false or the name of a level, such as rack")


@pytest.mark.parametrize("key", ["subgroup", "subgroup-level", "spread"])
def test_a_pod_without_a_group_may_not_ask_for_it(key: str):
    alone = PodRequest(PodUid("p"), "default", "p", containers(1), {key: "2"})
    verdict = shape_of_pod(alone)
    assert isinstance(verdict, Verdict)
    assert f"pyscheduler.io/{key} and is in no group" in verdict.reason
    inside = PodRequest(PodUid("p"), "default", "p", containers(1), {key: "2"}, 0, ours())
    assert not isinstance(shape_of_pod(inside), Verdict)


# -- the words of others ------------------------------------------------------------------------------------------------

KUEUE = {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/pod-group-total-count": "8"}
SLICE_LEVEL, SLICE_SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"


def test_kueue_slices():
    assert good(member(KUEUE, {SLICE_LEVEL: RACK, SLICE_SIZE: "4"})).subgroup == Subgroup(RACK, 4)


def test_kueue_level_without_a_size_is_refused_and_a_size_without_a_level_is_left_out():
    assert member(KUEUE, {SLICE_LEVEL: RACK}).refusal.endswith(f"write {SLICE_SIZE}")
    found = member(KUEUE, {SLICE_SIZE: "4"})
    assert (found.subgroup, found.refusal) == (None, "")
    assert found.problems == (f"{SLICE_SIZE} is set, and {SLICE_LEVEL} is not: it is left out of use",)


def test_kueue_slice_size_that_is_a_name_is_refused():
    refusal = member(KUEUE, {SLICE_LEVEL: RACK, SLICE_SIZE: "four"}).refusal
    assert refusal.endswith("write a whole number from 2 to 1,000,000")


# kai-scheduler/KAI-Scheduler, docs/topology/segment-based.md: segment i has the workers whose index // size is i.
KAI = {"pod-group-name": "g", "pyscheduler.io/min-members": "4", "training.kubeflow.org/replica-type": "worker"}
SEGMENT_LEVEL, SEGMENT_SIZE = "kai.scheduler/segment-topology-required-placement", "kai.scheduler/segment-size"


def test_kai_segments_are_counted_by_the_index():
    assert good(member(KAI, {SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "4"})).subgroup == Subgroup(RACK, 4, by_role=True)


def test_kai_segments_that_only_prefer_a_level_are_left_out():
    found = member(KAI, {"kai.scheduler/segment-topology-preferred-placement": RACK, SEGMENT_SIZE: "4"})
    assert (found.subgroup, found.refusal, len(found.problems)) == (None, "", 2)


# kubernetes-sigs/lws, pkg/webhooks/pod_webhook.go: the index is on each pod that is in a subgroup, the annotations on all.
LWS = {
    "leaderworkerset.sigs.k8s.io/name": "vllm",
    "leaderworkerset.sigs.k8s.io/group-index": "0",
    "leaderworkerset.sigs.k8s.io/worker-index": "3",
}
LWS_NOTES = {"leaderworkerset.sigs.k8s.io/size": "5", "leaderworkerset.sigs.k8s.io/subgroup-size": "2"}
LWS_INDEX = {"leaderworkerset.sigs.k8s.io/subgroup-index": "1"}
LWS_LEVEL = {"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": RACK}


def test_leader_worker_set_subgroup_has_a_domain_of_its_own():
    assert good(member(LWS | LWS_INDEX, LWS_NOTES | LWS_LEVEL)).subgroup == Subgroup(RACK, name="1", alone=True)


def test_leader_worker_set_subgroups_without_a_level_ask_for_nothing():
    assert good(member(LWS | LWS_INDEX, LWS_NOTES)).subgroup is None


def test_leader_that_is_left_out_of_the_subgroups_is_in_none():
    assert good(member(LWS, LWS_NOTES | LWS_LEVEL)).subgroup is None


def test_our_level_may_stand_beside_the_subgroups_of_a_leader_worker_set():
    found = member(LWS | LWS_INDEX, LWS_NOTES | {"pyscheduler.io/subgroup-level": "nvlink-domain"})
    assert good(found).subgroup == Subgroup("nvlink-domain", name="1")


def test_ours_wins_over_the_words_of_others():
    found = member(
        KUEUE, {SLICE_LEVEL: RACK, SLICE_SIZE: "4", "pyscheduler.io/subgroup": "2", "pyscheduler.io/subgroup-level": "node"}
    )
    assert good(found).subgroup == Subgroup("node", 2)

"""What the objects of groups say beside their size: in which levels the members are to be."""

from __future__ import annotations

from typing import Any

import pytest

from pyscheduler.core.gangs.membership import GroupSpec, ObjectRef, Size
from pyscheduler.readers.gang_spec import spec_of

VOLCANO = "scheduling.volcano.sh/v1beta1"
KAI = "scheduling.run.ai/v2alpha2"
KOORDINATOR = "scheduling.sigs.k8s.io/v1alpha1"
GATHER = "gang.scheduling.koordinator.sh/network-topology-spec"


def read(api_version: str, spec: Any, annotations: Any = None) -> GroupSpec:
    raw = {"metadata": {"name": "pg", "annotations": annotations}, "spec": spec}
    return spec_of(ObjectRef(api_version, "PodGroup", "team", "pg"), raw)


def volcano(**topology: Any) -> GroupSpec:
    return read(VOLCANO, {"minMember": 4, "networkTopology": topology})


def kai(**constraint: Any) -> GroupSpec:
    return read(KAI, {"minMember": 4, "topologyConstraint": constraint})


FOUR = Size(4)


def test_volcano_tiers_are_levels_counted_from_the_node():
    assert volcano(mode="hard", highestTierAllowed=2) == GroupSpec(FOUR, required_level="#2")
    # The API server fills in hard.
    assert volcano(highestTierAllowed=1) == GroupSpec(FOUR, required_level="#1")
    assert volcano(mode="soft", highestTierAllowed=1) == GroupSpec(FOUR, preferred_level="#1")
    assert volcano(mode="soft") == GroupSpec(FOUR)
    assert volcano(mode="hard") == GroupSpec(FOUR)


def test_volcano_tier_may_have_a_name():
    assert volcano(mode="hard", highestTierName="rack") == GroupSpec(FOUR, required_level="rack")
    assert volcano(mode="soft", highestTierName="rack") == GroupSpec(FOUR, preferred_level="rack")


@pytest.mark.parametrize("tier", [0, -1, 100, "two", 1.5, True, [1], {"tier": 1}])
def test_volcano_tier_that_cannot_be_read_is_named_by_object_and_field(tier: Any):
    found = volcano(mode="hard", highestTierAllowed=tier)
    assert found.refusal.startswith("PodGroup team/pg: spec.networkTopology.highestTierAllowed is ")
    assert found.refusal.endswith(": write a whole number from 1 to 99")
    assert found.required_level is None
    soft = volcano(mode="soft", highestTierAllowed=tier)
    assert (soft.refusal, soft.preferred_level) == ("", None)
    assert soft.problems[0].endswith("; it is left out of use")


def test_volcano_mode_that_is_none_is_refused():
    found = volcano(mode="strict", highestTierAllowed=1)
    assert found.refusal == "PodGroup team/pg: spec.networkTopology.mode is 'strict': write hard or soft"


def test_kai_names_levels_by_node_labels():
    found = kai(topology="dc", requiredTopologyLevel="topology.kubernetes.io/zone", preferredTopologyLevel="example.com/rack")
    assert found == GroupSpec(FOUR, "topology.kubernetes.io/zone", "example.com/rack")
    # The field is no pointer: it is there, and empty, if nobody writes it.
    assert kai(topology="", requiredTopologyLevel="") == kai() == GroupSpec(FOUR)


def test_kai_level_that_cannot_be_read_is_named_by_object_and_field():
    found = kai(requiredTopologyLevel="  ", preferredTopologyLevel="a\nb")
    assert found.refusal.startswith("PodGroup team/pg: spec.topologyConstraint.requiredTopologyLevel is '  ': write the name of")
    assert found.problems[0].startswith("PodGroup team/pg: spec.topologyConstraint.preferredTopologyLevel is 'a\\nb': write")


def test_koordinator_annotates_its_pod_groups():
    said = '{"gatherStrategy": [{"layer": "BlockLayer", "strategy": "PreferGather"}, {"layer": "SpineLayer", "strategy": "MustGather"}]}'
    assert read(KOORDINATOR, {"minMember": 4}, {GATHER: said}) == GroupSpec(FOUR, "SpineLayer", "BlockLayer")
    assert read(KOORDINATOR, {"minMember": 4}, {GATHER: "{"}).refusal.startswith(f"PodGroup team/pg: {GATHER} is '{{': write")
    assert read(KOORDINATOR, {"minMember": 4}, {"other": "x"}) == read(KOORDINATOR, {"minMember": 4}) == GroupSpec(FOUR)


def test_words_of_one_kind_of_pod_group_say_nothing_in_another():
    both = {"networkTopology": {"highestTierAllowed": 1}, "topologyConstraint": {"requiredTopologyLevel": "rack"}}
    assert read("scheduling.x-k8s.io/v1alpha1", both) == GroupSpec()
    assert (read(VOLCANO, both).required_level, read(KAI, both).required_level) == ("#1", "rack")


@pytest.mark.parametrize(("api_version", "field"), [(VOLCANO, "subGroupPolicy"), (KAI, "subGroups")])
def test_parts_of_a_group_are_told_to_be_left_out(api_version: str, field: str):
    found = read(api_version, {"minMember": 4, field: [{"name": "prefill"}]})
    assert found == GroupSpec(FOUR, problems=(f"PodGroup team/pg: spec.{field} is not supported: it is left out of use",))
    assert read(api_version, {"minMember": 4, field: []}) == GroupSpec(FOUR)


def test_other_objects_say_a_size_alone():
    raw = {"metadata": {"annotations": {GATHER: "{"}}, "spec": {"parallelism": 2, "networkTopology": {"highestTierAllowed": 1}}}
    assert spec_of(ObjectRef("batch/v1", "Job", "team", "job"), raw) == GroupSpec(Size(2, 2))


@pytest.mark.parametrize("raw", [None, [], "x", 1, {}, {"metadata": 1, "spec": 2}, {"spec": {"networkTopology": [1]}}])
def test_anything_that_is_no_such_object_says_nothing(raw: Any):
    for api_version in (VOLCANO, KAI, KOORDINATOR):
        assert spec_of(ObjectRef(api_version, "PodGroup", "team", "pg"), raw) == GroupSpec()

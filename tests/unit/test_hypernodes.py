"""HyperNodes of Volcano: where their nodes are, and what is wrong with them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pyscheduler.readers.fabric.hypernodes import HyperNodes
from pyscheduler.readers.fabric.name_pattern import PatternError, compile_pattern

CLIQUE = "nvidia.com/gpu.clique"


def hypernode(name: str, tier: object, *members: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "HyperNode", "metadata": {"name": name}, "spec": {"tier": tier, "members": list(members)}}


def node(name: str) -> dict[str, Any]:
    return {"type": "Node", "selector": {"exactMatch": {"name": name}}}


def nodes(pattern: str) -> dict[str, Any]:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}


def labelled(*expressions: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"type": "Node", "selector": {"labelMatch": {"matchLabels": labels, "matchExpressions": list(expressions)}}}


def child(name: str) -> dict[str, Any]:
    return {"type": "HyperNode", "selector": {"exactMatch": {"name": name}}}


def path(hypernodes: HyperNodes, name: str, **labels: str) -> list[tuple[str, str]]:
    return list(hypernodes.place_of(name, labels).place.path)


def codes(hypernodes: HyperNodes) -> list[str]:
    return [finding.code for finding in hypernodes.findings]


TREE = (
    hypernode("hall", 3, child("row-a"), child("row-b")),
    hypernode("row-a", 2, child("rack-1"), child("rack-2")),
    hypernode("row-b", 2, child("rack-3")),
    hypernode("rack-1", 1, node("w1"), node("w2")),
    hypernode("rack-2", 1, node("w3")),
    hypernode("rack-3", 1, node("w4")),
)


def test_tiers_are_levels_nearest_first_in_whatever_order_the_objects_come():
    for objects in (TREE, TREE[::-1]):
        built = HyperNodes.build(objects)
        assert path(built, "w3") == [("tier-1", "rack-2"), ("tier-2", "row-a"), ("tier-3", "hall")]
        assert built.place_of("w3", {}).levels == ("tier-1", "tier-2", "tier-3")
        assert built.findings == ()


def test_a_node_of_no_hypernode_is_nowhere_but_keeps_its_nvlink_domain():
    found = HyperNodes.build(TREE).place_of("w99", {CLIQUE: "7c-11.4"})

    assert (found.place.path, found.place.nvlink_domain, found.levels, found.findings) == ((), "7c-11.4", (), ())


def test_an_unusable_clique_is_told_here_too():
    assert [f.code for f in HyperNodes.build(TREE).place_of("w1", {CLIQUE: ".4"}).findings] == ["clique-unusable"]


def test_trees_of_different_depth_stand_side_by_side():
    built = HyperNodes.build([*TREE, hypernode("nvl-1", 1, node("t1"))])

    assert path(built, "t1") == [("tier-1", "nvl-1")]
    assert built.findings == ()


def test_a_pattern_matches_anywhere_in_the_name():
    built = HyperNodes.build([hypernode("rack-1", 1, nodes("r1-[0-9]+"), nodes("^spare$"))])

    assert path(built, "gpu-r1-07.local") == path(built, "spare") == [("tier-1", "rack-1")]
    assert path(built, "gpu-r2-07") == path(built, "spare-2") == []


@pytest.mark.parametrize(
    ("member", "labels", "chosen"),
    [
        (labelled(rack="3"), {"rack": "3", "x": ""}, True),
        (labelled(rack="3"), {"rack": "4"}, False),
        (labelled(rack="3", kind="gpu"), {"rack": "3"}, False),
        (labelled(rack="3", kind="gpu"), {"rack": "3", "kind": "gpu"}, True),
        (labelled({"key": "rack", "operator": "In", "values": ["3", "4"]}), {"rack": "4"}, True),
        (labelled({"key": "rack", "operator": "In", "values": ["3", "4"]}), {}, False),
        (labelled({"key": "rack", "operator": "NotIn", "values": ["3"]}), {}, True),
        (labelled({"key": "rack", "operator": "NotIn", "values": ["3"]}), {"rack": "3"}, False),
        (labelled({"key": "rack", "operator": "Exists"}), {"rack": ""}, True),
        (labelled({"key": "rack", "operator": "DoesNotExist"}), {"rack": ""}, False),
        (labelled({"key": "old", "operator": "DoesNotExist"}, rack="3"), {"rack": "3", "old": "1"}, False),
    ],
)
def test_labels_choose_as_a_label_selector_does(member: dict[str, Any], labels: dict[str, str], chosen: bool):
    built = HyperNodes.build([hypernode("rack-1", 1, member)])

    assert path(built, "w1", **labels) == ([("tier-1", "rack-1")] if chosen else [])
    assert built.findings == ()


def test_a_wider_hypernode_may_choose_its_nodes_itself():
    built = HyperNodes.build([hypernode("rack-1", 1, node("w1")), hypernode("row", 2, nodes("^w"))])

    assert path(built, "w1") == [("tier-1", "rack-1"), ("tier-2", "row")]
    assert path(built, "w2") == [("tier-2", "row")]
    assert built.place_of("w1", {}).findings == ()


def test_a_node_in_two_racks_is_placed_as_far_as_they_agree():
    row = hypernode("row-a", 2, child("rack-1"), child("rack-2"), child("rack-9"))
    built = HyperNodes.build([*TREE[:1], row, *TREE[2:], hypernode("rack-9", 1, node("w3"))])
    found = built.place_of("w3", {})

    assert (list(found.place.path), found.levels) == (
        [("tier-2", "row-a"), ("tier-3", "hall")],
        ("tier-1", "tier-2", "tier-3"),
    )
    [finding] = found.findings
    assert (finding.code, finding.node) == ("several-parents", "w3")
    assert "rack-2, rack-9" in finding.message


def test_a_node_whose_racks_hang_apart_is_nowhere():
    built = HyperNodes.build([*TREE, hypernode("rack-9", 1, node("w3")), hypernode("row-c", 2, child("rack-9"))])

    assert path(built, "w3") == []
    assert path(built, "w1") == [("tier-1", "rack-1"), ("tier-2", "row-a"), ("tier-3", "hall")]


def test_a_rack_in_two_rows_is_placed_as_far_as_they_agree():
    rows = (hypernode("row-a", 2, child("rack-1")), hypernode("row-b", 2, child("rack-1")))
    built = HyperNodes.build([hypernode("hall", 3, child("row-a"), child("row-b")), *rows, hypernode("rack-1", 1, node("w1"))])

    assert path(built, "w1") == [("tier-1", "rack-1"), ("tier-3", "hall")]
    assert built.place_of("w1", {}).levels == ("tier-1", "tier-2", "tier-3")
    assert codes(built) == ["several-parents"]


def test_a_member_named_again_higher_up_is_no_second_parent():
    built = HyperNodes.build([*TREE, hypernode("hall-2", 4, child("hall"), child("rack-1"))])

    assert path(built, "w1")[-2:] == [("tier-3", "hall"), ("tier-4", "hall-2")]
    assert built.findings == ()


def test_a_cycle_is_told_and_cut_where_the_tiers_say():
    built = HyperNodes.build([hypernode("row", 2, child("rack")), hypernode("rack", 1, child("row"), node("w1"))])

    assert codes(built) == ["hypernode-cycle"]
    assert path(built, "w1") == [("tier-1", "rack"), ("tier-2", "row")]


def test_a_hypernode_that_holds_itself_is_a_cycle():
    built = HyperNodes.build([hypernode("rack", 1, child("rack"), node("w1"))])

    assert (codes(built), path(built, "w1")) == (["hypernode-cycle"], [("tier-1", "rack")])


@pytest.mark.parametrize("tier", [1, 2])
def test_a_member_of_the_same_or_a_wider_tier_is_left_out(tier: int):
    built = HyperNodes.build([hypernode("row", 1, child("rack")), hypernode("rack", tier, node("w1"))])

    assert (codes(built), path(built, "w1")) == (["tier-inversion"], [(f"tier-{tier}", "rack")])


def test_a_member_that_does_not_exist_is_told():
    built = HyperNodes.build([hypernode("row", 2, child("rack"), child("gone")), hypernode("rack", 1, node("w1"))])

    assert codes(built) == ["hypernode-member-missing"]
    assert "gone" in built.findings[0].message
    assert path(built, "w1") == [("tier-1", "rack"), ("tier-2", "row")]


def test_members_that_choose_no_node_are_told_by_their_owner():
    built = HyperNodes.build([hypernode("rack", 1, node("w1"), node("gone"), nodes("^x"), labelled(a="1"), labelled(a="2"))])

    [finding] = built.unmatched([("w1", {}), ("w2", {"a": "2"})])

    assert finding.code == "hypernode-member-unmatched"
    assert all(part in finding.message for part in ("rack", "exactMatch gone", "regexMatch ^x", "labelMatch a In 1"))
    assert "w1" not in finding.message


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (nodes("w[1"), "hypernode-pattern"),
        (nodes("(w+)+x"), "hypernode-pattern"),
        (nodes(""), "hypernode-member-unusable"),
        (labelled(), "hypernode-member-unusable"),
        (labelled({"key": "a", "operator": "Near", "values": ["1"]}), "hypernode-member-unusable"),
        (labelled({"key": "a", "operator": "In"}), "hypernode-member-unusable"),
        ({"type": "HyperNode", "selector": {"regexMatch": {"pattern": "rack"}}}, "hypernode-member-unusable"),
        ({"type": "Rack"}, "hypernode-member-unusable"),
        ({"type": "Node"}, "hypernode-member-unusable"),
        (7, "hypernode-member-unusable"),
    ],
)
def test_one_bad_member_is_told_and_the_others_count(member: Any, code: str):
    built = HyperNodes.build([hypernode("rack-1", 1, member, node("w1"))])

    assert (codes(built), path(built, "w1")) == ([code], [("tier-1", "rack-1")])
    assert "members[0]" in built.findings[0].message


@pytest.mark.parametrize(
    "raw", [hypernode("r", None), hypernode("r", -1), hypernode("r", True), hypernode("", 1), {"spec": []}, {}]
)
def test_one_bad_object_is_told_and_the_others_count(raw: dict[str, Any]):
    built = HyperNodes.build([raw, *TREE])

    assert (codes(built), len(path(built, "w1"))) == (["hypernode-unreadable"], 3)


def test_it_goes_to_another_process():
    again = pickle.loads(pickle.dumps(HyperNodes.build([*TREE, hypernode("rack-8", 1, nodes("^z"), labelled(a="1"))])))  # noqa: S301

    assert path(again, "z1") == path(again, "q", a="1") == [("tier-1", "rack-8")]


@pytest.mark.parametrize(
    "pattern",
    [
        r"^dc\d+-row\d+-rack\d+-w\d+$",
        r"^ip(-[0-9]+){4}$",
        r"([0-9]{1,3}\.){3}",
        "w-(1|2|3)$",
        "(?:ab)+",
        r"a\.b[*+)]",
        "(?i)W1",
        r"\\1",
    ],
)
def test_patterns_of_real_names_are_used(pattern: str):
    assert compile_pattern(pattern).pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("w" * 1001, "1000 characters"),
        ("w[", "no regular expression"),
        ("(?=w)", "Go"),
        (r"(w)\1", "Go"),
        ("(?x)w 1", "Go"),
        ("w{,2}", "Go"),
        ("w++", "repeats a repeat"),
        ("[[:digit:]]", "Go"),
        (r"(\w+-?)+$", "repeats a group"),
        ("(?:w|w)*x", "repeats a group"),
        ("((w+))+x", "repeats a group"),
        ("(a?a?){1,}x", "repeats a group"),
        (".*.*.*x", "in a row"),
        ("(.*-){13}", "12 repeats"),
        ("(((w*){12}){12}){12}", "12 repeats"),
    ],
)
def test_patterns_that_mean_another_thing_or_take_too_long_are_not(pattern: str, says: str):
    with pytest.raises(PatternError, match=says):
        compile_pattern(pattern)

"""Slurm topologies: trees and blocks, as files and as scontrol prints them."""

from __future__ import annotations

import json

import pytest

from pyscheduler.readers.fabric import slurm
from pyscheduler.readers.reading import RefusedError


def paths(text: str) -> dict[str, list[str | None]]:
    return {node["name"]: node["path"] for node in slurm.read(text).body["nodes"]}


def codes(text: str) -> list[str]:
    return [finding.code for finding in slurm.read(text).findings]


def test_a_tree_gives_every_host_its_switches_nearest_first():
    text = "SwitchName=top Switches=sw[1,2]\nSwitchName=sw1 Nodes=gpu[08-10]\nSwitchName=sw2 Nodes=gpu11,cpu1\n"

    assert slurm.recognises(text)
    assert paths(text) == {
        "gpu08": ["sw1", "top"],
        "gpu09": ["sw1", "top"],
        "gpu10": ["sw1", "top"],
        "gpu11": ["sw2", "top"],
        "cpu1": ["sw2", "top"],
    }
    assert slurm.read(text).body["levels"] == ["leaf", "spine"]
    assert codes(text) == []


def test_trees_without_a_common_root_and_of_unequal_depth_stay_apart():
    text = "SwitchName=hall Switches=sw1\nSwitchName=sw1 Nodes=a1\nSwitchName=alone Nodes=b1\n"

    assert paths(text) == {"a1": ["sw1", "hall"], "b1": ["alone"]}


def test_blocks_are_one_level():
    reading = slurm.read("# rack1=nvl-7\nBlockName=rack1 Nodes=t[1-2]\nBlockName=rack2 Nodes=t[3-4]\nBlockSizes=2,4\n")

    assert reading.body["levels"] == ["block"]
    assert reading.body["block_sizes"] == [2, 4]
    assert [node["path"] for node in reading.body["nodes"]] == [["rack1"], ["rack1"], ["rack2"], ["rack2"]]


def test_lower_case_blanks_around_equals_comments_and_continued_lines_are_read():
    text = "\ufeff  switchname = sw1 \\\r\n   NODES=a[1-2],  # two of them\r\nSwitchName=sw2 LinkSpeed=100 Nodes=a3\r\n"

    assert paths(text) == {"a1": ["sw1"], "a2": ["sw1"], "a3": ["sw2"]}


def test_scontrol_lists_hosts_again_under_every_switch_above_them():
    text = (
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-1]\n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2-3]\n"
        "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[0-3] Switches=s[0-1]\n"
    )

    assert paths(text) == {"n0": ["s0", "s2"], "n1": ["s0", "s2"], "n2": ["s1", "s2"], "n3": ["s1", "s2"]}
    assert codes(text) == []


def test_aggregated_blocks_of_scontrol_hold_no_new_hosts():
    text = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nAggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"

    assert paths(text) == {"n1": ["b1"], "n2": ["b1"]}
    assert codes(text) == []


def test_the_default_topology_of_a_yaml_file_counts_and_the_others_are_named():
    text = json.dumps([
        {"topology": "old", "tree": {"switches": [{"switch": "s", "nodes": "x1"}]}},
        {
            "topology": "new",
            "cluster_default": True,
            "tree": {"switches": [{"switch": "root", "children": "l[1-2]"}, {"switch": "l1", "nodes": "n[1-2]"}, {"switch": "l2", "nodes": "n3"}]},
        },
    ])  # fmt: skip

    assert slurm.recognises(text)
    assert paths(text) == {"n1": ["l1", "root"], "n2": ["l1", "root"], "n3": ["l2", "root"]}
    assert "old" in slurm.read(text).findings[0].message


def test_a_host_under_two_leaves_is_placed_as_far_as_they_agree():
    text = "SwitchName=top Switches=rail[1-2]\nSwitchName=rail1 Nodes=n1\nSwitchName=rail2 Nodes=n1,n2\n"

    assert paths(text) == {"n1": [None, "top"], "n2": ["rail2", "top"]}
    assert codes(text) == ["several-parents"]


def test_switches_below_themselves_have_nothing_above_them():
    text = "SwitchName=a Switches=b Nodes=n1\nSwitchName=b Switches=a Nodes=n2\n"

    assert paths(text)["n1"] == ["a"]
    assert paths(text)["n2"][:1] == ["b"]
    assert codes(text) == ["switch-cycle"]


@pytest.mark.parametrize("cut", ["n[3", "n[3-", "n[5-3]", "n[1-2]]", "n[a-c]", "n[1-999999999]"])
def test_a_cut_or_impossible_range_loses_only_its_own_hosts(cut: str):
    text = f"SwitchName=sw1 Nodes=a1,{cut}\nSwitchName=sw2 Nodes=b1\n"

    assert paths(text) == {"a1": ["sw1"], "b1": ["sw2"]}
    assert codes(text) == ["hostlist-unreadable"]
    assert "line 1" in slurm.read(text).findings[0].message


def test_several_brackets_in_one_name_give_all_combinations():
    assert list(paths("SwitchName=s Nodes=r[1-2]n[09-10].lan")) == ["r1n09.lan", "r1n10.lan", "r2n09.lan", "r2n10.lan"]


def test_a_switch_that_is_cut_off_or_defined_nowhere_is_reported():
    text = "SwitchName=top Switches=sw[1-2]\nSwitchName=sw1 Nodes=n1\nSwitchName=sw3\n"

    assert codes(text) == ["switch-empty", "switch-undefined"]


def test_text_without_hosts_is_refused():
    with pytest.raises(RefusedError, match="no switch and no block has a node"):
        slurm.read("SwitchName=top Switches=sw[1-2]\n")
    assert not slurm.recognises("NodeName=n[1-4] Gres=gpu:8\nPartitionName=all Nodes=ALL\n")


def test_more_levels_than_any_fabric_has_are_refused():
    chain = "".join(f"SwitchName=s{i + 1} Switches=s{i}\n" for i in range(200))
    with pytest.raises(RefusedError, match="more than 32 levels deep"):
        slurm.read(chain + "SwitchName=s0 Nodes=n1\n")

"""Where one node is, by its labels alone: known label families, pools of the configuration, a Topology of Kueue."""

from __future__ import annotations

import pickle

import pytest

from pyscheduler.core.fabric.fabric_checks import inversions
from pyscheduler.core.fabric.place import Place
from pyscheduler.readers.fabric import kueue
from pyscheduler.readers.fabric.label_families import Level
from pyscheduler.readers.fabric.places import Placement, place_of
from pyscheduler.readers.fabric.rules import PoolConfig, Rules

NEW = "fabric.topograph.run/tier-"
OLD = "network.topology.nvidia.com/"
AWS = "topology.k8s.aws/network-node-layer-"
CLIQUE = "nvidia.com/gpu.clique"
FAMILIES = Rules()


def families(labels: dict[str, str]) -> Placement:
    return place_of(labels, "w7", FAMILIES)


def codes(placement: Placement) -> list[str]:
    return [finding.code for finding in placement.findings]


def pool(name: str, *levels: str, selector: dict[str, str] | None = None, nvlink_domain: str = "") -> PoolConfig:
    named = tuple(Level(level, (f"dc.example/{level}",)) for level in levels)
    return PoolConfig(name, named, tuple((selector or {}).items()), nvlink_domain)


class TestFamilies:
    def test_a_node_without_labels_of_a_fabric_is_nowhere_and_nothing_is_wrong_with_it(self):
        assert families({"kubernetes.io/arch": "arm64"}) == Placement()

    @pytest.mark.parametrize(
        ("labels", "path"),
        [
            ({f"{NEW}1": "s4", f"{NEW}0": "l9"}, (("tier-0", "l9"), ("tier-1", "s4"))),
            ({f"{OLD}core": "c", f"{OLD}leaf": "l", f"{OLD}spine": "s"}, (("leaf", "l"), ("spine", "s"), ("core", "c"))),
            ({f"{AWS}1": "o", f"{AWS}2": "m", f"{AWS}3": "i"}, (("layer-3", "i"), ("layer-2", "m"), ("layer-1", "o"))),
            (
                {"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "sb"},
                (("subblock", "sb"), ("block", "b")),
            ),
        ],
    )
    def test_levels_have_the_names_of_their_family_nearest_first(self, labels: dict[str, str], path: tuple[object, ...]):
        found = families(labels)

        assert found.place.path == path
        assert found.levels == tuple(level for level, _ in found.place.path)
        assert found.findings == ()

    @pytest.mark.parametrize("labels", [{f"{NEW}0": "l9", f"{NEW}2": "c1"}, {f"{NEW}0": "l9", f"{NEW}1": "", f"{NEW}2": "c1"}])
    def test_a_level_without_value_is_left_out_of_the_path_and_missed(self, labels: dict[str, str]):
        found = families(labels)

        assert found.place.path == (("tier-0", "l9"), ("tier-2", "c1"))
        assert found.levels == ("tier-0", "tier-1", "tier-2")
        [finding] = found.findings
        assert (finding.code, finding.node) == ("level-missing", "w7")
        assert f"{NEW}1" in finding.message
        assert f"{NEW}1" in finding.remedy

    def test_an_empty_label_of_the_nearest_level_is_missed_too(self):
        found = families({f"{NEW}0": "", f"{NEW}1": "s4"})

        assert (found.place.path, codes(found)) == ((("tier-1", "s4"),), ["level-missing"])

    def test_trees_of_other_depth_are_no_fault(self):
        dgx = {f"{NEW}0": "l9", f"{NEW}1": "s4", f"{NEW}2": "c1"}
        rack = {f"{NEW}0": "l2", f"{NEW}1": "s4", "accelerator.topograph.run/domain": "rack-5"}

        assert codes(families(dgx)) == codes(families(rack)) == []
        assert families(rack).place.nvlink_domain == "rack-5"

    def test_the_newer_generation_counts_whole_and_the_stale_labels_are_named(self):
        found = families({f"{NEW}0": "l9", f"{OLD}leaf": "l1", f"{OLD}spine": "s1", f"{OLD}accelerator": "nvl-old"})

        assert found.place == Place((("tier-0", "l9"),), None)
        [finding] = found.findings
        assert finding.code == "label-families-disagree"
        assert f"{OLD}leaf" in finding.remedy
        assert f"{NEW}0" not in finding.remedy

    def test_generations_that_agree_need_no_word(self):
        assert codes(families({f"{NEW}0": "l9", f"{OLD}leaf": "l9"})) == []

    def test_two_labels_of_one_level_that_disagree_are_told(self):
        found = families({f"{OLD}leaf": "l1", f"{OLD}block": "l2"})

        assert (found.place.path, codes(found)) == ((("leaf", "l1"),), ["label-conflict"])

    @pytest.mark.parametrize(
        ("value", "domain"),
        [("3f-aa.2", "3f-aa.2"), ("3f-aa", None), (".2", None), ("0000-0000.2", None), ("3f-aa.", None), ("", None)],
    )
    def test_the_whole_clique_is_the_domain_and_an_unusable_one_is_told(self, value: str, domain: str | None):
        found = families({CLIQUE: value})

        assert found.place.nvlink_domain == domain
        assert codes(found) == ([] if domain else ["clique-unusable"])

    def test_the_domain_of_the_writer_of_the_fabric_goes_before_the_clique(self):
        labels = {f"{OLD}leaf": "l1", f"{OLD}accelerator": "nvl-3", CLIQUE: "3f-aa.2"}

        assert families(labels).place.nvlink_domain == "nvl-3"

    def test_tables_of_one_shape_do_not_share_values(self):
        first, second = families({f"{NEW}0": "l1", f"{NEW}1": "s1"}), families({f"{NEW}0": "l2", f"{NEW}1": "s1"})

        assert (first.place.domain("tier-0"), second.place.domain("tier-0")) == (
            (("tier-0", "l1"), ("tier-1", "s1")),
            (("tier-0", "l2"), ("tier-1", "s1")),
        )


class TestPools:
    def test_the_first_pool_that_holds_the_node_counts(self):
        rules = Rules((pool("a", "row", selector={"card": "h200"}), pool("b", "rack", "row"), pool("c", "hall")))
        labels = {"dc.example/rack": "r3", "dc.example/row": "w1", "dc.example/hall": "h"}

        assert place_of({**labels, "card": "h200"}, "w7", rules).place.path == (("row", "w1"),)
        assert place_of(labels, "w7", rules).place.path == (("rack", "r3"), ("row", "w1"))

    def test_all_labels_of_a_selector_must_match(self):
        both = pool("a", "row", selector={"card": "h200", "zone": "z1"})

        assert both.holds({"card": "h200", "zone": "z1", "more": ""})
        assert not both.holds({"card": "h200"})
        assert not both.holds({"card": "h200", "zone": "z2"})

    def test_the_pool_says_which_levels_there_should_be(self):
        found = place_of({"dc.example/row": "w1", "dc.example/rack": ""}, "w7", Rules((pool("b", "rack", "row", "hall"),)))

        assert found.place.path == (("row", "w1"),)
        assert found.levels == ("rack", "row", "hall")
        assert [(f.code, f.message.split(":")[0]) for f in found.findings] == [
            ("level-missing", "label dc.example/rack is empty"),
            ("level-missing", "label dc.example/hall is missing"),
        ]

    def test_with_pools_the_known_families_are_no_levels(self):
        found = place_of({f"{NEW}0": "l9", f"{OLD}leaf": "l1", "dc.example/rack": "r3"}, "w7", Rules((pool("b", "rack"),)))

        assert (found.place.path, codes(found)) == ((("rack", "r3"),), [])

    def test_a_node_of_no_pool_is_told(self):
        found = place_of({CLIQUE: "3f-aa.2"}, "w7", Rules((pool("a", "row", selector={"card": "h200"}),)))

        assert (found.place, found.levels, codes(found)) == (Place((), "3f-aa.2"), (), ["pool-unknown"])

    @pytest.mark.parametrize(
        ("labels", "domain", "expected"),
        [
            ({"dc.example/nvl": "n1", CLIQUE: "3f-aa.2"}, "n1", []),
            ({"dc.example/nvl": "", CLIQUE: "3f-aa.2"}, None, ["nvlink-domain-missing"]),
            ({CLIQUE: "3f-aa.2"}, None, ["nvlink-domain-missing"]),
        ],
    )
    def test_a_label_for_the_nvlink_domain_counts_alone(self, labels: dict[str, str], domain: str | None, expected: list[str]):
        found = place_of(labels, "w7", Rules((pool("b", nvlink_domain="dc.example/nvl"),)))

        assert (found.place.nvlink_domain, codes(found)) == (domain, expected)

    def test_the_clique_is_judged_in_a_pool_as_well(self):
        found = place_of({CLIQUE: "0000.1"}, "w7", Rules((pool("b", nvlink_domain=CLIQUE),)))

        assert (found.place.nvlink_domain, codes(found)) == (None, ["clique-unusable"])

    def test_without_one_the_well_known_labels_name_the_domain(self):
        labels = {"accelerator.topograph.run/domain": "rack-5", "dc.example/rack": "r3"}

        assert place_of(labels, "w7", Rules((pool("b", "rack"),))).place.nvlink_domain == "rack-5"

    def test_rules_go_to_another_process_and_can_be_a_key(self):
        rules = Rules((pool("b", "rack", selector={"card": "h200"}),))

        assert {pickle.loads(pickle.dumps(rules)): 1} == {rules: 1}  # noqa: S301


class TestKueue:
    def test_levels_are_turned_nearest_first_and_the_node_is_no_level(self):
        levels = ["dc.example/hall", "dc.example/rack", "kubernetes.io/hostname"]
        topology = {"metadata": {"name": "gpus"}, "spec": {"levels": [{"nodeLabel": label} for label in levels]}}

        found, findings = kueue.pool_of(topology)

        assert findings == ()
        placement = place_of({"dc.example/hall": "h1", "dc.example/rack": "r3"}, "w7", Rules((found,)))
        assert placement.place.path == (("dc.example/rack", "r3"), ("dc.example/hall", "h1"))

    @pytest.mark.parametrize(
        ("spec", "levels", "says"),
        [
            ({"levels": [{"nodeLabel": "a"}, {}, {"nodeLabel": "b"}]}, ("b", "a"), "levels[1] has no nodeLabel"),
            ({"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}, ("a",), "levels[1] is a again"),
            ({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}, (), "no level besides the node"),
            ({}, (), "no level besides the node"),
            (None, (), "no level besides the node"),
        ],
    )
    def test_what_cannot_be_used_is_told(self, spec: object, levels: tuple[str, ...], says: str):
        found, [finding] = kueue.pool_of({"metadata": {"name": "gpus"}, "spec": spec})

        assert tuple(level.name for level in found.levels) == levels
        assert says in finding.message


class TestInversions:
    def test_more_wide_domains_than_near_ones_look_reversed(self):
        places = [Place((("rack", "hall-1"), ("hall", f"r{i}"))) for i in range(4)]

        [finding] = inversions(places, ["rack", "hall"])

        assert finding.code == "tier-inversion"
        assert "4 values" in finding.message
        assert "farthest-first" in finding.remedy

    def test_the_right_order_is_no_finding(self):
        places = [Place((("rack", f"r{i}"), ("hall", f"h{i // 2}"))) for i in range(4)]

        assert inversions(places, ["rack", "hall"]) == []

    def test_one_domain_each_shows_no_order(self):
        assert inversions([Place((("rack", "r"), ("hall", "h")))] * 3, ["rack", "hall"]) == []

    def test_names_used_again_under_each_wider_domain_are_no_reversal(self):
        places = [Place((("rack", f"r{i % 2}"), ("hall", f"h{i // 2}"))) for i in range(6)]

        assert inversions(places, ["rack", "hall"]) == []

    def test_places_without_one_of_the_levels_say_nothing(self):
        deep = [Place((("rack", f"r{i}"), ("row", "w"), ("hall", "h"))) for i in range(3)]
        flat = [Place((("hall", f"h{i}"),)) for i in range(9)]

        assert inversions([*deep, *flat], ["rack", "row", "hall"]) == []

"""Where jobs go, case by case: known traps, and why a job is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.job import Job, Limits, Refusal, Selection
from pyscheduler.core.machine.links import Link
from pyscheduler.core.selector import select
from tests.builders import bound, node, planner, table, uuids
from tests.oracle.boards import Board
from tests.oracle.clusters import cluster_of, facts_of, mask_of, members, pods_of
from tests.oracle.fabric import Host
from tests.oracle.trees import switched

EIGHT = switched(8, 18)
FOUR = switched(4, 18)


def board(gpus: int, fast: dict[tuple[int, int], str], other: str = "SYS", models: tuple[str | None, ...] | None = None) -> Board:
    links = tuple(fast.get(pair, other) for pair in combinations(range(gpus), 2))
    return Board(links, (0,) * gpus, models or (None,) * gpus)


def host(name: str, free: int, path: tuple[str, ...] = (), kind: Board = EIGHT, rack: str | None = None) -> Host:
    return Host(name, tuple(zip(("leaf", "spine"), path, strict=False)), kind, kind.gpus[:free], rack)


def placed(hosts: list[Host], job: Job) -> Selection:
    found = select(cluster_of(hosts), job)
    assert isinstance(found, Selection), found
    return found


def refused(hosts: list[Host], job: Job) -> Refusal:
    found = select(cluster_of(hosts), job)
    assert isinstance(found, Refusal), found
    return found


def gpus(hosts: list[Host], job: Job) -> list[tuple[str, tuple[int, ...]]]:
    return [(hosts[at].name, chosen) for at, chosen in pods_of(placed(hosts, job))]


def counts(hosts: list[Host], job: Job) -> dict[str, int]:
    return dict(Counter(hosts[pod.node].name for pod in placed(hosts, job).pods))


class TestOnePod:
    """Traps of the choice of GPUs for one pod."""

    def test_four_that_hang_together_beat_pairs_of_several_nodes(self):
        chain = board(4, {(0, 1): "NV1", (1, 2): "NV1", (2, 3): "NV1"})
        pair = board(2, {(0, 1): "NV1"})
        hosts = [host("a", 2, kind=pair), host("b", 2, kind=pair), host("c", 4, kind=chain)]
        assert gpus(hosts, Job(1, 4)) == [("c", (0, 1, 2, 3))]

    def test_three_are_three(self):
        pairs = board(4, {(0, 1): "NV1", (2, 3): "NV1", (1, 2): "PIX"})
        assert gpus([host("a", 4, kind=pairs)], Job(1, 3)) == [("a", (0, 1, 2))]

    def test_switches_are_no_gpus(self):
        assert gpus([host("a", 4, kind=board(4, {(0, 1): "PIX", (2, 3): "PIX"}))], Job(1, 4)) == [("a", (0, 1, 2, 3))]

    def test_a_busy_gpu_relays_nothing(self):
        links = board(4, {(0, 1): "NV1", (1, 2): "NV1", (0, 3): "PIX"})
        assert gpus([Host("a", (), links, (0, 2, 3))], Job(1, 2)) == [("a", (0, 3))]

    def test_a_chain_of_fast_links_is_no_ring(self):
        clique = dict.fromkeys(combinations(range(4, 8), 2), "NV1")
        links = board(8, {(0, 1): "NV4", (1, 2): "NV4", (2, 3): "NV4"} | clique)
        assert gpus([host("a", 8, kind=links)], Job(1, 4)) == [("a", (4, 5, 6, 7))]

    def test_a_pair_goes_where_only_a_pair_is_left(self):
        hosts = [host("a", 8), host("b", 2, kind=switched(2, 18))]
        assert gpus(hosts, Job(1, 2)) == [("b", (0, 1))]

    def test_one_gpu_without_a_free_neighbour_is_taken_first(self):
        pair = board(2, {(0, 1): "NV1"})
        assert gpus([Host("a", (), pair, (1,)), host("b", 2, kind=pair)], Job(1, 1)) == [("a", (1,))]

    def test_gpus_under_different_switches_are_joined(self):
        assert gpus([host("a", 2, kind=board(2, {}))], Job(1, 2)) == [("a", (0, 1))]

    def test_two_links_beat_one(self):
        links = board(3, {(0, 1): "NV1", (0, 2): "NV2", (1, 2): "NV1"})
        assert gpus([host("a", 3, kind=links)], Job(1, 2)) == [("a", (0, 2))]

    def test_gpus_of_one_model_are_not_mixed(self):
        models = ("Card A", "Card B", "Card A", "Card B")
        hosts = [host("a", 4, kind=board(4, {}, "NV1", models))]
        assert {models[gpu] for gpu in gpus(hosts, Job(1, 2))[0][1]} in ({"Card A"}, {"Card B"})
        assert len(gpus(hosts, Job(1, 3))[0][1]) == 3
        assert [w.code for w in placed(hosts, Job(1, 3)).warnings] == ["mixed-models"]

    def test_of_equal_nodes_that_in_the_fullest_leaf_comes_first(self):
        hosts = [host("a", 4, ("x", "s")), host("b", 8, ("x", "s")), host("c", 4, ("y", "s")), host("d", 1, ("y", "s"))]
        assert gpus(hosts, Job(1, 4))[0][0] == "c"

    def test_nodes_of_which_only_the_number_of_free_gpus_is_known_come_last(self):
        cluster = cluster_of([host("z", 8, kind=board(8, {}))])
        cluster.observe_node(node("a", None, allocatable=2), 0.0)
        chosen = [select(cluster, Job(1, 2)), select(cluster, Job(1, 2), eligible=0b10)]
        assert [each.pods[0].node for each in chosen if isinstance(each, Selection)] == [0, 1]
        assert isinstance(chosen[1], Selection)
        assert [w.code for w in chosen[1].warnings] == ["count-only"]


# Free GPUs and size to the sets that are right: all with the widest rings there are.
CUBE_MESH = [
    ((0, 4, 5, 6, 7), 4, [(4, 5, 6, 7)]),
    ((0, 1, 3), 2, [(0, 3)]),
    ((0, 1, 4), 2, [(0, 4)]),
    ((0, 4, 5, 6), 2, [(0, 4), (5, 6)]),
    ((0, 2, 4, 5), 2, [(0, 4)]),
    ((1, 2, 6, 7), 2, [(1, 2), (6, 7)]),
    ((0, 1, 2, 3, 4, 5, 6, 7), 4, [(0, 1, 2, 3), (4, 5, 6, 7)]),
]


@pytest.mark.parametrize(("free", "size", "right"), CUBE_MESH)
def test_a_cube_mesh_gives_its_widest_ring(free: tuple[int, ...], size: int, right: list[tuple[int, ...]]):
    cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
    facts = node("a", "dgx-1v")
    assert facts.machine is not None
    busy = facts.machine.handles(0xFF & ~mask_of(free))
    cluster.observe_node(replace(facts, in_use={"other": busy} if busy else {}), 0.0)  # type: ignore[dict-item]
    found = select(cluster, Job(1, size))
    assert isinstance(found, Selection)
    assert members(found.pods[0].mask) in right
    widest = max(table("dgx-1v").describe(mask_of(each)).ring_gbps for each in combinations(free, size))
    assert found.ring_gbps == widest


class TestGangs:
    """Levels, domains and nodes of gangs."""

    def test_balanced_nodes_beat_a_full_one_with_a_remnant(self):
        hosts = [host("a", 8, ("x",)), host("b", 7, ("x",)), host("c", 1, ("x",)), host("d", 8, ("y",)), host("e", 8, ("y",))]
        assert counts(hosts, Job(16, 1)) == {"d": 8, "e": 8}

    def test_the_leaf_that_is_filled_exactly_comes_first(self):
        hosts = [host("a", 8, ("x",)), host("b", 8, ("x",)), host("c", 1, ("x",)), host("d", 8, ("y",)), host("e", 8, ("y",))]
        assert counts(hosts, Job(16, 1)) == {"d": 8, "e": 8}

    def test_leaves_of_one_name_under_two_spines_are_two(self):
        hosts = [host("a", 8, ("x", "s")), host("b", 8, ("x", "t"))]
        assert placed(hosts, Job(2, 8)).level is None
        assert refused(hosts, Job(2, 8, required_level="leaf")).level == "leaf"

    def test_a_level_that_is_not_known_is_no_common_domain(self):
        hosts = [host("a", 8), host("b", 8), host("c", 8, ("x", "s"))]
        assert placed(hosts, Job(2, 8)).level is None

    def test_a_gang_that_fits_on_a_node_stays_there(self):
        hosts = [host("a", 8, ("x",)), host("b", 4, ("x",)), host("c", 4, ("x",))]
        found = placed(hosts, Job(4, 2))
        assert (found.level, {pod.node for pod in found.pods}) == ("node", {0})

    def test_one_pod_per_node_spreads_it(self):
        hosts = [host("a", 8, ("x",)), host("b", 4, ("x",)), host("c", 4, ("y",))]
        assert counts(hosts, Job(2, 2, one_pod_per_node=True)) == {"a": 1, "b": 1}

    @pytest.mark.parametrize(("pods", "leaf"), [(2, "w"), (3, "x"), (4, "x"), (5, "y"), (6, "y"), (7, "z"), (12, "z")])
    def test_best_fit_takes_the_leaf_with_the_least_room_that_suffices(self, pods: int, leaf: str):
        sizes = {"z": (4, 4, 4), "y": (2, 4), "x": (2, 2), "w": (1, 1)}
        hosts = [host(f"{at}{i}", free, (at,), FOUR) for at, frees in sizes.items() for i, free in enumerate(frees)]
        if pods <= 4:
            assert placed(hosts, Job(pods, 1)).level == "node"
        assert {name[0] for name in counts(hosts, Job(pods, 1, preferred_level="leaf"))} == {leaf}

    def test_what_exceeds_each_leaf_takes_the_fewest(self):
        sizes = {"x": (4, 4, 4), "y": (4, 2), "z": (2, 2, 2)}
        hosts = [host(f"{at}{i}", free, (at, "s"), FOUR) for at, frees in sizes.items() for i, free in enumerate(frees)]
        found = counts(hosts, Job(15, 1))
        assert {name[0] for name in found} == {"x", "y"}
        assert sorted(found.values()) == [3, 4, 4, 4]

    def test_a_preferred_level_comes_before_a_nearer_one(self):
        hosts = [host("a", 8, ("x", "s")), host("b", 8, ("x", "s")), host("c", 4, ("y", "t")), host("d", 4, ("z", "t"))]
        assert placed(hosts, Job(2, 4)).level == "node"
        assert counts(hosts, Job(2, 4, preferred_level="spine")) == {"c": 1, "d": 1}

    def test_a_preferred_level_that_holds_nothing_gives_way_to_wider_ones(self):
        hosts = [host("a", 8, ("x", "s")), host("b", 8, ("y", "s"))]
        assert placed(hosts, Job(2, 8, preferred_level="leaf")).level == "spine"

    def test_a_node_that_does_not_say_its_leaf_still_holds_what_must_be_in_one(self):
        job = Job(2, 4, required_level="leaf", preferred_level="leaf")
        hosts = [host("a", 8), host("b", 4, ("x", "s"))]
        assert counts(hosts, job) == {"a": 2}

    def test_one_model_for_a_gang_where_that_is_possible(self):
        kinds = [switched(8, 18, "Card A"), switched(8, 18, "Card B")]
        hosts = [host("a", 8, ("x",), kinds[0]), host("b", 8, ("x",), kinds[1]), host("c", 8, ("y",), kinds[0])]
        assert counts(hosts, Job(2, 8)) == {"a": 1, "c": 1}
        assert [w.code for w in placed(hosts, Job(3, 8)).warnings] == ["mixed-models"]
        assert refused(hosts, Job(3, 8, same_model=True)).binds == "same-model"

    def test_the_same_gpus_on_all_nodes_where_that_costs_nothing(self):
        hosts = [Host("a", (), EIGHT, (0, 1, 2, 3, 6, 7)), Host("b", (), EIGHT, (2, 3, 4, 5, 6, 7))]
        found = placed(hosts, Job(2, 4, one_pod_per_node=True))
        assert [members(pod.mask) for pod in found.pods] == [(2, 3, 6, 7)] * 2

    def test_pods_are_in_the_order_of_the_tree(self):
        hosts = [host("d", 8, ("x", "t")), host("a", 8, ("y", "s")), host("c", 8, ("x", "s")), host("b", 8, ("y", "s"))]
        found = placed(hosts, Job(4, 8))
        assert [hosts[pod.node].name for pod in found.pods] == ["c", "a", "b", "d"]

    def test_the_worst_node_has_the_widest_ring_that_is_possible(self):
        ring = board(4, {(0, 1): "NV2", (1, 2): "NV2", (2, 3): "NV2", (0, 3): "NV2"})
        pairs = board(4, {(0, 1): "NV2", (2, 3): "NV2"})
        hosts = [host("a", 4, kind=pairs), host("b", 4, kind=ring), host("c", 4, kind=ring)]
        assert counts(hosts, Job(4, 2, limits=Limits(max_link=Link.parse("NV1")))) == {"b": 2, "c": 2}


class TestRacks:
    """NVLink domains that span nodes."""

    def racks(self, sizes: dict[str, int]) -> list[Host]:
        return [host(f"{rack}-{i:02}", 4, ("l", "s"), FOUR, rack) for rack, size in sizes.items() for i in range(size)]

    def test_a_rack_is_nearer_than_a_leaf(self):
        hosts = self.racks({"r1": 3, "r2": 5})
        assert placed(hosts, Job(3, 4)).level == "nvlink-domain"
        assert {name[:2] for name in counts(hosts, Job(3, 4))} == {"r1"}

    def test_what_exceeds_a_rack_gets_equal_segments(self):
        hosts = self.racks({"r1": 6, "r2": 6, "r3": 6})
        found = counts(hosts, Job(8, 4))
        assert sorted(Counter(name[:2] for name in found).values()) == [4, 4]

    def test_segments_are_as_equal_as_the_racks_allow(self):
        hosts = self.racks({"r1": 6, "r2": 3, "r3": 2})
        assert Counter(name[:2] for name in counts(hosts, Job(9, 4))) == {"r1": 6, "r2": 3}

    def test_a_rack_that_reaches_into_a_second_leaf_makes_no_leaf_of_the_two(self):
        places = [("a", "x", None), ("b", "x", "r"), ("c", "y", "r"), ("d", "y", None)]
        hosts = [host(name, 4, (leaf, "s"), FOUR, rack) for name, leaf, rack in places]
        job = Job(2, 4, required_level="leaf")
        assert set(counts(hosts, job)) in ({"a", "b"}, {"c", "d"})
        assert placed(hosts, job).level == "leaf"
        assert refused(hosts, Job(3, 4, required_level="leaf")).fits == 2
        assert placed(hosts, Job(4, 4, required_level="spine")).level == "spine"
        assert placed(hosts, Job(2, 2, required_level="leaf")).level == "node"


class TestRefusals:
    """What a user is told."""

    def test_too_few_gpus_on_any_node(self):
        found = refused([host("a", 3), host("b", 2)], Job(1, 4))
        assert found.reason == "needs 4 GPUs on one node; the largest free hole is 3 (a), 5 GPUs are free in all"
        assert (found.fits, found.level, found.binds) == (3, "node", "gpus")
        assert found.change == "1 GPU more would have to be freed on a"

    def test_a_gang_that_is_too_large_says_how_many_pods_fit(self):
        found = refused([host("a", 8), host("b", 5)], Job(5, 4))
        assert (found.fits, found.binds, found.level) == (3, "gpus", None)
        assert found.change == "the cluster holds 4 such pods even if it were empty: ask for fewer, or add nodes"

    def test_a_level_that_is_too_narrow_names_the_one_that_would_do(self):
        hosts = [host("a", 8, ("x", "s")), host("b", 8, ("y", "s"))]
        found = refused(hosts, Job(2, 8, required_level="leaf"))
        assert (found.binds, found.level, found.fits) == ("level", "leaf", 1)
        assert found.change == "it would fit within one spine"

    def test_all_on_one_node(self):
        found = refused([host("a", 8), host("b", 8)], Job(3, 4, required_level="node"))
        assert (found.fits, found.level, found.binds) == (2, "node", "level")

    def test_one_pod_per_node_binds(self):
        found = refused([host("a", 8), host("b", 3)], Job(2, 4, one_pod_per_node=True))
        assert (found.binds, found.fits, found.change) == ("one-pod-per-node", 1, "it would fit with several pods per node")

    def test_one_model_counts_what_one_model_has(self):
        kinds = [switched(8, 18, "Card A"), switched(8, 18, "Card B")]
        hosts = [host("a", 8, kind=kinds[0]), host("b", 8, kind=kinds[0]), host("c", 8, kind=kinds[1])]
        found = refused(hosts, Job(3, 8, same_model=True))
        assert (found.binds, found.fits) == ("same-model", 2)

    def test_a_link_limit_binds(self):
        found = refused([host("a", 4, kind=board(4, {(0, 1): "NV2"}))], Job(1, 3, limits=Limits(max_link=Link.parse("PIX"))))
        assert (found.binds, found.fits) == ("max-link", 2)
        assert "of which 2 satisfy the limits" in found.reason

    def test_numa_binds(self):
        apart = Board(("PIX",) * 6, (0, 0, 1, 1), (None,) * 4)
        found = refused([host("a", 4, kind=apart)], Job(1, 4, limits=Limits(same_numa=True)))
        assert (found.binds, found.fits, found.change) == ("same-numa", 2, "it would fit with any NUMA nodes")

    def test_sick_gpus_are_named_where_they_make_the_difference(self):
        cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
        cluster.observe_node(node("a", "hgx-h100", sick=(2, 5)), 0.0)
        found = select(cluster, Job(1, 8))
        assert isinstance(found, Refusal)
        assert found.reason.endswith("on a GPU2 and GPU5 are unhealthy")

    def test_larger_than_any_node(self):
        found = refused([host("a", 8)], Job(1, 9))
        assert found.change == "no node could take it even if it were empty: ask for fewer GPUs, or add a larger node"

    def test_an_empty_cluster(self):
        found = select(Cluster(epoch=1, scheduler_name="gpu-topology"), Job(1, 1))
        assert isinstance(found, Refusal)
        assert found.fits == 0
        gang = select(Cluster(epoch=1, scheduler_name="gpu-topology"), Job(2, 1))
        assert isinstance(gang, Refusal)
        assert gang.fits == 0

    def test_nothing_is_eligible(self):
        found = select(cluster_of([host("a", 8)]), Job(2, 4), eligible=0)
        assert isinstance(found, Refusal)
        assert found.fits == 0


class TestWarnings:
    """What a user should know of a choice."""

    def codes(self, kind: Board, size: int) -> list[str]:
        return [warning.code for warning in placed([host("a", len(kind.gpus), kind=kind)], Job(1, size)).warnings]

    def test_a_weak_member_is_named(self):
        links = board(3, {(0, 1): "NV2"})
        found = placed([host("a", 3, kind=links)], Job(1, 3)).warnings
        assert [w.code for w in found] == ["weak-member"]
        assert found[0].message.startswith("a: GPU2 has no NVLink or xGMI")

    def test_an_unknown_link_is_named(self):
        found = placed([host("a", 3, kind=board(3, {(0, 1): "PIX", (0, 2): "PIX"}, "?"))], Job(1, 3)).warnings
        assert [w.message for w in found] == ["a: the link GPU1-GPU2 is unknown"]

    def test_links_that_are_all_unknown_are_told_once(self):
        assert self.codes(board(3, {}, "?"), 3) == ["topology-unknown"]

    def test_good_links_bring_no_warning(self):
        assert self.codes(EIGHT, 8) == []


def test_a_node_that_is_gone_is_not_chosen():
    cluster = cluster_of([host("a", 8), host("b", 8)])
    cluster.forget_node("a")
    found = select(cluster, Job(2, 4))
    assert isinstance(found, Selection)
    assert {pod.node for pod in found.pods} == {1}
    assert isinstance(select(cluster, Job(2, 8)), Refusal)
    cluster.observe_node(facts_of(host("a", 8)), 0.0)
    assert isinstance(select(cluster, Job(2, 8)), Selection)


def test_a_gang_gets_no_more_gpus_than_the_kubelet_gives_out():
    """A sick GPU that is in use lowers what is left by number, and not what is free by name."""
    plan = planner(node("n1", "a100-pcie-bridged", sick=(0,)))
    plan.cluster.observe_pod(bound("old", "n1", 1, uuids("a100-pcie-bridged", "n1", 0)), 0.0)
    assert isinstance(select(plan.cluster, Job(3, 1)), Refusal)
    assert isinstance(select(plan.cluster, Job(1, 3)), Refusal)
    assert isinstance(select(plan.cluster, Job(2, 1)), Selection)

"""Other ways to place a job: what they choose, and the faults that they are kept for."""

from __future__ import annotations

from itertools import combinations

import pytest

from pyscheduler.core.baselines import BASELINES, baseline
from pyscheduler.core.job import Job, Limits, Refusal, Selection
from pyscheduler.core.selector import select
from tests.builders import node
from tests.oracle.boards import Board
from tests.oracle.clusters import cluster_of, members, pods_of
from tests.oracle.fabric import Host
from tests.oracle.trees import switched

EIGHT = switched(8, 18)


def host(name: str, free: int, path: tuple[str, ...] = (), board: Board = EIGHT) -> Host:
    gpus = board.gpus
    return Host(name, tuple(zip(("leaf", "spine"), path, strict=False)), board, gpus[len(gpus) - free :])


def placed(name: str, hosts: list[Host], job: Job, seed: int = 0) -> list[tuple[str, tuple[int, ...]]]:
    found = baseline(name, seed)(cluster_of(hosts), job)
    assert isinstance(found, Selection), found
    return [(hosts[at].name, gpus) for at, gpus in pods_of(found)]


def refused(name: str, hosts: list[Host], job: Job) -> str:
    found = BASELINES[name](cluster_of(hosts), job)
    assert isinstance(found, Refusal)
    return found.reason


def board(gpus: int, fast: dict[tuple[int, int], str], other: str = "SYS") -> Board:
    return Board(tuple(fast.get(pair, other) for pair in combinations(range(gpus), 2)), (0,) * gpus, (None,) * gpus)


def test_first_fit_takes_the_first_node_with_room_and_its_lowest_gpus():
    hosts = [host("a", 1), host("b", 5), host("c", 2)]
    assert placed("first-fit", hosts, Job(1, 2)) == [("b", (3, 4))]


def test_least_allocated_spreads_and_most_allocated_packs():
    hosts = [host("a", 4), host("b", 8), host("c", 2)]
    assert placed("least-allocated", hosts, Job(2, 2)) == [("b", (0, 1)), ("b", (2, 3))]
    assert placed("most-allocated", hosts, Job(2, 2)) == [("c", (6, 7)), ("a", (4, 5))]


def test_least_allocated_goes_by_shares_not_by_numbers():
    hosts = [host("small", 4, board=switched(4, 18)), host("large", 6)]
    assert placed("least-allocated", hosts, Job(1, 1))[0][0] == "small"
    assert placed("least-allocated", hosts, Job(1, 3))[0][0] == "large"


def test_one_pod_per_node_is_kept_by_all_that_place_pods():
    hosts = [host("a", 8), host("b", 2), host("c", 2)]
    for name in set(BASELINES) - {"kruskal-naive"}:
        assert len({at for at, _ in placed(name, hosts, Job(3, 2, one_pod_per_node=True))}) == 3, name


def test_random_is_the_same_for_a_seed_and_differs_between_seeds():
    hosts = [host(f"n{i}", 8) for i in range(6)]
    answers = [placed("random", hosts, Job(2, 3), seed) for seed in range(8)]
    assert placed("random", hosts, Job(2, 3), 5) == answers[5]
    assert len({tuple(answer) for answer in answers}) > 1


def test_random_takes_free_gpus_alone_each_once():
    hosts = [host("a", 3), host("b", 5)]
    for seed in range(20):
        given = [(at, gpu) for at, gpus in placed("random", hosts, Job(3, 2), seed) for gpu in gpus]
        assert len(set(given)) == 6
        assert all(gpu in {each.name: each.free for each in hosts}[at] for at, gpu in given)


def test_tightest_domain_takes_the_fullest_leaf_that_has_room_and_its_largest_nodes_first():
    hosts = [host("a", 8, ("x", "s")), host("b", 8, ("x", "s")), host("c", 2, ("y", "s")), host("d", 6, ("y", "s"))]
    assert [at for at, _ in placed("tightest-domain", hosts, Job(4, 2))] == ["a"] * 4
    assert [at for at, _ in placed("tightest-domain", hosts, Job(4, 2, required_level="leaf"))] == ["a"] * 4
    assert [at for at, _ in placed("tightest-domain", hosts, Job(2, 2, one_pod_per_node=True))] == ["d", "c"]


def test_tightest_domain_keeps_a_required_level_and_the_others_break_it():
    hosts = [host("a", 2, ("x", "s")), host("b", 2, ("y", "s")), host("c", 2, ("y", "s"))]
    job = Job(2, 2, required_level="leaf")
    assert [at for at, _ in placed("tightest-domain", hosts, job)] == ["b", "c"]
    assert refused("first-fit", hosts, job) == "this way of choosing picks nodes that lie in no common leaf"


def test_what_knows_no_links_takes_a_slow_pair():
    pairs = board(4, {(0, 3): "NV4", (1, 2): "NV4"})
    hosts = [Host("a", (), pairs, (0, 1, 2, 3))]
    assert placed("first-fit", hosts, Job(1, 2)) == [("a", (0, 1))]
    best = select(cluster_of(hosts), Job(1, 2))
    assert isinstance(best, Selection)
    assert members(best.pods[0].mask) in {(0, 3), (1, 2)}


def test_a_pick_that_breaks_a_limit_is_told():
    hosts = [Host("a", (), board(3, {(1, 2): "NV4"}), (0, 1, 2))]
    limits = Limits(max_link=select(cluster_of(hosts), Job(1, 2)).bottleneck)  # type: ignore[union-attr]
    assert "which may not be given out together" in refused("first-fit", hosts, Job(1, 2, limits=limits))


def test_mixed_models_are_told_where_one_is_asked():
    hosts = [host("a", 1, board=switched(2, 18, "Card A")), host("b", 1, board=switched(2, 18, "Card B"))]
    assert "GPUs of different models: Card A, Card B" in refused("first-fit", hosts, Job(2, 1, same_model=True))
    assert len(placed("first-fit", hosts, Job(2, 1))) == 2


def test_no_room_says_how_many_pods_found_a_node():
    assert refused("first-fit", [host("a", 5)], Job(3, 2)) == "this way of choosing finds a node with 2 GPUs free for 2 of 3 pods"


def test_a_node_of_which_only_the_number_of_free_gpus_is_known_is_filled_by_number():
    cluster = cluster_of([host("a", 1)])
    cluster.observe_node(node("z", None, allocatable=4), 0.0)
    found = BASELINES["first-fit"](cluster, Job(1, 2))
    assert isinstance(found, Selection)
    assert [(pod.node, pod.mask) for pod in found.pods] == [(1, 0)]


class TestTextbookLoop:
    """The naive loop, on small graphs."""

    def test_it_takes_the_cheapest_pair(self):
        pairs = board(4, {(2, 3): "NV2", (0, 1): "PIX"})
        assert placed("kruskal-naive", [Host("a", (), pairs, (0, 1, 2, 3))], Job(1, 2)) == [("a", (2, 3))]

    def test_two_ends_of_an_edge_are_one_too_many_for_three(self):
        pairs = board(4, {(0, 1): "NV1", (2, 3): "NV1"})
        reason = refused("kruskal-naive", [Host("a", (), pairs, (0, 1, 2, 3))], Job(1, 3))
        assert reason == "this way of choosing picks 4 GPUs where 3 are asked"

    def test_one_gpu_alone_has_no_edge(self):
        reason = refused("kruskal-naive", [Host("a", (), board(2, {}), (1,))], Job(1, 1))
        assert reason == "this way of choosing picks 0 GPUs where 1 is asked"

    def test_pairs_of_different_nodes_are_mixed_though_one_node_has_four(self):
        chain = {(0, 1): "NV1", (1, 2): "NV1", (2, 3): "NV1"}
        hosts = [Host(name, (), board(2, {(0, 1): "NV1"}), (0, 1)) for name in "ab"] + [
            Host("c", (), board(4, chain), (0, 1, 2, 3))
        ]
        reason = refused("kruskal-naive", hosts, Job(1, 4))
        assert reason == "this way of choosing picks GPUs that make no 1 pods of 4: 2 on a, 2 on b"
        best = select(cluster_of(hosts), Job(1, 4))
        assert isinstance(best, Selection)
        assert pods_of(best) == [(2, (0, 1, 2, 3))]

    def test_a_whole_node_is_burnt_for_a_pair(self):
        hosts = [host("a", 8), Host("b", (), board(2, {(0, 1): "NV18"}), (0, 1))]
        assert placed("kruskal-naive", hosts, Job(1, 2)) == [("a", (0, 1))]

    def test_what_no_link_joins_is_joined_across_nodes(self):
        hosts = [Host("a", (), board(1, {}), (0,)), Host("b", (), board(1, {}), (0,))]
        assert placed("kruskal-naive", hosts, Job(2, 1)) == [("a", (0,)), ("b", (0,))]


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_every_answer_is_what_was_asked_or_a_reason(name: str):
    hosts = [host("a", 8, ("x", "s")), host("b", 3, ("x", "s")), host("c", 1, ("y", "s"))]
    free = {at.name: set(at.free) for at in hosts}
    for job in (Job(pods, gpus) for pods in (1, 2, 3, 5) for gpus in (1, 2, 4, 8)):
        found = BASELINES[name](cluster_of(hosts), job)
        if isinstance(found, Refusal):
            assert found.reason.startswith("this way of choosing ")
            continue
        given = [(hosts[at].name, gpu) for at, gpus in pods_of(found) for gpu in gpus]
        assert [len(gpus) for _, gpus in pods_of(found)] == [job.gpus] * job.pods
        assert len(set(given)) == len(given)
        assert all(gpu in free[at] for at, gpu in given)

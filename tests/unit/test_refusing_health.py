"""A job that only healthy GPUs are lacking for is told which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.job import Job, Limits, Refusal
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Link
from pyscheduler.core.model import Machine, NodeFacts, PodFacts, PodUid
from pyscheduler.core.selector import select
from tests import builders

GPU = "nvidia.com/gpu"
EIGHT = Job(1, 8)


def kind(gpus: int, models: Sequence[str | None] = (), other: str = "NV12", numa: Sequence[int] = ()) -> DeviceClass:
    pairs = dict.fromkeys(combinations(range(gpus), 2), other)
    return DeviceClass.of(models or [None] * gpus, numa or [0] * gpus, pairs)


TABLES = {gpus: DeviceTable.build(kind(gpus)) for gpus in (2, 4, 8)}


def node(
    name: str,
    of: DeviceClass | int = 8,
    *,
    sick: Iterable[int] = (),
    busy: Iterable[int] = (),
    offered: int | None = None,
    leaf: str | None = None,
) -> NodeFacts:
    """Return a node; its kubelet offers the healthy GPUs if `offered` does not say how many."""
    table = TABLES[of] if isinstance(of, int) else DeviceTable.build(of)
    count = table.device_class.gpus
    healthy = sum(1 << gpu for gpu in range(count) if gpu not in set(sick))
    machine = Machine(tuple(f"GPU{gpu}" for gpu in range(count)), tuple(f"{name}-{gpu}" for gpu in range(count)), healthy, table)
    used = {PodUid(f"on-{name}-{gpu}"): (f"{name}-{gpu}",) for gpu in busy}
    place = Place((("leaf", leaf),) if leaf else ())
    return NodeFacts(name, place, GPU, healthy.bit_count() if offered is None else offered, machine, used)


def refused(job: Job, *nodes: NodeFacts, eligible: int | None = None, pods: Iterable[PodFacts] = ()) -> Refusal:
    cluster = Cluster(epoch=1, scheduler_name=builders.OURS)
    for each in nodes:
        cluster.observe_node(each, 0.0)
    for pod in pods:
        cluster.observe_pod(pod, 0.0)
    found = select(cluster, job, eligible)
    assert isinstance(found, Refusal), found
    return found


def advised(job: Job, *nodes: NodeFacts) -> str:
    """Return what a refusal for health says to do."""
    found = refused(job, *nodes)
    assert found.binds == "health", found
    return found.change


class TestOnePod:
    """One pod, on one node."""

    def test_the_gpu_is_named_and_the_reason_stays(self):
        found = refused(EIGHT, node("a", sick=[2]))
        assert (found.binds, found.change) == ("health", "it could go to a once GPU2 is healthy")
        reason = "needs 8 GPUs on one node; the largest free hole is 7 (a), 7 GPUs are free in all; on a GPU2 is unhealthy"
        assert (found.reason, found.fits, found.level) == (reason, 7, "node")

    @pytest.mark.parametrize(
        ("gpus", "words"),
        [
            (5, "GPU1 is healthy"),
            (6, "GPU1 and GPU3 are healthy"),
            (7, "GPU1, GPU3 and GPU5 are healthy"),
            (8, "4 GPUs are healthy (GPU1, GPU3, GPU5 and 1 more)"),
        ],
    )
    def test_no_more_gpus_are_named_than_it_takes(self, gpus, words):
        assert advised(Job(1, gpus), node("a", sick=[1, 3, 5, 7])) == f"it could go to a once {words}"

    def test_the_node_that_takes_fewest_is_named_and_no_other(self):
        found = refused(EIGHT, node("a", sick=[0, 1]), node("b", sick=[4]))
        assert found.change == "it could go to b once GPU4 is healthy"
        assert found.reason.endswith("on b GPU4 is unhealthy")

    def test_of_equals_the_node_is_named_where_fewest_have_to_be_freed(self):
        nodes = [node("a", sick=[0], busy=[1, 2, 3]), node("b", sick=[0], busy=[7]), node("c", sick=[0], busy=[1, 2])]
        assert advised(EIGHT, *nodes) == "it could go to b once GPU0 is healthy and at least 1 more GPU is freed"
        assert advised(EIGHT, nodes[0]) == "it could go to a once GPU0 is healthy and at least 3 more GPUs are freed"

    def test_what_bound_pods_hold_has_to_be_freed(self):
        pod = builders.bound("p", "a", 2, ("a-3", "a-4"))
        found = refused(EIGHT, node("a", sick=[0]), pods=[pod])
        assert found.change == "it could go to a once GPU0 is healthy and at least 2 more GPUs are freed"

    def test_a_level_is_nothing_to_one_pod(self):
        assert advised(Job(1, 8, required_level="hall"), node("a", sick=[2])) == "it could go to a once GPU2 is healthy"

    def test_a_sick_gpu_that_nobody_holds_is_preferred(self):
        assert advised(Job(1, 7), node("a", sick=[1, 6], busy=[1], offered=7)) == "it could go to a once GPU6 is healthy"

    def test_a_kubelet_that_still_offers_the_gpu_makes_no_difference(self):
        assert advised(EIGHT, node("a", sick=[2], offered=8)) == "it could go to a once GPU2 is healthy"

    def test_what_the_kubelet_offers_too_few_of_for_other_reasons_stays_too_few(self):
        found = refused(EIGHT, node("a", sick=[2], offered=6))
        assert (found.binds, "even if it were empty" in found.change) == ("gpus", True)

    def test_gpus_that_could_be_freed_bind_by_their_number(self):
        found = refused(EIGHT, node("a", sick=[2]), node("b", busy=[0, 1]))
        assert (found.binds, found.change) == ("gpus", "2 GPUs more would have to be freed on b")

    def test_nodes_that_are_too_small_bind_by_their_number(self):
        assert refused(Job(1, 9), node("a", sick=[2])).binds == "gpus"

    def test_sick_gpus_of_nodes_that_may_not_be_used_do_not_count(self):
        assert refused(EIGHT, node("a", sick=[2]), node("b", 4), eligible=0b10).binds == "gpus"
        other = refused(Job(1, 8, resource="amd.com/gpu"), node("a", sick=[2]))
        assert (other.binds, "unhealthy" in other.reason) == ("gpus", False)

    def test_a_node_with_no_healthy_gpu_can_be_repaired(self):
        assert advised(Job(1, 2), node("a", 2, sick=[0, 1])) == "it could go to a once GPU0 and GPU1 are healthy"


class TestConstraints:
    """Limits, models and partitions hold for what is repaired, too."""

    def test_a_limit_without_which_it_fits_binds_first(self):
        near = Limits(max_link=Link.parse("PIX"))
        far = node("b", kind(8, other="SYS"))
        assert refused(Job(1, 8, limits=near), node("a", sick=[2]), far).binds == "max-link"
        assert advised(Job(1, 8, limits=near), node("a", sick=[2])) == "it could go to a once GPU2 is healthy"
        assert refused(Job(1, 8, limits=near), node("b", kind(8, other="SYS"), sick=[2])).binds == "gpus"

    def test_gpus_of_another_model_do_not_help(self):
        mixed = kind(6, ["Card A"] * 3 + ["Card B"] * 3)
        job = Job(1, 3, same_model=True, limits=Limits(model="Card B"))
        assert advised(job, node("a", mixed, sick=[0, 4], busy=[1, 2])) == "it could go to a once GPU4 is healthy"
        assert refused(Job(1, 4, same_model=True), node("a", mixed, sick=[0, 4], busy=[1])).binds == "gpus"

    def test_the_gpu_that_completes_a_partition_is_named(self):
        pairs = replace(kind(4), partitions=(0b0110, 0b1001))
        found = refused(Job(1, 2), node("a", pairs, sick=[0, 1], busy=[2]))
        assert found.change == "it could go to a once GPU0 is healthy"
        assert (found.binds, found.reason.endswith("this machine gives out sets of 2")) == ("health", False)

    def test_partitions_bind_where_no_repair_is_enough(self):
        assert refused(Job(1, 2), node("a", replace(kind(4), partitions=(0b0111,)), sick=[3])).binds == "partitions"

    def test_a_repair_that_makes_another_gpu_the_nearest_to_the_nic_is_not_advised(self):
        # With all healthy the nearest is GPU0 alone, which has none beside it on its NUMA node.
        distances = tuple((Link.parse(name),) for name in ("PIX", "PHB", "PHB", "PHB"))
        apart = replace(kind(4, numa=[0, 1, 1, 1]), nics=("NIC0",), nic_links=distances)
        job = Job(1, 3, limits=Limits(near_nic="NIC0", same_numa=True))
        assert advised(job, node("a", apart, sick=[0, 3])) == "it could go to a once GPU3 is healthy"

    def test_a_node_with_more_sick_gpus_than_are_tried_names_enough(self):
        last = sum(1 << gpu for gpu in range(6, 13))
        parted = node("a", replace(kind(13), partitions=(last,)), sick=range(13))
        assert advised(Job(1, 7), parted) == "it could go to a once 7 GPUs are healthy (GPU6, GPU7, GPU8 and 4 more)"


class TestGang:
    """Several pods, in one domain."""

    def test_the_gpu_is_named_with_its_node(self):
        assert advised(Job(2, 8), node("a"), node("b", sick=[2])) == "it would fit once GPU2 on b is healthy"
        assert advised(Job(2, 4), node("b", sick=[2, 5])) == "it would fit once GPU2 and GPU5 on b are healthy"

    def test_gpus_of_several_nodes_are_named(self):
        words = "GPU2 on a and GPU5 on b are healthy"
        assert advised(Job(2, 8), node("a", sick=[2]), node("b", sick=[5])) == f"it would fit once {words}"

    def test_of_many_gpus_the_first_are_named(self):
        nodes = [node(name, 4, sick=[0, 1]) for name in "ab"]
        words = "4 GPUs are healthy (GPU0 on a, GPU1 on a, GPU0 on b and 1 more)"
        assert advised(Job(2, 4), *nodes) == f"it would fit once {words}"
        one = "it would fit once 4 GPUs on a are healthy (GPU0, GPU1, GPU2 and 1 more)"
        assert advised(Job(2, 4), node("a", sick=[0, 1, 2, 3])) == one

    def test_the_nodes_that_take_fewest_are_named(self):
        nodes = [node("a", sick=[0, 1, 2]), node("b", sick=[3]), node("c"), node("d", sick=[6, 7])]
        assert advised(Job(2, 8), *nodes) == "it would fit once GPU3 on b is healthy"

    def test_of_equal_nodes_that_with_most_free_gpus_is_named(self):
        nodes = [node("a", sick=[0], busy=[1]), node("b", sick=[0]), node("c")]
        assert advised(Job(2, 8), *nodes) == "it would fit once GPU0 on b is healthy"

    def test_of_each_node_a_sick_gpu_that_nobody_holds_is_preferred(self):
        nodes = [node("a", sick=[1, 6], busy=[1], offered=7), node("b", sick=[1, 6], busy=[6], offered=7)]
        assert advised(Job(2, 7), *nodes) == "it would fit once GPU6 on a and GPU1 on b are healthy"

    def test_what_has_to_be_freed_besides_is_said(self):
        nodes = [node("a", busy=[0, 1]), node("b", sick=[2], busy=[5])]
        assert advised(Job(2, 8), *nodes) == "it would fit once GPU2 on b is healthy and at least 3 more GPUs are freed"

    def test_gpus_that_could_be_freed_bind_by_their_number(self):
        found = refused(Job(2, 8), node("a"), node("b", busy=[0]), node("c", sick=[0]))
        assert (found.binds, found.change) == ("gpus", "at least 1 more GPU would have to be freed, for 1 more pod")

    def test_a_domain_that_repair_makes_large_enough_is_found(self):
        job = Job(2, 8, required_level="leaf")
        nodes = [node("a", leaf="x", sick=[1, 2]), node("b", leaf="x"), node("c", leaf="y"), node("d", leaf="y", sick=[4])]
        busy = [replace(each, in_use={PodUid(f"on-{each.name}"): (f"{each.name}-0",)}) for each in nodes]
        assert advised(job, *busy) == "it would fit once GPU4 on d is healthy and at least 2 more GPUs are freed"

    def test_a_level_without_which_it_fits_binds_first(self):
        nodes = [node("a", leaf="x"), node("b", leaf="x", sick=[2]), node("c", leaf="y")]
        assert refused(Job(2, 8, required_level="leaf"), *nodes).binds == "level"

    def test_a_level_that_nobody_knows_is_not_repaired(self):
        assert refused(Job(2, 8, required_level="hall"), node("a"), node("b", sick=[2])).binds == "gpus"

    def test_one_pod_per_node_needs_a_node_each(self):
        job = Job(2, 2, one_pod_per_node=True)
        nodes = [node("a", busy=[0]), node("b", 2, sick=[1])]
        assert refused(job, *nodes).binds == "one-pod-per-node"
        full = [node("a", busy=range(8)), node("b", 2, sick=[1])]
        assert advised(job, *full) == "it would fit once GPU1 on b is healthy and at least 2 more GPUs are freed"

    def test_nodes_that_say_no_wide_level_are_together_in_a_nearer_one(self):
        spine = [Place((("leaf", leaf), ("spine", "s"))) for leaf in ("w", "v")]
        near = Place((("leaf", "x"),))
        places = [near, near, *spine]
        nodes = [replace(node(name, sick=[0]), place=place) for name, place in zip("abcd", places, strict=True)]
        nodes[1] = replace(node("b"), place=near)
        assert advised(Job(2, 8, required_level="spine"), *nodes) == "it would fit once GPU0 on a is healthy"

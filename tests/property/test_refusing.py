"""A refusal's numbers are what the selector itself grants when it is asked for less.

Its advice is what the selector grants when the nodes are as the advice says.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, product

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.job import Job, Limits, Refusal, Selection
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Link
from pyscheduler.core.repair import _cheapest
from pyscheduler.core.selector import select
from tests.oracle.clusters import cluster_of, facts_of, job_of, table_of
from tests.oracle.fabric import Host
from tests.oracle.instances import any_cluster

LIMITS = [Limits(), Limits(same_numa=True), Limits(max_link=Link.parse("PIX")), Limits(max_link=Link.parse("NV1"))]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.booleans(), st.sampled_from(LIMITS))
def test_of_one_pod_so_many_gpus_would_fit_and_no_more(seed: int, gpus: int, same_model: bool, limits: Limits) -> None:
    fabric, _ = any_cluster(seed)
    cluster = cluster_of(fabric.hosts)
    job = Job(1, gpus, limits=limits, same_model=same_model)
    found = select(cluster, job)
    assume(isinstance(found, Refusal))
    assert isinstance(found, Refusal)
    fitting = [fewer for fewer in range(1, gpus) if isinstance(select(cluster, replace(job, gpus=fewer)), Selection)]
    assert found.fits == max(fitting, default=0)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from(LIMITS))
@example(2352, 1, Limits())  # Most room is in a domain nearer than the required one, which its nodes are not known to be in.
def test_so_many_pods_would_fit_and_no_more(seed: int, more: int, limits: Limits) -> None:
    fabric, wanted = any_cluster(seed)
    cluster = cluster_of(fabric.hosts)
    job = job_of(replace(wanted, pods=wanted.pods + more), limits=limits)
    assume(job.required_level is None or job.required_level in ("node", *cluster.fleet.tree().levels))
    found = select(cluster, job)
    assume(isinstance(found, Refusal))
    assert isinstance(found, Refusal)
    fitting = [fewer for fewer in range(1, job.pods) if isinstance(select(cluster, replace(job, pods=fewer)), Selection)]
    assert found.fits == max(fitting, default=0)


# Name of the host, index of the GPU.
Card = tuple[str, int]


@lru_cache(maxsize=1 << 10)
def _table(kind: DeviceClass) -> DeviceTable:
    return DeviceTable.build(kind)


@dataclass(frozen=True)
class Ward:
    """Hosts with sick GPUs; `kinds` are what their machines are, `lowered` those whose kubelet offers fewer for each sick GPU."""

    hosts: Sequence[Host]
    kinds: Sequence[DeviceClass]
    sick: tuple[Card, ...]
    lowered: Collection[str]

    @classmethod
    def any(cls, seed: int) -> Ward:
        """Return a ward with up to six sick GPUs; some machines have a NIC, and some give out some sets only."""
        draw = random.Random(seed)
        hosts = any_cluster(seed)[0].hosts
        cards = [(host.name, gpu) for host in hosts for gpu in host.board.gpus if draw.random() < 0.4]
        sick = tuple(sorted(draw.sample(cards, min(len(cards), draw.randint(1, 6)))))
        kinds = [_kind(table_of(host.board).device_class, draw) for host in hosts]
        return cls(hosts, kinds, sick, {host.name for host in hosts if draw.random() < 0.8})

    def cluster(self, mended: Collection[Card] = (), *, empty: bool = False) -> Cluster:
        """Return the cluster as if these were healthy and, with `empty`, nothing were held."""
        cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
        for host, kind in zip(self.hosts, self.kinds, strict=True):
            facts = facts_of(host)
            lost = [gpu for name, gpu in self.sick if name == host.name and (name, gpu) not in mended]
            healthy = sum(1 << gpu for gpu in host.board.gpus if gpu not in lost)
            offered = len(host.board.gpus) - (len(lost) if host.name in self.lowered else 0)
            assert facts.machine
            machine = replace(facts.machine, healthy=healthy, table=_table(kind))
            in_use = {} if empty else facts.in_use
            cluster.observe_node(replace(facts, machine=machine, allocatable=offered, in_use=in_use), 0.0)
        return cluster

    def takes(self, job: Job, mended: Collection[Card] = (), *, empty: bool = False) -> bool:
        return isinstance(select(self.cluster(mended, empty=empty), job), Selection)

    def fewest(self, job: Job) -> int | None:
        """Return how few GPUs it is enough to mend if nothing is held, None if it is never enough."""
        enough = (
            number
            for number in range(len(self.sick) + 1)
            if any(self.takes(job, some, empty=True) for some in combinations(self.sick, number))
        )
        return next(enough, None)


def _kind(kind: DeviceClass, draw: random.Random) -> DeviceClass:
    if draw.random() < 0.3:
        distances = [(Link.parse(draw.choice(["PIX", "PHB", "SYS"])),) for _ in range(kind.gpus)]
        kind = replace(kind, nics=("NIC0",), nic_links=tuple(distances))
    if draw.random() < 0.3:
        kind = replace(kind, partitions=tuple({draw.randrange(1, 1 << kind.gpus) for _ in range(3)}))
    return kind


def _named(change: str) -> tuple[int, list[Card]]:
    """Return how many GPUs the sentence says to mend, and those that it names."""
    one_pod = re.fullmatch(r"it could go to (h\d) once (.*?)(?: and at least .*)?", change)
    gang = re.fullmatch(r"it would fit once (.*?)(?: and at least .*)?", change)
    assert one_pod or gang, change
    words = one_pod[2] if one_pod else gang[1]  # type: ignore[index]
    where = re.findall(r"on (h\d)", words)
    gpus = [int(gpu) for gpu in re.findall(r"GPU(\d)", words)]
    hosts = [one_pod[1]] * len(gpus) if one_pod else where if len(where) == len(gpus) else where * len(gpus)
    number = re.match(r"\d+", words)
    return int(number[0]) if number else len(gpus), list(zip(hosts, gpus, strict=True))


def _check_health(ward: Ward, job: Job) -> None:
    found = select(ward.cluster(), job)
    assume(isinstance(found, Refusal) and found.binds in {"gpus", "partitions", "health"})
    assert isinstance(found, Refusal)
    fewest = ward.fewest(job)
    assert (found.binds == "health") == (fewest is not None and fewest > 0)
    if found.binds == "gpus":
        assert ("even if it were empty" in found.change) == (fewest is None)
    if found.binds != "health":
        return
    number, named = _named(found.change)
    assert number == fewest
    assert len(named) == min(number, 3)
    if number <= 3:
        assert set(named) <= set(ward.sick)
        assert ward.takes(job, named, empty=True)
        assert ward.takes(job, named) == ("freed" not in found.change)


HEALTH_LIMITS = [Limits(), *LIMITS, Limits(near_nic="NIC0"), Limits(near_nic="NIC0", same_numa=True)]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans(), st.sampled_from(HEALTH_LIMITS))
def test_health_binds_one_pod_where_nothing_but_repair_is_enough(seed: int, gpus: int, same_model: bool, limits: Limits) -> None:
    _check_health(Ward.any(seed), Job(1, gpus, limits=limits, same_model=same_model))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 4), st.sampled_from(HEALTH_LIMITS))
def test_health_binds_a_gang_where_nothing_but_repair_is_enough(seed: int, more: int, limits: Limits) -> None:
    ward, wanted = Ward.any(seed), any_cluster(seed)[1]
    job = job_of(replace(wanted, pods=wanted.pods + more), limits=limits)
    assume(job.required_level is None or job.required_level in ("node", *ward.cluster().fleet.tree().levels))
    _check_health(ward, job)


GAINS = st.lists(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 255)), max_size=3), max_size=4)


@given(GAINS, st.integers(1, 12))
def test_of_what_each_node_gains_the_fewest_gpus_are_taken(drawn: list[list[tuple[int, int]]], lacking: int) -> None:
    gains = dict(enumerate([sorted(options) for options in drawn]))
    found = _cheapest(gains, lacking)
    choices = product(*([(0, 0), *options] for options in gains.values()))
    costs = [sum(mask.bit_count() for _, mask in choice) for choice in choices if sum(pods for pods, _ in choice) >= lacking]
    assert bool(found) == bool(costs)
    if found:
        assert sum(mask.bit_count() for mask in found.values()) == min(costs)
        most = [max(pods for pods, option in gains[node] if option == mask) for node, mask in found.items()]
        assert sum(most) >= lacking

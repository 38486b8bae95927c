"""How many GPUs would have to be freed for a gang, and when nothing that is freed helps."""

from __future__ import annotations

from itertools import product

import pytest

from pyscheduler.core.job import Job, Limits, Refusal
from pyscheduler.core.machine.links import Link
from pyscheduler.core.selector import select
from tests.oracle.clusters import cluster_of
from tests.oracle.fabric import Host
from tests.oracle.trees import switched

FOUR = switched(4, 6)


def host(name: str, free: int, *path: str) -> Host:
    return Host(name, tuple(zip(("leaf", "spine"), path, strict=False)), FOUR, FOUR.gpus[:free], None)


def change(hosts: list[Host], job: Job) -> str:
    found = select(cluster_of(hosts), job)
    assert isinstance(found, Refusal)
    return found.change


def fewest(free: tuple[int, ...], job: Job) -> int:
    """Return the fewest GPUs to free, by trying how many on each node."""
    most = 1 if job.one_pod_per_node else 4
    return min(
        sum(freed)
        for freed in product(range(5), repeat=len(free))
        if all(f + more <= 4 for f, more in zip(free, freed, strict=True))
        and sum(min(most, (f + more) // job.gpus) for f, more in zip(free, freed, strict=True)) >= job.pods
    )


@pytest.mark.parametrize("job", [Job(3, 2), Job(4, 3), Job(2, 4), Job(4, 2, one_pod_per_node=True)])
def test_no_fewer_gpus_would_do(job):
    for free in product(range(0, 5, 2), (1, 3), (0, 3), (2, 4)):
        cluster = cluster_of([host(f"n{at}", gpus) for at, gpus in enumerate(free)])
        found = select(cluster, job)
        if isinstance(found, Refusal) and found.binds == "gpus":
            least = fewest(free, job)
            assert found.change.startswith(f"at least {least} more GPU{'s' if least > 1 else ''} would have to be freed")


def test_how_many_pods_are_lacking_is_said():
    text = "at least 5 more GPUs would have to be freed, for 2 more pods"
    assert change([host("a", 3), host("b", 0), host("c", 4)], Job(3, 4)) == text


def test_the_domain_where_it_costs_least_counts_for_a_required_level():
    hosts = [host("a", 1, "x"), host("b", 4, "x"), host("c", 2, "y"), host("d", 2, "y")]
    assert change(hosts, Job(2, 4, required_level="leaf")) == "at least 3 more GPUs would have to be freed, for 1 more pod"


def test_a_level_that_could_never_hold_them_is_named():
    hosts = [host("a", 0, "x", "s"), host("b", 0, "x", "s"), host("c", 0, "y", "s")]
    text = "one leaf holds 2 such pods even if it were empty: ask for fewer, or for a wider level"
    assert change(hosts, Job(3, 4, required_level="leaf")) == text


def test_a_cluster_that_could_never_hold_them_says_how_many_it_holds():
    hosts = [host("a", 4), host("b", 1)]
    text = "the cluster holds 2 such pods even if it were empty: ask for fewer, or add nodes"
    assert change(hosts, Job(5, 4)) == text
    assert change(hosts, Job(2, 8)).startswith("no node could take one of them even if it were empty")


def test_a_limit_that_no_empty_node_meets_is_what_binds():
    found = select(cluster_of([host("a", 4), host("b", 4)]), Job(2, 4, limits=Limits(max_link=Link.parse("NV12"))))
    assert isinstance(found, Refusal)
    assert found.binds == "max-link"

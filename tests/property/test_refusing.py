"""A refusal's numbers are what the selector itself grants when it is asked for less."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyscheduler.core.job import Job, Limits, Refusal, Selection
from pyscheduler.core.machine.links import Link
from pyscheduler.core.selector import select
from tests.oracle.clusters import cluster_of, job_of
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

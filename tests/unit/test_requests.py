"""Requests to place: every field, and every bad value with what is allowed."""

from __future__ import annotations

import pytest

from pyscheduler.core.job import Job, Limits
from pyscheduler.core.machine.links import Link
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.requests import job_of, jobs_of

LEVELS = ("row", "hall")


def test_a_request_of_one_pod_has_no_limits():
    assert jobs_of([{"gpus": 3}], ()) == (Job(1, 3),)


def test_every_field_of_a_request_is_read():
    request = {
        "pods": 4,
        "gpus_per_pod": 2,
        "one_pod_per_node": True,
        "required_level": "hall",
        "preferred_level": "row",
        "max_link": "PHB",
        "near_nic": "ib1",
        "same_numa": True,
        "same_model": True,
    }

    assert jobs_of([request], LEVELS) == (
        Job(
            4,
            2,
            limits=Limits(Link.parse("PHB"), "ib1", same_numa=True),
            same_model=True,
            one_pod_per_node=True,
            required_level="hall",
            preferred_level="row",
        ),
    )


def test_requests_keep_their_order_and_none_at_all_is_a_list_too():
    assert [job.gpus for job in jobs_of([{"gpus": 8}, {"gpus": 1}, {"gpus": 4}], ())] == [8, 1, 4]
    assert jobs_of([], ()) == ()


def test_fields_that_are_null_are_left_out():
    nothing = dict.fromkeys(("pods", "gpus_per_pod", "max_link", "near_nic", "required_level", "same_numa"))

    assert jobs_of([{"gpus": 1, **nothing}], ()) == (Job(1, 1),)


def test_the_node_is_a_level_of_every_cluster():
    assert jobs_of([{"gpus": 1, "required_level": "node"}], ())[0].required_level == "node"


def test_a_fault_is_named_as_the_caller_names_the_field():
    with pytest.raises(RefusedError, match=r"^--max-link: link type 'nv' is not known; use NV<n>"):
        job_of({"gpus": 1, "max_link": "nv"}, (), lambda field: "--" + field.replace("_", "-"))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"gpus": 8}, r"is no list of requests; write \[\{\"gpus\": 8\}, ...\]"),
        ("8", "is no list of requests"),
        ([8], r"\[0\]: 8 is no request"),
        ([{"gpus": 1}, None], r"\[1\]: None is no request"),
        ([{}], r"give either \[0\].gpus, for one pod, or both \[0\].pods and \[0\].gpus_per_pod"),
        ([{"gpus": 1, "pods": 1, "gpus_per_pod": 1}], "give either"),
        ([{"pods": 2}], "give either"),
        ([{"gpus_per_pod": 2}], "give either"),
        ([{"gpus": 0}], r"\[0\].gpus: 0 must be a whole number from 1 to 1000000"),
        ([{"gpus": -4}], "gpus: -4"),
        ([{"gpus": 2.0}], "gpus: 2.0"),
        ([{"gpus": "2"}], "gpus: '2'"),
        ([{"gpus": True}], "gpus: True"),
        ([{"gpus": 10**9}], "gpus: 1000000000 must be"),
        ([{"pods": 0, "gpus_per_pod": 1}], r"\[0\].pods: 0"),
        ([{"pods": 1, "gpus_per_pod": 0}], r"\[0\].gpus_per_pod: 0"),
        ([{"gpus": 1, "required_level": "rwo"}], r"\[0\].required_level: 'rwo' is no level of this cluster; its levels are node, row, hall"),
        ([{"gpus": 1, "preferred_level": ""}], r"\[0\].preferred_level: '' is no level"),
        ([{"gpus": 1, "required_level": ["row"]}], r"\[0\].required_level: \['row'\] is no level"),
        ([{"gpus": 1, "max_link": "NVLINK"}], r"\[0\].max_link: link type 'NVLINK' is not known; use NV<n>"),
        ([{"gpus": 1, "max_link": 4.5}], r"\[0\].max_link: 4.5 must be a text"),
        ([{"gpus": 1, "near_nic": ""}], r"\[0\].near_nic: '' must be a text"),
        ([{"gpus": 1, "same_numa": "yes"}], r"\[0\].same_numa: 'yes' must be true or false"),
        ([{"gpus": 1, "same_model": 1}], r"\[0\].same_model: 1 must be true or false"),
        ([{"pods": 1, "gpus_per_pod": 1, "one_pod_per_node": "true"}], r"\[0\].one_pod_per_node: 'true' must be"),
        ([{"gpus": 1, "required-level": "row"}], r"\[0\].required-level: is not known; known are gpus, pods, .*required_level"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_place_and_what_is_allowed(raw, words):
    with pytest.raises(RefusedError, match=words):
        jobs_of(raw, LEVELS)

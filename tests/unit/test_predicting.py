"""The predicted bandwidth of a choice: the narrowest level that its traffic crosses counts."""

from __future__ import annotations

import pytest

from pyscheduler.core.job import PodSet
from pyscheduler.core.machine.weights import Override, Profile, Weights
from pyscheduler.core.predicting import by_node, predicted_gbps
from tests.builders import node, planner

CLUSTER = planner(*(node(f"n{i}", path=(f"leaf-{i // 2}", "spine")) for i in range(4))).cluster
WHOLE = 0xFF


def predicted(*nodes: int, level: str | None, weights: Weights) -> float | None:
    return predicted_gbps(CLUSTER, weights, [PodSet(each, WHOLE, ()) for each in nodes], level)


def slow(level: str) -> Weights:
    return Weights(overrides=(Override(level, 1.0, level=True),))


def test_a_level_counts_for_the_jobs_that_cross_it_alone() -> None:
    within, across = Weights(), slow("tier-1")
    assert predicted(0, 1, level="tier-0", weights=within) == predicted(0, 1, level="tier-0", weights=across)
    wide = predicted(0, 2, level="tier-1", weights=within)
    narrow = predicted(0, 2, level="tier-1", weights=across)
    assert wide is not None
    assert narrow is not None
    assert narrow < wide / 10


def test_a_narrow_nearer_level_counts_for_wider_jobs_too() -> None:
    assert predicted(0, 2, level="tier-1", weights=slow("tier-0")) == predicted(0, 2, level="tier-1", weights=slow("tier-1"))


def test_a_single_node_crosses_no_level() -> None:
    assert predicted(0, level="node", weights=slow("tier-0")) == predicted(0, level="node", weights=Weights())


def test_the_classic_scale_says_nothing_of_bandwidth() -> None:
    assert predicted(0, 1, level="tier-0", weights=Weights(Profile.CLASSIC)) is None


@pytest.mark.parametrize("mask", [0, 1])
def test_no_gpus_and_one_gpu_have_no_collective(mask: int) -> None:
    assert predicted_gbps(CLUSTER, Weights(), [PodSet(0, mask, ())], "node") is None


def test_pods_of_one_node_are_taken_together() -> None:
    assert by_node([PodSet(1, 3, ()), PodSet(0, 1, ()), PodSet(1, 12, ())]) == {1: 15, 0: 1}

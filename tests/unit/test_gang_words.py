"""What a group that does not fit is told: no GPUs, or not close enough; and which nodes would help."""

from __future__ import annotations

import pytest

from pyscheduler.core import explain
from pyscheduler.core.explain import Hole
from pyscheduler.core.request import Shape
from tests.builders import bound, uuids
from tests.unit.test_gangs import BOX, SPINES, Shim, members, shim, show

CLOSE = "all its pods find free GPUs, but not close enough"
UNSEEN = "a cluster autoscaler cannot see this"


def told(made: Shim, count: int, gpus: int = 8, **wishes: object) -> str:
    """Return what a group of so many pods is told; the same again at the next attempt, and later."""
    pods = members(count, gpus, **wishes)  # type: ignore[arg-type]
    show(made, pods)
    reasons = {made.plan(pods[0]).verdict.reason, made.plan(pods[-1]).verdict.reason}
    made.now += 7.0
    reasons.add(made.plan(pods[0]).verdict.reason)
    assert len(reasons) == 1
    return reasons.pop()


def fabric() -> Shim:
    """Return twelve free nodes: leaves of two, spines of four."""
    return shim(*SPINES, path=SPINES)


def take(made: Shim, node: str, gpus: int = 8) -> None:
    made.planner.cluster.observe_pod(bound(f"on-{node}", node, gpus, uuids(BOX, node, *range(gpus))), made.now)


def test_gpus_that_are_not_close_enough():
    assert told(fabric(), 3, required_level="tier-0").endswith(
        "; 2 of 3 fit in tier-0 leaf-1; 3 fit in tier-1 spine-1: it would fit within one tier-1; "
        f"{CLOSE}; a node added to tier-0 leaf-1 would help; {UNSEEN}"
    )


def test_as_many_nodes_are_named_as_would_help():
    assert told(fabric(), 7, required_level="tier-1").endswith(f"; {CLOSE}; 3 nodes added to tier-1 spine-1 would help; {UNSEEN}")
    # Two pods of four GPUs go on one node.
    assert told(fabric(), 11, 4, required_level="tier-1").endswith(
        f"; {CLOSE}; 2 nodes added to tier-1 spine-1 would help; {UNSEEN}"
    )


def test_node_is_added_where_most_of_the_pods_fit():
    made = fabric()
    for name in ("n1", "n3", "n5", "n9"):
        take(made, name)
    assert "; 2 of 3 fit in tier-0 leaf-4; " in (text := told(made, 3, required_level="tier-0"))
    assert text.endswith(f"; a node added to tier-0 leaf-4 would help; {UNSEEN}")


def test_no_gpus():
    made = shim("a", "b")
    take(made, "a")
    assert told(made, 2).endswith(
        ": at least 8 more GPUs would have to be freed, for 1 more pod; not all its pods find free GPUs; a node added would help"
    )
    assert told(shim("a", "b"), 4).endswith(
        ": the cluster holds 2 such pods even if it were empty: ask for fewer, or add nodes; "
        "not all its pods find free GPUs; 2 nodes added would help"
    )


def test_no_gpus_even_far_apart_where_a_level_is_required():
    made = fabric()
    for number in range(1, 12):
        take(made, f"n{number}")
    assert told(made, 2, required_level="tier-0").endswith(
        "; not all its pods find free GPUs, however far apart; a node added to tier-0 leaf-6 would help; "
        "a cluster autoscaler cannot see where"
    )


def test_gpus_that_are_scattered_over_nodes_are_none_for_whole_pods():
    made = shim("a", "b")
    take(made, "a", 4)
    take(made, "b", 4)
    assert told(made, 2, 6).endswith("; not all its pods find free GPUs; 2 nodes added would help")


def test_all_on_one_node():
    made = fabric()
    assert told(made, 3, 4, required_level="node").endswith(f"; {CLOSE}; only larger nodes would help; {UNSEEN}")
    made = fabric()
    for number in range(1, 13):
        take(made, f"n{number}", 4)
    assert told(made, 2, 4, required_level="node").endswith(f"; {CLOSE}; a node added would help; {UNSEEN}")


def test_another_limit_than_the_level():
    assert told(fabric(), 3, 4, required_level="tier-0", one_pod_per_node=True).endswith(
        f": it would fit with several pods per node; a node added to tier-0 leaf-1 would help; {UNSEEN}"
    )


@pytest.mark.parametrize("wishes", [{"required_level": "rack"}, {"gpus": 9}])
def test_where_no_node_of_those_that_there_are_would_help_none_is_named(wishes: dict[str, object]):
    text = told(fabric(), 2, **{"gpus": 8, **wishes})  # type: ignore[arg-type]
    assert "would help" not in text
    assert "autoscaler" not in text


def test_single_pod_that_an_autoscaler_believes_to_fit():
    def told_of(free: int) -> str:
        hole = Hole(free, "n1")
        return explain.no_node(Shape("nvidia.com/gpu", 4), eligible=1, known=1, largest=Hole(8, "n1"), freest=hole, free=free)

    assert told_of(4).endswith(f"topology policy admits; {UNSEEN}")
    assert "autoscaler" not in told_of(3)

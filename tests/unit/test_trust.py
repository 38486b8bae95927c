"""Which annotations the books believe when all is read anew: those that the scheduler wrote, as far as can be told."""

from __future__ import annotations

import pytest

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.holdings import Holding, HoldingState
from pyscheduler.core.model import InUse, NodeFacts, PodFacts, PodUid, binding_order
from pyscheduler.readers.objects import ObjectReader
from tests.builders import GPU, OURS, bound, node, planner, uuids

H100 = "hgx-h100"
VICTIM = bound("victim", "n1", 2, uuids(H100, "n1", 0, 1), bound_at=100.0)


def rebuilt(facts: NodeFacts, *pods: PodFacts) -> Cluster:
    """Return what a service knows that has just read these."""
    cluster = planner(facts).cluster
    for pod in sorted(pods, key=binding_order):
        cluster.observe_pod(pod, 0.0)
    return cluster


def held(cluster: Cluster, name: str) -> Holding:
    holding = cluster.ledger.get(PodUid(name))
    assert holding is not None
    return holding


def forged(handles: tuple[str, ...], *, bound_at: float = 200.0) -> PodFacts:
    return bound("forged", "n1", 2, handles, bound_at=bound_at)


def test_pod_that_was_never_bound_by_a_binding_comes_after_those_that_were() -> None:
    """A pod that its maker gives a node has no condition PodScheduled until its kubelet has seen it."""
    cluster = rebuilt(node("n1"), VICTIM, forged(uuids(H100, "n1", 0, 1), bound_at=0.0))
    assert (held(cluster, "victim").state, held(cluster, "forged").state) == (HoldingState.BOUND, HoldingState.FOREIGN)


@pytest.mark.parametrize(
    "handles",
    [
        pytest.param(("GPU-a", "GPU-b"), id="GPUs of nobody"),
        pytest.param(uuids(H100, "n2", 0, 1), id="GPUs of another node"),
        pytest.param(("index:8", "index:-1"), id="indices that there are not"),
        pytest.param((*uuids(H100, "n1", 7), "GPU-b"), id="one that is there and one that is not"),
        pytest.param((*uuids(H100, "n1", 7), "index:7"), id="one GPU under two names"),
    ],
)
def test_gpus_that_the_node_does_not_have_are_not_believed(handles: tuple[str, ...]) -> None:
    cluster = rebuilt(node("n1"), VICTIM, forged(handles))
    assert (held(cluster, "forged").state, cluster.state(0).free) == (HoldingState.FOREIGN, 4)


def test_gpus_of_another_pod_are_known_by_their_index_too() -> None:
    cluster = rebuilt(node("n1"), VICTIM, forged(("index:0", "index:1")))
    assert (held(cluster, "forged").state, cluster.state(0).free) == (HoldingState.FOREIGN, 4)


def test_report_wins_at_a_rebuild() -> None:
    """The earlier bound pod names the GPUs of the later one."""
    report: InUse = {PodUid("victim"): uuids(H100, "n1", 0, 1), PodUid("forged"): uuids(H100, "n1", 4, 5)}
    cluster = rebuilt(node("n1", in_use=report), VICTIM, forged(uuids(H100, "n1", 0, 1), bound_at=50.0))
    assert {name: set(held(cluster, name).gpus) for name in report} == {uid: set(gpus) for uid, gpus in report.items()}
    assert {held(cluster, name).state for name in report} == {HoldingState.BOUND}


def test_gpus_of_a_foreign_pod_that_the_agent_has_located_cannot_be_named() -> None:
    foreign = bound("foreign", "n1", 2, scheduler="default-scheduler", bound_at=50.0)
    report: InUse = {PodUid("victim"): uuids(H100, "n1", 0, 1), PodUid("foreign"): uuids(H100, "n1", 4, 5)}
    cluster = rebuilt(node("n1", in_use=report), VICTIM, foreign, forged(uuids(H100, "n1", 4, 5)))
    assert (held(cluster, "forged").state, cluster.state(0).free) == (HoldingState.FOREIGN, 2)


def test_name_that_is_no_text_is_not_read() -> None:
    pod = ObjectReader((GPU,)).pod(
        {
            "metadata": {
                "uid": "u",
                "namespace": "default",
                "name": "p",
                "annotations": {"pyscheduler.io/gpus": r'{"main": ["\ud800"]}'},
            },
            "spec": {"schedulerName": OURS, "containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]},
        }
    )
    assert pod is not None
    assert pod.gpus is None

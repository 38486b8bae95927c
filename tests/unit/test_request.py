"""How many GPUs a pod needs, and which container gets which."""

from __future__ import annotations

import pytest

from pyscheduler.core.model import Code, ContainerKind, ContainerRequest, Verdict
from pyscheduler.core.request import Shape, effective_gpus, shape_of, share_out

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def _containers(*asks: tuple[str, ContainerKind, int]) -> list[ContainerRequest]:
    return [ContainerRequest(name, kind, "nvidia.com/gpu", gpus) for name, kind, gpus in asks]


# Expected numbers worked out by hand from the rule of KEP-753, section "resource requests calculation".
@pytest.mark.parametrize(
    ("asks", "want"),
    [
        pytest.param([("a", APP, 2)], 2, id="one app container"),
        pytest.param([("a", APP, 2), ("b", APP, 3)], 5, id="apps run together"),
        pytest.param([("i", INIT, 4), ("a", APP, 1)], 4, id="an init container that needs more sets the peak"),
        pytest.param([("i", INIT, 1), ("a", APP, 4)], 4, id="init GPUs are reused"),
        pytest.param([("i", INIT, 1), ("j", INIT, 3), ("a", APP, 2)], 3, id="init containers run one after the other"),
        pytest.param([("s", SIDECAR, 1), ("a", APP, 4)], 5, id="a sidecar runs beside the apps"),
        pytest.param([("s", SIDECAR, 1), ("i", INIT, 4), ("a", APP, 2)], 5, id="init beside an earlier sidecar"),
        pytest.param([("i", INIT, 4), ("s", SIDECAR, 1), ("a", APP, 2)], 4, id="init before the sidecar"),
    ],
)
def test_effective_request_is_the_peak(asks: list[tuple[str, ContainerKind, int]], want: int) -> None:
    assert effective_gpus(_containers(*asks)) == want


def test_apps_get_disjoint_gpus_and_reuse_those_of_init_containers() -> None:
    asks = _containers(("s", SIDECAR, 1), ("i", INIT, 2), ("a", APP, 1), ("b", APP, 2))
    assert share_out(asks, ["g0", "g1", "g2", "g3"]) == {"s": ["g0"], "i": ["g1", "g2"], "a": ["g1"], "b": ["g2", "g3"]}


def test_containers_without_gpus_are_not_named() -> None:
    assert share_out(_containers(("a", APP, 1), ("log", APP, 0)), ["g0"]) == {"a": ["g0"]}


def test_two_resources_in_one_pod_are_refused_with_the_fix() -> None:
    asks = [ContainerRequest("a", APP, "nvidia.com/gpu", 1), ContainerRequest("b", APP, "amd.com/gpu", 1)]
    verdict = shape_of(asks)
    assert isinstance(verdict, Verdict)
    assert verdict.code is Code.UNRESOLVABLE
    assert "one resource per pod" in verdict.reason


def test_shape_holds_what_decides_where_a_pod_fits() -> None:
    assert shape_of(_containers(("a", APP, 2), ("b", APP, 1))) == Shape("nvidia.com/gpu", 3)

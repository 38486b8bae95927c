"""The vendors' allocation policies, against what their own tests expect."""

from __future__ import annotations

import pytest

from deploy.local import demo_policies, machines
from deploy.local.demo_policies import Gpus, pcie_path, preferred
from pyscheduler.core.machine.links import Kind

EIGHT = range(8)


def document(machine: str) -> dict[str, object]:
    return machines.document(machine, "any")


def one_after_another(machine: str, size: int) -> list[Gpus]:
    """Return what pods of one size get until the machine is full."""
    free, given = set(range(len(document(machine)["gpus"]))), []  # type: ignore[arg-type]
    while len(free) >= size:
        given.append(preferred(document(machine), free, size))
        free -= set(given[-1])
    return given


@pytest.mark.parametrize(
    ("free", "size", "expected"),
    [
        pytest.param((0, 2, 4, 5), 2, (4, 5), id="single-nvlink-prefers-same-switch"),
        pytest.param((0, 4, 5, 6), 2, (5, 6), id="single-nvlink-prefers-same-socket"),
        pytest.param((0, 1, 3), 2, (0, 3), id="dual-nvlink-same-socket"),
        pytest.param((0, 1, 4), 2, (0, 4), id="dual-nvlink-cross-socket"),
    ],
)
def test_nvidia_on_dgx_1v(free: Gpus, size: int, expected: Gpus) -> None:
    """Cases of upstream's TestBestEffortAllocate."""
    assert preferred(document("dgx-1v"), free, size) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, [(gpu,) for gpu in EIGHT]),
        (2, [(0, 3), (1, 2), (4, 7), (5, 6)]),
        (4, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (8, [tuple(EIGHT)]),
    ],
)
def test_nvidia_fills_dgx_1v(size: int, expected: list[Gpus]) -> None:
    """Cases of upstream's TestBestEffortDGX1VoltaGPUAlloc*."""
    assert one_after_another("dgx-1v", size) == expected


def test_nvidia_takes_the_best_set_of_the_best_division() -> None:
    """Not the best set at once: that would be (1, 2), and leave a pair without a link."""
    points = {(0, 1): 200, (1, 2): 210, (2, 3): 200}
    assert demo_policies.nvidia_best_effort(lambda a, b: points.get((a, b), 0), range(4), 2) == (0, 1)


def test_nvidia_never_hands_out_fewer_than_asked_for() -> None:
    """The smaller set of the best division has the highest score here."""
    points = {(0, 1): 900, (2, 3): 100, (2, 4): 100, (3, 4): 100}
    assert demo_policies.nvidia_best_effort(lambda a, b: points.get((a, b), 0), range(5), 3) == (2, 3, 4)


def test_nvidia_finds_the_bridge_that_is_left() -> None:
    assert preferred(document("a100-pcie-bridged"), (1, 2, 3), 2) == (2, 3)


def test_nvidia_does_not_see_nvlinks_to_a_switch() -> None:
    score = demo_policies.nvidia_score(document("hgx-h100"))
    assert score(0, 1) == 20
    assert score(0, 4) == 10


@pytest.mark.parametrize(
    ("machine", "pair", "path"),
    [
        ("dgx-1v", (0, 1), Kind.PIX),
        ("dgx-1v", (0, 3), Kind.PHB),
        ("dgx-1v", (0, 4), Kind.SYS),
        ("hgx-a100", (0, 1), Kind.PXB),
        ("a100-pcie-bridged", (2, 3), Kind.NODE),
        ("rtx-4090x8", (0, 1), Kind.PHB),
    ],
)
def test_pcie_path_behind_nvlinks(machine: str, pair: tuple[int, int], path: Kind) -> None:
    assert pcie_path(document(machine), *pair) is path


def test_amd_prefers_xgmi_then_one_numa_node_and_does_not_count_links() -> None:
    assert preferred(document("mi250x"), EIGHT, 2) == (0, 1)
    assert preferred(document("mi250x"), (1, 2, 3, 5, 6, 7), 2) == (1, 3)
    assert preferred(document("mi250x"), (0, 2, 4), 2) == (0, 4)
    assert preferred(document("mi210x4"), (0, 2, 3), 2) == (2, 3)

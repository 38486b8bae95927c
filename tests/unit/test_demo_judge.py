"""The demo's own judgement of GPU sets: it must find a bad choice, and agree with the selector on good ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from deploy.local.demo_judge import Judge, device_table, is_best, random_draw, ring_level
from pyscheduler.core.machine.links import Kind

DGX_FREE = frozenset({0, 4, 5, 6, 7})


@pytest.fixture
def judge() -> Judge:
    return Judge({"volta": "dgx-1v", "hopper": "hgx-h100", "bridged": "a100-pcie-bridged", "amd": "mi250x"})


@pytest.mark.parametrize(
    ("machine", "gpus", "level"),
    [
        ("dgx-1v", (4, 5, 6, 7), Kind.NVLINK),
        ("dgx-1v", (0, 4, 5, 6), Kind.SYS),
        ("dgx-1v", (0, 5), Kind.SYS),
        ("a100-pcie-bridged", (0, 1), Kind.NVLINK),
        ("a100-pcie-bridged", (0, 1, 2, 3), Kind.SYS),
        ("rtx-4090x8", (4, 5, 6, 7), Kind.PHB),
        ("mi250x", (2, 3), Kind.XGMI),
        ("dgx-1v", (3,), None),
    ],
)
def test_level_is_the_weakest_link_of_the_best_ring(machine: str, gpus: tuple[int, ...], level: Kind | None) -> None:
    assert ring_level(machine, gpus) is level


@pytest.mark.parametrize("node", ["volta", "hopper", "bridged", "amd"])
def test_agrees_with_the_selector(judge: Judge, node: str) -> None:
    machine = {"volta": "dgx-1v", "hopper": "hgx-h100", "bridged": "a100-pcie-bridged", "amd": "mi250x"}[node]
    table, draws = device_table(machine), random.Random(7)
    for _ in range(40):
        gpus = range(table.device_class.gpus)
        free = frozenset(draws.sample(gpus, draws.randint(1, len(gpus))))
        size = draws.randint(1, min(4, len(free)))
        chosen = table.choose(sum(1 << gpu for gpu in free), size)
        assert chosen is not None
        got = judge.judge(node, [gpu for gpu in gpus if chosen.mask >> gpu & 1], free)
        assert is_best(got, judge.choices({node: free}, [node], size)), (free, size)


@pytest.mark.parametrize("gpus", [(0, 4, 5, 6), (0, 5, 6, 7)])
def test_finds_a_worse_set(judge: Judge, gpus: tuple[int, ...]) -> None:
    choices = judge.choices({"volta": DGX_FREE}, ["volta"], 4)
    assert not is_best(judge.judge("volta", gpus, DGX_FREE), choices)
    assert is_best(judge.judge("volta", (4, 5, 6, 7), DGX_FREE), choices)


def test_finds_a_slower_ring_at_the_same_level(judge: Judge) -> None:
    free = {"volta": frozenset({4, 5, 6}), "hopper": frozenset({0, 1})}
    choices = judge.choices(free, free, 2)
    assert not is_best(judge.judge("volta", (5, 6), free["volta"]), choices)
    assert is_best(judge.judge("hopper", (0, 1), free["hopper"]), choices)


def test_does_not_trust_the_bandwidth_for_the_level(judge: Judge) -> None:
    """A selector whose tables are wrong must not pass by them."""
    choices = judge.choices({"volta": DGX_FREE}, ["volta"], 4)
    flattered = replace(judge.judge("volta", (0, 4, 5, 6), DGX_FREE), ring_gbps=1000.0)
    assert not is_best(flattered, choices)


def test_single_gpu_should_spoil_least(judge: Judge) -> None:
    free = {"bridged": frozenset({1, 2, 3})}
    choices = judge.choices(free, free, 1)
    assert is_best(judge.judge("bridged", (1,), free["bridged"]), choices)
    assert not is_best(judge.judge("bridged", (2,), free["bridged"]), choices)


def test_random_draw_is_the_exact_mean_over_nodes_and_sets(judge: Judge) -> None:
    """Bridged {1, 2, 3}: one pair of three has the bridge. Hopper {0, 1}: one pair."""
    free = {"bridged": frozenset({1, 2, 3}), "hopper": frozenset({0, 1})}
    bridge, hopper = (judge.judge(*of).ring_gbps for of in (("bridged", (2, 3)), ("hopper", (0, 1))))
    across = judge.judge("bridged", (1, 2)).ring_gbps
    draw = random_draw(judge.choices(free, free, 2))
    assert draw.ring_gbps == pytest.approx(((bridge + 2 * across) / 3 + hopper) / 2)
    assert draw.as_good == pytest.approx(0.5)

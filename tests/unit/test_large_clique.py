"""Sets that obey limits on machines of many GPUs: those that are there are found, and a no is proven."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.job import Limits
from pyscheduler.core.machine import large_clique
from pyscheduler.core.machine.admission import Rules, admits, rules
from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.large_clique import limited_set
from pyscheduler.core.machine.links import Link

NEAR = Limits(max_link=Link.parse("PIX"))


def random_links(n: int, density: float, planted: int, seed: int) -> DeviceClass:
    """Return GPUs of which each pair is near with this probability, and `planted` of them all near each other."""
    draw = random.Random(seed)
    links = {pair: "PIX" if draw.random() < density else "SYS" for pair in combinations(range(n), 2)}
    links.update(dict.fromkeys(combinations(sorted(draw.sample(range(n), planted)), 2), "PIX"))
    return DeviceClass.of([None] * n, [at * 4 // n for at in range(n)], links)


@pytest.mark.parametrize(("n", "density", "k"), [(24, 0.5, 10), (40, 0.5, 10), (64, 0.5, 10), (64, 0.7, 10), (128, 0.5, 16)])
@pytest.mark.parametrize("seed", range(3))
def test_a_planted_set_is_found(n: int, density: float, k: int, seed: int) -> None:
    machine = random_links(n, density, k, seed)
    choice = DeviceTable.build(machine).choose((1 << n) - 1, k, NEAR)
    assert choice is not None
    assert choice.mask.bit_count() == k
    assert admits(machine, choice.mask, rules(machine, NEAR))


@given(st.integers(0, 10_000), st.integers(2, 6), st.booleans(), st.sampled_from(TopologyPolicy))
def test_an_answer_is_that_of_brute_force(seed: int, k: int, near_nic: bool, policy: TopologyPolicy) -> None:
    draw = random.Random(seed)
    machine = replace(random_links(11, draw.choice([0.3, 0.5, 0.8]), 2, seed), policy=policy)
    free = draw.getrandbits(11) | draw.getrandbits(11)
    wanted = replace(rules(machine, NEAR), near=1 << draw.randrange(11) if near_nic else 0)
    right = any(admits(machine, sum(1 << g for g in gpus), wanted) for gpus in combinations(_members(free), k))
    found, proven = limited_set(machine, free, k, wanted)
    assert (bool(found), proven) == (right, True)
    if found:
        assert found & ~free == 0
        assert found.bit_count() == k
        assert admits(machine, found, wanted)


def test_no_rules_ask_for_a_number_only() -> None:
    machine = random_links(20, 0.5, 2, 1)
    assert limited_set(machine, 0b1011, 3, None) == (0b1011, True)
    assert limited_set(machine, 0b1011, 4, None) == (0, True)


def test_a_search_that_is_cut_short_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = random_links(64, 0.7, 2, 5)
    every = (1 << 64) - 1
    assert limited_set(machine, every, 14, rules(machine, NEAR)) == (0, True)
    monkeypatch.setattr(large_clique, "_STEPS_MAX", 5)
    assert limited_set(machine, every, 14, rules(machine, NEAR)) == (0, False)


def test_a_gpu_near_the_nic_may_be_all_that_is_asked() -> None:
    machine = random_links(20, 0.5, 2, 2)
    assert limited_set(machine, 0b111, 1, Rules((1 << 20) - 1, 0b100, (0,) * 20)) == (0b100, True)
    assert limited_set(machine, 0b011, 1, Rules((1 << 20) - 1, 0b100, (0,) * 20)) == (0, True)


def _members(mask: int) -> list[int]:
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]

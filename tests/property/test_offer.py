"""What a machine offers to several pods at once, with limits, against the oracle that takes disjoint sets in every way."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.job import Limits
from pyscheduler.core.machine.choice import Offer
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Link
from tests.property.set_oracle import Gpus, Oracle
from tests.property.test_device_table import any_machine, mask, members, real, table_of, two_cube_meshes

# Nearest first.
LADDER = ["NV9", "NV4", "NV2", "NV1", "PIX", "PHB", "SYS", "?"]


def check(oracle: Oracle, offer: Offer, free: Gpus, k: int) -> None:
    """Slots, rings, and the pick at every ring for every count."""
    expected = oracle.offered(free, k)
    assert list(offer.at) == expected
    assert offer.slots == (expected[-1][1] if expected else 0)
    for floor, most in expected:
        for count in range(1, most + 1):
            picked = tuple(members(each) for each in offer.pick(count, floor))
            assert picked == oracle.picked(free, k, count, floor), (free, k, count, floor)


@pytest.mark.parametrize("machine", ["dgx-1v", "mi250x", "summit", "two-hives-of-four", "a6000x8-bridged"])
def test_offers_of_real_machines_are_optimal(machine: str) -> None:
    oracle, table = real(machine)
    draw = random.Random(machine)
    whole = len(oracle.gpus)
    # All of the machine, and what is left of it after some jobs.
    for free in [oracle.gpus, *(tuple(sorted(draw.sample(range(whole), draw.randint(2, whole)))) for _ in range(12))]:
        for k in range(1, len(free) + 1):
            check(oracle, table.offer(mask(free), k), free, k)


def test_offers_of_sixteen_gpus_are_optimal() -> None:
    oracle = two_cube_meshes()
    table = table_of(oracle)
    draw = random.Random(8)
    for _ in range(15):
        free = tuple(sorted(draw.sample(range(16), draw.randint(4, 8))))
        k = draw.randint(2, 4)
        check(oracle, table.offer(mask(free), k), free, k)


@settings(max_examples=40, deadline=None)
@given(any_machine("NV1 NV2 NV4 NV9 PIX PHB SYS ?"))
def test_offers_of_any_machine_are_optimal(oracle: Oracle) -> None:
    table = table_of(oracle)
    for free in range(1 << len(oracle.gpus)):
        for k in range(1, 5):
            check(oracle, table.offer(free, k), members(free), k)


@dataclass(frozen=True)
class Limited(Oracle):
    """A machine with one job's limits on it."""

    farthest: str = "?"
    near: Gpus = ()
    same_numa: bool = False
    models: tuple[str, ...] = ()
    model: str | None = None

    def admits(self, gpus: Gpus) -> bool:
        pairs = list(combinations(gpus, 2))
        return (
            super().admits(gpus)
            and all(LADDER.index(self.link(*pair)) <= LADDER.index(self.farthest) for pair in pairs)
            and (not self.near or bool({*self.near} & {*gpus}))
            and not (self.same_numa and any(self.numa[a] is None or self.numa[a] != self.numa[b] for a, b in pairs))
            and all(self.model in {None, self.models[gpu]} for gpu in gpus)
        )

    def carve(self, rest: Gpus, k: int) -> tuple[int, int, int]:
        """What is left is judged without the limits of this job."""
        return self.unlimited.carve(rest, k)

    @property
    def unlimited(self) -> Oracle:
        plain = Oracle(self.links, self.numa, policy=self.policy, costs=self.costs, partitions=self.partitions)
        return Oracle(**{**vars(plain), "rings": self.rings, "carvings": self.carvings})


@st.composite
def limited(draw: st.DrawFn) -> tuple[Limited, DeviceTable, Limits]:
    """A machine of up to six GPUs, its table, and limits."""
    plain = draw(any_machine("NV1 NV2 NV4 NV9 PIX PHB SYS ?"))
    n = len(plain.gpus)
    distances = draw(st.lists(st.sampled_from(["PIX", "PHB", "SYS", "?"]), min_size=n, max_size=n))
    known = [LADDER.index(each) for each in distances if each != "?"]
    near = tuple(gpu for gpu in range(n) if known and LADDER.index(distances[gpu]) == min(known))
    models = tuple(draw(st.lists(st.sampled_from(["one", "other"]), min_size=n, max_size=n)))
    farthest = draw(st.sampled_from([None, "NV1", "PHB", "SYS"]))
    wants_nic, same_numa, model = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([None, None, "one"]))
    limits = Limits(Link.parse(farthest) if farthest else None, "nic-a" if wants_nic else None, same_numa, model)
    oracle = Limited(
        plain.links,
        plain.numa,
        policy=plain.policy,
        costs=plain.costs,
        partitions=plain.partitions,
        farthest=farthest or "?",
        near=near if wants_nic else (),
        same_numa=same_numa,
        models=models,
        model=model,
    )
    of_plain = table_of(plain).device_class
    device_class = DeviceClass(
        models,
        of_plain.numa,
        of_plain.links,
        of_plain.policy,
        nic_links=tuple((Link.parse("SYS"), Link.parse(each)) for each in distances),
        costs=of_plain.costs,
        partitions=of_plain.partitions,
        nics=("nic-b", "nic-a"),
    )
    return oracle, DeviceTable.build(device_class), limits


@settings(max_examples=60, deadline=None)
@given(limited())
def test_choices_and_offers_within_limits_are_optimal(case: tuple[Limited, DeviceTable, Limits]) -> None:
    oracle, table, limits = case
    for free in range(1 << len(oracle.gpus)):
        gpus = members(free)
        for k in range(1, 4):
            choice = table.choose(free, k, limits)
            assert (choice and members(choice.mask)) == (oracle.best_one(gpus) if k == 1 else oracle.best(gpus, k))
            check(oracle, table.offer(free, k, limits), gpus, k)


@settings(max_examples=30, deadline=None)
@given(limited())
def test_one_pod_of_an_offer_is_the_choice(case: tuple[Limited, DeviceTable, Limits]) -> None:
    oracle, table, limits = case
    for free in range(1, 1 << len(oracle.gpus)):
        for k in range(1, 7):
            choice, offer = table.choose(free, k, limits), table.offer(free, k, limits)
            assert (choice is None) == (offer.slots == 0)
            if choice:
                assert offer.pick(1) == (choice.mask,)
                assert offer.at[0][0] == round(1000 * choice.ring_gbps)

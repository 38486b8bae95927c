"""Hard limits of a job inside one machine, by example."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from pyscheduler.core.job import NO_LIMITS, UNKNOWN_MODEL, Limits
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Link

# Six cards on two sockets, one bridge on each; the second half is of another model, and one card is not known.
MODELS = ("Card A", "Card A", "Card A", "Card B", "Card B", None)
LINKS = {
    **dict.fromkeys(combinations(range(6), 2), "SYS"),
    **dict.fromkeys([(0, 2), (1, 2), (3, 5), (4, 5)], "PHB"),
    (0, 1): "NV4",
    (3, 4): "NV4",
}
NIC_LINKS = (("PIX", "SYS"), ("PXB", "SYS"), ("PXB", "SYS"), ("SYS", "NODE"), ("SYS", "NODE"), ("?", "?"))
MACHINE = replace(
    DeviceClass.of(MODELS, (0, 0, 0, 1, 1, 1), LINKS),
    nic_links=tuple(tuple(map(Link.parse, row)) for row in NIC_LINKS),
    nics=("NIC0", "NIC1"),
    nic_names=("mlx5_2", None),
)
TABLE = DeviceTable.build(MACHINE)
ALL = 0b111111


def chosen(k: int, limits: Limits, free: int = ALL, healthy: int | None = None, table: DeviceTable = TABLE) -> set[int] | None:
    choice = table.choose(free, k, limits, healthy)
    return {gpu for gpu in range(8) if choice.mask >> gpu & 1} if choice else None


@pytest.mark.parametrize(
    ("k", "worst", "gpus"),
    [
        (2, "NV1", {0, 1}),
        # Two links are worse than the four that are asked for.
        (2, "NV6", None),
        (2, "XGMI", {0, 1}),
        (3, "NV1", None),
        (3, "PIX", None),
        (3, "SYS", {0, 1, 2}),
        (3, "?", {0, 1, 2}),
    ],
)
def test_no_pair_is_worse_than_the_limit(k: int, worst: str, gpus: set[int] | None) -> None:
    assert chosen(k, Limits(max_link=Link.parse(worst))) == gpus


def test_an_unknown_link_is_worse_than_every_known_one() -> None:
    table = DeviceTable.build(DeviceClass.of([None] * 3, [0] * 3, {(1, 2): "SYS"}))
    assert chosen(2, Limits(max_link=Link.parse("SYS")), 0b111, table=table) == {1, 2}
    assert chosen(3, Limits(max_link=Link.parse("SYS")), 0b111, table=table) is None


@pytest.mark.parametrize(
    ("k", "nic", "free", "gpus"),
    [
        (1, "NIC0", ALL, {0}),
        (1, "mlx5_2", ALL, {0}),
        (1, "NIC1", ALL, {3}),
        (2, "NIC0", ALL, {0, 1}),
        (2, "NIC1", ALL, {3, 4}),
        # The nearest card is busy: that is no reason to take a farther one.
        (2, "NIC0", 0b111110, None),
        (2, "NIC1", 0b110111, {4, 5}),
    ],
)
def test_the_set_holds_a_card_that_is_nearest_to_the_nic(k: int, nic: str, free: int, gpus: set[int] | None) -> None:
    assert chosen(k, Limits(near_nic=nic), free) == gpus


def test_nearest_is_nearest_of_the_healthy_cards() -> None:
    limits = Limits(near_nic="NIC0")
    assert chosen(1, limits, 0b111110, healthy=0b111110) == {1}
    assert chosen(1, limits, 0b111000, healthy=0b111110) is None
    assert not TABLE.knows_nic(limits, healthy=0b100000)


def test_a_nic_that_is_not_known_asks_for_nothing_and_says_so() -> None:
    limits = Limits(near_nic="NIC7")
    assert not TABLE.knows_nic(limits)
    assert chosen(2, limits) == {0, 1}
    assert TABLE.knows_nic(Limits(near_nic="mlx5_2"))
    assert TABLE.knows_nic(NO_LIMITS)


def test_all_on_one_numa_node() -> None:
    assert chosen(3, Limits(same_numa=True), 0b111011) == {3, 4, 5}
    assert chosen(4, Limits(same_numa=True)) is None
    assert chosen(2, Limits(same_numa=True), 0b001001) is None


def test_cards_of_unknown_numa_node_are_not_known_to_be_on_one() -> None:
    table = DeviceTable.build(replace(MACHINE, numa=(None, None, None, 1, 1, 1)))
    assert chosen(2, Limits(same_numa=True), 0b000111, table=table) is None
    assert chosen(1, Limits(same_numa=True), 0b000111, table=table) == {2}


@pytest.mark.parametrize(
    ("model", "k", "gpus"),
    [("Card A", 3, {0, 1, 2}), ("Card B", 2, {3, 4}), ("Card B", 3, None), (UNKNOWN_MODEL, 1, {5}), ("Card C", 1, None)],
)
def test_all_of_one_model(model: str, k: int, gpus: set[int] | None) -> None:
    assert chosen(k, Limits(model=model)) == gpus


def test_limits_hold_together() -> None:
    limits = Limits(max_link=Link.parse("PHB"), near_nic="NIC1", same_numa=True, model="Card B")
    assert chosen(2, limits) == {3, 4}
    assert chosen(2, replace(limits, near_nic="NIC0")) is None
    assert TABLE.offer(ALL, 1, limits).at == ((0, 2),)


def test_partitions_are_the_only_sets() -> None:
    quads = DeviceTable.build(replace(MACHINE, partitions=(0b101, 0b011010, 0b111111, 0b000010)))
    assert chosen(1, NO_LIMITS, table=quads) == {1}
    assert chosen(2, NO_LIMITS, table=quads) == {0, 2}
    assert chosen(3, NO_LIMITS, table=quads) == {1, 3, 4}
    assert chosen(4, NO_LIMITS, table=quads) is None
    assert chosen(2, NO_LIMITS, 0b111110, table=quads) is None


def test_equal_limits_share_one_answer() -> None:
    first = TABLE.choose(ALL, 2, Limits(same_numa=True))
    assert TABLE.choose(ALL, 2, Limits(same_numa=True)) is first
    assert TABLE.offer(ALL, 2, Limits(same_numa=True)) is TABLE.offer(ALL, 2, Limits(same_numa=True))

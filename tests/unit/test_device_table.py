"""The choice of GPUs inside one machine, by example."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import combinations
from statistics import median
from typing import Any

import pytest

from deploy.local import machines
from pyscheduler.core.machine.device_table import Choice, DeviceClass, DeviceTable, TooManyGpusError, class_hash


def device_class(machine: str, policy: str | None = None) -> DeviceClass:
    gpus, links = (machines.document(machine, "n1")[key] for key in ("gpus", "links"))
    index = {gpu["id"]: gpu["index"] for gpu in gpus}
    return DeviceClass.of(
        [gpu["model"] for gpu in gpus],
        [gpu["numa"] for gpu in gpus],
        {(index[link["a"]], index[link["b"]]): link["type"] for link in links},
        policy,
    )


@cache
def table(machine: str, policy: str | None = None) -> DeviceTable:
    return DeviceTable.build(device_class(machine, policy))


def mask(gpus: Iterable[int]) -> int:
    return sum(1 << gpu for gpu in gpus)


def members(choice: Choice | None) -> set[int] | None:
    return {gpu for gpu in range(16) if choice.mask >> gpu & 1} if choice else None


def choose(machine: str, free: Iterable[int], k: int) -> Choice:
    choice = table(machine).choose(mask(free), k)
    assert choice is not None
    return choice


EIGHT = range(8)


@pytest.mark.parametrize(
    ("machine", "free", "k", "expected"),
    [
        # The three promises of the demo.
        ("dgx-1v", [0, 4, 5, 6, 7], 4, {4, 5, 6, 7}),
        ("dgx-1v", [0, 4, 5, 6], 2, {5, 6}),
        ("a100-pcie-bridged", [0, 1, 2, 3], 2, {0, 1}),
        ("a100-pcie-bridged", [1, 2, 3], 2, {2, 3}),
        # Cases of NVIDIA's go-gpuallocator.
        ("dgx-1v", [0, 1, 3], 2, {0, 3}),
        ("dgx-1v", [0, 1, 4], 2, {0, 4}),
        ("dgx-1v", EIGHT, 4, {0, 1, 2, 3}),
        ("dgx-1v", [4, 5, 6, 7], 4, {4, 5, 6, 7}),
        ("dgx-1v", EIGHT, 8, set(EIGHT)),
        # There it takes {4, 5}, which leaves {0, 2} linked: 20 GB/s. The pair that runs at 40 comes first here.
        ("dgx-1v", [0, 2, 4, 5], 2, {0, 4}),
        # A lone GPU is taken before half a bridge, and half a bridge before a whole one.
        ("a100-pcie-bridged", [0, 1, 2], 1, {2}),
        ("a6000x8-bridged", [0, 1, 3, 4, 5, 6], 1, {3}),
        ("a6000x8-bridged", [1, 2, 3, 4, 5, 6], 2, {2, 3}),
        ("rtx-4090x8", [0, 3, 4, 5, 6], 2, {0, 3}),
        ("rtx-4090x8", [0, 1, 2, 5, 6, 7], 3, {0, 1, 2}),
        ("mi250x", EIGHT, 2, {0, 1}),
        ("mi250x", [0, 2, 3, 5, 6], 2, {2, 3}),
        ("mi250x", [0, 2, 4, 5, 7], 2, {4, 5}),
        ("mi210x4", [0, 2, 3], 2, {2, 3}),
        ("dgx-2", range(3, 16), 8, set(range(8, 16))),
    ],
)
def test_chooses(machine: str, free: Iterable[int], k: int, expected: set[int]) -> None:
    assert members(choose(machine, free, k)) == expected


@pytest.mark.parametrize(
    ("machine", "sizes", "expected"),
    [
        # NVIDIA's allocator fills its DGX-1V with the same pairs, in another order.
        ("dgx-1v", [2, 2, 2, 2], [{0, 3}, {1, 2}, {4, 7}, {5, 6}]),
        ("hgx-h100", [1, 1, 2, 4], [{0}, {1}, {2, 3}, {4, 5, 6, 7}]),
        ("hgx-a100", [2, 1, 4, 1], [{0, 1}, {2}, {4, 5, 6, 7}, {3}]),
        ("rtx-4090x8", [1, 1, 1, 4, 1], [{0}, {1}, {2}, {4, 5, 6, 7}, {3}]),
        ("dgx-2", [2, 8, 4, 2], [{0, 1}, {8, 9, 10, 11, 12, 13, 14, 15}, {2, 3, 4, 5}, {6, 7}]),
    ],
)
def test_leaves_the_rest_whole(machine: str, sizes: list[int], expected: list[set[int]]) -> None:
    free = (1 << table(machine).device_class.gpus) - 1
    chosen = []
    for k in sizes:
        choice = table(machine).choose(free, k)
        assert choice is not None
        chosen.append(members(choice))
        free ^= choice.mask
    assert chosen == expected


@pytest.mark.parametrize(
    ("k", "best", "middle", "without_nvlink_ring"),
    [
        (2, 40, 20, 12),
        (3, 40, 10, 48),
        (4, 80, 10, 62),
        (5, 40, 10, 32),
        (6, 80, 40, 0),
        (7, 80, 80, 0),
        (8, 120, 120, 0),
    ],
)
def test_ring_bandwidth_on_dgx_1v(k: int, best: int, middle: int, without_nvlink_ring: int) -> None:
    choices = [choose("dgx-1v", gpus, k) for gpus in combinations(EIGHT, k)]
    rings = [choice.ring_gbps for choice in choices]
    assert (max(rings), median(rings), rings.count(10.0)) == (best, middle, without_nvlink_ring)
    assert [choice.model for choice in choices].count("bottleneck-ring") == without_nvlink_ring


@pytest.mark.parametrize(
    ("machine", "free", "k", "ring", "pair_sum", "numa_nodes", "bottleneck", "model"),
    [
        ("dgx-1v", [4, 5, 6, 7], 4, 80.0, 180.0, 1, "NV1", "ring-packing"),
        ("dgx-1v", [0, 5], 2, 10.0, 10.0, 2, "SYS", "bottleneck-ring"),
        ("dgx-1v", [3], 1, 0.0, 0.0, 1, None, "single"),
        # A port of an NVSwitch is shared by all peers: 18 links of 20.6 GB/s whatever the number.
        ("hgx-h100", [0, 7], 2, 370.8, 370.8, 2, "NV18", "ring-packing"),
        ("hgx-h100", EIGHT, 8, 370.8, 28 * 370.8, 2, "NV18", "ring-packing"),
        ("dgx-2", range(16), 16, 120.0, 14400.0, 2, "NV6", "bottleneck-ring"),
        # Three direct links a GPU, all in use.
        ("mi210x4", range(4), 4, 150.0, 300.0, 2, "XGMI1", "ring-packing"),
        ("a100-pcie-bridged", range(4), 4, 16.0, 544.0, 2, "SYS", "bottleneck-ring"),
    ],
)
def test_describes_the_set(
    machine: str,
    free: Iterable[int],
    k: int,
    ring: float,
    pair_sum: float,
    numa_nodes: int,
    bottleneck: str | None,
    model: str,
) -> None:
    choice = choose(machine, free, k)
    assert choice.ring_gbps == ring
    assert choice.pair_sum_gbps == pytest.approx(pair_sum)
    assert (choice.numa_nodes, choice.bottleneck, choice.model) == (numa_nodes, bottleneck, model)


def test_keys_order_the_machines() -> None:
    by_key = sorted(machines.NAMES, key=lambda machine: choose(machine, range(4), 4).key)
    assert by_key == [
        "hgx-h100",
        "hgx-a100",
        "mi210x4",
        "dgx-2",
        "dgx-1v",
        "mi250x",
        "rtx-4090x8",
        "a6000x8-bridged",
        "a100-pcie-bridged",
    ]


def test_one_gpu_is_taken_where_links_are_weakest() -> None:
    by_key = sorted(machines.NAMES, key=lambda machine: choose(machine, range(4), 1).key)
    assert (by_key[0], by_key[-1]) == ("rtx-4090x8", "hgx-h100")
    assert choose("hgx-h100", [2], 1).key < choose("rtx-4090x8", range(2), 1).key


def test_bandwidth_does_not_come_from_the_number_of_gpus_alone() -> None:
    """One GPU without NVLink on a switch machine: sets with it run over PCIe, all others at the full port."""
    links = {pair: "NODE" if 2 in pair else "NV18" for pair in combinations(EIGHT, 2)}
    broken = DeviceTable.build(DeviceClass.of(["NVIDIA H100 80GB HBM3"] * 8, [0] * 4 + [1] * 4, links))
    seven, eight = broken.choose(255, 7), broken.choose(255, 8)
    assert seven is not None
    assert eight is not None
    assert (members(seven), seven.ring_gbps) == ({0, 1, 3, 4, 5, 6, 7}, 370.8)
    assert (eight.ring_gbps, eight.bottleneck) == (32.4, "NODE")
    assert members(broken.choose(255, 1)) == {2}


def test_the_slower_gpu_sets_the_pace_of_a_pair() -> None:
    mixed = DeviceTable.build(DeviceClass.of(["NVIDIA B200", "NVIDIA RTX A6000"], [0, 0], {(0, 1): "NV4"}))
    choice = mixed.choose(0b11, 2)
    assert choice is not None
    assert choice.ring_gbps == 48.0


def test_unknown_links_promise_nothing_and_lowest_indices_come_first() -> None:
    unknown = DeviceTable.build(DeviceClass.of([None] * 8, [None] * 8, {}))
    choice = unknown.choose(0b11111110, 2)
    assert choice is not None
    assert (members(choice), choice.ring_gbps, choice.bottleneck) == ({2, 3}, 0.0, "?")


@pytest.mark.parametrize(
    ("machine", "policy", "free", "k", "expected"),
    [
        ("dgx-1v", "single-numa-node", [0, 4, 5, 7], 2, {4, 7}),
        ("dgx-1v", "single-numa-node", [0, 4], 2, None),
        ("dgx-1v", "single-numa-node", EIGHT, 5, None),
        ("dgx-1v", "restricted", [0, 4], 2, None),
        ("dgx-1v", "restricted", EIGHT, 5, {0, 2, 3, 4, 7}),
        ("dgx-1v", "best-effort", [0, 4], 2, {0, 4}),
        # Two NUMA nodes are the least for four GPUs where each node has two.
        ("hgx-a100", "restricted", [0, 2, 4, 6], 4, None),
        ("hgx-a100", "restricted", [0, 2, 3, 4, 5], 4, {2, 3, 4, 5}),
        ("hgx-a100", "single-numa-node", [0, 2], 1, {0}),
    ],
)
def test_topology_policy(machine: str, policy: str, free: Iterable[int], k: int, expected: set[int] | None) -> None:
    assert members(table(machine, policy).choose(mask(free), k)) == expected


def test_topology_policy_needs_every_numa_node() -> None:
    links = {(0, 1): "NV1"}
    strict = DeviceTable.build(DeviceClass.of([None] * 2, [0, None], links, "single-numa-node"))
    assert members(strict.choose(0b11, 2)) == {0, 1}


@pytest.mark.parametrize(("free", "k"), [(0, 1), (0b1, 2), (0b11111111, 9), (0b11111111, 100), (1 << 8, 1)])
def test_too_few_free_gpus_is_none(free: int, k: int) -> None:
    assert table("dgx-1v").choose(free, k) is None


def test_bits_beyond_the_machine_are_ignored() -> None:
    assert members(table("dgx-1v").choose(mask([0, 5, 9]), 2)) == {0, 5}


@pytest.mark.parametrize("k", [0, -1])
def test_a_request_for_no_gpu_is_a_mistake(k: int) -> None:
    with pytest.raises(ValueError, match="ask for at least 1"):
        table("dgx-1v").choose(255, k)


def test_equal_queries_share_one_answer() -> None:
    assert table("dgx-1v").choose(255, 3) is table("dgx-1v").choose(255, 3)


def test_more_gpus_than_any_machine_has_are_refused() -> None:
    with pytest.raises(TooManyGpusError, match=r"129 GPUs.*up to 128: place by count") as refused:
        DeviceTable.build(DeviceClass.of([None] * 129, [None] * 129, {}))
    assert refused.value.gpus == 129


@pytest.mark.parametrize("gpus", [0, 1])
def test_machines_without_pairs(gpus: int) -> None:
    lonely = DeviceTable.build(DeviceClass.of([None] * gpus, [0] * gpus, {}))
    assert members(lonely.choose(1, 1)) == ({0} if gpus else None)


def test_a_class_is_checked() -> None:
    with pytest.raises(ValueError, match="3 GPUs need as many NUMA nodes and 3 links, not 2 and 3"):
        DeviceClass.of([None] * 3, [0, 0], {})
    with pytest.raises(ValueError, match="best_effort"):
        DeviceClass.of([None], [0], {}, "best_effort")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"costs": (15,) * 27}, "28 pairs need as many costs of at least 1, not 27"),
        ({"costs": (0,) * 28}, "costs of at least 1"),
        ({"partitions": (0,)}, "at least one of the 8 GPUs"),
        ({"partitions": (1 << 8,)}, "at least one of the 8 GPUs, and no other"),
    ],
)
def test_costs_and_partitions_of_a_class_are_checked(change: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        replace(device_class("dgx-1v"), **change)


def test_hash_follows_what_decides() -> None:
    base = device_class("dgx-1v")
    assert class_hash(base) == class_hash(device_class("dgx-1v", "best-effort")) == table("dgx-1v").class_hash
    others = [
        device_class("dgx-1v", "restricted"),
        device_class("dgx-1v", "single-numa-node"),
        DeviceClass(("V100",) * 8, base.numa, base.links),
        DeviceClass(base.models, (None, *base.numa[1:]), base.links),
        DeviceClass(base.models, base.numa, base.links[::-1]),
        replace(base, costs=(15,) * 28),
        replace(base, costs=(None, *(15,) * 27)),
        replace(base, partitions=(0b1111, 0b11110000)),
        replace(base, nics=("nic-0", "nic-1")),
        replace(base, nic_names=("rail-0", None)),
        *(device_class(machine) for machine in machines.NAMES),
    ]
    assert len({class_hash(other) for other in others}) == len(others)


def test_describes_any_set() -> None:
    chosen = table("dgx-1v").choose(mask([4, 5, 6, 7]), 4)
    assert chosen is not None
    assert table("dgx-1v").describe(chosen.mask) == chosen
    assert table("dgx-1v").describe(mask([0, 5])).ring_gbps == 10.0
    assert table("dgx-1v").describe(mask([5])).model == "single"


@pytest.mark.parametrize(
    ("machine", "gpus", "note"),
    [
        ("mi300x", 4, "4 of 8 GPUs of a fully meshed machine use only 6 of its 28 links"),
        ("mi300x", 7, "7 of 8 GPUs of a fully meshed machine use only 21 of its 28 links"),
        ("mi300x", 8, None),
        ("mi300x", 1, None),
        ("hgx-h100", 4, None),
        ("mi250x", 4, None),
        ("mi210x4", 2, None),
    ],
)
def test_a_part_of_a_full_mesh_is_noted(machine: str, gpus: int, note: str | None) -> None:
    mesh = DeviceClass.of(["AMD Instinct MI300X"] * 8, [None] * 8, dict.fromkeys(combinations(EIGHT, 2), "XGMI"))
    kind = mesh if machine == "mi300x" else device_class(machine)
    told = DeviceTable.build(kind).partial_set_note((1 << gpus) - 1)
    assert (told or "").startswith(note or "")
    assert (told is None) == (note is None)


def test_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(table("mi250x")))  # noqa: S301 (our own bytes)
    assert [copy.choose(free, k) for free in range(256) for k in range(1, 9)] == [
        table("mi250x").choose(free, k) for free in range(256) for k in range(1, 9)
    ]


def every_answer() -> str:
    answers = [table("dgx-1v").choose(free, k) for free in range(256) for k in range(1, 9)]
    return f"{table('dgx-1v').class_hash} {answers}"


def test_same_answers_in_every_process() -> None:
    child = subprocess.run(
        [sys.executable, "-c", "from tests.unit.test_device_table import every_answer; print(every_answer())"],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    assert child.stdout == f"{every_answer()}\n"

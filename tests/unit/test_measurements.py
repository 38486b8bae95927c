"""What was measured against what link types say: what counts, how it fades, and what it reveals."""

from __future__ import annotations

import json
import math
import random
from itertools import combinations

import pytest

from deploy.local import machines
from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.classify import class_of, classify
from pyscheduler.core.machine.device_class import DeviceClass, default_speeds
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.document import Gpu, Measured, NodeDocument
from pyscheduler.core.machine.links import Link
from pyscheduler.core.machine.weights import Override, Weights
from pyscheduler.readers import node_document

DAY = 86400.0
NOW = 1_800_000_000.0
HALF_LIFE = Weights().half_life_s
# A measured speed is kept in eighths of a doubling: at most half of one is lost.
STEP = 2 ** (1 / 16)
PAIRS = list(combinations(range(4), 2))


def box(links: dict[tuple[int, int], str], *measured: Measured, models: tuple[str | None, ...] = (None,) * 4) -> NodeDocument:
    """A machine of four cards; PCIe paths between cards that are not known count 12 (PIX) to 10 (SYS) GB/s."""
    gpus = tuple(Gpu(f"GPU{i}", model=model) for i, model in enumerate(models))
    return NodeDocument(gpus, links={pair: Link.parse(kind) for pair, kind in links.items()}, measured=measured)


def pair(a: int, b: int, gbps: float, observed_at: float | None = NOW, tool: str = "p2p-bandwidth", nodes: int = 1) -> Measured:
    return Measured(tool, gbps, (f"GPU{a}", f"GPU{b}"), observed_at=observed_at, nodes=nodes)


def whole(gbps: float, gpus: int = 4, observed_at: float | None = NOW, tool: str = "nccl-tests", nodes: int = 1) -> Measured:
    return Measured(tool, gbps, tuple(f"GPU{i}" for i in range(gpus)), observed_at=observed_at, nodes=nodes)


def classified(
    document: NodeDocument, now: float = NOW, weights: Weights | None = None
) -> tuple[DeviceClass, tuple[Finding, ...]]:
    return classify(document, class_of(document), weights or Weights(), now)


def speeds(document: NodeDocument, now: float = NOW) -> dict[tuple[int, int], float]:
    """GB/s of each pair."""
    found, _ = classified(document, now)
    return {p: speed / 1000 for p, speed in zip(PAIRS, found.speeds or default_speeds(found), strict=True)}


def codes(document: NodeDocument, now: float = NOW) -> list[str]:
    return [finding.code for finding in classified(document, now)[1]]


def near(gbps: float) -> object:
    return pytest.approx(gbps, rel=STEP - 1)


ALL_SYS = dict.fromkeys(PAIRS, "SYS")
NV4_RING = {**ALL_SYS, (0, 1): "NV4", (1, 2): "NV4", (2, 3): "NV4", (0, 3): "NV4"}


def test_with_three_measured_pairs_their_median_counts_for_all_pairs_of_the_type() -> None:
    found = speeds(box(NV4_RING, pair(0, 1, 50.0), pair(1, 2, 52.0), pair(2, 3, 64.0)))
    assert {found[0, 1], found[1, 2], found[2, 3], found[0, 3]} == {found[0, 1]}
    assert found[0, 3] == near(52.0)
    assert found[0, 2] == found[1, 3] == 10.0


def test_what_was_measured_is_kept_in_eighths_of_a_doubling() -> None:
    for gbps in (9.0, 11.3, 13.37, 20.0):
        found = speeds(box(ALL_SYS, *(pair(a, b, gbps) for a, b in PAIRS)))
        eighths = 8 * math.log2(1000 * found[0, 1])
        assert eighths == pytest.approx(round(eighths), abs=0.01)
        assert found[0, 1] == near(gbps)


def test_pair_far_below_the_others_of_its_type_ranks_by_its_own_figure_and_is_told_once() -> None:
    document = box(NV4_RING, pair(0, 1, 80.0), pair(1, 2, 81.0), pair(2, 3, 82.0), pair(3, 0, 20.0))
    found, told = classified(document)
    assert speeds(document)[0, 3] == near(20.0)
    assert speeds(document)[0, 1] == near(80.5)
    assert [finding.code for finding in told] == ["link-slow"]
    assert "GPU3-GPU0 (NV4)" in told[0].message
    assert found.links == class_of(document).links


@pytest.mark.parametrize(("gbps", "slow"), [(69.0, True), (71.0, False)])
def test_pair_is_slow_below_seven_tenths_of_what_is_usual(gbps: float, slow: bool) -> None:
    document = box(NV4_RING, pair(0, 1, 100.0), pair(1, 2, 100.0), pair(2, 3, 100.0), pair(0, 3, gbps))
    assert codes(document) == ["link-slow"] * slow
    assert (speeds(document)[0, 3] < speeds(document)[0, 1]) is slow


def test_fewer_than_three_measured_pairs_count_each_for_itself() -> None:
    found = speeds(box(NV4_RING, pair(0, 1, 60.0), pair(1, 2, 70.0)))
    assert found[0, 1] == near(60.0)
    assert found[1, 2] == near(70.0)
    # Four links of 20 GB/s, as for any card that is not known.
    assert found[2, 3] == found[0, 3] == 80.0
    assert codes(box(NV4_RING, pair(0, 1, 60.0), pair(1, 2, 70.0))) == []


@pytest.mark.parametrize(("gbps", "told"), [(39.0, ["link-slow"]), (41.0, [])])
def test_lone_measurement_is_told_below_half_of_the_default(gbps: float, told: list[str]) -> None:
    assert codes(box(NV4_RING, pair(0, 1, gbps))) == told


def test_types_are_compared_with_their_own_kind() -> None:
    links = {**ALL_SYS, (0, 1): "PIX", (2, 3): "PIX"}
    measured = [pair(a, b, 24.0 if links[a, b] == "PIX" else 10.0) for a, b in PAIRS]
    assert codes(box(links, *measured)) == []
    assert speeds(box(links, *measured))[0, 1] == near(24.0)


def test_cards_of_two_generations_in_one_machine_are_not_compared() -> None:
    models = ("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-16GB", "NVIDIA H100 PCIe", "NVIDIA H100 PCIe", "NVIDIA H100 PCIe")
    gpus = tuple(Gpu(f"GPU{i}", model=model) for i, model in enumerate(models))
    links = dict.fromkeys(combinations(range(5), 2), Link.parse("PIX"))
    measured = (pair(0, 1, 11.0), pair(2, 3, 40.0), pair(2, 4, 41.0), pair(3, 4, 42.0))
    found, told = classified(NodeDocument(gpus, links=links, measured=measured))
    by_pair = dict(zip(combinations(range(5), 2), found.speeds, strict=True))
    assert told == ()
    assert by_pair[0, 1] == near(11_000)
    assert by_pair[3, 4] == near(41_000)
    assert by_pair[0, 2] == 12_000


@pytest.mark.parametrize("half_lives", [0.0, 0.5, 1.0, 2.0, 3.9])
def test_measurement_fades_towards_the_default_by_half_in_each_half_life(half_lives: float) -> None:
    document = box(ALL_SYS, *(pair(a, b, 20.0) for a, b in PAIRS))
    left = 0.5**half_lives
    expected = 20.0**left * 10.0 ** (1 - left)
    assert speeds(document, NOW + half_lives * HALF_LIFE)[0, 1] == near(expected)


def test_after_one_half_life_the_geometric_mean_counts() -> None:
    document = box(ALL_SYS, *(pair(a, b, 40.0) for a, b in PAIRS))
    assert speeds(document, NOW + HALF_LIFE)[2, 3] == near(math.sqrt(40.0 * 10.0))


def test_after_more_than_four_half_lives_nothing_is_left_of_a_measurement() -> None:
    document = box(NV4_RING, whole(70.0), pair(0, 1, 5.0), pair(1, 2, 900.0))
    found, told = classified(document, NOW + 4.1 * HALF_LIFE)
    assert found == class_of(document)
    assert told == ()


@pytest.mark.parametrize("observed_at", [None, NOW + 1000 * DAY])
def test_measurement_of_an_unknown_time_or_of_the_future_counts_as_new(observed_at: float | None) -> None:
    assert speeds(box(ALL_SYS, *(pair(a, b, 20.0, observed_at) for a, b in PAIRS)))[0, 1] == near(20.0)


def test_newest_measurement_of_a_pair_counts() -> None:
    document = box(NV4_RING, pair(0, 1, 70.0), pair(1, 0, 30.0, NOW - DAY), pair(0, 1, 20.0, NOW - 2 * DAY))
    assert speeds(document)[0, 1] == near(70.0)
    assert codes(document) == []


def test_forgotten_measurement_does_not_hide_a_newer_one() -> None:
    document = box(NV4_RING, pair(0, 1, 10.0, NOW - 1000 * DAY), pair(0, 1, 70.0))
    assert speeds(document)[0, 1] == near(70.0)


def test_noise_makes_few_classes() -> None:
    """Benchmarks differ by some percent from run to run: machines of one kind must not each need a table of its own."""
    noise = random.Random(5)
    kinds = {**ALL_SYS, (0, 1): "NV4", (1, 2): "NV4", (2, 3): "NV4", (0, 3): "NV4"}
    nominal = {"NV4": 73.0, "SYS": 9.4}
    found = set()
    for _ in range(300):
        measured = [pair(a, b, nominal[kinds[a, b]] * noise.uniform(0.97, 1.03)) for a, b in PAIRS]
        # Two pairs of SYS count each for itself; NV4 has one median.
        kind, told = classified(box(kinds, *measured))
        assert told == ()
        found.add(kind)
    assert len(found) <= 2 ** (1 + 2)


def test_noise_of_a_whole_board_makes_two_classes_at_most() -> None:
    noise = random.Random(6)
    board = node_document.parse(json.dumps(machines.document("hgx-h100", "n1")))
    found = set()
    for _ in range(200):
        measured = tuple(pair(a, b, 372.0 * noise.uniform(0.97, 1.03)) for a, b in combinations(range(8), 2))
        kind, told = classify(NodeDocument(board.gpus, links=board.links, measured=measured), class_of(board), Weights(), NOW)
        assert told == ()
        found.add(kind.speeds)
    assert len(found) <= 2


@pytest.mark.parametrize("gbps", [81.0, 5000.0, 1.7e308])
def test_figure_that_no_such_link_can_have_is_told_and_not_used(gbps: float) -> None:
    document = box(ALL_SYS, pair(0, 1, gbps))
    assert classified(document)[0] == class_of(document)
    assert codes(document) == ["measurement-implausible"]
    assert len(classified(document)[1][0].message) < 200


def test_measurement_of_an_unknown_link_is_told_and_makes_no_link_of_it() -> None:
    document = box({**ALL_SYS, (0, 1): "?"}, pair(0, 1, 20.0))
    assert speeds(document)[0, 1] == 0
    assert codes(document) == ["measurement-implausible"]


def test_figure_near_zero_is_a_slow_link_and_not_none() -> None:
    document = box(ALL_SYS, pair(0, 1, 5e-324))
    assert codes(document) == ["link-slow"]
    assert 0 < speeds(document)[0, 1] < 0.01


def test_figure_configured_near_zero_is_a_slow_link_and_not_none() -> None:
    document = box(ALL_SYS, *(pair(a, b, 1e-6) for a, b in PAIRS))
    found, _ = classified(document, weights=Weights(overrides=(Override("SYS", 1e-7),)))
    assert set(found.speeds) == {1}


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(pair(0, 1, 20.0, nodes=2), id="of two nodes"),
        pytest.param(Measured("p2p-bandwidth", 20.0, ("GPU0",)), id="of one GPU"),
        pytest.param(Measured("p2p-bandwidth", 20.0, ("GPU0", "GPU0")), id="of a GPU with itself"),
        pytest.param(Measured("p2p-bandwidth", 20.0, ("GPU0", "GPU7")), id="of a GPU that is not there"),
        pytest.param(Measured("nccl-tests", 20.0, ("GPU0", "GPU1", "GPU2")), id="of three GPUs"),
        pytest.param(Measured("ib-write-bw", 20.0, nic="NIC0", nodes=2), id="of a NIC"),
        pytest.param(whole(20.0, tool="p2p-bandwidth"), id="of all GPUs, by another tool"),
        pytest.param(whole(20.0, nodes=2), id="of all GPUs, over two nodes"),
    ],
)
def test_what_is_no_measurement_of_a_pair_or_of_the_whole_node_changes_nothing(result: Measured) -> None:
    document = box(ALL_SYS, result)
    assert classified(document) == (class_of(document), ())


def test_collective_over_all_gpus_scales_the_rings_and_leaves_the_order_of_sets() -> None:
    board = node_document.parse(json.dumps(machines.document("a6000x8-bridged", "n1")))
    measured = NodeDocument(board.gpus, links=board.links, measured=(whole(9.0, gpus=8),))
    kind, told = classify(measured, class_of(board), Weights(), NOW)
    before, after = DeviceTable.build(class_of(board)), DeviceTable.build(kind)
    assert told == ()
    all_before, all_after = before.choose(255, 8), after.choose(255, 8)
    assert all_before
    assert all_after
    assert all_after.ring_gbps == near(9.0)
    factor = all_after.ring_gbps / all_before.ring_gbps
    assert factor != pytest.approx(1, abs=0.05)
    for free in range(1, 256):
        for k in range(2, free.bit_count() + 1):
            old, new = before.choose(free, k), after.choose(free, k)
            assert old
            assert new
            assert new.mask == old.mask
            assert new.ring_gbps == pytest.approx(old.ring_gbps * factor, abs=0.002)


def test_collective_counts_while_at_least_half_of_it_is_left() -> None:
    document = box(ALL_SYS, whole(20.0))
    assert classified(document, NOW + 0.9 * HALF_LIFE)[0].ring_mbps == near(20_000)
    assert classified(document, NOW + 1.1 * HALF_LIFE)[0].ring_mbps is None


def test_newest_collective_counts() -> None:
    assert classified(box(ALL_SYS, whole(20.0), whole(11.0, observed_at=NOW - DAY)))[0].ring_mbps == near(20_000)


@pytest.mark.parametrize("gbps", [81.0, 1e300])
def test_collective_faster_than_the_links_can_be_is_told_and_not_used(gbps: float) -> None:
    document = box(ALL_SYS, whole(gbps))
    assert classified(document)[0] == class_of(document)
    assert codes(document) == ["measurement-implausible"]


def test_two_gpus_are_a_pair_and_no_collective() -> None:
    document = NodeDocument(
        (Gpu("GPU0"), Gpu("GPU1")), links={(0, 1): Link.parse("SYS")}, measured=(pair(0, 1, 20.0, tool="nccl-tests"),)
    )
    found, _ = classified(document)
    assert found.ring_mbps is None
    assert list(found.speeds) == [near(20_000)]


def test_slow_link_changes_the_choice() -> None:
    board = node_document.parse(json.dumps(machines.document("dgx-1v", "n1")))
    free = 0b0000_1001 | 0b0000_0110
    before = DeviceTable.build(class_of(board)).choose(free, 2)
    assert before
    a, b = (gpu for gpu in range(8) if before.mask >> gpu & 1)
    assert str(board.links[a, b]) == "NV2"
    document = NodeDocument(board.gpus, links=board.links, measured=(pair(a, b, 6.0),))
    kind, told = classify(document, class_of(board), Weights(), NOW)
    after = DeviceTable.build(kind).choose(free, 2)
    assert [finding.code for finding in told] == ["link-slow"]
    assert after
    assert after.mask != before.mask
    assert after.ring_gbps == pytest.approx(40.0)

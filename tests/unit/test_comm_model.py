"""The communication model against published measurements, and what it must know of layouts."""

from __future__ import annotations

import enum
import math
import statistics
from dataclasses import dataclass
from itertools import combinations

import pytest

from pyscheduler.core.comm_model import (
    INFINIBAND,
    ROCE,
    Bound,
    Collective,
    Layout,
    Links,
    Network,
    NodeShare,
    allreduce_gbps,
    predict,
    share,
)
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.links import Link, gbps

GB = 1e9
# No factor that was set from a multi-node measurement.
PLAIN = Network(crowd_efficiency=1.0)


class Use(enum.StrEnum):
    """What a published point was used for: constants (one node), a factor of `Network`, or nothing: held out."""

    CONSTANT = "constant"
    FACTOR = "factor"
    HELD_OUT = "held out"


@dataclass(frozen=True)
class Point:
    """A published all-reduce: `busbw` GB/s at `size` bytes, where and by whom."""

    system: str
    layout: Layout
    size: float
    busbw: float
    use: Use
    source: str
    network: Network = INFINIBAND


def node(model: str, gpus: int, nic: float = 50.0, *, shared: bool = False, domain: str | None = None) -> NodeShare:
    """A node of an NVSwitch machine by its nominal ring: all NVLinks of a GPU."""
    links = 12 if model == "A100" else 18
    ring = gbps(Link.parse(f"NV{links}"), model)
    return NodeShare(gpus, ring, nic, nic_shared=shared, links=Links.NVSWITCH, model=model, nvlink_domain=domain)


def nodes(model: str, *counts: int, nic: float = 50.0, shared: bool = False) -> Layout:
    return Layout(tuple(node(model, count, nic, shared=shared) for count in counts))


def racks(*counts: int) -> Layout:
    """GB200 racks by trays of four GPUs."""
    return Layout(tuple(node("GB200", 4, domain=f"rack-{at}") for at, gpus in enumerate(counts) for _ in range(gpus // 4)))


STAS = "stas00/ml-engineering"
COREWEAVE = "coreweave/nccl-tests README"
POINTS = [
    Point("A100, 8", nodes("A100", 8), 8 * GB, 231.6, Use.CONSTANT, "Azure ND_A100_v4"),
    Point("H100, 8", nodes("H100", 8), 8 * GB, 478.9, Use.CONSTANT, "Azure ND_H100_v5"),
    Point("H200, 4", nodes("H200", 4), 8.6 * GB, 363.3, Use.CONSTANT, STAS),
    Point("H200, 8", nodes("H200", 8), 17.2 * GB, 482.3, Use.CONSTANT, STAS),
    Point("B200, 4", nodes("B200", 4), 8.6 * GB, 673.2, Use.CONSTANT, STAS),
    Point("B200, 8", nodes("B200", 8), 8.6 * GB, 838.0, Use.CONSTANT, STAS),
    Point("H100, 4 x 8, RoCE", nodes("H100", *[8] * 4), 8 * GB, 320.0, Use.FACTOR, "nccl issue 1221", ROCE),
    Point("GB200, 20 x 72", racks(*[72] * 20), 17.2 * GB, 404.8, Use.FACTOR, COREWEAVE),
    Point("B200, 4 x 8, EFA", nodes("B200", *[8] * 4), 17.2 * GB, 381.8, Use.HELD_OUT, STAS),
    Point("H100, 8 x 8, NDR", nodes("H100", *[8] * 8), 8.6 * GB, 385.6, Use.HELD_OUT, COREWEAVE),
    Point("GB200, 72", racks(72), 8.6 * GB, 846.8, Use.HELD_OUT, COREWEAVE),
    Point("GB200, 2 x 72", racks(72, 72), 17.2 * GB, 820.4, Use.HELD_OUT, COREWEAVE),
    Point("A100, 2 x 4, 4 NICs", nodes("A100", 4, 4, nic=25.0), 8 * GB, 78.0, Use.HELD_OUT, "nccl-tests issue 277"),
    Point("A100, 2 x 4, 2 NICs", nodes("A100", 4, 4, nic=50.0, shared=True), 8 * GB, 45.0, Use.HELD_OUT, "nccl-tests issue 277"),
    Point(
        "A100, 2 x 8, 4 NICs", nodes("A100", 8, 8, nic=100.0, shared=True), 4.3 * GB, 86.0, Use.HELD_OUT, "nccl-tests issue 175"
    ),
    Point("H100, 4 x 8, IB", nodes("H100", *[8] * 4), 8.6 * GB, 330.9, Use.HELD_OUT, "aigatech/vpbenchmarking"),
]


def error(point: Point, network: Network | None = None) -> float:
    """Predicted over measured, less 1."""
    predicted = predict(point.layout, point.size, network=network or point.network)
    assert predicted is not None
    return predicted.busbw_gbps / point.busbw - 1


def busbw(layout: Layout, size: float = 8 * GB, collective: Collective = Collective.ALLREDUCE, network: Network = PLAIN) -> float:
    predicted = predict(layout, size, collective, network)
    assert predicted is not None
    return predicted.busbw_gbps


@pytest.mark.parametrize("point", [p for p in POINTS if p.use is Use.CONSTANT], ids=lambda p: p.system)
def test_constants_are_right_where_they_come_from(point: Point) -> None:
    assert error(point) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("point", [p for p in POINTS if p.use is Use.HELD_OUT], ids=lambda p: p.system)
def test_held_out_points_are_within_a_quarter(point: Point) -> None:
    assert error(point) == pytest.approx(0, abs=0.25)


def test_held_out_points_across_domains_are_within_a_tenth_by_median() -> None:
    errors = [abs(error(p)) for p in POINTS if p.use is Use.HELD_OUT and p.system != "GB200, 72"]
    assert len(errors) == 7
    assert statistics.median(errors) <= 0.10


@pytest.mark.parametrize(
    ("layout", "size", "measured"),
    [
        (nodes("H200", 8), 67.1e6, 346.5),
        (nodes("B200", *[8] * 4), 67.1e6, 156.7),
        (nodes("H100", *[8] * 8), 0.537 * GB, 356.0),
        (racks(72), 0.537 * GB, 586.1),
        (racks(72, 72), 0.537 * GB, 508.8),
        (racks(72, 72), 1.074 * GB, 597.6),
    ],
)
def test_medium_messages_are_within_a_third(layout: Layout, size: float, measured: float) -> None:
    # The same sources as `POINTS`; held out.
    assert busbw(layout, size) == pytest.approx(measured, rel=0.33)


def test_bandwidth_is_that_of_the_node_with_fewest_gpus() -> None:
    even, uneven = (busbw(nodes("H200", *counts)) for counts in ((8, 8), (8, 7, 1)))
    assert even / uneven == pytest.approx(8, rel=0.05)


def test_gpus_that_share_a_nic_do_not_multiply_it() -> None:
    one = busbw(nodes("H200", 1, 1, nic=12.5, shared=True))
    eight = busbw(nodes("H200", 8, 8, nic=12.5, shared=True))
    assert one == pytest.approx(eight, rel=0.02)


def test_trays_of_a_rack_are_one_domain_and_need_no_network() -> None:
    trays = Layout(tuple(NodeShare(4, 721.8, links=Links.NVSWITCH, model="GB200", nvlink_domain="rack") for _ in range(2)))
    assert busbw(trays) == pytest.approx(busbw(nodes("GB200", 8)))


def test_unequal_parts_of_racks_have_the_network_of_the_smallest() -> None:
    assert busbw(racks(72, 8, 64)) == pytest.approx(8 * 50 * 0.96, rel=0.05)
    assert busbw(racks(72, 72)) > 2 * busbw(racks(72, 8, 64))


def test_one_gpu_in_each_of_two_trays_talks_over_nvlink() -> None:
    pair = Layout(tuple(node("GB200", 1, domain="rack") for _ in range(2)))
    assert busbw(pair) > 600


@pytest.mark.parametrize(
    "layout",
    [
        Layout(()),
        nodes("H100", 1),
        Layout((NodeShare(2, 0.0),)),
        Layout((NodeShare(2, 100.0), NodeShare(2, 100.0, 25.0))),
        Layout((NodeShare(2, 0.0, 25.0), NodeShare(2, 100.0, 25.0))),
        Layout((node("GB200", 4, 0.0, domain="a"), node("GB200", 4, domain="a"), node("GB200", 8, domain="b"))),
    ],
    ids=["no GPU", "one GPU", "unknown links", "unknown NIC", "unknown links on one node", "unknown NIC in a rack"],
)
def test_nothing_is_predicted_without_what_it_takes(layout: Layout) -> None:
    assert predict(layout, GB) is None
    assert allreduce_gbps(layout) is None


def test_the_nic_of_a_single_node_does_not_matter() -> None:
    assert busbw(nodes("H100", 8, nic=0.0)) == busbw(nodes("H100", 8))


@pytest.mark.parametrize(
    ("counts", "size", "trusted"), [((8,), 1e6, True), ((8,), 0.9e6, False), ((8, 8), 16e6, True), ((8, 8), 15e6, False)]
)
def test_small_messages_are_not_trusted(counts: tuple[int, ...], size: float, trusted: bool) -> None:
    predicted = predict(nodes("H100", *counts), size)
    assert predicted is not None
    assert predicted.trusted is trusted


@pytest.mark.parametrize(
    ("layout", "size", "bound"),
    [
        (nodes("H100", 8), 8 * GB, Bound.LINKS),
        (nodes("H100", 8, 8), 8 * GB, Bound.NETWORK),
        (nodes("A100", 8, 8, nic=50.0), 8 * GB, Bound.LINKS),
        (nodes("H100", 8, 8), 1e4, Bound.LATENCY),
    ],
)
def test_it_says_what_bounds(layout: Layout, size: float, bound: Bound) -> None:
    predicted = predict(layout, size)
    assert predicted is not None
    assert predicted.bound_by is bound


def test_where_flows_are_limited_two_nodes_are_slower_than_three() -> None:
    limited = Network(efficiency=0.8, peer_gbps=0.625)
    two, three = (busbw(nodes("T4", *counts, nic=6.25, shared=True), network=limited) for counts in ((3, 3), (2, 2, 2)))
    assert three == pytest.approx(2 * two, rel=0.02)
    assert two == pytest.approx(0.625, rel=0.02)


def test_beyond_a_thousand_ranks_less_is_reached() -> None:
    many, more = nodes("H100", *[8] * 125), nodes("H100", *[8] * 126)
    assert busbw(more, 1e12, network=INFINIBAND) / busbw(many, 1e12, network=INFINIBAND) == pytest.approx(0.65, rel=0.01)


def test_oversubscription_divides_the_network() -> None:
    layout = nodes("H100", 8, 8)
    narrow = Layout(layout.shares, "core", 2, oversubscription=4.0)
    assert busbw(layout, 1e11) == pytest.approx(4 * busbw(narrow, 1e11), rel=0.01)


def test_allreduce_gbps_is_that_of_a_gibibyte() -> None:
    layout = nodes("H100", 8, 8)
    assert allreduce_gbps(layout) == busbw(layout, 2.0**30)


def test_a_chain_of_ten_nodes_uses_the_tree_for_medium_messages() -> None:
    # Ring: 2 * 70 * 6 + 2 * 9 * 14 us; tree: 2 * (7 + log2(10)) * 28 us, at 0.92 of the bandwidth.
    size, factor, rate = 20e6, 2 * 79 / 80, 8 * 50 * 0.96 * 1e9
    ring = 8.4e-6 + 1092e-6 + factor * size / rate
    tree = 8.4e-6 + 2 * (7 + math.log2(10)) * 28e-6 + factor * size / rate / 0.92
    predicted = predict(nodes("H100", *[8] * 10), size)
    assert predicted is not None
    assert tree < ring
    assert predicted.seconds == pytest.approx(tree)


def test_only_allreduce_gains_from_reductions_in_the_switch() -> None:
    layout = nodes("H100", 8)
    assert busbw(layout) == pytest.approx(478.9, rel=0.01)
    assert busbw(layout, collective=Collective.ALLGATHER) == pytest.approx(367.6, rel=0.01)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        (Collective.ALLREDUCE, 1.75),
        (Collective.ALLGATHER, 0.875),
        (Collective.REDUCESCATTER, 0.875),
        (Collective.ALLTOALL, 0.875),
        (Collective.BROADCAST, 1.0),
        (Collective.REDUCE, 1.0),
    ],
)
def test_bus_bandwidth_of_eight_ranks(collective: Collective, factor: float) -> None:
    predicted = predict(nodes("H100", 8), GB, collective)
    assert predicted is not None
    assert predicted.busbw_gbps * predicted.seconds == pytest.approx(factor)


def test_alltoall_sends_what_leaves_a_node_through_each_nic() -> None:
    # Of 8 GB per rank, 8 of 16 ranks are elsewhere: 4 GB through a NIC of 48 GB/s.
    predicted = predict(nodes("H100", 8, 8), 8 * GB, Collective.ALLTOALL)
    assert predicted is not None
    assert predicted.seconds == pytest.approx(4 / 48, rel=0.01)
    assert predicted.bound_by is Bound.NETWORK


def machine(model: str, gpus: int, link: str, ring_mbps: int | None = None) -> DeviceClass:
    links = tuple(Link.parse(link) for _ in combinations(range(gpus), 2))
    return DeviceClass((model,) * gpus, (0,) * gpus, links, ring_mbps=ring_mbps)


@pytest.mark.parametrize(
    ("kind", "mask", "links"),
    [
        (machine("NVIDIA H100 80GB HBM3", 8, "NV18"), 0b1111, Links.NVSWITCH),
        (machine("AMD Instinct MI300X", 8, "XGMI1"), 0b11111111, Links.DIRECT),
        (machine("NVIDIA L40S", 4, "PHB"), 0b1111, Links.PCIE),
        (DeviceClass.of(["A6000"] * 3, [0] * 3, {(0, 1): "NV4", (0, 2): "PHB", (1, 2): "PHB"}), 0b011, Links.DIRECT),
        (DeviceClass.of(["A6000"] * 3, [0] * 3, {(0, 1): "NV4", (0, 2): "PHB", (1, 2): "PHB"}), 0b111, Links.PCIE),
    ],
)
def test_a_share_says_what_its_set_is_linked_by(kind: DeviceClass, mask: int, links: Links) -> None:
    made = share(kind, mask, 100.0, 25.0, nvlink_domain="rack")
    assert (made.links, made.gpus, made.ring_gbps, made.nic_gbps) == (links, mask.bit_count(), 100.0, 25.0)
    assert (made.model, made.nvlink_domain, made.measured) == (kind.models[0], "rack", False)


def test_one_gpu_on_a_switch_brings_its_nvlinks() -> None:
    assert share(machine("NVIDIA GB200", 4, "NV18"), 0b10, 0.0, 50.0).ring_gbps == pytest.approx(721.8)


def test_a_measured_ring_is_taken_as_it_is() -> None:
    made = share(machine("NVIDIA H100 80GB HBM3", 8, "NV18", ring_mbps=455_000), 0xFF, 455.0, 50.0)
    assert busbw(Layout((made,)), 1e11) == pytest.approx(455.0, rel=0.01)


def test_a_share_needs_a_gpu_of_the_machine() -> None:
    with pytest.raises(ValueError, match="names none of the machine's 4 GPUs"):
        share(machine("NVIDIA L40S", 4, "PHB"), 0b10000, 10.0, 25.0)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: NodeShare(0, 1.0), "at least 1 GPU"),
        (lambda: NodeShare(1, -1.0), "ring_gbps"),
        (lambda: NodeShare(1, 1.0, math.nan), "nic_gbps"),
        (lambda: Layout((), hops=-1), "hops"),
        (lambda: Layout((), oversubscription=0.5), "oversubscription"),
        (lambda: Network(efficiency=0.0), "efficiency"),
        (lambda: Network(crowd_efficiency=1.5), "crowd_efficiency"),
        (lambda: Network(peer_gbps=0.0), "peer_gbps"),
        (lambda: predict(nodes("H100", 8), 0.0), "size_bytes"),
        (lambda: predict(nodes("H100", 8), math.inf), "size_bytes"),
    ],
)
def test_impossible_input_is_refused(make, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()

"""What links and levels cost: both scales, the operator's figures, and that costs rise from the inside out."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from pyscheduler.core.machine.links import Kind, Link
from pyscheduler.core.machine.weights import Override, Profile, Weights

H100 = "NVIDIA H100 80GB HBM3"
V100 = "Tesla V100-SXM2-32GB"
MI300X = "AMD Instinct MI300X"
MODELS = [None, "", "an unheard of card", V100, H100, MI300X]
EVERY_LINK = [
    *(Link(Kind.NVLINK, n) for n in (1, 2, 18, 99)),
    *(Link(Kind.XGMI, n) for n in (0, 1, 4)),
    *(Link(kind) for kind in Kind if kind > Kind.XGMI),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("link", "cost"),
    [
        ("NV1", 1),
        ("NV18", 1),
        ("XGMI", 1),
        ("PIX", 5),
        ("PXB", 5),
        ("PHB", 10),
        ("NODE", 10),
        ("PCIE", 15),
        ("SYS", 15),
        ("?", 50),
    ],
)
def test_classic_scale_is_the_same_for_every_machine(link: str, cost: float, model: str | None) -> None:
    classic = Weights(Profile.CLASSIC, (Override("NV", 1.0), Override("SYS", 900.0)))
    assert classic.link_cost(Link.parse(link), model) == cost


@pytest.mark.parametrize("hops", [0, 1, 5])
def test_classic_scale_has_one_weight_for_all_levels(hops: int) -> None:
    assert Weights(Profile.CLASSIC).level_cost("leaf", hops, H100, 12.5) == 50


def test_classic_speed_falls_as_the_weight_rises() -> None:
    speeds = [Weights(Profile.CLASSIC).link_gbps(Link.parse(link), H100) for link in ("NV1", "PIX", "PHB", "SYS", "?")]
    assert speeds == sorted(speeds, reverse=True)
    assert len(set(speeds)) == len(speeds)
    assert speeds[-1] == 0


@pytest.mark.parametrize(
    ("link", "model", "gbps"),
    [
        ("NV18", H100, 370.8),
        ("NV2", V100, 40.0),
        ("NV12", "NVIDIA A100-SXM4-80GB", 240.0),
        ("XGMI1", MI300X, 64.0),
        ("PIX", H100, 48.0),
        ("SYS", V100, 10.0),
        ("?", H100, 0.0),
    ],
)
def test_default_speed_is_that_of_the_link_type_and_the_card(link: str, model: str, gbps: float) -> None:
    assert Weights().link_gbps(Link.parse(link), model) == pytest.approx(gbps)


def test_cost_is_microseconds_per_megabyte_of_a_large_message() -> None:
    # 18 NVLinks of 20.6 GB/s; NCCL's 3.4 us, spread over 16 MB.
    assert Weights().link_cost(Link.parse("NV18"), H100) == pytest.approx(1000 / 370.8 + 3.4 / 16)
    # One 400 Gb/s NIC for each GPU; 14 us, and 1 us for each further switch.
    assert Weights().level_cost("leaf", 0, H100) == pytest.approx(1000 / 50 + 14 / 16)
    assert Weights().level_cost("core", 2, H100) == pytest.approx(1000 / 50 + 16 / 16)


def test_unknown_link_costs_more_than_any_known_one() -> None:
    for weights in (Weights(), Weights(Profile.CLASSIC)):
        for model in MODELS:
            *known, unknown = (weights.link_cost(link, model) for link in EVERY_LINK)
            assert unknown > max(known)


@pytest.mark.parametrize("gbps", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("profile", list(Profile))
def test_every_cost_is_above_zero_and_finite(profile: Profile, gbps: float) -> None:
    """A sparse matrix drops zeros, so an edge of no cost would not be there."""
    kinds = ("NV", "XGMI", "PIX", "PXB", "PHB", "NODE", "PCIE", "SYS")
    overrides = (*(Override(kind, gbps) for kind in kinds), Override("leaf", gbps, level=True))
    for weights in (Weights(profile), Weights(profile, overrides)):
        costs = [weights.link_cost(link, model) for link in EVERY_LINK for model in MODELS]
        costs += [weights.level_cost("leaf", hops, model) for hops in (0, 9) for model in MODELS]
        assert all(0 < cost < math.inf for cost in costs)


def test_override_is_of_one_link_type() -> None:
    weights = Weights(overrides=(Override("NV12", 111.0),))
    assert weights.link_gbps(Link.parse("NV12"), H100) == 111.0
    assert weights.link_gbps(Link.parse("NV18"), H100) == pytest.approx(370.8)
    assert weights.link_gbps(Link.parse("NV1"), V100) == 20.0


@pytest.mark.parametrize("link", ["NV1", "NV12", "NV18"])
def test_override_of_nv_is_for_any_number_of_links(link: str) -> None:
    assert Weights(overrides=(Override("NV", 5.0),)).link_gbps(Link.parse(link), None) == 5.0


@pytest.mark.parametrize("link", ["XGMI", "XGMI2"])
def test_override_of_xgmi_is_for_any_number_of_links(link: str) -> None:
    assert Weights(overrides=(Override("XGMI", 5.0),)).link_gbps(Link.parse(link), MI300X) == 5.0


def test_override_is_for_the_cards_that_have_its_word_in_their_name() -> None:
    weights = Weights(overrides=(Override("PIX", 7.0, "H100"),))
    assert weights.link_gbps(Link.parse("PIX"), "nvidia-h100-pcie") == 7.0
    assert weights.link_gbps(Link.parse("PIX"), "NVIDIA H1000") != 7.0
    assert weights.link_gbps(Link.parse("PIX"), None) != 7.0


def test_last_of_the_overrides_that_match_counts() -> None:
    weights = Weights(overrides=(Override("NV4", 1.0, "A100"), Override("NV", 2.0), Override("NV4", 3.0, "H100")))
    assert weights.link_gbps(Link.parse("NV4"), "A100") == 2.0
    assert weights.link_gbps(Link.parse("NV4"), "H100") == 3.0


def test_level_that_is_named_like_a_link_type_is_not_taken_for_it() -> None:
    weights = Weights(overrides=(Override("SYS", 3.0), Override("NODE", 4.0, level=True)))
    assert weights.link_gbps(Link.parse("SYS"), V100) == 3.0
    assert weights.level_gbps("SYS", V100) == 6.25
    assert weights.level_gbps("NODE", V100) == 4.0
    assert weights.link_gbps(Link.parse("NODE"), V100) == pytest.approx(10.8)


def test_level_that_ends_in_a_number_is_one_name() -> None:
    weights = Weights(overrides=(Override("tier-", 1.0, level=True), Override("tier-1", 2.0, level=True)))
    assert [weights.level_gbps(f"tier-{n}", H100) for n in (1, 2)] == [2.0, 50.0]


def test_level_is_as_fast_as_configured_else_as_the_nics_else_as_the_cards_reference_machine() -> None:
    assert Weights().level_gbps("leaf", H100) == 50.0
    assert Weights().level_gbps("leaf", "a card of no list") == 12.5
    assert Weights().level_gbps("leaf", H100, 25.0) == 25.0
    configured = Weights(overrides=(Override("leaf", 9.0, "H100", level=True),))
    assert configured.level_gbps("leaf", H100, 25.0) == 9.0
    assert configured.level_gbps("leaf", V100, 25.0) == 25.0


@pytest.mark.parametrize("profile", list(Profile))
def test_level_never_costs_less_than_what_it_joins(profile: Profile) -> None:
    faster = (Override("spine", 400.0, level=True), Override("core", 800.0, level=True))
    for weights in (Weights(profile), Weights(profile, faster)):
        costs = [45.8]
        for hops, level in enumerate(("leaf", "spine", "core")):
            costs.append(weights.level_cost(level, hops, H100, below=costs[-1]))
        assert costs == sorted(costs)
        if profile is Profile.BANDWIDTH:
            assert all(near < wide for near, wide in pairwise(costs))


@pytest.mark.parametrize(
    ("weights", "standard"),
    [
        (Weights(), True),
        (Weights(half_life_s=1.0), True),
        (Weights(Profile.CLASSIC), False),
        (Weights(overrides=(Override("NV", 1),)), False),
    ],
)
def test_figures_are_standard_until_scale_or_speeds_are_changed(weights: Weights, standard: bool) -> None:
    assert weights.standard is standard

"""Link types: reading, order, bandwidth."""

from __future__ import annotations

import pytest

from pyscheduler.core.machine.links import (
    ACROSS_NODES_WEIGHT,
    Kind,
    Link,
    UnknownLinkTypeError,
    behind_switch,
    gbps,
    weight,
)

NEAREST_FIRST = ["NV18", "NV4", "NV1", "XGMI4", "XGMI1", "XGMI", "PIX", "PXB", "PHB", "NODE", "PCIE", "SYS", "?"]


@pytest.mark.parametrize("text", NEAREST_FIRST)
def test_parse_and_str_are_inverse(text: str) -> None:
    assert str(Link.parse(text)) == text


def test_old_name_of_sys() -> None:
    assert Link.parse("SOC") == Link(Kind.SYS)


@pytest.mark.parametrize("text", ["", "X", "NV", "NV0", "NV-1", "NV1.5", "nv4", "NV4 ", "XGMI0", "NV100", "NVLINK", "PIXX"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UnknownLinkTypeError, match="use NV<n>") as refused:
        Link.parse(text)
    assert refused.value.text == text


def test_order_is_nearest_first() -> None:
    links = [Link.parse(text) for text in reversed(NEAREST_FIRST)]
    assert [str(link) for link in sorted(links, key=lambda link: link.distance)] == NEAREST_FIRST


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        ("NV2", "Tesla V100-SXM2-32GB", 40.0),
        ("NV12", "NVIDIA A100-SXM4-80GB", 240.0),
        ("NV18", "NVIDIA H100 80GB HBM3", 370.8),
        ("NV18", "NVIDIA-H100-80GB-HBM3", 370.8),
        ("NV18", "NVIDIA B200", 721.8),
        ("NV4", "NVIDIA RTX A6000", 48.0),
        ("NV4", None, 80.0),
        ("XGMI4", "AMD Instinct MI250X", 200.0),
        ("XGMI1", "AMD-Instinct-MI300X", 64.0),
        ("XGMI", None, 46.0),
        ("PIX", "Tesla V100-SXM2-32GB", 12.0),
        ("SYS", None, 10.0),
        ("?", "NVIDIA H100 80GB HBM3", 0.0),
    ],
)
def test_bandwidth(text: str, model: str | None, expected: float) -> None:
    assert gbps(Link.parse(text), model) == pytest.approx(expected)


@pytest.mark.parametrize("model", [None, "NVIDIA H100 80GB HBM3", "AMD Instinct MI210"])
def test_pcie_classes_fall_strictly(model: str | None) -> None:
    rates = [gbps(Link.parse(text), model) for text in ("PIX", "PXB", "PHB", "NODE", "PCIE", "SYS", "?")]
    assert rates == sorted(set(rates), reverse=True)


@pytest.mark.parametrize(
    ("links", "model", "expected"),
    [
        (["NV18"] * 7, "NVIDIA H100 80GB HBM3", True),
        (["NV12"] * 7, "NVIDIA A100-SXM4-80GB", True),
        # Two GPUs of a switch machine: the pair is the whole port, as if it were direct.
        (["NV12"], "NVIDIA A100-SXM4-80GB", False),
        (["NV6"] * 2, "Tesla V100-SXM3-32GB", True),
        # The hybrid cube mesh uses all six links of a V100.
        (["NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"], "Tesla V100-SXM2-32GB", False),
        (["NV6"] * 3, None, False),
        (["NV6"] * 4, None, True),
        (["XGMI1"] * 31, "AMD Instinct MI300X", False),
        ([], None, False),
    ],
)
def test_tells_a_switch_from_direct_links(links: list[str], model: str | None, expected: bool) -> None:
    assert behind_switch([Link.parse(text) for text in links], model) is expected


def test_weights_follow_the_classic_scale() -> None:
    assert [weight(Link.parse(text)) for text in ("NV1", "XGMI", "PIX", "SYS")] == [1, 1, 5, 15]
    weights = [weight(Link.parse(text)) for text in NEAREST_FIRST]
    assert weights == sorted(weights)
    assert weights[-1] <= ACROSS_NODES_WEIGHT

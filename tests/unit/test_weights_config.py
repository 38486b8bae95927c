"""The part ``weights`` of the configuration: what it says, and every problem with its path."""

from __future__ import annotations

from typing import Any

import pytest

from pyscheduler.core.machine.links import Link
from pyscheduler.core.machine.weights import Override, Profile, Weights
from pyscheduler.readers.weights_config import weights_config


@pytest.mark.parametrize("raw", [None, {}, {"gbps": None}, {"gbps": []}])
def test_nothing_written_is_the_default(raw: Any) -> None:
    assert weights_config(raw) == (Weights(), [])


def test_everything_that_can_be_written() -> None:
    weights, problems = weights_config(
        {
            "profile": "classic",
            "half_life_days": 0.5,
            "gbps": [
                {"link": "NV18", "model": "h100", "gbps": 380},
                {"link": "NV", "gbps": 1.5},
                {"level": "PIX", "gbps": 12},
            ],
        }
    )
    assert problems == []
    assert weights == Weights(
        Profile.CLASSIC,
        (Override("NV18", 380.0, "H100"), Override("NV", 1.5), Override("PIX", 12.0, level=True)),
        43200.0,
    )


def test_old_name_of_a_link_type_configures_that_link_type() -> None:
    weights, problems = weights_config({"gbps": [{"link": "SOC", "gbps": 8}]})
    assert problems == []
    assert weights.link_gbps(Link.parse("SYS"), None) == 8.0


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        pytest.param([], "weights:", id="a list"),
        pytest.param("classic", "weights:", id="a text"),
        pytest.param({"profil": "classic"}, "weights.profil:", id="unknown key"),
        pytest.param({"profile": "Classic"}, "weights.profile:", id="unknown profile"),
        pytest.param({"profile": ["classic"]}, "weights.profile:", id="profile of another form"),
        pytest.param({"half_life_days": 0}, "weights.half_life_days:", id="no half-life"),
        pytest.param({"half_life_days": "30"}, "weights.half_life_days:", id="half-life as text"),
        pytest.param({"half_life_days": True}, "weights.half_life_days:", id="half-life as a truth value"),
        pytest.param({"half_life_days": float("nan")}, "weights.half_life_days:", id="half-life that is no number"),
        pytest.param({"half_life_days": 10**400}, "weights.half_life_days:", id="half-life beyond all floats"),
        pytest.param({"gbps": {"NV18": 380}}, "weights.gbps:", id="figures as a mapping"),
        pytest.param({"gbps": {}}, "weights.gbps:", id="an empty mapping"),
        pytest.param({"gbps": 0}, "weights.gbps:", id="figures as a number"),
        pytest.param({"gbps": ["NV18"]}, "weights.gbps[0]:", id="entry as text"),
        pytest.param({"gbps": [{"gbps": 1}]}, "weights.gbps[0]:", id="neither link nor level"),
        pytest.param({"gbps": [{"link": "NV1", "level": "leaf", "gbps": 1}]}, "weights.gbps[0]:", id="link and level"),
        pytest.param({"gbps": [{"link": "NV0", "gbps": 1}]}, "weights.gbps[0].link:", id="no link type"),
        pytest.param({"gbps": [{"link": "nv18", "gbps": 1}]}, "weights.gbps[0].link:", id="lower case"),
        pytest.param({"gbps": [{"link": "?", "gbps": 1}]}, "weights.gbps[0].link:", id="unknown link"),
        pytest.param({"gbps": [{"link": 18, "gbps": 1}]}, "weights.gbps[0].link:", id="link as a number"),
        pytest.param({"gbps": [{"link": ["NV18"], "gbps": 1}]}, "weights.gbps[0].link:", id="link as a list"),
        pytest.param({"gbps": [{"level": "", "gbps": 1}]}, "weights.gbps[0].level:", id="level without a name"),
        pytest.param({"gbps": [{"level": 0, "gbps": 1}]}, "weights.gbps[0].level:", id="level as a number"),
        pytest.param({"gbps": [{"link": "PIX", "model": "H100 PCIe", "gbps": 1}]}, "weights.gbps[0].model:", id="two words"),
        pytest.param({"gbps": [{"link": "PIX", "model": None, "gbps": 1}]}, "weights.gbps[0].model:", id="model without text"),
        pytest.param({"gbps": [{"link": "PIX"}]}, "weights.gbps[0].gbps:", id="no figure"),
        pytest.param({"gbps": [{"link": "PIX", "gbps": -1}]}, "weights.gbps[0].gbps:", id="negative"),
        pytest.param({"gbps": [{"link": "PIX", "gbps": float("inf")}]}, "weights.gbps[0].gbps:", id="infinite"),
        pytest.param({"gbps": [{"link": "PIX", "gbps": 10**400}]}, "weights.gbps[0].gbps:", id="beyond all floats"),
        pytest.param({"gbps": [{"link": "PIX", "gbps": 1, "unit": "Gb"}]}, "weights.gbps[0].unit:", id="unknown key of an entry"),
    ],
)
def test_problem_is_listed_with_its_path(raw: Any, path: str) -> None:
    _, problems = weights_config(raw)
    assert [problem.startswith(path) for problem in problems] == [True], problems


def test_all_problems_are_listed_at_once() -> None:
    raw = {"profile": "fast", "half_life_days": -1, "size": 4, "gbps": [{"link": "PIX", "gbps": 1}, 7, {"link": "A", "gbps": 0}]}
    _, problems = weights_config(raw)
    paths = [problem.split(": ")[0] for problem in problems]
    assert sorted(paths) == [
        "weights.gbps[1]",
        "weights.gbps[2].gbps",
        "weights.gbps[2].link",
        "weights.half_life_days",
        "weights.profile",
        "weights.size",
    ]

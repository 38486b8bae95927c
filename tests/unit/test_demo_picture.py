"""What the demo prints, as plain text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from deploy.local import demo_picture, machines
from deploy.local.demo_judge import Judge, random_draw
from deploy.local.demo_picture import WIDTH, Row
from deploy.local.demo_scenario import NodePlan
from deploy.local.demo_why import ranges, why

NODES = (
    NodePlan(name="volta", title="DGX-1V", machine="dgx-1v", rack="rack-a", taken=(1, 2, 3)),
    NodePlan(name="bridged", title="two bridges", machine="a100-pcie-bridged", rack="rack-b", taken=(0,)),
)
FREE = {"volta": frozenset({0, 4, 5, 6, 7}), "bridged": frozenset({1, 2, 3})}


def row(pod: str, node: str, gpus: tuple[int, ...], default: tuple[str, tuple[int, ...]] | None, nodes: tuple[str, ...]) -> Row:
    judge = Judge({each.name: each.machine for each in NODES})
    choices = judge.choices(FREE, nodes, len(gpus))
    chosen = judge.judge(node, gpus, FREE[node])
    instead = judge.judge(*default) if default else None
    return Row(pod, chosen, instead, random_draw(choices), why(chosen, choices, FREE))


@pytest.fixture
def rows() -> list[Row]:
    return [
        row("train", "volta", (4, 5, 6, 7), ("volta", (0, 4, 5, 6)), ("volta",)),
        row("lora", "bridged", (2, 3), None, ("volta", "bridged")),
    ]


def printed(renderable: RenderableType) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=WIDTH, highlight=False).print(renderable)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_picture_shows_each_gpu_with_its_holder_by_rack(rows: list[Row]) -> None:
    numa = {node.name: [gpu["numa"] for gpu in machines.document(node.machine, node.name)["gpus"]] for node in NODES}
    lines = printed(demo_picture.picture(NODES, numa, rows))
    assert [" ".join(line.split()) for line in lines[:4]] == [
        "rack-a",
        "volta . x x x | A A A A DGX-1V",
        "rack-b",
        "bridged x . | B B two bridges",
    ]


def test_table_has_all_figures_and_fits(rows: list[Row]) -> None:
    lines = printed(demo_picture.results(rows))
    assert max(map(len, lines)) <= WIDTH
    train = next(line for line in lines if "train" in line)
    assert train.split() == ["A", "train", "volta", "4-7", "NV1", "80", "volta", "0,4-6", "SYS", "10", "24", "20%"]
    lora = next(line for line in lines if "lora" in line)
    assert lora.split()[:6] == ["B", "lora", "bridged", "2-3", "NV12", "240"]
    assert "no node" in lora
    assert not any("…" in line for line in lines)


def test_tally_counts_what_the_table_shows(rows: list[Row]) -> None:
    assert demo_picture.tally(rows) == (
        "Of 2 pods of two GPUs and more the default scheduler gave 1 slower rings, 0 equal and 0 faster ones, "
        "and found no node for 1."
    )


@pytest.mark.parametrize(
    ("node", "gpus", "nodes", "sentence"),
    [
        (
            "volta",
            (4, 5, 6, 7),
            ("volta",),
            "the only set of 4 with a ring of NVLink among the free {0,4-7}; no other node that it may use has room",
        ),
        (
            "bridged",
            (2, 3),
            ("volta", "bridged"),
            "the only pair joined by NVLink among the free {1-3}; next best node volta: 40 GB/s",
        ),
        (
            "volta",
            (4, 7),
            ("volta",),
            "4 of 10 pairs have 40 GB/s, this one on 1 NUMA node, not 2; no other node that it may use has room",
        ),
        (
            "bridged",
            (1, 2, 3),
            ("bridged",),
            "all 3 free GPUs of the node; no other node that it may use has room",
        ),
    ],
)
def test_why_follows_from_the_choices(node: str, gpus: tuple[int, ...], nodes: tuple[str, ...], sentence: str) -> None:
    assert row("any", node, gpus, None, nodes).why == sentence


def test_why_of_a_single_gpu_names_what_it_would_cost() -> None:
    sentence = row("e", "bridged", (1,), None, ("volta", "bridged")).why
    assert sentence == (
        "its best link to a free GPU has 16 GB/s (others up to 240): larger jobs miss it least; "
        "on volta it would cost a link of 40 GB/s"
    )


@pytest.mark.parametrize(("gpus", "text"), [((), ""), ((3,), "3"), ((6, 0, 1, 2), "0-2,6"), ((4, 5), "4-5")])
def test_ranges(gpus: tuple[int, ...], text: str) -> None:
    assert ranges(gpus) == text

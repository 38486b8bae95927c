"""Snapshots: any JSON is read or refused in one line; what is read says what was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.machine.links import Link
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.requests import FIELDS, jobs_of
from pyscheduler.readers.snapshot import of_json

T = TypeVar("T")

# What nearly is a snapshot: its words in the wrong places.
NAMES = ("name", "path", "gpus", "id", "numa", "healthy", "allocated", "links", "p2p", "nics", "nic_links", "partitions")
WORDS = st.sampled_from(("version", "levels", "nodes", *NAMES, "complete", "type", "cost", "a", "b", "a-b", "b-a", "NV4", "OK"))
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | WORDS | st.text(max_size=3)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(["NV1", "NV4", "NV18", "XGMI", "XGMI2", "PIX", "PXB", "PHB", "NODE", "PCIE", "SYS", "?"])
# Ids with and without dashes, of which none begins as another does.
IDS = st.lists(st.sampled_from(["a", "b", "c-", "-d", "e-f", "GPU-0", "7"]), unique=True, min_size=2, max_size=6)


def damaged(raw: Any, where: list[int], value: Any) -> Any:
    """Return `raw` with the element that `where` leads to replaced."""
    if not where or not isinstance(raw, dict | list) or not raw:
        return value
    keys = list(raw) if isinstance(raw, dict) else range(len(raw))
    chosen = keys[where[0] % len(keys)]
    copied = dict(raw) if isinstance(raw, dict) else list(raw)
    copied[chosen] = damaged(raw[chosen], where[1:], value)
    return copied


def told(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return what is read, or the words of the refusal."""
    try:
        return read(), ""
    except RefusedError as refused:
        return None, str(refused)


GOOD = {
    "version": 1,
    "levels": ["a", "b"],
    "nodes": [
        {
            "name": "n1",
            "path": ["a", "b"],
            "gpus": [{"id": "a", "numa": 0}, {"id": "b", "healthy": False, "allocated": True, "model": "NV4"}],
            "links": {"a-b": "NV4", "b-a": {"type": "PIX", "cost": 3}},
            "p2p": {"a-b": "OK"},
            "nics": ["b"],
            "nic_links": {"a-b": "PIX"},
            "partitions": [["a", "b"], ["a"]],
            "complete": False,
        },
        {"name": "n2", "path": [None], "gpus": [{"id": "a"}]},
    ],
}


@given(ANYTHING | st.builds(damaged, st.just(GOOD), st.lists(st.integers(0, 9), max_size=5), ANYTHING))
def test_any_json_is_read_or_refused_in_one_line(raw: Any) -> None:
    snapshot, refusal = told(lambda: of_json(raw))
    assert "\n" not in refusal
    if snapshot is None:
        return
    for node, written in zip(snapshot.nodes, raw["nodes"], strict=True):
        everything = (1 << len(written["gpus"])) - 1
        assert node.healthy | node.allocated | everything == everything
        assert all(mask & ~everything == 0 and mask for mask in node.kind.device_class.partitions)


@given(ANYTHING | st.lists(st.dictionaries(st.sampled_from(FIELDS), SCALARS, max_size=5), max_size=3))
def test_any_list_of_requests_is_read_or_refused_in_one_line(raw: Any) -> None:
    jobs, refusal = told(lambda: jobs_of(raw, ("a", "b")))
    assert "\n" not in refusal
    assert all(job.pods >= 1 and job.gpus >= 1 and job.required_level in (None, "node", "a", "b") for job in jobs or ())


@given(IDS, st.data())
def test_every_pair_has_the_weaker_of_the_types_that_were_written(ids: list[str], data: st.DataObject) -> None:
    pairs = list(combinations(ids, 2))
    forth = data.draw(st.dictionaries(st.sampled_from(pairs), TYPES))
    back = data.draw(st.dictionaries(st.sampled_from(pairs), TYPES))
    written = {**{f"{a}-{b}": kind for (a, b), kind in forth.items()}, **{f"{b}-{a}": kind for (a, b), kind in back.items()}}
    order = data.draw(st.permutations(sorted(written)))
    snapshot = of_json(
        {"nodes": [{"name": "n", "gpus": [{"id": gpu} for gpu in ids], "links": {key: written[key] for key in order}}]}
    )

    for pair, link in zip(pairs, snapshot.nodes[0].kind.device_class.links, strict=True):
        kinds = [side[pair] for side in (forth, back) if pair in side]
        weakest = max((Link.parse(kind) for kind in kinds), key=lambda each: each.distance, default=Link.parse("?"))
        assert link == weakest
    differing = [pair for pair in pairs if pair in forth and pair in back and forth[pair] != back[pair]]
    assert len(snapshot.findings) == len(differing)


@given(st.permutations(range(4)), st.integers(0, 15), st.integers(0, 15))
def test_free_is_healthy_and_not_allocated_whatever_the_order_of_the_nodes(order: list[int], sick: int, busy: int) -> None:
    gpus = [{"id": f"g{i}", "healthy": not sick >> i & 1, "allocated": bool(busy >> i & 1)} for i in range(4)]
    nodes = [{"name": f"n{i}", "gpus": gpus[: i + 1]} for i in order]
    snapshot = of_json(json.loads(json.dumps({"nodes": nodes})))

    assert {node.name: node.free for node in snapshot.nodes} == {f"n{i}": ~(sick | busy) & ((2 << i) - 1) for i in order}

"""Places of nodes: what is said of one node comes from its own labels, whatever else it carries and others are."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.fabric.fabric_checks import inversions
from pyscheduler.core.fabric.place import Place
from pyscheduler.readers.fabric import node_labels
from pyscheduler.readers.fabric.fabric_config import fabric_config
from pyscheduler.readers.fabric.hypernodes import HyperNodes
from pyscheduler.readers.fabric.label_families import KEYS
from pyscheduler.readers.fabric.name_pattern import PatternError, compile_pattern
from pyscheduler.readers.fabric.places import place_of
from pyscheduler.readers.fabric.rules import Rules
from pyscheduler.readers.reading import RefusedError

TIER = "fabric.topograph.run/tier-"
VALUES = st.sampled_from(["", "a", "b", "7c-1.2", ".3"])
ANY_LABELS = st.dictionaries(st.sampled_from(sorted(KEYS)), VALUES, max_size=8)
# Files hold anything; some of it is nearly right.
WORDS = st.sampled_from(
    ["name", "levels", "label", "selector", "order", "pools", "source", "kueue", "spec", "tier", "members", "type"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.integers(0, 12), VALUES, max_size=6))
def test_the_path_is_the_tiers_that_have_a_value_in_their_order(tiers: dict[int, str]) -> None:
    placement = place_of({f"{TIER}{number}": value for number, value in tiers.items()}, "n", Rules())

    assert placement.place.path == tuple((f"tier-{n}", value) for n, value in sorted(tiers.items()) if value)
    deepest = max((n for n, value in tiers.items() if value), default=None)
    if deepest is not None:
        lacking = [n for n in range(max(tiers) + 1) if not tiers.get(n) and (n < deepest or n in tiers)]
        assert [finding.message.split()[1] for finding in placement.findings] == [f"{TIER}{n}" for n in lacking]


@given(ANY_LABELS, st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.randoms())
def test_other_labels_and_the_order_of_labels_change_nothing(
    labels: dict[str, str], others: dict[str, str], rng: random.Random
) -> None:
    items = [*labels.items(), *((f"other.example/{key}", value) for key, value in others.items())]
    rng.shuffle(items)

    assert place_of(dict(items), "n", Rules()) == place_of(labels, "n", Rules())


@given(ANY_LABELS)
def test_every_domain_is_a_value_of_the_node_and_every_level_of_its_path_is_one_it_should_have(labels: dict[str, str]) -> None:
    placement = place_of(labels, "n", Rules())
    names = [level for level, _ in placement.place.path]

    assert names == [level for level in placement.levels if level in names]
    assert len(set(placement.levels)) == len(placement.levels)
    assert {domain for _, domain in placement.place.path} <= set(labels.values()) - {""}
    assert placement.place.nvlink_domain in {None, *labels.values()} - {""}
    assert all(finding.node == "n" and finding.remedy for finding in placement.findings)


@given(st.lists(ANY_LABELS, min_size=1, max_size=4))
def test_a_list_of_nodes_says_of_each_what_its_own_labels_say(listed: list[dict[str, str]]) -> None:
    text = json.dumps([{"kind": "Node", "metadata": {"name": f"n{i}", "labels": its}} for i, its in enumerate(listed)])
    places = [place_of(labels, f"n{i}", Rules()).place for i, labels in enumerate(listed)]
    try:
        nodes = node_labels.read(text).body["nodes"]
    except RefusedError:
        assert all(place == Place() for place in places)
        return
    assert [[domain for domain in node["path"] if domain] for node in nodes] == [[d for _, d in place.path] for place in places]
    assert [node["nvlink_domain"] for node in nodes] == [place.nvlink_domain for place in places]


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, tuple[tuple[str, str], ...]], dict[str, dict[str, str]]]:
    """Return the HyperNodes of a forest in any order, and path and labels of every node in it."""
    depth = draw(st.integers(1, 4))
    widths = [draw(st.integers(1, 4)) for _ in range(depth)]
    above: dict[tuple[int, int], int] = {}
    for tier in range(1, depth):
        for i in range(widths[tier - 1]):
            above[tier, i] = draw(st.integers(0, widths[tier] - 1))
    members: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for (tier, i), parent in above.items():
        entry = {"type": "HyperNode", "selector": {"exactMatch": {"name": f"h{tier}-{i}"}}}
        members.setdefault((tier + 1, parent), []).append(entry)
    paths, labels = {}, {}
    for n in range(draw(st.integers(1, 8))):
        name, rack = f"n{n}", draw(st.integers(0, widths[0] - 1))
        selector = draw(
            st.sampled_from(
                [
                    {"exactMatch": {"name": name}},
                    {"regexMatch": {"pattern": f"^n{n}$"}},
                    {"labelMatch": {"matchLabels": {"me": name}}},
                ]
            )
        )
        members.setdefault((1, rack), []).append({"type": "Node", "selector": selector})
        at, path = rack, [("tier-1", f"h1-{rack}")]
        for tier in range(1, depth):
            at = above[tier, at]
            path.append((f"tier-{tier + 1}", f"h{tier + 1}-{at}"))
        paths[name], labels[name] = tuple(path), {"me": name}
    objects = [
        {"metadata": {"name": f"h{tier}-{i}"}, "spec": {"tier": tier, "members": members.get((tier, i), [])}}
        for tier in range(1, depth + 1)
        for i in range(widths[tier - 1])
    ]
    return draw(st.permutations(objects)), paths, labels


@given(forests())
def test_hypernodes_place_every_node_of_a_forest(
    forest: tuple[list[dict[str, Any]], dict[str, tuple[tuple[str, str], ...]], dict[str, dict[str, str]]],
) -> None:
    objects, paths, labels = forest
    built = HyperNodes.build(objects)

    assert built.findings == ()
    assert {name: built.place_of(name, labels[name]).place.path for name in paths} == paths
    assert built.unmatched(labels.items()) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.lists(st.integers(0, 5), max_size=4)), max_size=8))
def test_tangled_hypernodes_place_nodes_on_levels_that_widen(raw: list[tuple[int, int, list[int]]]) -> None:
    objects = [
        {
            "metadata": {"name": f"h{name}"},
            "spec": {
                "tier": tier,
                "members": [
                    *({"type": "HyperNode", "selector": {"exactMatch": {"name": f"h{child}"}}} for child in children),
                    {"type": "Node", "selector": {"exactMatch": {"name": "n"}}},
                ],
            },
        }
        for name, tier, children in raw
    ]
    placement = HyperNodes.build(objects).place_of("n", {})
    tiers = [int(level.removeprefix("tier-")) for level, _ in placement.place.path]

    assert tiers == sorted(set(tiers))
    assert set(tiers) <= {tier for _, tier, _ in raw}


@given(st.lists(st.dictionaries(st.sampled_from(["metadata", "spec"]), ANYTHING, max_size=2), max_size=3))
def test_hypernodes_of_any_form_are_read_or_told(objects: list[dict[str, Any]]) -> None:
    built = HyperNodes.build(objects)

    assert all(finding.message and finding.remedy for finding in built.findings)
    assert built.place_of("n", {}).place == Place()


@given(ANYTHING)
def test_a_fabric_of_any_form_is_a_configuration_or_a_list_of_problems(raw: Any) -> None:
    config, problems = fabric_config(raw)

    assert all(problem.startswith("fabric") for problem in problems)
    if not problems:
        assert all(level.name and all(level.keys) for pool in config.pools for level in pool.levels)


@settings(deadline=5000)  # ms; what a repeat of a repeat takes is years
@given(st.text("ab()[]*+?{},09|^$\\.:=-<>", max_size=20))
def test_a_pattern_is_refused_or_searches_long_names_in_time(pattern: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except PatternError:
        return
    compiled.search("a" * 60 + "!")


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=20))
def test_racks_of_one_row_each_are_never_reversed_and_their_reverse_is(raw: list[tuple[int, int]]) -> None:
    row_of = dict(raw)
    places = [Place((("rack", f"r{rack}"), ("row", f"w{row}"))) for rack, row in row_of.items()]
    turned = [Place(tuple((level, domain) for (level, _), (_, domain) in zip(p.path, p.path[::-1], strict=True))) for p in places]

    assert inversions(places, ["rack", "row"]) == []
    assert bool(inversions(turned, ["rack", "row"])) == (len(set(row_of.values())) < len(row_of))

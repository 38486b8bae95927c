"""The weights that AMD's tools print: they order the pairs of one kind of link, from the document to the choice."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import jsonschema
import pytest

from pyscheduler.cli.topology import node_schema
from pyscheduler.core.machine.classify import class_of, classify, filled
from pyscheduler.core.machine.device_class import DeviceClass, class_hash, cost_shares, default_speeds
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.machine.weights import Override, Weights
from pyscheduler.readers import class_document, node_document


def board(links: list[dict[str, Any]], gpus: int = 3, **fields: Any) -> str:
    body = {"version": 1, "kind": "node", "gpus": [{"id": f"card{i}"} for i in range(gpus)], "links": links}
    return json.dumps({**body, **fields})


def link(a: int, b: int, cost: Any = None, kind: str = "XGMI") -> dict[str, Any]:
    return {"a": f"card{a}", "b": f"card{b}", "type": kind} | ({} if cost is None else {"cost": cost})


def parsed(*links: dict[str, Any], gpus: int = 3, **fields: Any) -> NodeDocument:
    return node_document.parse(board(list(links), gpus, **fields))


def chosen(document: NodeDocument, k: int) -> set[int]:
    choice = DeviceTable.build(class_of(document)).choose((1 << len(document.gpus)) - 1, k)
    assert choice is not None
    return {gpu for gpu in range(len(document.gpus)) if choice.mask >> gpu & 1}


def test_lower_cost_is_nearer() -> None:
    assert chosen(parsed(link(0, 1, 30), link(0, 2, 15), link(1, 2, 45)), 2) == {0, 2}


def test_speed_follows_cost_within_a_kind_of_link() -> None:
    shared = class_of(parsed(link(0, 1, 13), link(0, 2, 26), link(1, 2, 40, "PCIE")))
    assert cost_shares(shared) == (1.0, 0.5, 1.0)
    full, half, pcie = default_speeds(shared)
    assert half * 2 == full
    assert pcie == default_speeds(replace(shared, costs=()))[2]


def test_a_pair_without_cost_is_farther_than_all_of_its_kind_that_have_one() -> None:
    document = parsed(link(0, 1), link(0, 2, 72), link(1, 2, 72))
    assert chosen(document, 2) == {0, 2}
    first, *others = default_speeds(class_of(document))
    assert 0 < first < min(others)


def test_a_pair_that_is_not_there_is_worse_than_the_highest_cost() -> None:
    document = parsed(link(2, 3, 255), gpus=4)
    assert document.costs == {(2, 3): 255}
    assert chosen(document, 2) == {2, 3}


def test_without_any_cost_all_pairs_of_a_type_are_alike() -> None:
    assert cost_shares(class_of(parsed(link(0, 1), link(0, 2), link(1, 2)))) == (1.0, 1.0, 1.0)


def test_no_cost_makes_a_known_link_unknown() -> None:
    shared = DeviceClass.of([None] * 3, [None] * 3, {(0, 1): "XGMI", (0, 2): "XGMI", (1, 2): "XGMI"})
    assert min(default_speeds(replace(shared, costs=(1, 1_000_000, 1_000_000)))) >= 1


@pytest.mark.parametrize("cost", [0, -15, 15.5, "15", True, 10**7, [15]])
def test_what_is_no_cost_is_told_and_unknown(cost: Any) -> None:
    document = parsed(link(0, 1, cost), link(0, 2, 15))
    assert document.costs == {(0, 2): 15}
    assert [finding.code for finding in document.findings] == ["cost-unusable"]
    assert "card0-card1" in document.findings[0].message


def test_of_two_costs_for_a_pair_the_larger_counts() -> None:
    document = parsed(link(0, 1, 15), link(1, 0, 30))
    assert document.costs == {(0, 1): 30}
    assert [finding.code for finding in document.findings] == ["direction-mismatch"]


def test_costs_of_links_that_cannot_be_used_are_ignored() -> None:
    document = parsed(link(0, 9, 15), link(1, 1, 15), link(0, 1, 15))
    assert document.costs == {(0, 1): 15}


def test_costs_survive_document_class_and_back() -> None:
    document = parsed(link(0, 1, 15), link(0, 2, 30), link(1, 2))
    assert node_document.parse(node_document.dump(document)) == document
    jsonschema.validate(json.loads(node_document.dump(document)), json.loads(node_schema()))
    shared = class_of(document)
    assert shared.costs == (15, 30, None)
    assert class_document.parse(class_document.dump(shared)) == (class_hash(shared), shared)
    named = replace(document, class_hash=class_hash(shared))
    short = node_document.parse(node_document.dump(named, shared=True))
    assert short.costs == {}
    assert filled(short, shared).costs == document.costs


def test_nics_survive_the_class_document() -> None:
    document = parsed(link(0, 1), nics=[{"id": "NIC0", "name": "rdma0"}, {"id": "NIC1"}])
    shared = class_of(document)
    assert (shared.nics, shared.nic_names) == (("NIC0", "NIC1"), ("rdma0", None))
    assert class_document.parse(class_document.dump(shared)) == (class_hash(shared), shared)


def test_operators_figures_keep_the_order_of_costs() -> None:
    document = parsed(link(0, 1, 30), link(0, 2, 15), link(1, 2, 30))
    changed, _ = classify(document, class_of(document), Weights(overrides=(Override("XGMI", 40.0),)), 0.0)
    assert changed.speeds == (20_000, 40_000, 20_000)


def test_the_cost_of_a_link_without_peer_access_is_not_that_of_the_host_path() -> None:
    refused = [{"a": "card0", "b": "card1", "status": "NS"}]
    document = parsed(link(0, 1, 15), link(0, 2, 15), link(1, 2, 15), p2p=refused)
    reached, _ = classify(document, class_of(document), Weights(), 0.0)
    assert reached.costs == (None, 15, 15)


def test_tied_links_of_eight_cards_are_told_apart_by_cost_alone() -> None:
    """Every pair is one hop of the same type; two groups of four cost half within."""
    pairs = list(combinations(range(8), 2))
    document = parsed(*(link(a, b, 20 if a % 2 == b % 2 else 40) for a, b in pairs), gpus=8)
    assert chosen(document, 4) == {0, 2, 4, 6}

"""Whatever stands on a Node, it is understood, told, or says nothing of its cards."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.opinions import opinions_of
from pyscheduler.readers.cards.opinions import opinion_of
from pyscheduler.readers.cards.signals import BUILT_IN
from pyscheduler.readers.evidence_config import evidence

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
NOTE = "pyscheduler.io/cards"
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
FIELDS = st.sampled_from(["value", "reason", "repairedAt", "*", UUID, "label", "condition", "taint", "values", "\ud800"])
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5), max_leaves=20)
WORDS = (
    st.sampled_from(["PASS", "WARN", "evict", "", "draining", "0.5", "2026-05-01T12:00:00Z", "{", "[" * 5000])
    | st.text()
    | JSON.map(json.dumps)
)
TEXTS = st.dictionaries(st.sampled_from([*BUILT_IN.labels, NOTE]) | st.text(), WORDS, max_size=6)
MESSAGES = st.lists(st.sampled_from([UUID, ";", " ", "GPU-1", "x" * 300, "\n", "\ud800"]) | st.text(), max_size=8).map("".join)
CONDITION = st.fixed_dictionaries(
    {
        "type": st.sampled_from([*BUILT_IN.conditions, "Ready"]) | st.text(),
        "status": st.sampled_from(["True", "False", "Unknown"]),
    },
    optional={"message": MESSAGES, "reason": st.text()},
)
TAINT = st.fixed_dictionaries(
    {
        "key": st.sampled_from(list(BUILT_IN.taints)) | st.text(),
        "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    },
    optional={"value": st.text()},
)
NODE = st.builds(
    lambda labels, annotations, conditions, taints: {
        "metadata": {"name": "n", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints},
        "status": {"conditions": conditions},
    },
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none() | st.lists(CONDITION, max_size=4),
    st.none() | st.lists(TAINT, max_size=3),
)


@given(NODE)
def test_any_node_is_understood_or_told(raw: dict[str, Any]):
    opinion, findings = opinion_of(raw, BUILT_IN)
    for each in [opinion.every, *opinion.cards.values()]:
        assert each is None or (0 <= each.value < 1 and each.reason.isprintable() and 0 < len(each.reason) <= 160)
    for finding in findings:
        assert len(finding.message) < 600
        finding.message.encode()
    assert opinion_of(raw, BUILT_IN) == (opinion, findings)


@given(NODE)
def test_no_card_is_said_to_be_better_than_its_node(raw: dict[str, Any]):
    opinion, _ = opinion_of(raw, BUILT_IN)
    keys = [CardKey("n", UUID), CardKey("n", "GPU-other"), CardKey("elsewhere", UUID)]
    said = opinions_of({"n": opinion}, keys)
    assert keys[2] not in said
    if opinion.every:
        assert {keys[0], keys[1]} <= said.keys()
        assert all(each.value <= opinion.every.value for each in said.values())


@given(JSON)
def test_any_evidence_of_a_configuration_is_read_or_refused(raw: object):
    signals, problems = evidence(raw)
    assert isinstance(raw, list) or raw is None or problems
    for signal in signals:
        assert all(0 <= value <= 1 for value in signal.values.values())

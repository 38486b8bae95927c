"""Whatever stands in the annotation: a document or a refusal, never a link that is better than what was written."""

from __future__ import annotations

import copy
import json
import re
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.classify import class_of, filled
from pyscheduler.core.machine.document import POLICIES, Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.machine.links import Kind, Link
from pyscheduler.errors import DocumentError
from pyscheduler.readers import node_document

IDS = [f"GPU{i}" for i in range(4)]
LINKS = ["NV1", "NV18", "NV99", "XGMI", "XGMI2", "PIX", "PXB", "PHB", "NODE", "PCIE", "SYS", "SOC", "?"]
GOOD: dict[str, Any] = {
    "version": 1,
    "kind": "node",
    "gpus": [
        {"id": name, "uuid": f"GPU-{at}", "pci": f"0000:0{at}:00.0", "model": "M", "numa": at // 2} for at, name in enumerate(IDS)
    ],
    "nics": [{"id": "NIC0", "name": "eth0", "gbps": 50.0}],
    "links": [{"a": a, "b": b, "type": LINKS[at]} for at, (a, b) in enumerate(combinations(IDS, 2))],
    "nic_links": [{"gpu": name, "nic": "NIC0", "type": "PIX"} for name in IDS],
    "p2p": [{"a": "GPU0", "b": "GPU1", "status": "NS"}],
    "measured": [{"tool": "p2p-bandwidth", "gbps": 3.5, "gpus": ["GPU0", "GPU1"], "observed_at": "2026-01-31T12:00:00Z"}],
    "source": "agent",
    "observed_at": "2026-01-31T12:00:00Z",
    "boot_id": "b",
    "class_hash": "0123456789abcdef",
    "topology_policy": "restricted",
    "complete": True,
    "warnings": [{"code": "c", "message": "m"}],
}
TIMES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-31T12:00:00", "2026-01-31T12:00:00.25+05:45"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 10**25, 10**400, -(10**400), 0.0, 0.5, 1e308, float("nan"), float("inf"), float("-inf")]),
    st.sampled_from(["", *IDS, *LINKS, "?1", "NIC0", "node", "OK", "p2p-bandwidth", "nv18", "NV00", "\ud800", "😀", *TIMES]),
    st.text(max_size=4),
)
KEYS = st.sampled_from(
    [*GOOD, "id", "uuid", "a", "b", "type", "gpu", "nic", "status", "tool", "gbps", "numa", "host", "whole", "healthy"]
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
many = settings(max_examples=600, deadline=None)


def _places(raw: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values within a document."""
    children = list(raw.items()) if isinstance(raw, dict) else list(enumerate(raw)) if isinstance(raw, list) else []
    return [path, *(place for key, value in children for place in _places(value, (*path, key)))]


PLACES = [place for place in _places(GOOD) if place]


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A good document in which some values are others, gone, repeated or swapped."""
    raw = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(1, 4))):
        *way, last = draw(st.sampled_from(PLACES))
        at: Any = raw
        for key in way:
            at = (
                at[key]
                if (isinstance(at, dict) and key in at) or (isinstance(at, list) and isinstance(key, int) and key < len(at))
                else None
            )
        known = (isinstance(at, dict) and last in at) or (isinstance(at, list) and isinstance(last, int) and last < len(at))
        if not known:
            continue
        how = draw(st.sampled_from(["replace", "replace", "drop", "repeat"]))
        if how == "replace":
            at[last] = draw(SCALARS | ANYTHING)
        elif how == "drop":
            del at[last]
        elif isinstance(at, list):
            at.append(copy.deepcopy(draw(st.sampled_from(at))))
    if isinstance(raw.get("links"), list):
        # The same pairs once more, from the other end and by another type.
        ends = st.sampled_from([*IDS, "GPU9", "?1"])
        raw["links"] += draw(
            st.lists(st.fixed_dictionaries({"a": ends, "b": ends, "type": st.sampled_from([*LINKS, "WARP9"])}), max_size=3)
        )
    return raw


def accepted(text: str) -> NodeDocument | None:
    """Return the document, None if it is refused in one sentence."""
    try:
        return node_document.parse(text)
    except DocumentError as refusal:
        said = str(refusal)
    assert "\n" not in said
    assert len(said.encode()) < 400
    return None


@many
@given(ANYTHING | st.dictionaries(KEYS, ANYTHING, max_size=6) | damaged())
def test_any_json_is_a_document_or_is_refused(raw: Any) -> None:
    document = accepted(json.dumps(raw))
    if document is not None:
        assert len(document.gpus) == len(raw["gpus"])
        assert len({gpu.id for gpu in document.gpus}) == len(document.gpus)
        assert all(finding.message and "\n" not in finding.message for finding in document.findings)
        class_of(document)


@given(st.text(max_size=50) | st.sampled_from(["[" * 5000, '{"a":' * 3000, "1" * 5000, json.dumps(GOOD)[:-1], "NaN"]))
def test_any_text_is_a_document_or_is_refused(text: str) -> None:
    assert accepted(text) is None


@given(st.integers(1, 1200), st.sampled_from(["links", "observed_at", "topology_policy", "version", "class_hash", "measured"]))
def test_a_value_of_any_depth_is_no_error(depth: int, field: str) -> None:
    """Near the depth that Python reads, what is read can be too deep to be shown."""
    text = json.dumps({**GOOD, field: "HERE"}).replace('"HERE"', "[" * depth + "]" * depth)
    assert (accepted(text) is not None) == (field != "version") or depth > 400


def test_a_document_of_more_gpus_or_nics_than_any_machine_has_is_refused() -> None:
    for key in ("gpus", "nics"):
        assert accepted(json.dumps({**GOOD, key: [7] * 300})) is None


def rank(link: Any) -> tuple[int, int] | None:
    """How far a link type is, worked out from its text alone; None if it is none."""
    order = ["PIX", "PXB", "PHB", "NODE", "PCIE", "SYS", "?"]
    if not isinstance(link, str):
        return None
    if counted := re.fullmatch("(NV|XGMI)([1-9][0-9]?)", link):
        return (0 if counted[1] == "NV" else 1), -int(counted[2])
    known = {"XGMI": (1, 0), "SOC": (2 + order.index("SYS"), 0), **{name: (2 + at, 0) for at, name in enumerate(order)}}
    return known.get(link)


ODD_MEASURED = [10**400, 1e999, float("nan"), True, "3"]
ODD_TIMES = [*TIMES[:3], 10**400, ["x"], "today"]


@pytest.mark.parametrize("gbps", ODD_MEASURED)
def test_a_bandwidth_that_no_float_holds_is_told_and_left_out(gbps: Any) -> None:
    document = accepted(
        json.dumps({**GOOD, "measured": [{"tool": "nccl-tests", "gbps": gbps}], "nics": [{"id": "N", "gbps": gbps}]})
    )
    assert document is not None
    assert document.measured == ()
    assert document.nics[0].gbps is None
    assert "measurement-unusable" in [finding.code for finding in document.findings]


@pytest.mark.parametrize("moment", ODD_TIMES)
def test_a_time_that_cannot_be_written_again_is_told_and_unknown(moment: Any) -> None:
    document = accepted(json.dumps({**GOOD, "observed_at": moment}))
    assert document is not None
    assert document.observed_at is None
    assert [finding.code for finding in document.findings] == ["time-unusable"]
    assert "observed_at" in node_document.dump(accepted(json.dumps(GOOD)) or document)


def test_a_gpu_that_is_none_takes_no_name_of_another() -> None:
    document = accepted(
        json.dumps({**GOOD, "gpus": [{"id": "?1"}, 7, {"id": "GPU2"}], "links": [{"a": "?1", "b": "GPU2", "type": "NV1"}]})
    )
    assert document is not None
    assert [gpu.healthy for gpu in document.gpus] == [True, False, True]
    assert {gpu.id for gpu in document.gpus} > {"?1", "GPU2"}
    assert document.links == {(0, 2): Link(Kind.NVLINK, 1)}


@pytest.mark.parametrize("field", ["boot_id", "source", "gpus"])
def test_half_of_a_surrogate_pair_is_refused_as_no_message_can_hold_it(field: str) -> None:
    half: Any = [{"id": "\ud83d"}] if field == "gpus" else "\ud83d"
    whole: Any = [{"id": "\U0001f600"}] if field == "gpus" else "\U0001f600"
    assert accepted(json.dumps({**GOOD, field: half})) is None
    assert accepted(json.dumps({**GOOD, field: whole})) is not None


UNKNOWN = (8, 0)


@many
@given(damaged())
def test_no_link_is_better_than_anything_that_is_written_of_the_pair(raw: Any) -> None:
    document = accepted(json.dumps(raw))
    if document is None:
        return
    entries = [entry for entry in raw["links"] if isinstance(entry, dict)] if isinstance(raw.get("links"), list) else []
    for a, b in combinations(range(len(document.gpus)), 2):
        pair = {document.gpus[a].id, document.gpus[b].id}
        ends = [(e.get("a"), e.get("b"), e.get("type")) for e in entries]
        written = [kind for one, two, kind in ends if [one, two] in ([*pair], [*pair][::-1]) and isinstance(kind, str)]
        ranks = [rank(kind) or UNKNOWN for kind in written]
        found = rank(str(document.link(a, b)))
        assert found == max(ranks, default=UNKNOWN)


@many
@given(damaged())
def test_what_is_accepted_is_written_and_read_again_as_it_is(raw: Any) -> None:
    first = accepted(json.dumps(raw))
    if first is None:
        return
    second = node_document.parse(node_document.dump(first))
    third = node_document.parse(node_document.dump(second))
    assert second == third
    assert (second.gpus, second.nics, second.links, second.nic_links, second.p2p) == (
        first.gpus,
        first.nics,
        first.links,
        first.nic_links,
        first.p2p,
    )
    assert second.findings == ()


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
MAYBE = st.none() | TEXT
# Whole seconds: that is what is written.
MOMENT = st.none() | st.integers(-62_135_596_800, 253_402_300_799).map(float)
RATE = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
LINK = st.sampled_from(
    [Link(Kind.NVLINK, 1), Link(Kind.NVLINK, 99), Link(Kind.XGMI), Link(Kind.XGMI, 3), *(Link(k) for k in Kind if k > 1)]
)


@st.composite
def documents(draw: st.DrawFn) -> NodeDocument:
    """Any document that says nothing twice."""
    names = draw(st.lists(TEXT, min_size=1, max_size=16, unique=True))
    gpus = tuple(
        Gpu(
            name,
            draw(st.just(f"uuid {at}-{'x' * 7}") | st.none()),
            draw(MAYBE),
            draw(MAYBE),
            draw(st.none() | st.integers(0, 1023)),
            draw(MAYBE),
            draw(st.booleans()),
        )
        for at, name in enumerate(names)
    )
    nics = tuple(
        Nic(name, draw(MAYBE), draw(MAYBE), draw(st.none() | RATE)) for name in draw(st.lists(TEXT, max_size=3, unique=True))
    )
    pairs = list(combinations(range(len(gpus)), 2))
    some = st.lists(st.sampled_from(pairs), max_size=20, unique=True) if pairs else st.just([])
    ends = [(gpu, nic) for gpu in range(len(gpus)) for nic in range(len(nics))]
    status = st.text("CGNOST", min_size=3, max_size=4)
    measured = st.builds(
        Measured,
        tool=st.sampled_from(["nccl-tests", "p2p-bandwidth", "ib-write-bw"]),
        gbps=RATE,
        gpus=st.lists(st.sampled_from(names), max_size=3).map(tuple),
        nic=MAYBE,
        nodes=st.integers(1, 64),
        latency_us=st.none() | RATE,
        observed_at=MOMENT,
    )
    return NodeDocument(
        gpus=gpus,
        nics=nics,
        links={pair: draw(LINK) for pair in draw(some)},
        nic_links={pair: draw(LINK) for pair in (draw(st.lists(st.sampled_from(ends), max_size=5, unique=True)) if ends else [])},
        p2p={pair: draw(status) for pair in draw(some)},
        measured=tuple(draw(st.lists(measured, max_size=3))),
        source=draw(TEXT),
        observed_at=draw(MOMENT),
        boot_id=draw(MAYBE),
        class_hash=draw(MAYBE),
        topology_policy=draw(st.sampled_from([None, *POLICIES])),
        complete=draw(st.booleans()),
        warnings=tuple(draw(st.lists(st.builds(Finding, TEXT, TEXT), max_size=2))),
    )


@settings(max_examples=300, deadline=None)
@given(documents())
def test_every_document_survives_a_round_trip(document: NodeDocument) -> None:
    assert node_document.parse(node_document.dump(document)) == document


@settings(max_examples=200, deadline=None)
@given(documents())
def test_every_document_survives_in_its_shared_form(document: NodeDocument) -> None:
    short = node_document.parse(node_document.dump(document, shared=True))
    again = filled(short, class_of(document))
    assert again.gpus == document.gpus
    assert class_of(again) == class_of(document)
    assert (again.p2p, again.measured, again.nics) == (document.p2p, document.measured, document.nics)

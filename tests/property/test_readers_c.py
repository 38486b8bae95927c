"""Readers of fabrics and metrics take every text: they read it or refuse it, soon, and say the same each time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyscheduler.readers.cards import amd_metrics, dcgm, prometheus_json
from pyscheduler.readers.fabric import node_labels, slurm, topograph
from pyscheduler.readers.fabric.hostlist import expand
from pyscheduler.readers.reading import RefusedError

READERS = (slurm, topograph, node_labels, dcgm, amd_metrics, prometheus_json)

SAMPLES: dict[ModuleType, str] = {
    slurm: "# a=b\nSwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n[01-03],m7\nSwitchName=s2 Nodes=n[04-05]\nBlockSizes=2,4\n",
    topograph: json.dumps(
        {
            "switches": {"core": {"switches": ["l1", "l2"]}, "l1": None},
            "blocks": [
                {"switch": "l1", "nodes": ["a[1-2]"], "annotations": {"accelerator.x/domain": "d"}},
                {"switch": "l2", "nodes": ["b1"], "labels": {"nvidia.com/gpu.clique": 7}},
            ],
        },
        indent=1,
    ),
    node_labels: json.dumps(
        {
            "kind": "List",
            "items": [
                {"kind": "Node", "metadata": {"name": "n1", "labels": {"fabric.topograph.run/tier-0": "l", "nvidia.com/gpu.clique": "u.1"}}},
                {"kind": "Node", "metadata": {"name": "n2", "labels": {"topology.k8s.aws/network-node-layer-2": "x"}}},
                {"kind": "Node", "metadata": {"name": "n3", "labels": None}},
            ],
        },
        indent=1,
    ),
    dcgm: "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",pci_bus_id="0:D:0.0",Hostname="n1",GPU_I_ID="2"} 9223372036854775794\n'
    'DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-2",Hostname="n1",pod="p",exported_pod="q",exported_namespace="r"} 7.9e+01 1700000000\n',
    amd_metrics: json.dumps({"card0": {"GPU use (%)": "7", "Unique ID": "0xa", "PCI Bus": "0000:0a:00.0"}, "system": {}}, indent=1),
    prometheus_json: json.dumps(
        {
            "status": "success",
            "data": {"resultType": "matrix", "result": [{"metric": {"__name__": "DCGM_X", "UUID": "GPU-1", "gpu": "0"}, "values": [[1, "2"], [3, "NaN"]]}]},
        },
        indent=1,
    ),
}  # fmt: skip

PIECES = st.sampled_from([
    "\x1b[31m", "\r\n", "\t", "\\", '"', "[", "]", "{", "}", "=", ",", "[1-", "99999999999", "-1", "null", "0x", "\ufffd", "\x00",
    " Nodes=", "SwitchName=", "tier-99", "NaN", "1e999", "e+0", "...", "Nodes", "labels", "true", "{}", "[]", "\u0661", "\ud800",
])  # fmt: skip


def mutations(sample: str) -> st.SearchStrategy[str]:
    """Cut the sample, drop columns, insert pieces and change case, at random."""
    cut = st.tuples(st.just("cut"), st.integers(0, len(sample)), st.integers(0, 40))
    put = st.tuples(st.just("put"), st.integers(0, len(sample)), PIECES)
    case = st.tuples(st.just("case"), st.integers(0, len(sample)), st.integers(1, 60))
    return st.lists(cut | put | case, max_size=6).map(lambda changes: _changed(sample, changes))


def _changed(text: str, changes: Sequence[tuple[str, int, int | str]]) -> str:
    for change, at, what in changes:
        if isinstance(what, str):
            text = text[:at] + what + text[at:]
        elif change == "case":
            text = text[:at] + text[at : at + what].swapcase() + text[at + what :]
        else:
            text = text[:at] + text[at + what :]
    return text


def outcome(reader: ModuleType, text: str) -> str:
    """Return what a reader makes of a text, as one string."""
    recognised = reader.recognises(text)
    refusal: RefusedError | None = None
    document: dict[str, Any] = {}
    try:
        document = reader.read(text).document()
    except RefusedError as refused:
        refusal = refused
    if refusal is None:
        check(document)
    return f"{recognised} {refusal or json.dumps(document, allow_nan=False)}"


def check(document: dict[str, Any]) -> None:
    if document["kind"] == "metrics":
        assert all(isinstance(entry["value"], int | float) for entry in document["series"])
        return
    names = [node["name"] for node in document["nodes"]]
    assert len(names) == len(set(names)) > 0
    assert all(len(node["path"]) <= len(document["levels"]) and "" not in node["path"] for node in document["nodes"])


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.FORMAT)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_changed_sample_is_read_or_refused(reader: ModuleType, data: st.DataObject):
    text = data.draw(mutations(SAMPLES[reader]))
    assert outcome(reader, text) == outcome(reader, text)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused_by_every_reader(content: bytes):
    for reader in READERS:
        outcome(reader, content.decode("utf-8", "replace"))


@settings(max_examples=80, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", "n[1-2]", "vector", "Node", "u.1", "1"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([
                    "kind", "metadata", "labels", "name", "items", "nodes", "switches", "blocks", "switch", "annotations", "card0",
                    "GPU use (%)", "nvidia.com/gpu.clique", "fabric.topograph.run/tier-0", "status", "data", "resultType", "result",
                    "metric", "value", "values", "UUID", "__name__", "topology", "tree", "block", "provider", "engine", "errorType",
                ]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)  # fmt: skip
def test_json_of_any_shape_is_read_or_refused_by_every_reader(value: object):
    for reader in READERS:
        outcome(reader, json.dumps(value))


@settings(max_examples=100, deadline=None)
@given(st.text("n[]-,019 \\", max_size=40))
def test_a_host_list_has_only_whole_names(text: str):
    hosts, _ = expand(text)
    assert all(host and not set(host) & set("[], ") for host in hosts)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20)), min_size=1, max_size=5))
def test_ranges_hold_every_number_once(spans: list[tuple[int, int]]):
    text = "n[" + ",".join(f"{first:03d}-{first + more:03d}" for first, more in spans) + "]"
    assert expand(text) == ([f"n{i:03d}" for first, more in spans for i in range(first, first + more + 1)], [])


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.FORMAT)
@pytest.mark.parametrize(
    "piece", ["SwitchName=", "n[1-", "[", '{"nodes":', 'DCGM_FI_X{a="', "\\", "a=", 'gpu_id="', "\x1b[", " "]
)
@pytest.mark.timeout(20)
def test_long_repetitions_take_linear_time(reader: ModuleType, piece: str):
    outcome(reader, piece * 20_000)
    outcome(reader, SAMPLES[reader] + piece * 20_000)

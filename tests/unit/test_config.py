"""The configuration: every problem at once, with its path and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyscheduler.config import Config
from pyscheduler.errors import ConfigError
from pyscheduler.readers.fabric.rules import FabricConfig


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_defaults_hold_without_a_file() -> None:
    config = Config.load(None)
    assert config.scheduler_name == "gpu-topology"
    assert config.resources == ("nvidia.com/gpu", "amd.com/gpu", "tencent.com/vcuda-core")
    assert config.units_per_gpu == {"tencent.com/vcuda-core": 100}


def test_file_is_read_and_the_command_line_wins(tmp_path: Path) -> None:
    path = _file(tmp_path, "socket: /a\nhttp_port: 0\nfabric: {source: hypernodes}\n")
    config = Config.load(path, socket="/b", kubeconfig=None)
    assert (config.socket, config.http_port, config.fabric.source, config.kubeconfig) == ("/b", 0, "hypernodes", None)


def test_lease_and_host_of_an_election_are_read_and_may_be_left_out(tmp_path: Path) -> None:
    assert (Config().lease, Config().host) == (None, None)
    config = Config.load(_file(tmp_path, "lease: kube-system/gpu-topology\nhost: replica-1\n"))
    assert (config.lease, config.host) == ("kube-system/gpu-topology", "replica-1")
    assert Config.load(_file(tmp_path, "lease: null\nhost:\n")) == Config()


def test_units_that_are_set_stand_beside_those_that_are_known(tmp_path: Path) -> None:
    config = Config.load(
        _file(tmp_path, "resources: [nvidia.com/gpu, example.com/core]\nunits_per_gpu: {example.com/core: 10}\n")
    )
    assert config.units_per_gpu == {"tencent.com/vcuda-core": 100, "example.com/core": 10}
    raw = {"metadata": {"name": "n1"}, "status": {"allocatable": {"example.com/core": "40"}}}
    assert config.reader().node(raw).allocatable == 4


def test_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert Config.load(_file(tmp_path, "")) == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("sockett: /a", "sockett: unknown; known are socket,", id="unknown key"),
        pytest.param("http_port: 70000", "http_port: 70000 must be a whole number from 0 to 65535", id="port out of range"),
        pytest.param("http_port: true", "http_port: True must be", id="a truth value is no port"),
        pytest.param("log_format: xml", "log_format: 'xml' is none of json, text", id="unknown format"),
        pytest.param("resources: []", "resources: () must be a list of names", id="no resource"),
        pytest.param("resources: gpu", "resources: 'gpu' must be a list of names", id="a text is no list"),
        pytest.param("units_per_gpu: 100", "units_per_gpu: 100 must be a mapping of resources to numbers", id="units of nothing"),
        pytest.param("units_per_gpu:", "units_per_gpu: None must be a mapping", id="units left empty"),
        pytest.param("units_per_gpu: {tencent.com/vcuda-core: 0}", "vcuda-core: 0 must be a whole number from 1", id="no units"),
        pytest.param("units_per_gpu: {tencent.com/vcuda-core: 0.5}", "vcuda-core: 0.5 must be", id="half a unit"),
        pytest.param(
            "units_per_gpu: {tencent.com/vcuda-core: true}", "vcuda-core: True must be", id="a truth value is no number"
        ),
        pytest.param(
            "units_per_gpu: {example.com/core: 10}",
            "units_per_gpu.example.com/core: is not one of resources, nvidia.com/gpu, amd.com/gpu, tencent.com/vcuda-core: add it",
            id="units of what is no resource",
        ),
        pytest.param("levels: [rack]", "write `fabric: {pools: [{name: all, levels: [...]}]}`", id="where levels are written"),
        pytest.param("1: a", "1: unknown", id="a key that is no text"),
        pytest.param(f"socket: /{'x' * 120}", "longer than 107 bytes", id="socket path that the kernel refuses"),
        pytest.param(
            "lease: kube-scheduler", "lease: 'kube-scheduler' must be namespace and name", id="a Lease without namespace"
        ),
        pytest.param("lease: a/b/c", "such as kube-system/kube-scheduler", id="a Lease with too many parts"),
        pytest.param("lease: kube-system/Lease_1", "lease: 'kube-system/Lease_1' must be", id="a name that no Lease has"),
        pytest.param("lease: ''", "lease: '' must be a text that is not empty", id="an empty Lease"),
        pytest.param("host: 7", "host: 7 must be a text that is not empty", id="a host name that is a number"),
        pytest.param("- a", "must be a mapping", id="a list"),
        pytest.param("a: [", "is not YAML", id="not YAML"),
    ],
)
def test_bad_configuration_is_refused_with_path_and_fix(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(_file(tmp_path, text))
    assert says in str(caught.value)
    assert "config.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(_file(tmp_path, "x: 1\nhttp_port: -1\nlog_level: loud"))
    assert all(key in str(caught.value) for key in ("x:", "http_port:", "log_level:"))


def test_missing_file_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name an existing file with --config"):
        Config.load(tmp_path / "none.yaml")


POOLS = """
fabric:
  pools:
    - name: h200
      selector: {dc.example/card: "h200", dc.example/spare: ""}
      order: farthest-first
      levels: [dc.example/hall, {name: rack, label: dc.example/rack}]
    - name: racks
      levels: [dc.example/rack]
      nvlink_domain: dc.example/nvl
"""


def test_pools_are_read_nearest_first(tmp_path: Path) -> None:
    cards, racks = Config.load(_file(tmp_path, POOLS)).fabric.pools

    assert [(level.name, level.keys) for level in cards.levels] == [
        ("rack", ("dc.example/rack",)),
        ("dc.example/hall", ("dc.example/hall",)),
    ]
    assert dict(cards.selector) == {"dc.example/card": "h200", "dc.example/spare": ""}
    assert (racks.name, racks.selector, racks.nvlink_domain) == ("racks", (), "dc.example/nvl")


def test_rules_hold_the_pools(tmp_path: Path) -> None:
    config = Config.load(_file(tmp_path, POOLS))

    assert config.fabric.rules.pools == config.fabric.pools


@pytest.mark.parametrize("text", ["fabric:", "fabric: {}", "fabric: {source: labels}", "fabric: {pools: []}"])
def test_a_fabric_without_settings_is_read_by_the_known_labels(tmp_path: Path, text: str) -> None:
    assert Config.load(_file(tmp_path, text)).fabric == FabricConfig("labels", "default", ())


def test_a_topology_of_kueue_is_named(tmp_path: Path) -> None:
    fabric = Config.load(_file(tmp_path, "fabric: {source: kueue, topology: gpus}")).fabric

    assert (fabric.source, fabric.topology) == ("kueue", "gpus")


@pytest.mark.parametrize(
    ("fabric", "says"),
    [
        ("labels", "fabric: 'labels' must be a mapping with source, topology, pools"),
        ("{sources: labels}", "fabric.sources: unknown; known are source, topology, pools"),
        ("{source: volcano}", "fabric.source: 'volcano' is none of labels, hypernodes, kueue"),
        ("{source: [labels]}", "fabric.source: ['labels'] is none of"),
        ("{topology: gpus}", "fabric.topology: has a meaning with source: kueue alone"),
        ("{source: kueue, topology: 7}", "fabric.topology: 7 must be a text"),
        ("{source: kueue, pools: []}", "fabric.pools: has a meaning with source: labels alone"),
        ("{pools: {name: a}}", "fabric.pools: {'name': 'a'} must be a list"),
        ("{pools: [a]}", "fabric.pools[0]: 'a' must be a mapping"),
        ("{pools: [{levels: [a]}]}", "fabric.pools[0].name: is missing"),
        ("{pools: [{name: a}]}", "fabric.pools[0].levels: is missing"),
        ("{pools: [{name: '', levels: []}]}", "fabric.pools[0].name: '' must be a text"),
        ("{pools: [{name: a, levels: a}]}", "fabric.pools[0].levels: 'a' must be a list"),
        ("{pools: [{name: a, level: [], levels: []}]}", "fabric.pools[0].level: unknown"),
        ("{pools: [{name: a, levels: [a, 7]}]}", "fabric.pools[0].levels[1]: 7 must be a label key"),
        ("{pools: [{name: a, levels: ['a b']}]}", "fabric.pools[0].levels[0]: 'a b' must be a label key"),
        ("{pools: [{name: a, levels: [{name: a}]}]}", "fabric.pools[0].levels[0].label: is missing"),
        ("{pools: [{name: a, levels: [{name: a, key: b, label: c}]}]}", "fabric.pools[0].levels[0].key: unknown"),
        ("{pools: [{name: a, levels: [{name: r, label: a}, {name: r, label: b}]}]}", "levels[1]: name 'r' is that of"),
        ("{pools: [{name: a, levels: [{name: r, label: a}, {name: s, label: a}]}]}", "levels[1]: label 'a' is that of"),
        ("{pools: [{name: a, levels: [], order: outward}]}", "fabric.pools[0].order: 'outward' is none of nearest-first,"),
        ("{pools: [{name: a, levels: [], nvlink_domain: ''}]}", "fabric.pools[0].nvlink_domain: '' must be a label key"),
        ("{pools: [{name: a, levels: [], selector: gpu}]}", "fabric.pools[0].selector: 'gpu' must be a mapping"),
        ("{pools: [{name: a, levels: [], selector: {gpu: true}}]}", "fabric.pools[0].selector.gpu: True must be a text; put"),
        ("{pools: [{name: a, levels: [], selector: {'g p': x}}]}", "fabric.pools[0].selector: 'g p' must be a label key"),
        ("{pools: [{name: a, levels: []}, {name: b, levels: []}]}", "fabric.pools[0]: has no selector, so the pools after"),
        ("{pools: [{name: a, levels: [], selector: {x: y}}, {name: a, levels: []}]}", "fabric.pools[1]: name 'a' is that of"),
    ],
)
def test_a_bad_fabric_is_refused_with_path_and_fix(tmp_path: Path, fabric: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(_file(tmp_path, f"fabric: {fabric}"))
    assert says in str(caught.value)


def test_all_problems_of_a_fabric_are_listed_with_those_of_the_rest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(_file(tmp_path, "fabric: {source: x, pools: [{nam: a}]}\nhttp_port: -1"))
    paths = ("fabric.source:", "pools[0].nam:", "pools[0].name:", "pools[0].levels:", "http_port:")
    assert all(path in str(caught.value) for path in paths)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 5000], ids=["no text", "nested without end"])
def test_what_is_no_yaml_is_one_problem_and_no_traceback(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.yaml: is not YAML"):
        Config.load(path)

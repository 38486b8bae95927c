"""The parts metrics, tuning and capacity of the configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pyscheduler.config import Config
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.errors import ConfigError
from pyscheduler.readers import capacity_config
from pyscheduler.readers.durations import seconds
from pyscheduler.readers.metrics_config import MetricsConfig


def load(folder: Path, text: str) -> Config:
    path = folder / "config.yaml"
    path.write_text(text)
    return Config.load(path)


CLASSIC = """
metrics:
  collectionInterval: 30s
  historyWindow: 10m
tuning:
  capacityThreshold: 0.65
  stabilizationWindow: 2m
"""
DOTTED = """
metrics.collectionInterval: 30s
metrics.historyWindow: 10m
tuning.capacityThreshold: 0.65
tuning.stabilizationWindow: 2m
"""


@pytest.mark.parametrize("text", [CLASSIC, DOTTED], ids=["nested", "dotted"])
def test_classic_file_is_read_as_it_stands(tmp_path: Path, text: str) -> None:
    config = load(tmp_path, text)
    assert (config.metrics.interval_s, config.metrics.history_s, config.metrics.url) == (30, 600, None)
    assert (config.capacity.threshold, config.capacity.window_s, config.capacity.mode) == (0.65, 120, Mode.LAYERED)


def test_classic_file_with_other_values_changes_them(tmp_path: Path) -> None:
    text = CLASSIC.replace("30s", "15s").replace("10m", "1h30m").replace("0.65", "0.8").replace("2m", "90s")
    config = load(tmp_path, text)
    assert (config.metrics.interval_s, config.metrics.history_s) == (15, 5400)
    assert (config.capacity.threshold, config.capacity.window_s) == (0.8, 90)
    assert (config.capacity.interval_s, config.capacity.availability.history_s) == (15, 5400)
    assert config.capacity.states.recover_threshold == pytest.approx(0.87), "the bar of recovery stays above the threshold"


def test_without_the_parts_nobody_is_asked_and_the_thresholds_are_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, "metrics:\ntuning: {}\ncapacity:\n")
    assert (config.metrics, config.capacity) == (MetricsConfig(), CapacityConfig())
    assert config == Config()


def test_everything_that_is_said_of_prometheus_is_read(tmp_path: Path) -> None:
    text = """
metrics:
  url: https://prometheus.example/base/
  timeout: 5s
  tokenFile: /t
  caFile: /ca
  certFile: /c
  keyFile: /k
  headers: {X-Scope-OrgID: team}
  nodeLabels: [node_name, node]
  amdPrefix: amd_
  evidence: lab_goodness
"""
    assert load(tmp_path, text).metrics == MetricsConfig(
        url="https://prometheus.example/base",
        timeout_s=5,
        token_file="/t",  # noqa: S106
        ca_file="/ca",
        cert_file="/c",
        key_file="/k",
        headers={"X-Scope-OrgID": "team"},
        node_labels=("node_name", "node"),
        amd_prefix="amd_",
        evidence="lab_goodness",
    )


def test_thresholds_go_where_the_core_looks_for_them(tmp_path: Path) -> None:
    text = "tuning: {decayFactor: 0.8, recoveryThreshold: 0.9, ownBusyTime: 3h, slowShare: 0.1}\ncapacity: {mode: classic}\n"
    capacity = load(tmp_path, text).capacity
    assert capacity.mode is Mode.CLASSIC
    assert capacity.availability.decay_factor == 0.8
    assert capacity.states.recover_threshold == 0.9
    assert capacity.speed.own_busy_s == 10800
    assert capacity.breakers.slow_share == 0.1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("metrics: http://p", "metrics: must be a mapping of url,"),
        ("metrics: {adress: x}", "metrics.adress: unknown; known are url, collectionInterval,"),
        ("metrics: {url: prometheus:9090}", "metrics.url: 'prometheus:9090' must be the address of Prometheus, such as http://"),
        ("metrics: {url: 'http://p:99999'}", "metrics.url: 'http://p:99999' must be the address"),
        ("metrics: {url: 'http://a:b@p'}", "metrics.url: must not hold a password: write metrics.username"),
        ("metrics: {collectionInterval: 30}", "metrics.collectionInterval: 30 must be a duration from 5s to 600s, such as 30s"),
        ("metrics: {collectionInterval: 1s}", "metrics.collectionInterval: '1s' must be a duration from 5s"),
        ("metrics: {historyWindow: 10 min}", "metrics.historyWindow: '10 min' must be a duration"),
        ("metrics: {tokenFile: ''}", "metrics.tokenFile: must be a text that is not empty"),
        ("metrics: {tokenFile: /t, username: u, passwordFile: /p}", "metrics.tokenFile: stands beside metrics.username"),
        ("metrics: {username: u}", "metrics.username: needs metrics.passwordFile"),
        ("metrics: {keyFile: /k}", "metrics.keyFile: needs metrics.certFile"),
        ("metrics: {username: 'a:b', passwordFile: /p}", "metrics.username: must be the name alone"),
        ("metrics: {headers: [a]}", "metrics.headers: must be a mapping of names to texts"),
        ("metrics: {headers: {a b: c}}", "metrics.headers.a: the name must be letters, digits and hyphens"),
        ("metrics: {headers: {A: 5}}", "metrics.headers.A: must be a text: put it in quotes"),
        ('metrics: {headers: {A: "b\\nC: d"}}', "metrics.headers.A: must be one line of ASCII"),
        ("metrics: {headers: {A: ' b'}}", "metrics.headers.A: must be one line of ASCII, without a space at its ends"),
        ("metrics: {headers: {A: ü}}", "metrics.headers.A: must be one line of ASCII"),
        ("metrics: {headers: {A: b, C: €}}", "metrics.headers.C: must be one line of ASCII"),
        ("metrics: {nodeLabels: node}", "metrics.nodeLabels: 'node' must be a list of labels"),
        ("metrics: {nodeLabels: []}", "metrics.nodeLabels: [] must be a list of labels"),
        ("metrics: {nodeLabels: ['node) or (up']}", "metrics.nodeLabels: ['node) or (up'] must be a list of labels"),
        ("metrics: {amdPrefix: 'a-'}", "metrics.amdPrefix: 'a-' must be the beginning of a metric's name"),
        ("metrics: {evidence: 'a or b'}", "metrics.evidence: 'a or b' must be the name of a metric"),
        ("tuning: 1", "tuning: 1 must be a mapping of capacityThreshold,"),
        ("tuning: {threshold: 1}", "tuning.threshold: unknown; known are capacityThreshold,"),
        ("tuning: {capacityThreshold: 65}", "tuning.capacityThreshold: 65 must be a number above 0 and below 1"),
        ("tuning: {capacityThreshold: true}", "tuning.capacityThreshold: True must be a number"),
        ("tuning: {stabilizationWindow: 120}", "tuning.stabilizationWindow: 120 must be a duration, such as 2m"),
        (
            "tuning: {capacityThreshold: 0.9, recoveryThreshold: 0.7}",
            "tuning.recoveryThreshold: 0.7 must be at least tuning.capacityThreshold (0.9)",
        ),
        ("capacity: classic", "capacity: 'classic' must be a mapping with mode"),
        ("capacity: {mode: simple}", "capacity.mode: 'simple' is none of layered, classic"),
        ("capacity: {modus: classic}", "capacity.modus: unknown; known are mode, evidence"),
        ("metrics: {timeout: 5s}\nmetrics.timeout: 6s", "metrics.timeout: is written twice"),
        ("metrics.adress: x", "metrics.adress: unknown"),
    ],
)
def test_bad_settings_are_refused_with_path_and_fix(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "metrics: http://ali:hunter2@p",
        "metrics: [{headers: {Authorization: Bearer hunter2}}]",
        "metrics: {url: 'https://ali:x/hunter2@p'}",
        "metrics: {url: 'ftp://ali:hunter2@p'}",
        "metrics: {url: 'http://p/?token=hunter2'}",
        "metrics: {url: {http: hunter2}}",
        "metrics: {tokenFile: [hunter2]}",
        "metrics: {username: 'ali:hunter2', passwordFile: /p}",
        "metrics: {headers: 'Authorization: Bearer hunter2'}",
        "metrics: {headers: ['Authorization: Bearer hunter2']}",
        "metrics: {headers: {'Authorization: Bearer hunter2': x}}",
        'metrics: {headers: {Authorization: "Bearer hunter2\\nx"}}',
        "metrics: {headers: {Authorization: [Bearer hunter2]}}",
        "metrics: {headers: {Authorization: Bearer hunter2: x}}",
        "metrics: {headers: {Authorization: *hunter2}}",
        "metrics: {headers: {Authorization: !hunter2 x}}",
        "metrics: {headers: {Authorization: !a!hunter2 x}}",
        "metrics: {headers: {Authorization: !!int hunter2}}",
        'metrics: {headers: {Authorization: "Bearer hunter2',
    ],
)
def test_secret_of_the_file_is_in_no_message(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert "hunter2" not in str(caught.value)


def test_place_of_what_is_no_yaml_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml: is not YAML \(line 2, column 5: mapping values are not allowed here\)"):
        load(tmp_path, "a: 1\nb: c: d\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: is not YAML \(a number, a date or another value"):
        load(tmp_path, "a: 2024-99-99\n")


def test_key_that_is_written_twice_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "tuning.decayFactor: 0.8\ntuning: {decayFactor: 0.9}\n")
    assert str(caught.value).endswith("config.yaml: tuning.decayFactor: is written twice: write it once, under tuning")


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "metrics: {url: x, timeout: 1}\ntuning: {spike: x}\ncapacity: {mode: x}\nhttp_port: -1\n")
    assert all(
        key in str(caught.value) for key in ("metrics.url", "metrics.timeout", "tuning.spike", "capacity.mode", "http_port")
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30), ("10m", 600), ("1h30m", 5400), (" 2m ", 120), ("0s", 0), ("", None), ("5", None), ("1.5m", None), (30, None)],
)
def test_durations(text: object, expected: float | None) -> None:
    assert seconds(text) == expected


def test_every_threshold_of_the_core_can_be_set() -> None:
    """But for those that the part `metrics` sets, and those that are no thresholds."""
    elsewhere = {"interval_s", "history_s", "mode", "evidence", "score_weight"}
    parts = {field.name: field.type for field in dataclasses.fields(CapacityConfig)}
    names = {("", name) for name in parts if not dataclasses.is_dataclass(getattr(CapacityConfig(), name))}
    for part in parts:
        value = getattr(CapacityConfig(), part)
        if dataclasses.is_dataclass(value):
            names |= {(part, field.name) for field in dataclasses.fields(value)}
    settable = {where for table, _, _ in capacity_config._TABLES for where in table.values()}
    assert {name for name in names - settable if name[1] not in elsewhere} == {("faults", "harmless_xids")}


def test_thresholds_of_each_kind_are_read_and_checked() -> None:
    good, problems = capacity_config.capacity_config(
        {"madWidths": 4, "peerQuorum": 7, "likeLoadTime": "30s", "harmlessXids": [13, 99], "weakEvidence": 0.2},
        {"scoreWeight": 0},
    )
    assert problems == []
    assert (good.speed.mad_widths, good.speed.quorum, good.speed.like_load_s, good.faults.harmless_xids) == (
        4.0,
        7,
        30.0,
        (13, 99),
    )
    assert good.score_weight == 0.0
    for bad in ({"madWidths": 0}, {"peerQuorum": 2.5}, {"likeLoadTime": 3}, {"harmlessXids": 13}, {"weakEvidence": 2}):
        assert len(capacity_config.capacity_config(bad, None)[1]) == 1
    assert len(capacity_config.capacity_config(None, {"scoreWeight": -1})[1]) == 1


@pytest.mark.parametrize(
    "key", ["slowShare", "memoryWeight", "availabilityExponent", "throttleFloor", "weakEvidence", "busyPower"]
)
def test_what_is_not_to_count_is_set_to_0(key: str) -> None:
    read, problems = capacity_config.capacity_config({key: 0}, None)
    assert problems == []
    assert read != CapacityConfig()


@pytest.mark.parametrize("key", ["lateAfter", "unknownAfter", "goneAfter", "forgetAfter"])
@pytest.mark.parametrize("age", ["0s", "4s"])
def test_age_that_every_sample_has_is_refused(key: str, age: str) -> None:
    _, problems = capacity_config.capacity_config({key: age}, None)
    assert problems == [f"tuning.{key}: '{age}' must be a duration from 5s, and longer than the scrape interval, such as 75s"]


@pytest.mark.parametrize(
    ("tuning", "says"),
    [
        ({"lateAfter": "10m"}, "tuning.unknownAfter: is 180s, must be at least tuning.lateAfter (600s)"),
        ({"lateAfter": "10m", "unknownAfter": "1m"}, "tuning.unknownAfter: is 60s, must be at least tuning.lateAfter (600s)"),
        ({"unknownAfter": "1m"}, "tuning.unknownAfter: is 60s, must be at least tuning.lateAfter (75s)"),
        ({"unknownAfter": "1h"}, "tuning.goneAfter: is 1800s, must be at least tuning.unknownAfter (3600s)"),
        ({"forgetAfter": "10m"}, "tuning.forgetAfter: is 600s, must be at least tuning.goneAfter (1800s)"),
    ],
)
def test_ages_follow_one_another(tuning: dict[str, object], says: str) -> None:
    assert capacity_config.capacity_config(tuning, None)[1] == [says]


def test_one_of_the_two_free_shares_must_count() -> None:
    _, problems = capacity_config.capacity_config({"smWeight": 0, "memoryWeight": 0}, None)
    assert [problem.partition(":")[0] for problem in problems] == ["tuning.smWeight"]
    assert capacity_config.capacity_config({"smWeight": 0}, None)[1] == []


def test_ages_may_be_the_same() -> None:
    ages = dict.fromkeys(("lateAfter", "unknownAfter", "goneAfter", "forgetAfter"), "3m")
    read, problems = capacity_config.capacity_config(ages, None)
    assert problems == []
    assert (read.breakers.late_s, read.breakers.forget_s) == (180, 180)


@pytest.mark.parametrize(
    "bad",
    [
        {"peerBaseline": 1},
        {"ownBaseline": 1},
        {"moved": 1},
        {"capacityThreshold": 1},
        {"powerBrake": 0},
        {"peerHalfLife": "0s"},
        {"latelyHalfLife": "0m"},
        {"burdenHalfLife": "0s"},
        {"loadBusyTime": "0s"},
        {"ownBusyTime": "0s"},
        {"spike": float("nan")},
    ],
)
def test_what_would_be_divided_by_0_is_refused(bad: dict[str, object]) -> None:
    (key,) = bad
    _, problems = capacity_config.capacity_config(bad, None)
    assert [problem.partition(":")[0] for problem in problems] == [f"tuning.{key}"]

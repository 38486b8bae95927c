"""The shipped rules and scrape configuration in Prometheus itself: what they record, when alerts fire, which labels they give."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml

from deploy.local.layout import REPOSITORY
from pyscheduler.adapters.prometheus import Memory, collect
from pyscheduler.core.capacity.config import FaultConfig
from pyscheduler.readers.metrics_config import MetricsConfig
from tests.integration.prometheus_server import PROGRAM, Prometheus, await_, program
from tests.sim.exporter import Exporters, small_fleet
from tests.sim.fleet import Generation

FOLDER: Final = REPOSITORY / "deploy" / "prometheus"
RULES: Final = tuple(str(FOLDER / file) for file in ("recording-rules.yaml", "alerts.yaml"))
CARD: Final = 'UUID="GPU-1", modelName="H100", node="n1"'
MODEL: Final = 'modelName="H100", node="n1"'
# Steps of a series that goes on to the end of any test.
FOREVER: Final = 800
STEP_S: Final = 30


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool. Without one the test is left out, where every change is judged it fails."""
    beside = PROGRAM.with_name("promtool")
    found = str(beside) if beside.exists() else shutil.which("promtool")
    if found is None:
        why = "no promtool to check the rules with: run deploy/local/prometheus.sh .build/bin"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return subprocess.run([found, *arguments], capture_output=True, text=True, check=False)


@dataclass
class History:
    """Series over time, a value every 30 s, and what is asked of them at the end."""

    folder: Path
    series: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def add(self, series: str, *values: object) -> None:
        """Add a series; a value for each step, in promtool's notation."""
        self.series[series] = " ".join(map(str, values))

    def expect(self, after_s: float, expression: str, found: Mapping[str, float]) -> None:
        """Ask for an expression."""
        samples = [{"labels": labels, "value": value} for labels, value in found.items()]
        self.asked.append({"expr": expression, "eval_time": f"{after_s:.0f}s", "exp_samples": samples})

    def firing(self, after_s: float, *alerts: str) -> None:
        """Ask which alerts fire."""
        names = {f'{{alertname="{alert}"}}': 1.0 for alert in alerts}
        self.expect(after_s, 'group by (alertname) (ALERTS{alertstate="firing"})', names)

    def check(self) -> None:
        """Have Prometheus answer."""
        assert self.asked
        path = self.folder / "test.yaml"
        series = [{"series": name, "values": values} for name, values in self.series.items()]
        tests = [{"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": self.asked}]
        path.write_text(json.dumps({"rule_files": RULES, "evaluation_interval": f"{STEP_S}s", "tests": tests}))
        ran = promtool("test", "rules", str(path))
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def steady(value: float) -> str:
    return f"{value}x{FOREVER}"


def growing(start: float, by: float) -> str:
    return f"{start}+{by}x{FOREVER}"


def absent(seconds: float) -> str:
    return f"_x{seconds / STEP_S:.0f}"


def test_rules_are_accepted() -> None:
    ran = promtool("check", "rules", *RULES)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_expressions_of_the_dashboard_are_accepted(tmp_path: Path) -> None:
    dashboard = json.loads((REPOSITORY / "deploy" / "dashboards" / "pyscheduler.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    rules = [{"record": f"panel:{n}", "expr": re.sub(r"\$\w+", ".*", each)} for n, each in enumerate(expressions)]
    path = tmp_path / "panels.yaml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    ran = promtool("check", "rules", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_scrape_configuration_is_accepted(tmp_path: Path) -> None:
    config = yaml.safe_load((FOLDER / "scrape-configs.yaml").read_text())
    for job in config["scrape_configs"]:
        # Debian's Prometheus is built without the discovery of Kubernetes.
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    path = tmp_path / "prometheus.yaml"
    path.write_text(json.dumps(config))
    ran = promtool("check", "config", "--syntax-only", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _labels(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def test_cards_of_all_exporters_are_recorded_in_one_unit(history: History) -> None:
    live = small_fleet()
    live.work(range(len(live.fleet.cards)))
    clocks: dict[str, float] = {}
    units = {"DCGM_FI_DEV_SM_CLOCK": 1e6, "DCGM_FI_DEV_SM_CLOCK_HERTZ": 1.0, "gpu_clock": 1e6}
    for node in live.fleet.nodes:
        for name, text, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", live.text(node.name), re.MULTILINE):
            labels = _labels(text) | {"node": node.name}
            if node.exporter is Generation.AMD:
                labels |= {"UUID": labels["gpu_uuid"], "modelName": labels["card_model"]}
            history.add(f"{name}{{{', '.join(f'{k}={json.dumps(v)}' for k, v in labels.items())}}}", f"{value}x4")
            if name in units and labels.get("clock_type", "system") == "system":
                key = f'{{UUID="{labels["UUID"]}"}}'
                clocks[key] = max(clocks.get(key, 0.0), float(value) * units[name])
    assert len(clocks) == len(live.fleet.cards)
    history.expect(60, "max by (UUID) (gpu:sm_clock:hertz)", clocks)
    for recorded in ("engine_active:ratio", "sm_active:ratio", "memory_used:ratio", "power:watts", "temperature:celsius"):
        history.expect(60, f'count(gpu:{recorded}{{node!="", UUID!="", modelName!=""}} > 0)', {"{}": len(clocks)})
    history.expect(
        60, "count(gpu:memory_used:ratio <= 1 and gpu:engine_active:ratio <= 1 and gpu:sm_active:ratio <= 1)", {"{}": len(clocks)}
    )
    history.expect(60, "count(gpu:clock_of_peers:ratio > 0.8 < 1.2)", {"{}": len(clocks)})
    history.firing(60)
    history.check()


@pytest.mark.parametrize(
    ("metric", "values", "reason", "share"),
    [
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", growing(0, 15e9), "hw_thermal", 0.5),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", growing(0, 3e9), "hw_thermal", 0.1),
        ("gpu_violation_hbm_thermal_residency_percentage", steady(20), "hw_thermal", 0.2),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", growing(0, 3e9), "sw_thermal", 0.1),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", growing(0, 3e9), "power_brake", 0.1),
        ("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", growing(0, 30), "power_cap", 1.0),
        ("gpu_violation_ppt_residency_percentage", steady(90), "power_cap", 0.9),
    ],
)
def test_throttling_is_recorded_as_a_share_of_time(history: History, metric: str, values: str, reason: str, share: float) -> None:
    history.add(f"{metric}{{{CARD}}}", values)
    history.expect(600, "gpu:throttled:ratio", {f'gpu:throttled:ratio{{{CARD}, reason="{reason}"}}': share})
    history.check()


@pytest.mark.parametrize(
    ("series", "values", "kind"),
    [
        pytest.param("DCGM_FI_DEV_ROW_REMAP_FAILURE{%s}", "0x240 1x20", "row_remap", id="row remap"),
        pytest.param("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s}", "3x240 4x20", "double_bit", id="double bit"),
        pytest.param('DCGM_EXP_GPU_HEALTH_STATUS{%s, health_watch="MEM"}', "10x240 20x20", "health", id="DCGM's check"),
        pytest.param("gpu_health{%s}", "1x240 0x20", "health", id="AMD's check"),
        pytest.param('DCGM_EXP_XID_ERRORS_TOTAL{%s, xid="79"}', f"{absent(7200)} 1x20", "xid", id="first XID"),
        pytest.param('DCGM_EXP_XID_ERRORS_TOTAL{%s, xid="79"}', "1x240 2x20", "xid", id="one more XID"),
        pytest.param("DCGM_FI_DEV_XID_ERRORS{%s}", "0x240 79x20", "xid", id="last XID"),
        pytest.param("DCGM_FI_DEV_XID_ERROR{%s}", f"{absent(7200)} 79x20", "xid", id="last XID, the first"),
        pytest.param(
            'gpu_afid_errors{%s, severity="fatal", afid_index="0"}', f"{absent(7200)} 30x20", "xid", id="AMD's fatal error"
        ),
    ],
)
def test_fault_is_told_with_its_card(history: History, series: str, values: str, kind: str) -> None:
    history.add(series % CARD, values)
    history.firing(7000)
    alert = f'ALERTS{{alertname="GPUCardFault", alertstate="firing", severity="warning", kind="{kind}", {CARD}}}'
    history.expect(7500, "ALERTS", {alert: 1.0})
    history.check()


@pytest.mark.parametrize(
    ("series", "values"),
    [
        pytest.param('DCGM_EXP_XID_ERRORS_TOTAL{%s, xid="31"}', f"{absent(7200)} 1x20", id="XID of an application"),
        pytest.param("DCGM_FI_DEV_XID_ERRORS{%s}", "0x240 43x20", id="last XID of an application"),
        pytest.param('DCGM_EXP_XID_ERRORS_TOTAL{%s, xid="79"}', "1x260", id="an XID of long ago"),
        pytest.param("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{%s}", "3x260", id="double bits of long ago"),
        pytest.param('DCGM_EXP_GPU_HEALTH_STATUS{%s, health_watch="MEM"}', "0x240 10x20", id="a warning"),
    ],
)
def test_what_is_no_fault_is_not_told(history: History, series: str, values: str) -> None:
    history.add(series % CARD, values)
    history.firing(7500)
    history.check()


def _cards(history: History, clocks: Sequence[float], active: Sequence[float]) -> None:
    for number, (clock, share) in enumerate(zip(clocks, active, strict=True)):
        history.add(f'DCGM_FI_DEV_SM_CLOCK{{UUID="GPU-{number}", {MODEL}}}', steady(clock))
        history.add(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="GPU-{number}", {MODEL}}}', steady(share))


HOUR_S: Final = 3600


def test_card_slower_than_its_peers_is_told_after_hours(history: History) -> None:
    _cards(history, [1700] * 5 + [1460], [0.9] * 6)
    history.firing(3 * HOUR_S)
    history.firing(3.5 * HOUR_S, "GPUCardSlow")
    history.expect(3.5 * HOUR_S, "group by (UUID) (ALERTS)", {'{UUID="GPU-5"}': 1.0})
    history.check()


@pytest.mark.parametrize(
    ("clocks", "active"),
    [
        pytest.param([1700] * 5 + [345], [0.9] * 5 + [0.0], id="it is idle"),
        pytest.param([1700] * 5 + [1600], [0.9] * 6, id="6 % slower"),
        pytest.param([1700] * 4 + [1460], [0.9] * 5, id="too few peers"),
    ],
)
def test_card_that_is_not_known_to_be_slow_is_not_told(
    history: History, clocks: Sequence[float], active: Sequence[float]
) -> None:
    _cards(history, clocks, active)
    history.firing(4 * HOUR_S)
    history.check()


@pytest.mark.parametrize(
    ("series", "values", "silent_s", "firing_s", "alert"),
    [
        ('pyscheduler_cards{state="failed"}', "0x20 1x100", 600, 900, "GPUCardFailed"),
        ("pyscheduler_slow_cards_spared", "0x20 3x100", 600, 1200, "GPUCapacityBreakerOpen"),
        ("pyscheduler_card_states_frozen", "0x20 1x100", 1140, 1500, "GPUCardStatesFrozen"),
        ("pyscheduler_metric_age_seconds", "15x20 30+30x100", 600, 1500, "GPUMetricsOld"),
        ("pyscheduler_metric_age_seconds", steady(-1), 240, 600, "GPUMetricsOld"),
        ('pyscheduler_watch_blind_seconds{kind="nodes"}', "0x20 30+30x100", 600, 900, "PyschedulerDataStale"),
        ("pyscheduler_ready", steady(0), 60, 180, "PyschedulerNotReady"),
    ],
)
def test_alerts_about_the_service(
    history: History, series: str, values: str, silent_s: float, firing_s: float, alert: str
) -> None:
    history.add(series, values)
    history.firing(silent_s)
    history.firing(firing_s, alert)
    history.check()


@pytest.mark.parametrize(("spared", "alert"), [(1, "GPUCardKeptOut"), (2, None)])
def test_slow_cards_that_are_kept_out_are_told_after_six_hours(history: History, spared: int, alert: str | None) -> None:
    history.add('pyscheduler_cards{state="degraded"}', steady(2))
    history.add("pyscheduler_slow_cards_spared", steady(spared))
    history.firing(5 * HOUR_S, "GPUCapacityBreakerOpen")
    history.firing(6.1 * HOUR_S, "GPUCapacityBreakerOpen", *([alert] if alert else []))
    history.check()


def test_failing_polls_are_told_and_single_ones_are_not(history: History) -> None:
    history.add('pyscheduler_metric_polls_total{instance="a", outcome="complete"}', f"0+1x120 {steady(120)}")
    history.add('pyscheduler_metric_polls_total{instance="a", outcome="partial"}', "0x60 1x60", f"2+1x{FOREVER}")
    history.firing(3600)
    history.firing(5400, "GPUMetricsCollectorFailing")
    history.check()


def _static(job: Mapping[str, Any], address: str, path: str, found: Mapping[str, str]) -> dict[str, object]:
    """The job with a target in place of the discovery of pods, and what that would find."""
    meta = {f"__meta_kubernetes_pod_{key}": value for key, value in found.items()}
    kept = {key: value for key, value in job.items() if key not in {"kubernetes_sd_configs", "scrape_interval"}}
    return {**kept, "metrics_path": path, "static_configs": [{"targets": [address], "labels": meta}]}


def test_scraped_series_have_the_node_and_one_name_for_cards_of_both_vendors(tmp_path: Path) -> None:
    program()
    jobs = {job["job_name"]: job for job in yaml.safe_load((FOLDER / "scrape-configs.yaml").read_text())["scrape_configs"]}
    pods = {
        Generation.OLD: ("dcgm-exporter", {"label_app": "nvidia-dcgm-exporter", "container_port_number": "9400"}),
        Generation.NEW: ("dcgm-exporter", {"label_app_kubernetes_io_name": "dcgm-exporter", "container_port_number": "9400"}),
        Generation.AMD: ("amd-metrics-exporter", {"label_app": "gpu-amdgpu-metrics-exporter", "container_port_number": "5000"}),
    }
    live = small_fleet()
    exporters = Exporters(live)
    with exporters.serving() as address:
        scraped = []
        for number, node in enumerate(live.fleet.nodes):
            name, found = pods[node.exporter]
            # The name in Kubernetes need not be what the exporter calls its host.
            job = _static(jobs[name], address, exporters.path(node.name), {**found, "node_name": f"worker-{number}"})
            scraped.append({**job, "job_name": f"{name}-{number}"})
        prometheus = Prometheus(tmp_path, scraped)
        try:
            prometheus.start()
            await_(prometheus.scrapes, "all exporters are scraped")
            of_power = '{__name__=~"DCGM_FI_DEV_POWER_USAGE|DCGM_FI_DEV_BOARD_POWER_WATTS|gpu_package_power"}'
            query = f"group by (node, UUID, modelName) ({of_power})"
            asked = requests.get(f"{prometheus.url}/api/v1/query", {"query": query}, timeout=5).json()["data"]["result"]
            config, now = MetricsConfig(url=prometheus.url), time.time()
            workers = {f"worker-{number}": f"worker-{number}" for number in range(len(live.fleet.nodes))}
            poll = collect(config, FaultConfig().harmless_xids, workers, Memory(polled=now - 1), now).polls[-1]
        finally:
            prometheus.kill()
    cards = {
        (f"worker-{card.node}", card.uuid.removeprefix("GPU-") if generation is Generation.AMD else card.uuid)
        for card in live.fleet.cards
        for generation in [live.fleet.nodes[card.node].exporter]
    }
    assert {(each["metric"]["node"], each["metric"]["UUID"]) for each in asked} == cards
    assert all(each["metric"]["modelName"] for each in asked)
    # The service knows the same cards by these labels.
    assert {(key.node, key.uuid) for key in poll.cards} == cards

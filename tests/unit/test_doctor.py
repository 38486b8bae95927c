"""`pyscheduler doctor`: what Prometheus says and what the cluster has, to findings that say what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from pyscheduler.adapters.prometheus import Collected, Memory
from pyscheduler.cli.doctor_checks import check
from pyscheduler.cli.doctor_facts import Answers, Series, Targets, fleet_of
from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.config import BreakerConfig, CapacityConfig
from pyscheduler.core.capacity.poll import Column, Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.document import Gpu, NodeDocument
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.cards.catalogue_entries import Vendor
from pyscheduler.readers.metrics_config import MetricsConfig

NOW = 10_000.0
URL = "http://prometheus:9090"
# All that is looked at, with names of the time up to 4.8, and a value that says nothing is wrong.
OLD = {
    "DCGM_FI_DEV_SM_CLOCK": (Quantity.SM_CLOCK_HZ, 1.9e9),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (Quantity.ENGINE_ACTIVE, 0.9),
    "DCGM_FI_PROF_SM_ACTIVE": (Quantity.SM_ACTIVE, 0.8),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (Quantity.TENSOR_ACTIVE, 0.5),
    "DCGM_FI_PROF_DRAM_ACTIVE": (Quantity.DRAM_ACTIVE, 0.4),
    "DCGM_FI_DEV_FB_USED": (Quantity.FB_USED, 0.5),
    "DCGM_FI_DEV_POWER_USAGE": (Quantity.POWER_W, 600.0),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": (Quantity.POWER_LIMIT_W, 700.0),
    "DCGM_FI_DEV_MAX_SM_CLOCK": (Quantity.SM_CLOCK_MAX_HZ, 1.98e9),
    "DCGM_FI_DEV_GPU_UTIL": (Quantity.UTILIZATION, 1.0),
    "DCGM_FI_DEV_GPU_TEMP": (Quantity.TEMP_C, 60.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": (Quantity.HW_THERMAL_S, 0.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": (Quantity.SW_THERMAL_S, 0.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": (Quantity.POWER_BRAKE_S, 0.0),
    "DCGM_EXP_XID_ERRORS_TOTAL": (Quantity.XID_FATAL, 0.0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (Quantity.ECC_DBE, 0.0),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (Quantity.REMAP_FAILED, 0.0),
    "DCGM_EXP_GPU_HEALTH_STATUS": (Quantity.HEALTH, 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (Quantity.ENERGY_J, 5e6),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": (Quantity.PCIE_WIDTH, 16.0),
}


def record(name: str, *uuids: str, gpus: int = 2, preset: str | None = None) -> NodeRecord:
    document = NodeDocument(tuple(Gpu(f"GPU{i}", uuid=uuid) for i, uuid in enumerate(uuids))) if uuids else None
    return NodeRecord(name, resource="nvidia.com/gpu", capacity=gpus, allocatable=gpus, document=document, preset=preset)


def uuids(name: str) -> tuple[str, str]:
    return f"GPU-{name}-0", f"GPU-{name}-1"


class Case:
    """A cluster of three nodes with two GPUs each, and a Prometheus that knows all of them."""

    def __init__(self) -> None:
        self.records = [record(name, *uuids(name)) for name in ("n1", "n2", "n3")]
        self.config = MetricsConfig(url=URL)
        self.keys = [CardKey(name, uuid) for name in ("n1", "n2", "n3") for uuid in uuids(name)]
        self.lacking: dict[str, list[CardKey]] = {}
        self.values: dict[Quantity, float] = {}
        self.dead: list[CardKey] = []
        self.ages: dict[CardKey, float] = {}
        self.findings: tuple[Finding, ...] = ()
        self.series = [
            Series(Vendor.NVIDIA, "DCGM_FI_DEV_SM_CLOCK", {"job": "dcgm", "UUID": key.uuid, "node": key.node})
            for key in self.keys
        ]
        self.changes: dict[str, object] = {}
        self.capacity = CapacityConfig()

    def relabelled(self, **labels: str | None) -> None:
        """Set labels of all series, with {node} as it was; None removes one."""
        for number, one in enumerate(self.series):
            changed = {k: v.format(node=one.labels["node"]) for k, v in labels.items() if v is not None}
            kept = {k: v for k, v in one.labels.items() if k not in labels}
            self.series[number] = replace(one, labels={**kept, **changed})

    def at(self, **addresses: tuple[str, ...]) -> None:
        """Give nodes their addresses."""
        self.records = [replace(one, addresses=addresses.get(one.name, ())) for one in self.records]

    def away(self, *names: str) -> None:
        """Let nodes have no series."""
        self.series = [one for one in self.series if one.labels.get("node") not in names]
        self.keys = [key for key in self.keys if key.node not in names]

    def found(self) -> list[Finding]:
        names = {name: 6 - len(self.lacking.get(name, [])) for name in OLD}
        answers = Answers(
            self.config,
            catalogue(self.config.amd_prefix),
            NOW,
            names={name: count for name, count in names.items() if count},
            series=tuple(self.series),
            collected=Collected((self._poll(),), Memory(), findings=self.findings),
        )
        return check(replace(answers, **self.changes), fleet_of(self.records), self.capacity)  # type: ignore[arg-type]

    def _poll(self) -> Poll:
        times = [NOW - self.ages.get(key, 10.0) for key in self.keys]
        samples = {}
        for name, (quantity, usual) in OLD.items():
            there = [i for i, key in enumerate(self.keys) if key not in self.lacking.get(name, [])]
            of_profiler = quantity in (Quantity.ENGINE_ACTIVE, Quantity.SM_ACTIVE)
            values = [0.0 if of_profiler and self.keys[i] in self.dead else self.values.get(quantity, usual) for i in there]
            if there:
                samples[quantity] = Column(there, np.array(values), np.array([times[i] for i in there]))
        return Poll(NOW, complete=True, cards=self.keys, samples=samples, facts=[CardFacts("H100", 700.0)] * len(self.keys))


@pytest.fixture
def case() -> Case:
    return Case()


def bad(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is not Severity.NOTE]


def codes(findings: Iterable[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.code for finding in findings))


def only(findings: Iterable[Finding], code: str) -> Finding:
    found = [finding for finding in findings if finding.code == code]
    assert len(found) == 1, found
    return found[0]


def test_cluster_whose_cards_are_all_measured_needs_nothing(case: Case) -> None:
    found = case.found()
    assert bad(found) == []
    assert codes(found) == ["prometheus", "exporter", "node-label", "samples"]
    assert only(found, "node-label").message == "label node names 3 of the 3 nodes with GPUs"
    assert only(found, "exporter").message == "job dcgm: 6 cards, DCGM exporter with the names up to 4.8"


# -- no metrics -------------------------------------------------------------------------------------------------------------


def test_no_metric_of_a_gpu_ends_the_checks(case: Case) -> None:
    case.changes = {"names": {}, "targets": {"dcgm": Targets(3, 3)}}
    found = bad(case.found())
    assert codes(found) == ["targets-down", "no-gpu-metrics"]
    assert "3 of 3 targets of job dcgm cannot be scraped" in found[0].message
    assert "has no metric of a GPU" in found[1].message


def test_metrics_of_another_exporter_are_named(case: Case) -> None:
    case.changes = {"names": {}, "foreign": ("nvidia_smi_temperature_gpu",)}
    found = only(case.found(), "no-gpu-metrics")
    assert (found.severity, "nvidia_smi_temperature_gpu" in found.message) == (Severity.ERROR, True)


@pytest.mark.parametrize("names", [{}, {"DCGM_FI_DEV_SM_CLOCK": 6}])
def test_prefix_of_amds_exporter_is_read_from_its_names(case: Case, names: Mapping[str, int]) -> None:
    case.changes = {"names": names, "foreign": ("amd_gpu_gfx_activity",)}
    assert only(case.found(), "amd-prefix").remedy == 'set metrics.amdPrefix: "amd_"'


def test_questions_that_failed_are_told(case: Case) -> None:
    case.changes = {"problems": ("the query of up took longer than 10 s",)}
    assert codes(bad(case.found())) == ["question-failed"]


def test_targets_that_are_down_are_told_beside_those_that_answer(case: Case) -> None:
    case.changes = {"targets": {"dcgm": Targets(4, 1), "amd": Targets(2, 0)}}
    assert [f.message for f in bad(case.found())] == ["1 of 4 targets of job dcgm cannot be scraped"]


# -- labels -----------------------------------------------------------------------------------------------------------------


def lost(case: Case) -> None:
    """Let the service know none of the cards, as where no label names a node."""
    case.keys = []


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("nvidia-dcgm-exporter-x{node}", "the exporter's own pod"),
        ("{node}.example.com", "with another domain, or none"),
        ("{node}X", ""),
        ("10.0.0.7", "an address of several nodes"),
        ("10.9.9.9", "an address of no node"),
    ],
)
def test_value_that_names_no_node_is_told_for_what_it_is(case: Case, value: str, what: str) -> None:
    case.at(n1=("10.0.0.7",), n2=("10.0.0.7",))
    case.relabelled(Hostname=value, node=None)
    lost(case)
    found = case.found()
    label = only(found, "node-label")
    assert label.message.startswith("label Hostname names 0 of the 3 nodes with GPUs; ")
    assert what in label.message
    assert only(found, "no-node-matches").severity is Severity.ERROR
    assert "__meta_kubernetes_pod_node_name" in only(found, "no-node-matches").remedy
    assert "node-without-series" not in codes(found), "the cause is told once, not for every node"


def test_name_in_capitals_is_told(case: Case) -> None:
    case.relabelled(Hostname="N1", node=None)
    lost(case)
    assert "'N1' (in other letters than the node n1)" in only(case.found(), "node-label").message


def test_short_name_of_a_node_with_a_domain_is_told(case: Case) -> None:
    case.records = [record("n1.example.com", *uuids("n1"))]
    lost(case)
    assert "'n1' (the node n1.example.com with another domain, or none)" in only(case.found(), "node-label").message


def test_port_of_an_instance_is_not_a_part_of_the_name(case: Case) -> None:
    case.relabelled(instance="{node}:9400", node=None)
    found = case.found()
    assert bad(found) == []
    assert only(found, "node-label").message == "label instance names 3 of the 3 nodes with GPUs"


@pytest.mark.parametrize("form", ["10.0.0.{}:9400", "[fd00::{}]:9400", "10.0.0.{}"])
def test_address_of_a_node_is_as_good_as_its_name(case: Case, form: str) -> None:
    numbers = {"n1": 1, "n2": 2, "n3": 3}
    case.at(**{name: (f"10.0.0.{number}", f"fd00::{number}") for name, number in numbers.items()})
    case.series = [
        replace(one, labels={**one.labels, "node": "", "instance": form.format(numbers[one.labels["node"]])})
        for one in case.series
    ]
    found = case.found()
    assert bad(found) == []
    assert only(found, "node-label").message == "label instance names 3 of the 3 nodes with GPUs"


def test_address_of_another_node_than_the_name_is_told(case: Case) -> None:
    case.at(n2=("10.0.0.2",))
    case.relabelled(node="{node}", instance="10.0.0.2:9400")
    found = only(case.found(), "labels-contradict")
    assert found.message.startswith("labels of 4 cards name different nodes (node='n1' but instance='n2'")


def test_label_that_names_nodes_and_is_not_looked_at_is_named(case: Case) -> None:
    case.relabelled(kubernetes_node="{node}", node=None)
    lost(case)
    remedy = only(case.found(), "no-node-matches").remedy
    assert remedy.startswith("set metrics.nodeLabels: [kubernetes_node, node, Hostname, ")


def test_labels_that_name_different_nodes_are_told(case: Case) -> None:
    case.relabelled(Hostname="{node}", node="n1")
    found = only(case.found(), "labels-contradict")
    assert found.message.startswith("labels of 4 cards name different nodes (node='n1' but Hostname='n2'")


def test_series_of_another_cluster_are_a_note_where_no_node_lacks_any(case: Case) -> None:
    other = Series(Vendor.NVIDIA, "DCGM_FI_DEV_SM_CLOCK", {"job": "far", "UUID": "GPU-far", "node": "far-1"})
    case.series.append(other)
    found = case.found()
    assert bad(found) == []
    assert "series of 1 card are of no node of this cluster (job far)" in only(found, "unknown-nodes").message


def test_series_of_unknown_nodes_need_doing_where_a_node_lacks_them(case: Case) -> None:
    case.away("n2")
    case.series.append(Series(Vendor.NVIDIA, "DCGM_FI_DEV_SM_CLOCK", {"job": "dcgm", "UUID": "GPU-n2-0", "node": "n-two"}))
    found = bad(case.found())
    assert codes(found) == ["unknown-nodes", "node-without-series"]
    assert found[1].node == "n2"


# -- nodes and cards --------------------------------------------------------------------------------------------------------


def test_node_without_series_is_named(case: Case) -> None:
    case.away("n2", "n3")
    assert [(f.code, f.node) for f in bad(case.found())] == [("node-without-series", "n2"), ("node-without-series", "n3")]


def test_node_with_series_and_without_gpus_is_named(case: Case) -> None:
    case.records[1] = NodeRecord("n2")
    assert [(f.code, f.node) for f in bad(case.found())] == [("node-without-gpus", "n2")]


def test_cluster_without_gpus_is_told(case: Case) -> None:
    case.records = [NodeRecord("n1"), NodeRecord("n2"), NodeRecord("n3")]
    assert codes(bad(case.found())) == ["no-gpu-nodes", "node-without-gpus"]


def test_cards_of_document_and_series_are_compared_both_ways(case: Case) -> None:
    case.records[0] = record("n1", "GPU-n1-0", "GPU-gone")
    found = bad(case.found())
    assert [(f.code, f.node) for f in found] == [("card-without-series", "n1"), ("card-without-document", "n1")]
    assert found[0].message.endswith("GPU-gone")
    assert found[1].message.endswith("GPU-n1-1")


def test_uuids_that_differ_in_form_alone_are_one_error(case: Case) -> None:
    case.records[0] = record("n1", "N1-0", "N1-1")
    found = bad(case.found())
    assert [(f.code, f.severity) for f in found] == [("uuid-form", Severity.ERROR)]


@pytest.mark.parametrize(
    "without", [record("n1"), replace(record("n1", "x"), document=NodeDocument((Gpu("GPU0"),)), preset="hgx")]
)
def test_node_whose_cards_have_no_uuids_is_named(case: Case, without: NodeRecord) -> None:
    case.records[0] = without
    assert [(f.code, f.node) for f in bad(case.found())] == [("uuids-unknown", "n1")]


def test_uuid_on_two_nodes_is_named(case: Case) -> None:
    case.keys.append(CardKey("n3", "GPU-n1-0"))
    found = only(case.found(), "uuid-on-several-nodes")
    assert "GPU-n1-0 (n1, n3)" in found.message


def test_texts_of_labels_are_cut_where_they_are_shown(case: Case) -> None:
    long = "G" * 3000
    case.keys += [CardKey("n1", long), CardKey("n2", long)]
    case.series += [Series(Vendor.NVIDIA, long, {"job": long, "UUID": long, "node": long, "instance": long})]
    case.changes["targets"] = {long: Targets(2, 1)}
    case.changes["intervals"] = {long: 30.0}
    case.changes["foreign"] = (long,)
    found = case.found()
    shown = {finding.code: f"{finding.message} {finding.remedy}" for finding in found if "GGG" in finding.message}
    wanted = {"exporter", "targets-down", "scrape-interval", "node-label", "unknown-nodes", "card-without-document"}
    assert wanted | {"uuid-on-several-nodes"} <= shown.keys()
    assert {code: text for code, text in shown.items() if "G" * 100 in text} == {}
    assert "… (n1, n2)" in shown["uuid-on-several-nodes"]


# -- metrics ----------------------------------------------------------------------------------------------------------------


def test_metrics_that_no_card_has_are_one_finding_with_the_list_that_has_them(case: Case) -> None:
    for name in ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"):
        case.lacking[name] = case.keys
    found = only(bad(case.found()), "metric-absent")
    assert "DCGM_FI_PROF_SM_ACTIVE" in found.message
    assert "DCGM_FI_DEV_ENFORCED_POWER_LIMIT" in found.message
    assert "DCGM_FI_DEV_SM_CLOCK" not in found.message
    assert "deploy/prometheus/dcgm-counters-4.8.csv:" in found.remedy


def test_list_is_that_of_the_exporters_version(case: Case) -> None:
    case.lacking["DCGM_FI_PROF_SM_ACTIVE"] = case.keys
    case.series[0] = replace(case.series[0], metric="DCGM_FI_DEV_SM_CLOCK_HERTZ")
    found = case.found()
    assert "dcgm-counters-4.8.csv or dcgm-counters-4.9.csv, by its version" in only(found, "metric-absent").remedy
    assert "job dcgm: 1 card, DCGM exporter 4.9 or later" in {f.message for f in found}


def test_metric_that_some_cards_lack_names_their_nodes(case: Case) -> None:
    case.lacking["DCGM_FI_PROF_SM_ACTIVE"] = [key for key in case.keys if key.node == "n2"]
    found = only(bad(case.found()), "metric-partial")
    assert found.message.startswith("2 of 6 NVIDIA cards lack SM activity (DCGM_FI_PROF_SM_ACTIVE; ")
    assert found.message.endswith("on n2")


def test_counter_that_begins_with_its_first_event_is_a_note(case: Case) -> None:
    case.lacking["DCGM_EXP_XID_ERRORS_TOTAL"] = case.keys
    found = case.found()
    assert bad(found) == []
    assert "DCGM_EXP_XID_ERRORS_TOTAL" in only(found, "no-event").message


def test_instances_of_mig_lack_nothing_that_they_cannot_have(case: Case) -> None:
    case.keys = [key._replace(mig="1") if key.node == "n1" else key for key in case.keys]
    case.lacking["DCGM_FI_DEV_GPU_UTIL"] = case.keys[:2]
    assert bad(case.found()) == []


def test_amd_cards_are_judged_by_what_amds_exporter_has(case: Case) -> None:
    case.records = [record("n1", "a-0"), record("n2", "b-0"), record("n3")]
    case.keys = [CardKey("n1", "a-0"), CardKey("n2", "b-0"), CardKey("n3", "index:0")]
    case.lacking["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] = case.keys[2:]
    labels = [{"gpu_uuid": "a-0", "node": "n1"}, {"gpu_uuid": "b-0", "node": "n2"}, {"gpu_id": "0", "node": "n3"}]
    case.series = [Series(Vendor.AMD, "gpu_gfx_activity", said) for said in labels]
    names = {"gpu_gfx_activity": 3, "gpu_clock": 3, "gpu_package_power": 3, "gpu_junction_temperature": 3, "gpu_health": 3}
    case.changes = {"names": {**names, "gpu_used_vram": 3, "gpu_total_vram": 3}}
    found = bad(case.found())
    assert "no AMD card has" in only(found, "metric-absent").message
    assert "gpu_ecc_uncorrect_total" in only(found, "metric-absent").message
    assert "config.json" in only(found, "metric-absent").remedy
    assert only(found, "metric-partial").message.startswith("1 of 3 AMD cards lack activity (gpu_gfx_activity; ")
    assert only(found, "metric-partial").message.endswith("on n3")


def test_evidence_that_nobody_exports_is_told(case: Case) -> None:
    case.config = replace(case.config, evidence="card_quality")
    assert "names card_quality, which has no series" in only(bad(case.found()), "evidence-absent").message


def test_old_samples_are_named_by_their_nodes(case: Case) -> None:
    case.ages = dict.fromkeys(case.keys[:2], 120.0)
    found = only(bad(case.found()), "samples-old")
    assert found.message == "the newest samples of 2 cards are up to 120 s old, on n1"
    assert found.remedy.endswith("From 180 s on such cards are unknown")


def test_thresholds_of_age_are_those_of_the_configuration(case: Case) -> None:
    case.ages = dict.fromkeys(case.keys, 120.0)
    case.capacity = CapacityConfig(breakers=BreakerConfig(late_s=150.0, unknown_s=400.0))
    assert bad(case.found()) == []
    case.ages = dict.fromkeys(case.keys, 160.0)
    assert only(bad(case.found()), "samples-old").remedy.endswith("From 400 s on such cards are unknown")


def test_card_without_any_sample_is_not_among_those_whose_samples_are_old(case: Case) -> None:
    case.ages = dict.fromkeys(case.keys[:2], 120.0)
    of_n3 = [key for key in case.keys if key.node == "n3"]
    case.lacking = {name: list(of_n3) for name in OLD}
    found = only(bad(case.found()), "samples-old")
    assert found.message == "the newest samples of 2 cards are up to 120 s old, on n1"


def test_samples_from_the_future_show_that_clocks_differ(case: Case) -> None:
    case.ages = dict.fromkeys(case.keys, -300.0)
    assert only(bad(case.found()), "clock-skew").severity is Severity.ERROR


def test_job_that_is_scraped_too_seldom_is_told(case: Case) -> None:
    case.changes = {"intervals": {"dcgm": 120.0, "amd": 60.0}}
    found = case.found()
    assert [f.message for f in bad(found)] == ["job dcgm is scraped every 120 s, and the service polls every 30 s"]
    assert only(bad(found), "scrape-interval").remedy == "set scrape_interval: 30s for this job"


def test_profiler_that_shows_nothing_of_a_card_at_work_is_dead(case: Case) -> None:
    case.dead = case.keys[2:4]
    found = only(bad(case.found()), "profiler-dead")
    assert found.message == "the profiler shows nothing of 2 cards at work, on n2"


def test_profiler_of_an_idle_card_is_not_dead(case: Case) -> None:
    case.dead = case.keys
    case.values = {Quantity.UTILIZATION: 0.0, Quantity.POWER_W: 70.0}
    assert bad(case.found()) == []


# -- twice ------------------------------------------------------------------------------------------------------------------


def doubled(case: Case, **labels: str) -> None:
    case.series += [replace(one, labels={**one.labels, **labels}) for one in case.series[:2]]


def test_pair_of_prometheus_servers_is_told_from_two_scrapes(case: Case) -> None:
    doubled(case, prometheus_replica="b")
    found = only(bad(case.found()), "replicas")
    assert found.message.startswith("2 cards have a series from each of several Prometheus servers")


def test_card_that_two_jobs_scrape_is_told(case: Case) -> None:
    doubled(case, job="dcgm-2", instance="10.0.0.1:9400")
    found = only(bad(case.found()), "scraped-twice")
    assert "differ in instance, job" in found.message


def test_card_whose_pod_has_changed_is_not_scraped_twice(case: Case) -> None:
    doubled(case, exported_pod="next", exported_namespace="ns")
    assert bad(case.found()) == []


def test_what_the_poll_itself_finds_is_told(case: Case) -> None:
    case.findings = (Finding("metrics-without-card", "2 series have no UUID"), Finding("sample-discarded", "a blank"))
    found = case.found()
    assert codes(bad(found)) == ["metrics-without-card"]
    assert only(found, "sample-discarded").severity is Severity.NOTE

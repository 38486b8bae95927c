"""The live exporters: what Prometheus would scrape, and that it follows what happens to the cards."""

from statistics import mean
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyscheduler.readers.cards import amd_metrics, dcgm
from tests.sim.exporter import Exporters, small_fleet
from tests.sim.faults import FaultKind
from tests.sim.fleet import FleetPlan, Generation, Pool, fleet
from tests.sim.live import LiveFleet, Pod
from tests.sim.models import A100, H100, MI300X, V100

OLD, NEW, AMD = "h100-0", "h100-1", "mi300x-0"


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(clock: Clock) -> LiveFleet:
    pools = (Pool(H100, 2), Pool(MI300X, 1, (Generation.AMD,)), Pool(A100, 1, mig_nodes=1), Pool(V100, 1))
    return LiveFleet(fleet(FleetPlan(seed=2, sigma=0, pools=pools, fault_share=0)), now=clock)


def values(live: LiveFleet, node: str, metric: str, **labels: str) -> list[float]:
    """Return the values of a metric, of the series that have these labels. The parser ends the name of a counter in _total."""
    return [
        sample.value
        for family in text_string_to_metric_families(live.text(node))
        for sample in family.samples
        if sample.name.removesuffix("_total") == metric and labels.items() <= sample.labels.items()
    ]


def after(clock: Clock, seconds: float) -> None:
    clock.at += seconds


def test_what_is_served_is_what_the_readers_of_dumps_read(live: LiveFleet) -> None:
    live.work(range(len(live.fleet.cards)))
    for node, reader in ((OLD, dcgm), (NEW, dcgm), (AMD, amd_metrics)):
        text = live.text(node)
        found = reader.read(text)
        assert reader.recognises(text)
        assert found.findings == ()
        assert len({row["uuid"] for row in found.body["series"]}) == 8
        assert {row["node"] for row in found.body["series"]} == {node}


def test_a_family_is_announced_once_and_its_samples_stand_together(live: LiveFleet) -> None:
    live.work(range(8))
    lines = live.text(NEW).splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) > 20
    names = [line.partition("{")[0] for line in lines if not line.startswith("#")]
    assert list(dict.fromkeys(names)) == families


def test_a_slow_card_has_a_lower_clock_at_work_and_not_when_idle(live: LiveFleet, clock: Clock) -> None:
    live.break_card(2, FaultKind.SLOW, 0.2)
    idle = values(live, OLD, "DCGM_FI_DEV_SM_CLOCK")
    assert len(set(idle)) == 1
    live.work(range(8))
    rounds = []
    for _ in range(20):
        after(clock, 30)
        rounds.append(values(live, OLD, "DCGM_FI_DEV_SM_CLOCK"))
    clocks = [mean(column) for column in zip(*rounds, strict=True)]
    assert clocks[2] == pytest.approx(0.8 * mean(clocks[:2] + clocks[3:]), rel=0.03)


def test_a_repaired_card_is_as_fast_as_before(live: LiveFleet, clock: Clock) -> None:
    live.work(range(8))
    live.break_card(2, FaultKind.PCIE, 0.12)
    assert values(live, OLD, "DCGM_FI_DEV_PCIE_LINK_WIDTH", gpu="2") == [8]
    live.repair(2)
    after(clock, 30)
    assert values(live, OLD, "DCGM_FI_DEV_PCIE_LINK_WIDTH", gpu="2") == [16]


def test_between_two_samples_the_values_stay(live: LiveFleet, clock: Clock) -> None:
    live.work(range(24))
    first = live.text(OLD)
    after(clock, 29)
    assert live.text(OLD) == first
    after(clock, 1)
    assert live.text(OLD) != first


def test_counters_rise_with_time_and_begin_anew_with_the_driver(live: LiveFleet, clock: Clock) -> None:
    name = "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"
    live.work(range(24))
    before = values(live, NEW, name)[0]
    after(clock, 600)
    risen = values(live, NEW, name)[0] - before
    assert risen == pytest.approx(600 * 0.97 * 700, rel=0.06)
    live.restart_driver(NEW)
    assert values(live, NEW, name) == [0] * 8
    assert values(live, OLD, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")[0] > 0


def test_a_hot_card_counts_its_time_and_reaches_its_limit(live: LiveFleet, clock: Clock) -> None:
    live.work(range(24))
    live.break_card(16, FaultKind.THERMAL, 0.15)
    live.break_card(8, FaultKind.THERMAL, 0.15)
    for _ in range(30):
        live.text(NEW)
        after(clock, 30)
    name = "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS"
    assert values(live, NEW, name) == [pytest.approx(0.8 * 30 * 31 * 1e9, rel=0.05)]
    assert values(live, NEW, "DCGM_FI_DEV_GPU_TEMP_CELSIUS", gpu="0")[0] >= 86
    assert values(live, AMD, "gpu_violation_socket_thermal_residency_percentage")[:2] == [80, 0]


def test_an_error_shows_in_each_generations_way(live: LiveFleet) -> None:
    live.raise_xid(0, 79)
    live.raise_xid(8, 79)
    live.raise_xid(8, 79)
    assert values(live, OLD, "DCGM_FI_DEV_XID_ERRORS") == [79] + [0] * 7
    assert values(live, NEW, "DCGM_FI_DEV_XID_ERROR") == [79]
    assert values(live, NEW, "DCGM_EXP_XID_ERRORS_TOTAL", xid="79") == [2]


def test_an_error_without_a_series_is_refused(live: LiveFleet) -> None:
    with pytest.raises(ValueError, match="XID 12 has no series here"):
        live.raise_xid(0, 12)


def test_a_failed_card_does_no_work(live: LiveFleet) -> None:
    live.work(range(24))
    for card in (8, 16):
        live.break_card(card, FaultKind.FATAL, 1)
    assert values(live, NEW, "DCGM_EXP_GPU_HEALTH_STATUS", health_watch="MEM") == [20] + [0] * 7
    assert values(live, NEW, "DCGM_EXP_XID_ERRORS_TOTAL", xid="95") == [1]
    assert values(live, AMD, "gpu_health") == [0] + [1] * 7
    assert values(live, NEW, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO")[0] == 0


def test_users_are_labelled_until_they_leave(live: LiveFleet, clock: Clock) -> None:
    live.work((0, 1), pod=Pod("team", "train-0"))
    assert len(values(live, OLD, "DCGM_FI_DEV_SM_CLOCK", pod="train-0", namespace="team", container="main")) == 2
    live.rest((0,))
    after(clock, 30)
    assert len(values(live, OLD, "DCGM_FI_DEV_SM_CLOCK", pod="train-0")) == 1
    engine = values(live, OLD, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    assert engine[0] == 0
    assert engine[1] > 0.9


def test_a_speed_can_be_set_while_it_runs(live: LiveFleet, clock: Clock) -> None:
    live.work(range(8))
    before = values(live, OLD, "DCGM_FI_DEV_SM_CLOCK", gpu="3")[0]
    live.set_speed(3, 0.5)
    after(clock, 30)
    assert values(live, OLD, "DCGM_FI_DEV_SM_CLOCK", gpu="3")[0] == pytest.approx(before / 2, rel=0.1)


def test_split_cards_and_missing_sensors(live: LiveFleet) -> None:
    assert len(values(live, "a100-0", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", GPU_I_ID="2")) == 8
    assert values(live, "a100-0", "DCGM_FI_DEV_GPU_UTIL") == []
    assert values(live, "v100-0", "DCGM_FI_DEV_MEMORY_TEMP") == [2.0**63] * 8


def test_over_http_a_node_has_its_path_and_may_be_away() -> None:
    exporters = Exporters(small_fleet())
    with exporters.serving() as address:
        with urlopen(f"http://{address}{exporters.path(AMD)}") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"gpu_gfx_activity{" in answer.read()
        exporters.away.add(AMD)
        for path, status in ((exporters.path(AMD), 503), ("/node/other/metrics", 404), ("/metrics", 404)):
            with pytest.raises(HTTPError) as fault:
                urlopen(f"http://{address}{path}")
            fault.value.close()
            assert fault.value.code == status
        assert exporters.answer("/node/other/metrics")[1].startswith("no node other: there are h100-0, h100-1, mi300x-0")
        exporters.away.clear()
        assert exporters.answer(exporters.path(AMD))[0] == 200


def test_a_fleet_can_have_thousands_of_series() -> None:
    live = small_fleet(4)
    texts = [live.text(node.name) for node in live.fleet.nodes]
    samples = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
    assert len(live.fleet.cards) == 96
    assert len(samples) > 2500
    assert len({line.rpartition(" ")[0] for line in samples}) == len(samples)

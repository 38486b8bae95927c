"""The raw series of a simulated day: names, units and labels of each exporter, repeats, resets, and what is missing."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.sim.day import Day, Event, simulate
from tests.sim.faults import Fault, FaultKind
from tests.sim.fleet import FleetPlan, Generation, Pool, Profiler, Restart, fleet
from tests.sim.models import A100, H100, MI300X, V100
from tests.sim.names import default_names
from tests.sim.recording import BEGIN, SCRAPE_S, Recording

PLAN = FleetPlan(
    seed=4,
    hours=6,
    pools=(Pool(H100, 2), Pool(A100, 2, mig_nodes=1), Pool(MI300X, 1, (Generation.AMD,)), Pool(V100, 1, (Generation.OLD,))),
    fault_share=0,
    bad_nodes=0,
    restarts_per_node=0,
)


@cache
def plain() -> Recording:
    return Recording(simulate(fleet(PLAN)))


def with_node(**changes) -> Recording:
    """Return the recording of a fleet whose second node (new names) is changed."""
    drawn = fleet(PLAN)
    nodes = [drawn.nodes[0], replace(drawn.nodes[1], **changes), *drawn.nodes[2:]]
    return Recording(simulate(replace(drawn, nodes=nodes)))


def of_node(recording: Recording, name: str, node: int) -> np.ndarray:
    metric = recording.metric(name)
    return metric.values[recording.day.fleet.node_of[metric.cards] == node]


def with_names(generation: Generation) -> Recording:
    pools = (Pool(H100, 1, (generation,)),)
    return Recording(simulate(fleet(replace(PLAN, pools=pools))))


# Old name, new name, new unit per old, and what the rounding of both may differ by.
PAIRS = [
    ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e6, 0),
    ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES", 2**20, 0),
    ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01, 1e-6),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1e-3, 0.501),
    ("DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", 1e-9, 6e-7),
    ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1, 0),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1, 0),
]


@pytest.mark.parametrize(("old", "new", "factor", "rounding"), PAIRS)
def test_old_and_new_names_give_one_reading_in_two_units(old: str, new: str, factor: float, rounding: float) -> None:
    before, after = with_names(Generation.OLD), with_names(Generation.NEW)
    assert new not in before.names
    assert old not in after.names
    np.testing.assert_allclose(after.metric(new).values, before.metric(old).values * factor, rtol=1e-12, atol=rounding)


def test_labels_of_the_old_exporter() -> None:
    recording = plain()
    card = recording.day.fleet.cards[3]
    metric = recording.metric("DCGM_FI_DEV_SM_CLOCK")
    assert metric.labels[list(metric.cards).index(3)] == {
        "gpu": "3",
        "UUID": card.uuid,
        "pci_bus_id": "00000000:68:00.0",
        "device": "nvidia3",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "h100-0",
        "DCGM_FI_DRIVER_VERSION": "570.86.15",
    }


def test_labels_of_the_new_exporter() -> None:
    metric = plain().metric("DCGM_FI_DEV_SM_CLOCK_HERTZ")
    labels = metric.labels[list(metric.cards).index(8)]
    assert labels["hostname"] == "h100-1"
    assert "DCGM_FI_SYSTEM_DRIVER_VERSION" in labels
    assert not {"Hostname", "DCGM_FI_DRIVER_VERSION"} & set(labels)


def test_labels_of_amd() -> None:
    recording = plain()
    metric = recording.metric("gpu_clock")
    first = int(metric.cards[0])
    of_first = [labels for labels, card in zip(metric.labels, metric.cards, strict=True) if card == first]
    assert sorted((labels["clock_type"], labels["clock_index"]) for labels in of_first) == [
        ("memory", "8"),
        *(("system", str(index)) for index in range(8)),
    ]
    plain_labels = recording.metric("gpu_gfx_activity").labels[0]
    assert plain_labels["gpu_uuid"] == recording.day.fleet.cards[first].uuid.removeprefix("GPU-")
    assert plain_labels["hostname"] == "mi300x-0"
    assert plain_labels["gpu_id"] == plain_labels["gpu_partition_id"] == "0"
    assert {"card_model", "serial_number"} <= set(plain_labels)


def test_instances_have_series_of_their_own_and_no_utilisation() -> None:
    recording = plain()
    split = {n for n, card in enumerate(recording.day.fleet.cards) if card.instances}
    metric = recording.metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    pairs = [(int(card), i) for card, i in zip(metric.cards, metric.instances, strict=True) if card in split]
    assert len(pairs) == len(set(pairs)) == 2 * len(split) == 16
    labels = metric.labels[metric.instances.index("2")]
    assert labels["GPU_I_ID"] == "2"
    assert "GPU_I_PROFILE" in labels
    assert not split & set(recording.metric("DCGM_FI_DEV_GPU_UTIL").cards.tolist())


def test_every_sample_is_scraped_twice() -> None:
    _, values, times = plain().history("DCGM_FI_DEV_POWER_USAGE", BEGIN + 600, BEGIN + 4200)
    assert np.diff(times, axis=1) == pytest.approx(SCRAPE_S)
    repeats = values[:, 1:] == values[:, :-1]
    assert repeats.mean() == pytest.approx(0.5, abs=0.03)


def test_latest_is_the_last_of_the_history() -> None:
    recording = plain()
    for at in BEGIN + np.array([900.0, 3333.3, 7000.0]):
        latest = recording.latest("DCGM_FI_DEV_POWER_USAGE", at)
        _, values, times = recording.history("DCGM_FI_DEV_POWER_USAGE", at - 60, at)
        for row in range(len(values)):
            there = np.flatnonzero(~np.isnan(values[row]))[-1]
            assert latest.values[row] == values[row, there]
            assert latest.times[row] == times[row, there]
        assert (latest.times <= at).all()
        assert (latest.times > at - 60).all()


def test_a_sample_is_no_older_than_the_interval_of_the_exporter_and_never_of_the_future() -> None:
    recording = plain()
    latest = recording.latest("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", BEGIN + 5000)
    energies = recording.metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION").values
    for row, value in enumerate(latest.values):
        step = int(np.flatnonzero(energies[row] == value)[0])
        phase = recording.day.fleet.nodes[recording.day.fleet.node_of[latest.metric.cards[row]]].phase_s
        assert 0 <= latest.times[row] - (BEGIN + phase + 30 * step) < 30


def test_counters_only_rise_without_restarts() -> None:
    recording = plain()
    counters = [recording.metric(name) for name in recording.names if recording.metric(name).kind == "counter"]
    assert len(counters) >= 10
    for metric in counters:
        steps = np.diff(metric.values, axis=1)
        assert (steps[~np.isnan(steps)] >= 0).all(), metric.name


def test_a_driver_loaded_anew_resets_the_counters_once() -> None:
    recording = with_node(restarts=(Restart(9000.0, 60.0, driver=True),))
    energy = of_node(recording, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1)
    falls = np.argwhere(np.diff(energy, axis=1) < 0)
    assert sorted(falls[:, 0]) == list(range(8))
    assert set(falls[:, 1]) <= {298, 299, 300}
    assert (energy[:, falls[0, 1] + 1] < 700 * 31).all()
    others = of_node(recording, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0)
    assert (np.diff(others, axis=1) > 0).all()


def test_a_restarted_exporter_is_away_and_keeps_the_counters_of_the_driver() -> None:
    recording = with_node(restarts=(Restart(9000.0, 120.0, driver=False),))
    assert (np.diff(of_node(recording, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1), axis=1) > 0).all()
    name = "DCGM_FI_DEV_SM_CLOCK_HERTZ"
    ours = recording.day.fleet.node_of[recording.metric(name).cards] == 1
    gone = np.isnan(recording.latest(name, BEGIN + 9000 + 100).values)
    assert gone[ours].all()
    assert not gone[~ours].any()
    assert not np.isnan(recording.latest(name, BEGIN + 9000 + 200).values).any()


def xid_day(restarts: tuple[Restart, ...] = ()) -> Recording:
    drawn = fleet(PLAN)
    nodes = [replace(node, restarts=restarts) for node in drawn.nodes]
    day = simulate(replace(drawn, nodes=nodes))
    return Recording(replace(day, events=[Event(0, 100, 31), Event(8, 100, 31), Event(8, 200, 31), Event(8, 300, 13)]))


def test_event_series_of_the_new_names_appear_with_the_first_event() -> None:
    recording = xid_day()
    metric = recording.metric("DCGM_EXP_XID_ERRORS_TOTAL")
    row = [(int(card), labels["xid"]) for card, labels in zip(metric.cards, metric.labels, strict=True)].index((8, "31"))
    assert np.isnan(metric.values[row, :100]).all()
    assert metric.values[row, [100, 199, 200, 400]].tolist() == [1, 1, 2, 2]
    last = of_node(recording, "DCGM_FI_DEV_XID_ERROR", 1)
    assert np.isnan(last[0, 99])
    assert last[0, [100, 250, 300]].tolist() == [31, 31, 13]
    assert np.isnan(last[1:]).all()


def test_the_last_error_of_the_old_names_is_0_until_the_first() -> None:
    last = of_node(xid_day(), "DCGM_FI_DEV_XID_ERRORS", 0)
    assert last[0, [0, 99, 100, 700]].tolist() == [0, 0, 31, 31]
    assert not last[1:].any()


def test_a_restarted_exporter_forgets_errors() -> None:
    last = of_node(xid_day((Restart(6000.0, 60.0, driver=False),)), "DCGM_FI_DEV_XID_ERRORS", 0)
    assert last[0, 150] == 31
    assert not last[0, 201:].any()


def test_throttle_times_without_an_event_are_absent_with_new_names_and_0_with_old() -> None:
    name = "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"
    assert (of_node(plain(), name, 0) == 0).all()
    assert np.isnan(of_node(plain(), name, 1)).all()


def test_a_sensor_that_a_card_lacks_is_a_blank() -> None:
    node = len(plain().day.fleet.nodes) - 1
    assert plain().day.fleet.cards[-1].model is V100
    assert (of_node(plain(), "DCGM_FI_DEV_MEMORY_TEMP", node) == 2.0**63).all()


def test_a_dead_profiler_reports_0_while_the_card_works() -> None:
    recording = with_node(profiler=Profiler.DEAD, profiler_dies_s=3600.0)
    engine = of_node(recording, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1)
    used = of_node(recording, "DCGM_FI_DEV_GPU_UTIL_RATIO", 1)
    assert not engine[:, 120:].any()
    assert engine[:, :120].any()
    assert used[:, 120:].max() > 0.95


def test_an_exporter_that_may_not_profile_serves_no_such_series() -> None:
    recording = with_node(profiler=Profiler.ABSENT)
    assert np.isnan(of_node(recording, "DCGM_FI_PROF_SM_UTIL_RATIO", 1)).all()
    assert not np.isnan(of_node(recording, "DCGM_FI_DEV_GPU_UTIL_RATIO", 1)).any()


def test_amd_shows_lost_lanes_as_speed_and_throttling_as_a_share() -> None:
    drawn = fleet(replace(PLAN, pools=(Pool(MI300X, 1, (Generation.AMD,)),)))
    faults = [Fault(0, FaultKind.PCIE, "pcie", 0.12), Fault(1, FaultKind.THERMAL, "thermal", 0.15)]
    recording = Recording(simulate(replace(drawn, faults=faults)))
    speed, most = recording.metric("pcie_speed").values, recording.metric("pcie_max_speed").values
    assert speed[0].max() == 16
    assert speed[1].max() == most[0, 0] == 32
    hot = recording.metric("gpu_violation_socket_thermal_residency_percentage").values
    assert hot[1].max() == 80
    assert not hot[2:].any()


def test_an_exporter_as_installed_serves_neither_sm_activity_nor_throttle_times() -> None:
    as_installed = default_names(Generation.OLD)
    assert {"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_XID_ERRORS"} <= as_installed
    assert not {name for name in as_installed if "SM_ACTIVE" in name or "_NS" in name or "VIOLATION" in name}
    assert not {name for name in default_names(Generation.AMD) if "prof" in name}


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(KeyError, match="no exporter of the fleet serves up"):
        plain().metric("up")


def test_equal_days_give_equal_recordings() -> None:
    again: Day = simulate(fleet(PLAN))
    for at in (BEGIN + 1000.0, BEGIN + 20000.0):
        np.testing.assert_array_equal(
            Recording(again).latest("DCGM_FI_DEV_POWER_USAGE", at).values, plain().latest("DCGM_FI_DEV_POWER_USAGE", at).values
        )

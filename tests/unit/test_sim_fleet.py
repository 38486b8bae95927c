"""The simulated fleets: what is drawn, how the cards work, and what their sensors show."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.sim.day import Day, simulate
from tests.sim.faults import KINDS, Fault, FaultKind, flapping
from tests.sim.fleet import Fleet, FleetPlan, Generation, Pool, fleet
from tests.sim.loads import LOADS, STEP_S, Job
from tests.sim.models import A100, H100, MI300X
from tests.sim.physics import BRAKE_BIT, IDLE_BIT

SMALL = FleetPlan(
    seed=7, sigma=0.03, pools=(Pool(H100, 4, low_limit_every=4), Pool(A100, 4, mig_nodes=1), Pool(MI300X, 2, (Generation.AMD,)))
)


@cache
def small() -> Day:
    return simulate(fleet(SMALL))


def at_work(faults: list[Fault], load: str = "compute", *, sigma: float = 0.0, hours: float = 6.0) -> Day:
    """Return a day of one node whose 8 cards do the same thing all the time."""
    drawn = fleet(FleetPlan(seed=3, sigma=sigma, hours=hours, pools=(Pool(H100, 1),), fault_share=0))
    steps = round(hours * 3600 / STEP_S)
    job = Job("job", LOADS[load], np.arange(8), 0, steps, 1.0, 1.0)
    return simulate(replace(drawn, faults=faults), [job])


def steady(day: Day, name: str) -> np.ndarray:
    """Return a signal of all but the first and last steps, in which the job starts and ends."""
    return day.signals[name][:, 10:-2].astype(float)


@pytest.mark.parametrize("sigma", [0.03, 0.05, 0.08])
def test_speeds_have_the_spread_of_the_plan(sigma: float) -> None:
    speeds = fleet(FleetPlan(seed=5, sigma=sigma)).speeds
    assert len(speeds) == 512
    assert speeds.mean() == pytest.approx(1, abs=0.2 * sigma)
    assert speeds.std() == pytest.approx(sigma, rel=0.12)


def test_equal_plans_give_equal_days_and_another_seed_another() -> None:
    again, other = simulate(fleet(SMALL)), simulate(fleet(replace(SMALL, seed=8)))
    assert again.fleet.cards == small().fleet.cards
    assert again.fleet.faults == small().fleet.faults
    for name, values in small().signals.items():
        np.testing.assert_array_equal(again.signals[name], values)
    assert not np.array_equal(other.signals["clock_mhz"], small().signals["clock_mhz"])


def test_faults_are_spread_over_the_peers_and_all_kinds_occur() -> None:
    drawn = fleet(FleetPlan(seed=2))
    hit = [fault.card for fault in drawn.faults]
    assert len(set(hit)) == len(hit)
    assert {fault.name for fault in drawn.faults} == set(KINDS)
    assert not any(drawn.cards[card].instances for card in hit)
    for group in np.unique(drawn.peers_of):
        members = np.flatnonzero(drawn.peers_of == group)
        assert np.isin(members, hit).mean() == pytest.approx(0.1, abs=0.03)


def test_peers_have_one_model_and_one_power_limit() -> None:
    drawn = small().fleet
    keys = {(int(group), card.model.name, card.limit_w) for group, card in zip(drawn.peers_of, drawn.cards, strict=True)}
    assert len(keys) == len(np.unique(drawn.peers_of)) == 4
    assert {card.limit_w for card in drawn.cards if card.model is H100} == {700, 595}


def test_a_card_has_one_job_at_a_time_and_most_of_the_day_one() -> None:
    used = np.zeros(small().speed.shape, int)
    for job in small().jobs:
        used[np.ix_(job.cards, np.arange(job.start, job.end))] += 1
        assert len({small().fleet.cards[card].model for card in job.cards}) == 1
    assert used.max() == 1
    assert 0.6 < used.mean() < 0.95
    assert set(small().jobs_at(1000)) == set(np.flatnonzero(used[:, 1000]).tolist())


def test_jobs_last_from_minutes_to_hours_and_are_of_every_kind() -> None:
    minutes = [(job.end - job.start) * STEP_S / 60 for job in simulate(fleet(FleetPlan(seed=2))).jobs]
    assert np.percentile(minutes, 5) < 30
    assert np.percentile(minutes, 95) > 180
    assert {job.load.name for job in small().jobs} == set(LOADS)


def test_idle_cards_look_idle() -> None:
    day = small()
    free = np.ones(day.speed.shape, bool)
    for job in day.jobs:
        free[np.ix_(job.cards, np.arange(job.start, job.end))] = False
    models = [card.model for card in day.fleet.cards]
    lowest = np.array([model.idle_clock_mhz for model in models])[:, None] * np.ones(day.speed.shape)
    resting = np.array([model.idle_w for model in models])[:, None] * np.ones(day.speed.shape)
    assert free.any()
    np.testing.assert_allclose(day.signals["clock_mhz"][free], lowest[free], atol=7.5)
    np.testing.assert_allclose(day.signals["power_w"][free], resting[free], rtol=0.12)
    assert day.signals["engine"][free].max() == 0
    assert (day.signals["reasons"][free] == IDLE_BIT).all()
    assert (day.signals["pcie_gen"][free] == 1).all()


def test_a_dense_load_is_held_by_the_power_limit_and_clocks_are_quantised() -> None:
    day = at_work([])
    clock = steady(day, "clock_mhz")
    assert (clock % 15 == 0).all()
    assert 0.75 * 1980 < np.median(clock) < 0.9 * 1980
    assert np.median(steady(day, "power_w")) == pytest.approx(0.97 * 700, rel=0.02)
    assert np.median(steady(day, "engine")) > 0.95
    assert np.median(steady(day, "temperature_c")) > 55


def test_a_memory_bound_load_has_power_to_spare_and_a_high_clock() -> None:
    dense, moving = at_work([]), at_work([], "memory")
    assert np.median(steady(moving, "clock_mhz")) > 1.1 * np.median(steady(dense, "clock_mhz"))
    assert np.median(steady(moving, "power_w")) < 0.8 * 700
    assert np.median(steady(moving, "dram")) > 2 * np.median(steady(dense, "dram"))
    assert steady(moving, "capped").mean() < 0.1 < steady(dense, "capped").mean()


def test_pauses_leave_the_clock_up_and_the_engines_idle() -> None:
    day = at_work([], "paused")
    rests = steady(day, "engine") < 0.05
    assert 0.02 < rests.mean() < 0.4
    assert (steady(day, "clock_mhz")[rests] > 0.9 * 1980).all()


def test_the_own_speed_shows_in_the_clock_under_load() -> None:
    day = at_work([], sigma=0.05, hours=24)
    clocks = np.median(steady(day, "clock_mhz"), axis=1)
    np.testing.assert_allclose(clocks / clocks.mean(), day.fleet.speeds / day.fleet.speeds.mean(), atol=0.015)


def test_the_slowest_card_of_a_job_has_the_fullest_pipes() -> None:
    day = at_work([Fault(2, FaultKind.SLOW, "slow", 0.15)])
    tensor = np.median(steady(day, "tensor"), axis=1)
    assert tensor.argmax() == 2
    assert tensor[2] / np.delete(tensor, 2).mean() == pytest.approx(1 / 0.85, rel=0.03)


@pytest.mark.parametrize(
    ("kind", "size", "sign"),
    [
        (FaultKind.SLOW, 0.12, None),
        (FaultKind.THERMAL, 0.15, "sw_thermal_s"),
        (FaultKind.BRAKE, 0.15, "brake_s"),
        (FaultKind.PCIE, 0.12, None),
    ],
)
def test_a_fault_costs_its_size_while_it_is_on_and_shows_its_own_sign(kind: FaultKind, size: float, sign: str | None) -> None:
    day = at_work([Fault(2, kind, kind.value, size, ((2.0, 4.0),))])
    hours = np.arange(day.steps) * STEP_S / 3600
    on = (hours >= 2) & (hours < 4)
    healthy = day.speed[0]
    np.testing.assert_allclose(day.speed[2, on], (1 - size) * healthy[on], rtol=1e-5)
    np.testing.assert_allclose(day.speed[2, ~on], healthy[~on], rtol=1e-5)
    gained = {name: np.diff(day.signals[name], axis=1, prepend=0)[2] for name in ("sw_thermal_s", "brake_s")}
    for name, gain in gained.items():
        assert gain[~on].max() == 0
        assert (gain[on].mean() > 5) == (name == sign)
    halved = day.signals["pcie_width"][2] == 8
    np.testing.assert_array_equal(halved, on if kind is FaultKind.PCIE else np.zeros_like(on))


def test_the_brake_halves_the_clock_now_and_then_which_a_median_hides() -> None:
    day = at_work([Fault(2, FaultKind.BRAKE, "brake", 0.15)])
    braked = (day.signals["reasons"][2].astype(int) & BRAKE_BIT) > 0
    clock = day.signals["clock_mhz"]
    assert braked.mean() == pytest.approx(0.3, abs=0.05)
    assert clock[2][braked].max() < 0.55 * 1980
    assert np.median(clock[2]) == pytest.approx(np.median(clock[0]), rel=0.06)


def test_lost_lanes_leave_the_clock_as_it_is() -> None:
    day = at_work([Fault(2, FaultKind.PCIE, "pcie", 0.12)])
    clocks = np.median(steady(day, "clock_mhz"), axis=1)
    assert clocks[2] == pytest.approx(np.delete(clocks, 2).mean(), rel=0.02)


def test_a_fatal_fault_ends_the_work_and_brings_its_error() -> None:
    day = at_work([Fault(2, FaultKind.FATAL, "fatal", 1.0, ((3.0, np.inf),))])
    begins = round(3 * 3600 / STEP_S)
    assert day.signals["engine"][2, begins:].max() == 0
    assert day.signals["engine"][2, 10:begins].min() > 0.9
    assert not day.busy[2, begins:].any()
    assert [(event.step, event.code) for event in day.events if event.card == 2 and event.code == 95] == [(begins, 95)]
    assert (day.signals["healthy"][2, begins:] == 0).all()


def test_a_flapping_fault_comes_and_goes() -> None:
    fault = flapping(1, 0.2, on_s=300, off_s=600, hours=24)
    day = at_work([fault], hours=24)
    slow = day.speed[1] < 0.85 * day.speed[0]
    assert slow.mean() == pytest.approx(1 / 3, abs=0.01)
    assert np.count_nonzero(np.diff(slow.astype(int))) == pytest.approx(2 * 24 * 4, abs=2)


def test_a_warm_hall_slows_all_cards_alike() -> None:
    day = at_work([], sigma=0.05, hours=24)
    relative = day.speed / day.speed.mean(axis=0)
    assert day.speed[0].min() < 0.995 * day.speed[0].max()
    np.testing.assert_allclose(relative, relative[:, :1] * np.ones(day.steps), rtol=1e-5)


def test_exporters_of_a_pool_take_turns() -> None:
    drawn: Fleet = small().fleet
    assert [node.exporter for node in drawn.nodes[:4]] == [Generation.OLD, Generation.NEW] * 2

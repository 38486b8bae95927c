"""The labels by which a detector is judged, on days whose outcome is plain."""

from dataclasses import replace

import numpy as np
import pytest

from tests.sim.day import Day, simulate
from tests.sim.faults import Fault, FaultKind, drawn
from tests.sim.fleet import FleetPlan, Pool, fleet
from tests.sim.loads import LOADS, STEP_S, Job
from tests.sim.models import H100
from tests.sim.truth import Label, Verdict, verdicts

FOR_EVER = float("inf")
HOUR = 3600 // STEP_S


def day(faults: list[Fault], speeds: dict[int, float] | None = None, *, rests: tuple[int, int] = (0, 0)) -> Day:
    """Return 24 hours of 16 cards that all work all the time, but for a rest (hours from, to)."""
    plan = FleetPlan(seed=3, sigma=0, pools=(Pool(H100, 2),), fault_share=0)
    found = fleet(plan)
    cards = [replace(card, speed=(speeds or {}).get(number, 1.0)) for number, card in enumerate(found.cards)]
    halves = [(0, rests[0] * HOUR), (rests[1] * HOUR, 24 * HOUR)]
    jobs = [Job(f"{start}", LOADS["compute"], np.arange(16), start, end, 1, 1) for start, end in halves if start < end]
    return simulate(replace(found, cards=cards, faults=faults), jobs)


def slow(size: float, start: float = 0.0, end: float = FOR_EVER) -> Fault:
    return Fault(5, FaultKind.SLOW, "slow", size, ((start, end),))


def verdict(of: Day, hour: float, card: int = 5) -> Verdict:
    return list(verdicts(of, min(round(hour * HOUR), of.steps - 1)))[card]


@pytest.mark.parametrize(
    ("size", "label"), [(0.13, Label.POSITIVE), (0.12, Label.POSITIVE), (0.11, Label.GREY), (0.02, Label.GREY)]
)
def test_a_card_is_slow_from_12_percent_and_grey_with_any_smaller_fault(size: float, label: Label) -> None:
    found = verdict(day([slow(size)]), 20)
    assert found.label is label
    assert found.is_slow is (label is Label.POSITIVE)
    assert found.relative == pytest.approx(1 - size)
    assert not found.is_dropped
    assert found.drop == 0


@pytest.mark.parametrize(("speed", "label"), [(0.87, Label.POSITIVE), (0.92, Label.GREY), (0.94, Label.NEGATIVE)])
def test_the_speed_relative_to_the_peers_counts_not_the_fault(speed: float, label: Label) -> None:
    assert verdict(day([], {5: speed}), 20).label is label


def test_a_fast_card_with_a_large_fault_is_not_slow() -> None:
    found = verdict(day([slow(0.15)], {5: 1.08}), 20)
    assert found.label is Label.GREY
    assert found.relative == pytest.approx(0.918)


def test_a_drop_counts_after_six_busy_hours() -> None:
    dropped = day([slow(0.10, start=10)], {5: 1.05})
    assert [verdict(dropped, hour).is_dropped for hour in (9, 12, 15.9, 16.1, 23)] == [False, False, False, True, True]
    assert verdict(dropped, 23).label is Label.POSITIVE
    assert not verdict(dropped, 23).is_slow
    assert verdict(dropped, 12).label is Label.GREY


def test_a_drop_without_six_busy_hours_before_it_is_grey() -> None:
    found = verdict(day([slow(0.10, start=5)]), 23)
    assert found.label is Label.GREY
    assert found.hours_before == pytest.approx(5, abs=0.1)


def test_hours_of_rest_are_not_counted() -> None:
    resting = day([slow(0.10, start=8)], rests=(9, 15))
    assert not verdict(resting, 18).is_dropped
    assert verdict(resting, 18).hours_since == pytest.approx(4, abs=0.1)
    assert verdict(resting, 20.2).is_dropped


def test_a_card_that_recovered_is_grey() -> None:
    recovering = day([slow(0.15, start=4, end=12)])
    assert [verdict(recovering, hour).label for hour in (3, 8, 14)] == [Label.GREY, Label.POSITIVE, Label.GREY]
    assert verdict(recovering, 14).relative == pytest.approx(1)


def test_a_fault_that_comes_and_goes_counts_with_its_mean() -> None:
    fault = Fault(5, FaultKind.SLOW, "on-off", 0.30, tuple((float(hour), hour + 0.5) for hour in range(1, 23)))
    flickering = day([fault])
    found = [verdict(flickering, hour) for hour in (12.25, 12.75)]
    assert [one.relative for one in found] == pytest.approx([0.85, 0.85], abs=0.01)
    assert all(one.is_slow for one in found)


def test_failed_and_split_cards_are_grey() -> None:
    fatal = day([Fault(5, FaultKind.FATAL, "fatal", 1.0, ((2.0, FOR_EVER),))])
    assert verdict(fatal, 20).label is Label.GREY
    found = day([])
    split = [replace(card, instances=("1",)) if number == 5 else card for number, card in enumerate(found.fleet.cards)]
    assert verdict(replace(found, fleet=replace(found.fleet, cards=split)), 20).label is Label.GREY


def test_the_default_day_has_positives_of_both_kinds_and_mostly_negatives() -> None:
    found = simulate(fleet(FleetPlan(seed=1, sigma=0.03)))
    judged = list(verdicts(found, found.steps - 1))
    assert sum(one.is_slow for one in judged) >= 15
    assert sum(one.is_dropped for one in judged) >= 10
    assert sum(one.label is Label.NEGATIVE for one in judged) > 0.8 * len(judged)
    assert all(not one.fault for one in judged if one.label is Label.NEGATIVE)


def test_drawn_faults_follow_their_course() -> None:
    rng = np.random.default_rng(5)
    start, drop, recovering, flickering = drawn([1, 2, 3, 4], ["slow-12", "drop-10", "recovering", "intermittent"], 24, rng)
    assert (start.begins_h, start.ends_h, start.size) == (0, FOR_EVER, 0.12)
    assert 10 < drop.begins_h < 13
    assert drop.ends_h == FOR_EVER
    assert recovering.begins_h < 5
    assert 10 < recovering.ends_h < 14
    assert len(flickering.spells) > 8
    assert all(1 / 6 <= end - begin <= 1 for begin, end in flickering.spells)

from dataclasses import replace

import pytest

from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.quantities import Quantity
from tests.polls import IDLE, START, STEP, cards_of, poll_of, work

CARDS = cards_of(1)


class One:
    """One card; whether its samples count as work shows in its busy time."""

    def __init__(self):
        self.capacity = Capacity()
        self.at = START - STEP

    def see(self, values, polls=1, pod=None):
        pods = None if pod is None else {CARDS[0]: pod}
        for _ in range(polls):
            self.at += STEP
            self.capacity.observe(poll_of(CARDS, self.at, values), busy_pods=pods)
        return self.table

    @property
    def table(self):
        return self.capacity.table(self.at)

    @property
    def busy_s(self):
        return float(self.table.reasons.rows.busy_s[0])


def without(values, *names):
    return {quantity: value for quantity, value in values.items() if quantity.name not in names}


def test_first_sample_of_work_is_half_idle_and_does_not_count():
    card = One()
    card.see(IDLE, 3)
    card.see(work())
    assert card.busy_s == 0
    card.see(work(), 4)
    assert card.busy_s == 120


@pytest.mark.parametrize(
    "values",
    [
        IDLE,
        work(ENGINE_ACTIVE=0.4),
        work(POWER_W=250.0),
        work(CLOCK_REASONS=1),
        without(work(), "SM_CLOCK_HZ"),
        without(work(), "ENGINE_ACTIVE"),
    ],
)
def test_what_is_no_work(values):
    card = One()
    card.see(values, 20)
    assert card.busy_s == 0


@pytest.mark.parametrize(
    "values",
    [
        without(work(), "POWER_W"),
        work(CLOCK_REASONS=4),
        without(work(), "ENGINE_ACTIVE") | {Quantity.SM_ACTIVE: 0.7},
        without(work(), "ENGINE_ACTIVE") | {Quantity.UTILIZATION: 1.0},
    ],
)
def test_what_is_work(values):
    card = One()
    card.see(values, 11)
    assert card.busy_s == 300


def test_clock_of_a_pause_does_not_count_unless_it_stays():
    card = One()
    card.see(work(), 21)
    card.see(work(3.45e8))
    assert card.busy_s == 600
    card.see(work(3.45e8), 20)
    assert card.busy_s > 600


def test_sample_that_spans_two_pods_does_not_count():
    card = One()
    card.see(work(), 11, pod="a")
    card.see(work(), 1, pod="b")
    assert card.busy_s == 300
    card.see(work(), 1, pod="b")
    assert card.busy_s == 330


def test_long_gap_counts_as_two_intervals_at_most():
    card = One()
    card.see(work(), 2)
    card.at += 100
    card.see(work())
    assert card.busy_s == 30 + 60


def test_dead_profiler_is_no_free_card():
    dead = work(ENGINE_ACTIVE=0.0, SM_ACTIVE=0.0, TENSOR_ACTIVE=0.0, DRAM_ACTIVE=0.0, UTILIZATION=1.0)
    card = One()
    table = card.see(dead, 20)
    assert table.available[0] == pytest.approx(0.0)
    assert card.busy_s > 0
    table = card.see(work(SM_ACTIVE=0.5, UTILIZATION=1.0), 20)
    assert table.available[0] == pytest.approx(0.5)


def test_idle_profiler_is_not_dead():
    card = One()
    table = card.see(IDLE | {Quantity.SM_ACTIVE: 0.0, Quantity.UTILIZATION: 0.0}, 20)
    assert table.available[0] == 1


def unlimited(card, powers):
    """Let a card whose power limit is not known work at these powers."""
    for power in powers:
        card.at += STEP
        poll = poll_of(CARDS, card.at, work(POWER_W=power))
        card.capacity.observe(replace(poll, facts=()))


def test_without_a_power_limit_the_highest_power_seen_stands_in():
    card = One()
    unlimited(card, [600.0] * 5 + [200.0] * 5)
    assert card.busy_s == 120


def test_false_power_keeps_no_card_from_being_busy():
    card = One()
    unlimited(card, [600.0, 600.0, 10_000.0, *[600.0] * 10])
    assert card.busy_s == 12 * STEP


def test_power_that_is_no_longer_allowed_is_forgotten_in_time():
    card = One()
    unlimited(card, [700.0] * 5 + [275.0] * 5)
    assert card.busy_s == 4 * STEP
    # Five hours of work; a card that may draw a little more than before is busy at once.
    unlimited(card, [275.0] * 600)
    assert card.busy_s > 10 * STEP


def test_rest_makes_no_power_the_highest():
    card = One()
    unlimited(card, [700.0] * 5)
    card.see(IDLE, 600)
    before = card.busy_s
    unlimited(card, [200.0] * 5)
    assert card.busy_s == before


def test_idle_bit_whose_series_has_ended_keeps_no_card_from_being_busy():
    card = One()
    card.see(IDLE | {Quantity.CLOCK_REASONS: 1}, 3)
    card.see(work(), 20)
    assert card.busy_s > 0


def test_profile_whose_series_has_ended_hides_no_dead_one():
    card = One()
    card.see(work(SM_ACTIVE=0.9, UTILIZATION=1.0), 3)
    dead = work(SM_ACTIVE=0.0, TENSOR_ACTIVE=0.0, DRAM_ACTIVE=0.0, UTILIZATION=1.0)
    table = card.see(without(dead, "ENGINE_ACTIVE"), 30)
    assert table.available[0] == pytest.approx(0.0)

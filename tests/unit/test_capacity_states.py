import numpy as np
import pytest

from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.capacity.states import State, States

CONFIG = CapacityConfig()
HOUR = 120  # polls


class One:
    """One card, polled every 30 s."""

    def __init__(self):
        self.states = States(1)
        self.at = 0.0

    def see(self, speed, polls=1, *, health=1.0, said=1.0, fresh=True, worked=True, unknown=False):
        for _ in range(polls):
            self.at += 30.0
            h, i, word = (np.array([value]) for value in (health, speed, said))
            seen, busy, silent = (np.array([mark]) for mark in (fresh, worked and fresh, unknown))
            seconds = (30.0 if fresh else 0.0, 30.0)
            self.states.step(h, i, word, seen, busy, silent, seconds, CONFIG, self.at)
        return State(int(self.states.state[0]))

    @property
    def excluded(self):
        return self.states.state[0] in {State.DEGRADED, State.FAILED}

    @property
    def changes(self):
        return int(self.states.changes[0])


def degraded():
    card = One()
    card.see(1.0)
    assert card.see(0.5, 5) is State.DEGRADED
    return card


def test_first_sample_makes_a_card_healthy():
    assert One().see(1.0) is State.HEALTHY


def test_card_is_degraded_after_the_window_and_not_before():
    card = One()
    card.see(1.0)
    assert card.see(0.5) is State.SUSPECT
    assert card.see(0.5, 3) is State.SUSPECT
    assert card.see(0.5) is State.DEGRADED


def test_one_good_sample_starts_the_window_anew():
    card = One()
    card.see(1.0)
    for _ in range(50):
        card.see(0.5, 4)
        card.see(1.0)
        assert not card.excluded


def test_too_few_samples_are_no_proof():
    card = One()
    card.see(1.0)
    card.see(0.5)
    sparse = CapacityConfig(window_s=30.0)
    good, yes, no = np.array([1.0]), np.array([True]), np.array([False])
    card.states.step(good, np.array([0.5]), good, yes, yes, no, (60.0, 60.0), sparse, 90.0)
    assert not card.excluded


def test_what_is_not_measured_takes_no_time():
    card = One()
    card.see(1.0)
    card.see(0.5, 3)
    assert card.see(0.5, 100, fresh=False) is State.SUSPECT


def test_leaving_needs_a_higher_bar():
    card = degraded()
    assert card.see(0.71, 10 * HOUR) is State.DEGRADED


def test_card_is_tried_again_after_five_minutes_and_healthy_after_half_an_hour_of_work():
    card = degraded()
    assert card.see(0.8, 9) is State.DEGRADED
    assert card.see(0.8) is State.PROBATION
    assert card.see(0.8, 59) is State.PROBATION
    assert card.see(0.8) is State.HEALTHY


def test_rest_heals_no_slow_card():
    assert degraded().see(0.8, 10 * HOUR, worked=False) is State.DEGRADED


def test_rest_makes_no_card_slow():
    card = One()
    card.see(1.0)
    assert card.see(0.5, HOUR, worked=False) is State.HEALTHY


def test_relapse_doubles_the_time_up_to_a_day():
    card = degraded()
    waits = []
    for _ in range(10):
        polls = 0
        while card.excluded:
            card.see(0.8)
            polls += 1
        waits.append(polls * 30)
        card.see(0.5, 5)
    assert waits[:4] == [300, 600, 1200, 2400]
    assert waits[-1] == 24 * 3600


def test_time_in_which_nothing_happens_is_forgiven():
    card = degraded()
    card.see(0.8, 10)
    card.see(0.5, 5)
    card.see(0.8, 20 + 25 * HOUR)
    assert not card.excluded
    card.see(0.5, 5)
    assert card.see(0.8, 10) is State.PROBATION


@pytest.mark.parametrize("before", [1.0, 0.5])
def test_fault_is_at_once_from_anywhere_even_if_nothing_else_is_measured(before):
    card = One()
    card.see(before, 5)
    assert card.see(1.0, health=0.0, fresh=False) is State.FAILED


def test_known_bad_then_silent_stays_bad_and_known_good_becomes_unknown():
    bad, good = degraded(), One()
    good.see(1.0)
    assert bad.see(1.0, HOUR, fresh=False, unknown=True) is State.DEGRADED
    assert good.see(1.0, fresh=False, unknown=True) is State.UNKNOWN
    assert good.see(1.0) is State.HEALTHY


def test_flapping_for_a_day_changes_little():
    card = One()
    without = 0
    for poll in range(24 * HOUR):
        speed = 0.5 if poll // 20 % 2 else 0.9  # ten minutes each
        without += poll % 20 == 0
        card.see(speed)
    assert without == 144
    assert card.changes <= 30


def test_word_that_is_taken_back_is_forgotten_by_the_clock_and_needs_no_probation():
    card = One()
    assert card.see(1.0, 5, said=0.5, fresh=False) is State.DEGRADED
    assert card.see(1.0, 9, fresh=False) is State.DEGRADED
    assert card.see(1.0, fresh=False) is State.UNKNOWN
    assert card.see(1.0) is State.HEALTHY


def test_word_on_a_slow_card_does_not_heal_it():
    card = degraded()
    assert card.see(0.5, said=0.0, fresh=False) is State.FAILED
    assert card.see(0.5, 10, fresh=False) is State.DEGRADED
    assert card.see(0.8, 10 * HOUR, worked=False) is State.DEGRADED
    assert card.see(0.8, 10) is State.PROBATION


def test_card_that_became_slow_while_it_had_failed_is_degraded_then():
    card = One()
    card.see(1.0)
    card.see(0.5, health=0.0)
    assert card.see(0.5, 10) is State.DEGRADED
    assert card.see(0.8, 10 * HOUR, worked=False) is State.DEGRADED


def test_card_that_is_reported_and_then_measured_as_bad_waits_for_samples():
    card = One()
    card.see(1.0, said=0.0)
    card.see(1.0, said=0.0, health=0.0)
    assert card.see(1.0, HOUR, fresh=False) is State.FAILED
    assert card.see(1.0, 10) is State.UNKNOWN


def test_doubt_of_others_and_of_the_clock_count_together():
    card = One()
    card.see(1.0)
    assert card.see(0.75, 5, said=0.8) is State.DEGRADED
    assert card.see(0.75, 100, said=0.9) is State.DEGRADED
    assert card.see(0.75, 10) is State.UNKNOWN


def timer(card):
    """Return how far the timer of the card is, and where it ends."""
    return tuple(float(values[0]) for values in card.states.timers(CONFIG))


def test_timers_say_how_long_and_of_how_long():
    card = One()
    card.see(1.0)
    assert np.isnan(timer(card)).all()
    card.see(0.5, 3)
    assert timer(card) == (60, 120)
    card.see(0.5, 2)
    assert timer(card) == (0, 300)
    card.see(0.8, 4)
    assert timer(card) == (120, 300)
    card.see(0.8, 6)
    assert timer(card) == (0, 1800)
    card.see(0.8, 2)
    assert timer(card) == (60, 1800)
    card.see(0.5, 2)
    assert timer(card) == (60, 120)


def test_timer_of_a_card_that_has_failed_counts_since_it_no_longer_does():
    card = One()
    card.see(1.0, health=0.0)
    assert timer(card) == (0, 300)
    card.see(1.0, 2)
    assert timer(card) == (60, 300)


def test_since_is_the_time_of_the_change():
    card = degraded()
    at = card.at
    card.see(0.5, 10)
    assert card.states.since[0] == at

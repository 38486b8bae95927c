import dataclasses

import numpy as np
import pytest

from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.config import CapacityConfig, StateConfig
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.states import State
from tests.polls import IDLE, START, STEP, cards_of, poll_of, work

CARDS = cards_of(4)


def test_table_of_no_cards_is_empty():
    capacity = Capacity()
    assert len(capacity.table(START)) == 0
    assert list(capacity.table(START)) == []
    assert capacity.table(START).card(CARDS[0]) is None


def test_card_that_was_never_measured_is_neutral_and_handed_out():
    capacity = Capacity()
    capacity.observe(poll_of(CARDS, START, {Quantity.SM_ACTIVE: [0.4, 0.4, 0.4, None]}))
    known, _, _, unknown = capacity.table(START)
    assert (unknown.state, unknown.excluded, unknown.age_s, unknown.available) == (State.UNKNOWN, False, None, None)
    assert unknown.score == pytest.approx(known.score)


def test_poll_that_is_older_than_the_last_is_not_looked_at():
    capacity = Capacity()
    capacity.observe(poll_of(CARDS, START, IDLE))
    before = list(capacity.table(START))
    capacity.observe(poll_of(CARDS, START - STEP, work(REMAP_FAILED=1.0)))
    assert list(capacity.table(START)) == before


def test_free_card_ranks_before_a_loaded_one():
    capacity = Capacity()
    for step in range(20):
        capacity.observe(poll_of(CARDS, START + step * STEP, {Quantity.SM_ACTIVE: [0.9, 0.5, 0.1, 0.0]}))
    score = capacity.table(START + 20 * STEP).score
    assert np.all(np.diff(score) > 0)
    assert not capacity.table(START + 20 * STEP).excluded.any()


def test_age_is_that_of_the_real_sample():
    capacity = Capacity()
    capacity.observe(poll_of(CARDS, START, IDLE, sampled_at=START - 40))
    assert capacity.table(START + 10).age_s[0] == 50


def test_late_samples_advance_no_timer():
    capacity = Capacity()
    for step in range(20):
        at = START + step * STEP
        capacity.observe(poll_of(CARDS, at, work(HEALTH=1.0, EVIDENCE=0.5), sampled_at=at - 100))
    assert not capacity.table(START + 20 * STEP).excluded.any()


def changes_while_flapping(config, hours):
    """Return how often a card's being handed out changes that is held down for ten minutes in every hour."""
    capacity = Capacity(config)
    cards = cards_of(6)
    seconds, changes, before = 0.0, 0, False
    for step in range(hours * 120):
        seconds += 15.0 if step % 120 < 20 else 0.0
        capacity.observe(poll_of(cards, START + step * STEP, work(HW_THERMAL_S=[seconds, *[0.0] * 5])))
        excluded = bool(capacity.table(START + step * STEP).excluded[0])
        changes += excluded != before
        before = excluded
    return changes


def test_fault_that_comes_and_goes_changes_little():
    quick = CapacityConfig(
        window_s=0.0,
        states=StateConfig(degrade_samples=1, recover_threshold=0.65, recover_s=0.0, recover_samples=1, relapse_s=0.0),
    )
    quick = dataclasses.replace(quick, speed=dataclasses.replace(quick.speed, means_half_life_s=60.0))
    usual = dataclasses.replace(CapacityConfig(), speed=quick.speed)
    assert changes_while_flapping(quick, hours=4) >= 7
    assert changes_while_flapping(usual, hours=8) <= 10


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"interval_s": 0}, "interval_s is 0: write seconds"),
        ({"threshold": 1.0}, "threshold is 1.0: write a number between 0 and 1"),
        ({"threshold": 0.8}, "recover_threshold is 0.72: write a number between threshold"),
        ({"window_s": -1}, "window_s is -1"),
    ],
)
def test_config_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        CapacityConfig(**values)

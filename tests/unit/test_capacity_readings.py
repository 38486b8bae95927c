import numpy as np
import pytest

from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.poll import Column, Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Readings

CLOCK, XID, POWER = Quantity.SM_CLOCK_HZ, Quantity.XID_FATAL, Quantity.POWER_W


class One:
    """One card, polled every 30 s."""

    def __init__(self):
        self.readings = Readings(1)

    def see(self, quantity, value, time, at=None):
        self.readings.begin()
        column = Column([0], np.array([value], dtype=float), np.array([time], dtype=float))
        self.readings.take(quantity, column, np.array([0]), time if at is None else at, 30.0)
        return bool(self.readings.is_new(quantity)[0])


def test_sample_whose_time_does_not_advance_is_no_new_one():
    card = One()
    assert card.see(CLOCK, 1e9, 100)
    assert not card.see(CLOCK, 1e9, 100, at=130)
    assert not card.see(CLOCK, 2e9, 90, at=130)
    assert card.readings.last(CLOCK)[0] == 1e9
    assert card.see(CLOCK, 1e9, 130)
    assert card.readings.span[0, CLOCK.value] == 30


def test_gauge_that_was_scraped_twice_counts_once_and_a_fault_at_once():
    card = One()
    assert card.see(CLOCK, 1e9, 100)
    assert not card.see(CLOCK, 1e9, 115)
    assert card.see(CLOCK, 1e9, 130)
    assert card.see(XID, 0, 130)
    assert card.see(XID, 1, 131)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [(CLOCK, np.nan), (CLOCK, -1), (CLOCK, np.inf), (POWER, 9.2e18), (Quantity.ENGINE_ACTIVE, 37), (Quantity.TEMP_C, 2147483632)],
)
def test_value_that_cannot_be_is_missing(quantity, value):
    card = One()
    assert not card.see(quantity, value, 100)
    assert np.isnan(card.readings.last(quantity)[0])


def test_sample_from_the_future_is_missing():
    card = One()
    assert not card.see(CLOCK, 1e9, 1000, at=100)
    assert card.see(CLOCK, 1e9, 100)


def test_counter_that_goes_back_was_reset():
    card = One()
    card.see(XID, 7, 100)
    card.see(XID, 9, 130)
    assert card.readings.step[0, XID.value] == 2
    assert card.readings.share(XID)[0] == pytest.approx(2 / 30)
    card.see(XID, 1, 160)
    assert card.readings.reset[0, XID.value]
    assert np.isnan(card.readings.step[0, XID.value])
    card.see(XID, 2, 190)
    assert not card.readings.reset[0, XID.value]
    assert card.readings.step[0, XID.value] == 1


def test_old_values_are_not_current():
    card = One()
    card.see(CLOCK, 1e9, 100)
    assert card.readings.current(CLOCK, 280, 180)[0] == 1e9
    assert np.isnan(card.readings.current(CLOCK, 281, 180)[0])


def test_what_others_say_is_no_sign_of_life():
    card = One()
    card.see(CLOCK, 1e9, 100)
    card.see(Quantity.EVIDENCE, 1, 500)
    assert card.readings.newest()[0] == 100


def test_columns_and_facts_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="2, 1 and 1 entries"):
        Column([0, 1], np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="facts of 1 cards and 2 cards"):
        Poll(0.0, True, [CardKey("n", "a"), CardKey("n", "b")], {}, [CardFacts()])

import dataclasses

import numpy as np
import pytest

from pyscheduler import compute_capacity_score
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.quantities import Quantity
from tests.polls import START, STEP, Values, cards_of, poll_of

CONFIG = CapacityConfig(mode=Mode.CLASSIC)


class Fleet:
    """Two nodes of two cards; the first may be loaded."""

    def __init__(self, config=CONFIG):
        self.cards = cards_of(4, per_node=2)
        self.capacity = Capacity(config)
        self.at = START - STEP
        self.table = self.capacity.table(self.at)

    def see(self, sm, polls=1, memory=0.0):
        for _ in range(polls):
            self.at += STEP
            values = {Quantity.SM_ACTIVE: [sm, sm, 0.1, 0.1], Quantity.FB_USED: [memory, memory, 0.0, 0.0]}
            self.capacity.observe(poll_of(self.cards, self.at, values))
        self.table = self.capacity.table(self.at)
        return self.table.excluded[:2].tolist()


def test_score_of_a_node_is_what_its_cards_have_free():
    fleet = Fleet()
    fleet.see(0.2, 20, memory=0.5)
    expected = 0.7 * compute_capacity_score([0.8] * 20) + 0.3 * compute_capacity_score([0.5] * 20)
    assert fleet.table.score[:2] == pytest.approx(expected)
    assert fleet.table.score[2:] == pytest.approx(0.7 * 0.9 + 0.3)


def test_node_below_the_threshold_for_the_window_is_no_candidate():
    fleet = Fleet()
    fleet.see(0.0, 20)
    polls = 0
    while not any(fleet.see(0.95, memory=0.9)):
        polls += 1
    # One poll to confirm the jump; 1 to 0.08 is below 0.65 after a few; then two minutes.
    assert 4 < polls < 12
    assert fleet.table.excluded.tolist() == [True, True, False, False]


def test_node_comes_back_as_soon_as_its_score_is_above():
    fleet = Fleet()
    fleet.see(0.95, 30)
    assert fleet.table.excluded[0]
    while fleet.table.score[0] < 0.65:
        assert fleet.see(0.0) == [bool(fleet.table.score[0] < 0.65)] * 2
    assert not fleet.table.excluded[0]


def test_card_whose_node_is_no_candidate_says_so():
    fleet = Fleet()
    fleet.see(0.95, 30, memory=0.9)
    first, *_, last = fleet.table
    assert first.excluded
    assert first.evidence == "its node has 7 % free, below 65 %"
    assert "free" not in last.evidence
    for _ in range(10):
        fleet.at += STEP
        fleet.capacity.observe(poll_of(fleet.cards[2:], fleet.at, {Quantity.SM_ACTIVE: 0.1}))
    silent, *_ = fleet.capacity.table(fleet.at)
    assert silent.evidence == "its node had less than 65 % free when it was last heard of"


def test_timer_says_for_how_long_a_candidate_has_been_too_full():
    fleet = Fleet()
    fleet.see(0.0, 20)
    seen = []
    while not any(fleet.see(0.95, memory=0.9)):
        card, *_ = fleet.table
        seen.append((card.timer_s, card.timer_end_s))
    assert seen[-4:] == [(0, 120), (30, 120), (60, 120), (90, 120)]
    card, *_ = fleet.table
    assert card.timer_s is None


def test_slow_card_is_not_seen():
    fleet = Fleet()
    for _ in range(600):
        fleet.at += STEP
        values: dict[Quantity, Values] = {Quantity.SM_ACTIVE: 0.0, Quantity.SM_CLOCK_HZ: [0.8e9, 1.7e9, 1.7e9, 1.7e9]}
        fleet.capacity.observe(poll_of(fleet.cards, fleet.at, values))
    assert not fleet.capacity.table(fleet.at).excluded.any()


def alone(fleet, cards, polls, complete=True):
    """Let these cards alone have series."""
    for _ in range(polls):
        fleet.at += STEP
        fleet.capacity.observe(poll_of(cards, fleet.at, {Quantity.SM_ACTIVE: 0.1}, complete=complete))
    return fleet.capacity.table(fleet.at)


def test_silence_of_many_changes_no_nodes_standing():
    fleet = Fleet()
    fleet.see(0.95, 30)
    table = alone(fleet, fleet.cards[2:], 59)
    assert table.frozen
    assert table.excluded.tolist() == [True, True, False, False]
    assert 0 < table.score[0] < 1


def test_node_that_is_silent_for_long_is_judged_no_more():
    fleet = Fleet()
    others = [CardKey("other", f"GPU-other-{number}") for number in range(16)]
    fleet.see(0.95, 30)
    assert alone(fleet, others, 3).excluded[:2].all()
    assert alone(fleet, others, 100, complete=False).excluded[:2].all(), "nothing follows from what an incomplete poll lacks"
    table = alone(fleet, others, 1)
    assert not table.frozen
    assert not table.excluded.any()
    assert table.score[table.rows[fleet.cards[0]]] == np.median(table.score)


def test_window_is_the_configs():
    fleet = Fleet(dataclasses.replace(CONFIG, window_s=0.0))
    fleet.see(0.0, 20)
    while fleet.table.score[0] >= 0.65:
        assert not any(fleet.see(0.95)) or fleet.table.score[0] < 0.65
    assert fleet.table.excluded[0]

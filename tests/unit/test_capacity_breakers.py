import dataclasses

import numpy as np
import pytest

from pyscheduler.core.capacity.breakers import SlowBreaker, are_silent
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.config import BreakerConfig
from pyscheduler.core.capacity.states import State
from tests.polls import IDLE, START, STEP, cards_of, poll_of, work


def choose(scores, slow, models=None, kept_out=None, polled=None, config=BreakerConfig()):  # noqa: B008 (frozen)
    breaker = SlowBreaker(len(scores))
    if kept_out is not None:
        breaker.kept_out = np.array(kept_out)
    models = np.array(models if models is not None else [0] * len(scores))
    all_ = np.ones(len(scores), dtype=bool)
    breaker.choose(np.array(slow), np.array(scores), models, all_, all_ if polled is None else np.array(polled), config)
    return np.flatnonzero(breaker.kept_out).tolist()


def test_at_most_a_fifth_is_kept_out_the_worst_first():
    assert choose([0.5, 0.1, 0.3, 0.2, *[1.0] * 6], [True] * 4 + [False] * 6) == [1, 3]


def test_each_model_has_its_own_share():
    slow = [True] * 5 + [False] * 5
    assert choose([0.5] * 10, slow, models=[0] * 5 + [1] * 5) == [0]


def test_who_is_kept_out_stays_before_others():
    kept_out = [True, True] + [False] * 8
    assert choose([0.5, 0.6, 0.1, *[1.0] * 7], [True] * 3 + [False] * 7, kept_out=kept_out) == [0, 1]


def test_of_few_cards_of_a_model_one_is_kept_out_and_not_the_last():
    assert choose([0.1, 0.3, 1, 1], [True, True, False, False]) == [0]
    assert choose([0.1, 1], [True, False]) == [0]
    assert choose([0.1, 1], [True, False], models=[0, 1]) == []
    assert choose([0.1, 1], [True, False], config=BreakerConfig(slow_share=0.0)) == []


def test_card_that_has_had_no_series_since_the_start_stays_as_it_was():
    scores, slow = [0.1] * 4, [True] * 4
    assert choose(scores, slow, models=[-1] * 4, kept_out=[True, True, False, False], polled=[False] * 4) == [0, 1]


@pytest.mark.parametrize(("silent", "expected"), [(0, False), (3, False), (4, True), (10, True)])
def test_silence_of_more_than_30_percent_is_prometheus(silent, expected):
    ages = np.array([100.0] * silent + [10.0] * (10 - silent))
    assert are_silent(ages, BreakerConfig()) is expected


def test_cards_that_are_long_gone_are_not_missed():
    assert not are_silent(np.array([2000.0] * 9 + [np.inf] * 5 + [10.0]), BreakerConfig())
    assert not are_silent(np.array([]), BreakerConfig())


class Fleet:
    def __init__(self, count=10):
        self.cards = cards_of(count)
        self.capacity = Capacity()
        self.at = START - STEP

    def see(self, polls=1, shown=None, complete=True, **others):
        for _ in range(polls):
            self.at += STEP
            shown_cards = self.cards[:shown]
            poll = poll_of(shown_cards, self.at, IDLE | work(**others) if others else IDLE, complete=complete)
            self.capacity.observe(poll)
        return self.capacity.table(self.at)


def test_many_silent_at_once_freeze_all_states():
    fleet = Fleet()
    before = fleet.see(5)
    table = fleet.see(20, shown=6)
    assert table.frozen
    assert (table.state == before.state).all()
    assert (table.since == before.since).all()
    assert not fleet.see(1).frozen


def test_few_silent_become_unknown_and_are_handed_out():
    fleet = Fleet()
    fleet.see(5)
    table = fleet.see(10, shown=8)
    assert not table.frozen
    assert table.state.tolist() == [State.HEALTHY] * 8 + [State.UNKNOWN] * 2
    assert not table.excluded.any()


def test_nothing_is_concluded_from_what_is_absent_in_an_incomplete_poll():
    fleet = Fleet()
    fleet.see(5)
    table = fleet.see(20, shown=8, complete=False)
    assert (table.state == State.HEALTHY).all()
    table = fleet.see(20, shown=2, complete=False)
    assert not table.frozen


def test_fault_that_is_reported_counts_while_all_is_frozen():
    fleet = Fleet()
    fleet.see(5, REMAP_FAILED=0.0)
    table = fleet.see(5, shown=3, REMAP_FAILED=1.0)
    assert table.frozen
    assert table.state[:3].tolist() == [State.FAILED] * 3


def test_those_that_stay_away_are_unknown_after_half_an_hour():
    fleet = Fleet()
    fleet.see(5)
    table = fleet.see(70, shown=6)
    assert not table.frozen
    assert table.state.tolist() == [State.HEALTHY] * 6 + [State.UNKNOWN] * 4


def test_poll_of_nothing_changes_nothing():
    fleet = Fleet()
    before = fleet.see(5)
    for complete in (True, False):
        fleet.at += STEP
        fleet.capacity.observe(dataclasses.replace(poll_of([], fleet.at, {}), complete=complete))
    after = fleet.capacity.table(fleet.at)
    assert (after.state == before.state).all()


def test_too_many_slow_cards_are_handed_out_and_the_evidence_says_so():
    fleet = Fleet(20)
    throttled = np.array([0.0] * 20)
    for _ in range(20):
        fleet.at += STEP
        throttled[:6] += 9.0
        fleet.capacity.observe(poll_of(fleet.cards, fleet.at, work(HW_THERMAL_S=throttled.tolist())))
    table = fleet.capacity.table(fleet.at)
    assert (table.state[:6] == State.DEGRADED).all()
    assert table.excluded.sum() == 4
    assert table.spared == 2
    spared = [card for card in table if card.state is State.DEGRADED and not card.excluded]
    assert all("too many of its model look slow" in card.evidence for card in spared)

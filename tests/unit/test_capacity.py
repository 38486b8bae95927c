import dataclasses

import numpy as np
import pytest

from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import CapacityConfig, Mode, StateConfig
from pyscheduler.core.capacity.opinions import Opinion
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.roster import Roster
from pyscheduler.core.capacity.states import State
from tests.polls import IDLE, START, STEP, Values, cards_of, poll_of, work

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


def gap(capacity, polls):
    """Let Prometheus be away for so many polls; return the time of the last."""
    for step in range(polls):
        at = START + (step + 1) * STEP
        capacity.observe(Poll(at, complete=False, cards=(), samples={}))
    return START + polls * STEP


def test_gap_is_filled_by_polls_of_the_past_after_those_that_failed():
    values = [work(1.7e9 - step * 1e6, REMAP_FAILED=0.0, XID_FATAL=float(step >= 5)) for step in range(12)]
    steady, away = Capacity(), Capacity()
    for capacity in (steady, away):
        capacity.observe(poll_of(CARDS, START, values[0]))
    gap(away, 10)
    for capacity in (steady, away):
        for step in range(1, 12):
            capacity.observe(poll_of(CARDS, START + step * STEP, values[step]))
    at = START + 11 * STEP
    assert list(away.table(at)) == list(steady.table(at))
    assert away.table(at).state.tolist() == [State.FAILED] * 4
    assert away.memory() == steady.memory()


def test_polls_that_fail_take_no_time_of_the_classic_window():
    config = CapacityConfig(mode=Mode.CLASSIC)
    capacity = Capacity(config)
    full = {Quantity.SM_ACTIVE: 0.95, Quantity.FB_USED: 0.9}
    for step in range(3):
        capacity.observe(poll_of(CARDS, START + (step - 2) * STEP, full))
    gap(capacity, 5)
    assert not capacity.table(START + 5 * STEP).excluded.any()
    for step in range(1, 3):
        capacity.observe(poll_of(CARDS, START + step * STEP, full))
    assert capacity.table(START + 2 * STEP).excluded.all()


def test_data_age_while_polls_fail_and_what_others_say_counts():
    capacity = Capacity()
    capacity.observe(poll_of(CARDS, START, IDLE | {Quantity.SM_ACTIVE: 0.4}))
    at = gap(capacity, 10)
    said = {CARDS[0]: Opinion(0.0, "a label says so")}
    capacity.observe(Poll(at, complete=False, cards=(), samples={}), opinions=said)
    first, second, *_ = capacity.table(at)
    assert (first.age_s, first.available, first.state) == (300, None, State.FAILED)
    assert not second.excluded


def test_repair_that_is_told_while_polls_fail_takes_effect_once():
    capacity = Capacity()
    for count in (0.0, 1.0):
        capacity.observe(poll_of(CARDS, START + (count - 1) * STEP, work(XID_FATAL=count)))
    repaired = {CARDS[0]: START + 10}
    for step in range(1, 5):
        capacity.observe(Poll(START + step * STEP, complete=False, cards=(), samples={}), repaired=repaired)
    first, second, *_ = capacity.table(START + 4 * STEP)
    assert (first.excluded, second.excluded) == (False, True)
    assert first.since == START + STEP


def test_nodes_are_numbered_anew_when_others_have_gone():
    roster = Roster()
    roster.add([CardKey(f"n{index}", f"GPU-{index}") for index in range(300)])
    assert roster.keep(np.array([7, 299])).tolist() == [7, 299]
    roster.add([CardKey("n299", "GPU-a"), CardKey("new", "GPU-b")])
    assert roster.nodes.tolist() == [0, 1, 1, 2]


def test_what_is_known_of_a_node_stays_with_it_when_others_have_gone():
    capacity = Capacity(CapacityConfig(mode=Mode.CLASSIC))
    full, free = ({Quantity.SM_ACTIVE: share, Quantity.FB_USED: share} for share in (0.9, 0.0))
    cards = cards_of(4, per_node=1)
    for step in range(10):
        capacity.observe(poll_of(cards[:3], START + step * STEP, free))
        capacity.observe(poll_of(cards[3:], START + step * STEP, full))
    later = START + 20 * STEP
    elsewhere = [key._replace(node="new") for key in cards[:3]]
    for step in range(70):
        capacity.observe(poll_of(elsewhere, later + step * STEP, free))
        capacity.observe(poll_of(cards[3:], later + step * STEP, full))
    table = capacity.table(later + 70 * STEP)
    assert len(table) == 4
    assert [(card.card.node, card.excluded) for card in table] == [("n3", True), *[("new", False)] * 3]


def test_free_card_ranks_before_a_loaded_one():
    capacity = Capacity()
    for step in range(21):
        capacity.observe(poll_of(CARDS, START + step * STEP, {Quantity.SM_ACTIVE: [0.9, 0.5, 0.1, 0.0]}), {})
    score = capacity.table(START + 20 * STEP).score
    assert np.all(np.diff(score) > 0)
    assert score == pytest.approx(np.array([0.1, 0.5, 0.9, 1.0]) ** 0.3)
    assert not capacity.table(START + 20 * STEP).excluded.any()


@pytest.mark.parametrize("pods", [None, dict.fromkeys(CARDS, "p")])
def test_what_a_pod_uses_of_its_card_counts_neither_while_it_runs_nor_just_after(pods):
    capacity, used = Capacity(), {Quantity.SM_ACTIVE: 0.9, Quantity.FB_USED: 0.5}
    at = START
    for _ in range(40):
        at += STEP
        capacity.observe(poll_of(CARDS, at, used), pods)
        assert np.all(capacity.table(at).score == 1)
    for _ in range(19):
        at += STEP
        capacity.observe(poll_of(CARDS, at, {Quantity.SM_ACTIVE: 0.0, Quantity.FB_USED: 0.5}), {})
        assert np.all(capacity.table(at).score == 1)
    for _ in range(3):
        at += STEP
        capacity.observe(poll_of(CARDS, at, {Quantity.SM_ACTIVE: 0.0, Quantity.FB_USED: 0.5}), {})
    assert capacity.table(at).score == pytest.approx(0.85**0.3), "what it has left in memory does"


def test_score_is_health_times_the_rest():
    capacity = Capacity()
    for step in range(30):
        shown: dict[Quantity, Values] = {Quantity.SM_ACTIVE: 0.5, Quantity.EVIDENCE: [0.7, 0.8, 1.0, None]}
        capacity.observe(poll_of(CARDS, START + step * STEP, shown), {})
    assert capacity.table(START + 29 * STEP).score == pytest.approx(np.array([0.7, 0.8, 1.0, 1.0]) * 0.5**0.3)


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

"""Layer I on small fleets whose cards do the same work at clocks that the test sets."""

import dataclasses

import numpy as np
import pytest

from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.config import CapacityConfig, SpeedConfig
from pyscheduler.core.capacity.quantities import Quantity
from tests.polls import IDLE, START, STEP, cards_of, poll_of, work

# An hour stands for four minutes, so that tests are short; half-lives and least times alike.
QUICK = CapacityConfig(
    speed=SpeedConfig(
        **{
            field.name: getattr(SpeedConfig(), field.name) / (15 if field.name.endswith(("half_life_s", "busy_s")) else 1)
            for field in dataclasses.fields(SpeedConfig)
            if field.name.endswith(("half_life_s", "busy_s"))
        },
        like_load_s=120.0,
        refresh_s=60.0,
    )
)
HOUR = 8  # polls
DENSE, LIGHT = {"TENSOR_ACTIVE": 0.9, "DRAM_ACTIVE": 0.6}, {"TENSOR_ACTIVE": 0.1, "DRAM_ACTIVE": 0.2}


class Fleet:
    def __init__(self, count, config=QUICK, model="H100"):
        self.cards = cards_of(count)
        self.capacity = Capacity(config)
        self.at = START - STEP
        self.model = model

    def see(self, clocks, polls=1, pods=None, **others):
        """Take polls; `pods` are those of the first cards, all others have one that stays."""
        busy = None if pods is None else dict.fromkeys(self.cards, "other") | dict(zip(self.cards, pods, strict=False))
        for _ in range(polls):
            self.at += STEP
            listed = [float(clock) for clock in np.broadcast_to(clocks, len(self.cards))]
            self.capacity.observe(poll_of(self.cards, self.at, work(listed, **others), model=self.model), busy)

    def rest(self, polls):
        for _ in range(polls):
            self.at += STEP
            self.capacity.observe(poll_of(self.cards, self.at, IDLE))

    @property
    def table(self):
        return self.capacity.table(self.at)

    def card(self, index=0):
        return self.table.card(self.cards[index])


def clocks_of(*first, count=12, rest=1.7e9):
    return np.array([*first, *[rest] * (count - len(first))])


def spread(count, deviation, seed=1):
    return 1.7e9 * (1 + deviation * np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize(("ratio", "excluded"), [(0.88, True), (0.90, False), (0.93, False), (1.0, False), (1.1, False)])
def test_cut_against_equal_peers_is_10_5_percent(ratio, excluded):
    fleet = Fleet(12)
    fleet.see(clocks_of(1.7e9 * ratio), 6 * HOUR)
    card = fleet.card()
    assert card.relative_speed == pytest.approx(ratio, abs=0.002)
    assert card.excluded is excluded
    assert [fleet.card(index).excluded for index in range(1, 12)] == [False] * 11


def test_scale_of_the_note():
    fleet = Fleet(12)
    fleet.see(clocks_of(1.7e9 * 0.95, 1.7e9 * 0.85), 6 * HOUR)
    assert fleet.card(0).speed == pytest.approx(0.83, abs=0.01)
    assert fleet.card(1).speed == pytest.approx(0.50, abs=0.01)


def test_slow_card_ranks_behind_its_peers_even_if_it_is_handed_out():
    fleet = Fleet(12)
    fleet.see(clocks_of(1.7e9 * 0.91), 6 * HOUR)
    assert not fleet.card().excluded
    assert fleet.card().score == pytest.approx(0.91 * fleet.card(1).score, abs=0.002)
    fleet.see(clocks_of(1.7e9 * 1.1), 24 * HOUR)
    assert fleet.card().score == fleet.card(1).score, "nobody chases a card that is ahead"


def test_drop_against_its_own_history_ranks_a_card_behind_even_if_it_is_handed_out():
    fleet = Fleet(12)
    fleet.see(clocks_of(1.7e9 * 1.05), 12 * HOUR)
    fleet.see(1.7e9, 12 * HOUR)
    card = fleet.card()
    assert not card.excluded
    assert card.relative_speed == pytest.approx(1.0, abs=0.02)
    assert card.score == pytest.approx(1 / 1.05, abs=0.01)


def test_wide_spread_of_a_model_lowers_its_cut():
    fleet = Fleet(100)
    clocks = spread(100, 0.08)
    clocks[0] = 1.7e9 * 0.86
    fleet.see(clocks, 6 * HOUR)
    assert 0.68 < fleet.table.reasons.rows.cut[0] < 0.84
    assert not fleet.card().excluded


def test_slow_cards_do_not_widen_their_own_cut():
    fleet = Fleet(100)
    clocks = spread(100, 0.03)
    clocks[:15] = 1.7e9 * 0.86
    fleet.see(clocks, 6 * HOUR)
    assert sum(fleet.card(index).excluded for index in range(15)) == 15


def test_card_is_not_judged_before_it_has_worked_for_hours():
    fleet = Fleet(12)
    fleet.see(clocks_of(1.7e9 * 0.8), 2 * HOUR)
    assert fleet.card().relative_speed is None
    assert fleet.card().speed == 1
    assert "not known yet" in fleet.card().evidence


def test_four_peers_are_no_quorum():
    few, enough = Fleet(5), Fleet(6)
    few.see(clocks_of(1.3e9, count=5), 6 * HOUR)
    enough.see(clocks_of(1.3e9, count=6), 6 * HOUR)
    assert few.card().speed == 1
    assert enough.card().speed < 0.65


def test_cards_of_other_models_and_power_limits_are_no_peers():
    fleet = Fleet(12)
    for step in range(6 * HOUR):
        poll = poll_of(fleet.cards, START + step * STEP, work(clocks_of(*[1.3e9] * 6).tolist()))
        facts = [dataclasses.replace(fact, power_limit_w=500.0 if place < 6 else 700.0) for place, fact in enumerate(poll.facts)]
        fleet.capacity.observe(dataclasses.replace(poll, facts=facts))
    assert fleet.capacity.table(START + 6 * HOUR * STEP).speed.min() == 1


def test_load_is_not_taken_for_slowness():
    # Half of the cards do dense work, which clocks 15 % lower, and half light work; each a few loads.
    fleet = Fleet(24)
    dense = np.arange(24) % 2 == 0
    for _ in range(6 * HOUR):
        fleet.see(
            np.where(dense, 1.45e9, 1.7e9),
            TENSOR_ACTIVE=np.where(dense, 0.9, 0.1).tolist(),
            DRAM_ACTIVE=np.where(dense, 0.6, 0.2).tolist(),
        )
    assert fleet.table.speed.min() == 1


def test_slow_node_that_had_most_of_one_load_is_seen_all_the_same():
    # Six slow cards do nearly all of the light work, and are alone there; all do some dense work.
    fleet = Fleet(24)
    slow = np.arange(24) < 6
    true = np.where(slow, 0.85, 1.0)
    for hour in range(10):
        light = slow if hour < 5 else np.zeros(24, dtype=bool)
        tensor, dram = np.where(light, 0.1, 0.9).tolist(), np.where(light, 0.2, 0.6).tolist()
        fleet.see(np.where(light, 1.9e9, 1.5e9) * true, HOUR, TENSOR_ACTIVE=tensor, DRAM_ACTIVE=dram)
    assert fleet.table.reasons.rows.against_peers[:6] == pytest.approx(0.85, abs=0.02)


def test_drop_against_own_history_is_seen_where_peers_spread_widely():
    fleet = Fleet(40)
    clocks = spread(40, 0.08)
    clocks[0] = 1.8e9
    fleet.see(clocks, 10 * HOUR)
    assert not fleet.card().excluded
    clocks[0] *= 0.90
    fleet.see(clocks, 6 * HOUR)
    assert fleet.card().excluded
    assert "slower than it was" in fleet.card().evidence


def dropped(drop, *pods, hours=4):
    """Return the fleet after one card became slower by `drop` and worked so many hours for each of these pods."""
    fleet = Fleet(40)
    clocks = spread(40, 0.03)
    clocks[0] = 1.75e9
    fleet.see(clocks, 10 * HOUR, pods=["a"])
    clocks[0] *= 1 - drop
    for pod in pods:
        fleet.see(clocks, hours * HOUR, pods=[pod])
    return fleet


def test_small_drop_that_came_with_a_pod_counts_once_another_pod_has_shown_it():
    assert not dropped(0.08, "b").card().excluded
    assert dropped(0.08, "b", "c").card().excluded


def test_drop_under_one_pod_and_a_large_one_need_no_second_pod():
    assert dropped(0.08, "a").card().excluded
    assert dropped(0.13, "b").card().excluded


def test_pod_that_runs_slower_is_forgotten_with_the_next():
    fleet = dropped(0.06, "b")
    clocks = spread(40, 0.03)
    clocks[0] = 1.75e9
    fleet.see(clocks, 6 * HOUR, pods=["c"])
    assert not fleet.card().excluded
    assert fleet.table.reasons.rows.against_own[0] == pytest.approx(1, abs=0.01)


def test_load_in_which_speed_shows_less_does_not_flatter_who_had_most_of_it():
    fleet = Fleet(60)
    speeds = 1 + 0.05 * np.random.default_rng(2).standard_normal(60)
    speeds[:2] = 0.86 * np.median(speeds)
    # The first has little of the dense work, the second little of the light.
    for dense, hours in (([False, True], 5), ([True, False], 1)):
        for half in (False, True):
            does_dense = np.array([*dense, *[half, not half] * 29])
            clocks = np.where(does_dense, 1.5e9 * speeds, 1.8e9 * speeds**0.6)
            loads = {name: np.where(does_dense, DENSE[name], LIGHT[name]).tolist() for name in DENSE}
            fleet.see(clocks, hours * HOUR // 2, **loads)
    # By the plain means of their loads they would be more than 1 % apart.
    assert fleet.card(0).relative_speed == pytest.approx(fleet.card(1).relative_speed, abs=0.01)


def test_fast_card_at_its_highest_clock_is_not_slower_than_it_was():
    fleet = Fleet(40)
    speeds = 1 + 0.05 * np.random.default_rng(4).standard_normal(40)
    speeds[0] = 1.15
    fleet.see(1.4e9 * speeds, 10 * HOUR, SM_CLOCK_MAX_HZ=1.98e9, **DENSE)
    for pod in ("b", "c"):
        pods = [pod] * 40
        fleet.see(np.minimum(1.9e9 * speeds, 1.98e9), 4 * HOUR, pods=pods, SM_CLOCK_MAX_HZ=1.98e9, **LIGHT)
    assert fleet.table.reasons.rows.against_own[0] == pytest.approx(1, abs=0.02)


def test_drop_of_5_percent_is_none():
    fleet = Fleet(40)
    clocks = spread(40, 0.03)
    clocks[0] = 1.7e9
    fleet.see(clocks, 10 * HOUR)
    clocks[0] *= 0.95
    fleet.see(clocks, 12 * HOUR)
    assert not fleet.card().excluded


def test_drop_is_not_forgotten():
    fleet = Fleet(40)
    clocks = spread(40, 0.05)
    clocks[0] = 1.75e9
    fleet.see(clocks, 10 * HOUR)
    clocks[0] *= 0.88
    fleet.see(clocks, 40 * HOUR)
    assert fleet.card().excluded


def test_card_without_peers_is_compared_with_itself_at_like_load():
    fleet = Fleet(1, dataclasses.replace(QUICK, breakers=dataclasses.replace(QUICK.breakers, slow_share=1.0)))
    for _ in range(4):
        fleet.see(1.4e9, 3 * HOUR, **DENSE)
        fleet.see(1.9e9, 3 * HOUR, **LIGHT)
    fleet.see(1.4e9, 3 * HOUR, **DENSE)
    assert fleet.card().speed == 1
    fleet.see(1.9e9 * 0.88, 6 * HOUR, **LIGHT)
    assert fleet.card().excluded


def test_nobody_is_slow_if_all_became_slower():
    fleet = Fleet(40)
    clocks = spread(40, 0.03)
    fleet.see(clocks, 10 * HOUR)
    for _ in range(8 * HOUR):
        fleet.see(clocks * 0.88)
        assert not fleet.table.excluded.any()


def test_repaired_card_comes_back_and_is_held_to_its_new_speed():
    fleet = Fleet(40)
    clocks = spread(40, 0.02)
    clocks[0] = 1.45e9
    fleet.see(clocks, 8 * HOUR)
    assert fleet.card().excluded
    clocks[0] = 1.7e9
    fleet.see(clocks, 30 * HOUR)
    assert not fleet.card().excluded
    clocks[0] = 1.53e9  # 10 % less: not enough against its peers
    fleet.see(clocks, 8 * HOUR)
    assert fleet.card().excluded


def test_rest_heals_and_ages_nothing():
    fleet = Fleet(12)
    fleet.see(clocks_of(1.4e9), 6 * HOUR)
    before = fleet.card()
    fleet.rest(200)
    assert fleet.card().excluded
    assert fleet.card().relative_speed == before.relative_speed


def counter(fleet, name, per_poll, polls, index=0):
    values = [0.0] * len(fleet.cards)
    for _ in range(polls):
        values[index] += per_poll
        fleet.see(1.7e9, **{name: list(values)})


@pytest.mark.parametrize(
    ("name", "words"), [("HW_THERMAL_S", "too hot"), ("POWER_BRAKE_S", "braked"), ("SW_THERMAL_S", "at its temp")]
)
def test_clock_that_is_held_down_keeps_the_card_out_at_any_clock(name, words):
    fleet = Fleet(12)
    counter(fleet, name, 9.0, 12)
    assert fleet.card().excluded
    assert words in fleet.card().evidence
    assert "30 %" in fleet.card().evidence
    assert not fleet.card(1).excluded


@pytest.mark.parametrize(
    ("name", "share"), [("HW_THERMAL_S", 0.005), ("POWER_BRAKE_S", 0.005), ("SW_THERMAL_S", 0.1), ("POWER_CAP_S", 1.0)]
)
def test_a_little_of_it_does_not(name, share):
    fleet = Fleet(12)
    counter(fleet, name, 30 * share, 40)
    assert not fleet.card().excluded


def test_fractions_of_amd_count_as_well():
    fleet = Fleet(12)
    fleet.see(1.7e9, 12, HW_THERMAL_FRACTION=[0.3, *[0.0] * 11])
    assert fleet.card().excluded


def test_link_at_half_its_width_keeps_the_card_out_unless_it_is_so_on_all():
    one, all_ = Fleet(12), Fleet(12)
    one.see(1.7e9, 12, PCIE_WIDTH=[8.0, *[16.0] * 11], PCIE_WIDTH_MAX=16.0)
    all_.see(1.7e9, 12, PCIE_WIDTH=8.0, PCIE_WIDTH_MAX=16.0)
    assert one.card().excluded
    assert "50 % of its width" in one.card().evidence
    assert not all_.card().excluded


def test_link_that_is_slower_than_the_others_of_its_node_keeps_the_card_out():
    fleet = Fleet(12)
    fleet.see(1.7e9, 12, PCIE_GEN=[4.0, *[5.0] * 11], PCIE_GEN_MAX=5.0)
    assert [fleet.card(index).excluded for index in range(12)] == [True, *[False] * 11]
    assert "50 % of its speed" in fleet.card().evidence


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"TEMP_C": [95.0, *[60.0] * 11]}, "hotter"),
        ({"PCIE_GEN": [2.0] * 8 + [4.0] * 4, "PCIE_GEN_MAX": 4.0}, "below its generation"),
    ],
)
def test_weak_evidence_ranks_and_keeps_nobody_out(values, words):
    fleet = Fleet(12)
    fleet.see(1.7e9, 6 * HOUR, **values)
    card, other = fleet.card(0), fleet.card(11)
    assert not card.excluded
    assert 0.85 * other.score < card.score < other.score
    assert words in card.evidence


def test_errors_on_links_are_weak_evidence():
    fleet = Fleet(12)
    counter(fleet, "PCIE_REPLAYS", 1000.0, 20)
    assert not fleet.card().excluded
    assert fleet.card(0).score < fleet.card(1).score
    assert "repeats packets" in fleet.card().evidence


def test_order_of_the_cards_does_not_matter():
    forwards, backwards = Fleet(12), Fleet(12)
    backwards.cards = backwards.cards[::-1]
    clocks = spread(12, 0.05)
    forwards.see(clocks, 6 * HOUR)
    backwards.see(clocks[::-1], 6 * HOUR)
    for key in forwards.cards:
        one, other = forwards.table.card(key), backwards.table.card(key)
        assert one.relative_speed == pytest.approx(other.relative_speed, rel=1e-12)
        assert one.score == pytest.approx(other.score, rel=1e-9)


def test_quantities_that_nobody_knows_are_no_evidence():
    fleet = Fleet(12)
    values = {Quantity.SM_CLOCK_HZ: 1.7e9, Quantity.UTILIZATION: 1.0}
    for step in range(6 * HOUR):
        fleet.capacity.observe(poll_of(fleet.cards, START + step * STEP, values))
    table = fleet.capacity.table(START + 6 * HOUR * STEP)
    assert table.speed.min() == 1
    assert table.reasons.rows.against_peers == pytest.approx(1.0)

import dataclasses
import json
from itertools import product

import numpy as np
import pytest

from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.config import CapacityConfig, SpeedConfig
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.states import State
from tests.polls import IDLE, START, STEP, Values, cards_of, poll_of, work

COUNT = 12
HOUR = 120
CLOCKS = [1.4e9, *[1.7e9] * (COUNT - 1)]


def fleet_that_knows(cards, polls=4 * HOUR):
    capacity = Capacity()
    for step in range(polls):
        capacity.observe(poll_of(cards, START + step * STEP, work(CLOCKS[: len(cards)], REMAP_FAILED=0.0)))
    return capacity, START + polls * STEP


@pytest.fixture(scope="module")
def known():
    return fleet_that_knows(cards_of(COUNT))


def restarted(memory, cards, at, values=IDLE):
    capacity = Capacity()
    capacity.restore(json.loads(json.dumps(memory)))
    capacity.observe(poll_of(cards, at, values))
    return capacity


def test_slow_card_stays_out_over_a_restart_while_it_rests(known):
    capacity, at = known
    cards = cards_of(COUNT)
    before = capacity.table(at)
    after = restarted(capacity.memory(), cards, at).table(at)
    assert before.card(cards[0]).state is State.DEGRADED
    for key in cards:
        one, other = before.card(key), after.card(key)
        assert other.excluded is one.excluded
        assert other.relative_speed == pytest.approx(one.relative_speed, abs=1e-3)
        assert other.speed == pytest.approx(one.speed, abs=1e-2)


def test_memory_of_a_memory_is_the_same(known):
    capacity, at = known
    memory = capacity.memory()
    again = Capacity()
    again.restore(memory)
    assert again.memory() == memory
    assert restarted(memory, cards_of(COUNT), at).memory()["cards"]["GPU-3"]["loads"] == memory["cards"]["GPU-3"]["loads"]


def test_memory_follows_a_card_to_another_node(known):
    capacity, at = known
    moved = [key._replace(node=f"new-{key.node}") for key in cards_of(COUNT)]
    assert restarted(capacity.memory(), moved, at).table(at).card(moved[0]).excluded


def test_card_that_moves_while_we_watch_takes_its_memory_along_and_leaves_its_place():
    cards = cards_of(COUNT)
    capacity, at = fleet_that_knows(cards)
    elsewhere = [cards[0]._replace(node="other"), *cards[1:]]
    for step in range(70):
        capacity.observe(poll_of(elsewhere, at + step * STEP, IDLE))
    table = capacity.table(at + 70 * STEP)
    assert table.card(elsewhere[0]).excluded
    assert table.card(cards[0]) is None
    assert len(table) == COUNT


def test_card_that_comes_back_is_remembered_from_where_it_is():
    home = cards_of(1)
    away = [home[0]._replace(node="other")]
    capacity = Capacity()
    for step, cards in enumerate([home, away, home]):
        capacity.observe(poll_of(cards, START + step * STEP, IDLE))
    assert capacity.memory()["cards"]["GPU-0"]["seen"] == round(START + 2 * STEP)


# An hour stands for four minutes.
QUICK = CapacityConfig(
    speed=SpeedConfig(
        **{
            field.name: getattr(SpeedConfig(), field.name) / 15
            for field in dataclasses.fields(SpeedConfig)
            if field.name.endswith(("half_life_s", "busy_s"))
        },
        like_load_s=120.0,
        refresh_s=60.0,
    )
)


class Falling:
    """A fleet at work whose first card falls behind what it was."""

    def __init__(self):
        self.cards = cards_of(COUNT)
        self.capacity = Capacity(QUICK)
        self.at = START
        self.see(1.0, 60)

    def see(self, ratio, polls):
        pods = dict.fromkeys(self.cards, "the same")
        for _ in range(polls):
            self.at += STEP
            self.capacity.observe(poll_of(self.cards, self.at, work([1.7e9 * ratio, *[1.7e9] * (COUNT - 1)])), pods)
        return self.capacity.table(self.at).card(self.cards[0])

    def restart(self, without=()):
        memory = json.loads(json.dumps(self.capacity.memory()))
        for entry, name in product(memory["cards"].values(), without):
            entry.pop(name, None)
        self.capacity = Capacity(QUICK)
        self.capacity.restore(memory)


def test_card_that_is_slower_than_it_was_stays_out_over_a_restart_while_it_works():
    fleet = Falling()
    assert fleet.see(0.92, 32).state is State.DEGRADED
    fleet.restart()
    assert fleet.see(0.92, 60).state is State.DEGRADED


def test_drop_of_before_a_restart_is_found_after_it():
    fleet = Falling()
    assert not fleet.see(0.90, 4).excluded
    fleet.restart()
    assert fleet.see(0.90, 60).state is State.DEGRADED


def test_memory_that_lacks_whether_a_card_was_slower_is_read():
    fleet = Falling()
    fleet.see(0.92, 32)
    fleet.restart(without=["slower", "pods", "lately", "xids", "dbes", "energy"])
    assert fleet.see(0.92, 1).state is State.DEGRADED


@pytest.mark.parametrize("name", ["XID_FATAL", "ECC_DBE"])
@pytest.mark.parametrize(("before", "after", "failed"), [(0, 1, True), (2, 3, True), (2, 2, False), (2, 0, False), (2, 1, True)])
def test_event_that_came_while_nobody_looked_is_one(name, before, after, failed):
    cards = cards_of(2)
    capacity = Capacity()
    for step in range(3):
        capacity.observe(poll_of(cards, START + step * STEP, IDLE | work(**{name: float(before)})))
    day = START + 86400
    table = restarted(capacity.memory(), cards, day, IDLE | work(**{name: [float(after), None]})).table(day)
    assert table.state.tolist() == [State.FAILED if failed else State.HEALTHY, State.HEALTHY]


@pytest.mark.parametrize(("before", "after", "failed"), [(0, 79, True), (31, 79, True), (79, 79, False), (0, 31, False)])
def test_code_that_came_while_nobody_looked_is_an_event(before, after, failed):
    cards = cards_of(1)
    capacity = Capacity()
    capacity.observe(poll_of(cards, START, IDLE | work(LAST_XID=float(before))))
    day = START + 86400
    table = restarted(capacity.memory(), cards, day, IDLE | work(LAST_XID=float(after))).table(day)
    assert bool(table.excluded[0]) is failed


def test_driver_that_was_loaded_anew_while_nobody_looked_ends_an_event():
    cards = cards_of(2)
    capacity = Capacity()
    for step in range(3):
        capacity.observe(poll_of(cards, START + step * STEP, IDLE | work(XID_FATAL=float(step > 0), ENERGY_J=5e6 + step)))
    day = START + 86400
    values = IDLE | work(XID_FATAL=[0.0, 1.0], ENERGY_J=[1e3, 6e6])
    assert restarted(capacity.memory(), cards, day, values).table(day).health.tolist() == [1, 0]


def test_counters_remembered_from_a_clock_that_was_wrong_are_compared_all_the_same():
    cards = cards_of(1)
    capacity = Capacity()
    capacity.observe(poll_of(cards, START + 86400, IDLE | work(XID_FATAL=0.0)))
    capacity = restarted(capacity.memory(), cards, START, IDLE | work(XID_FATAL=0.0))
    for step in range(1, 22):
        capacity.observe(poll_of(cards, START + step * STEP, IDLE | work(XID_FATAL=1.0)))
    assert capacity.table(START + 21 * STEP).excluded.all()


def test_card_that_moves_takes_its_counters_along():
    cards = cards_of(1)
    capacity = Capacity()
    capacity.observe(poll_of(cards, START, IDLE | work(ECC_DBE=0.0)))
    moved = [cards[0]._replace(node="other")]
    capacity.observe(poll_of(moved, START + STEP, IDLE | work(ECC_DBE=1.0)))
    assert capacity.table(START + STEP).state.tolist() == [State.HEALTHY, State.FAILED]


def test_fault_is_remembered():
    cards = cards_of(2)
    capacity = Capacity()
    for step, xids in enumerate([0.0, 1.0, 1.0]):
        capacity.observe(poll_of(cards, START + step * STEP, IDLE | work(XID_FATAL=[xids, 0.0])))
    at = START + 3 * STEP
    after = restarted(capacity.memory(), cards, at, work(XID_FATAL=[1.0, 0.0])).table(at)
    assert [card.excluded for card in after] == [True, False]
    assert "XID" in after.card(cards[0]).evidence


def test_cards_that_were_not_polled_yet_are_still_remembered(known):
    capacity, at = known
    memory = capacity.memory()
    some = restarted(memory, cards_of(4), at)
    assert some.memory()["cards"].keys() == memory["cards"].keys()


def test_what_was_not_seen_for_a_month_is_forgotten():
    cards = cards_of(2)
    capacity = Capacity()
    capacity.observe(poll_of(cards, START, IDLE))
    later = START + 31 * 86400
    capacity.observe(poll_of(cards[1:], later, IDLE))
    capacity.observe(poll_of(cards[1:], later + STEP, IDLE))
    assert list(capacity.table(later).rows) == cards[1:]
    assert list(capacity.memory()["cards"]) == ["GPU-1"]


def test_partitions_are_remembered_by_themselves():
    cards = [cards_of(1)[0]._replace(mig=mig) for mig in ("1", "2")]
    capacity = Capacity()
    capacity.observe(poll_of(cards, START, IDLE))
    assert set(capacity.memory()["cards"]) == {"GPU-0/1", "GPU-0/2"}


def test_memory_is_bounded_however_many_loads_a_card_has_had():
    cards = cards_of(6)
    capacity = Capacity()
    draw = np.random.default_rng(3)
    for step in range(500):
        loads = {"TENSOR_ACTIVE": float(draw.random()), "DRAM_ACTIVE": float(draw.random())}
        counted = {"LAST_XID": 0.0, "XID_FATAL": 0.0, "ECC_DBE": 0.0, "ENERGY_J": 9.9e9 + step}
        values = work(1.7e9, **loads, **counted, TEMP_C=60.0, REMAP_FAILED=0.0)
        capacity.observe(poll_of(cards, START + step * STEP, values))
    text = json.dumps(capacity.memory(), separators=(",", ":"))
    # 2,000 cards to a ConfigMap, which holds 1 MiB.
    assert len(text) / len(cards) < 520


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({}, "version None"),
        ({"version": 2, "cards": {}}, "version 2, this program reads 1"),
        ({"version": 1, "cards": {"GPU-1": 3}}, "GPU-1 is 3"),
        ({"version": 1, "cards": {"GPU-1": {"busy": "long"}}}, "GPU-1 holds what is no whole number"),
        ({"version": 1, "cards": {"GPU-1": {"loads": [[1, 2]]}}}, "GPU-1 has loads of another form"),
        ({"version": 1, "cards": {"GPU-1": {"loads": [[999, 0, 0, 0, 0, 0, 0]]}}}, "GPU-1 has loads of another form"),
    ],
)
def test_memory_that_is_none_is_refused(memory, message):
    with pytest.raises(ValueError, match=message):
        Capacity().restore(memory)


# -- a memory that comes late ---------------------------------------------------------------------------------------------

FEW = cards_of(2)


def resting(quantity: Quantity, values: Values) -> dict[Quantity, Values]:
    """Return what cards show that rest, with one quantity more."""
    shown: dict[Quantity, Values] = {**IDLE}
    return shown | {quantity: values}


def began_without(values, *, at, polls=3, repaired=None):
    """Return a service that could not read what is remembered, after some polls."""
    capacity = Capacity()
    for step in range(1, polls + 1):
        capacity.observe(poll_of(FEW, at + step * STEP, values), repaired=repaired)
    return capacity, at + polls * STEP


def failed_by(quantity):
    """Return what is remembered of two cards, of which the first has had a fatal event, and the time."""
    capacity = Capacity()
    for step, count in enumerate((0.0, 1.0), 1):
        capacity.observe(poll_of(FEW, START + step * STEP, resting(quantity, [count, 0.0])))
    return capacity.memory(), START + 2 * STEP


def test_card_that_had_failed_is_out_as_soon_as_it_is_remembered_and_stays_so():
    memory, at = failed_by(Quantity.XID_FATAL)
    shown = resting(Quantity.XID_FATAL, [1.0, 0.0])
    capacity, at = began_without(shown, at=at)
    assert state_of(capacity, at) is State.HEALTHY
    capacity.restore(memory)
    assert state_of(capacity, at) is State.FAILED
    for step in range(1, 31):
        capacity.observe(poll_of(FEW, at + step * STEP, shown))
    assert state_of(capacity, at + 30 * STEP) is State.FAILED
    assert state_of(capacity, at + 30 * STEP, FEW[1]) is State.HEALTHY


def test_event_between_what_is_remembered_and_the_start_is_found_when_the_memory_comes():
    memory, at = failed_by(Quantity.ECC_DBE)
    shown = resting(Quantity.ECC_DBE, [1.0, 1.0])
    capacity, at = began_without(shown, at=at)
    capacity.restore(memory)
    capacity.observe(poll_of(FEW, at + STEP, shown))
    assert state_of(capacity, at + STEP, FEW[1]) is State.FAILED


def test_card_that_failed_since_the_start_stays_failed_when_it_is_remembered_as_healthy():
    capacity, at = began_without(resting(Quantity.HEALTH, 1.0), at=START, polls=20)
    memory = capacity.memory()
    capacity, at = began_without(resting(Quantity.HEALTH, [0.0, 1.0]), at=at)
    capacity.restore(memory)
    assert state_of(capacity, at) is State.FAILED
    capacity.observe(poll_of(FEW, at + STEP, IDLE))
    assert state_of(capacity, at + STEP) is State.FAILED


@pytest.mark.parametrize(("after_s", "expected"), [(-1, State.FAILED), (1, State.HEALTHY)])
def test_what_is_remembered_of_before_a_repair_counts_no_more(after_s, expected):
    memory, at = failed_by(Quantity.XID_FATAL)
    shown = resting(Quantity.XID_FATAL, [1.0, 0.0])
    repaired = {FEW[0]: at + after_s}
    capacity, at = began_without(shown, at=at, repaired=repaired)
    capacity.restore(memory)
    capacity.observe(poll_of(FEW, at + STEP, shown), repaired=repaired)
    assert state_of(capacity, at + STEP) is expected


def test_history_that_is_remembered_comes_back_and_a_longer_one_of_since_stays(known):
    cards, memory, at = cards_of(COUNT), known[0].memory(), known[1]
    for polls, hours in ((3, 4), (6 * HOUR, 6)):
        capacity = Capacity()
        for step in range(1, polls + 1):
            capacity.observe(poll_of(cards, at + step * STEP, work()))
        capacity.restore(memory)
        entry = capacity.memory()["cards"][cards[1].uuid]
        assert entry["busy"] == pytest.approx(hours * 3600, rel=0.02)
        assert sum(row[2] for row in entry["loads"]) > 1000


def test_memory_that_comes_late_keeps_cards_that_were_not_polled_yet(known):
    memory, at = known[0].memory(), known[1]
    capacity, _ = began_without(IDLE, at=at)
    capacity.restore(memory)
    after = capacity.memory()["cards"]
    assert {name: entry for name, entry in after.items() if name not in {card.uuid for card in FEW}} == {
        name: entry for name, entry in memory["cards"].items() if name not in {card.uuid for card in FEW}
    }


def state_of(capacity, at, card=FEW[0]):
    return capacity.table(at).card(card).state

"""A card that was repaired begins anew, once: what was seen of it before counts no more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.opinions import Opinion
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.states import State
from pyscheduler.core.capacity.table import CardCapacity
from tests.polls import IDLE, START, STEP, Values, cards_of, poll_of, work

CARDS = cards_of(12)
BAD, GOOD = CARDS[0], CARDS[1]
HOUR = 120
SLOW: list[float | None] = [1.4e9, *[1.7e9] * (len(CARDS) - 1)]


class Fleet:
    """Twelve cards, of which the first may be bad, and the time at which it is told that it was repaired."""

    def __init__(self, capacity: Capacity | None = None, at: float = START) -> None:
        self.capacity = capacity or Capacity()
        self.at = at
        self.repaired_at: float | None = None

    def see(self, values: Mapping[Quantity, Values], polls: int = 1, **more: Any) -> CardCapacity:
        for _ in range(polls):
            self.at += STEP
            told = {} if self.repaired_at is None else {BAD: self.repaired_at}
            self.capacity.observe(poll_of(CARDS, self.at, values), repaired=told, **more)
        return self.card()

    def first(self, polls: int = 1, **values: float) -> CardCapacity:
        """Let the first card alone show these values, while all rest."""
        shown: dict[Quantity, Values] = {Quantity[name]: [value, *[None] * 11] for name, value in values.items()}
        return self.see({**IDLE, **shown}, polls)

    def throttle(self, polls: int = 1) -> CardCapacity:
        """Let all work, and the first be held down by heat."""
        return self.see(work(HW_THERMAL_FRACTION=[0.5, *[0.0] * 11]), polls)

    def rest(self, polls: int = 1) -> CardCapacity:
        return self.see(IDLE, polls)

    def card(self) -> CardCapacity:
        found = self.capacity.table(self.at).card(BAD)
        assert found is not None
        return found

    def restarted(self, without: Sequence[str] = ()) -> Fleet:
        """Return the fleet after a restart; its memory lacks what it is to be `without`."""
        memory = json.loads(json.dumps(self.capacity.memory()))
        for entry, name in product(memory["cards"].values(), without):
            entry.pop(name, None)
        capacity = Capacity()
        capacity.restore(memory)
        again = Fleet(capacity, self.at)
        again.repaired_at = self.repaired_at
        return again


# -- faults ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["XID_FATAL", "ECC_DBE"])
def test_counter_that_stands_after_a_repair_is_no_fault_and_one_that_grows_is(name: str) -> None:
    fleet = Fleet()
    fleet.first(**{name: 0})
    assert fleet.first(3, **{name: 1}).state is State.FAILED
    fleet.repaired_at = fleet.at + 1
    assert fleet.first(**{name: 1}).excluded is False
    assert fleet.first(20, **{name: 1}).state is State.HEALTHY
    assert fleet.first(**{name: 2}).state is State.FAILED
    assert fleet.first(5, **{name: 2}).excluded, "the same repair does not heal what came after it"


def test_code_that_stands_after_a_repair_is_no_fault_also_after_a_restart_and_another_one_is() -> None:
    fleet = Fleet()
    fleet.first(LAST_XID=0)
    fleet.first(3, LAST_XID=79)
    fleet.repaired_at = fleet.at
    assert fleet.first(3, LAST_XID=79).health == 1
    again = fleet.restarted()
    assert again.first(3, LAST_XID=79).health == 1
    assert again.first(LAST_XID=48).state is State.FAILED


def test_counter_that_stands_is_no_fault_after_a_restart() -> None:
    fleet = Fleet()
    fleet.first(XID_FATAL=0)
    fleet.first(3, XID_FATAL=1)
    fleet.repaired_at = fleet.at
    fleet.first(2, XID_FATAL=1)
    again = fleet.restarted()
    assert again.first(5, XID_FATAL=1).excluded is False
    assert again.first(XID_FATAL=2).excluded


@pytest.mark.parametrize("name", ["XID_FATAL", "ECC_DBE", "LAST_XID"])
@pytest.mark.parametrize("told_late", [False, True])
def test_event_of_while_nobody_looked_may_be_of_before_a_repair_of_that_time(name: str, *, told_late: bool) -> None:
    fleet = Fleet()
    fleet.first(3, **{name: 0})
    before = fleet.at - 1
    again, unrepaired = fleet.restarted(), fleet.restarted()
    for one in (again, unrepaired):
        one.at += 86400
    unrepaired.repaired_at = before
    assert unrepaired.first(3, **{name: 48}).excluded
    if told_late:
        assert again.first(3, **{name: 48}).excluded
    again.repaired_at = before + 7200
    assert again.first(3, **{name: 48}).excluded is False
    assert again.first(**{name: 79}).excluded


def test_fault_after_the_time_of_the_repair_stays_though_it_is_told_later() -> None:
    fleet = Fleet()
    fleet.first(XID_FATAL=0)
    repaired_at = fleet.at + 1
    fleet.first(XID_FATAL=1)
    fleet.repaired_at = repaired_at
    assert fleet.first(3, XID_FATAL=1).state is State.FAILED


@pytest.mark.parametrize(("name", "bad"), [("HEALTH", 0), ("REMAP_FAILED", 1)])
def test_bad_report_of_before_counts_no_more_and_one_of_now_does(name: str, bad: float) -> None:
    silent, loud = Fleet(), Fleet()
    for fleet in (silent, loud):
        assert fleet.first(20, **{name: bad}).state is State.FAILED
        fleet.repaired_at = fleet.at
    assert silent.rest().state is State.HEALTHY
    assert loud.first(5, **{name: bad}).state is State.FAILED


def test_what_others_say_now_stays() -> None:
    fleet = Fleet()
    said = {BAD: Opinion(0.0, "Autopilot says EVICT")}
    fleet.see(IDLE, opinions=said)
    fleet.repaired_at = fleet.at
    assert fleet.see(IDLE, 3, opinions=said).evidence == "Autopilot says EVICT"
    assert fleet.see(IDLE, opinions={}).excluded
    # What was said is over: nothing needs to be waited for.
    fleet.repaired_at = fleet.at
    assert fleet.see(IDLE).excluded is False


# -- speed ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow_memory() -> tuple[dict[str, Any], float]:
    """Return what is remembered of a fleet whose first card is slower than its peers."""
    fleet = Fleet()
    assert fleet.see(work(SLOW), 4 * HOUR).state is State.DEGRADED
    return fleet.capacity.memory(), fleet.at


@pytest.fixture
def slow(slow_memory: tuple[dict[str, Any], float]) -> Fleet:
    memory, at = slow_memory
    capacity = Capacity()
    capacity.restore(memory)
    return Fleet(capacity, at)


def test_slow_card_that_rests_is_handed_out_again_when_it_was_repaired_and_is_judged_anew(slow: Fleet) -> None:
    assert slow.rest(HOUR).excluded
    slow.repaired_at = slow.at + 1
    card = slow.rest()
    assert (card.excluded, card.speed, card.relative_speed, card.confidence) == (False, 1.0, None, 0.0)
    assert card.evidence.endswith("its speed is not known yet (0.0 busy hours since it was repaired)")
    assert card.since == slow.at
    assert slow.rest(20).state is State.HEALTHY
    assert slow.see(work(SLOW), 2 * HOUR).excluded is False, "nothing is known of its speed"
    assert slow.see(work(SLOW), 2 * HOUR).state is State.DEGRADED


def test_card_that_was_repaired_well_is_as_fast_as_its_peers(slow: Fleet) -> None:
    slow.repaired_at = slow.at
    card = slow.see(work(), 4 * HOUR)
    assert card.state is State.HEALTHY
    assert card.relative_speed == pytest.approx(1.0, abs=1e-3)


def test_repair_of_one_card_leaves_the_others_as_they_are(slow: Fleet) -> None:
    slow.rest()
    before = slow.capacity.memory()["cards"]
    slow.repaired_at = slow.at
    slow.rest()
    after = slow.capacity.memory()["cards"]
    for key in CARDS[1:]:
        assert after[key.uuid]["loads"] == before[key.uuid]["loads"]
    assert "loads" not in after[BAD.uuid]


def test_place_of_a_repaired_card_among_those_kept_out_is_free_for_another_slow_one() -> None:
    # At most 20 % of twelve cards, which is two.
    fleet = Fleet()
    fleet.see(work(HW_THERMAL_FRACTION=[0.5] * 3 + [0.0] * 9), 10)
    out = [card.card for card in fleet.capacity.table(fleet.at) if card.excluded]
    assert out == CARDS[:2]
    fleet.repaired_at = fleet.at
    fleet.rest()
    assert [card.card for card in fleet.capacity.table(fleet.at) if card.excluded] == CARDS[1:3]


# -- once -----------------------------------------------------------------------------------------------------------------


def test_repair_that_is_told_again_clears_nothing_and_a_later_one_does() -> None:
    fleet = Fleet()
    fleet.throttle(10)
    fleet.repaired_at = first = fleet.at
    assert fleet.rest().excluded is False
    assert fleet.throttle(10).excluded
    fleet.repaired_at = None
    fleet.rest()
    fleet.repaired_at = first
    assert fleet.rest(5).excluded, "it was told, taken back, and told again"
    fleet.repaired_at = first - STEP
    assert fleet.rest().excluded, "an earlier one says nothing new"
    fleet.repaired_at = fleet.at
    assert fleet.rest().excluded is False


def test_repair_that_is_told_again_after_a_restart_clears_nothing_and_a_later_one_does() -> None:
    fleet = Fleet()
    fleet.throttle(10)
    fleet.repaired_at = fleet.at
    fleet.rest()
    assert fleet.throttle(10).excluded
    again = fleet.restarted()
    assert again.rest(5).excluded
    again.repaired_at = again.at
    assert again.rest().excluded is False


def test_repair_that_was_told_while_nobody_watched_takes_effect_at_the_next_poll() -> None:
    fleet = Fleet()
    assert fleet.throttle(10).excluded
    again = fleet.restarted()
    again.repaired_at = again.at
    again.at += 40 * STEP
    assert again.rest().excluded is False


def test_repair_that_is_still_to_come_waits() -> None:
    fleet = Fleet()
    fleet.throttle(10)
    fleet.repaired_at = fleet.at + 2.5 * STEP
    assert [fleet.rest().excluded for _ in range(4)] == [True, True, False, False]


def test_polls_of_the_past_that_are_made_up_for_after_a_restart_do_not_undo_a_repair() -> None:
    fleet = Fleet()
    fleet.first(XID_FATAL=0, HEALTH=1)
    begun = fleet.at
    fleet.first(3, XID_FATAL=1, HEALTH=0)
    fleet.repaired_at = fleet.at + 1
    fleet.first(3, XID_FATAL=1, HEALTH=1)
    remembered = fleet.capacity.memory()
    assert remembered["cards"][BAD.uuid]["xids"] == 1
    again, forgetful = fleet.restarted(), fleet.restarted(without=["xids"])
    for one in (again, forgetful):
        # A service begins with what is remembered, at the time that it is then.
        one.capacity.observe(Poll(one.at, complete=False, cards=(), samples={}))
        one.at = begun - STEP
        one.first(XID_FATAL=0, HEALTH=1)
        seen = one.first(3, XID_FATAL=1, HEALTH=0)
        assert (seen.excluded, seen.evidence) == (True, "its health check does not pass"), "this is of before the repair"
        assert one.first(3, XID_FATAL=1, HEALTH=1).excluded is False


def test_memory_of_before_there_were_repairs_is_read(slow_memory: tuple[dict[str, Any], float]) -> None:
    memory, at = slow_memory
    old = {
        "version": memory["version"],
        "cards": {
            uuid: {name: value for name, value in entry.items() if name not in ("repaired", "xid")}
            for uuid, entry in memory["cards"].items()
        },
    }
    capacity = Capacity()
    capacity.restore(old)
    fleet = Fleet(capacity, at)
    assert fleet.rest().excluded
    fleet.repaired_at = fleet.at
    assert fleet.rest().excluded is False


def test_repair_follows_a_card_to_another_node() -> None:
    fleet = Fleet()
    fleet.throttle(10)
    fleet.repaired_at = fleet.at
    fleet.rest()
    moved = [BAD._replace(node="other"), *CARDS[1:]]
    fleet.capacity.observe(poll_of(moved, fleet.at + STEP, IDLE))
    assert fleet.capacity.memory()["cards"][BAD.uuid]["repaired"] == fleet.repaired_at


# -- a repair that is older than what is wrong ----------------------------------------------------------------------------


MONTH = 30 * 86400.0


def test_slow_card_stays_out_when_it_comes_to_a_node_whose_cards_were_all_repaired_long_before() -> None:
    fleet = Fleet()
    fleet.throttle(10)
    moved = BAD._replace(node="other")
    for _ in range(3):
        fleet.at += STEP
        fleet.capacity.observe(poll_of([moved, *CARDS[1:]], fleet.at, IDLE), repaired={moved: START - MONTH})
    found = fleet.capacity.table(fleet.at).card(moved)
    assert found is not None
    assert (found.state, found.excluded) == (State.DEGRADED, True)


@pytest.mark.parametrize("restarts", [False, True])
def test_repair_of_before_a_card_became_slow_clears_nothing_and_a_later_one_does(*, restarts: bool) -> None:
    fleet = Fleet()
    fleet.throttle(10)
    began = fleet.card().since
    assert began is not None
    fleet = fleet.restarted() if restarts else fleet
    fleet.repaired_at = began - 1
    card = fleet.rest(3)
    assert (card.state, card.since) == (State.DEGRADED, began)
    fleet.repaired_at = began
    assert fleet.rest().excluded is False


def test_card_whose_check_failed_after_the_repair_is_still_out_after_a_restart_before_it_is_heard_of() -> None:
    fleet = Fleet()
    fleet.first(3, HEALTH=1)
    repaired_at = fleet.at - STEP
    fleet.first(3, HEALTH=0)
    again = fleet.restarted()
    again.repaired_at = repaired_at
    assert again.rest().state is State.FAILED


def test_repair_that_was_taken_by_a_clock_that_was_ahead_hides_no_fault() -> None:
    fleet = Fleet(at=START + 10 * MONTH)
    fleet.first(3, XID_FATAL=0)
    fleet.repaired_at = fleet.at
    fleet.first(XID_FATAL=0)
    again = fleet.restarted()
    for one in (fleet, again):
        one.repaired_at = None
        one.at = START
        one.capacity.go_on_from(START)
        one.first(3, XID_FATAL=0)
        assert one.first(XID_FATAL=1).state is State.FAILED


# -- a clock that is set back ---------------------------------------------------------------------------------------------


def test_polls_go_on_when_the_clock_was_set_back() -> None:
    fleet = Fleet()
    fleet.first(3, XID_FATAL=0)
    assert fleet.throttle(10).excluded
    back = START - 86400.0
    fleet.capacity.go_on_from(back)
    fleet.at = back - STEP
    fleet.rest()
    table = fleet.capacity.table(fleet.at)
    assert all(card.age_s == 0 for card in table)
    assert all(card.since is not None and card.since <= fleet.at for card in table)
    assert fleet.card().excluded, "what was known is still known"
    assert fleet.first(XID_FATAL=1).state is State.FAILED, "new samples count at once"
    for _ in range(10):
        fleet.at += STEP
        fleet.capacity.observe(poll_of(CARDS, fleet.at, {}, complete=True))
    assert {card.age_s for card in fleet.capacity.table(fleet.at)} == {10 * STEP}, "those that are silent grow old"


def test_what_is_free_is_measured_anew_when_the_clock_was_set_back() -> None:
    fleet = Fleet()
    fleet.see({Quantity.SM_ACTIVE: 1.0}, 20)
    fleet.capacity.go_on_from(START - 86400.0)
    fleet.at = START - 86400.0 - STEP
    card = fleet.see({Quantity.SM_ACTIVE: 0.0}, 25)
    assert card.available == pytest.approx(1.0, abs=0.1)


def test_clock_that_goes_back_by_less_than_an_interval_changes_nothing() -> None:
    fleet = Fleet()
    fleet.rest(5)
    before = fleet.capacity.memory()
    fleet.capacity.go_on_from(fleet.at - STEP)
    assert fleet.capacity.memory() == before
    fleet.capacity.go_on_from(fleet.at - STEP - 1)
    assert fleet.capacity.memory() != before

"""Cards are known that nodes have by their documents: with series or without, over restarts, until they have left."""

import json

import pytest

from pyscheduler.core.capacity.capacity import Capacity, Opinion
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.states import State
from tests.polls import IDLE, START, STEP, cards_of, poll_of, work

CARDS = cards_of(16)
FIRST = CARDS[0]
NODES = {node: tuple(key.uuid for key in CARDS if key.node == node) for node in ("n0", "n1")}


class Fleet:
    """Two nodes of eight cards, all of which have series; `see` shows what is left of them."""

    def __init__(self, mode=Mode.LAYERED, nodes=NODES):
        self.config = CapacityConfig(mode=mode)
        self.nodes = nodes
        self.capacity = Capacity(self.config)
        self.capacity.take_inventory(nodes)
        self.at = START - STEP

    def see(self, cards=CARDS, polls=1, opinions=None, repaired=None, values=IDLE, **first):
        """Poll; `first` is what the first of these cards shows beside `values`."""
        for _ in range(polls):
            self.at += STEP
            shown = {Quantity[name]: [value] + [0.0] * (len(cards) - 1) for name, value in first.items()}
            self.capacity.observe(poll_of(cards, self.at, {**values, **shown}), None, opinions, repaired)
        return self.table()

    def hear_nothing(self, polls=1, opinions=None):
        """Prometheus does not answer."""
        for _ in range(polls):
            self.at += STEP
            self.capacity.observe(Poll(self.at, False, (), {}), None, opinions)
        return self.table()

    def restart(self):
        memory = json.loads(json.dumps(self.capacity.memory()))
        self.capacity = Capacity(self.config)
        self.capacity.restore(memory)
        self.capacity.take_inventory(self.nodes)

    def take(self, nodes):
        self.nodes = nodes
        self.capacity.take_inventory(nodes)

    def fail(self):
        self.see(XID_FATAL=0.0)
        assert self.see(XID_FATAL=1.0).card(FIRST).state is State.FAILED

    def throttle(self):
        """Make the first card slow for good, by heat."""
        for poll in range(20):
            self.see(values=work(), HW_THERMAL_S=10.0 * poll)
        assert self.card().state is State.DEGRADED

    def table(self):
        return self.capacity.table(self.at)

    def card(self, key=FIRST):
        return self.table().card(key)


@pytest.mark.parametrize("hurt", [Fleet.fail, Fleet.throttle])
def test_card_that_is_out_stays_out_over_a_restart_while_nothing_is_heard_of_it(hurt):
    fleet = Fleet()
    hurt(fleet)
    before = fleet.card()
    fleet.restart()
    fleet.hear_nothing()
    assert (fleet.card().state, fleet.card().excluded) == (before.state, True)
    fleet.see(CARDS[1:], 30)
    assert (fleet.card().state, fleet.card().excluded) == (before.state, True)
    assert fleet.card().age_s == before.age_s + 31 * STEP


def test_what_is_remembered_of_a_silent_card_outlives_any_number_of_restarts():
    fleet = Fleet()
    fleet.throttle()
    for _ in range(3):
        fleet.restart()
        fleet.hear_nothing(2)
        fleet.see(CARDS[1:], 2)
    assert fleet.card().excluded
    fleet.at += 31 * 86400
    fleet.restart()
    assert not fleet.see(CARDS[1:], 2).card(FIRST).excluded, "after 30 days nothing is known of it"


def test_spared_card_is_not_taken_out_by_a_restart():
    fleet = Fleet()
    for poll in range(20):
        hot = [10.0 * poll] * 8 + [0.0] * 8
        fleet.see(values=work() | {Quantity.HW_THERMAL_S: hot})
    before = {card.card: card.excluded for card in fleet.table()}
    assert sum(before.values()) == 3
    fleet.restart()
    assert {card.card: card.excluded for card in fleet.hear_nothing()} == before


def test_card_that_never_had_a_series_is_neutral_and_says_so():
    fleet = Fleet()
    fleet.see(CARDS[1:], 20, values=work(SM_ACTIVE=0.5))
    card = fleet.card()
    assert (card.state, card.excluded, card.age_s, card.since) == (State.UNKNOWN, False, None, None)
    assert (card.health, card.speed, card.score, card.evidence) == (1, 1, 1, "no series of it yet")
    assert len(fleet.table()) == 16


def test_cards_that_never_had_a_series_freeze_nothing():
    fleet = Fleet()
    assert not fleet.see(CARDS[:8], 20).frozen


@pytest.mark.parametrize("mode", Mode)
def test_opinion_counts_for_a_card_without_series_and_without_prometheus(mode):
    fleet = Fleet(mode)
    fleet.see(CARDS[1:])
    said = {FIRST: Opinion(0.0, "look at it")}
    card = fleet.see(CARDS[1:], opinions=said).card(FIRST)
    assert (card.state, card.excluded, card.evidence) == (State.FAILED, True, "look at it")
    alone = Fleet(mode)
    assert alone.hear_nothing(opinions=said).card(FIRST).excluded
    assert alone.hear_nothing(9, opinions={}).card(FIRST).excluded
    assert not alone.hear_nothing(2).card(FIRST).excluded


def test_doubt_of_others_counts_after_the_window_without_any_sample_and_leaves_without_one():
    fleet = Fleet()
    doubt = {FIRST: Opinion(0.5, "a doubt")}
    fleet.hear_nothing(opinions=doubt)
    assert fleet.card().state is State.SUSPECT
    assert not fleet.hear_nothing(3).card(FIRST).excluded
    assert fleet.hear_nothing().card(FIRST).state is State.DEGRADED
    fleet.restart()
    assert fleet.hear_nothing(opinions=doubt).card(FIRST).excluded
    card = fleet.hear_nothing(5, opinions={}).card(FIRST)
    assert card.excluded
    assert card.evidence == "others no longer report it as bad: it is handed out again in 3 min"
    assert fleet.hear_nothing(5).card(FIRST).state is State.UNKNOWN


def test_word_that_is_taken_back_is_forgotten_though_the_clock_was_set_back():
    fleet = Fleet()
    fleet.hear_nothing(opinions={FIRST: Opinion(0.0, "bad")})
    fleet.at -= 86400
    fleet.capacity.go_on_from(fleet.at + STEP)
    assert not fleet.hear_nothing(12, opinions={}).card(FIRST).excluded


def test_card_of_which_nothing_is_known_is_not_remembered():
    fleet = Fleet()
    fleet.hear_nothing()
    assert fleet.capacity.memory()["cards"] == {}


def test_doubt_that_is_taken_back_in_time_leaves_no_suspect():
    fleet = Fleet()
    fleet.hear_nothing(3, opinions={FIRST: Opinion(0.5, "a doubt")})
    assert fleet.hear_nothing(opinions={}).card(FIRST).state is State.UNKNOWN


def test_what_others_say_goes_on_counting_while_states_are_frozen():
    fleet = Fleet()
    fleet.see(polls=5)
    said = {CARDS[1]: Opinion(0.5, "a doubt"), CARDS[2]: Opinion(0.0, "bad"), CARDS[9]: Opinion(0.5, "a doubt")}
    table = fleet.see(CARDS[:8], 12, opinions=said)
    assert table.frozen
    assert [key for key in CARDS if table.card(key).excluded] == sorted(said)
    table = fleet.see(CARDS[:8], 11, opinions={})
    assert table.frozen
    assert not table.excluded.any()


def test_fault_that_ends_in_silence_is_not_healed_by_the_clock():
    fleet = Fleet()
    fleet.see(REMAP_FAILED=0.0)
    fleet.see(REMAP_FAILED=1.0)
    fleet.see(polls=5, REMAP_FAILED=0.0)
    fleet.see(CARDS[1:], 200, opinions={})
    assert fleet.card().state is State.FAILED
    assert fleet.card().evidence == "it had failed when it was last heard of: it is handed out again after 3 min of good samples"


def test_slow_card_that_others_report_and_clear_is_still_slow():
    fleet = Fleet()
    fleet.throttle()
    fleet.see(polls=2)
    assert fleet.see(opinions={FIRST: Opinion(0.0, "looked at")}).card(FIRST).state is State.FAILED
    card = fleet.see(polls=40, opinions={}).card(FIRST)
    assert (card.state, card.excluded) == (State.DEGRADED, True)
    assert "too hot" in card.evidence
    fleet.restart()
    fleet.see(polls=200)
    assert fleet.card().excluded
    # The usual way out: it works, and is no longer held down.
    states = {fleet.see(values=work(), HW_THERMAL_S=190.0).card(FIRST).state for _ in range(400)}
    assert states == {State.DEGRADED, State.PROBATION, State.HEALTHY}


def test_slow_card_that_fails_and_is_well_again_is_still_slow_over_a_restart():
    fleet = Fleet()
    fleet.throttle()
    fleet.see(REMAP_FAILED=1.0)
    assert fleet.card().state is State.FAILED
    fleet.restart()
    assert fleet.see(polls=30, REMAP_FAILED=0.0).card(FIRST).state is State.DEGRADED


def test_card_that_was_replaced_leaves_and_is_known_again_when_it_comes_back():
    fleet = Fleet()
    fleet.fail()
    new = [CardKey("n0", "GPU-new"), *CARDS[1:]]
    fleet.take({**NODES, "n0": ("GPU-new", *NODES["n0"][1:])})
    table = fleet.see(new, 10)
    assert table.card(FIRST) is None
    assert len(table) == 16
    fleet.restart()
    fleet.see(new)
    fleet.take({**NODES, "n1": ("GPU-0", *NODES["n1"][1:])})
    moved = CardKey("n1", "GPU-0")
    assert fleet.see([*CARDS[1:8], moved, *CARDS[9:]], XID_FATAL=0.0).card(moved).state is State.FAILED


def test_cards_of_a_node_that_is_gone_leave_and_freeze_nothing():
    fleet = Fleet()
    fleet.see(polls=5)
    fleet.take({"n1": NODES["n1"]})
    frozen = {fleet.see(CARDS[8:]).frozen for _ in range(10)}
    assert frozen == {False}
    assert {card.card.node for card in fleet.table()} == {"n1"}


def test_card_that_has_series_stays_though_its_nodes_document_is_old():
    fleet = Fleet(nodes={**NODES, "n0": ("GPU-before", *NODES["n0"][1:])})
    assert fleet.see(polls=100).card(FIRST).state is State.HEALTHY


@pytest.mark.parametrize("uuids", [(), (None, *NODES["n0"][1:])])
def test_cards_of_a_node_whose_document_names_not_all_stay_when_they_are_silent(uuids):
    fleet = Fleet(nodes={**NODES, "n0": uuids})
    fleet.fail()
    assert fleet.see(CARDS[1:], 200).card(FIRST).excluded


def test_card_that_two_documents_name_stays_known_where_it_is():
    fleet = Fleet(nodes={**NODES, "n1": ("GPU-0", *NODES["n1"])})
    fleet.fail()
    for _ in range(100):
        fleet.see()
    assert [card.card.node for card in fleet.table() if card.excluded and card.card.uuid == "GPU-0"] == ["n0"]
    assert len(fleet.table()) == 17


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_uuid_on_two_nodes_the_worse_is_remembered_for_both(order):
    both = [FIRST, CardKey("n9", "GPU-0")]
    fleet = Fleet(nodes={})
    fleet.see(both, XID_FATAL=0.0)
    fleet.see(both[::order], XID_FATAL=1.0)
    fleet.restart()
    table = fleet.see(both[::order], XID_FATAL=1.0)
    assert [table.card(key).state for key in both] == [State.FAILED] * 2


def test_fault_is_out_in_classic_mode_and_slowness_is_not():
    fleet = Fleet(Mode.CLASSIC)
    fleet.throttle()
    fleet.see(polls=30)
    assert not fleet.card().excluded
    fleet.fail()
    card = fleet.card()
    assert card.excluded
    assert "XID" in card.evidence
    assert fleet.table().reasons.word(0) == "faulty"
    assert fleet.table().excluded.sum() == 1


def test_words_tell_why_a_card_is_out():
    fleet = Fleet()
    fleet.throttle()
    said = {CARDS[1]: Opinion(0.5, "a doubt"), CARDS[2]: Opinion(0.0, "bad")}
    for _ in range(6):
        bad = [190.0] + [0.0] * 15
        fleet.see(opinions=said, values=IDLE | {Quantity.HW_THERMAL_S: bad, Quantity.XID_FATAL: [0.0] * 15 + [0.0]})
    table = fleet.see(values=IDLE | {Quantity.XID_FATAL: [0.0] * 15 + [1.0]})
    words = {card.card: table.reasons.word(row) for row, card in enumerate(table) if card.excluded}
    assert words == {
        FIRST: "slow",
        CARDS[1]: "reported by others",
        CARDS[2]: "reported by others",
        CARDS[15]: "faulty",
    }


def test_card_that_waits_says_for_what_and_how_long():
    fleet = Fleet()
    fleet.see(REMAP_FAILED=0.0)
    fleet.see(REMAP_FAILED=1.0)
    card = fleet.see(polls=9, REMAP_FAILED=0.0).card(FIRST)
    assert card.evidence == "it no longer shows a fault: it is handed out again after 30 s more without one"
    assert (card.timer_s, card.timer_end_s) == (270, 300)
    slow = Fleet()
    slow.throttle()
    for _ in range(400):
        card = slow.see(values=work(), HW_THERMAL_S=190.0).card(FIRST)
        if card.timer_s == 60:
            break
    assert card.evidence == "it was too slow, and now nothing shows it any more: it is tried again after 4 min more of such work"

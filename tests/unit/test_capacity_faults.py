import pytest

from pyscheduler.core.capacity.capacity import Capacity, Opinion
from pyscheduler.core.capacity.config import CapacityConfig, FaultConfig
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.states import State
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.cards.polls import polls_of_text
from tests.polls import IDLE, START, STEP, Values, cards_of, poll_of

CARDS = cards_of(4)
BAD, GOOD = CARDS[0], CARDS[1]


class Fleet:
    """Four cards; the first may be bad."""

    def __init__(self, config=None):
        self.capacity = Capacity(config)
        self.at = START - STEP

    def see(self, polls=1, complete=True, opinions=None, **first):
        for _ in range(polls):
            self.at += STEP
            values: dict[Quantity, Values] = {Quantity[name]: [value, None, None, None] for name, value in first.items()}
            self.capacity.observe(poll_of(CARDS, self.at, {**IDLE, **values}, complete=complete), opinions=opinions)
        return self.card(BAD)

    def lose(self, polls):
        """See the others alone."""
        for _ in range(polls):
            self.at += STEP
            self.capacity.observe(poll_of(CARDS[1:], self.at, IDLE))

    def card(self, key):
        return self.capacity.table(self.at).card(key)


@pytest.mark.parametrize("name", ["XID_FATAL", "ECC_DBE"])
def test_event_takes_the_card_out_at_the_next_poll(name):
    fleet = Fleet()
    assert not fleet.see(3, **{name: 2}).excluded  # of before our time
    bad = fleet.see(**{name: 3})
    assert (bad.excluded, bad.state, bad.health) == (True, State.FAILED, 0)
    assert not fleet.card(GOOD).excluded


def exported(fleet, lines):
    """Let the fleet see what an exporter serves: the clock of a card, and these lines."""
    fleet.at += STEP
    labels = 'UUID="GPU-0",Hostname="n0"'
    text = f"DCGM_FI_DEV_SM_CLOCK{{{labels}}} 345\n" + "".join(f"{line.replace('{', f'{{{labels},')}\n" for line in lines)
    for poll in polls_of_text(text, catalogue(), fleet.at).polls:
        fleet.capacity.observe(poll)
    return fleet.card(BAD)


@pytest.mark.parametrize("line", ['DCGM_EXP_XID_ERRORS_TOTAL{xid="79"} 1', "DCGM_FI_DEV_XID_ERRORS{} 79"])
def test_series_that_appears_with_its_first_event_counts_from_zero(line):
    fleet = Fleet()
    assert exported(fleet, []).health == 1
    assert exported(fleet, [line]).state is State.FAILED


def test_counter_that_is_exported_from_now_on_may_be_old():
    fleet = Fleet()
    exported(fleet, [])
    assert exported(fleet, ["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{} 3"]).health == 1
    assert exported(fleet, ["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{} 4"]).state is State.FAILED


def test_counter_that_appears_after_incomplete_polls_may_be_old():
    fleet = Fleet()
    fleet.see(3, complete=False)
    assert fleet.see(XID_FATAL=1).state is State.HEALTHY


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_code_that_an_application_causes_is_no_fault(code):
    fleet = Fleet()
    fleet.see(LAST_XID=0)
    assert fleet.see(LAST_XID=code).state is State.HEALTHY


def test_last_code_counts_when_it_changes():
    fleet = Fleet()
    fleet.see(LAST_XID=31)
    assert fleet.see(LAST_XID=79).state is State.FAILED
    assert "XID" in fleet.card(BAD).evidence


def test_fatal_code_of_unknown_age_is_a_warning_until_it_is_gone():
    fleet = Fleet()
    first = fleet.see(2, LAST_XID=79)
    assert (first.state, first.health, first.excluded) == (State.HEALTHY, 0.8, False)
    assert "not known" in first.evidence
    assert fleet.see(LAST_XID=0).health == 1


@pytest.mark.parametrize(("name", "bad", "good"), [("HEALTH", 0, 1), ("REMAP_FAILED", 1, 0), ("EVIDENCE", 0, 1)])
def test_state_that_is_bad_lasts_as_long_as_it_is_reported(name, bad, good):
    fleet = Fleet()
    fleet.see(**{name: good})
    assert fleet.see(20, **{name: bad}).state is State.FAILED
    assert fleet.see(5, **{name: good}).excluded
    assert fleet.see(10, **{name: good}).state is State.HEALTHY


@pytest.mark.parametrize(("name", "bad"), [("HEALTH", 0), ("REMAP_FAILED", 1)])
def test_state_that_is_bad_ends_when_the_card_is_reported_without_it(name, bad):
    fleet = Fleet()
    fleet.see(3, **{name: bad})
    assert fleet.see(5).health == 0, "one scrape may have missed it"
    assert fleet.see(20, complete=False).health == 0, "of what is absent there nothing follows"
    assert fleet.see(20).state is State.HEALTHY


def test_known_bad_stays_bad_while_nothing_is_heard_of_the_card():
    fleet = Fleet()
    fleet.see(3, HEALTH=0)
    fleet.lose(400)
    assert fleet.card(BAD).state is State.FAILED


def test_health_of_an_hour_ago_says_nothing_of_a_card_that_is_silent():
    fleet = Fleet()
    for count in (0, 1, 0):
        fleet.see(HEALTH=1, XID_FATAL=count)
    fleet.lose(200)
    assert fleet.card(BAD).health == 0


def test_warning_is_worth_what_the_configuration_says():
    fleet = Fleet(CapacityConfig(faults=FaultConfig(warning=0.7)))
    fleet.see(HEALTH=0.5)
    assert fleet.card(BAD).health == 0.7


def test_warning_is_no_reason_to_keep_a_card_out():
    assert Fleet().see(20, HEALTH=0.8).health == 0.8
    fleet = Fleet()
    assert not fleet.see(20, HEALTH=0.8).excluded


def test_event_lasts_until_the_driver_was_loaded_anew():
    fleet = Fleet()
    fleet.see(XID_FATAL=0, ENERGY_J=5e6)
    fleet.see(XID_FATAL=1, ENERGY_J=6e6)
    assert fleet.see(400, XID_FATAL=1, ENERGY_J=7e6).state is State.FAILED
    fleet.see(XID_FATAL=0, ENERGY_J=10)
    assert fleet.card(BAD).excluded
    assert fleet.see(12, XID_FATAL=0, ENERGY_J=20).state is State.HEALTHY


def test_counter_of_energy_that_falls_a_little_is_no_driver_that_was_loaded_anew():
    fleet = Fleet()
    fleet.see(XID_FATAL=0, ENERGY_J=5e6)
    fleet.see(XID_FATAL=1, ENERGY_J=5e6 + 1)
    fleet.see(20, XID_FATAL=1, ENERGY_J=5e6)
    assert fleet.see(20, XID_FATAL=1, ENERGY_J=6e6).state is State.FAILED


def test_exporter_that_was_started_anew_says_nothing_of_the_card_unless_its_health_passes_for_an_hour():
    silent, healthy = Fleet(), Fleet()
    for fleet, more in ((silent, {}), (healthy, {"HEALTH": 1})):
        fleet.see(XID_FATAL=0, **more)
        fleet.see(XID_FATAL=1, **more)
        fleet.see(100, XID_FATAL=0, **more)
        assert fleet.card(BAD).state is State.FAILED
        fleet.see(40, XID_FATAL=0, **more)
    assert silent.card(BAD).state is State.FAILED
    assert healthy.card(BAD).state is State.HEALTHY


def test_opinion_of_others_counts_until_the_next():
    fleet = Fleet()
    bad = fleet.see(opinions={BAD: Opinion(0.0, "Autopilot says EVICT")})
    assert (bad.state, bad.evidence) == (State.FAILED, "Autopilot says EVICT")
    assert fleet.see(5).excluded
    assert not fleet.see(20, opinions={}).excluded


def test_half_bad_opinion_keeps_the_card_out_after_the_window():
    fleet = Fleet()
    fleet.see(opinions={BAD: Opinion(0.5, "Autopilot says WARN")})
    assert not fleet.see(2).excluded
    assert fleet.see(3).state is State.DEGRADED


def test_health_check_that_flaps_does_not_make_the_card_come_and_go():
    fleet = Fleet()
    fleet.see(HEALTH=1)
    for _ in range(100):
        fleet.see(HEALTH=0)
        assert fleet.see(HEALTH=1).excluded


def test_series_of_evidence_that_ends_says_nothing_any_more():
    fleet = Fleet()
    assert fleet.see(EVIDENCE=0).excluded
    assert not fleet.see(20).excluded

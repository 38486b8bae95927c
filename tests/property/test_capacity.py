"""Capacity under any polls: what must hold whatever is measured."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.capacity.capacity import Capacity, Opinion
from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.poll import Column, Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.states import State
from tests.polls import START, STEP, cards_of

CARDS = cards_of(14, per_node=4)
ODD = np.array([np.nan, np.inf, -1.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.9, 79.0, 600.0, 1.4e9, 1.7e9, 9.2e18, 1e300])
GAPS = np.array([0.0, 5.0, STEP, STEP, STEP, STEP, 90.0, 400.0, 4000.0, 4e6, -STEP])


def odd_polls(seed):
    """Return polls of any cards with any values at any times."""
    draw = np.random.default_rng(seed)
    at, listed = START, []
    for _ in range(draw.integers(1, 40)):
        at += float(draw.choice(GAPS))
        cards = [CARDS[index] for index in draw.integers(0, len(CARDS), draw.integers(0, 2 * len(CARDS)))]
        samples = {}
        for quantity in draw.permutation(np.array(list(Quantity)))[: draw.integers(0, len(Quantity))] if cards else ():
            rows = draw.permutation(len(cards))[: draw.integers(0, len(cards) + 1)]
            ages = draw.choice([0.0, 0.0, 15.0, 100.0, -1000.0], len(rows))
            samples[quantity] = Column(rows, draw.choice(ODD, len(rows)), at - ages)
        facts = [CardFacts(str(draw.choice(["", "A", "B"])), (None, 500.0, 700.0)[draw.integers(3)]) for _ in cards]
        listed.append(Poll(at, bool(draw.random() < 0.7), cards, samples, facts))
    return listed


SEEDS = st.integers(0, 2**32 - 1)


def seen(listed, capacity):
    opinions = {CARDS[0]: Opinion(0.5, "somebody says so")}
    for number, poll in enumerate(listed):
        capacity.observe(poll, busy_pods={CARDS[1]: "a"} if number % 2 else None, opinions=opinions if number % 3 else {})
    return capacity.table(listed[-1].at)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_every_table_is_sound(seed):
    listed = odd_polls(seed)
    table = seen(listed, Capacity())
    for values in (table.health, table.speed, table.score, table.confidence):
        assert np.all((values >= 0) & (values <= 1))
    assert np.all((table.available >= 0) & (table.available <= 1) | np.isnan(table.available))
    for card in table:
        assert card.evidence
        assert card.excluded <= (card.state in {State.DEGRADED, State.FAILED})
        assert (card.state is State.FAILED) >= (card.health == 0)


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_same_polls_give_the_same_table_and_memory(seed):
    listed = odd_polls(seed)
    one, other = Capacity(), Capacity()
    assert list(seen(listed, one)) == list(seen(listed, other))
    assert one.memory() == other.memory()


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_memory_is_json_and_keeps_who_is_out(seed):
    listed = odd_polls(seed)
    capacity = Capacity()
    table = seen(listed, capacity)
    again = Capacity()
    again.restore(json.loads(json.dumps(capacity.memory(), allow_nan=False)))
    newest = {key.identity: key for key in table.rows}
    again.observe(Poll(listed[-1].at, False, list(newest.values()), {}))
    after = again.table(listed[-1].at)
    for key in newest.values():
        before = table.state[table.rows[key]]
        if before in {State.DEGRADED, State.FAILED}:
            assert after.state[after.rows[key]] == before


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_table_does_not_change_with_later_polls(seed):
    listed = odd_polls(seed)
    capacity = Capacity()
    table = seen(listed, capacity)
    before = list(table)
    seen([Poll(poll.at + 1e7, poll.complete, poll.cards, poll.samples, poll.facts) for poll in listed], capacity)
    assert list(table) == before


def odd_inventory(draw):
    """Return nodes that there may be, with some of their cards, of which one may have no UUID."""
    nodes = {}
    for node in draw.permutation(sorted({key.node for key in CARDS}))[: draw.integers(0, 5)].tolist():
        uuids = [key.uuid for key in CARDS if key.node == node]
        nodes[node] = [uuid if draw.random() < 0.9 else None for uuid in uuids if draw.random() < 0.8]
    return nodes


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_listed_cards_are_always_there_and_who_is_out_stays_out_over_a_restart_without_series(seed):
    draw = np.random.default_rng(seed)
    listed, capacity, inventory = odd_polls(seed), Capacity(), odd_inventory(draw)
    capacity.take_inventory(inventory)
    opinions = {CARDS[0]: Opinion(0.5, "somebody says so"), CARDS[9]: Opinion(0.0, "somebody says so")}
    for poll in listed:
        if draw.random() < 0.2:
            inventory = odd_inventory(draw)
            capacity.take_inventory(inventory)
        capacity.observe(poll, opinions=opinions if draw.random() < 0.7 else {})
    # Once more, with what is known of the last inventory.
    at = max(poll.at for poll in listed)
    capacity.observe(Poll(at, False, (), {}), opinions={})
    here = [CardKey(node, uuid) for node, uuids in inventory.items() for uuid in uuids if uuid is not None]
    before = capacity.table(at)
    assert set(here) <= before.rows.keys()
    again = Capacity()
    again.restore(json.loads(json.dumps(capacity.memory(), allow_nan=False)))
    again.take_inventory(inventory)
    again.observe(Poll(at, False, (), {}))
    after = again.table(at)
    assert after.rows.keys() == set(here)
    for key in here:
        one, other = before.rows[key], after.rows[key]
        if before.state[one] in {State.DEGRADED, State.FAILED}:
            assert (after.state[other], after.excluded[other]) == (before.state[one], before.excluded[one])

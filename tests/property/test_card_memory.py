"""Whatever cards are remembered, they come back; whatever stands in a shard, it is read or told."""

from __future__ import annotations

import gzip
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.capacity import memory as of_cards
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.readers.cards.memory_shards import pack, unpack
from tests.polls import IDLE, START, cards_of, poll_of

WHOLE = st.integers(0, 2**53 - 1)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "seen": WHOLE,
        "busy": st.integers(1, 10**9),
        "state": st.sampled_from([1, 3, 4, 5]),
        "found": st.integers(0, 63),
        "loads": st.lists(st.tuples(st.integers(0, 7), *[st.integers(0, 10**6)] * 6).map(list), max_size=8),
        "burdens": st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 10**6)).map(list), max_size=10),
    },
)
MEMORY = st.builds(lambda cards: {"version": 1, "cards": cards}, st.dictionaries(st.text(min_size=1), ENTRY, max_size=30))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["GPU-0", 1, 2**60])
KEYS = st.sampled_from(["card", "version", "busy", "seen", "state", "found", "loads", "burdens", "since", "hold", "slow"])
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=8) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=30)
# A card of which one thing is as it may be.
LINES = st.builds(lambda name, entry, key, value: {"card": name, **entry, key: value}, st.text(), ENTRY, KEYS, JSON) | JSON


@given(MEMORY)
def test_what_is_packed_comes_back(memory: dict[str, Any]):
    assert unpack(pack(memory)) == (memory, [])


@given(ENTRY, ENTRY)
def test_two_entries_of_a_card_are_one_that_can_be_recalled_and_is_no_better_than_either(
    before: dict[str, Any], since: dict[str, Any]
):
    both = of_cards.joined(before, since)
    assert of_cards.check("GPU-1", both) == both
    worst_first = [5, 3, 4, 1, 0]
    states = {before.get("state", 0), since.get("state", 0)}
    assert both.get("state", 0) == next(state for state in worst_first if state in states)
    assert both.get("found", 0) == before.get("found", 0) | since.get("found", 0)
    assert both.get("busy", 0) == max(before.get("busy", 0), since.get("busy", 0))


@given(MEMORY, st.data())
def test_shard_that_was_damaged_is_told(memory: dict[str, Any], data: st.DataObject):
    (name, packed), *_ = pack(memory).items()
    at = data.draw(st.integers(0, len(packed) - 1))
    damaged = packed[:at] + data.draw(st.binary(max_size=4)) + packed[at + data.draw(st.integers(0, 4)) :]
    found, problems = unpack({name: damaged})
    assert problems or found == memory or damaged == packed


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_told(packed: bytes):
    found, problems = unpack({"some shard": packed})
    assert problems or found["cards"] == {}


@given(st.lists(LINES, max_size=6))
def test_lines_that_pass_can_be_used(lines: list[Any]):
    packed = gzip.compress("".join(f"{json.dumps(line)}\n" for line in [{"version": 1}, *lines]).encode())
    memory, _ = unpack({"some shard": packed})
    capacity = Capacity()
    capacity.restore(memory)
    cards = [key._replace(uuid=uuid) for key, uuid in zip(cards_of(8), [*memory["cards"], *"abcdefgh"], strict=False)]
    for step in range(3):
        capacity.observe(poll_of(cards, START + 30 * step, IDLE))
    assert len(list(capacity.table(START + 60))) == len(set(cards))
    capacity.memory()

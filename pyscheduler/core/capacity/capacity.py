"""The capacity of all cards: takes polls, gives tables.

Each layer looks at the same rows, one per card: of those that have series, and of those that nodes are known to have. The order
of one poll is: repairs, samples, load, faults (H), what is free (A), speed (I), states, breakers.

Concurrency contract: one caller at a time. A table is a copy and may be read by anybody.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity import memory
from pyscheduler.core.capacity.availability import Availability, LastHeld
from pyscheduler.core.capacity.breakers import SlowBreaker, are_silent
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.classic import ClassicNodes
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.evidence import Evidence
from pyscheduler.core.capacity.faults import Faults
from pyscheduler.core.capacity.inventory import Inventory
from pyscheduler.core.capacity.load import Load
from pyscheduler.core.capacity.opinions import Opinion
from pyscheduler.core.capacity.peers import groups_of
from pyscheduler.core.capacity.poll import Floats, Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Bools, Readings
from pyscheduler.core.capacity.repairs import Repairs
from pyscheduler.core.capacity.roster import Roster
from pyscheduler.core.capacity.rows import append, keep, put
from pyscheduler.core.capacity.speed import Speed
from pyscheduler.core.capacity.states import BADNESS, State, States
from pyscheduler.core.capacity.table import CapacityTable

__all__ = ["Capacity", "Opinion"]


class Capacity:
    """All cards.

    Parameters
    ----------
    config
        Every threshold.
    """

    def __init__(self, config: CapacityConfig | None = None) -> None:
        self._config = config or CapacityConfig()
        self._inventory = Inventory()
        self._roster = Roster()
        self._readings = Readings(0)
        self._load = Load(0)
        self._faults = Faults(0)
        self._availability = Availability(self._config.availability, self._config.interval_s)
        self._held = LastHeld(0)
        self._speed = Speed(self._config.speed, self._config.threshold)
        self._states = States(0)
        self._breaker = SlowBreaker(0)
        self._repairs = Repairs(0)
        self._nodes = ClassicNodes(0)
        self._opinions: Mapping[CardKey, Opinion] = {}
        self._stored: dict[str, dict[str, Any]] = {}
        self._groups: list[NDArray[np.int64]] = []
        self._frozen = False
        # The time of the last samples, and of the last poll, though it may have brought nothing.
        self._at = -np.inf
        self._polled_at = -np.inf

    def take_inventory(self, nodes: Mapping[str, Sequence[str | None]]) -> None:
        """Take which nodes there are, and the UUIDs of their cards: None for one that is not known, empty if none is.

        It counts from the next poll on. A card that has left is no longer listed; what is known of it is kept.
        """
        self._inventory = Inventory(nodes)

    def observe(
        self,
        poll: Poll,
        busy_pods: Mapping[CardKey, str] | None = None,
        opinions: Mapping[CardKey, Opinion] | None = None,
        repaired: Mapping[CardKey, float] | None = None,
    ) -> None:
        """Take one poll.

        Parameters
        ----------
        poll
            Polls come in the order of their times; one that is older than the last that brought anything is not looked at.
            One that brought nothing leaves open what will be known of its time: polls of the past may follow.
        busy_pods
            Which pod has which card. A sample that spans two pods tells of neither's load. None if it is not known: any may
            be a pod's.
        opinions
            What others say of cards: labels, taints. They count until the next ones; None if they are as before.
        repaired
            When cards were repaired, as far as somebody says so, in Unix seconds: what was seen before counts no more.

        """
        if poll.at < self._at:
            return
        before, seconds, longest = poll.at, 0.0, 2 * self._config.interval_s
        if poll.samples:
            before, self._at = self._at, poll.at
            seconds = min(poll.at - before, longest)
        passed, self._polled_at = poll.at - self._polled_at, max(poll.at, self._polled_at)
        self._opinions = self._opinions if opinions is None else opinions
        rows = self._rows_of(poll)
        self._begin_anew(repaired or {}, before, poll.at)
        moved = self._roster.pods_moved(busy_pods)
        self._held.observe(self._roster.held() if busy_pods is not None else np.ones(len(moved), dtype=np.bool_), poll.at)
        self._readings.begin()
        for quantity, column in poll.samples.items():
            self._readings.take(quantity, column, rows, poll.at, self._config.interval_s)
        self._take_layers(rows, moved, poll)
        self._decide(poll, (seconds, min(max(passed, 0.0), longest)))

    def go_on_from(self, now: float) -> None:
        """Take polls of an earlier time from now on, if the clock was set back by more than an interval.

        Polls do not tell it themselves: one of the past may be made up for.
        """
        if max(self._at, self._polled_at) <= now + self._config.interval_s:
            return
        before = now - self._config.interval_s
        self._at, self._polled_at = min(self._at, before), min(self._polled_at, before)
        series = (self._availability.sm, self._availability.memory)
        sampled = (self._readings.time, self._load.used_at, *(times for each in series for times in (each.times, each.held_at)))
        seen = (self._readings.heard, self._held.at)
        # What has a time that is still to come would never be replaced by anything newer.
        for times in (*sampled, *seen, self._faults.event_at, self._states.since, self._states.released_at):
            np.minimum(times, now, out=times)
        self._repairs.cap(now)
        # The peers' medians are of a time to come as well: compared anew they are of now.
        self._groups = []

    def _rows_of(self, poll: Poll) -> NDArray[np.int64]:
        """Return the row of each card of the poll; cards that are new get one, and so do those that nodes are known to have."""
        self._forget(poll.at)
        before = self._present()
        new = self._roster.add([*poll.cards, *self._inventory.missing(self._roster.rows)])
        if new:
            seen = self._readings.newest()
            for part, more in zip(self._all_rows(), self._empty_rows(len(new)), strict=True):
                append(part, more)
            for row, key in new:
                self._recall(row, key, before, seen)
            self._repairs.cap(self._polled_at)
            for _, key in new:
                self._stored.pop(key.identity, None)
        return self._roster.update(poll.cards, poll.facts)

    def _recall(self, row: int, key: CardKey, before: Mapping[str, int], seen: Floats) -> None:
        """Give a card that was known elsewhere, or before a restart, what is known of it."""
        entry = self._stored.get(key.identity)
        if (elsewhere := before.get(key.identity)) is not None:
            entry = self._remember(elsewhere, seen[elsewhere])
        if entry is not None:
            memory.recall(entry, row, *self._remembered_rows(), self._polled_at)

    def _present(self) -> dict[str, int]:
        """Return the row of each UUID: where it was polled last. Of one that two nodes show at once, the row that is worse."""
        rows = self._roster.identities()
        if len(rows) < len(self._roster.rows):
            seen, state = self._readings.newest(), self._states.state
            for key, row in self._roster.rows.items():
                last = rows[key.identity]
                at_once = seen[row] >= seen[last] - self._config.breakers.late_s
                if at_once and BADNESS[state[row]] > BADNESS[state[last]]:
                    rows[key.identity] = row
        return rows

    def _begin_anew(self, repaired: Mapping[CardKey, float], before: float, at: float) -> None:
        """Forget what was seen of cards whose repair takes effect now. `before` is the time of the last poll, `at` of this."""
        rows = self._roster.rows
        told = {rows[key]: time for key, time in repaired.items() if key in rows}
        due = self._repairs.due(told, before, at)
        if not len(due):
            return
        over = due[self._repairs.over(self._states, self._faults)[due]]
        self._clear(over)
        self._faults.forget(due, self._readings, self._repairs.at[due])
        self._states.since[over] = at

    def _clear(self, rows: NDArray[np.int64]) -> None:
        for part, empty in zip(self._judgements(), self._empty_judgements(len(rows)), strict=True):
            put(part, rows, empty)

    def _judgements(self) -> tuple[object, ...]:
        """Return the rows that are of no use when a card is another one than before: it was repaired."""
        return self._load, *self._speed.all_rows(), self._states, self._breaker

    def _empty_judgements(self, count: int) -> tuple[object, ...]:
        return Load(count), *self._speed.empty_rows(count), States(count), SlowBreaker(count)

    def _all_rows(self) -> tuple[object, ...]:
        series = (self._availability.sm, self._availability.memory)
        return self._readings, self._faults, self._repairs, self._held, *series, *self._judgements()

    def _empty_rows(self, count: int) -> tuple[object, ...]:
        series = self._availability.rows(count)
        return Readings(count), Faults(count), Repairs(count), LastHeld(count), *series, *self._empty_judgements(count)

    def _forget(self, at: float) -> None:
        """Drop cards that were not heard of for very long, and those that have left their place: of these all is remembered."""
        age, breakers, keys = self._ages(at), self._config.breakers, self._roster.rows
        moved = ~self._roster.is_newest() & (age > breakers.gone_s) & ~self._inventory.listed(keys)
        absent = self._inventory.absent(keys) & (age > breakers.unknown_s)
        # One that was never heard of has no age; it is dropped when its card is elsewhere, or gone.
        kept = np.flatnonzero(~moved & ~absent & ~(np.isfinite(age) & (age > breakers.forget_s)))
        if len(kept) == len(age):
            return
        left, seen = absent & (age <= breakers.forget_s), self._readings.newest()
        self._stored |= {key: self._remember(row, seen[row]) for key, row in self._present().items() if left[row]}
        keep(self._nodes, self._roster.keep(kept))
        for part in self._all_rows():
            keep(part, kept)

    def _take_layers(self, rows: NDArray[np.int64], moved: Bools, poll: Poll) -> None:
        config, at, readings = self._config, poll.at, self._readings
        known_for = config.breakers.unknown_s
        stated = self._roster.limits
        limits = np.where(np.isnan(stated), readings.last(Quantity.POWER_LIMIT_W), stated)
        self._load.observe(readings, limits, moved, config.busy, at, known_for)
        shown = np.zeros(len(limits), dtype=np.bool_)
        shown[rows] = poll.complete
        outside = readings.current(Quantity.EVIDENCE, at, known_for)
        self._faults.observe(readings, outside, self._said(), shown, self._repairs.at, config.faults, at, known_for)
        used = (self._load.used, readings.current(Quantity.FB_USED, at, known_for))
        times = (self._load.used_at, readings.time[:, Quantity.FB_USED.value])
        self._availability.observe(used, times, (self._load.used_new, readings.is_new(Quantity.FB_USED)), at)
        self._speed.observe(readings, self._load, moved, 2 * config.interval_s)
        groups = groups_of(self._roster.models, limits)
        same = len(groups) == len(self._groups) and all(map(np.array_equal, groups, self._groups))
        self._groups = groups
        self._speed.judge(groups, self._roster.nodes, at, changed=not same)

    def _said(self) -> Floats:
        """Return the worst that is said of each card, 1 where nothing is."""
        said = np.ones(len(self._roster.rows))
        for key, opinion in self._opinions.items():
            if (row := self._roster.rows.get(key)) is not None:
                said[row] = opinion.value
        return said

    def _decide(self, poll: Poll, seconds: tuple[float, float]) -> None:
        """Judge anew; `seconds` since the last samples, and since the poll before."""
        config, at, complete = self._config, poll.at, poll.complete
        age = self._ages(at)
        if complete:
            self._frozen = are_silent(age[~self._inventory.absent(self._roster.rows)], config.breakers)
        silence_counts = complete and not self._frozen
        fresh = self._readings.new.any(axis=1) & (age <= config.breakers.late_s) & (not self._frozen)
        unknown = (age > config.breakers.unknown_s) & silence_counts
        worked = self._load.busy & self._readings.is_new(Quantity.SM_CLOCK_HZ)
        gate = self._speed.gate()
        self._states.step(self._faults.measured, gate, self._said(), fresh, worked, unknown, seconds, config, at)
        slow = (self._states.state == State.DEGRADED) & self._states.slow
        here = (age <= config.breakers.gone_s) | slow
        roster, score = self._roster, self._faults.value * gate
        self._breaker.choose(slow, score, roster.models, here, roster.polled, config.breakers)
        nodes, free = roster.nodes, self._free(age)
        self._nodes.observe(nodes, free, seconds[0], config.threshold, silence_counts=silence_counts)

    def _ages(self, at: float) -> Floats:
        return np.maximum(0.0, at - self._readings.newest())

    def table(self, now: float, mode: Mode | None = None) -> CapacityTable:
        """Return what is known at a time, as the configured mode decides or another one."""
        states, nodes, classic = self._states, self._roster.nodes, (mode or self._config.mode) is Mode.CLASSIC
        age = self._ages(now)
        free = self._free(age)
        failed, degraded = states.state == State.FAILED, states.state == State.DEGRADED
        kept_out = np.where(states.slow, self._breaker.kept_out, True)
        # What is faulty, or said to be bad, is out in every mode.
        excluded = failed | (degraded & np.where(classic, states.by_word, kept_out))
        left = self._availability.for_ranking(free, self._held, now)
        score = self._faults.value * self._speed.ranking() * left
        spared = degraded & ~kept_out
        timers, crowded = states.timers(self._config), np.zeros(len(nodes), dtype=np.bool_)
        if classic:
            score = _neutral(self._nodes.score)[nodes]
            crowded = self._nodes.excluded(self._config.window_s)[nodes]
            of_nodes = self._nodes.timers(self._config.window_s)
            timers = np.where(excluded, timers[0], of_nodes[0][nodes]), np.where(excluded, timers[1], of_nodes[1][nodes])
        gate = self._speed.gate()
        waits = excluded & states.waits(self._faults.value, gate, self._config)
        reasons = Evidence(
            found=self._faults.found.copy(),
            outside=[self._said_of(key) for key in self._roster.rows],
            rows=copy.deepcopy(self._speed.rows),
            burdens=self._speed.burdens.mean.copy(),
            spared=spared & ~classic,
            repaired=np.isfinite(self._repairs.at),
            crowded=crowded,
            node_free=self._nodes.score[nodes],
            threshold=self._config.threshold,
            silent=age > self._config.breakers.unknown_s,
            never_seen=~np.isfinite(age),
            out=excluded,
            by_word=states.by_word.copy(),
            failed=failed,
            slow=states.slow.copy(),
            waits_s=np.where(waits, np.maximum(states.hold_s - states.high_s, 0.0), np.nan),
        )
        return CapacityTable(
            rows=dict(self._roster.rows),
            models=self._roster.model_names(),
            health=self._faults.value.copy(),
            speed=gate,
            available=free,
            score=score,
            excluded=excluded | crowded,
            state=states.state.copy(),
            since=states.since.copy(),
            age_s=age,
            confidence=self._speed.confidence(),
            timer_s=timers[0],
            timer_end_s=timers[1],
            reasons=reasons,
            frozen=self._frozen,
            spared=int(np.count_nonzero(spared)),
        )

    def _free(self, age: Floats) -> Floats:
        """Return A of the cards that are not silent for too long."""
        return np.where(age > self._config.breakers.unknown_s, np.nan, self._availability.values())

    def _said_of(self, key: CardKey) -> str:
        opinion = self._opinions.get(key)
        return opinion.reason if opinion else ""

    def memory(self) -> dict[str, Any]:
        """Return what survives a restart: a value of JSON that `restore` takes, with an entry for each UUID."""
        seen = self._readings.newest()
        entries = ((identity, self._remember(row, seen[row])) for identity, row in self._present().items())
        cards = {identity: entry for identity, entry in entries if entry}
        oldest = self._at - self._config.breakers.forget_s
        stored = {name: entry for name, entry in self._stored.items() if entry.get("seen", 0) >= oldest}
        return {"version": memory.VERSION, "cards": stored | cards}

    def _remember(self, row: int, seen_at: float) -> dict[str, Any]:
        return memory.remember(row, *self._remembered_rows(), seen_at)

    def _remembered_rows(self) -> tuple[Readings, States, Faults, Speed, Repairs, SlowBreaker]:
        return self._readings, self._states, self._faults, self._speed, self._repairs, self._breaker

    def restore(self, remembered: Mapping[str, Any]) -> None:
        """Take what `memory` gave before a restart. It may come late: of cards that were seen since, both are joined.

        Raises
        ------
        ValueError
            If it is of another form.

        """
        if remembered.get("version") != memory.VERSION:
            raise ValueError(
                f"the memory has version {remembered.get('version')!r}, this program reads {memory.VERSION}: remove it"
            )
        entries = {identity: memory.check(identity, entry) for identity, entry in remembered.get("cards", {}).items()}
        seen, rows = self._readings.newest(), self._present()
        since = self._stored | {key: self._remember(row, seen[row]) for key, row in rows.items() if key in entries}
        entries = {key: memory.joined(entry, since[key]) if key in since else entry for key, entry in entries.items()}
        self._stored |= {key: entry for key, entry in entries.items() if key not in rows}
        late = [(row, entries[key]) for key, row in rows.items() if key in entries]
        self._clear(np.array([row for row, _ in late], dtype=np.int64))
        for row, entry in late:
            memory.recall(entry, row, *self._remembered_rows(), self._polled_at)
        self._repairs.cap(self._polled_at)
        # The peers' medians are compared anew.
        self._groups = []


def _neutral(values: Floats) -> Floats:
    """Return the values with the median for those that are not known."""
    known = values[~np.isnan(values)]
    return np.where(np.isnan(values), float(np.median(known)) if len(known) else 1.0, values)

"""The capacity of all cards: takes polls, gives tables.

Each layer looks at the same rows, one per card. The order of one poll is: repairs, samples, load, faults (H), what is free (A),
speed (I), states, breakers.

Concurrency contract: one caller at a time. A table is a copy and may be read by anybody.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity import memory
from pyscheduler.core.capacity.availability import Availability
from pyscheduler.core.capacity.breakers import SlowBreaker, are_silent
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.classic import ClassicNodes
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.evidence import Evidence
from pyscheduler.core.capacity.faults import Faults
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
from pyscheduler.core.capacity.states import State, States
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
        self._roster = Roster()
        self._readings = Readings(0)
        self._load = Load(0)
        self._faults = Faults(0)
        self._availability = Availability(self._config.availability, self._config.interval_s)
        self._speed = Speed(self._config.speed, self._config.threshold)
        self._states = States(0)
        self._breaker = SlowBreaker(0)
        self._repairs = Repairs(0)
        self._nodes = ClassicNodes(0)
        self._opinions: Mapping[CardKey, Opinion] = {}
        self._stored: dict[str, dict[str, Any]] = {}
        self._groups: list[NDArray[np.int64]] = []
        self._frozen = False
        self._at = -np.inf

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
            Polls come in the order of their times; one that is older than the last is not looked at.
        busy_pods
            Which pod has which card. A sample that spans two pods tells of neither's load. None if it is not known.
        opinions
            What others say of cards: labels, taints. They count until the next ones; None if they are as before.
        repaired
            When cards were repaired, as far as somebody says so, in Unix seconds: what was seen before counts no more.

        """
        if poll.at < self._at:
            return
        before, self._at = self._at, poll.at
        seconds = min(poll.at - before, 2 * self._config.interval_s)
        self._opinions = self._opinions if opinions is None else opinions
        rows = self._rows_of(poll)
        self._begin_anew(repaired or {}, before)
        moved = self._roster.pods_moved(busy_pods)
        self._readings.begin()
        for quantity, column in poll.samples.items():
            self._readings.take(quantity, column, rows, poll.at, self._config.interval_s)
        self._take_layers(rows, moved, poll)
        self._decide(poll.complete, seconds)

    def go_on_from(self, now: float) -> None:
        """Take polls of an earlier time from now on, if the clock was set back by more than an interval.

        Polls do not tell it themselves: one of the past may be made up for.
        """
        if now >= self._at - self._config.interval_s:
            return
        self._at = now - self._config.interval_s
        series = (self._availability.sm, self._availability.memory)
        sampled = (self._readings.time, self._load.used_at, *(times for each in series for times in (each.times, each.held_at)))
        # What has a time that is still to come would never be replaced by anything newer.
        for times in (*sampled, self._faults.event_at, self._states.since, self._states.released_at):
            np.minimum(times, now, out=times)
        # The peers' medians are of a time to come as well: compared anew they are of now.
        self._groups = []

    def _rows_of(self, poll: Poll) -> NDArray[np.int64]:
        """Return the row of each card of the poll; cards that are new get one."""
        self._forget(poll.at)
        before = self._roster.identities()
        new = self._roster.add(poll.cards)
        if new:
            for part, more in zip(self._all_rows(), self._empty_rows(len(new)), strict=True):
                append(part, more)
        for row, key in new:
            self._recall(row, key, before)
        return self._roster.update(poll.cards, poll.facts)

    def _recall(self, row: int, key: CardKey, before: Mapping[str, int]) -> None:
        """Give a card that was known elsewhere, or before a restart, what is known of it."""
        entry = self._stored.pop(key.identity, None)
        if (elsewhere := before.get(key.identity)) is not None:
            entry = self._remember(elsewhere, self._at)
        if entry is not None:
            memory.recall(entry, row, self._states, self._faults, self._speed, self._repairs)

    def _begin_anew(self, repaired: Mapping[CardKey, float], before: float) -> None:
        """Forget what was seen of cards whose repair takes effect now. `before` is the time of the last poll."""
        rows = self._roster.rows
        told = {rows[key]: time for key, time in repaired.items() if key in rows}
        due = self._repairs.due(told, before, self._at)
        if not len(due):
            return
        for part, empty in zip(self._judgements(), self._empty_judgements(len(due)), strict=True):
            put(part, due, empty)
        self._faults.forget(due, self._readings, self._repairs.at[due])
        self._states.since[due] = self._at

    def _judgements(self) -> tuple[object, ...]:
        """Return the rows that are of no use when a card is another one than before: it was repaired."""
        return self._load, *self._speed.all_rows(), self._states, self._breaker

    def _empty_judgements(self, count: int) -> tuple[object, ...]:
        return Load(count), *self._speed.empty_rows(count), States(count), SlowBreaker(count)

    def _all_rows(self) -> tuple[object, ...]:
        series = (self._availability.sm, self._availability.memory)
        return self._readings, self._faults, self._repairs, *series, *self._judgements()

    def _empty_rows(self, count: int) -> tuple[object, ...]:
        series = self._availability.rows(count)
        return Readings(count), Faults(count), Repairs(count), *series, *self._empty_judgements(count)

    def _forget(self, at: float) -> None:
        """Drop cards that were not heard of for very long, and the places that cards have left."""
        age = self._ages(at)
        breakers = self._config.breakers
        left = ~self._roster.is_newest() & (age > breakers.gone_s)
        # One that was never heard of has no age; it is dropped when its card is elsewhere.
        kept = np.flatnonzero(~left & ~(np.isfinite(age) & (age > breakers.forget_s)))
        if len(kept) < len(age):
            self._roster.keep(kept)
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
        self._faults.observe(readings, self._outside(at), shown, config.faults, at)
        used = (self._load.used, readings.current(Quantity.FB_USED, at, known_for))
        times = (self._load.used_at, readings.time[:, Quantity.FB_USED.value])
        self._availability.observe(used, times, (self._load.used_new, readings.is_new(Quantity.FB_USED)), at)
        self._speed.observe(readings, self._load, moved, 2 * config.interval_s)
        groups = groups_of(self._roster.models, limits)
        same = len(groups) == len(self._groups) and all(map(np.array_equal, groups, self._groups))
        self._groups = groups
        self._speed.judge(groups, self._roster.nodes, at, changed=not same)

    def _outside(self, at: float) -> Floats:
        """Return the worst that others say of each card."""
        said = self._readings.current(Quantity.EVIDENCE, at, self._config.breakers.unknown_s)
        for key, opinion in self._opinions.items():
            if (row := self._roster.rows.get(key)) is not None:
                said[row] = np.fmin(said[row], opinion.value)
        return said

    def _decide(self, complete: bool, seconds: float) -> None:  # noqa: FBT001 (a field of the poll)
        config, at = self._config, self._at
        age = self._ages(at)
        if complete:
            self._frozen = are_silent(age, config.breakers)
        fresh = self._readings.new.any(axis=1) & (age <= config.breakers.late_s) & (not self._frozen)
        unknown = (age > config.breakers.unknown_s) & complete & (not self._frozen)
        worked = self._load.busy & self._readings.is_new(Quantity.SM_CLOCK_HZ)
        gate = self._speed.gate()
        self._states.step(self._faults.value, gate, fresh, worked, unknown, seconds, config, at)
        slow = (self._states.state == State.DEGRADED) & self._states.slow
        here = age <= config.breakers.gone_s
        self._breaker.choose(slow, self._faults.value * gate, self._roster.models, here | slow, config.breakers)
        self._nodes.observe(self._roster.nodes, self._free(age), seconds, config.threshold)

    def _ages(self, at: float) -> Floats:
        return np.maximum(0.0, at - self._readings.newest())

    def table(self, now: float, mode: Mode | None = None) -> CapacityTable:
        """Return what is known at a time, as the configured mode decides or another one."""
        states, nodes, classic = self._states, self._roster.nodes, (mode or self._config.mode) is Mode.CLASSIC
        free = self._free(self._ages(now))
        degraded = states.state == State.DEGRADED
        kept_out = np.where(states.slow, self._breaker.kept_out, True)
        excluded = (states.state == State.FAILED) | (degraded & kept_out)
        score = self._faults.value * self._speed.ranking() * self._free_for_ranking(free) ** self._config.availability.exponent
        spared = degraded & ~kept_out
        if classic:
            score = _neutral(self._nodes.score)[nodes]
            excluded = self._nodes.excluded(self._config.window_s)[nodes]
        reasons = Evidence(
            found=self._faults.found.copy(),
            outside=[self._said_of(key) for key in self._roster.rows],
            rows=copy.deepcopy(self._speed.rows),
            burdens=self._speed.burdens.mean.copy(),
            spared=spared,
            repaired=np.isfinite(self._repairs.at),
        )
        return CapacityTable(
            rows=dict(self._roster.rows),
            models=self._roster.model_names(),
            health=self._faults.value.copy(),
            speed=self._speed.gate(),
            available=free,
            score=score,
            excluded=excluded,
            state=states.state.copy(),
            since=states.since.copy(),
            age_s=self._ages(now),
            confidence=self._speed.confidence(),
            reasons=reasons,
            frozen=self._frozen,
            spared=int(np.count_nonzero(spared)),
        )

    def _free(self, age: Floats) -> Floats:
        """Return A of the cards that are not silent for too long."""
        return np.where(age > self._config.breakers.unknown_s, np.nan, self._availability.values())

    def _free_for_ranking(self, free: Floats) -> Floats:
        """Return A with what is not known put at the median of the fleet: what few samples say counts less."""
        confidence = self._availability.confidence()
        neutral = _neutral(free)
        middle = float(np.median(neutral)) if len(neutral) else 1.0
        return confidence * neutral + (1.0 - confidence) * middle

    def _said_of(self, key: CardKey) -> str:
        opinion = self._opinions.get(key)
        return opinion.reason if opinion else ""

    def memory(self) -> dict[str, Any]:
        """Return what survives a restart: a value of JSON that `restore` takes, with an entry for each UUID."""
        seen = self._readings.newest()
        cards = {identity: self._remember(row, seen[row]) for identity, row in self._roster.identities().items()}
        oldest = self._at - self._config.breakers.forget_s
        stored = {name: entry for name, entry in self._stored.items() if entry.get("seen", 0) >= oldest}
        return {"version": memory.VERSION, "cards": stored | cards}

    def _remember(self, row: int, seen_at: float) -> dict[str, Any]:
        return memory.remember(row, self._states, self._faults, self._speed, self._repairs, seen_at)

    def restore(self, remembered: Mapping[str, Any]) -> None:
        """Take what `memory` gave before a restart. Cards that were polled since are not touched.

        Raises
        ------
        ValueError
            If it is of another form.

        """
        if remembered.get("version") != memory.VERSION:
            raise ValueError(
                f"the memory has version {remembered.get('version')!r}, this program reads {memory.VERSION}: remove it"
            )
        self._stored |= {identity: memory.check(identity, entry) for identity, entry in remembered.get("cards", {}).items()}


def _neutral(values: Floats) -> Floats:
    """Return the values with the median for those that are not known."""
    known = values[~np.isnan(values)]
    return np.where(np.isnan(values), float(np.median(known)) if len(known) else 1.0, values)

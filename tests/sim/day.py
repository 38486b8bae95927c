"""A simulated day: the jobs of a fleet, the true speeds, and what the cards' sensors showed in every interval of 30 s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from tests.sim import loads
from tests.sim.faults import Effects, FaultKind, effects
from tests.sim.fleet import Fleet
from tests.sim.loads import STEP_S, Job
from tests.sim.physics import WARMING_S, Conditions, Hardware, readings
from tests.sim.signals import FATAL_XID, constants, counted, gauges

__all__ = ["INLET_C", "Day", "Event", "put_on", "simulate"]

Columns = TypeVar("Columns", Hardware, Conditions, Effects)
# Cards that are worked out at a time: bounds the memory.
_CHUNK = 64
# Errors that applications cause, per card and day; the card is well.
_APPLICATION_XIDS = (13, 31, 43, 45)
_XIDS_PER_CARD_DAY = 0.06
INLET_C, DAY_SWING_C = 24.0, 3.0
# A hall that is 3 degrees warmer costs every card this share of its speed.
WARM_HALL_LOSS = 0.01


@dataclass(frozen=True)
class Event:
    """An XID of a card."""

    card: int
    step: int
    code: int


@dataclass(frozen=True)
class Day:
    """What happened.

    Attributes
    ----------
    speed
        The true speed, by card and step; 1 is an average card without fault in a cool hall.
    busy
        Whether the card worked for more than half of the step.
    signals
        By name (see `signals`): by card and step, or one column where it never changes. Counters begin at 0 and are not
        reset; that is the exporter's doing.
    """

    fleet: Fleet
    jobs: Sequence[Job]
    effects: Effects
    speed: NDArray[np.float32]
    busy: NDArray[np.bool_]
    signals: dict[str, NDArray[Any]]
    events: Sequence[Event]

    @property
    def steps(self) -> int:
        return self.speed.shape[1]

    def jobs_at(self, step: int) -> dict[int, str]:
        """Return the name of the job on each card that has one."""
        return {int(card): job.name for job in self.jobs if job.start <= step < job.end for card in job.cards}


def simulate(fleet: Fleet, jobs: Sequence[Job] | None = None) -> Day:
    """Let the fleet work for a day. `jobs` None: they are drawn."""
    rng = np.random.default_rng([fleet.plan.seed, 2])
    steps = round(fleet.plan.hours * 3600 / STEP_S)
    hours = np.arange(steps) * STEP_S / 3600
    faulty = effects(fleet.faults, len(fleet.cards), hours)
    wave = np.sin(2 * np.pi * (hours - 9) / 24)
    if jobs is None:
        jobs = loads.drawn(_units(fleet, rng), steps, rng)
    now = Conditions.idle(len(fleet.cards), steps)
    now.speed[:] = fleet.speeds[:, None] * (1 - WARM_HALL_LOSS * np.maximum(wave, 0))
    speed = (now.speed * faulty.speed).astype(np.float32)
    for job in jobs:
        put_on(now, job, speed, loads.busy_share(job, rng))
    signals = _signals(fleet, now, faulty, INLET_C + DAY_SWING_C * wave, rng)
    busy = (now.busy > 0.5) & ~faulty.failed
    return Day(fleet, jobs, faulty, speed, busy, signals, _events(fleet, steps, rng))


def _units(fleet: Fleet, rng: np.random.Generator) -> list[list[list[int]]]:
    """Return what jobs are placed on: mostly whole nodes, of some nodes parts."""
    pools: dict[str, list[list[int]]] = {}
    for node in range(len(fleet.nodes)):
        cards = np.flatnonzero(fleet.node_of == node)
        sizes = ((8,), (8,), (8,), (4, 4), (4, 2, 1, 1), (2, 2, 2, 2))[int(rng.integers(6))]
        units = np.split(cards, np.cumsum(sizes)[:-1])
        pools.setdefault(fleet.cards[cards[0]].model.name, []).extend(unit.tolist() for unit in units)
    return list(pools.values())


def put_on(now: Conditions, job: Job, speed: NDArray[Any], busy: NDArray[Any]) -> None:
    """Put a job on its cards. All its cards finish a step of work together, so the faster ones wait for the slowest."""
    place = np.ix_(job.cards, np.arange(job.start, job.end))
    own = speed[place]
    load, slowest = job.load, own.min(axis=0)
    now.held[place] = 1
    now.busy[place] = busy
    now.sensitivity[place] = load.sensitivity
    now.clock[place] = min(load.clock * job.clock_factor, 1)
    now.power[place] = load.power
    now.capped[place] = load.capped
    now.memory[place] = load.memory
    now.sm[place] = load.sm * job.activity_factor
    # The same work in the same time: a card with a lower clock has its pipes full for more of its cycles.
    now.tensor[place] = load.tensor * job.activity_factor * slowest / own
    now.dram[place] = load.dram * job.activity_factor * slowest
    now.waiting[place] = 1 - slowest / own


def _signals(
    fleet: Fleet, now: Conditions, faults: Effects, inlet_c: NDArray[Any], rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    parts: list[dict[str, NDArray[Any]]] = []
    for first in range(0, len(fleet.cards), _CHUNK):
        rows = slice(first, first + _CHUNK)
        hardware = _rows(fleet.hardware, rows)
        of_rows = _rows(faults, rows)
        seen = readings(hardware, _rows(now, rows), of_rows, inlet_c, rng)
        sums = {name: np.cumsum(gain, axis=1) for name, gain in counted(seen, STEP_S).items()}
        changing = gauges(seen, of_rows, hardware, _temperatures(seen.settled_c))
        parts.append({name: values.astype(np.float32) for name, values in changing.items()} | sums)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} | constants(fleet.hardware)


def _rows(of: Columns, rows: slice) -> Columns:
    return type(of)(*(getattr(of, column.name)[rows] for column in fields(of)))


def _temperatures(settled_c: NDArray[Any]) -> NDArray[Any]:
    """Follow the settled temperatures as a heat sink does, from the first one on."""
    kept = np.exp(-STEP_S / WARMING_S)
    followed, _ = lfilter([1 - kept], [1, -kept], settled_c, zi=settled_c[:, :1] * kept)
    return followed


def _events(fleet: Fleet, steps: int, rng: np.random.Generator) -> list[Event]:
    share = _XIDS_PER_CARD_DAY * steps * STEP_S / 86400
    found = [
        Event(card, int(rng.integers(steps)), int(rng.choice(_APPLICATION_XIDS)))
        for card in range(len(fleet.cards))
        if rng.random() < share
    ]
    fatal = [fault for fault in fleet.faults if fault.kind is FaultKind.FATAL]
    return found + [Event(fault.card, int(np.ceil(fault.begins_h * 3600 / STEP_S)), FATAL_XID) for fault in fatal]

"""The jobs of a simulated fleet: which cards work when, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

__all__ = ["LOADS", "Job", "Load", "busy_share", "drawn"]

# The exporter's interval: one step of the simulation.
STEP_S = 30


@dataclass(frozen=True)
class Load:
    """A kind of work.

    Attributes
    ----------
    clock
        Core clock as a share of the highest that an average card of the model reaches with it.
    sensitivity
        How far a card's own speed shows in that clock: exponent, 1 where the power limit governs.
    power
        Share of the power limit.
    capped
        Share of the time in which the power limit holds the clock down.
    pauses
        The job stops every now and then: data, checkpoints.
    """

    name: str
    clock: float
    sensitivity: float
    power: float
    capped: float
    sm: float
    tensor: float
    dram: float
    memory: float
    pauses: bool = False


LOADS = {
    "compute": Load("compute", 0.82, 1.0, 0.97, 0.80, 0.90, 0.52, 0.40, 0.88),
    "paused": Load("paused", 0.84, 1.0, 0.93, 0.65, 0.84, 0.44, 0.42, 0.80, pauses=True),
    "memory": Load("memory", 0.93, 0.7, 0.70, 0.05, 0.72, 0.08, 0.86, 0.90),
    "light": Load("light", 0.97, 0.3, 0.38, 0.0, 0.25, 0.05, 0.15, 0.35),
}
_SHARES = {"compute": 0.45, "paused": 0.27, "memory": 0.18, "light": 0.10}
# Engines of a light job (inference, a notebook) work this share of the time.
LIGHT_BUSY = 0.3


@dataclass(frozen=True)
class Job:
    """Some cards that work together from one step to another (exclusive). Its factors make jobs of one load differ."""

    name: str
    load: Load
    cards: NDArray[np.intp]
    start: int
    end: int
    clock_factor: float
    activity_factor: float


def drawn(pools: Sequence[Sequence[Sequence[int]]], steps: int, rng: np.random.Generator) -> list[Job]:
    """Return the jobs of a day.

    Parameters
    ----------
    pools
        By pool its units: cards that are always used together. A unit of 8 is a whole node, and jobs take several of them.
    steps
        Length.
    rng
        Draws them.

    """
    jobs: list[Job] = []
    for pool in pools:
        whole = [unit for unit in pool if len(unit) == 8]
        parts = [unit for unit in pool if len(unit) != 8]
        _fill(whole, steps, rng, jobs, most=8)
        _fill(parts, steps, rng, jobs, most=1)
    return jobs


def _fill(units: Sequence[Sequence[int]], steps: int, rng: np.random.Generator, jobs: list[Job], *, most: int) -> None:
    """Give the units work until the end: the one that is free first gets the next job."""
    free = [(int(rng.integers(0, 90)), number) for number in range(len(units))]
    heapify(free)
    while free and free[0][0] < steps:
        begin, number = heappop(free)
        taken = [number]
        for _ in range(min(most, int(rng.choice((1, 1, 2, 4, 8)))) - 1):
            if free and free[0][0] < begin + 40:
                begin, number = heappop(free)
                taken.append(number)
        start = begin + _gap(rng)
        end = start + int(np.clip(rng.lognormal(np.log(180), 0.9), 10, 960))
        cards = np.array([card for number in taken for card in units[number]], np.intp)
        if start < steps:
            jobs.append(_job(f"job-{len(jobs)}", cards, start, min(end, steps), rng))
        for number in taken:
            heappush(free, (end, number))


def _gap(rng: np.random.Generator) -> int:
    """Steps between two jobs: minutes, now and then hours."""
    return 1 + int(rng.exponential(120 if rng.random() < 0.12 else 12))


def _job(name: str, cards: NDArray[np.intp], start: int, end: int, rng: np.random.Generator) -> Job:
    kind = str(rng.choice(list(_SHARES), p=list(_SHARES.values())))
    return Job(name, LOADS[kind], cards, start, end, float(rng.normal(1, 0.02)), float(rng.normal(1, 0.06)))


def busy_share(job: Job, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return by step of the job the share of the interval in which its cards work."""
    length = job.end - job.start
    if job.load.name == "light":
        return np.clip(rng.normal(LIGHT_BUSY, 0.08, length), 0.02, 0.48)
    share = np.ones(length)
    if job.load.pauses:
        period, pause = int(rng.integers(10, 30)), float(rng.uniform(1, 4))
        place = (np.arange(length) + rng.integers(period)) % period
        share = np.clip(1 - (pause - place), 0, 1)
    # The model is loaded first, and the last interval ends somewhere within the job's.
    share[: int(rng.integers(2, 7))] = 0.08
    share[-1] *= rng.random()
    return share

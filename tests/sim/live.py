"""A small fleet that runs in real time: its loads and faults can be changed while Prometheus scrapes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.sim.day import INLET_C, put_on
from tests.sim.faults import Effects, Fault, FaultKind
from tests.sim.fleet import Fleet
from tests.sim.loads import LIGHT_BUSY, LOADS, Job
from tests.sim.names import BLANK, XIDS, Absence, Export, exports, labels, series
from tests.sim.physics import Conditions, readings, warmed
from tests.sim.signals import FATAL_XID, constants, counted, gauges

__all__ = ["LiveFleet", "Pod"]


@dataclass(frozen=True)
class Pod:
    """Who uses a card: AMD's and DCGM's exporter label its series so."""

    namespace: str
    name: str
    container: str = "main"

    @property
    def labels(self) -> dict[str, str]:
        return {"pod": self.name, "namespace": self.namespace, "container": self.container}


class LiveFleet:
    """Cards by their number in the fleet.

    Parameters
    ----------
    fleet
        Its faults, restarts and profilers' deaths are left out: what happens is what the methods say.
    interval_s
        How often the exporters sample; in between they serve the same values.
    now
        The clock.

    """

    def __init__(self, fleet: Fleet, *, interval_s: float = 30.0, now: Callable[[], float] = time.time) -> None:
        self.fleet = fleet
        self._interval_s = interval_s
        self._now = now
        self._lock = Lock()
        self._rng = np.random.default_rng([fleet.plan.seed, 4])
        self._speeds = fleet.speeds.copy()
        self._faults: dict[int, Fault] = {}
        self._jobs: list[Job] = []
        self._pods: dict[int, Pod] = {}
        self._xids: dict[int, list[int]] = {}
        self._signals: dict[str, NDArray[Any]] = dict(constants(fleet.hardware))
        self._sums: dict[str, NDArray[Any]] = {}
        self._sampled: float | None = None

    def work(self, cards: Iterable[int], load: str = "compute", pod: Pod | None = None) -> None:
        """Let the cards work together on a load; what they did before ends."""
        members = np.array(sorted(cards), np.intp)
        with self._lock:
            self._leave(members)
            self._jobs.append(Job(f"job-{len(self._jobs)}", LOADS[load], members, 0, 1, 1.0, 1.0))
            self._pods |= {int(card): pod for card in members if pod is not None}

    def rest(self, cards: Iterable[int]) -> None:
        """Let the cards be idle."""
        with self._lock:
            self._leave(np.array(list(cards), np.intp))

    def set_speed(self, card: int, speed: float) -> None:
        """Set a card's own speed, 1 for an average one."""
        with self._lock:
            self._speeds[card] = speed

    def break_card(self, card: int, kind: FaultKind, size: float) -> None:
        """Put a fault on a card, in place of the one it has. A fatal one brings its XID."""
        with self._lock:
            if kind is FaultKind.FATAL:
                self._xids.setdefault(card, []).append(FATAL_XID)
            self._faults[card] = Fault(card, kind, kind.value, size)

    def repair(self, card: int) -> None:
        """Take a card's fault away. Its XIDs are forgotten, as at a restart of its exporter."""
        with self._lock:
            self._faults.pop(card, None)
            self._xids.pop(card, None)

    def raise_xid(self, card: int, code: int) -> None:
        """Let the driver report an XID of a card, one of `names.XIDS`."""
        if code not in XIDS:
            raise ValueError(f"XID {code} has no series here: take one of {', '.join(map(str, XIDS))}")
        with self._lock:
            self._xids.setdefault(card, []).append(code)

    def restart_driver(self, node: str) -> None:
        """Let all counters of a node's cards begin at 0 again."""
        with self._lock:
            for number in self._cards_of(node):
                self._xids.pop(number, None)
                for sums in self._sums.values():
                    sums[number] = 0

    def text(self, node: str) -> str:
        """Return what the exporter of a node serves now.

        Raises
        ------
        KeyError
            If no node has this name.

        """
        numbers = self._cards_of(node)
        with self._lock:
            self._sample()
            generation = self.fleet.nodes[self.fleet.cards[numbers[0]].node].exporter
            families = (self._family(name, rows, numbers) for name, rows in exports(generation).items())
            return "".join(line for family in families for line in family)

    def _cards_of(self, node: str) -> list[int]:
        numbers = [number for number, card in enumerate(self.fleet.cards) if self.fleet.nodes[card.node].name == node]
        if not numbers:
            raise KeyError(f"no node {node}: there are {', '.join(n.name for n in self.fleet.nodes)}")
        return numbers

    def _leave(self, members: NDArray[np.intp]) -> None:
        jobs = [(job, np.setdiff1d(job.cards, members)) for job in self._jobs]
        self._jobs = [
            Job(job.name, job.load, left, 0, 1, job.clock_factor, job.activity_factor) for job, left in jobs if len(left)
        ]
        for card in members:
            self._pods.pop(int(card), None)

    def _sample(self) -> None:
        """Read the sensors, if the interval since the last time is over."""
        at = self._now()
        if self._sampled is not None and at - self._sampled < self._interval_s:
            return
        seconds = self._interval_s if self._sampled is None else at - self._sampled
        conditions, faults = self._conditions()
        seen = readings(self.fleet.hardware, conditions, faults, np.array([INLET_C]), self._rng)
        before = self._signals.get("temperature_c", seen.settled_c)
        self._signals |= gauges(seen, faults, self.fleet.hardware, warmed(before, seen.settled_c, seconds))
        for name, gain in counted(seen, seconds).items():
            self._sums[name] = self._sums.get(name, 0) + gain
        self._sampled = at

    def _conditions(self) -> tuple[Conditions, Effects]:
        cards = len(self.fleet.cards)
        faults = Effects.none(cards, 1)
        for fault in self._faults.values():
            faults.add(fault, np.array([True]))
        now = Conditions.idle(cards, 1)
        now.speed[:, 0] = self._speeds
        speed = now.speed * faults.speed
        for job in self._jobs:
            put_on(now, job, speed, np.array([LIGHT_BUSY if job.load.name == "light" else 1.0]))
        return now, faults

    def _family(self, name: str, rows: Sequence[Export], numbers: Sequence[int]) -> Iterable[str]:
        samples = [sample for export in rows for card in numbers for sample in self._samples(export, card)]
        if samples:
            kind = rows[0].kind
            yield f"# HELP {name} A reading of the card.\n# TYPE {name} {kind}\n"
        yield from samples

    def _samples(self, export: Export, number: int) -> Iterable[str]:
        card = self.fleet.cards[number]
        value = self._value(export, number)
        if value is None:
            return
        pod = self._pods.get(number)
        for instance, domain in series(export, card):
            tags = labels(self.fleet, card, export, instance, domain) | (pod.labels if pod else {})
            yield f"{export.name}{{{_written(tags)}}} {value:.{export.digits}f}\n"

    def _value(self, export: Export, number: int) -> float | None:
        """Return what is served, None where the series is not there."""
        if export.absence == Absence.BLANK and not self.fleet.cards[number].model.has_memory_temperature:
            return BLANK
        value = self._read(export.reading, number) * export.factor
        return None if export.absence == Absence.UNTIL_EVENT and value == 0 else value

    def _read(self, reading: str, number: int) -> float:
        codes = self._xids.get(number, [])
        if reading == "last_xid":
            return float(codes[-1]) if codes else 0.0
        if reading.startswith("xid_"):
            return float(codes.count(int(reading.removeprefix("xid_"))))
        return float((self._sums if reading in self._sums else self._signals)[reading][number, 0])


def _written(tags: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{text}"' for name, text in tags.items())

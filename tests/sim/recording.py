"""A simulated day as Prometheus has it: raw series of exporters that sample every 30 s and are scraped every 15 s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.sim.day import Day
from tests.sim.fleet import Generation, Profiler
from tests.sim.loads import STEP_S
from tests.sim.names import BLANK, Absence, Export, exports, labels, series

__all__ = ["BEGIN", "SCRAPE_S", "Latest", "RawMetric", "Recording"]

# When the day begins, in Unix seconds.
BEGIN = 1_800_000_000.0
SCRAPE_S = 15
LOST_SCRAPES = 0.003


@dataclass(frozen=True)
class RawMetric:
    """All series of a metric.

    Attributes
    ----------
    labels
        Of each series, as the exporter writes them.
    cards, instances
        Whose it is: number of the card, and its MIG instance ("" for a whole card).
    values
        By series and step; NaN where the exporter does not serve it.
    """

    name: str
    kind: str
    labels: Sequence[dict[str, str]]
    cards: NDArray[np.intp]
    instances: Sequence[str]
    values: NDArray[np.floating]


@dataclass(frozen=True)
class Latest:
    """What Prometheus has of a metric at a moment: by series the value (NaN: none) and the time of its scrape."""

    metric: RawMetric
    values: NDArray[np.float64]
    times: NDArray[np.float64]


class Recording:
    """The series of a day. Times are Unix seconds."""

    def __init__(self, day: Day) -> None:
        self.day = day
        self._metrics: dict[str, RawMetric] = {}
        # The series that are served at any time.
        self._ever: dict[str, NDArray[Any]] = {}
        nodes = day.fleet.nodes
        rng = np.random.default_rng([day.fleet.plan.seed, 3])
        self._phase = np.array([node.phase_s for node in nodes])
        self._first_scrape = BEGIN + rng.uniform(0, SCRAPE_S, len(nodes))
        scrapes = day.steps * STEP_S // SCRAPE_S
        self._lost = rng.random((len(nodes), scrapes)) < LOST_SCRAPES
        for number, node in enumerate(nodes):
            times = self._first_scrape[number] + np.arange(scrapes) * SCRAPE_S - BEGIN
            for restart in node.restarts:
                self._lost[number] |= (times >= restart.at_s) & (times < restart.at_s + restart.away_s)

    @property
    def end(self) -> float:
        """The end of the day."""
        return BEGIN + self.day.steps * STEP_S

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all metrics that some exporter of the fleet serves."""
        generations = dict.fromkeys(node.exporter for node in self.day.fleet.nodes)
        return tuple(dict.fromkeys(name for generation in generations for name in exports(generation)))

    def metric(self, name: str) -> RawMetric:
        """Return the series of a metric. They are kept: the 500 cards of the default plan take 0.3 GB for all names."""
        if name not in self._metrics:
            self._metrics[name] = made = self._made(name)
            self._ever[name] = np.flatnonzero(~np.isnan(made.values).all(axis=1))
        return self._metrics[name]

    def latest(self, name: str, at: float, lookback_s: float = 60.0) -> Latest:
        """Return the newest scraped sample of each series, as a range selector of `lookback_s` has it at the time `at`."""
        metric = self.metric(name)
        values = np.full(len(metric.cards), np.nan)
        times = np.full(len(metric.cards), np.nan)
        missing = self._ever[name]
        for back in range(int(lookback_s // SCRAPE_S)):
            if not len(missing):
                break
            values[missing], times[missing] = self._scraped(metric, missing, at, back)
            missing = missing[np.isnan(values[missing])]
        times[np.isnan(values)] = np.nan
        return Latest(metric, values, times)

    def history(self, name: str, start: float, end: float) -> tuple[RawMetric, NDArray[np.float64], NDArray[np.float64]]:
        """Return the metric, and by series and scrape (oldest first) its values and times after `start` up to `end`."""
        metric = self.metric(name)
        rows = np.arange(len(metric.cards))
        found = [self._scraped(metric, rows, end, back) for back in reversed(range(int((end - start) // SCRAPE_S)))]
        return metric, np.stack([values for values, _ in found], axis=1), np.stack([times for _, times in found], axis=1)

    def _scraped(self, metric: RawMetric, rows: NDArray[Any], at: float, back: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return values and times of the scrape that was `back` scrapes before the newest at the time `at`."""
        times, steps, is_there = self._scrapes(at, back)
        nodes = self.day.fleet.node_of[metric.cards[rows]]
        return np.where(is_there[nodes], metric.values[rows, steps[nodes]], np.nan), times[nodes]

    def _scrapes(self, at: float, back: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return by node the time of that scrape, the step that it saw, and whether it succeeded."""
        scrapes = np.floor((at - self._first_scrape) / SCRAPE_S).astype(int) - back
        times = self._first_scrape + scrapes * SCRAPE_S
        steps = np.floor((times - BEGIN - self._phase) / STEP_S).astype(int)
        is_there = (scrapes >= 0) & (scrapes < self._lost.shape[1]) & (steps >= 0)
        nodes = np.arange(len(scrapes))
        return times, np.where(is_there, steps, 0), is_there & ~self._lost[nodes, np.where(is_there, scrapes, 0)]

    def _made(self, name: str) -> RawMetric:
        fleet = self.day.fleet
        tags: list[dict[str, str]] = []
        cards: list[int] = []
        instances: list[str] = []
        blocks: list[NDArray[Any]] = []
        kind = "gauge"
        for generation in Generation:
            members = np.array(
                [n for n, card in enumerate(fleet.cards) if fleet.nodes[card.node].exporter is generation], np.intp
            )
            for export in exports(generation).get(name, ()) if len(members) else ():
                kind = export.kind
                rows: list[int] = []
                for row, number in enumerate(members):
                    for instance, domain in series(export, fleet.cards[number]):
                        tags.append(labels(fleet, fleet.cards[number], export, instance, domain))
                        instances.append(instance)
                        rows.append(row)
                cards += members[rows].tolist()
                blocks.append(self._values(export, members)[rows])
        if not blocks:
            raise KeyError(f"no exporter of the fleet serves {name}: names lists those that are served")
        return RawMetric(name, kind, tags, np.array(cards, np.intp), instances, np.concatenate(blocks))

    def _values(self, export: Export, cards: NDArray[Any]) -> NDArray[Any]:
        """Return what the exporters of the cards serve for it, by card and step."""
        values = self._signal(export, cards) * export.factor
        values = np.round(values, export.digits)
        if export.kind == "gauge":
            values = values.astype(np.float32)
        if export.absence == Absence.UNTIL_EVENT:
            values[values == 0] = np.nan
        if export.absence == Absence.BLANK:
            blind = [not self.day.fleet.cards[card].model.has_memory_temperature for card in cards]
            values[blind] = BLANK
        if export.profiling:
            self._without_profiler(values, cards)
        return values

    def _signal(self, export: Export, cards: NDArray[Any]) -> NDArray[Any]:
        if export.reading == "last_xid" or export.reading.startswith("xid_"):
            return self._xids(export.reading, cards)
        values = self.day.signals[export.reading][cards]
        values = np.repeat(values, self.day.steps, axis=1) if values.shape[1] == 1 else values.astype(np.float64)
        if export.kind == "counter":
            self._reset(values, cards)
        return values

    def _reset(self, values: NDArray[Any], cards: NDArray[Any]) -> None:
        """Begin at 0 again where the driver was loaded anew."""
        for row, card in enumerate(cards):
            for step in self._restart_steps(card, driver_only=True):
                values[row, step:] -= values[row, step - 1] if step else 0

    def _restart_steps(self, card: int, *, driver_only: bool = False) -> list[int]:
        node = self.day.fleet.nodes[self.day.fleet.cards[card].node]
        steps = [int((r.at_s - node.phase_s) // STEP_S) + 1 for r in node.restarts if r.driver or not driver_only]
        return [step for step in steps if step < self.day.steps]

    def _xids(self, reading: str, cards: NDArray[Any]) -> NDArray[Any]:
        """Return the last code, or how often one came. The exporter counts, and forgets at its restart."""
        values = np.zeros((len(cards), self.day.steps))
        row_of = {int(card): row for row, card in enumerate(cards)}
        for event in sorted(self.day.events, key=lambda event: event.step):
            if event.card not in row_of or reading not in ("last_xid", f"xid_{event.code}"):
                continue
            until = min([step for step in self._restart_steps(event.card) if step > event.step], default=self.day.steps)
            held = values[row_of[event.card], event.step : until]
            held[:] = event.code if reading == "last_xid" else held + 1
        return values

    def _without_profiler(self, values: NDArray[Any], cards: NDArray[Any]) -> None:
        for row, card in enumerate(cards):
            node = self.day.fleet.nodes[self.day.fleet.cards[card].node]
            if node.profiler is Profiler.ABSENT:
                values[row] = np.nan
            elif node.profiler is Profiler.DEAD:
                # AMD's exporter gives up and serves nothing; DCGM goes on and serves 0.
                values[row, int(node.profiler_dies_s // STEP_S) :] = np.nan if node.exporter is Generation.AMD else 0

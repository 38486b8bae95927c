"""A simulated day as the service sees it: the polls of its raw series, read by the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.readers.cards.card_labels import LabelSets
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.cards.metric_rows import aggregated
from pyscheduler.readers.cards.polls import polls, vendors
from tests.sim.day import Day
from tests.sim.fleet import Card, Fleet, Generation
from tests.sim.loads import STEP_S
from tests.sim.recording import BEGIN, Recording

__all__ = ["keys_of", "pods_at", "polls_of", "step_at"]

# Polls that are read together: labels are looked at once for all of them.
_TOGETHER = 240


def polls_of(recording: Recording, every_s: float = STEP_S) -> Iterator[Poll]:
    """Yield the polls of the day, from the second interval on."""
    sources = catalogue()
    named = {metric: vendor for metric, vendor in vendors(sources).items() if metric.name in recording.names}
    times = np.arange(BEGIN + every_s, recording.end + 1, every_s).tolist()
    for first in range(0, len(times), _TOGETHER):
        at, sets, rows = times[first : first + _TOGETHER], LabelSets(), []
        for name in dict.fromkeys(metric.name for metric in named):
            found = [recording.latest(name, moment) for moment in at]
            values, scraped = np.array([each.values for each in found]).T, np.array([each.times for each in found]).T
            labels = recording.metric(name).labels
            rows += [aggregated(m, vendor, labels, values, scraped, sets) for m, vendor in named.items() if m.name == name]
        yield from polls(rows, sets, sources, at, complete=True, nodes={}).polls


def step_at(at: float) -> int:
    """Return the number of the interval in which a time lies."""
    return int((at - BEGIN) // STEP_S)


def keys_of(fleet: Fleet, card: Card) -> tuple[CardKey, ...]:
    """Return what the service calls a card: one key for each MIG instance, or one for the whole card."""
    node = fleet.nodes[card.node]
    uuid = card.uuid.removeprefix("GPU-") if node.exporter is Generation.AMD else card.uuid
    return tuple(CardKey(node.name, uuid, instance) for instance in card.instances or ("",))


def pods_at(day: Day, keys: Mapping[int, tuple[CardKey, ...]], at: float) -> dict[CardKey, str]:
    """Return which pod has which card."""
    return {key: job for card, job in day.jobs_at(step_at(at)).items() for key in keys[card]}

"""What `pyscheduler doctor` compares: what Prometheus answers, and the nodes of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyscheduler.adapters.prometheus import Collected
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers.cards.card_labels import IDENTITY
from pyscheduler.readers.cards.catalogue_entries import Source, Vendor
from pyscheduler.readers.cards.metric_samples import Card
from pyscheduler.readers.cards.node_names import node_names
from pyscheduler.readers.metrics_config import MetricsConfig

__all__ = ["Answers", "Fleet", "Series", "Targets", "fleet_of"]


@dataclass(frozen=True, slots=True)
class Series:
    """One series as Prometheus has it, of a metric that every card has."""

    vendor: Vendor
    metric: str
    labels: Mapping[str, str]

    @property
    def job(self) -> str:
        """The job that scrapes it."""
        return self.labels.get("job", "")

    @property
    def uuid(self) -> str:
        """UUID or serial number of its card, "" where it has none."""
        card = Card.of(self.labels)
        return card.uuid or card.serial or ""

    @property
    def card(self) -> tuple[str, ...]:
        """What tells its card or instance from others: where it has no UUID, together with the target."""
        place = "" if self.uuid else self.labels.get("instance", "")
        return place, *(self.labels.get(label, "") for label in IDENTITY)


@dataclass(frozen=True, slots=True)
class Targets:
    """How many targets a job has, and how many of them do not answer."""

    all: int
    down: int


@dataclass(frozen=True, slots=True)
class Answers:
    """What Prometheus says.

    Attributes
    ----------
    config, sources
        How it was asked, and the metrics that are known.
    now
        When, in Unix seconds.
    names
        Metrics of the catalogue that are there, and how many series each has.
    foreign
        Other names that look like those of GPUs.
    series
        Of one metric per vendor that every card has.
    targets
        By job; empty where Prometheus does not scrape itself.
    intervals
        By job the seconds between two samples of a series.
    collected
        One poll as the service makes it; None if it failed.
    problems
        What could not be asked.
    """

    config: MetricsConfig
    sources: Sequence[Source]
    now: float
    names: Mapping[str, int] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()
    targets: Mapping[str, Targets] = field(default_factory=dict)
    intervals: Mapping[str, float] = field(default_factory=dict)
    collected: Collected | None = None
    problems: tuple[str, ...] = ()

    @property
    def cards(self) -> Mapping[str, set[str]]:
        """UUIDs (or what stands for them) of the cards of each node that the service would know."""
        found: dict[str, set[str]] = {}
        for key in self.collected.polls[-1].cards if self.collected and self.collected.polls else ():
            found.setdefault(key.node, set()).add(key.uuid)
        return found


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of the cluster.

    Attributes
    ----------
    names
        Of all of them.
    known_as
        Names and addresses, to names.
    shared
        Addresses that several nodes have: they name none.
    gpu_nodes
        Those with GPUs.
    """

    names: frozenset[str]
    known_as: Mapping[str, str]
    shared: frozenset[str]
    gpu_nodes: Mapping[str, NodeRecord]


def fleet_of(records: Iterable[NodeRecord]) -> Fleet:
    """Return the nodes."""
    records = list(records)
    known_as = node_names({record.name: record.addresses for record in records})
    return Fleet(
        frozenset(record.name for record in records),
        {address: name for address, name in known_as.items() if name},
        frozenset(address for address, name in known_as.items() if not name),
        {record.name: record for record in records if _has_gpus(record)},
    )


def _has_gpus(record: NodeRecord) -> bool:
    own = record.document is not None and record.preset is None and bool(record.document.gpus)
    return record.capacity > 0 or record.allocatable > 0 or own

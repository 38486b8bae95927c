"""What an entry of the catalogue of metrics says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity

__all__ = ["Join", "Many", "Match", "Metric", "Source", "Vendor"]


class Vendor(Enum):
    """Whose exporter has the metric; ANY of one that somebody else makes."""

    NVIDIA = "nvidia"
    AMD = "amd"
    ANY = "any"


class Many(Enum):
    """Which of several series of one card counts: after its pod changed, or scraped twice, a card has more than one."""

    HIGHEST = "max"
    LOWEST = "min"
    # Their number: each series is an event.
    NUMBER = "count"


class Join(Enum):
    """What the metrics of one source together make of a card's values."""

    # The only one.
    ONE = "one"
    # All that are there added up.
    SUM = "sum"
    # The highest of those that are there.
    HIGHEST = "highest"
    # The first of the sum of the two: used and free.
    SHARE = "share"
    # The first of the second: used and total.
    PART = "part"


@dataclass(frozen=True, slots=True)
class Match:
    """Series whose label matches a regular expression as a whole, or does not."""

    label: str
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric under the name that it has.

    Attributes
    ----------
    name
        As exported.
    scale
        What makes of its value one in the quantity's unit.
    least, most
        The range of values that can be, after `scale`.
    where
        Which of its series count.
    over
        Labels whose series are added up: the links of a card, the codes of its events.
    many
        Which of several series of one card counts.
    convert
        What makes of the scaled value the quantity, where that is no factor.
    percent_or_ratio
        Under this name some versions give 0 to 100 and others 0 to 1.
    """

    name: str
    scale: float = 1.0
    least: float = 0.0
    most: float = math.inf
    where: tuple[Match, ...] = ()
    over: tuple[str, ...] = ()
    many: Many = Many.HIGHEST
    convert: Callable[[Floats], Floats] | None = None
    percent_or_ratio: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """One way to a quantity.

    Attributes
    ----------
    metrics
        What must be asked for.
    join
        What they make together.
    from_first_event
        The exporter has no series before the first event: where there is none, there was no event. Otherwise what is
        absent is unknown.
    """

    quantity: Quantity
    metrics: tuple[Metric, ...]
    vendor: Vendor = Vendor.ANY
    join: Join = Join.ONE
    from_first_event: bool = False

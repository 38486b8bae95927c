"""What was measured on a node, against what its link types say: figures that replace defaults, and links that are not what they seem.

Pure arithmetic on one document; `core.machine.classify` puts it into the class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.document import Measured, NodeDocument
from pyscheduler.core.machine.links import Kind, Link

__all__ = ["Fading", "pair_speeds", "ring_mbps"]

# A pair this much slower than the others of its link type on the same machine is not what its link type says.
_SLOW: Final = 0.7
# The same against the default of the link type, where fewer than `_PEERS` pairs were measured: defaults know no machine.
_SLOW_AGAINST_DEFAULT: Final = 0.5
_PEERS: Final = 3
# Beyond this many times the default it is no measurement of that link.
_ABSURD: Final = 8.0
# Measured speeds are kept in eighths of a doubling: 9 % steps, so that the noise of a benchmark makes no classes of its own.
_STEPS: Final = 8
# What is left of a measurement below this share is no longer looked at.
_FAINT: Final = 1 / 16


@dataclass(frozen=True, slots=True)
class Fading:
    """How measurements fade: half of one is left after `half_life_s`. `now` is Unix time in seconds."""

    half_life_s: float
    now: float

    def share(self, observed_at: float | None) -> float:
        """Return how much of a measurement is left, 0 to 1. One of unknown time, or of the future, counts as new."""
        age = max(0.0, self.now - observed_at) if observed_at is not None else 0.0
        left: float = 0.5 ** (age / self.half_life_s)
        return left if left >= _FAINT else 0.0

    def mix(self, gbps: float, expected: int, observed_at: float | None) -> int:
        """Return the geometric mean of measured and expected, weighed by what is left of the measurement, in MB/s."""
        left = self.share(observed_at)
        return _stepped(expected * (1000 * gbps / expected) ** left) if left else expected


def pair_speeds(
    document: NodeDocument, links: Sequence[Link], expected: Sequence[int], fading: Fading
) -> tuple[tuple[int, ...], tuple[Finding, ...]]:
    """Return the speed of each pair in MB/s, and what the measurements revealed.

    Parameters
    ----------
    document
        The node's document with its measurements.
    links, expected
        Link of each pair, and its speed in MB/s by link type, in the order of ``itertools.combinations``.
    fading
        How much old measurements count.

    """
    speeds = list(expected)
    told: list[Finding] = []
    # With its speed: cards of two generations in one machine differ by link types of one name.
    types = list(zip(links, expected, strict=True))
    by_type: dict[tuple[Link, int], dict[int, Measured]] = {}
    for i, result in _newest_of_pairs(document, fading).items():
        if links[i].kind is Kind.UNKNOWN or not 0 < 1000 * result.gbps <= _ABSURD * expected[i]:
            told.append(_implausible(result, expected[i]))
        else:
            by_type.setdefault(types[i], {})[i] = result
    for of_type, seen in by_type.items():
        pairs = [i for i, other in enumerate(types) if other == of_type]
        for i, gbps, observed_at in _of_type(pairs, seen):
            speeds[i] = fading.mix(gbps, expected[i], observed_at)
        told += [_slow(seen[i], links[i], usual) for i, usual in _slow_pairs(seen, expected)]
    return tuple(speeds), tuple(told)


def ring_mbps(document: NodeDocument, expected: Sequence[int], fading: Fading) -> tuple[int | None, tuple[Finding, ...]]:
    """Return the bus bandwidth measured over all GPUs of the node in MB/s, and what the measurement revealed.

    None if there is none that mostly counts, or if the newest cannot be: faster by far than the fastest link of the GPU
    that is linked worst. `expected` is the speed of each pair in MB/s.
    """
    gpus = [gpu.id for gpu in document.gpus]
    for result in reversed(_oldest_first(document.measured)):
        whole = result.tool == "nccl-tests" and result.nodes == 1 and set(result.gpus) == set(gpus)
        if whole and len(gpus) > 2 and fading.share(result.observed_at) >= 0.5:
            narrowest = _narrowest(len(gpus), expected)
            if 1000 * result.gbps > _ABSURD * narrowest:
                return None, (_implausible(result, narrowest),)
            return _stepped(1000 * result.gbps), ()
    return None, ()


def _narrowest(gpus: int, expected: Sequence[int]) -> int:
    fastest = [0] * gpus
    for pair, speed in zip(combinations(range(gpus), 2), expected, strict=True):
        for gpu in pair:
            fastest[gpu] = max(fastest[gpu], speed)
    return min(fastest)


def _newest_of_pairs(document: NodeDocument, fading: Fading) -> dict[int, Measured]:
    """Return the newest measurement of each pair of which something is left, by the pair's place."""
    index = {gpu.id: i for i, gpu in enumerate(document.gpus)}
    place = {pair: i for i, pair in enumerate(combinations(range(len(index)), 2))}
    seen: dict[int, Measured] = {}
    for result in _oldest_first(document.measured):
        of_pair = result.nodes == 1 and len(set(result.gpus)) == len(result.gpus) == 2 and index.keys() >= set(result.gpus)
        if of_pair and fading.share(result.observed_at):
            a, b = sorted(index[gpu] for gpu in result.gpus)
            seen[place[a, b]] = result
    return seen


def _oldest_first(measured: Iterable[Measured]) -> list[Measured]:
    return sorted(measured, key=lambda result: result.observed_at or 0.0)


def _of_type(pairs: Iterable[int], seen: Mapping[int, Measured]) -> Iterator[tuple[int, float, float | None]]:
    """Yield pair, GB/s and time for each pair of one link type that something is known of.

    With `_PEERS` measured pairs the median counts for all pairs of the type, measured or not, save those far below it.
    """
    if len(seen) < _PEERS:
        yield from ((i, result.gbps, result.observed_at) for i, result in seen.items())
        return
    usual = median(result.gbps for result in seen.values())
    newest = _oldest_first(seen.values())[-1].observed_at
    for i in pairs:
        if i in seen and seen[i].gbps < _SLOW * usual:
            yield i, seen[i].gbps, seen[i].observed_at
        else:
            yield i, usual, newest


def _slow_pairs(seen: Mapping[int, Measured], expected: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Yield the pairs far below what is usual, with that in GB/s."""
    usual = median(result.gbps for result in seen.values()) if len(seen) >= _PEERS else None
    for i, result in seen.items():
        default = expected[i] / 1000
        if result.gbps < (_SLOW * usual if usual else _SLOW_AGAINST_DEFAULT * default):
            yield i, usual or default


def _stepped(mbps: float) -> int:
    # At least 1: a speed of 0 is that of no link.
    return round(2 ** (round(math.log2(max(1.0, mbps)) * _STEPS) / _STEPS))


def _slow(result: Measured, link: Link, usual: float) -> Finding:
    pair = "-".join(result.gpus)
    return Finding(
        "link-slow",
        f"link {pair} ({link}) was measured at {result.gbps:.1f} GB/s where {usual:.1f} is usual: it ranks by what was measured",
        "check the link (nvidia-smi nvlink -e, dmesg), and measure again after the repair",
    )


def _implausible(result: Measured, expected: int) -> Finding:
    pair = "-".join(result.gpus)
    return Finding(
        "measurement-implausible",
        f"{result.gbps:.4g} GB/s measured for {pair} do not fit its links ({expected / 1000:.4g} GB/s): not used",
        "measure again, or correct the link in the node document",
    )

"""Means in which old samples count less.

The weight of a sample falls by `decay_factor` with each newer sample, or, where samples come irregularly, by half in
each half-life. Both are the same where samples are one interval apart: see `half_life`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["DecayedMean", "compute_capacity_score", "decayed_mean", "half_life"]


def compute_capacity_score(metrics_history: Iterable[float], decay_factor: float = 0.9) -> float:
    """Return the mean of the samples, each weighted with `decay_factor ** age`.

    Parameters
    ----------
    metrics_history
        The samples, the newest last. Its age is 0, that of the one before it 1, and so on. True is 1, and False is 0.
    decay_factor
        Greater than 0 and at most 1, where all count alike.

    Raises
    ------
    ValueError
        If there is no sample, one is no finite number, or the factor is out of its range.

    """
    factor = _factor(decay_factor)
    samples = [_finite(f"metrics_history[{index}]", sample) for index, sample in enumerate(_history(metrics_history))]
    if not samples:
        raise ValueError("metrics_history is empty: give at least one sample, the newest last")
    weights = [factor**age for age in range(len(samples) - 1, -1, -1)]
    try:
        return math.fsum(weight * sample for weight, sample in zip(weights, samples, strict=True)) / math.fsum(weights)
    except OverflowError as cause:
        raise ValueError("metrics_history has samples that are too large to be added: give them in a larger unit") from cause


def half_life(decay_factor: float, interval_s: float) -> float:
    """Return the seconds in which a weight halves that falls by `decay_factor` in each interval.

    Raises
    ------
    ValueError
        If the factor is not in (0, 1], or the interval is not positive.

    """
    factor = _factor(decay_factor)
    if not interval_s > 0:
        raise ValueError(f"interval_s is {interval_s}: write seconds greater than 0")
    return math.inf if factor == 1 else interval_s * math.log(0.5) / math.log(factor)


def decayed_mean(times: Sequence[float], values: Sequence[float], half_life_s: float) -> float:
    """Return the mean of samples taken at any times, in the order of their times.

    Raises
    ------
    ValueError
        If there is no sample, one is no finite number, times go back, or the half-life is not positive.

    """
    if not times:
        raise ValueError("times is empty: give at least one sample, the newest last")
    mean = DecayedMean(half_life_s)
    for time, value in zip(times, values, strict=True):
        mean = mean.plus(time, value)
    return mean.value


@dataclass(frozen=True, slots=True)
class DecayedMean:
    """The same mean, sample by sample: its size does not grow.

    Attributes
    ----------
    half_life_s
        Seconds in which the weight of a sample halves.
    total, weight
        Sum of the weighted samples, and of their weights, as of the newest.
    at
        When the newest was taken.
    """

    half_life_s: float
    total: float = 0.0
    weight: float = 0.0
    at: float = -math.inf

    def __post_init__(self) -> None:
        """Refuse a half-life that is none."""
        if not self.half_life_s > 0:
            raise ValueError(f"half_life_s is {self.half_life_s}: write seconds greater than 0")

    def plus(self, at: float, sample: float) -> DecayedMean:
        """Return the mean with one more sample.

        Raises
        ------
        ValueError
            If the sample or its time is no finite number, or it is older than the newest.

        """
        _finite("sample", sample)
        _finite("at", at)
        if at < self.at:
            raise ValueError(
                f"the sample of time {at} is older than the newest, {self.at}: add samples in the order of their times"
            )
        kept = 2.0 ** (-(at - self.at) / self.half_life_s) if self.weight else 0.0
        return DecayedMean(self.half_life_s, kept * self.total + sample, kept * self.weight + 1.0, at)

    @property
    def value(self) -> float:
        """The mean.

        Raises
        ------
        ValueError
            If there is no sample.

        """
        if not self.weight:
            raise ValueError("there is no sample yet: add one first")
        return self.total / self.weight


def _factor(decay_factor: float) -> float:
    try:
        is_good = bool(0 < decay_factor <= 1)
    except (TypeError, ValueError):
        is_good = False
    if not is_good:
        raise ValueError(f"decay_factor is {decay_factor!r}: write a number greater than 0 and at most 1, such as 0.9")
    return float(decay_factor)


def _history(metrics_history: Iterable[float]) -> Iterator[float]:
    try:
        return iter(metrics_history)
    except TypeError as cause:
        raise ValueError(f"metrics_history is {metrics_history!r}: give a list of samples, the newest last") from cause


def _finite(name: str, value: float) -> float:
    try:
        finite = math.isfinite(value)
    except TypeError as cause:
        raise ValueError(f"{name} is {value!r}: write a number") from cause
    except OverflowError as cause:
        raise ValueError(f"{name} is too large for a floating-point number: give it in a larger unit") from cause
    if not finite:
        raise ValueError(f"{name} is {value}: leave out samples that are no finite numbers")
    return float(value)

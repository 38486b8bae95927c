"""How fast each card is against its peers at like load.

A clock depends on the card and on the load. Both are estimated in turn: what a load allows is the median over the peers of
their clocks there, each divided by the card's speed; a card's speed is the mean over its loads of its clock, divided by what
that load allows. So it does not matter which cards happened to have which jobs. How far a card's speed shows in its clock
depends on the load, too: wholly where the power limit governs, less where memory does. The peers tell: where fast and slow
ones differ less in their clocks than elsewhere, a difference means more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import SpeedConfig
from pyscheduler.core.capacity.load_means import LoadMeans
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.rows import quotient

__all__ = ["PeerGroup", "compare", "counted", "groups_of", "mean_of", "normal_deviation"]

# Rounds of the two estimates. Each divides what is left of the error of cards that had few loads; three leave nothing
# that counts beside the spread of real cards.
_ROUNDS: Final = 3
# The mean distance from the median, of a normal distribution with deviation 1, is 1 / 1.2533. The median of the distances
# would need twice as many cards to be as exact.
_NORMAL: Final = 1.2533
# The slope of a load is taken to be 1 as firmly as if so many cards had shown it, and is never beyond these.
_PRIOR: Final = 10
_SLOPES: Final = (0.4, 1.5)


class PeerGroup:
    """What is known of one group of peers.

    Attributes
    ----------
    rows
        Its cards.
    allowed
        The logarithm of the clock that each cell of load allows; NaN where too few peers have been.
    slope
        How far the logarithm of a card's speed shows in that of its clock at each cell; 1 where nothing is known.
    centre
        The median of the logarithm of their speeds.
    cut
        The ratio to their median from which on a card is too slow.
    judged
        How many cards were compared.
    """

    def __init__(self, rows: NDArray[np.int64], allowed: Floats, slope: Floats, centre: float, cut: float, judged: int) -> None:
        self.rows = rows
        self.allowed = allowed
        self.slope = slope
        self.centre = centre
        self.cut = cut
        self.judged = judged


def groups_of(models: NDArray[np.int64], limits: Floats) -> list[NDArray[np.int64]]:
    """Return the rows of each group of peers: cards of one model (-1: unknown) and power limit."""
    known = np.flatnonzero(models >= 0)
    keys = np.stack((models[known], np.round(np.nan_to_num(limits[known], nan=-1.0)).astype(np.int64)), axis=1)
    if not len(known):
        return []
    _, member = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(member, kind="stable")
    return np.split(known[order], np.flatnonzero(np.diff(member[order])) + 1)


def compare(means: LoadMeans, rows: NDArray[np.int64], config: SpeedConfig, threshold: float) -> PeerGroup:
    """Estimate what each load allows to one group, and how wide their speeds spread."""
    clock = np.where(means.weight[rows] >= config.like_load_s, means.mean[rows], np.nan)
    weight = counted(means.weight[rows], config)
    speed = np.zeros(len(rows))
    allowed, slope = np.full(clock.shape[1], np.nan), np.ones(clock.shape[1])
    for _ in range(_ROUNDS):
        allowed = _medians(clock - np.nan_to_num(speed)[:, None] * slope, config.quorum)
        speed = mean_of(clock - allowed, weight, slope)
        speed -= _median(speed)
        slope = _slopes(clock - allowed, speed, weight)
    speed = mean_of(clock - allowed, weight, slope)
    known = speed[~np.isnan(speed)]
    centre = _median(known)
    uncut = config.peer_r0 + threshold * (1.0 - config.peer_r0)
    cut = uncut
    if len(known) >= config.quorum:
        cut = min(uncut, 1.0 - config.mad_widths * normal_deviation(np.exp(known - centre)))
    return PeerGroup(rows, allowed, slope, centre, max(cut, 0.0), len(known))


def normal_deviation(ratios: Floats) -> float:
    """Return the standard deviation of ratios to their median, of the faster half: slow cards must not hide themselves."""
    above = ratios[ratios >= 1.0] - 1.0
    return _NORMAL * float(np.mean(above)) if len(above) else 0.0


def counted(weight: Floats, config: SpeedConfig) -> Floats:
    """Return for how much busy seconds at each load count: jobs of one load differ, so more of one says ever less."""
    return weight / (1.0 + weight / config.load_busy_s)


def mean_of(values: Floats, weight: Floats, slope: Floats) -> Floats:
    """Return what each row says of the card's speed: the mean over the cells where it has a value; NaN where it has none.

    Least squares: a cell in which speed shows less says less.
    """
    weights = np.where(np.isnan(values), 0.0, weight) * slope
    return quotient((weights * np.nan_to_num(values)).sum(axis=1), (weights * slope).sum(axis=1))


def _slopes(values: Floats, speed: Floats, weight: Floats) -> Floats:
    """Return for each column how far speed shows in it; drawn to 1 as if some cards had shown just that."""
    known = ~np.isnan(values) & ~np.isnan(speed)[:, None]
    x = np.where(known, np.nan_to_num(speed)[:, None], 0.0)
    square = float(np.mean(np.square(speed[~np.isnan(speed)]))) if known.any() else 0.0
    if square == 0:
        return np.ones(values.shape[1])
    slope = ((x * np.nan_to_num(values)).sum(axis=0) + _PRIOR * square) / ((x * x).sum(axis=0) + _PRIOR * square)
    slope, work = np.maximum(slope, _SLOPES[0]), np.where(known, weight, 0.0).sum(axis=0)
    # Only their ratios are known: 1 is what the peers' work shows on average.
    clipped: Floats = np.clip(slope * work.sum() / np.sum(slope * work), *_SLOPES)
    return clipped


def _medians(values: Floats, quorum: int) -> Floats:
    """Return the median of each column that has at least `quorum` values."""
    count = np.sum(~np.isnan(values), axis=0)
    enough = count >= quorum
    medians = np.full(values.shape[1], np.nan)
    if enough.any():
        medians[enough] = np.nanmedian(values[:, enough], axis=0)
    return medians


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0

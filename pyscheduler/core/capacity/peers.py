"""How fast each card is against its peers at like load.

A clock depends on the card and on the load. Both are estimated in turn: what a load allows is the median over the peers of
their clocks there, each divided by the card's speed; a card's speed is the mean over its loads of its clock, divided by what
that load allows. So it does not matter which cards happened to have which jobs.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import SpeedConfig
from pyscheduler.core.capacity.load_means import LoadMeans
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.rows import quotient

__all__ = ["PeerGroup", "compare", "groups_of", "normal_deviation"]

# Rounds of the two estimates. Each divides what is left of the error of cards that had few loads; three leave nothing
# that counts beside the spread of real cards.
_ROUNDS: Final = 3
# The median of the distance from the median, of a normal distribution with deviation 1, is 1 / 1.4826.
_NORMAL: Final = 1.4826


class PeerGroup:
    """What is known of one group of peers.

    Attributes
    ----------
    rows
        Its cards.
    allowed
        The logarithm of the clock that each cell of load allows; NaN where too few peers have been.
    centre
        The median of the logarithm of their speeds.
    cut
        The ratio to their median from which on a card is too slow.
    judged
        How many cards were compared.
    """

    def __init__(self, rows: NDArray[np.int64], allowed: Floats, centre: float, cut: float, judged: int) -> None:
        self.rows = rows
        self.allowed = allowed
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
    weight = means.weight[rows]
    clock = np.where(weight >= config.like_load_s, means.mean[rows], np.nan)
    speed = np.zeros(len(rows))
    allowed = np.full(clock.shape[1], np.nan)
    for _ in range(_ROUNDS):
        allowed = _medians(clock - np.nan_to_num(speed)[:, None], config.quorum)
        speed = mean_of(clock - allowed, weight)
        speed -= _median(speed)
    speed = mean_of(clock - allowed, weight)
    known = speed[~np.isnan(speed)]
    centre = _median(known)
    uncut = config.peer_r0 + threshold * (1.0 - config.peer_r0)
    cut = uncut
    if len(known) >= config.quorum:
        cut = min(uncut, 1.0 - config.mad_widths * normal_deviation(np.exp(known - centre)))
    return PeerGroup(rows, allowed, centre, max(cut, 0.0), len(known))


def normal_deviation(ratios: Floats) -> float:
    """Return the standard deviation of ratios to their median, of the faster half: slow cards must not hide themselves."""
    above = ratios[ratios >= 1.0] - 1.0
    return _NORMAL * float(np.median(above)) if len(above) else 0.0


def mean_of(values: Floats, weight: Floats) -> Floats:
    """Return the weighted mean of each row over the cells where it has a value; NaN where it has none."""
    weights = np.where(np.isnan(values), 0.0, weight)
    total = weights.sum(axis=1)
    weighted = (weights * np.nan_to_num(values)).sum(axis=1)
    return quotient(weighted, total)


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

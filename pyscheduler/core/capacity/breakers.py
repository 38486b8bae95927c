"""When the fleet is to be doubted less than the detector.

If many cards of one model look slow, or many cards are silent at once, what has changed is more likely the way they are
measured than the cards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.config import BreakerConfig
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.readings import Bools

__all__ = ["SlowBreaker", "are_silent"]


class SlowBreaker:
    """Which of the slow cards are kept out: no more than a share of each model, the worst first.

    One that is kept out already stays before others, or near-equal cards would take turns. One card is always kept out, unless
    it is the only one of its model: a single card that is slow says nothing against the way they are measured.

    Attributes
    ----------
    kept_out
        Slow cards that are kept out.
    """

    def __init__(self, count: int) -> None:
        self.kept_out = np.zeros(count, dtype=np.bool_)

    def choose(
        self, slow: Bools, score: Floats, models: NDArray[np.int64], here: Bools, polled: Bools, config: BreakerConfig
    ) -> None:
        """Choose anew. `here` tells which cards count as the model's, `polled` which have had a series since the start."""
        # Of one that has not nobody knows of what model it is: it stays as it was remembered.
        chosen = slow & ~polled & self.kept_out
        for model in np.unique(models[slow & polled]):
            ours = polled & (models == model)
            rows = np.flatnonzero(slow & ours)
            count = np.count_nonzero(here & ours)
            most = max(int(config.slow_share * count), int(config.slow_share > 0 and count > 1))
            order = np.lexsort((rows, score[rows], ~self.kept_out[rows]))
            chosen[rows[order[:most]]] = True
        self.kept_out = chosen


def are_silent(ages: Floats, config: BreakerConfig) -> bool:
    """Tell whether so many of the cards that reported within `gone_s` are silent that it is Prometheus."""
    missed = ages <= config.gone_s
    silent = missed & (ages > config.late_s)
    return bool(np.count_nonzero(silent) > config.silent_share * np.count_nonzero(missed))

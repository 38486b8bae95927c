"""The detector on a simulated day, judged by the true speeds: a small case of `make bench-capacity`."""

from functools import cache

import numpy as np

from pyscheduler.core.capacity.config import CapacityConfig
from tests.judge import Judged, figures, judged, watch
from tests.sim.day import simulate
from tests.sim.fleet import FleetPlan, Generation, Pool, fleet
from tests.sim.models import H100, MI300X

PLAN = FleetPlan(seed=12, sigma=0.03, pools=(Pool(H100, 12), Pool(MI300X, 4, (Generation.AMD,))), fault_share=0.15)


@cache
def cards() -> list[Judged]:
    return judged(watch(simulate(fleet(PLAN)), CapacityConfig(interval_s=120.0)))


def test_cards_that_are_12_percent_slower_than_their_peers_are_kept_out_and_nobody_else() -> None:
    found = figures(cards(), lambda truth: truth.is_slow)
    assert found.positives >= 9
    assert found.recall >= 0.95
    assert found.precision >= 0.99


def test_cards_that_are_10_percent_slower_than_they_were_are_kept_out_and_nobody_else() -> None:
    found = figures(cards(), lambda truth: truth.is_dropped)
    assert found.positives >= 9
    assert found.recall >= 0.95
    assert found.precision >= 0.99


def test_classic_mode_cannot_tell_slow_cards_from_busy_ones() -> None:
    assert figures(cards(), lambda truth: truth.is_slow, classic=True).precision < 0.3


def test_cards_that_are_10_percent_slow_rank_behind_their_peers() -> None:
    behind = [card.behind for card in cards() if card.truth.fault in ("slow-10", "drop-10")]
    assert np.median(behind) > 0.9


def test_cards_that_have_recovered_are_handed_out_again() -> None:
    recovered = [card for card in cards() if card.truth.fault == "recovering"]
    assert any(card.in_time for card in recovered)
    assert not any(card.caught for card in recovered)

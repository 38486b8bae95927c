import numpy as np
import pytest

from pyscheduler import compute_capacity_score
from pyscheduler.core.capacity.availability import Availability
from pyscheduler.core.capacity.config import AvailabilityConfig
from pyscheduler.core.capacity.rows import append

NAN = float("nan")


class One:
    """One card."""

    def __init__(self, **config):
        self.layer = Availability(AvailabilityConfig(**config), 30.0)
        for part, more in zip((self.layer.sm, self.layer.memory), self.layer.rows(1), strict=True):
            append(part, more)
        self.at = 0.0

    def see(self, *samples, memory=NAN, gap=30.0):
        for used in samples:
            self.at += gap
            shares, times = (np.array([used]), np.array([memory])), (np.array([self.at]),) * 2
            new = tuple(~np.isnan(share) for share in shares)
            self.layer.observe(shares, times, new, self.at)
        return self.layer.values()[0]

    def silent(self, seconds):
        self.at += seconds
        nothing = (np.array([NAN]),) * 2
        self.layer.observe(nothing, nothing, (np.array([False]),) * 2, self.at)
        return self.layer.values()[0]


def test_idle_is_1_and_saturated_is_0():
    assert One().see(0.0, 0.0) == 1
    assert One().see(1.0, 1.0) == 0
    assert One().see(1.04) == 0  # a share may exceed 1 by rounding


def test_nothing_known_is_no_number():
    assert np.isnan(One().layer.values()[0])


def test_weights_of_sm_and_memory():
    assert One().see(1.0, memory=0.0) == pytest.approx(0.3)
    assert One().see(0.0, memory=1.0) == pytest.approx(0.7)
    assert One().see(NAN, memory=0.25) == pytest.approx(0.75)  # what is not known has no weight


def test_regular_samples_give_the_classic_score_of_the_window():
    used = [0.1 + 0.02 * step for step in range(30)]
    expected = compute_capacity_score([1 - share for share in used[-20:]], 0.9)
    assert One().see(*used) == pytest.approx(expected)


def test_one_sample_spike_does_not_count():
    calm = One().see(*[0.1] * 10)
    assert One().see(*[0.1] * 5, 1.0, *[0.1] * 4) == pytest.approx(calm)


def test_confirmed_jump_counts_with_its_first_sample():
    risen = One()
    risen.see(*[0.0] * 10)
    assert risen.see(1.0) == 1
    assert risen.see(0.9) == pytest.approx(compute_capacity_score([*[1.0] * 10, 0.0, 0.1]))


def test_jumps_in_opposite_directions_confirm_nothing():
    assert One().see(*[0.5] * 5, 1.0, 0.0, 0.5) == pytest.approx(0.5)


def test_small_steps_are_no_spikes():
    stepping = One()
    stepping.see(0.0)
    assert stepping.see(0.2) == pytest.approx(compute_capacity_score([1.0, 0.8]))


def test_silence_moves_nothing_until_the_window_is_over():
    card = One()
    before = card.see(*[0.3, 0.5, 0.4] * 3)
    assert card.silent(300) == before
    assert np.isnan(card.silent(301))


def test_confidence_grows_to_1_with_a_full_window():
    card = One()
    card.see(0.5)
    assert card.layer.confidence()[0] == pytest.approx(0.1 / (1 - 0.9**20), abs=1e-6)
    card.see(*[0.5] * 25)
    assert card.layer.confidence()[0] == pytest.approx(1.0)

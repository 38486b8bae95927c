"""The forms of the decayed mean against each other, and against the definition in exact arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyscheduler import compute_capacity_score
from pyscheduler.core.capacity.decay import DecayedMean, decayed_mean, half_life

SAMPLES = st.lists(st.floats(0, 1), min_size=1, max_size=60)
FACTORS = st.floats(0.05, 1)


@given(SAMPLES, FACTORS)
def test_score_is_the_definition(samples, factor):
    exact = Fraction(factor)
    weights = [exact ** (len(samples) - 1 - place) for place in range(len(samples))]
    expected = sum(weight * Fraction(sample) for weight, sample in zip(weights, samples, strict=True)) / sum(weights)
    assert compute_capacity_score(samples, factor) == pytest.approx(float(expected), abs=1e-12)


@given(SAMPLES, FACTORS, st.floats(1, 600))
def test_all_forms_agree_where_samples_are_regular(samples, factor, interval):
    life = half_life(factor, interval)
    times = [1e6 + interval * place for place in range(len(samples))]
    mean = DecayedMean(life)
    for time, sample in zip(times, samples, strict=True):
        mean = mean.plus(time, sample)
    assert mean.value == pytest.approx(compute_capacity_score(samples, factor), abs=1e-9)
    assert decayed_mean(times, samples, life) == mean.value


@given(SAMPLES, st.lists(st.floats(0, 1e4), min_size=60, max_size=60), st.floats(1, 1e5))
def test_mean_lies_between_its_samples(samples, gaps, life):
    times = [sum(gaps[: place + 1]) for place in range(len(samples))]
    assert min(samples) - 1e-9 <= decayed_mean(times, samples, life) <= max(samples) + 1e-9

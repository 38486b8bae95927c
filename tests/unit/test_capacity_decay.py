import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pyscheduler import compute_capacity_score
from pyscheduler.core.capacity.decay import DecayedMean, decayed_mean, half_life


def test_newest_sample_is_last_and_weighs_most():
    # The weights are 0.81, 0.9 and 1, which make 2.71.
    assert compute_capacity_score([1.0, 0.0, 0.0]) == pytest.approx(0.81 / 2.71)
    assert compute_capacity_score([0.0, 0.0, 1.0]) == pytest.approx(1 / 2.71)


def test_factor_is_the_callers():
    assert compute_capacity_score([4.0, 1.0], 0.5) == pytest.approx((0.5 * 4 + 1) / 1.5)
    assert compute_capacity_score([4.0, 1.0], decay_factor=1) == pytest.approx(2.5)


@pytest.mark.parametrize("history", [[0.7], (0.7, 0.7), np.full(5, 0.7), iter([0.7, 0.7]), [0.7] * 20_000])
def test_equal_samples_give_themselves(history):
    assert compute_capacity_score(history) == pytest.approx(0.7)


@pytest.mark.parametrize("history", [[], (), np.array([]), iter([])])
def test_empty_history_is_an_error(history):
    with pytest.raises(ValueError, match="metrics_history is empty: give at least one sample"):
        compute_capacity_score(history)


@pytest.mark.parametrize("sample", [math.nan, math.inf, -math.inf, "0.5", None])
def test_sample_that_is_no_finite_number_is_named(sample):
    with pytest.raises(ValueError, match=rf"metrics_history\[1\] is .*{str(sample)[-3:]}"):
        compute_capacity_score([1.0, sample, 1.0])


@pytest.mark.parametrize("sample", [10**400, -(10**400)])
def test_sample_that_no_float_holds_is_named(sample):
    with pytest.raises(ValueError, match=r"metrics_history\[1\] is too large"):
        compute_capacity_score([1.0, sample])


@pytest.mark.parametrize("history", [[1e308, 1e308], [-1e308] * 3])
def test_sum_that_no_float_holds_is_an_error(history):
    with pytest.raises(ValueError, match="metrics_history has samples that are too large to be added"):
        compute_capacity_score(history)


@pytest.mark.parametrize("history", [None, 5, 0.5])
def test_history_that_is_no_list_is_an_error(history):
    with pytest.raises(ValueError, match=rf"metrics_history is {history}: give a list of samples"):
        compute_capacity_score(history)


def test_numbers_of_every_kind_count_as_their_value():
    kinds: list[Any] = [Decimal("0.5"), Fraction(1, 2), np.float32(0.5), True, False]
    assert compute_capacity_score(kinds, 1) == pytest.approx((3 * 0.5 + 1 + 0) / 5)
    factors: list[Any] = [Decimal("0.5"), Fraction(1, 2), np.float32(0.5)]
    for factor in factors:
        assert compute_capacity_score([4.0, 1.0], factor) == pytest.approx((0.5 * 4 + 1) / 1.5)


@pytest.mark.parametrize("factor", [0.0, -0.1, 1.01, math.nan, math.inf, "0.9", None, [0.9], np.array([0.9, 0.9]), 10**400])
def test_factor_out_of_range_is_an_error(factor):
    with pytest.raises(ValueError, match=r"decay_factor is (.|\n)*: write a number greater than 0 and at most 1"):
        compute_capacity_score([1.0], factor)


def test_half_life_of_the_default_is_197_seconds():
    assert half_life(0.9, 30) == pytest.approx(197.36, abs=0.01)
    assert half_life(0.5, 30) == pytest.approx(30)
    assert half_life(1, 30) == math.inf


@pytest.mark.parametrize(("factor", "interval"), [(0, 30), (0.9, 0), (0.9, -1), (0.9, math.nan)])
def test_half_life_of_nonsense_is_an_error(factor, interval):
    with pytest.raises(ValueError, match="write"):
        half_life(factor, interval)


def test_irregular_samples_weigh_by_their_age():
    # Ages 300, 100, 0 at a half-life of 100: weights 1/8, 1/2, 1.
    mean = decayed_mean([0.0, 200.0, 300.0], [8.0, 2.0, 1.0], 100.0)
    assert mean == pytest.approx((8 / 8 + 2 / 2 + 1) / (1 / 8 + 1 / 2 + 1))


def test_a_pause_moves_no_mean():
    mean = DecayedMean(100.0).plus(0.0, 0.3)
    assert mean.plus(1e9, 0.3).value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DecayedMean(0.0), "half_life_s is 0.0"),
        (lambda: DecayedMean(10.0).value, "there is no sample yet"),
        (lambda: DecayedMean(10.0).plus(5.0, 1.0).plus(4.0, 1.0), "older than the newest"),
        (lambda: DecayedMean(10.0).plus(5.0, math.nan), "sample is nan"),
        (lambda: DecayedMean(10.0).plus(math.inf, 1.0), "at is inf"),
        (lambda: decayed_mean([], [], 10.0), "times is empty"),
        (lambda: decayed_mean([1.0], [], 10.0), "shorter"),
    ],
)
def test_errors_of_the_half_life_form_say_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""One wild point moves nothing, a missing one is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.errors import DiagError, TooFewPoints
from diag.stats.robust import (
    geometric_mean,
    mad_sigma,
    pair_slopes,
    theil_sen,
    weighted_mean,
    weighted_quantile,
)

NAN = float("nan")
numbers = st.floats(-1e6, 1e6)
weights = st.floats(0.01, 1e3)


def test_mad_sigma_estimates_the_normal_deviation() -> None:
    x = np.random.default_rng(1).normal(10.0, 3.0, 4000)
    assert mad_sigma(x) == pytest.approx(3.0, rel=0.05)
    x[:1500] = 1e9
    assert mad_sigma(x) < 20


def test_theil_sen_survives_a_quarter_of_nonsense_and_not_four_tenths() -> None:
    rng = np.random.default_rng(4)
    x = np.arange(100.0)
    y = 2.0 * x + 7.0 + rng.normal(0, 0.5, 100)
    places = rng.permutation(100)
    y[places[:25]] += 1e6
    slope, intercept = theil_sen(x, y)
    assert slope == pytest.approx(2.0, abs=0.1)
    assert intercept == pytest.approx(7.0, abs=5.0)
    # Its breakdown point is 29 %: two fifths of the points spoil more than half of the pairs.
    y = 2.0 * x + 7.0
    y[-40:] += 1e6 * np.arange(40)
    assert theil_sen(x, y)[0] > 100


def test_theil_sen_leaves_pairs_with_a_nan_out() -> None:
    x = np.array([0.0, 1.0, 2.0, NAN, 4.0, 5.0])
    y = np.array([1.0, 4.0, NAN, 9.0, 13.0, 16.0])
    assert theil_sen(x, y) == pytest.approx((3.0, 1.0))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        ([5.0] * 20, list(range(20))),
        ([NAN] * 20, list(range(20))),
    ],
)
def test_theil_sen_refuses_too_few_pairs_in_one_line(x: list[float], y: list[float]) -> None:
    with pytest.raises(TooFewPoints) as caught:
        theil_sen(np.array(x, dtype=np.float64), np.array(y, dtype=np.float64))
    assert isinstance(caught.value, DiagError)
    assert "\n" not in str(caught.value)
    assert "five pairs" in str(caught.value)


def test_pair_slopes_are_thinned_for_long_series() -> None:
    x = np.arange(1000.0)
    slopes = pair_slopes(x, 0.5 * x)
    assert len(slopes) <= 20_000
    assert np.allclose(slopes, 0.5)
    assert np.array_equal(slopes, pair_slopes(x, 0.5 * x))


def test_means_and_quantiles_by_hand() -> None:
    x, w = np.array([1.0, 10.0, NAN, 100.0]), np.array([3.0, 1.0, 99.0, NAN])
    assert weighted_mean(x, w) == pytest.approx(13 / 4)
    assert weighted_quantile(x, 0.5, w) == 1.0
    assert weighted_quantile(x, 0.75, w) == 1.0
    assert weighted_quantile(x, 0.76, w) == 10.0
    assert weighted_quantile(x, 1.0, w) == 10.0
    assert geometric_mean(np.array([1.0, 100.0, NAN, 0.0, -5.0])) == pytest.approx(10.0)


@pytest.mark.parametrize("values", [[], [NAN, NAN], [math.inf, NAN]])
def test_nothing_known_is_nan_and_never_zero(values: list[float]) -> None:
    x = np.array(values, dtype=np.float64)
    ones = np.ones_like(x)
    assert math.isnan(mad_sigma(x))
    assert math.isnan(geometric_mean(x))
    assert math.isnan(weighted_mean(x, ones))
    assert math.isnan(weighted_quantile(x, 0.5, ones))


@pytest.mark.parametrize("weight", [0.0, -1.0, NAN])
def test_a_weight_that_is_none_does_not_count(weight: float) -> None:
    x, w = np.array([1.0, 2.0]), np.array([1.0, weight])
    assert weighted_mean(x, w) == 1.0
    assert weighted_quantile(x, 1.0, w) == 1.0
    assert math.isnan(weighted_mean(x, np.full(2, weight)))


@given(st.lists(st.tuples(numbers, weights), min_size=1, max_size=40), st.floats(0, 1), st.randoms())
def test_weighted_quantiles_are_values_and_do_not_mind_the_order(
    pairs: list[tuple[float, float]], q: float, random: object
) -> None:
    x, w = (np.array(column) for column in zip(*pairs, strict=True))
    found = weighted_quantile(x, q, w)
    assert found in x
    assert w[x <= found].sum() >= q * w.sum() * (1 - 1e-9)
    assert weighted_quantile(x, 0.0, w) == x.min()
    assert weighted_quantile(x, 1.0, w) == x.max()
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    x2, w2 = (np.array(column) for column in zip(*shuffled, strict=True))
    assert weighted_mean(x2, w2) == pytest.approx(weighted_mean(x, w), rel=1e-9, abs=1e-6)


@given(st.lists(numbers, min_size=1, max_size=40), st.floats(-1e3, 1e3), st.floats(0.01, 100))
def test_mad_sigma_scales_and_ignores_the_place(values: list[float], offset: float, scale: float) -> None:
    x = np.array(values)
    assert mad_sigma(scale * x + offset) == pytest.approx(scale * mad_sigma(x), rel=1e-6, abs=1e-3)

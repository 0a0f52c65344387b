"""Against scipy and published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from diag.stats.proportions import calibration_error, mcnemar, paired_gain, wilson


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (3, 10), (10, 10), (184, 184), (39, 52)])
def test_wilson_is_scipys(hits: int, count: int) -> None:
    expected = binomtest(hits, count).proportion_ci(method="wilson")
    found = wilson(hits, count)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_nothing_counted_is_not_nothing_right() -> None:
    assert math.isnan(wilson(0, 0).value)


def test_mcnemar_is_the_exact_binomial_test() -> None:
    ours = np.array([1.0] * 39 + [0.0] * 13 + [1.0] * 100 + [0.0] * 20)
    theirs = np.array([0.0] * 39 + [1.0] * 13 + [1.0] * 100 + [0.0] * 20)
    won, lost, p = mcnemar(ours, theirs)
    assert (won, lost) == (39, 13)
    assert p == pytest.approx(binomtest(13, 52).pvalue)
    assert mcnemar(ours, ours) == (0, 0, 1.0)


def test_a_paired_gain_holds_its_mean() -> None:
    ours, theirs = np.array([1.0, 1.0, 0.0, 1.0] * 50), np.array([1.0, 0.0, 0.0, 0.0] * 50)
    mean, low, high = paired_gain(ours, theirs)
    assert mean == pytest.approx(0.5)
    assert 0.4 < low < 0.5 < high < 0.6


def test_calibration_error_of_a_boaster() -> None:
    said = np.full(100, 0.9)
    was = np.array([1.0] * 60 + [0.0] * 40)
    rng = np.random.default_rng(1)
    error, bins = calibration_error(said, rng.permutation(was), bins=1)
    assert error == pytest.approx(0.3)
    assert bins[0] == pytest.approx((0.9, 0.6, 100))


def test_bins_have_equal_mass() -> None:
    said = np.linspace(0, 1, 95)
    _, bins = calibration_error(said, (said > 0.5).astype(float))
    assert {count for _, _, count in bins} <= {9, 10}
    assert len(bins) == 10

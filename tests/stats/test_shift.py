"""The shift test keeps its promises on the noise that scrapes really have."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from diag.stats.shift import Shift, block_means, shift

# Quiet 90 minutes and 30 more at 15 s, in blocks of 20 scrapes (5 min), as reference/ranking.md has it.
BASELINE, INCIDENT, BLOCK = 360, 120, 20
ROUNDS = 300


def noise(rng: np.random.Generator, n: int, phi: float, white: float) -> np.ndarray:
    """AR(1) of unit variance plus white measurement noise, shape (n,)."""
    steps = rng.normal(0.0, np.sqrt(1 - phi * phi), n)
    steps[0] = rng.normal()
    x: np.ndarray = lfilter([1.0], [1.0, -phi], steps)
    return x + rng.normal(0.0, white, n)


def compared(x: np.ndarray) -> Shift:
    found = shift(block_means(x[:BASELINE], BLOCK), block_means(x[BASELINE:], BLOCK))
    assert found is not None
    return found


@cache
def rates(phi: float, white: float, step: float) -> tuple[float, float, float]:
    """Shares of rounds in which zero is excluded on either side, and in which each bound holds."""
    rng = np.random.default_rng([11, int(100 * phi), int(10 * white)])
    moved = low = high = 0
    for _ in range(ROUNDS):
        x = noise(rng, BASELINE + INCIDENT, phi, white)
        x[BASELINE:] += step
        found = compared(x)
        moved += found.low > 0 or found.high < 0
        low += found.low <= step
        high += found.high >= step
    return moved / ROUNDS, low / ROUNDS, high / ROUNDS


@pytest.mark.parametrize(("phi", "white"), [(0.0, 1.0), (0.7, 0.0), (0.7, 1.0), (0.9, 1.0)])
def test_false_alarms_stay_near_the_promise(phi: float, white: float) -> None:
    moved, _, _ = rates(phi, white, 0.0)
    # Either bound excluding zero: nominal 10 %; tests on raw points give 20–97 %.
    assert moved <= 0.14


def test_raw_points_break_the_promise_that_blocks_keep() -> None:
    # Why there are blocks at all: the same data, a block a point, and the autocorrelation ignored.
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(100):
        x = noise(rng, BASELINE + INCIDENT, 0.9, 0.0)
        a, b = x[:BASELINE], x[BASELINE:]
        t = (b.mean() - a.mean()) / np.sqrt(a.var() / len(a) + b.var() / len(b))
        wrong += abs(t) > 1.65
    assert wrong >= 40


@pytest.mark.parametrize(("phi", "white"), [(0.0, 1.0), (0.7, 1.0), (0.9, 1.0)])
@pytest.mark.parametrize("step", [0.0, 2.0])
def test_each_bound_holds_the_truth_in_nineteen_of_twenty(phi: float, white: float, step: float) -> None:
    _, low, high = rates(phi, white, step)
    assert low >= 0.92
    assert high >= 0.92


@pytest.mark.parametrize(("phi", "white"), [(0.0, 1.0), (0.7, 1.0)])
def test_a_step_of_three_sigma_is_found(phi: float, white: float) -> None:
    sigma = float(np.hypot(1.0, white))
    moved, _, _ = rates(phi, white, 3 * sigma)
    assert moved >= 0.95


def test_the_smallest_shift_it_finds_is_found_four_times_in_five() -> None:
    rng = np.random.default_rng(5)
    a = rng.normal(size=24)
    found = shift(a, rng.normal(size=8))
    assert found is not None
    # mde = (t.975 + t.80)·se; at any df its ratio to se lies between the normal's and the t's at 1 df.
    assert 2.8 <= found.mde / found.standard_error <= 14.2


@given(
    st.lists(st.floats(-5, 5), min_size=6, max_size=30),
    st.lists(st.floats(-5, 5), min_size=2, max_size=20),
    st.floats(-100, 100),
    st.floats(0.01, 100),
)
def test_a_shift_is_equivariant(a: list[float], b: list[float], offset: float, scale: float) -> None:
    x, y = np.array(a), np.array(b)
    plain, moved = shift(x, y), shift(scale * x + offset, scale * y + offset)
    assert plain is not None
    assert moved is not None
    tolerance = 1e-6 * (1 + scale * 10 + abs(offset))
    # A spread that vanishes beside the offset leaves only rounding to correlate.
    if np.var(x) > 1e-3:
        assert moved.shift == pytest.approx(scale * plain.shift, abs=tolerance)
        assert moved.low == pytest.approx(scale * plain.low, abs=tolerance)
        assert moved.high == pytest.approx(scale * plain.high, abs=tolerance)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=30),
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20),
)
def test_bounds_lie_around_the_shift(a: list[float], b: list[float]) -> None:
    found = shift(np.array(a), np.array(b))
    assert found is not None
    assert found.low <= found.shift <= found.high
    assert found.standard_error >= 0
    assert found.high - found.shift == pytest.approx(found.shift - found.low, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("before", "during"), [(5, 2), (6, 1), (0, 0), (5, 100)])
def test_too_few_blocks_exclude_nothing(before: int, during: int) -> None:
    assert shift(np.zeros(before), np.zeros(during)) is None


def test_a_noisy_incident_widens_the_bounds() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=24), rng.normal(size=10)
    calm, wild = shift(a, b), shift(a, (b - b.mean()) * 20 + b.mean())
    assert calm is not None
    assert wild is not None
    assert wild.high - wild.low > 5 * (calm.high - calm.low)


def test_a_block_needs_half_of_its_points() -> None:
    x = np.array([1.0, 3.0, np.nan, np.nan, np.nan, 7.0, np.nan, 5.0, 5.0, 9.0])
    # 1,3 | NaN,NaN | NaN,7 | NaN,5 | 5,9
    assert block_means(x, 2).tolist() == [2.0, 7.0, 5.0, 7.0]
    # Three points a block: the second is NaN, NaN, 7 and has a third only; the tenth point is left over.
    assert block_means(x, 3).tolist() == [2.0, 5.0]
    assert block_means(x[:3], 4).size == 0
    assert block_means(np.array([np.inf, 2.0]), 2).tolist() == [2.0]

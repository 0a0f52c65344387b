"""Steps are found, wandering is not one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from diag.stats.changepoint import change_points, exceedance_onset, long_run_variance


def ar1(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    steps = rng.normal(0.0, np.sqrt(1 - phi * phi), n)
    x: np.ndarray = lfilter([1.0], [1.0, -phi], steps)
    return x


@pytest.mark.parametrize("phi", [0.0, 0.7, 0.9])
def test_slow_noise_is_not_taken_for_steps(phi: float) -> None:
    rng = np.random.default_rng(7)
    found = []
    for _ in range(20):
        x = ar1(rng, 480, phi)
        found.append(len(change_points(x, long_run_variance(x[:240]))))
    assert np.mean(found) <= 1.0


def test_a_penalty_on_differences_would_find_dozens() -> None:
    # What the long-run variance is for: the white-noise penalty on the same series.
    x = ar1(np.random.default_rng(7), 480, 0.9)
    differences = float(np.var(np.diff(x))) / 2
    assert len(change_points(x, differences)) >= 12
    assert len(change_points(x, long_run_variance(x))) <= 2


@pytest.mark.parametrize("at", [100, 240, 400])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_step_is_found_where_it_is(at: int, sign: int) -> None:
    rng = np.random.default_rng(at)
    x = ar1(rng, 480, 0.5)
    variance = long_run_variance(x)
    x[at:] += sign * 6.0
    found = change_points(x, variance)
    assert min(abs(f - at) for f in found) <= 5
    assert len(found) <= 2


def test_both_ends_of_a_plateau_are_found() -> None:
    x = np.zeros(300)
    x[100:160] = 5.0
    assert change_points(x + np.tile([0.1, -0.1], 150), 0.01) == [100, 160]


@pytest.mark.parametrize("n", [0, 1, 15])
def test_a_series_shorter_than_two_levels_has_none(n: int) -> None:
    assert change_points(np.arange(n, dtype=np.float64), 1.0) == []


def test_no_level_is_shorter_than_asked() -> None:
    x = np.zeros(100)
    x[50:54] = 100.0
    for first, second in zip([0, *change_points(x, 0.1)], [*change_points(x, 0.1), 100], strict=True):
        assert second - first >= 8


def test_long_run_variance_counts_the_memory_of_the_noise() -> None:
    rng = np.random.default_rng(1)
    white, slow = rng.normal(size=4000), ar1(rng, 4000, 0.8)
    assert long_run_variance(white) == pytest.approx(1.0, abs=0.35)
    # (1 + φ)/(1 − φ) = 9 for an AR(1) of unit variance.
    assert long_run_variance(slow) == pytest.approx(9.0, abs=3.5)


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=60))
def test_long_run_variance_has_a_floor(values: list[float]) -> None:
    x = np.array(values)
    assert long_run_variance(x) >= 0.2 * float(np.var(x)) - 1e-9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("..........", None),
        ("....x.....", None),
        ("..x....xxxx", 7),
        ("...xx.x....", 3),
        ("x.x.x......", 0),
        ("........xxx", 8),
        (".........xx", None),
        ("x.....xxx.", 6),
    ],
)
def test_an_onset_needs_three_bad_points_of_five(text: str, expected: int | None) -> None:
    bad = np.array([c == "x" for c in text])
    assert exceedance_onset(bad, need=3, of=5) == expected


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 6), st.integers(0, 6))
def test_an_onset_is_bad_itself_and_keeps_its_promise(flags: list[bool], need: int, more: int) -> None:
    bad = np.array(flags, dtype=bool)
    at = exceedance_onset(bad, need=need, of=need + more)
    stretches = [bad[i : i + need + more].sum() >= need and bad[i] for i in range(len(bad))]
    assert at == (stretches.index(True) if any(stretches) else None)


def test_a_passing_swarm_is_not_the_beginning() -> None:
    bad = np.zeros(100, dtype=bool)
    bad[20:24] = True
    bad[60:] = True
    assert exceedance_onset(bad, need=3, of=6) == 20
    assert exceedance_onset(bad, need=3, of=6, settled=60) == 60


def test_what_comes_and_goes_begins_with_its_first_spell() -> None:
    bad = (np.arange(120) % 20 < 7) & (np.arange(120) >= 40)
    assert exceedance_onset(bad, need=3, of=6, settled=80) == 40

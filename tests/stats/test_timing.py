"""Coincidence is proved against the course's own rhythm, correlation against its own memory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from diag.stats.timing import coincidence, correlation, transitions


def bursts(rng: np.random.Generator, n: int, mean: float) -> np.ndarray:
    """An on/off course whose stretches last ``mean`` points on average."""
    flags = np.zeros(n, dtype=bool)
    on, at = False, 0
    while at < n:
        end = at + 1 + int(rng.exponential(mean))
        flags[at:end] = on
        on, at = not on, end
    return flags


def test_an_effect_that_keeps_time_is_found() -> None:
    rng = np.random.default_rng(1)
    on = bursts(rng, 400, 12)
    found = coincidence(on, on ^ (rng.random(400) < 0.05), guard=5)
    assert found is not None
    assert found.phi > 0.8
    assert found.p < 0.05
    assert found.bad_when_on > 0.9
    assert found.bad_when_off < 0.1
    assert found.transitions == transitions(on) >= 8


def test_independent_courses_rarely_look_as_if_they_kept_time() -> None:
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(80):
        found = coincidence(bursts(rng, 300, 12), bursts(rng, 300, 12), guard=5)
        wrong += found is not None and found.p <= 0.05 and found.phi >= 0.45
    assert wrong <= 4


def test_keeping_opposite_time_is_no_coincidence() -> None:
    on = bursts(np.random.default_rng(3), 400, 12)
    found = coincidence(on, ~on, guard=5)
    assert found is not None
    assert found.phi == pytest.approx(-1.0)
    assert found.p > 0.9


def test_shifting_both_courses_alike_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    on, bad = bursts(rng, 300, 10), bursts(rng, 300, 10)
    plain, rolled = coincidence(on, bad, guard=5), coincidence(np.roll(on, 70), np.roll(bad, 70), guard=5)
    assert plain is not None
    assert rolled is not None
    assert rolled.phi == pytest.approx(plain.phi)
    # A shift that does exactly as well counts or not by its last bit.
    assert rolled.p == pytest.approx(plain.p, abs=0.01)


@pytest.mark.parametrize(
    ("on", "bad"),
    [
        ("1" * 40, "01" * 20),
        ("0" * 40, "01" * 20),
        ("01" * 20, "1" * 40),
        ("01" * 20, "0" * 40),
        ("01", "01"),
    ],
)
def test_what_never_changes_or_is_too_short_proves_nothing(on: str, bad: str) -> None:
    flags = (np.array([c == "1" for c in text]) for text in (on, bad))
    assert coincidence(*flags, guard=2) is None


def test_transitions_count_switches() -> None:
    assert transitions(np.array([c == "1" for c in "0011101"])) == 3
    assert transitions(np.zeros(5, dtype=bool)) == 0


def test_independent_slow_courses_are_rarely_called_correlated() -> None:
    rng = np.random.default_rng(5)
    wrong = plain = 0
    for _ in range(100):
        x, y = (walk(rng, 200) for _ in range(2))
        r, p = correlation(x, y)
        wrong += p < 0.05
        plain += abs(r) * math.sqrt(198 / max(1 - r * r, 1e-9)) > 1.97
    assert wrong <= 14
    assert plain >= 25


def walk(rng: np.random.Generator, n: int) -> np.ndarray:
    x = np.zeros(n)
    for i in range(1, n):
        x[i] = 0.9 * x[i - 1] + rng.normal()
    return x


def test_a_real_correlation_is_found_and_missing_points_are_left_out() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=200)
    y = -2 * x + rng.normal(size=200)
    y[::9] = np.nan
    r, p = correlation(x, y)
    assert r < -0.8
    assert p < 1e-6


@pytest.mark.parametrize("values", [[1.0] * 30, [float("nan")] * 30, [1.0, 2.0, 3.0]])
def test_a_constant_or_short_course_correlates_with_nothing(values: list[float]) -> None:
    r, p = correlation(np.array(values), np.arange(len(values), dtype=np.float64))
    assert math.isnan(r)
    assert math.isnan(p)

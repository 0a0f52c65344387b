"""A beat in the signs of life, against random halts, swings of load and chance."""

from __future__ import annotations

import numpy as np

from diag.detectors.beat import WORTH, Beat, beat_of

SECONDS = 1500.0


def signs(seed: int, begins: np.ndarray, lasts: float, rate: float = 1.0) -> np.ndarray:
    """Random signs of life; those in a halt come at its end."""
    rng = np.random.default_rng(seed)
    times = rng.uniform(0, SECONDS, int(rate * SECONDS))
    for begin in begins:
        inside = (times >= begin) & (times < begin + lasts)
        times[inside] = begin + lasts + rng.uniform(0, 0.3, int(inside.sum()))
    return np.sort(times)


def found(times: np.ndarray) -> Beat:
    beat = beat_of(times)
    assert beat is not None
    return beat


def test_halts_at_even_intervals_are_a_beat_though_none_of_them_is_proven() -> None:
    rng = np.random.default_rng(0)
    beat = found(signs(1, np.cumsum(25 * rng.uniform(0.95, 1.05, 58)), 7.0))
    assert abs(beat.period_seconds - 25) <= 2
    assert beat.depth > WORTH
    assert beat.odds <= 0.01


def test_halts_at_random_moments_are_none() -> None:
    for seed in range(5):
        begins = np.cumsum(np.random.default_rng(seed).exponential(25, 55) + 6.0)
        beat = found(signs(seed, begins, 5.0))
        assert beat.depth < WORTH or beat.odds > 0.02


def test_a_slow_swing_of_load_is_none() -> None:
    rng = np.random.default_rng(3)
    moments = rng.uniform(0, SECONDS, 4000)
    kept = moments[rng.uniform(0, 1, 4000) < 0.5 + 0.45 * np.sin(2 * np.pi * moments / 700)]
    assert found(np.sort(kept)).depth < WORTH


def test_chance_alone_is_no_beat() -> None:
    shallow = [found(signs(seed, np.empty(0), 0.0)).depth for seed in range(20)]
    assert max(shallow) < WORTH


def test_too_few_signs_say_nothing() -> None:
    assert beat_of(np.arange(30.0)) is None
